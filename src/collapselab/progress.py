"""Progress on stderr, with the recent rate and the time left, for whatever takes more than a moment.

On a terminal it is one line that moves. Elsewhere, as in the log of a cluster's job, it is a plain line a minute.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from collapselab.messages import is_quiet

PLAIN_SECONDS = 60.0
_hidden: ContextVar[bool] = ContextVar("hidden", default=False)


class Advance(Protocol):
    """Called with how much more has been done, and with what else the line should say."""

    def __call__(self, amount: float, /, *, note: str = "") -> None: ...


class _Rate(ProgressColumn):
    """Units a second over the last half minute, not over the whole."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self.unit = unit

    def render(self, task: Task) -> Text:
        rate = task.finished_speed or task.speed
        return Text("" if rate is None else f"{rate:,.0f} {self.unit}/s", style="cyan")


@contextmanager
def progress(what: str, *, total: float | None = None, unit: str, quiet: bool = False) -> Iterator[Advance]:
    """A bar on stderr while the block runs; call what it gives with every step's amount. `quiet` shows nothing."""
    quiet = quiet or _hidden.get() or is_quiet()
    columns = (
        TextColumn("{task.description}", markup=False),  # users' text, such as a file's name
        TextColumn("{task.fields[note]}", markup=False),
        BarColumn(bar_width=30),
        TextColumn("{task.percentage:>3.0f}%") if total else TextColumn("{task.completed:,.0f}"),
        _Rate(unit),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    plain = not console.is_terminal and not quiet
    with Progress(*columns, console=console, speed_estimate_period=30, disable=quiet) as display:
        task = display.add_task(what, total=total, note="")
        printed = time.monotonic()

        def advance(amount: float, /, *, note: str = "") -> None:
            nonlocal printed
            display.update(task, advance=amount, note=note)
            if plain and time.monotonic() - printed >= PLAIN_SECONDS:
                printed = time.monotonic()
                print(_plain_line(display.tasks[0], unit), file=sys.stderr, flush=True)

        yield advance
        if total:
            display.update(task, completed=total)


@contextmanager
def hidden_progress(hide: bool) -> Iterator[None]:
    """No bars inside the block where `hide` is set, for whoever promises silence and calls stages that show some."""
    token = _hidden.set(hide or _hidden.get())
    try:
        yield
    finally:
        _hidden.reset(token)


def _plain_line(task: Task, unit: str) -> str:
    share = f"{task.percentage:.0f}%" if task.total else f"{task.completed:,.0f}"
    rate = f"{task.speed:,.0f} {unit}/s" if task.speed else ""
    left = f"{task.time_remaining:,.0f} s left" if task.time_remaining else ""
    return "  ".join(part for part in (task.description, task.fields["note"], share, rate, left) if part)
