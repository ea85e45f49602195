"""Two tables: `results.csv`, a row for every measured number, and `runs.csv`, a row for every run and checkpoint.

Reading is strict, since a table that is quietly wrong makes a statement that is quietly wrong: every column must be
there under its name, every number finite, every row once. A value that is missing is empty, with the reason beside it.

Beside them `tables.json` holds the sha256 of both and of the records that they were made from, so that a table which
was edited, or is left from an interrupted write, is refused. Tables without it are the user's own work.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, final

from collapselab.disk import read_document, sha256, write_document
from collapselab.errors import DamagedError, RunError
from collapselab.records.columns import (
    AMOUNT,
    COUNT,
    COUNTS,
    NAME,
    NUMBER,
    NUMBERS,
    TEXT,
    VERSION,
    check_value,
    parse_line,
    refuse_duplicates,
)
from collapselab.records.csv_file import (
    nearest,
    parse_table,
    read_bytes,
    require_columns,
    shown,
    table_bytes,
    write_bytes,
)
from collapselab.records.versions import mixed

if TYPE_CHECKING:
    import pandas as pd

TABLES = ("runs.csv", "results.csv")
HASHES = "tables.json"
FORMAT = 1
LAYER, BIN = re.compile(r"last|[1-9][0-9]{0,8}"), re.compile(r"([0-9]{1,18})-([0-9]{1,18})")

Run = dict[str, Any]
"""One row of `runs.csv`: the columns of `RUN_COLUMNS` and any further settings of the run, which are text when read."""


@dataclass(frozen=True)
class Row:
    """One measured number, or the reason why there is none; never both.

    `split` is where the class means come from: decisions (NC4), whose means are of the training split, stand under
    "train". `layer` is "last" for the features that enter the output layer, else the block: "1", "2", … `bin` is "all"
    or "LOW-HIGH", a range of class counts. A count that nobody knows, as in a published table, is None.
    """

    run: str
    checkpoint: str
    split: Literal["train", "validation"]
    layer: str
    bin: str
    metric: str
    value: float | None
    null: float | None
    low: float | None
    high: float | None
    classes: int | None
    tokens: int | None
    min_count: int | None
    left_out: int | None
    version: int
    why: str | None

    def __post_init__(self) -> None:
        for column, kind in _RESULT_KINDS.items():
            check_value(kind, column, getattr(self, column))
        if self.split not in ("train", "validation"):
            raise ValueError(f"split is {shown(self.split)}; it is train or validation.")
        if not LAYER.fullmatch(self.layer):
            raise ValueError(f"layer is {shown(self.layer)}; it is last, or the number of a block from 1 on.")
        if not _is_bin(self.bin):
            raise ValueError(f"bin is {shown(self.bin)}; it is all, or LOW-HIGH with LOW not above HIGH.")
        if (self.value is None) != (self.why is not None):
            found = "neither" if self.value is None else f"{self.value} and {self.why!r}"
            raise ValueError(f"{self.metric} has a value or a reason why not; found {found}.")

    @property
    def key(self) -> tuple[str, ...]:
        """What a row is about; no two rows of a table share it."""
        return (self.run, self.checkpoint, self.split, self.layer, self.bin, self.metric)


_RESULT_KINDS = {
    **dict.fromkeys(("run", "checkpoint", "split", "layer", "bin", "metric"), NAME),
    **dict.fromkeys(("value", "null", "low", "high"), NUMBER),
    **dict.fromkeys(("classes", "tokens", "min_count", "left_out"), COUNT),
    "version": VERSION,
    "why": TEXT,
}
_SETTINGS = {
    "run": NAME,
    "checkpoint": NAME,
    "family": TEXT,
    "width": COUNT,
    "depth": COUNT,
    **dict.fromkeys(("epochs", "epoch", "weight_decay", "lr"), AMOUNT),
    "seed": COUNT,
}
_OUTCOMES = {
    **dict.fromkeys(("parameters", "tokens"), COUNT),
    **dict.fromkeys(("train_loss", "val_loss", "val_accuracy", "perplexity"), NUMBER),
    "seconds": AMOUNT,
    "why": TEXT,
}
_RUN_KINDS = {**_SETTINGS, **_OUTCOMES}

RESULT_COLUMNS: tuple[str, ...] = tuple(field.name for field in fields(Row))
RUN_COLUMNS: tuple[str, ...] = tuple(_RUN_KINDS)
"""The columns every `runs.csv` has; further settings stand between `seed` and `parameters`."""


def write_results(path: str | Path, rows: Iterable[Row]) -> None:
    """Write `results.csv`, whole or not at all."""
    write_bytes(path, results_bytes(rows, path))


def results_bytes(rows: Iterable[Row], where: str | Path) -> bytes:
    """The contents of a `results.csv`."""
    rows = list(rows)
    refuse_duplicates([row.key for row in rows], where)
    return table_bytes(RESULT_COLUMNS, map(astuple, rows))


def read_results(path: str | Path) -> list[Row]:
    """The rows of a `results.csv`; RunError names the line and column of what is wrong."""
    return parse_results(read_bytes(Path(path)), path)


def parse_results(content: bytes, where: str | Path) -> list[Row]:
    """The rows of a `results.csv` with these contents."""
    header, lines = parse_table(content, where)
    require_columns(where, header, RESULT_COLUMNS)
    if unknown := [column for column in header if column not in RESULT_COLUMNS]:
        hint = nearest(unknown[0], RESULT_COLUMNS)
        raise RunError(f"{where}: {shown(unknown[0])} is not a column of results.csv.{hint}")
    rows = []
    for number, line in lines:
        values = parse_line(where, number, dict(zip(header, line, strict=True)), _RESULT_KINDS)
        try:
            rows.append(Row(**values))
        except ValueError as error:
            raise RunError(f"{where}, line {number}: {error}") from error
    refuse_duplicates([row.key for row in rows], where, [number for number, _ in lines])
    _refuse_mixed_versions(rows, where, [number for number, _ in lines])
    return rows


def write_runs(path: str | Path, runs: Iterable[Mapping[str, Any]]) -> None:
    """Write `runs.csv`, whole or not at all; settings beyond `RUN_COLUMNS` go between `seed` and `parameters`."""
    write_bytes(path, runs_bytes(runs, path))


def runs_bytes(runs: Iterable[Mapping[str, Any]], where: str | Path) -> bytes:
    """The contents of a `runs.csv`."""
    runs = list(runs)
    further = dict.fromkeys(column for run in runs for column in run if column not in _RUN_KINDS)
    columns = (*_SETTINGS, *further, *_OUTCOMES)
    for run in runs:
        check_run(run)
    refuse_duplicates(list(map(run_key, runs)), where)
    return table_bytes(columns, ([run.get(column) for column in columns] for run in runs))


def check_run(run: Mapping[str, Any]) -> None:
    """ValueError unless the row of a run has every column, each with a value that the table can hold."""
    if missing := [column for column in RUN_COLUMNS if column not in run]:
        raise ValueError(f"{run.get('run')}: no {missing[0]}; a run has every column, None where it is not known.")
    for column, kind in _RUN_KINDS.items():
        check_value(kind, column, run[column])


def read_runs(path: str | Path) -> list[Run]:
    """The rows of a `runs.csv`, with every further column it has."""
    return parse_runs(read_bytes(Path(path)), path)


def parse_runs(content: bytes, where: str | Path) -> list[Run]:
    """The rows of a `runs.csv` with these contents."""
    header, lines = parse_table(content, where)
    require_columns(where, header, RUN_COLUMNS)
    kinds = {column: _RUN_KINDS.get(column, TEXT) for column in header}
    runs = [parse_line(where, number, dict(zip(header, line, strict=True)), kinds) for number, line in lines]
    refuse_duplicates(list(map(run_key, runs)), where, [number for number, _ in lines])
    return runs


def run_key(run: Mapping[str, Any]) -> tuple[str, str]:
    """What a row of `runs.csv` is about; no two rows share it."""
    return run["run"], run["checkpoint"]


def to_frame(rows: Sequence[Row]) -> "pd.DataFrame":
    """The rows as a pandas table with the columns of `results.csv`; what is missing is NaN."""
    import pandas as pd

    frame = pd.DataFrame([astuple(row) for row in rows], columns=list(RESULT_COLUMNS))
    numbers = [column for column, kind in _RESULT_KINDS.items() if kind in NUMBERS]
    counts = [column for column, kind in _RESULT_KINDS.items() if kind in COUNTS]
    return frame.astype({**dict.fromkeys(numbers, "float64"), **dict.fromkeys(counts, "Int64")})


@final
@dataclass(frozen=True)
class StoredTables:
    """The two tables of a folder as they were read: their rows, and the bytes of each file by its name."""

    runs: list[Run]
    rows: list[Row]
    contents: dict[str, bytes]

    @property
    def hashes(self) -> dict[str, str]:
        """sha256 of each file, by its name."""
        return {name: hashlib.sha256(content).hexdigest() for name, content in self.contents.items()}


def write_tables(
    folder: str | Path, runs: Iterable[Mapping[str, Any]], rows: Iterable[Row], *, made_from: Iterable[tuple[str, str]]
) -> None:
    """Write `runs.csv`, `results.csv` and `tables.json`; `made_from` are the files behind them, each with its sha256.

    `tables.json` is written first. From then until both tables are there it fits neither the old ones nor a mix of old
    and new, so what an interrupted call leaves behind is refused. Were it written last, a first call that is
    interrupted would leave a mix without it, which passes for the user's own work.
    """
    folder = Path(folder)
    contents = {
        "runs.csv": runs_bytes(runs, folder / "runs.csv"),
        "results.csv": results_bytes(rows, folder / "results.csv"),
    }
    sources = [{"file": file, "sha256": digest} for file, digest in made_from]
    document = {"format": FORMAT, "tables": StoredTables([], [], contents).hashes, "made_from": sources}
    if _recorded(folder / HASHES) != document:
        write_document(folder / HASHES, document)
    for name, content in contents.items():
        write_bytes(folder / name, content)


def read_tables(folder: str | Path) -> StoredTables:
    """The two tables of a folder, each checked against `tables.json` where that is there."""
    folder = Path(folder)
    contents = {name: read_bytes(folder / name) for name in TABLES}
    tables = StoredTables(
        parse_runs(contents["runs.csv"], folder / "runs.csv"),
        parse_results(contents["results.csv"], folder / "results.csv"),
        contents,
    )
    if (folder / HASHES).exists():
        _verify(folder, tables.hashes)
    return tables


def hashed_files(folder: str | Path, files: Iterable[Path]) -> list[tuple[str, str]]:
    """Files with their sha256, as `made_from` takes them; named by their place in the folder."""
    return [(path.relative_to(folder).as_posix(), sha256(path)) for path in files]


def _verify(folder: Path, hashes: Mapping[str, str]) -> None:
    try:
        recorded = read_document(folder / HASHES).get("tables")
    except DamagedError as error:
        raise DamagedError(f"{error} {_WHAT_TO_DO}") from error
    for name, digest in hashes.items():
        if not isinstance(recorded, dict) or recorded.get(name) != digest:
            what = f"not the table that {HASHES} was written for; it was edited, or writing it was interrupted"
            raise DamagedError(f"{folder / name}: {what}. {_WHAT_TO_DO}")


_WHAT_TO_DO = f"Collect or import again; or delete {HASHES} if the tables are your own work now."


def _recorded(path: Path) -> dict[str, Any] | None:
    try:
        return read_document(path)
    except (FileNotFoundError, DamagedError):
        return None


def _refuse_mixed_versions(rows: Sequence[Row], where: str | Path, lines: Sequence[int]) -> None:
    if (places := mixed([(row.metric, row.version) for row in rows])) is not None:
        one, other = (rows[place] for place in places)
        raise RunError(
            f"{where}, lines {lines[places[0]]} and {lines[places[1]]}: {one.metric} of version {one.version} and of "
            f"version {other.version}. Numbers of two definitions are not compared; measure the older ones again."
        )


def _is_bin(text: str) -> bool:
    ends = BIN.fullmatch(text)
    return text == "all" or (ends is not None and int(ends[1]) <= int(ends[2]))
