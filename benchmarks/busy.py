"""Two threads on a machine whose cores are busy with other work, against one thread alone on an idle one.

OpenMP's threads wait for each other at the end of every parallel part. By default they spin while they wait, which
takes the core from the thread that they wait for. With `OMP_WAIT_POLICY=passive` and `GOMP_SPINCOUNT=1000`, which the
command line sets, they spin for a few microseconds and then sleep.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from benchmarks.timing import Line, at_most, in_a_process, in_this_process, shown
from benchmarks.training import Shape, step_seconds
from collapselab.core.moments import ClassMoments
from collapselab.core.pairs import pair_statistics

BUSY = "while True: pass"
SHAPE = Shape(64, 2, 1024, 128, 8, head_size=16)
WORK = ("update", "sweep", "step")


def busy(quick: bool) -> list[Line]:
    """Updates of class moments, a sweep over pairs, and training steps."""
    if quick:  # this process is passive, as long as the user does not ask for something else
        found, spinning = in_this_process(in_process, 20), {}
    else:
        found, spinning = (_with_policy(policy) for policy in ("passive", "active"))
    lines = []
    for what in WORK:
        one, two = found[f"{what} alone"], found[f"{what} busy"]
        times = {"ours": shown(two), "limit": shown(one)}
        if spinning:
            times["baseline"] = f"spinning {spinning[f'{what} busy'] / spinning[f'{what} alone']:.1f} ×"
        lines.append(at_most(f"busy machine, {what}: two threads × one alone", two / one, 3, **times))
    return lines


def in_process(turns: int) -> dict[str, float]:
    """Median seconds of each kind of work: with one thread alone, then with two while others keep the cores busy."""
    found = {f"{what} alone": seconds for what, seconds in _seconds(1, turns).items()}
    with _other_work():
        return found | {f"{what} busy": seconds for what, seconds in _seconds(2, turns).items()}


def _seconds(threads: int, turns: int) -> dict[str, float]:
    torch.set_num_threads(threads)
    generator = torch.Generator().manual_seed(0)
    features, labels = torch.randn(2048, 256, generator=generator), torch.randint(0, 5000, (2048,), generator=generator)
    moments = ClassMoments.empty(5000, 256)
    points = torch.randn(2000, 256, generator=generator, dtype=torch.float64)
    variances = torch.rand(2000, generator=generator, dtype=torch.float64)
    return {
        "update": _median(lambda: moments.update(features, labels), turns=turns),
        "sweep": _median(lambda: pair_statistics(points, variances), turns=5),
        "step": statistics.median(step_seconds(SHAPE, 11)[3:]),
    }


def _with_policy(policy: str) -> dict[str, float]:
    """The figures of a process whose threads wait in this way."""
    spins = "1000" if policy == "passive" else None
    environment = {"OMP_WAIT_POLICY": policy, "GOMP_SPINCOUNT": spins}
    return in_a_process("benchmarks.busy", "in_process", 100, environment=environment)


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


ALL = {"busy": busy}
