"""Trainings with a head or an optimiser of the tables, for `torchrun`: CORPUS OUT and the settings as JSON, each once."""

import json
import sys
from pathlib import Path

from training.runs import run

if __name__ == "__main__":
    corpus, out, settings = sys.argv[1:]
    for name, values in json.loads(settings).items():
        run(Path(corpus), Path(out) / name, options={"log_every": 1}, **values)
