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
from typing import Annotated, Any, Literal, NotRequired, TypedDict, final, get_args, get_origin, get_type_hints

from pydantic import JsonValue

from collapselab.disk import read_bytes, read_document, sha256, write_bytes, write_document
from collapselab.errors import DamagedError
from collapselab.records.column_table import ColumnTable
from collapselab.records.outcomes import direction
from collapselab.records.table import Cell, Column, Kind, Table, check_cell, shown

HASHES = "tables.json"
FORMAT = 1
LAYER, BIN = re.compile(r"last|[1-9][0-9]{0,8}"), re.compile(r"([0-9]{1,18})-([0-9]{1,18})")

RowsByTable = dict[str, list[Any]]
"""The rows of several tables, by the name of each; what a row is, its entry of `TABLES` says."""


class Run(TypedDict):
    """One checkpoint of a run: a row of `runs.csv`, which may have further columns (settings, text when read)."""

    run: Annotated[str, Column(Kind.NAME, "name of the run")]
    checkpoint: Annotated[str, Column(Kind.NAME, "its name: the epoch")]
    family: Annotated[str | None, Column(Kind.TEXT, "architecture, such as `gpt-neo`")]
    width: Annotated[int | None, Column(Kind.COUNT, "dimension of the features")]
    depth: Annotated[int | None, Column(Kind.COUNT, "number of blocks")]
    epochs: Annotated[float | None, Column(Kind.AMOUNT, "length of the whole training")]
    epoch: Annotated[float | None, Column(Kind.AMOUNT, "of this checkpoint; 0 is initialisation")]
    weight_decay: Annotated[float | None, Column(Kind.AMOUNT, "of the optimiser")]
    lr: Annotated[float | None, Column(Kind.AMOUNT, "learning rate at its highest")]
    seed: Annotated[int | None, Column(Kind.COUNT, "of the initial weights, and of dropout")]
    parameters: Annotated[int | None, Column(Kind.COUNT, "of the model")]
    tokens: Annotated[int | None, Column(Kind.COUNT, "labels trained on")]
    train_loss: Annotated[float | None, Column(Kind.NUMBER, "on a fixed sample of training blocks, at the checkpoint")]
    train_loss_running: NotRequired[
        Annotated[
            float | None,
            Column(
                Kind.NUMBER, "mean of the last 100 steps; the `train_loss` of tables without this column", later=True
            ),
        ]
    ]
    val_loss: Annotated[float | None, Column(Kind.NUMBER, "on the validation split")]
    val_accuracy: Annotated[float | None, Column(Kind.NUMBER, "on the validation split")]
    perplexity: Annotated[float | None, Column(Kind.NUMBER, "exp of `val_loss`")]
    seconds: Annotated[float | None, Column(Kind.AMOUNT, "of training up to here")]
    clipped: NotRequired[
        Annotated[
            float | None,
            Column(Kind.AMOUNT, "share of the steps up to here whose gradient was clipped", later=True),
        ]
    ]
    why: Annotated[str | None, Column(Kind.TEXT, "what failed, if something did")]


@final
@dataclass(frozen=True, kw_only=True)
class Row:
    """One measured number, or the reason why there is none; never both. An unknown count is None.

    >>> from collapselab import Row
    >>> row = Row(run="a", checkpoint="1", metric="cdnv", value=0.25)
    >>> row.split, row.layer, row.bin, row.version
    ('train', 'last', 'all', 1)
    >>> Row(run="a", checkpoint="1", metric="cdnv")
    Traceback (most recent call last):
    ValueError: cdnv has a value or a reason why not; found neither.
    """

    run: Annotated[str, Column(Kind.NAME, "name of the run, or of the model")]
    checkpoint: Annotated[str, Column(Kind.NAME, "its name")]
    split: Annotated[
        Literal["train", "validation"],
        Column(
            Kind.NAME,
            "where the class means come from: `train` or `validation`; NC4, whose means are of the training split, "
            "is under `train`",
        ),
    ] = "train"
    layer: Annotated[
        str, Column(Kind.NAME, "`last` for the features that enter the output layer, else the number of the block")
    ] = "last"
    bin: Annotated[str, Column(Kind.NAME, "`all`, or `LOW-HIGH`, a range of class counts")] = "all"
    metric: Annotated[str, Column(Kind.NAME, "id in the [catalogue](metrics.md#the-catalogue)")]
    value: Annotated[float | None, Column(Kind.NUMBER, "empty exactly where `why` is not")] = None
    null: Annotated[float | None, Column(Kind.NUMBER, "the same with shuffled labels")] = None
    low: Annotated[float | None, Column(Kind.NUMBER, "lower end of the 95 % interval, with `--bootstrap`")] = None
    high: Annotated[float | None, Column(Kind.NUMBER, "upper end")] = None
    classes: Annotated[int | None, Column(Kind.COUNT, "classes that were kept")] = None
    tokens: Annotated[int | None, Column(Kind.COUNT, "samples behind the value; of NC4, decisions")] = None
    min_count: Annotated[int | None, Column(Kind.COUNT, "samples that a class needed to be kept")] = None
    left_out: Annotated[int | None, Column(Kind.COUNT, "pairs, classes or tokens that could not take part")] = None
    version: Annotated[int, Column(Kind.VERSION, "of the metric; it rises when the number would change")] = 1
    why: Annotated[str | None, Column(Kind.TEXT, "why there is no value")] = None

    def __post_init__(self) -> None:
        for name, column in RESULTS.columns.items():
            check_cell(column.kind, name, getattr(self, name))
        if self.split not in ("train", "validation"):
            raise ValueError(f"split is {shown(self.split)}; it is train or validation.")
        if not LAYER.fullmatch(self.layer):
            raise ValueError(f"layer is {shown(self.layer)}; it is last, or the number of a block from 1 on.")
        ends = BIN.fullmatch(self.bin)
        if self.bin != "all" and (ends is None or int(ends[1]) > int(ends[2])):
            raise ValueError(f"bin is {shown(self.bin)}; it is all, or LOW-HIGH with LOW not above HIGH.")
        if (self.value is None) != (self.why is not None):
            cells = "neither" if self.value is None else f"{self.value} and {self.why!r}"
            raise ValueError(f"{self.metric} has a value or a reason why not; found {cells}.")

    @property
    def key(self) -> tuple[str, ...]:
        """What the row is about; no two rows of a table share it."""
        return tuple(getattr(self, column) for column in RESULTS.key)


def bin_start(bin: str) -> int:
    """The least count of the classes in a bin; -1 of the bin that has all, so that it is the first."""
    ends = BIN.fullmatch(bin)
    return -1 if ends is None else int(ends[1])


@final
@dataclass(frozen=True)
class PushRow:
    """What a head makes of features that are moved toward the class means which the model expects."""

    run: Annotated[str, Column(Kind.NAME, "name of the run, or of the model")]
    checkpoint: Annotated[str, Column(Kind.NAME, "its name")]
    head: Annotated[
        str,
        Column(Kind.NAME, "`own` for the model's output layer, `centres` for softmax of −τ‖h − μ_c‖²/2 + log π_c"),
    ]
    alpha: Annotated[float, Column(Kind.NUMBER, "how far features are moved: 0 not at all, 1 onto the expected mean")]
    tau: Annotated[float | None, Column(Kind.AMOUNT, "of `centres`, fitted to training tokens")]
    tokens: Annotated[int, Column(Kind.COUNT, "validation tokens; for `centres` those whose class has a mean")]
    loss: Annotated[float | None, Column(Kind.NUMBER, "mean cross-entropy in nats")]
    ece: Annotated[float | None, Column(Kind.AMOUNT, "expected calibration error, in 15 bins of equal width")]
    accuracy: Annotated[float | None, Column(Kind.AMOUNT, "share of tokens whose class is chosen")]
    agreement: Annotated[
        float | None,
        Column(Kind.AMOUNT, "share of choices: of `own` with the nearest mean, of `centres` with the output layer"),
    ]


@final
@dataclass(frozen=True)
class DeciderRow:
    """On how many validation tokens two deciders agree."""

    run: Annotated[str, Column(Kind.NAME, "name of the run, or of the model")]
    checkpoint: Annotated[str, Column(Kind.NAME, "its name")]
    first: Annotated[
        str,
        Column(
            Kind.NAME,
            "`token` for the next token, `head` for the output layer, `nearest L` for the nearest centre of layer L, "
            "`lens L` for the logit lens of block L",
        ),
    ]
    second: Annotated[str, Column(Kind.NAME, "the other, of the same names")]
    tokens: Annotated[int, Column(Kind.COUNT, "validation tokens that are samples at every layer and have a centre")]
    agreed: Annotated[int, Column(Kind.COUNT, "those on which both choose the same class")]
    agreement: Annotated[float, Column(Kind.AMOUNT, "their share")]


class ClassRow(TypedDict):
    """One class of a layer: the columns of `classes.parquet`. What does not exist is missing."""

    run: Annotated[str, Column(Kind.NAME, "name of the run, or of the model")]
    checkpoint: Annotated[str, Column(Kind.NAME, "its name")]
    split: Annotated[str, Column(Kind.NAME, "where count, mean and variance come from: `train` or `validation`")]
    layer: Annotated[str, Column(Kind.NAME, "`last`, or the number of the block")]
    token: Annotated[int, Column(Kind.COUNT, "id of the class: the next token")]
    text: Annotated[str | None, Column(Kind.TEXT, "its text; missing where it has none")]
    kind: Annotated[str, Column(Kind.NAME, "[kind](tokens.md#kinds-of-tokens) of the token")]
    count: Annotated[int, Column(Kind.COUNT, "samples of the class in the split")]
    norm: Annotated[float | None, Column(Kind.AMOUNT, "‖m_c‖, from the centre of all class means to its own")]
    variance: Annotated[float | None, Column(Kind.AMOUNT, "σ_c², mean squared distance from the class mean")]
    cdnv: Annotated[float | None, Column(Kind.AMOUNT, "mean of the `cdnv` terms of its pairs with all other classes")]
    cosine: Annotated[float | None, Column(Kind.NUMBER, "mean cosine with all other classes")]
    nearest: Annotated[int | None, Column(Kind.COUNT, "id of the class with the nearest mean")]
    distance: Annotated[float | None, Column(Kind.AMOUNT, "to that mean")]
    duality_cos: Annotated[float | None, Column(Kind.NUMBER, "cos(w_c, m_c), of output row and centred mean")]
    head_norm: Annotated[float | None, Column(Kind.AMOUNT, "‖w_c‖, of the output row")]
    samples: Annotated[int, Column(Kind.COUNT, "validation tokens of the class, which the next three are about")]
    agreement: Annotated[
        float | None, Column(Kind.AMOUNT, "share where output layer and nearest centre choose alike (NC4)")
    ]
    accuracy: Annotated[float | None, Column(Kind.AMOUNT, "share where the output layer is right (NC4)")]
    loss: Annotated[float | None, Column(Kind.AMOUNT, "mean cross-entropy in nats; with the last layer only")]


@final
@dataclass(frozen=True)
class ContextRow:
    """One metric of contexts, or the reason why there is none."""

    run: Annotated[str, Column(Kind.NAME, "name of the run, or of the model")]
    checkpoint: Annotated[str, Column(Kind.NAME, "its name")]
    layer: Annotated[str, Column(Kind.NAME, "`last`, or the number of the block")]
    n: Annotated[int, Column(Kind.COUNT, "length of the contexts: the last n tokens of the training split")]
    metric: Annotated[str, Column(Kind.NAME, "id in the [catalogue of contexts](contexts.md#the-catalogue)")]
    value: Annotated[float | None, Column(Kind.NUMBER, "empty exactly where `why` is not")]
    null: Annotated[float | None, Column(Kind.NUMBER, "the same with [exchanged contexts](contexts.md#nulls)")]
    contexts: Annotated[int, Column(Kind.COUNT, "contexts behind the value")]
    tokens: Annotated[int, Column(Kind.COUNT, "tokens behind the value")]
    coverage: Annotated[
        float | None,
        Column(Kind.AMOUNT, "Good and Turing's chance that a further successor of these contexts was seen"),
    ]
    left_out: Annotated[
        int, Column(Kind.COUNT, "contexts that took no part: too few uses, too low a coverage, or not of use here")
    ]
    version: Annotated[int, Column(Kind.VERSION, "of the metric; it rises when the number would change")]
    why: Annotated[str | None, Column(Kind.TEXT, "why there is no value")]

    def __post_init__(self) -> None:
        for name, column in CONTEXTS.columns.items():
            check_cell(column.kind, name, getattr(self, name))
        if not LAYER.fullmatch(self.layer):
            raise ValueError(f"layer is {shown(self.layer)}; it is last, or the number of a block from 1 on.")
        if (self.value is None) != (self.why is not None):
            cells = "neither" if self.value is None else f"{self.value} and {self.why!r}"
            raise ValueError(f"{self.metric} has a value or a reason why not; found {cells}.")


class TokenContextRow(TypedDict):
    """A next token and the contexts it follows: the columns of `token_contexts.parquet`."""

    run: Annotated[str, Column(Kind.NAME, "name of the run, or of the model")]
    checkpoint: Annotated[str, Column(Kind.NAME, "its name")]
    split: Annotated[str, Column(Kind.NAME, "`train`")]
    layer: Annotated[str, Column(Kind.NAME, "`last`, or the number of the block")]
    n: Annotated[int, Column(Kind.COUNT, "length of the contexts")]
    token: Annotated[int, Column(Kind.COUNT, "id of the class, as in `classes.parquet`")]
    count: Annotated[int, Column(Kind.COUNT, "its samples in kept contexts")]
    contexts: Annotated[int, Column(Kind.COUNT, "kept contexts that it follows")]
    variance: Annotated[
        float | None, Column(Kind.AMOUNT, "of these samples, about their mean: the sum of the next two")
    ]
    within_context: Annotated[float | None, Column(Kind.AMOUNT, "what is left within single contexts")]
    between_contexts: Annotated[float | None, Column(Kind.AMOUNT, "what ambiguity requires: between its contexts")]


def columns_of(row: type) -> dict[str, Column]:
    """The columns of a table whose rows are a dataclass or TypedDict with `Annotated[type, Column(…)]` fields."""
    hints = get_type_hints(row, include_extras=True)
    annotated = {name: get_args(hint)[0] if get_origin(hint) is NotRequired else hint for name, hint in hints.items()}
    return {name: get_args(hint)[1] for name, hint in annotated.items()}


RENAMED = {"flatness": "curvature", "flatness_relative": "curvature_relative"}
"""Metrics that tables of earlier versions hold under another name, with the same values."""


def _stored_row(**cells: Any) -> Row:
    return Row(**cells | {"metric": RENAMED.get(cells["metric"], cells["metric"])})


def _mixed_versions(rows: Sequence[Row]) -> tuple[int, int, str] | None:
    """The first two rows of one metric that follow different definitions of it."""
    places: dict[str, int] = {}
    for place, row in enumerate(rows):
        first = places.setdefault(row.metric, place)
        if rows[first].version != row.version:
            versions = f"of version {rows[first].version} and of version {row.version}"
            why = "Numbers of two definitions are not compared; measure the older ones again."
            return first, place, f"{row.metric} {versions}. {why}"
    return None


def newest_versions(rows: Sequence[Row]) -> tuple[list[Row], list[str]]:
    """The rows that follow the newest definition of their metric among these, and a note on what is left out."""
    newest: dict[str, int] = {}
    for row in rows:
        newest[row.metric] = max(row.version, newest.get(row.metric, 0))
    older = sorted({row.metric for row in rows if row.version < newest[row.metric]})
    notes = [f"{metric}: values before version {newest[metric]} of its definition are left out." for metric in older]
    return [row for row in rows if row.version == newest[row.metric]], notes


FURTHER_COUNTS = ("step", "vocabulary")
"""Further columns of runs.csv that are counts, where models were collected."""


def further_kind(name: str) -> Kind:
    """What a further column of runs.csv holds: an outcome is a number, a setting is text."""
    if name in FURTHER_COUNTS:
        return Kind.COUNT
    return Kind.TEXT if direction(name) is None else Kind.NUMBER


def _upgraded_run(cells: dict[str, Cell]) -> dict[str, Cell]:
    """Version 0.1.0 wrote the mean loss of the last 100 steps as `train_loss`, and nothing evaluated."""
    if "train_loss_running" in cells:
        return cells
    return cells | {"train_loss": None, "train_loss_running": cells["train_loss"]}


RUNS: Table[Run] = Table(
    name="runs",
    about="One row for each run and checkpoint.",
    columns=columns_of(Run),
    key=("run", "checkpoint"),
    row=Run,
    further="seed",
    further_kind=further_kind,
    required=True,
    upgraded=_upgraded_run,
)
RESULTS: Table[Row] = Table(
    name="results",
    about="One row for each measured number, or for the reason why there is none.",
    columns=columns_of(Row),
    key=("run", "checkpoint", "split", "layer", "bin", "metric"),
    row=_stored_row,
    required=True,
    check=_mixed_versions,
)
PUSH: Table[PushRow] = Table(
    name="push",
    about="With `--push`, one row for each head and α: the validation tokens, their features moved toward class means.",
    columns=columns_of(PushRow),
    key=("run", "checkpoint", "head", "alpha"),
    row=PushRow,
)
CLASSES = ColumnTable(
    name="classes",
    about="With `--classes`, one row for each class of a split and layer, as Parquet.",
    columns=columns_of(ClassRow),
    key=("run", "checkpoint", "split", "layer", "token"),
)
CONTEXTS: Table[ContextRow] = Table(
    name="contexts",
    about="With `--contexts`, one row for each metric of contexts, their length and layer.",
    columns=columns_of(ContextRow),
    key=("run", "checkpoint", "layer", "n", "metric"),
    row=ContextRow,
)
TOKEN_CONTEXTS = ColumnTable(
    name="token_contexts",
    about="With `--contexts` and `--classes`, one row for each next token, layer and length of contexts, as Parquet.",
    columns=columns_of(TokenContextRow),
    key=("run", "checkpoint", "split", "layer", "n", "token"),
)
DECIDERS: Table[DeciderRow] = Table(
    name="deciders",
    about="With `--deciders`, one row for each two deciders: on how many validation tokens they choose alike.",
    columns=columns_of(DeciderRow),
    key=("run", "checkpoint", "first", "second"),
    row=DeciderRow,
)
TABLES: dict[str, Table[Any] | ColumnTable] = {
    table.name: table for table in (RUNS, RESULTS, PUSH, DECIDERS, CLASSES, CONTEXTS, TOKEN_CONTEXTS)
}
"""Every table, by its name, in the order in which they are read."""

RUN_COLUMNS, RESULT_COLUMNS = tuple(RUNS.columns), tuple(RESULTS.columns)
read_runs, write_runs = RUNS.read, RUNS.write
read_results, write_results = RESULTS.read, RESULTS.write


class SourceFile(TypedDict):
    """A file behind the tables."""

    file: str
    sha256: str


class TablesRecord(TypedDict):
    """tables.json: what the tables of a folder are, and what they were made from."""

    format: int
    """Version of this layout."""
    tables: dict[str, str]
    """The sha256 of each table, by the name of its file."""
    made_from: list[SourceFile]
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
        if rows or table.required:
            contents[table.file] = table.content(rows, folder / table.file)
    sources = [SourceFile(file=file, sha256=digest) for file, digest in made_from]
    document = TablesRecord(format=FORMAT, tables=StoredTables({}, contents).hashes, made_from=sources)
    try:
        old = read_document(folder / HASHES)
    except (FileNotFoundError, DamagedError):
        old = {}
    if old != document:
        write_document(folder / HASHES, document)
    for name, content in contents.items():
        write_bytes(folder / name, content)
    for name in _hashes_in(old):
        if name not in contents and name in {table.file for table in TABLES.values()}:
            (folder / name).unlink(missing_ok=True)


def read_tables(folder: str | Path) -> StoredTables:
    """The tables of a folder, each checked against `tables.json` where that is there."""
    folder = Path(folder)
    recorded = _recorded_hashes(folder) if (folder / HASHES).exists() else None
    there = {
        table.name: read_bytes(folder / table.file)
        for table in TABLES.values()
        if table.required or (folder / table.file).exists() or table.file in (recorded or {})
    }
    rows = {name: TABLES[name].parse(content, folder / TABLES[name].file) for name, content in there.items()}
    tables = StoredTables(rows, {TABLES[name].file: content for name, content in there.items()})
    for name, digest in tables.hashes.items():
        if recorded is not None and recorded.get(name) != digest:
            what = f"not the table that {HASHES} was written for; it was edited, or writing it was interrupted"
            raise DamagedError(f"{folder / name}: {what}. {_WHAT_TO_DO}")
    return tables


def required_files() -> list[str]:
    """The files that every folder of tables has."""
    return [table.file for table in TABLES.values() if table.required]


def hashed_files(folder: str | Path, files: Iterable[Path]) -> list[tuple[str, str]]:
    """Files with their sha256, as `made_from` takes them; named by their place in the folder."""
    return [(path.relative_to(folder).as_posix(), sha256(path)) for path in files]


_WHAT_TO_DO = f"Collect or import again; or delete {HASHES} if the tables are your own work now."


def _recorded_hashes(folder: Path) -> dict[str, JsonValue]:
    try:
        return _hashes_in(read_document(folder / HASHES))
    except DamagedError as error:
        raise DamagedError(f"{error} {_WHAT_TO_DO}") from error


def _hashes_in(document: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """What tables.json says of each file; nothing where it says nothing that can be read as that."""
    recorded = document.get("tables")
    return recorded if isinstance(recorded, dict) else {}
