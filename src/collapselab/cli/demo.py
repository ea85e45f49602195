"""`collapselab demo`: everything once, in minutes."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from collapselab.cli.options import JsonOption

if TYPE_CHECKING:
    from collapselab.demo import Demo, HeadlineLine

ARROWS = {"falls": "↓", "rises": "↑"}
CELL = 12
"""Characters of a cell of the headline table, which fits into 80."""


def demo(
    out: Annotated[
        Path, typer.Option(help="The folder that gets everything. [default: demo, where you are]", show_default=False)
    ] = Path("demo"),
    jobs: Annotated[
        int | None, typer.Option(help="Processes side by side. [default: one a processor, at most 2]")
    ] = None,
    open_page: Annotated[
        bool, typer.Option("--open/--no-open", help="Show the page in a browser, if there is a desktop.")
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Do everything once, small and offline, in about four minutes: stories, 26 models, their collapse, a page.

    Interrupted, the same command continues; finished, it says again what came out.

    Example: `collapselab demo --out demo`
    """
    print(f"{out}: gets everything; about four minutes on two idle cores.", file=sys.stderr, flush=True)
    from collapselab.demo import run_demo, show_page

    made = run_demo(out, jobs=jobs)
    if as_json:
        print(json.dumps(made.to_json(), ensure_ascii=False))
    else:
        _print_demo(made)
        if open_page:
            show_page(made.page)
    if made.failures:
        raise typer.Exit(1)


def _print_demo(made: "Demo") -> None:
    console = Console()
    if made.table:
        console.print(_table(made.table))
        for line in _legend(made.table[0]):
            console.print(Padding(escape(line), (0, 0, 0, 1)), style="dim", highlight=False)
    for sentence in made.sentences:
        console.print()
        console.print(escape(sentence), highlight=False)
    if made.failures:
        _print_failures(made)
    console.print()
    print(made.page.resolve(), flush=True)


def _table(lines: "list[HeadlineLine]") -> Table:
    """A row a model, its numbers before and after training; the last row is what labels without meaning give."""
    table = Table("width\n× depth", box=None, header_style="bold")
    for name in ("val_loss", *lines[0].metrics):
        table.add_column(name, justify="right", max_width=CELL, overflow="fold")
    for line in lines:
        changes = (f"{_shown(c.initial)} → {_shown(c.trained)}" for c in (line.val_loss, *line.metrics.values()))
        table.add_row(f"{line.width:,} × {line.depth:,}", *changes)
    nulls = ([line.metrics[metric].null for line in lines] for metric in lines[0].metrics)
    table.add_row("shuffled", "–", *map(_range, nulls), style="dim")
    return table


def _legend(line: "HeadlineLine") -> list[str]:
    from collapselab.core.catalogue import METRICS
    from collapselab.report.words import metric_name, property_code

    lines = ["initial → trained; shuffled: trained, with shuffled labels. Toward collapse:"]
    for metric in line.metrics:
        name, entry = metric_name(metric), METRICS[metric]
        ideal = f" {entry.ideal:g}" if isinstance(entry.ideal, float | int) else ""
        arrow = ARROWS.get(entry.direction or "", "")
        lines.append(f"{metric} {arrow}{ideal}: {name[0].lower()}{name[1:]} ({property_code(metric)})")
    return lines


def _range(values: list[float | None]) -> str:
    known = sorted(value for value in values if value is not None)
    if not known:
        return "–"
    ends = dict.fromkeys((_shown(known[0]), _shown(known[-1])))
    return "–".join(ends)


def _shown(value: float | None) -> str:
    if value is None:
        return "–"
    text = f"{value:,.{0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2}f}"
    return text.removeprefix("-") if not float(text.replace(",", "")) else text


def _print_failures(made: "Demo") -> None:
    from collapselab.suite.folder import as_argument

    print(f"\n{len(made.failures):,} failed:", file=sys.stderr)
    for failure in made.failures:
        print(f"  {failure}", file=sys.stderr)
    again = f"collapselab suite run {as_argument(made.folder)} --retry-failed"
    print(f"Try again: {again}, and then the same command.", file=sys.stderr)
