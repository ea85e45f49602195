"""The command line: argument parsing only. A command's body is a call.

Data goes to stdout, progress and messages to stderr. Exit 0: done; 1: some failed, all are listed; 2: the user must
change something; 128 + n: stopped by signal n, with everything saved.
"""

import json
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from collapselab import __version__
from collapselab.cli import analyze, corpus, measure, report, suite, train
from collapselab.cli.options import JsonOption
from collapselab.core.metrics import METRICS
from collapselab.errors import Interrupted, UserError

app = typer.Typer(
    name="collapselab",
    help="A laboratory for neural collapse in causal language models.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
app.add_typer(corpus.app, name="corpus")
app.add_typer(suite.app, name="suite")
app.command()(train.train)
app.command()(train.sample)
app.command()(measure.measure)
app.command("import")(analyze.import_published)
app.command()(analyze.analyze)
app.command()(report.report)


def main() -> None:
    """The entry point: every error the user can mend is one message, no traceback."""
    try:
        app()
    except Interrupted as error:
        print(f"collapselab: {error}", file=sys.stderr)
        sys.exit(128 + error.signal)
    except UserError as error:
        print(f"collapselab: {error}", file=sys.stderr)
        sys.exit(2)


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False,
) -> None:
    if version:
        print(__version__)
        raise typer.Exit


@app.command()
def metrics(as_json: JsonOption = False) -> None:
    """List the catalogue: every metric, what it shows and where it moves as a model collapses.

    Example: `collapselab metrics --json | jq '.[].id'`
    """
    if as_json:
        keys = ("id", "property", "formula", "direction", "ideal_text", "in_paper", "version", "reference")
        print(
            json.dumps([{key: getattr(metric, key) for key in keys} for metric in METRICS.values()], ensure_ascii=False)
        )
        return
    table = Table("metric", "property", "definition", "toward collapse", "ideal", box=None, header_style="bold")
    for metric in METRICS.values():
        star = "★" if metric.in_paper else ""
        ideal = metric.ideal_text.strip("`")
        table.add_row(metric.id + star, metric.property, metric.formula, metric.direction or "–", ideal)
    Console().print(table)
