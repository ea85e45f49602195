"""Two tables: `results.csv`, a row for every measured number, and `runs.csv`, a row for every run and checkpoint.

Reading is strict, since a table that is quietly wrong makes a statement that is quietly wrong: every column must be
there under its name, every number finite, every row once. A value that is missing is empty, with the reason beside it.
Floats are written with the digits that give the same float back.
"""

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from collapselab.disk import written_whole
from collapselab.errors import RunError

if TYPE_CHECKING:
    import pandas as pd

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
            _check(kind, column, getattr(self, column))
        if self.split not in ("train", "validation"):
            raise ValueError(f"split is {self.split!r}; it is train or validation.")
        if (self.value is None) != (self.why is not None):
            found = "neither" if self.value is None else f"{self.value} and {self.why!r}"
            raise ValueError(f"{self.metric} has a value or a reason why not; found {found}.")

    @property
    def key(self) -> tuple[str, ...]:
        """What a row is about; no two rows of a table share it."""
        return (self.run, self.checkpoint, self.split, self.layer, self.bin, self.metric)


_NAME, _TEXT, _COUNT, _NUMBER, _VERSION = "name", "text", "count", "number", "version"
"""The kinds of column. Names (text) and versions (counts) must be there; what is of another kind may be empty."""

_RESULT_KINDS = {
    **dict.fromkeys(("run", "checkpoint", "split", "layer", "bin", "metric"), _NAME),
    **dict.fromkeys(("value", "null", "low", "high"), _NUMBER),
    **dict.fromkeys(("classes", "tokens", "min_count", "left_out"), _COUNT),
    "version": _VERSION,
    "why": _TEXT,
}
_SETTINGS = {
    "run": _NAME,
    "checkpoint": _NAME,
    "family": _TEXT,
    "width": _COUNT,
    "depth": _COUNT,
    **dict.fromkeys(("epochs", "epoch", "weight_decay", "lr"), _NUMBER),
    "seed": _COUNT,
}
_OUTCOMES = {
    **dict.fromkeys(("parameters", "tokens"), _COUNT),
    **dict.fromkeys(("train_loss", "val_loss", "val_accuracy", "perplexity", "seconds"), _NUMBER),
    "why": _TEXT,
}
_RUN_KINDS = {**_SETTINGS, **_OUTCOMES}

RESULT_COLUMNS: tuple[str, ...] = tuple(field.name for field in fields(Row))
RUN_COLUMNS: tuple[str, ...] = tuple(_RUN_KINDS)
"""The columns every `runs.csv` has; further settings stand between `seed` and `parameters`."""


def write_results(path: str | Path, rows: Iterable[Row]) -> None:
    """Write `results.csv`, whole or not at all."""
    rows = list(rows)
    _refuse_duplicates([row.key for row in rows], path)
    write_table(path, RESULT_COLUMNS, map(astuple, rows))


def read_results(path: str | Path) -> list[Row]:
    """The rows of a `results.csv`; RunError names the line and column of what is wrong."""
    path = Path(path)
    header, lines = read_lines(path)
    require_columns(path, header, RESULT_COLUMNS)
    if unknown := [column for column in header if column not in RESULT_COLUMNS]:
        raise RunError(f"{path}: {unknown[0]!r} is not a column of results.csv.{_nearest(unknown[0], RESULT_COLUMNS)}")
    rows = []
    for number, line in lines:
        values = _parsed(path, number, dict(zip(header, line, strict=True)), _RESULT_KINDS)
        try:
            rows.append(Row(**values))
        except ValueError as error:
            raise RunError(f"{path}, line {number}: {error}") from error
    _refuse_duplicates([row.key for row in rows], path, [number for number, _ in lines])
    return rows


def write_runs(path: str | Path, runs: Iterable[Mapping[str, Any]]) -> None:
    """Write `runs.csv`, whole or not at all; settings beyond `RUN_COLUMNS` go between `seed` and `parameters`."""
    runs = list(runs)
    further = dict.fromkeys(column for run in runs for column in run if column not in _RUN_KINDS)
    columns = (*_SETTINGS, *further, *_OUTCOMES)
    for run in runs:
        check_run(run)
    _refuse_duplicates(list(map(run_key, runs)), path)
    write_table(path, columns, ([run.get(column) for column in columns] for run in runs))


def check_run(run: Mapping[str, Any]) -> None:
    """ValueError unless the row of a run has every column, each with a value that the table can hold."""
    if missing := [column for column in RUN_COLUMNS if column not in run]:
        raise ValueError(f"{run.get('run')}: no {missing[0]}; a run has every column, None where it is not known.")
    for column, kind in _RUN_KINDS.items():
        value = run[column]
        _check(kind, column, value)
        if isinstance(value, int) and value >= 2**63:
            raise ValueError(f"{column} is a number of {len(str(value)):,} digits.")
        if column in ("epochs", "epoch", "seconds") and value is not None and value < 0:
            raise ValueError(f"{column} is {value}, below 0.")


def read_runs(path: str | Path) -> list[Run]:
    """The rows of a `runs.csv`, with every further column it has."""
    path = Path(path)
    header, lines = read_lines(path)
    require_columns(path, header, RUN_COLUMNS)
    kinds = {column: _RUN_KINDS.get(column, _TEXT) for column in header}
    runs = [_parsed(path, number, dict(zip(header, line, strict=True)), kinds) for number, line in lines]
    _refuse_duplicates(list(map(run_key, runs)), path, [number for number, _ in lines])
    return runs


def run_key(run: Mapping[str, Any]) -> tuple[str, str]:
    """What a row of `runs.csv` is about; no two rows share it."""
    return run["run"], run["checkpoint"]


def to_frame(rows: Sequence[Row]) -> "pd.DataFrame":
    """The rows as a pandas table with the columns of `results.csv`; what is missing is NaN."""
    import pandas as pd

    frame = pd.DataFrame([astuple(row) for row in rows], columns=list(RESULT_COLUMNS))
    numbers = [column for column, kind in _RESULT_KINDS.items() if kind == _NUMBER]
    counts = [column for column, kind in _RESULT_KINDS.items() if kind in (_COUNT, _VERSION)]
    return frame.astype({**dict.fromkeys(numbers, "float64"), **dict.fromkeys(counts, "Int64")})


def write_table(path: str | Path, columns: Sequence[str], lines: Iterable[Iterable[Any]]) -> None:
    """Write any table of comma-separated values, whole or not at all; None is empty."""
    with written_whole(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([_written(value) for value in line] for line in lines)


def _written(value: Any) -> str:
    if value is None:
        return ""
    return repr(float(value)) if isinstance(value, float) else str(value)


def read_lines(path: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """The names of the columns, and every line with its number in the file."""
    if not path.is_file():
        raise RunError(f"{path}: no such file.")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            header = next(reader, [])
            lines = [(reader.line_num, line) for line in reader if line]
    except (UnicodeDecodeError, csv.Error) as error:
        raise RunError(f"{path}: not a table of comma-separated values ({error}).") from error
    if not header:
        raise RunError(f"{path}: empty; not even the names of the columns are there.")
    if twice := [column for column in header if header.count(column) > 1]:
        raise RunError(f"{path}: column {twice[0]!r} is there twice.")
    for number, line in lines:
        if len(line) != len(header):
            raise RunError(f"{path}, line {number}: {len(line)} fields in a table of {len(header)} columns.")
    return header, lines


def require_columns(path: Path, header: Sequence[str], columns: Sequence[str]) -> None:
    for column in columns:
        if column not in header:
            strangers = [name for name in header if name not in columns]
            raise RunError(f"{path}: no column {column!r}.{_nearest(column, strangers)}")


def _nearest(name: str, candidates: Iterable[str]) -> str:
    near = get_close_matches(name, list(candidates), n=1)
    return f" The nearest is {near[0]!r}." if near else ""


def _parsed(path: Path, number: int, line: dict[str, str], kinds: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for column, text in line.items():
        try:
            values[column] = _value(kinds[column], column, text)
            _check(kinds[column], column, values[column])
        except ValueError as error:
            raise RunError(f"{path}, line {number}: {error}") from error
    return values


def _value(kind: str, column: str, text: str) -> Any:
    if not text:
        return None
    if kind in (_NAME, _TEXT):
        return text
    try:
        return float(text) if kind == _NUMBER else int(text)
    except ValueError as error:
        raise ValueError(f"{column} is {text!r}, not a{' number' if kind == _NUMBER else 'n integer'}.") from error


def _check(kind: str, column: str, value: Any) -> None:
    if value is None:
        if kind in (_NAME, _VERSION):
            raise ValueError(f"{column} is empty.")
        return
    of_kind: bool = isinstance(value, str if kind in (_NAME, _TEXT) else int | float if kind == _NUMBER else int)
    if not of_kind or isinstance(value, bool):
        raise ValueError(f"{column} is {value!r}, which is {type(value).__name__}.")
    if value == "":
        raise ValueError(f"{column} is empty text; None stands for nothing.")
    if kind == _NUMBER and not math.isfinite(value):
        raise ValueError(f"{column} is {value}. Leave it empty and say why.")
    if kind in (_COUNT, _VERSION) and value < 0:
        raise ValueError(f"{column} is {value}, below 0.")


def _refuse_duplicates(keys: Sequence[tuple[str, ...]], where: str | Path, lines: Sequence[int] | None = None) -> None:
    seen: dict[tuple[str, ...], int] = {}
    for number, key in enumerate(keys):
        if key in seen:
            found = f", lines {lines[seen[key]]} and {lines[number]}" if lines else ""
            raise RunError(f"{where}{found}: two rows for {' / '.join(key)}. Each may stand once.")
        seen[key] = number
