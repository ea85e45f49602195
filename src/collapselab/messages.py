"""Messages and progress on stderr: `logging` under the names of the modules, and progress bars.

    logging.getLogger("collapselab").setLevel(logging.WARNING)      # as `collapselab --quiet`
    logging.getLogger("collapselab").setLevel(logging.DEBUG)        # as `collapselab -v`

An application with its own log handling removes the handler, `logging.getLogger("collapselab").handlers.clear()`, and
sets `propagate`.

On a terminal, progress is a bar. Elsewhere, as in a log file, it is one plain line per minute.
"""

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.progress import Task

PACKAGE = "collapselab"
PLAIN_SECONDS = 60.0
_hidden: ContextVar[bool] = ContextVar("hidden", default=False)


class _ToStderr(logging.Handler):
    """Handler that prints to the current `sys.stderr`, which tests, notebooks and workers replace."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=sys.stderr, flush=True)


class _Format(logging.Formatter):
    """Formatter of the plain message; with debugging on, time and module are added."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        if not logging.getLogger(PACKAGE).isEnabledFor(logging.DEBUG):
            return text
        return f"{self.formatTime(record, '%H:%M:%S')} {record.levelname} {record.name}: {text}"


def logger(name: str) -> logging.Logger:
    """Return the logger of a module of the package."""
    package = logging.getLogger(PACKAGE)
    if not package.handlers and package.propagate:
        handler = _ToStderr()
        handler.setFormatter(_Format())
        package.addHandler(handler)
        package.propagate = False
        package.setLevel(logging.INFO if package.level == logging.NOTSET else package.level)
    return logging.getLogger(name)


def set_verbosity(*, quiet: bool = False, verbose: bool = False) -> None:
    """Show only warnings and errors, without progress; or everything, with time and module."""
    level = logging.WARNING if quiet else logging.DEBUG if verbose else logging.INFO
    logger(PACKAGE).setLevel(level)


def is_quiet() -> bool:
    """Return whether progress is hidden."""
    return logger(PACKAGE).getEffectiveLevel() > logging.INFO


class Advance(Protocol):
    """Callback that adds an amount of finished work and sets a note on the line."""

    def __call__(self, amount: float, /, *, note: str = "") -> None: ...


@contextmanager
def progress(what: str, *, total: float | None = None, unit: str, quiet: bool = False) -> Iterator[Advance]:
    """Show a progress bar on stderr while the block runs; it yields a callback for the amount of each step."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    quiet = quiet or _hidden.get() or is_quiet()
    columns = (
        TextColumn("{task.description}", markup=False),  # users' text, such as a file's name
        TextColumn("{task.fields[note]}", markup=False),
        BarColumn(bar_width=30),
        TextColumn("{task.percentage:>3.0f}%") if total else TextColumn("{task.completed:,.0f}"),
        TextColumn("{task.fields[rate]}", style="cyan"),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    plain = not console.is_terminal and not quiet
    with Progress(*columns, console=console, speed_estimate_period=30, disable=quiet) as display:
        number = display.add_task(what, total=total, note="", rate="")
        (task,), printed = display.tasks, time.monotonic()

        def advance(amount: float, /, *, note: str = "") -> None:
            nonlocal printed
            rate = f"{task.speed:,.0f} {unit}/s" if task.speed else ""  # over the last half minute
            display.update(number, advance=amount, note=note, rate=rate)
            if plain and time.monotonic() - printed >= PLAIN_SECONDS:
                printed = time.monotonic()
                print(_plain_line(task), file=sys.stderr, flush=True)

        yield advance
        if total:
            display.update(number, completed=total)


@contextmanager
def hidden_progress(hide: bool) -> Iterator[None]:
    """Hide progress bars inside the block if `hide` is set."""
    token = _hidden.set(hide or _hidden.get())
    try:
        yield
    finally:
        _hidden.reset(token)


def _plain_line(task: "Task") -> str:
    share = f"{task.percentage:.0f}%" if task.total else f"{task.completed:,.0f}"
    left = f"{task.time_remaining:,.0f} s left" if task.time_remaining else ""
    return "  ".join(part for part in (task.description, task.fields["note"], share, task.fields["rate"], left) if part)
