"""Timing on a shared, noisy machine: contestants take turns, and each is judged by the median of its turns."""

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch

from collapselab.core.threads import threads


@dataclass(frozen=True)
class Line:
    """One row of the table: a figure, the bar it should meet, and what it was made from."""

    name: str
    figure: float
    unit: str
    bar: str
    met: bool | None
    ours: str = ""
    baseline: str = ""
    limit: str = ""


def at_most(name: str, figure: float, bar: float, unit: str = "×", **details: str) -> Line:
    return Line(name, figure, unit, f"≤ {bar:g} {unit}", figure <= bar, **details)


def at_least(name: str, figure: float, bar: float, unit: str = "×", **details: str) -> Line:
    return Line(name, figure, unit, f"≥ {bar:g} {unit}", figure >= bar, **details)


def in_turns(
    contestants: dict[str, Callable[[], object]],
    *,
    turns: int,
    warm_up: int = 2,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Median seconds of each contestant, all run in turn so that a slow spell hits them alike."""
    for _ in range(warm_up):
        for run in contestants.values():
            run()
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(turns):
        for name, run in contestants.items():
            start = clock()
            run()
            seconds[name].append(clock() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}


def shown(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.2f} ms"


def peak_bytes() -> int:
    """The most memory this process has ever held."""
    status = Path("/proc/self/status")
    if status.exists():  # on Linux ru_maxrss counts the parent's memory too, from before the exec
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


STEADY: Mapping[str, str | None] = {"MALLOC_MMAP_THRESHOLD_": str(4 << 20)}
"""Large blocks go back to the system when they are freed. By default glibc may keep them, more or fewer by chance: the
peak of one measurement was 327, 343, 404 and 446 MB. With blocks from 16 MB on given back, that of another was 398 to
501 MB; from 4 MB on, 378 to 394."""


def in_a_process(
    module: str, function: str, *args: object, environment: Mapping[str, str | None] | None = None
) -> dict[str, float]:
    """What module.function(*args) returns in a fresh process, so that its peak memory is its own.

    `environment` has variables that are set, or with None removed.
    """
    variables = dict(os.environ) | dict(environment or {})
    code = f"import json, {module}; print(json.dumps({module}.{function}(*{args!r})))"
    result = subprocess.run(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={name: value for name, value in variables.items() if value is not None},
    )
    figures: dict[str, float] = json.loads(result.stdout)
    return figures


def in_this_process(function: Callable[..., dict[str, float]], *args: object) -> dict[str, float]:
    """What the function returns, which may choose its number of threads: quicker where no peak is asked for."""
    with threads(torch.get_num_threads()):
        return function(*args)


def in_two_processes(
    module: str,
    function: str,
    calls: Sequence[tuple[object, ...]],
    *,
    environment: Mapping[str, str | None] | None = None,
) -> list[dict[str, float]]:
    """As `in_a_process` for each of these arguments, two at a time: for bytes, and a process's own seconds."""
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda args: in_a_process(module, function, *args, environment=environment), calls))
