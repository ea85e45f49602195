"""CPU seconds of `collapselab measure` on a real model, over those of a bare forward pass with logits and loss.

    python -m benchmarks.whole_command MODEL CORPUS --tokens 200000 --turns 3
    python -m benchmarks.whole_command MODEL CORPUS --tokens 2000 --also before=PATH/OF/ANOTHER/src

Both are whole commands on one thread, start-up and loading included, and read the same blocks in batches of the same
size. They take turns, so that a busy spell slows both. `--also` adds the sources of another version to the turns.
MODEL is a folder or a .gguf file.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
from pathlib import Path

BATCH_TOKENS = 4096
LIMIT = 1.10
BARE = """
import sys
from pathlib import Path
import torch
from transformers import AutoModelForCausalLM
from collapselab.corpus.blocks import Corpus
from collapselab.records.options import Options

path, folder, tokens, batch = Path(sys.argv[1]), *sys.argv[2:3], int(sys.argv[3]), int(sys.argv[4])
where, gguf_file = (path.parent, path.name) if path.suffix == ".gguf" else (path, None)
model = AutoModelForCausalLM.from_pretrained(where, gguf_file=gguf_file, dtype=torch.float32).eval()
corpus, total = Corpus(folder), 0.0
with torch.no_grad():
    for split in (corpus.train, corpus.validation):
        count = Options(tokens=tokens).blocks_for(float(split.samples().mean()), len(split))
        blocks = sorted(split.order(seed=0)[:count])
        for start in range(0, count, batch // split.block):
            read = split.read(blocks[start : start + batch // split.block])
            logits = model(input_ids=read.ids, use_cache=False).logits[:, :-1]
            total += float(torch.nn.functional.cross_entropy(logits.flatten(0, 1), read.labels.flatten()))
print(total)
"""
"""Reading blocks imports nothing that a script of one's own would not."""


def main() -> None:
    """Print the CPU seconds of every turn, and the ratio of the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--tokens", type=int, default=200_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--also", action="append", default=[], metavar="NAME=SRC")
    args = parser.parse_args()
    model, corpus, tokens = str(args.model), str(args.corpus), str(args.tokens)
    words = ["-m", "collapselab", "measure", model, "--corpus", corpus, "--tokens", tokens, "--quiet", "--again"]
    sources = {"collapselab": None, **dict(also.split("=", 1) for also in args.also)}
    seconds: dict[str, list[float]] = {name: [] for name in ("bare", *sources)}
    for _ in range(args.turns):
        seconds["bare"].append(cpu_seconds(["-c", BARE, model, corpus, tokens, str(BATCH_TOKENS)]))
        for name, source in sources.items():
            seconds[name].append(cpu_seconds(words, source))
    bare = statistics.median(seconds["bare"])
    for name, turns in seconds.items():
        ratio = "" if name == "bare" else f"  {statistics.median(turns) / bare:.3f} × bare (limit {LIMIT})"
        print(f"{name:12} {statistics.median(turns):7.2f} s  [{', '.join(f'{turn:.2f}' for turn in turns)}]{ratio}")


def cpu_seconds(words: list[str], source: str | None = None) -> float:
    """Return the user and system time of a Python process on one thread."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    environment = os.environ | threads | {"OMP_WAIT_POLICY": "passive", "HF_HUB_OFFLINE": "1"}
    if source is not None:
        environment["PYTHONPATH"] = source
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], env=environment, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
