"""`collapselab report`: the tables of a suite as one page to look at, and its figures as files for a paper."""

import json
from pathlib import Path
from typing import Annotated

import typer

from collapselab.cli.options import JsonOption


def report(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="A suite that has run, or a folder that `collect` or `import` made.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="The page, or a folder for it.", show_default="DIR/report.html")
    ] = None,
    beside: Annotated[Path | None, typer.Option(help="Another such folder to set beside it.")] = None,
    figures: Annotated[Path | None, typer.Option(help="A folder that gets every figure as SVG and PDF.")] = None,
    corpus: Annotated[
        Path | None, typer.Option(help="The corpus, for its class frequencies.", show_default="that of the runs")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Turn the tables of a suite into one HTML page that answers at a glance and lets you dig.

    The page is one file that needs no network. What has not been analysed yet, or has changed since, is analysed first.

    A suite of yours: `collapselab report runs/tiny`

    Beside the published models, with figures for a paper:
    `collapselab report runs/tiny --beside published --figures figures`
    """
    from collapselab.report.report import report as write_report

    written = write_report(directory, out=out, beside=beside, figures=figures, corpus=corpus)
    if as_json:
        print(json.dumps(written.to_json(), ensure_ascii=False))
        return
    for note in written.notes:
        print(note)
    print(f"page: {written.page} ({written.page.stat().st_size / 1e6:.1f} MB)")
    if written.figures:
        print(f"figures: {figures} ({len(written.figures)} files)")
