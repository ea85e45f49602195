"""One measurement by several processes, started by forking from one that has imported everything.

    python worlds.py OUT CORPUS JOBS     JOBS: JSON list of [name, world, options]

Writes OUT/<name>.json, the result, and OUT/<name>-<rank>.json, what each process held.
"""

import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from collapselab.core.moments import ClassMoments
from collapselab.corpus.blocks import Corpus
from collapselab.errors import Interrupted
from collapselab.measurement import measure_model as walk
from collapselab.measurement import resume as store
from collapselab.measurement.collectors import COLLECTORS
from collapselab.measurement.collectors import moments as tables
from collapselab.measurement.distributed import Processes
from collapselab.measurement.measure import measure
from collapselab.models import load  # noqa: F401  imported before the fork
from collapselab.models.build import build_config, build_model
from collapselab.records.tables import TABLES

sys.path.append(str(Path(__file__).parents[1]))
from measurement.toy_collector import install


def main(out: Path, corpus: Path, jobs: list[tuple[str, int, dict[str, Any]]]) -> None:
    torch.set_num_threads(1)
    store.SAVE_SECONDS, store.SAVE_FACTOR = 0.0, 0
    for name, world, options in jobs:
        children = []
        for rank in range(world):
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    one_process(out, corpus, name, rank, world, options)
                    status = 0
                except Interrupted as error:
                    status = 128 + error.signal
                except BaseException:  # noqa: BLE001  a forked child must not run the parent's code
                    traceback.print_exc()
                finally:
                    sys.stderr.flush()
                    os._exit(status)
            children.append(child)
        statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        (out / f"{name}.status").write_text(json.dumps(statuses))


def one_process(out: Path, corpus: Path, name: str, rank: int, world: int, options: dict[str, Any]) -> None:
    rendezvous = f"file://{out / name}.rendezvous.{os.getppid()}"
    dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=world)
    held = watch_moments()
    die_at, number = options.pop("die_at", None), options.pop("signal", signal.SIGKILL)
    if die_at is not None:
        store.SAVE_SECONDS = 0.0 if number == signal.SIGKILL else 60.0
        die_after(die_at, rank, number)
    if options.pop("toy", False):
        install(COLLECTORS, TABLES)
    vocabulary, dtype = options.pop("vocabulary", 320), options.pop("dtype", "float64")
    config = build_config("gpt-neo", width=8, depth=1, vocabulary=vocabulary, positions=32)
    model = build_model(config, seed=0).to(getattr(torch, dtype))
    processes = Processes(dist.group.WORLD)
    corpus = Path(options.pop("corpus", corpus))
    result = measure(model, Corpus(corpus), quiet=True, processes=processes, **options)
    if rank == 0:
        (out / f"{name}.json").write_text(result.to_json())
    (out / f"{name}-{rank}.json").write_text(json.dumps({"held": max(held), "peak": peak_bytes()}))


def watch_moments() -> list[int]:
    """Sizes of the moments' tables as they are made while features are collected."""
    held: list[int] = [0]
    real = tables.update_all

    def update_all(features: Tensor, labels: list[tuple[ClassMoments, Tensor]], **how: bool) -> list[Tensor]:
        held.extend(moments.sums.numel() * 8 for moments, _ in labels)
        return real(features, labels, **how)

    tables.update_all = update_all  # type: ignore[assignment]
    return held


def die_after(batches: int, rank: int, number: int) -> None:
    """Kill one process at a batch, as a machine would; or send it a signal once."""
    ran = 0

    def counting(real: Any) -> Any:
        def features(*args: Any, **inputs: Any) -> Any:
            nonlocal ran
            ran += 1
            if ran == batches + 1 and rank == 1:
                os.kill(os.getpid(), number)
            return real(*args, **inputs)

        return features

    walk.features, walk.layer_features = counting(walk.features), counting(walk.layer_features)


def peak_bytes() -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3]))
