"""Progress on stderr, with the rate of late and the time left, for whatever takes more than a moment."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

Advance = Callable[[float], None]
"""Called with how much more has been done."""


class _Rate(ProgressColumn):
    """Units a second over the last half minute, not over the whole."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self.unit = unit

    def render(self, task: Task) -> Text:
        rate = task.finished_speed or task.speed
        return Text("" if rate is None else f"{rate:,.0f} {self.unit}/s", style="cyan")


@contextmanager
def progress(what: str, *, total: float | None = None, unit: str) -> Iterator[Advance]:
    """A bar on stderr while the block runs; call what it gives with every step's amount."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        TextColumn("{task.percentage:>3.0f}%") if total else TextColumn("{task.completed:,.0f}"),
        _Rate(unit),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), speed_estimate_period=30) as display:
        task = display.add_task(what, total=total)
        yield lambda amount: display.update(task, advance=amount)
        if total:
            display.update(task, completed=total)
