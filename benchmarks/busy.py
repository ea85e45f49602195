"""Two threads on a machine whose cores are busy with other work, against one thread alone on an idle one.

OpenMP's threads wait for each other at the end of every parallel part. By default they spin while they wait, which
takes the core from the thread that they wait for. With `OMP_WAIT_POLICY=passive` and `GOMP_SPINCOUNT=1000`, which the
command line sets, they spin for a few microseconds and then sleep.
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from benchmarks.timing import Line, at_most, in_a_process, shown
from benchmarks.training import Shape, step_seconds

BUSY = "while True: pass"
SHAPE = Shape(64, 2, 1024, 128, 8, head_size=16)


def busy(_quick: bool) -> list[Line]:
    """Updates of class moments, a sweep over pairs, and training steps."""
    found = {}
    for policy in ("passive", "active"):
        with _policy(policy):
            alone = in_a_process("benchmarks.busy", "in_process", 1)
            with _other_work():
                found[policy] = (alone, in_a_process("benchmarks.busy", "in_process", 2))
    lines = []
    for what in ("update", "sweep", "step"):
        one, two = (seconds[what] for seconds in found["passive"])
        spinning = found["active"][1][what] / found["active"][0][what]
        times = {"ours": shown(two), "limit": shown(one), "baseline": f"spinning {spinning:.1f} ×"}
        lines.append(at_most(f"busy machine, {what}: two threads × one alone", two / one, 3, **times))
    return lines


def in_process(threads: int) -> dict[str, float]:
    """Median seconds of each kind of work with this number of threads."""
    from collapselab.core.moments import ClassMoments
    from collapselab.core.pairs import pair_statistics

    torch.set_num_threads(threads)
    generator = torch.Generator().manual_seed(0)
    features, labels = torch.randn(2048, 256, generator=generator), torch.randint(0, 5000, (2048,), generator=generator)
    moments = ClassMoments.empty(5000, 256)
    points = torch.randn(2000, 256, generator=generator, dtype=torch.float64)
    variances = torch.rand(2000, generator=generator, dtype=torch.float64)
    return {
        "update": _median(lambda: moments.update(features, labels), turns=100),
        "sweep": _median(lambda: pair_statistics(points, variances), turns=5),
        "step": statistics.median(step_seconds(SHAPE, 13)[3:]),
    }


def _median(run: Callable[[], object], *, turns: int) -> float:
    seconds = []
    for _ in range(turns + 2):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[2:])


@contextmanager
def _other_work() -> Iterator[None]:
    processes = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(2)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


@contextmanager
def _policy(policy: str) -> Iterator[None]:
    names = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
    before = {name: os.environ.pop(name) for name in names if name in os.environ}
    os.environ |= {"OMP_WAIT_POLICY": policy} | ({"GOMP_SPINCOUNT": "1000"} if policy == "passive" else {})
    try:
        yield
    finally:
        for name in names:
            os.environ.pop(name, None)
        os.environ |= before


ALL = {"busy": busy}
