"""The tables of a folder, by name: `runs.csv`, `results.csv`, and further ones that measurements fill.

A table is one entry of `TABLES` and the code that fills it: a `Table` of rows as CSV or, where rows are many, a
`ColumnTable` as Parquet. From then on it is collected by suites, written, hashed,
read, checked and documented like the others.

Beside them `tables.json` holds the sha256 of each and of the records that they were made from, so that a table which
was edited, or is left from an interrupted write, is refused. Tables without it are the user's own work.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, final

from pydantic import ConfigDict, Field, model_validator, with_config
from pydantic.dataclasses import dataclass as row_dataclass
from typing_extensions import TypedDict  # that of typing only from Python 3.12 on

from collapselab.disk import Record, read_bytes, sha256, write_bytes, write_document
from collapselab.errors import DamagedError
from collapselab.records.outcomes import direction
from collapselab.records.table import Amount, ColumnTable, Count, Name, Number, Table

HASHES = "tables.json"
STRICT = ConfigDict(strict=True, use_attribute_docstrings=True)
BIN = r"([0-9]{1,18})-([0-9]{1,18})"
Layer = Annotated[str, Field(pattern=r"^(last|[1-9][0-9]{0,8})$")]

RowsByTable = dict[str, list[Any]]
"""The rows of several tables, by the name of each; what a row is, its entry of `TABLES` says."""


def _with_value_or_reason(row: Any) -> Any:
    if (row.value is None) == (row.why is None):
        raise ValueError(f"{row.metric} must have a value or a reason why not, got {row.value} and {row.why!r}")
    return row


@with_config(STRICT)
class Run(TypedDict):
    """One row for each run and checkpoint.

    Further columns are settings, which are text when they are read, and outcomes.
    """

    run: Name
    """Name of the run."""
    checkpoint: Name
    """Its name: the epoch."""
    family: Name | None
    """Architecture, such as `gpt-neo`."""
    width: Count | None
    """Dimension of the features."""
    depth: Count | None
    """Number of blocks."""
    epochs: Amount | None
    """Length of the whole training."""
    epoch: Amount | None
    """Of this checkpoint; 0 is initialisation."""
    weight_decay: Amount | None
    """Of the optimiser."""
    lr: Amount | None
    """Learning rate at its highest."""
    seed: Count | None
    """Of the initial weights, and of dropout."""
    parameters: Count | None
    """Of the model."""
    tokens: Count | None
    """Labels trained on."""
    train_loss: Number | None
    """On a fixed sample of training blocks, at the checkpoint."""
    train_loss_running: NotRequired[Number | None]
    """Mean of the last 100 steps; the `train_loss` of tables without this column."""
    val_loss: Number | None
    """On the validation split."""
    val_accuracy: Number | None
    """On the validation split."""
    perplexity: Number | None
    """exp of `val_loss`."""
    seconds: Amount | None
    """Of training up to here."""
    clipped: NotRequired[Amount | None]
    """Share of the steps up to here whose gradient was clipped."""
    why: Name | None
    """What failed, if something did."""


@final
@row_dataclass(frozen=True, kw_only=True, config=STRICT)
class Row:
    """One row for each measured number, or for the reason why there is none.

    There is never both. An unknown count is None.

    >>> from collapselab import Row
    >>> row = Row(run="a", checkpoint="1", metric="cdnv", value=0.25)
    >>> row.split, row.layer, row.bin, row.version
    ('train', 'last', 'all', 1)
    """

    run: Name
    """Name of the run, or of the model."""
    checkpoint: Name
    """Its name."""
    split: Literal["train", "validation"] = "train"
    """Where the class means come from: `train` or `validation`; NC4, whose means are of the training split, is
    under `train`."""
    layer: Layer = "last"
    """`last` for the features that enter the output layer, else the number of the block."""
    bin: Annotated[str, Field(pattern=rf"^(all|{BIN})$")] = "all"
    """`all`, or `LOW-HIGH`, a range of class counts."""
    metric: Name
    """Id in the [catalogue](metrics.md#the-catalogue)."""
    value: Number | None = None
    """Empty exactly where `why` is not."""
    null: Number | None = None
    """The same with shuffled labels."""
    low: Number | None = None
    """Lower end of the 95 % interval, with `--bootstrap`."""
    high: Number | None = None
    """Upper end."""
    classes: Count | None = None
    """Classes that were kept."""
    tokens: Count | None = None
    """Samples behind the value; of NC4, decisions."""
    min_count: Count | None = None
    """Samples that a class needed to be kept."""
    left_out: Count | None = None
    """Pairs, classes or tokens that could not take part."""
    version: Count = 1
    """Of the metric; it rises when the number would change."""
    why: Name | None = None
    """Why there is no value."""

    _check = model_validator(mode="after")(_with_value_or_reason)

    @property
    def key(self) -> tuple[str, ...]:
        """What the row is about; no two rows of a table share it."""
        return tuple(getattr(self, column) for column in RESULTS.key)


def bin_start(bin: str) -> int:
    """The least count of the classes in a bin; -1 of the bin that has all, so that it is the first."""
    ends = re.fullmatch(BIN, bin)
    return -1 if ends is None else int(ends[1])


@final
@row_dataclass(frozen=True, config=STRICT)
class PushRow:
    """With `--push`, one row for each head and α: the validation tokens, their features moved toward class means."""

    run: Name
    """Name of the run, or of the model."""
    checkpoint: Name
    """Its name."""
    head: Name
    """`own` for the model's output layer, `centres` for softmax of −τ‖h − μ_c‖²/2 + log π_c."""
    alpha: Number
    """How far features are moved: 0 not at all, 1 onto the expected mean."""
    tau: Amount | None
    """Of `centres`, fitted to training tokens."""
    tokens: Count
    """Validation tokens; for `centres` those whose class has a mean."""
    loss: Number | None
    """Mean cross-entropy in nats."""
    ece: Amount | None
    """Expected calibration error, in 15 bins of equal width."""
    accuracy: Amount | None
    """Share of tokens whose class is chosen."""
    agreement: Amount | None
    """Share of choices: of `own` with the nearest mean, of `centres` with the output layer."""


@final
@row_dataclass(frozen=True, config=STRICT)
class DeciderRow:
    """With `--deciders`, one row for each two deciders: on how many validation tokens they choose alike."""

    run: Name
    """Name of the run, or of the model."""
    checkpoint: Name
    """Its name."""
    first: Name
    """`token` (the next token), `head` (the output layer), `nearest L` or `lens L` of layer L."""
    second: Name
    """The other, of the same names."""
    tokens: Count
    """Validation tokens that are samples at every layer and have a centre."""
    agreed: Count
    """Those on which both choose the same class."""
    agreement: Amount
    """Their share."""


@with_config(STRICT)
class ClassRow(TypedDict):
    """With `--classes`, one row for each class of a split and layer, as Parquet."""

    run: Name
    """Name of the run, or of the model."""
    checkpoint: Name
    """Its name."""
    split: Name
    """Where count, mean and variance come from: `train` or `validation`."""
    layer: Name
    """`last`, or the number of the block."""
    token: Count
    """Id of the class: the next token."""
    text: Name | None
    """Its text; missing where it has none."""
    kind: Name
    """[kind](tokens.md#kinds-of-tokens) of the token."""
    count: Count
    """Samples of the class in the split."""
    norm: Amount | None
    """‖m_c‖, from the centre of all class means to its own."""
    variance: Amount | None
    """Σ_c², mean squared distance from the class mean."""
    cdnv: Amount | None
    """Mean of the `cdnv` terms of its pairs with all other classes."""
    cosine: Number | None
    """Mean cosine with all other classes."""
    nearest: Count | None
    """Id of the class with the nearest mean."""
    distance: Amount | None
    """To that mean."""
    duality_cos: Number | None
    """Cos(w_c, m_c), of output row and centred mean."""
    head_norm: Amount | None
    """‖w_c‖, of the output row."""
    samples: Count
    """Validation tokens of the class, which the next three are about."""
    agreement: Amount | None
    """Share where output layer and nearest centre choose alike (NC4)."""
    accuracy: Amount | None
    """Share where the output layer is right (NC4)."""
    loss: Amount | None
    """Mean cross-entropy in nats; with the last layer only."""


@final
@row_dataclass(frozen=True, config=STRICT)
class ContextRow:
    """With `--contexts`, one row for each metric of contexts, their length and layer."""

    run: Name
    """Name of the run, or of the model."""
    checkpoint: Name
    """Its name."""
    layer: Layer
    """`last`, or the number of the block."""
    n: Count
    """Length of the contexts: the last n tokens of the training split."""
    metric: Name
    """Id in the [catalogue of contexts](contexts.md#the-catalogue)."""
    value: Number | None
    """Empty exactly where `why` is not."""
    null: Number | None
    """The same with [exchanged contexts](contexts.md#nulls)."""
    contexts: Count
    """Contexts behind the value."""
    tokens: Count
    """Tokens behind the value."""
    coverage: Amount | None
    """Good-Turing estimate of the probability that a further successor was seen."""
    left_out: Count
    """Contexts that took no part."""
    version: Count
    """Of the metric; it rises when the number would change."""
    why: Name | None
    """Why there is no value."""

    _check = model_validator(mode="after")(_with_value_or_reason)


@with_config(STRICT)
class TokenContextRow(TypedDict):
    """With `--contexts` and `--classes`, one row for each next token, layer and length of contexts, as Parquet."""

    run: Name
    """Name of the run, or of the model."""
    checkpoint: Name
    """Its name."""
    split: Name
    """`train`."""
    layer: Name
    """`last`, or the number of the block."""
    n: Count
    """Length of the contexts."""
    token: Count
    """Id of the class, as in `classes.parquet`."""
    count: Count
    """Its samples in kept contexts."""
    contexts: Count
    """Kept contexts that it follows."""
    variance: Amount | None
    """Of these samples, about their mean: the sum of the next two."""
    within_context: Amount | None
    """What is left within single contexts."""
    between_contexts: Amount | None
    """What ambiguity requires: between its contexts."""


RENAMED = {"flatness": "curvature", "flatness_relative": "curvature_relative"}
"""Metrics that tables of earlier versions hold under another name, with the same values."""


def _renamed_metric(cells: dict[str, Any]) -> dict[str, Any]:
    return cells | {"metric": RENAMED.get(cells["metric"], cells["metric"])}


def newest_versions(rows: Sequence[Row]) -> tuple[list[Row], list[str]]:
    """The rows that follow the newest definition of their metric among these, and a note on what is left out."""
    newest: dict[str, int] = {}
    for row in rows:
        newest[row.metric] = max(row.version, newest.get(row.metric, 0))
    older = sorted({row.metric for row in rows if row.version < newest[row.metric]})
    notes = [
        f"{metric}: values before version {newest[metric]} of its definition are not comparable; measure again."
        for metric in older
    ]
    return [row for row in rows if row.version == newest[row.metric]], notes


FURTHER_COUNTS = ("step", "vocabulary")
"""Further columns of runs.csv that are counts, where models were collected."""


def further_type(name: str) -> Any:
    """Return the type of a further column of runs.csv: an outcome is a number, a setting is text."""
    if name in FURTHER_COUNTS:
        return Count
    return Name if direction(name) is None else Number


def _upgraded_run(cells: dict[str, Any]) -> dict[str, Any]:
    """Version 0.1.0 wrote the mean loss of the last 100 steps as `train_loss`, and nothing evaluated."""
    if "train_loss_running" in cells:
        return cells
    return cells | {"train_loss": None, "train_loss_running": cells["train_loss"]}


RUNS: Table[Run] = Table(
    "runs", Run, key=("run", "checkpoint"), further="seed", further_type=further_type, upgraded=_upgraded_run
)
RESULTS: Table[Row] = Table(
    "results",
    Row,
    key=("run", "checkpoint", "split", "layer", "bin", "metric"),
    conflict=lambda rows: newest_versions(rows)[1],
    upgraded=_renamed_metric,
)
PUSH: Table[PushRow] = Table("push", PushRow, key=("run", "checkpoint", "head", "alpha"))
DECIDERS: Table[DeciderRow] = Table("deciders", DeciderRow, key=("run", "checkpoint", "first", "second"))
CLASSES = ColumnTable("classes", ClassRow, key=("run", "checkpoint", "split", "layer", "token"))
CONTEXTS: Table[ContextRow] = Table("contexts", ContextRow, key=("run", "checkpoint", "layer", "n", "metric"))
TOKEN_CONTEXTS = ColumnTable(
    "token_contexts", TokenContextRow, key=("run", "checkpoint", "split", "layer", "n", "token")
)
REQUIRED = (RUNS.file, RESULTS.file)
"""The files that every folder of tables has."""
TABLES: dict[str, Table[Any] | ColumnTable] = {
    table.name: table for table in (RUNS, RESULTS, PUSH, DECIDERS, CLASSES, CONTEXTS, TOKEN_CONTEXTS)
}
"""Every table, by its name, in the order in which they are read."""


class TablesRecord(Record):
    """tables.json: what the tables of a folder are, and what they were made from."""

    format: Literal[1, 2] = 1
    """Version of this layout."""
    tables: dict[str, str]
    """The sha256 of each table, by the name of its file."""
    made_from: list[dict[str, str]] = Field(default_factory=list)
    """The files behind them: `file` and `sha256` of each."""


@final
@dataclass(frozen=True)
class StoredTables:
    """The tables of a folder as they were read: the rows of each by its name, and the bytes of each file by its."""

    tables: RowsByTable
    contents: dict[str, bytes]

    @property
    def runs(self) -> list[Run]:
        return self.tables.get("runs", [])

    @property
    def rows(self) -> list[Row]:
        return self.tables.get("results", [])

    @property
    def contexts(self) -> list[ContextRow]:
        return self.tables.get("contexts", [])

    @property
    def hashes(self) -> dict[str, str]:
        """sha256 of each file, by its name."""
        return {name: hashlib.sha256(content).hexdigest() for name, content in self.contents.items()}


def write_tables(folder: str | Path, tables: RowsByTable, *, made_from: Iterable[tuple[str, str]]) -> None:
    """Write the tables, by name, and `tables.json`; `made_from` are the files behind them, each with its sha256.

    `tables.json` is written first. From then until all tables are there it fits neither the old ones nor a mix of old
    and new, so what an interrupted call leaves behind is refused. Were it written last, a first call that is
    interrupted would leave a mix without it, which passes for the user's own work.

    A table that is not required and has no rows has no file; one that an earlier call left is removed.
    """
    folder = Path(folder)
    contents = {}
    for table in TABLES.values():
        rows = list(tables.get(table.name, ()))
        if rows or table.file in REQUIRED:
            contents[table.file] = table.content(rows, folder / table.file)
    sources = [{"file": file, "sha256": digest} for file, digest in made_from]
    record = TablesRecord(tables=StoredTables({}, contents).hashes, made_from=sources)
    try:
        old = _recorded(folder)
    except DamagedError:
        old = None
    if old != record:
        write_document(folder / HASHES, record.model_dump())
    for name, content in contents.items():
        write_bytes(folder / name, content)
    for table in TABLES.values():
        if old is not None and table.file in old.tables and table.file not in contents:
            (folder / table.file).unlink(missing_ok=True)


def read_tables(folder: str | Path, *, verify_sources: bool = False) -> StoredTables:
    """The tables of a folder, each checked against `tables.json` where that is there.

    DamagedError names a table that was changed, or with `verify_sources` a file that the tables were made from.
    """
    folder = Path(folder)
    recorded = _recorded(folder)
    hashes = {} if recorded is None else recorded.tables
    contents = {
        table.name: read_bytes(folder / table.file)
        for table in TABLES.values()
        if table.file in REQUIRED or (folder / table.file).exists() or table.file in hashes
    }
    rows = {name: TABLES[name].parse(content, folder / TABLES[name].file) for name, content in contents.items()}
    tables = StoredTables(rows, {TABLES[name].file: content for name, content in contents.items()})
    for name, digest in tables.hashes.items():
        if recorded is not None and hashes.get(name) != digest:
            what = f"not the table that {HASHES} was written for; it was edited, or writing it was interrupted"
            raise DamagedError(f"{folder / name}: {what}. {_WHAT_TO_DO}")
    for source in recorded.made_from if recorded is not None and verify_sources else ():
        file = folder / source["file"]
        if file.is_file() and sha256(file) != source["sha256"]:
            raise DamagedError(f"{file}: not the file that the tables were made from. Collect or import again.")
    return tables


_WHAT_TO_DO = f"Collect or import again; or delete {HASHES} if the tables are your own work now."


def _recorded(folder: Path) -> TablesRecord | None:
    return TablesRecord.find(folder / HASHES, remedy=_WHAT_TO_DO)
