"""Golden cases of the command line: the help, what commands print, and the errors that users meet first."""

import shlex
from collections.abc import Callable, Iterator
from contextlib import chdir
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import typer.main
from rich.console import Console
from typer.testing import CliRunner

from analysis import test_tokens
from analysis.test_tokens import facts, planted
from collapselab.cli import app
from collapselab.core.catalogue import METRICS
from collapselab.errors import UserError
from collapselab.measurement.show import brief, shown
from collapselab.records.measurement import Result, Results
from collapselab.records.options import Options
from records.test_tables import ROW

COLUMNS = 80
VALUES = {
    "within_share": (0.55, 0.99), "vci": (0.72, 0.98), "norm_cv": (0.19, 1.15), "cosine_error": (0.34, 0.2),
    "logdist_std": (0.29, 0.13), "duality_cos_mean": (0.57, -0.01), "duality_cos_std": (0.09, 0.14),
    "agreement": (0.55, 0.0), "cdnv": (1.5, 60.0),
}  # fmt: skip
"""The value and the null of each metric of the model whose summary is kept."""


def called(*words: str, columns: int = COLUMNS) -> str:
    """Return a command and what it prints, an error as the program words it."""
    done = CliRunner().invoke(app, list(words), env={"COLUMNS": str(columns)})
    if done.exception is not None and not isinstance(done.exception, UserError | SystemExit):
        raise done.exception
    printed = f"{done.output}collapselab: {done.exception}\n" if isinstance(done.exception, UserError) else done.output
    return plain(f"$ collapselab {shlex.join(words)}\n{printed}")


def plain(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.splitlines()).rstrip() + "\n"


def commands(group: Any, *words: str) -> Iterator[tuple[str, ...]]:
    """Yield the words of every command, groups included, in the order in which the help lists them."""
    yield words
    for name in group.list_commands(None) if hasattr(group, "commands") else ():
        yield from commands(group.commands[name], *words, name)


def of_help(folder: Path) -> str:
    """Return the help of every command."""
    return "\n".join(called(*words, "--help") for words in commands(typer.main.get_command(app)))


def of_metrics(folder: Path) -> str:
    """Return the list of metrics, and the explanation of one."""
    return "\n".join([called("metrics"), called("metrics", columns=120), called("metrics", "agreement")])


def model(name: str, **changes: float) -> Result:
    """A model with seven headlines, whose values are chosen."""
    rows = [
        replace(
            ROW,
            low=None,
            high=None,
            metric=metric,
            value=changes.get(metric, value),
            null=null,
            version=METRICS[metric].version,
        )
        for metric, (value, null) in VALUES.items()
    ]
    rows += [replace(row, layer="1", value=None if row.value is None else row.value / 2) for row in rows]
    validation = {
        "blocks": 3,
        "tokens": 960,
        "blocks_cut_off": 0,
        "loss": 1.355,
        "accuracy": 0.647,
        "perplexity": 3.877,
    }
    splits = {"train": {"blocks": 30, "tokens": 9600, "blocks_cut_off": 0}, "validation": validation}
    warning = {"code": "few_per_class", "text": "Half of the classes have fewer than 10 samples."}
    return Result(
        rows, facts(model=name, run=name, splits=splits, text="mine.txt", warnings=[warning], options=Options().facts())
    )


def of_measure(folder: Path) -> str:
    """Return what `measure` prints of one model and of two, at 80 and at 120 columns, and with `--full`."""
    one, two = model("small"), Results([model("small"), model("large", agreement=0.8)], {"broken": "not a model."})
    parts = []
    for columns in (80, 120):
        for printed in (brief(one, columns), brief(two, columns), shown(two)):
            text = StringIO()
            Console(width=columns, file=text, color_system=None).print(printed)
            parts.append(plain(text.getvalue()))
    return f"\n{'=' * COLUMNS}\n".join(parts)


def of_tokens(folder: Path) -> str:
    """Return what `tokens` prints of planted classes."""
    with chdir(folder):
        test_tokens.result().save("r.json")
        test_tokens.result(planted(2.0)).save("later.json")
        calls = ([], ["--like", " Lily"], ["--bins", "2"], ["--compare", "later.json", "--sort", "variance"])
        return "\n".join(called("tokens", "r.json", *words) for words in calls)


ERRORS = (
    "measure m",
    "measure m --data storyword",
    "measure m --corpus nowhere",
    "measure m --data mine.txt --bins -1",
    "train --corpus nowhere --out r --width 8 --depth 1",
    "corpus build nowhere.txt --out c",
    "corpus show nowhere",
    "tokens nowhere.json",
    "tokens r.json --sort cdvn",
    "tokens r.json --like ' Lilly'",
    "tokens r.json --top 0",
    "metrics cdvn",
    "suite plan dem",
    "suite status demo",
    "suite run demo --launcher slum",
    "suite run demo --report-to tensorbord",
    "collect nowhere --out atlas",
    "import r.json --out published",
    "analyze .",
    "report .",
    "compare r.json other.json",
    "similarity r.json",
    "publish . --to me/mine",
)
"""Commands with a mistake, in a folder with the result `r.json`, of another corpus `other.json`, and a text."""


def of_errors(folder: Path) -> str:
    """Return what these commands print."""
    with chdir(folder):
        test_tokens.result().save("r.json")
        replace(test_tokens.result(), facts=facts(corpus_hash="d")).save("other.json")
        Path("mine.txt").write_text("One line.\nAnother line.\n")
        return "\n".join(called(*shlex.split(command)) for command in ERRORS)


CLI_CASES: dict[str, Callable[[Path], str]] = {
    "cli-help": of_help,
    "cli-metrics": of_metrics,
    "cli-measure": of_measure,
    "cli-tokens": of_tokens,
    "cli-errors": of_errors,
}
