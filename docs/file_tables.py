"""The tables of files.md: every key and column of what is written, from the types in the source.

What a field means is said once, in the string below it in its class; a column of a table of results carries it itself.
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable

from typing_extensions import TypedDict, get_original_bases

from collapselab.analysis.analyze import STATEMENTS, SummaryRecord
from collapselab.records.corpus import CorpusRecord
from collapselab.records.facts import Facts
from collapselab.records.outcomes import BEST_LOSS, SUITE_OUTCOMES
from collapselab.records.run import CheckpointRecord, RunRecord, StepEntry
from collapselab.records.suite import FailureRecord, SuiteRecord
from collapselab.records.tables import TABLES, TablesRecord
from collapselab.suite.collect import NOT_COLUMNS
from collapselab.training.settings import Settings

SHARED = (
    "run", "checkpoint", "split", "layer", "metric", "version", "low", "high", "slope_low", "slope_high", "why",
    "why_code", "outcome", "transform", "missing", "goes", "arm", "dose", "sham", "where", "registered",
)  # fmt: skip
"""Columns that mean the same in every table of results or of the analysis: the page tells them once."""


def meanings(kind: Callable[..., object]) -> dict[str, str]:
    """The fields of a class in their order, each with the string below it; ValueError where one has none."""
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(node, ast.ClassDef)
    fields = {}
    for statement, after in zip(node.body, [*node.body[1:], ast.Pass()], strict=True):
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        name = statement.target.id
        if not (isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)):
            raise ValueError(f"{node.name}.{name}: no string below it says what it means.")
        fields[name] = _cell(str(after.value.value))
    return fields


def facts(kind: type = Facts) -> dict[str, str]:
    """The meaning of each fact of a result, those of its parts included."""
    inherited = [facts(part) for part in get_original_bases(kind) if part is not TypedDict]
    return {name: text for part in (*inherited, meanings(kind)) for name, text in part.items()}


def keys(kind: type) -> Callable[[], str]:
    """The table of a JSON document, made when it is called; the page tells `format` and `checksum` once."""
    return lambda: _table("key", {name: text for name, text in meanings(kind).items() if name != "format"})


def columns(name: str) -> Callable[[], str]:
    """The table of the columns of a table of results."""
    return lambda: _table("column", meanings(TABLES[name].row), shared=SHARED)


def statement_columns(name: str) -> Callable[[], str]:
    """The table of the columns of a table of the analysis."""
    return lambda: _table("column", meanings(STATEMENTS[name].row), shared=(*SHARED, "family"))


def setting_columns() -> str:
    """The columns that runs.csv has beside those of every table."""
    settings = [name for name in meanings(Settings) if name not in NOT_COLUMNS]
    outcomes = [BEST_LOSS, "gap", *SUITE_OUTCOMES.split()]
    rows = {
        _names(settings): "the [options of `train`](configuration.md#options-of-train)",
        "`corpus`": "its folder's name and hash",
        _names(outcomes): "[outcomes](tokens.md#other-outcomes)",
    }
    return "\n".join(["column|meaning", "---|---", *(f"{names}|{text}" for names, text in rows.items())])


FILE_TABLES: dict[str, Callable[[], str]] = {
    "corpus.json": keys(CorpusRecord),
    "run.json": keys(RunRecord),
    "training.json": keys(CheckpointRecord),
    "facts": lambda: _table("key", facts()),
    "log.jsonl": lambda: _table("key", meanings(StepEntry)),
    "suite.json": keys(SuiteRecord),
    "failed": keys(FailureRecord),
    "tables.json": keys(TablesRecord),
    **{table.file: columns(name) for name, table in TABLES.items()},
    "settings": setting_columns,
    **{f"{name}.csv": statement_columns(name) for name in STATEMENTS},
    "summary.json": keys(SummaryRecord),
}


def _table(what: str, rows: dict[str, str], shared: tuple[str, ...] = ()) -> str:
    told = [name for name in rows if name in shared]
    lines = [f"{_names(told)}|[shared](#shared-columns)"] if told else []
    lines += [f"`{name}`|{text.replace('|', chr(92) + '|')}" for name, text in rows.items() if name not in told]
    return "\n".join((f"{what}|meaning", "---|---", *lines))


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _cell(text: str) -> str:
    """The first clause as a cell, without what the page says once; all of it where it names values."""
    line = re.sub(r"\s+", " ", text).strip().rstrip(".")
    line = re.sub(r"(?:; e|\. E)mpty where [^;]*$", "", line)  # the page says that missing is empty
    clause = re.split(r"; |\. (?=[A-Z])", line)[0]
    line = clause if "`" not in clause and len(clause.split()) > 3 else line
    first = line.split(" ")[0]
    is_name = first.endswith("'s") or not (first[1:].islower() or len(first) == 1)
    return line if is_name else line[0].lower() + line[1:]
