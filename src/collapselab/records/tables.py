"""The tables of a folder, by name: `runs.csv`, `results.csv`, and further ones that measurements fill.

To add a table, add an entry to `TABLES`, a CSV `Table` or a Parquet `ColumnTable`, and the code that fills it. Suites
then collect, hash, read, validate and document it like the others.

`tables.json` holds the sha256 of every table and of the records it was made from, so that a table that was edited, or
left by an interrupted write, is refused. Tables without `tables.json` are the user's own.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired

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
"""The rows of several tables by name; `TABLES` has the type of their rows."""


def _with_value_or_reason(row: Any) -> Any:
    if (row.value is None) == (row.why is None):
        raise ValueError(f"{row.metric} must have a value or a reason why not, got {row.value} and {row.why!r}")
    return row


@with_config(STRICT)
class Run(TypedDict):
    """One row for each run and checkpoint.

    Further columns are settings, which are read as text, and outcomes.
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
    """Epoch of this checkpoint; 0 is initialisation."""
    weight_decay: Amount | None
    """Weight decay of the optimiser."""
    lr: Amount | None
    """Peak learning rate."""
    seed: Count | None
    """Seed of the initial weights and of dropout."""
    parameters: Count | None
    """Parameters of the model."""
    tokens: Count | None
    """Labels trained on."""
    train_loss: Number | None
    """Loss on a fixed sample of training blocks, at the checkpoint."""
    train_loss_running: NotRequired[Number | None]
    """Mean loss of the last 100 steps; the `train_loss` of tables without this column."""
    val_loss: Number | None
    """Loss on the validation split."""
    val_accuracy: Number | None
    """Accuracy on the validation split."""
    perplexity: Number | None
    """exp of `val_loss`."""
    seconds: Amount | None
    """Seconds of training up to this checkpoint."""
    clipped: NotRequired[Amount | None]
    """Share of the steps up to this checkpoint whose gradient was clipped."""
    why: Name | None
    """Why the run failed, if it did."""


@row_dataclass(frozen=True, kw_only=True, config=STRICT)
class Row:
    """One row for each measured value, or for the reason why there is none, never both.

    An unknown count is None.

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
    """Split of the class means: `train` or `validation`. NC4 uses training means and is under `train`."""
    layer: Layer = "last"
    """`last` for the features that enter the output layer, otherwise the number of the block."""
    bin: Annotated[str, Field(pattern=rf"^(all|{BIN})$")] = "all"
    """`all`, or `LOW-HIGH` for a bin of class counts."""
    metric: Name
    """Id in the [catalogue](metrics.md#the-catalogue)."""
    value: Number | None = None
    """Empty exactly where `why` is not."""
    null: Number | None = None
    """The value with shuffled labels."""
    low: Number | None = None
    """Lower end of the 95 % interval, with `--bootstrap`."""
    high: Number | None = None
    """Upper end of the interval."""
    classes: Count | None = None
    """Classes that were kept."""
    tokens: Count | None = None
    """Samples behind the value; decisions for NC4."""
    min_count: Count | None = None
    """Samples that a class needed to be kept."""
    left_out: Count | None = None
    """Pairs, classes or tokens that had to be left out."""
    version: Count = 1
    """Version of the metric's definition; it rises when values change."""
    why: Name | None = None
    """Why there is no value."""

    _check = model_validator(mode="after")(_with_value_or_reason)

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that identify the row in its table."""
        return tuple(getattr(self, column) for column in RESULTS.key)


def bin_start(bin: str) -> int:
    """Return the smallest count of the classes in a bin; -1 for `all`, so that it is sorted first."""
    ends = re.fullmatch(BIN, bin)
    return -1 if ends is None else int(ends[1])


@row_dataclass(frozen=True, config=STRICT)
class PushRow:
    """With `--push`, one row for each head and α, with features moved toward class means."""

    run: Name
    """Name of the run, or of the model."""
    checkpoint: Name
    """Its name."""
    head: Name
    """`own` for the model's output layer, `centres` for softmax of −τ‖h − μ_c‖²/2 + log π_c."""
    alpha: Number
    """Step toward the expected class mean: 0 is no change, 1 is the mean itself."""
    tau: Amount | None
    """Scale τ of `centres`, fitted to training tokens."""
    tokens: Count
    """Validation tokens; for `centres`, those whose class has a mean."""
    loss: Number | None
    """Mean cross-entropy in nats."""
    ece: Amount | None
    """Expected calibration error, in 15 bins of equal width."""
    accuracy: Amount | None
    """Share of tokens for which the head chooses the right class."""
    agreement: Amount | None
    """Share of tokens on which `own` agrees with the nearest mean, or `centres` with the output layer."""


@row_dataclass(frozen=True, config=STRICT)
class DeciderRow:
    """With `--deciders`, one row for each pair of deciders: on how many validation tokens they agree."""

    run: Name
    """Name of the run, or of the model."""
    checkpoint: Name
    """Its name."""
    first: Name
    """`token` (the next token), `head` (the output layer), `nearest L` or `lens L` of layer L."""
    second: Name
    """The other decider of the pair."""
    tokens: Count
    """Validation tokens that are samples at every layer and have a centre."""
    agreed: Count
    """Tokens on which both choose the same class."""
    agreement: Amount
    """Share of these tokens."""


@row_dataclass(frozen=True, config=STRICT)
class DetectionRow:
    """With `--token-scores`, one row for each score and what it is to tell apart. Intervals resample blocks."""

    run: Name
    """Name of the run, or of the model."""
    checkpoint: Name
    """Its name."""
    against: Name
    """`wrong predictions`, from which right ones are told; or a further corpus, from which the validation split is."""
    score: Name
    """`energy`, `max_probability`, `nearest_mean`, `nci` or `neco`."""
    positives: Count
    """Validation tokens: those predicted rightly, or all."""
    negatives: Count
    """The others: those predicted wrongly, or tokens of the further corpus."""
    auroc: Amount
    """Chance that a positive has the larger score; 0.5 by chance."""
    auroc_low: Amount
    """Lower end of the 95 % interval."""
    auroc_high: Amount
    """Upper end."""
    aupr: Amount
    """Average precision; by chance the share of positives."""
    aupr_low: Amount
    """Lower end of the 95 % interval."""
    aupr_high: Amount
    """Upper end."""
    fpr95: Amount
    """Share of negatives above the threshold that 95 % of positives reach; 0.95 by chance."""
    fpr95_low: Amount
    """Lower end of the 95 % interval."""
    fpr95_high: Amount
    """Upper end."""


@with_config(STRICT)
class ClassRow(TypedDict):
    """With `--classes`, one row for each class of a split and layer, as Parquet."""

    run: Name
    """Name of the run, or of the model."""
    checkpoint: Name
    """Its name."""
    split: Name
    """Split of count, mean and variance: `train` or `validation`."""
    layer: Name
    """`last`, or the number of the block."""
    token: Count
    """Id of the class: the next token."""
    text: Name | None
    """Text of the token; missing if it has none."""
    kind: Name
    """[kind](tokens.md#kinds-of-tokens) of the token."""
    count: Count
    """Samples of the class in the split."""
    norm: Amount | None
    """‖m_c‖, distance from the centre of all class means."""
    variance: Amount | None
    """Σ_c², mean squared distance from the class mean."""
    cdnv: Amount | None
    """Mean of the `cdnv` terms of its pairs with all other classes."""
    cosine: Number | None
    """Mean cosine with all other classes."""
    nearest: Count | None
    """Id of the class with the nearest mean."""
    distance: Amount | None
    """Distance to the nearest mean."""
    duality_cos: Number | None
    """cos(w_c, m_c) of output-layer row and centred mean."""
    head_norm: Amount | None
    """‖w_c‖, norm of the output-layer row."""
    samples: Count
    """Validation tokens of the class, for the next three columns."""
    agreement: Amount | None
    """Share of these on which output layer and nearest centre agree (NC4)."""
    accuracy: Amount | None
    """Share of these on which the output layer is right (NC4)."""
    loss: Amount | None
    """Mean cross-entropy in nats; last layer only."""


@row_dataclass(frozen=True, config=STRICT)
class ContextRow:
    """With `--contexts`, one row for each metric, context length and layer."""

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
    """The value with [exchanged contexts](contexts.md#nulls)."""
    contexts: Count
    """Contexts behind the value."""
    tokens: Count
    """Tokens behind the value."""
    coverage: Amount | None
    """Good-Turing estimate of the probability that the next successor was seen before."""
    left_out: Count
    """Contexts that were left out."""
    version: Count
    """Version of the metric's definition; it rises when values change."""
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
    """Number of kept contexts before the token."""
    variance: Amount | None
    """Variance of these samples: the sum of the next two columns."""
    within_context: Amount | None
    """Part within single contexts."""
    between_contexts: Amount | None
    """Part between contexts, which ambiguity requires."""


RENAMED = {"flatness": "curvature", "flatness_relative": "curvature_relative"}
"""Metrics that had another name, but the same values, in earlier versions."""


def _renamed_metric(cells: dict[str, Any]) -> dict[str, Any]:
    return cells | {"metric": RENAMED.get(cells["metric"], cells["metric"])}


def newest_versions(rows: Sequence[Row]) -> tuple[list[Row], list[str]]:
    """Return the rows with the newest definition of their metric among these, and notes on those left out."""
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
"""Further columns of runs.csv that are counts; `collect` writes them."""


def further_type(name: str) -> Any:
    """Return the type of a further column of runs.csv: outcomes are numbers, settings are text."""
    if name in FURTHER_COUNTS:
        return Count
    return Name if direction(name) is None else Number


def _upgraded_run(cells: dict[str, Any]) -> dict[str, Any]:
    """Move the mean loss of the last 100 steps, which version 0.1.0 wrote as `train_loss`, to its own column."""
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
DETECTION: Table[DetectionRow] = Table("detection", DetectionRow, key=("run", "checkpoint", "against", "score"))
DECIDERS: Table[DeciderRow] = Table("deciders", DeciderRow, key=("run", "checkpoint", "first", "second"))
CLASSES = ColumnTable("classes", ClassRow, key=("run", "checkpoint", "split", "layer", "token"))
CONTEXTS: Table[ContextRow] = Table("contexts", ContextRow, key=("run", "checkpoint", "layer", "n", "metric"))
TOKEN_CONTEXTS = ColumnTable(
    "token_contexts", TokenContextRow, key=("run", "checkpoint", "split", "layer", "n", "token")
)
REQUIRED = (RUNS.file, RESULTS.file)
"""Files that every folder of tables has."""
TABLES: dict[str, Table[Any] | ColumnTable] = {
    table.name: table for table in (RUNS, RESULTS, PUSH, DETECTION, DECIDERS, CLASSES, CONTEXTS, TOKEN_CONTEXTS)
}
"""All tables by name, in the order in which they are read."""


class TablesRecord(Record):
    """tables.json: checksums of the tables of a folder and of their sources."""

    format: Literal[1, 2] = 1
    """Version of this layout."""
    tables: dict[str, str]
    """The sha256 of each table, by the name of its file."""
    made_from: list[dict[str, str]] = Field(default_factory=list)
    """`file` and `sha256` of each source file."""


@dataclass(frozen=True)
class StoredTables:
    """The tables of a folder: rows by the name of the table, and bytes by the name of the file."""

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
    """Write tables by name, and `tables.json`; `made_from` lists the source files with their sha256.

    `tables.json` is written first. Until all tables are written it matches neither the old tables nor a mix, so that
    what an interrupted call leaves is refused. If it were written last, an interrupted first call would leave tables
    without it, which count as the user's own.

    An optional table without rows has no file; a file left by an earlier call is removed.
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
    """Read the tables of a folder and check them against `tables.json` if that exists.

    DamagedError names a table that was changed or, with `verify_sources`, a source file that was changed.
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
            what = f"does not match {HASHES}; it was edited, or writing was interrupted"
            raise DamagedError(f"{folder / name}: {what}. {_WHAT_TO_DO}")
    for source in recorded.made_from if recorded is not None and verify_sources else ():
        file = folder / source["file"]
        if file.is_file() and sha256(file) != source["sha256"]:
            raise DamagedError(f"{file}: changed since the tables were made from it. Collect or import again.")
    return tables


_WHAT_TO_DO = f"Collect or import again, or delete {HASHES} to keep the tables as your own."


def _recorded(folder: Path) -> TablesRecord | None:
    return TablesRecord.find(folder / HASHES, remedy=_WHAT_TO_DO)
