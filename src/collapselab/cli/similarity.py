"""`collapselab similarity`: how alike the class means of measured checkpoints are."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from collapselab.cli.options import JsonOption

if TYPE_CHECKING:
    from collapselab.measurement.similarity import Similarities


CELL = 7
"""Columns of a terminal that a number with three decimals takes."""


def similarity(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="A B…",
            help="Measured runs and checkpoints; models and results measured with `--classes`; files of class moments.",
        ),
    ],
    layers: Annotated[
        Literal["last", "all"], typer.Option(help="`all`: every layer of them, measured with `--layers all --classes`.")
    ] = "last",
    min_count: Annotated[int, typer.Option(help="Compare classes with at least this number of samples in both.")] = 1,
    as_json: JsonOption = False,
) -> None:
    """How alike the class means of measurements of one vocabulary are: 1 where a rotation turns one into the other.

    The linear CKA of the means of all classes that both have, from what `measure` has kept: no model runs.

    Checkpoints of a run, each with each: `collapselab similarity runs/02x0128`

    Two seeds: `collapselab similarity runs/a/checkpoints/1 runs/b/checkpoints/1`

    Layers of two checkpoints: `collapselab measure runs/a --layers all --classes`, and then
    `collapselab similarity runs/a/checkpoints/0 runs/a/checkpoints/1 --layers all`

    A sweep: `collapselab measure 'out/checkpoint-*' --corpus DIR --classes --out sweep/`, and then
    `collapselab similarity sweep`
    """
    from collapselab.measurement.similarity import similarity as compared

    similarities = compared(names, layers=layers, min_count=min_count)
    if as_json:
        print(similarities.to_json())
        return
    console = Console()
    console.print(
        Text(
            f"CKA of class means, {len(similarities.names)} {'layers' if layers == 'all' else 'measurements'}",
            style="bold",
        )
    )
    for table in _tables(similarities, console.width):
        console.print(table)
    for (i, j), pair in similarities.pairs.items():
        if pair.why is not None:
            print(f"{similarities.names[i]} and {similarities.names[j]}: {pair.why}")


def _tables(similarities: "Similarities", width: int) -> Iterator[Table]:
    """Every measurement beside every other; several tables where a line has no room for all of them."""
    size = len(similarities.names)
    names = [f"{number} {name}" for number, name in enumerate(similarities.names, 1)]
    longest = max(map(len, names))
    at_once = max((width - min(longest, width // 2) - 2) // CELL, 1)
    for start in range(0, size, at_once):
        across = range(start, min(start + at_once, size))
        table = Table(box=None, header_style="bold")
        table.add_column("", max_width=max(width - 2 - CELL * len(across), 1), overflow="fold")
        for j in across:
            table.add_column(str(j + 1), justify="right", no_wrap=True, min_width=CELL - 2)
        for i, name in enumerate(names):
            values = (1.0 if i == j else similarities.at(i, j).value for j in across)
            table.add_row(Text(name), *("–" if value is None else f"{value:.3f}" for value in values))
        yield table
