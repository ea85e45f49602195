"""Heads and optimisers of the tables in two processes: the losses are those of one."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from torch.testing import assert_close

from training import two_heads
from training.runs import logged, run

SETTINGS: dict[str, dict[str, Any]] = {
    "coupled-adam": {"optimizer": "coupled-adam", "tied": False},
    "coupling": {"coupling": 0.5, "weight_decay": 0.5},
    "frozen-code": {"head": "frozen-code", "tied": False},
    "class-means": {"head": "class-means", "tied": False},
    "sphere": {"head": "sphere", "tied": False},
    "centred": {"head": "centred", "tied": False},
}


@pytest.mark.slow
def test_two_processes_train_as_one_does(corpus_folder: Path, tmp_path: Path) -> None:
    script = str(Path(two_heads.__file__))
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29519", script]
    env = os.environ | {"PYTHONPATH": os.pathsep.join([p for p in sys.path if p])}
    command += [str(corpus_folder), str(tmp_path / "2"), json.dumps(SETTINGS)]
    subprocess.run(command, check=True, capture_output=True, timeout=240, env=env)
    for name, values in SETTINGS.items():
        run(corpus_folder, tmp_path / "1" / name, options={"log_every": 1}, **values)
        losses = logged(tmp_path / "2" / name, "loss")
        assert len(losses) == 6
        assert_close(losses, logged(tmp_path / "1" / name, "loss"), rtol=1e-4, atol=0, msg=name)
        ends = [logged(tmp_path / processes / name, "val_loss")[-1] for processes in ("1", "2")]
        assert_close(ends[1], ends[0], rtol=1e-4, atol=0, msg=f"{name}: of the checkpoint")
