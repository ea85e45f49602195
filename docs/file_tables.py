"""The tables of files.md: every key and column of what is written, from the types in the source.

What a field means is said once, in the string below it in its class; a column of a table of results carries it itself.
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Callable

from typing_extensions import TypedDict, get_original_bases

from collapselab.analysis.statements import STATEMENTS
from collapselab.analysis.stored import SummaryRecord
from collapselab.disk import Record
from collapselab.records.corpus import CorpusRecord
from collapselab.records.facts import Facts
from collapselab.records.outcomes import BEST_LOSS, OUTCOMES, SUITE_OUTCOMES
from collapselab.records.run import CheckpointRecord, RunRecord, StepEntry
from collapselab.records.suite import FailureRecord, SuiteRecord
from collapselab.records.tables import TABLES, TablesRecord
from collapselab.suite.collect import NOT_COLUMNS
from collapselab.training.settings import Settings

CHECKSUM = "sha256 of all other keys"


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
    """The table of a JSON document, made when it is called."""
    own = {"format": "version of this layout"} if issubclass(kind, Record) else {}

    def table() -> str:
        return _table("key", own | meanings(kind) | {"checksum": CHECKSUM})

    return table


def columns(name: str) -> Callable[[], str]:
    """The table of the columns of a table of results."""
    return lambda: _table("column", meanings(TABLES[name].row))


def statement_columns(name: str) -> Callable[[], str]:
    """The table of the columns of a table of the analysis."""
    return lambda: _table("column", meanings(STATEMENTS[name].row))


BEST_LOSS_MEANING = "the lowest validation loss among the checkpoints of the run up to this one"


def setting_columns() -> str:
    """The columns that runs.csv has beside those of every table."""
    settings = {name: text for name, text in meanings(Settings).items() if name not in NOT_COLUMNS}
    outcomes = {name: OUTCOMES[name].meaning for name in ("gap", *SUITE_OUTCOMES.split())}
    return _table(
        "column", settings | {"corpus": "its folder's name and hash", BEST_LOSS: BEST_LOSS_MEANING} | outcomes
    )


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


def _table(what: str, rows: dict[str, str]) -> str:
    lines = (f"| `{name}` | {text.replace('|', chr(92) + '|')} |" for name, text in rows.items())
    return "\n".join((f"| {what} | meaning |", "|---|---|", *lines))


def _cell(text: str) -> str:
    """The sentence as a cell: on one line, without its full stop, its first word small."""
    line = re.sub(r"\s+", " ", text).strip().rstrip(".")
    first = line.split(" ")[0]
    is_name = first.endswith("'s") or not (first[1:].islower() or len(first) == 1)
    return line if is_name else line[0].lower() + line[1:]
