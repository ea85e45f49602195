"""The command line: each command parses its arguments, calls one function and prints the result.

Results go to stdout, progress and messages to stderr. Exit status 0: success; 1: some runs or models failed and are
listed; 2: the user has to change something; 128 + n: stopped by signal n with everything saved.
"""

import io
import json
import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from collapselab import __version__
from collapselab.cli import analyze, corpus, measure, results, suite, train
from collapselab.cli.options import Commands, JsonOption, explanation
from collapselab.errors import Interrupted, UserError, interruptible

if TYPE_CHECKING:
    from collapselab.core.catalogue import Metric

START, MODELS, SUITES = "Start here", "One model", "Several models"


app = typer.Typer(
    name="collapselab",
    cls=Commands,
    context_settings={"auto_envvar_prefix": "COLLAPSELAB"},
    help="""A laboratory for neural collapse in causal language models.

    See everything in a few minutes: `collapselab demo`

    Measure a model of yours: `collapselab measure MODEL --data tinystories`
    """,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
app.command(rich_help_panel=START)(suite.demo)
app.add_typer(corpus.app, name="corpus", rich_help_panel=MODELS)
app.command(rich_help_panel=MODELS)(train.train)
app.command(rich_help_panel=MODELS)(train.interventions)
app.command(rich_help_panel=MODELS)(train.sample)
app.command(rich_help_panel=MODELS)(measure.measure)
app.command(rich_help_panel=MODELS)(results.tokens)
app.add_typer(suite.app, name="suite", rich_help_panel=SUITES)
app.command(rich_help_panel=SUITES)(analyze.collect)
app.command("import", rich_help_panel=SUITES)(analyze.import_published)
app.command(rich_help_panel=SUITES)(analyze.analyze)
app.command(rich_help_panel=SUITES)(analyze.report)
app.command(rich_help_panel=SUITES)(results.publish)
app.command(rich_help_panel=SUITES)(results.compare)
app.command(rich_help_panel=SUITES)(results.similarity)


def main() -> None:
    """Run the command line; an error that the user can fix is one message without a traceback."""
    # OpenMP threads spin while they wait for each other, and on a busy machine take the cores from the threads they
    # wait for. OpenMP reads this when torch is imported, and child processes inherit it. GNU's threads then sleep at
    # once, which slows down small operations on an idle machine, so they spin for a few microseconds first.
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ["OMP_WAIT_POLICY"] = "passive"
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr: file names need not be text
    try:
        with interruptible():
            app()
    except Interrupted as error:
        print(f"collapselab: {error}", file=sys.stderr)
        sys.exit(128 + error.signal)
    except UserError as error:
        from collapselab.messages import logger

        logger(__name__).debug("where the error arose", exc_info=error)  # the traceback, with `-v`
        print(f"collapselab: {error}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        from collapselab.disk import disk_trouble

        if error.filename is None and disk_trouble(error) is None:
            raise
        place = f"{error.filename}: " if error.filename is not None else ""
        print(f"collapselab: {place}{disk_trouble(error, reading=True) or error.strerror}.", file=sys.stderr)
        sys.exit(2)
    except BaseException as error:  # a panic of a Rust library, such as that of tokenizers, is not an Exception
        if type(error).__name__ != "PanicException":
            raise
        print(f"collapselab: the tokenizer failed ({error}). Use another one.", file=sys.stderr)
        sys.exit(2)


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print warnings and errors only.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print debug messages and tracebacks.")] = False,
) -> None:
    if version:
        print(__version__)
        raise typer.Exit
    if quiet or verbose:
        from collapselab.messages import set_verbosity

        set_verbosity(quiet=quiet, verbose=verbose)


@app.command(rich_help_panel=START)
def metrics(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="A metric to explain.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List all metrics and how each changes as a model collapses, or explain one of them.

    Example: `collapselab metrics agreement`, `collapselab metrics --json | jq '.[].id'`
    """
    from collapselab.core.catalogue import METRICS
    from collapselab.errors import ConfigError, did_you_mean

    if name is not None and name not in METRICS:
        hint = did_you_mean(name, METRICS, otherwise="`collapselab metrics` lists them.")
        raise ConfigError(f"{name} is not a metric. {hint}")
    chosen = list(METRICS.values()) if name is None else [METRICS[name]]
    if as_json:
        keys = ("id", "property", "formula", "direction", "ideal_text", "in_paper", "version", "reference", "meaning")
        print(json.dumps([{key: getattr(metric, key) for key in keys} for metric in chosen], ensure_ascii=False))
        return
    console = Console()
    if name is not None:
        console.print(_explained(chosen[0]))
        return
    is_wide = console.width >= 120
    table = Table("metric", "property", *(["definition"] if is_wide else []), "toward collapse", "ideal", box=None)
    table.columns[0].no_wrap = True
    for metric in chosen:
        cells = [metric.id + ("★" if metric.in_paper else ""), metric.property]
        cells += [metric.formula] if is_wide else []
        table.add_row(*cells, metric.direction or "–", metric.ideal_text.strip("`"))
    console.print(table)
    console.print("★: in the paper's Table 1. Explain one: collapselab metrics NAME", style="dim", highlight=False)


def _explained(metric: "Metric") -> Table:
    """Return everything that the catalogue says about one metric."""
    parts = {
        "meaning": metric.meaning,
        "formula": metric.formula,
        "range": metric.range,
        "toward collapse": f"{metric.direction or 'no prediction'}; ideal {metric.ideal_text.strip('`')}",
        "pitfalls": metric.pitfalls,
        "elsewhere": metric.variants,
        "paper": metric.reference,
    }
    return explanation(f"{metric.id}: {metric.name} ({metric.property})", parts)
