"""`collapselab similarity`: how alike the class means of measured checkpoints are."""

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from collapselab.cli.options import JsonOption


def similarity(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="A B…",
            help="Measured runs and checkpoints; models and results measured with `--classes`; files of class moments.",
        ),
    ],
    min_count: Annotated[int, typer.Option(help="Compare classes with at least this number of samples in both.")] = 1,
    as_json: JsonOption = False,
) -> None:
    """How alike the class means of measurements of one vocabulary are: 1 where a rotation turns one into the other.

    The linear CKA of the means of all classes that both have, from what `measure` has kept: no model runs.

    Checkpoints of a run, each with each: `collapselab similarity runs/02x0128`

    Two seeds: `collapselab similarity runs/a/checkpoints/1 runs/b/checkpoints/1`

    A sweep: `collapselab measure 'out/checkpoint-*' --corpus DIR --classes --out sweep/`, and then
    `collapselab similarity sweep`
    """
    from collapselab.measurement.similarity import similarity as compared

    similarities = compared(names, min_count=min_count)
    if as_json:
        print(similarities.to_json())
        return
    table = Table(title="CKA of class means", title_justify="left", caption=f"{len(similarities.names)} measurements")
    table.add_column("")
    for number in range(1, len(similarities.names) + 1):
        table.add_column(str(number), justify="right")
    for i, name in enumerate(similarities.names):
        values = (1.0 if i == j else similarities.at(i, j).value for j in range(len(similarities.names)))
        table.add_row(
            f"{i + 1} {name}".replace("[", "\\["), *("–" if value is None else f"{value:.3f}" for value in values)
        )
    Console().print(table)
    for (i, j), pair in similarities.pairs.items():
        if pair.why is not None:
            print(f"{similarities.names[i]} and {similarities.names[j]}: {pair.why}")
