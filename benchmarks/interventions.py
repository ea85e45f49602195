"""What each intervention adds to a step, on one thread: at the size of a laboratory's models, and at that of GPT-2's.

The penalty's own work is timed inside the steps that it is part of: the seconds between the entry and the exit of the
objective's functions that a training without interventions does not run. So the machine's other work, which makes the
steps of two trainings incomparable, hits both numbers alike. Times are the process's own (CPU) seconds.
"""

import functools
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from benchmarks.timing import Line, at_most, in_this_process, in_two_processes, shown
from benchmarks.training import Shape, step_seconds
from collapselab.training import interventions as doses
from collapselab.training.interventions import FIRST_STEPS, INTERVENTIONS, term
from collapselab.training.objective import Objective

LABORATORY = Shape(64, 2, 1024, 128, 8, head_size=16)
LARGE = Shape(768, 2, 50257, 128, 8)
LARGEST = ("flat", "uniform", "dual")
"""Penalties that touch all rows of the output layer, its gradient, or a table of its size."""
FEW_FIRST = 2
"""Steps in which gradients are compared before a penalty acts, where the usual number takes too long."""
WORK = ("_penalties", "_add_to_features", "_add_to_head", "end_step")
"""What of the objective runs for interventions alone."""


def interventions(quick: bool) -> list[Line]:
    """A line for each penalty at laboratory size, and for those that grow with the vocabulary at full size."""
    if quick:
        small = in_this_process(in_process, "LABORATORY", list(INTERVENTIONS), FEW_FIRST, 5)
    else:
        calls = [
            ("LABORATORY", list(INTERVENTIONS), FIRST_STEPS, 14),
            ("LARGE", list(LARGEST), FEW_FIRST, 2),
        ]
        small, large = in_two_processes("benchmarks.interventions", "in_process", calls)
    lines = [_line(f"intervention {name}, 2 × 64", small, name, 15) for name in INTERVENTIONS]
    if not quick:
        lines += [_line(f"intervention {name}, 50,257 × 768", large, name, 5) for name in LARGEST]
    return lines


def _line(what: str, seconds: dict[str, float], name: str, bar: float) -> Line:
    work, step = seconds[f"{name} work"], seconds[f"{name} step"]
    return at_most(f"{what}: share of a step", 100 * work / step, bar, "%", ours=shown(work), baseline=shown(step))


def in_process(shape: str, names: list[str], first: int, steps: int) -> dict[str, float]:
    """Median seconds of a step with each intervention, after the `first`, and of the intervention's part of it."""
    torch.set_num_threads(1)
    seconds = {}
    for name in names:
        sign = "+" if INTERVENTIONS[name].signs == "both" else ""
        with _first_steps(first), _timed_work() as work:
            whole = step_seconds(
                globals()[shape],
                first + steps,
                natural=True,
                clock=time.process_time,
                intervene=(f"{name}:{sign}0.1",),
            )
        seconds[f"{name} step"], seconds[f"{name} work"] = (statistics.median(all[first:]) for all in (whole, work))
    return seconds


@contextmanager
def _first_steps(number: int) -> Iterator[None]:
    """Compare gradients in so many steps before a penalty acts."""
    before = FIRST_STEPS
    try:
        for module in (doses, term):
            setattr(module, "FIRST_STEPS", number)  # noqa: B010
        yield
    finally:
        for module in (doses, term):
            setattr(module, "FIRST_STEPS", before)  # noqa: B010


@contextmanager
def _timed_work() -> Iterator[list[float]]:
    """Collect the seconds of a step that are spent on interventions, step by step."""
    steps: list[float] = []
    spent = [0.0]

    def timed(function: Callable[..., Any], *, last: bool) -> Callable[..., Any]:
        @functools.wraps(function)
        def run(*args: Any, **named: Any) -> Any:
            start = time.process_time()
            result = function(*args, **named)
            spent[0] += time.process_time() - start
            if last:
                steps.append(spent[0])
                spent[0] = 0.0
            return result

        return run

    own = {name: getattr(Objective, name) for name in WORK}
    for name, function in own.items():
        setattr(Objective, name, timed(function, last=name == WORK[-1]))
    try:
        yield steps
    finally:
        for name, function in own.items():
            setattr(Objective, name, function)


ALL = {"interventions": interventions}
