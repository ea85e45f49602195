"""A finished measurement: rows in the long form, and the facts that are needed to interpret them."""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NotRequired, final

from pydantic import JsonValue, TypeAdapter
from typing_extensions import TypedDict  # that of typing only from Python 3.12 on

from collapselab.core.metrics import FIRST, METRICS
from collapselab.disk import document_text, read_document, sha256, write_document, written_whole
from collapselab.errors import ConfigError, DamagedError
from collapselab.record import first_error
from collapselab.records.facts import Facts
from collapselab.records.table import ColumnTable, StoredChunk, shown
from collapselab.records.tables import RESULTS, TABLES, Row, RowsByTable

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

SUFFIXES = (".csv", ".json", ".parquet")
"""Of the files that results can be written to."""


class Key(NamedTuple):
    """What a value is about: `Key("train", "last", "all", "cdnv")`."""

    split: str
    layer: str
    bin: str
    metric: str

    @property
    def name(self) -> str:
        """Its name in the facts of a result."""
        return "/".join(self)


@final
@dataclass(frozen=True, repr=False)
class Result:
    """One model's rows, and the facts about them: hashes, options, counts, dtype, versions, scores and seconds.

    >>> from collapselab import load_results
    >>> result = load_results("runs/small")[-1]  # the last checkpoint
    >>> result.row("cdnv").value < result.row("cdnv").null  # classes are tighter than with shuffled labels
    True
    >>> result.frames["results"].columns[:3].tolist()
    ['run', 'checkpoint', 'split']
    >>> result.plot("cdnv").to_dict()["title"]
    'small, checkpoint 1'

    In a notebook it is a table, and `result.plot("cdnv")` a chart.
    """

    rows: list[Row]
    facts: Facts
    further: RowsByTable = field(default_factory=dict)
    """The rows of further tables, by the name of the table in `TABLES`."""

    @property
    def tables(self) -> RowsByTable:
        """The rows of every table that the measurement filled, by the name of the table."""
        return {"results": self.rows, **self.further}

    def loaded_tables(self) -> RowsByTable:
        """`tables`, with those read that are in a file of their own; DamagedError if one of these is another by now."""
        return {
            name: [row.read() if isinstance(row, StoredChunk) else row for row in rows]
            for name, rows in self.tables.items()
        }

    @property
    def name(self) -> str:
        return self.facts["model"]

    def outdated(self) -> str | None:
        """Why the measurement is of another program, so that its numbers are not compared; else None.

        A metric that the catalogue no longer has does not matter, nor does one that was added to it later, nor an
        earlier version of its definition, which its rows say. A metric that it has had from the first and the
        measurement lacks does, and a later version of a definition.
        """
        names = {row.metric for row in self.rows}
        lacking = [name for name, metric in METRICS.items() if metric.since == FIRST and name not in names]
        if lacking:
            more = f" and {len(lacking) - 1:,} more" if len(lacking) > 1 else ""
            return f"it lacks the metric {lacking[0]}{more}"
        for row in self.rows:
            if row.metric in METRICS and row.version > (known := METRICS[row.metric].version):
                return f"its {row.metric} follows version {row.version} of the definition, not version {known}"
        return None

    def row(self, metric: str, *, split: str = "train", layer: str = "last", bin: str = "all") -> Row:
        """The row of a metric; KeyError if it was not measured."""
        key = Key(split, layer, bin, metric)
        for row in self.rows:
            if (row.split, row.layer, row.bin, row.metric) == key:
                return row
        raise KeyError(" / ".join(key))

    def to_frame(self) -> "pd.DataFrame":
        """The rows as a pandas table with the columns of results.csv."""
        return RESULTS.frame(self.rows)

    def frame(self, table: str = "results") -> "pd.DataFrame":
        """A table as a DataFrame: `result.frame("results")`; KeyError if the measurement did not fill it."""
        if table not in self.tables:
            raise KeyError(f"{table}: no table of this measurement. It has {', '.join(self.tables)}.")
        return TABLES[table].frame(self.tables[table])

    @property
    def frames(self) -> "dict[str, pd.DataFrame]":
        """Every table of the measurement as a DataFrame, by its name."""
        return {name: self.frame(name) for name in self.tables}

    @property
    def title(self) -> str:
        """What it is called beside others: the run with its checkpoint, or the model."""
        in_run = f"{self.facts['run']}, checkpoint {self.facts['checkpoint']}"
        return in_run if self.facts["in_a_run"] else self.name

    def plot(self, metric: str) -> "alt.Chart":
        """A metric as an Altair chart: from layer to layer if these were measured, else over bins of counts."""
        from collapselab.records.result_views import plot

        return plot(self.title, self.to_frame(), metric)

    def __repr__(self) -> str:
        """Short: a list of thousands of rows helps nobody."""
        return f"Result({self.name!r}: {len(self.rows):,} rows; tables {', '.join(self.tables)})"

    def _repr_html_(self) -> str:
        """In a notebook: the metrics of the last layer, each beside its null; names are escaped."""
        from collapselab.records.result_views import result_html

        return result_html(self.title, self.to_frame(), list(self.tables))

    def to_json(self) -> str:
        """One JSON document with a checksum; a number that JSON does not have (an infinite perplexity) is null."""
        return document_text(self._document({}), compact=True).rstrip("\n")

    def save(self, path: str | Path) -> None:
        """Write the JSON document, and before it each large table as Parquet beside it, each whole or not at all."""
        files: dict[str, dict[str, str]] = {}
        large = {name: table for name, table in TABLES.items() if isinstance(table, ColumnTable)}
        for name, table in large.items():
            if name in self.further:
                beside = table_path(path, name)
                files[name] = {"file": beside.name, "sha256": table.write(beside, self.further[name])}
        write_document(path, self._document(files), compact=True)
        for name in large.keys() - files.keys():
            table_path(path, name).unlink(missing_ok=True)  # of the measurement that this one replaces

    @classmethod
    def load(cls, path: str | Path) -> "Result":
        """Read what `save` wrote; DamagedError if it was changed since, or is something else."""
        path = Path(path)
        status = path.stat()
        stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
        if path not in _loaded or _loaded[path][0] != stamp:  # a suite's status asks for the same files again and again
            _loaded[path] = (stamp, cls.of_document(read_document(path, unchecked=True), path))
        return _loaded[path][1]

    @classmethod
    def of_document(cls, document: dict[str, JsonValue], path: Path) -> "Result":
        """The result that a JSON document holds, which was read from this file."""
        try:
            stored = _STORED.validate_python(document)
            further = {
                name: _stored_rows(name, rows, path)
                for name, rows in stored.get("tables", {}).items()
                if name in TABLES  # a later version may have more
            }
            return cls([_stored_row(cells) for cells in stored["rows"]], stored["facts"], further)
        except (ValueError, TypeError) as error:
            what = first_error(error) if isinstance(error, ValueError) else error
            raise DamagedError(f"{path}: not a measurement ({what}). Delete it and measure again.") from error

    def _document(self, files: dict[str, dict[str, str]]) -> dict[str, JsonValue]:
        """`files` are the tables that have a file of their own."""
        document = {"format": 2, "facts": _as_json(self.facts), "rows": _as_json([asdict(row) for row in self.rows])}
        if self.further:
            document["tables"] = {
                name: _as_json(files.get(name) or [dict(TABLES[name].cells(row)) for row in rows])
                for name, rows in self.further.items()
            }
        return document


class _Stored(TypedDict):
    """The document of a result; the cells of a row are checked by the row itself."""

    facts: Facts
    rows: list[dict[str, JsonValue]]
    tables: NotRequired[dict[str, list[dict[str, JsonValue]] | dict[str, str]]]
    """Rows, or columns of a part of the rows; or the file beside that has them, and its sha256."""


def _stored_row(cells: dict[str, JsonValue]) -> Row:
    """A row of a document, which has every cell: only a row that is made by hand takes the usual ones."""
    lacking = [name for name in RESULTS.columns if name not in cells]
    if lacking:
        raise ValueError(f"a row without {lacking[0]}")
    return RESULTS.row(**RESULTS.upgraded(cells))


def _stored_rows(name: str, rows: list[dict[str, JsonValue]] | dict[str, str], document: Path) -> list[Any]:
    table = TABLES[name]
    if not isinstance(table, ColumnTable):
        if isinstance(rows, dict):
            raise ValueError(f"tables.{name}: rows are needed.")
        return [table.row(**cells) for cells in rows]
    if isinstance(rows, list):
        return [table.chunk(columns) for columns in rows]
    if Path(rows["file"]).name != rows["file"]:
        raise ValueError(f"tables.{name}: {shown(rows['file'])} is not the name of a file beside it")
    return [StoredChunk(table, document.with_name(rows["file"]), rows["sha256"])]


_STORED: TypeAdapter[_Stored] = TypeAdapter(_Stored)
_loaded: dict[Path, tuple[tuple[int, int, int], Result]] = {}


@final
@dataclass(frozen=True, repr=False)
class Results:
    """Several models side by side, and those that could not be measured with the reason.

    >>> from collapselab import load_results
    >>> results = load_results("runs/small")
    >>> [result.facts["checkpoint"] for result in results]
    ['0', '1']
    >>> results.plot("cdnv").to_dict()["title"]
    'cdnv'
    """

    results: list[Result]
    failures: dict[str, str] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Result]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)

    def __getitem__(self, index: int) -> Result:
        return self.results[index]

    @property
    def rows(self) -> list[Row]:
        return [row for result in self.results for row in result.rows]

    def initial(self, result: Result) -> Result | None:
        """The measurement of the same run at its initialisation."""
        run = result.facts["run"]
        same_run = (other for other in self.results if other.facts["run"] == run and other.facts["checkpoint"] == "0")
        return next((other for other in same_run if other is not result), None) if result.facts["in_a_run"] else None

    def to_frame(self) -> "pd.DataFrame":
        """The rows of all models as one pandas table."""
        return RESULTS.frame(self.rows)

    @property
    def frames(self) -> "dict[str, pd.DataFrame]":
        """Every table of all models as a DataFrame, by its name."""
        rows: RowsByTable = {}
        for result in self.results:
            for name, own in result.tables.items():
                rows.setdefault(name, []).extend(own)
        return {name: TABLES[name].frame(all_rows) for name, all_rows in rows.items()}

    def plot(self, metric: str) -> "alt.Chart":
        """A metric of all models as an Altair chart: from layer to layer, or beside each other."""
        from collapselab.records.result_views import plot_several

        return plot_several([(result.title, result.to_frame()) for result in self.results], metric)

    def __repr__(self) -> str:
        titles = [repr(result.title) for result in self.results]
        listed = f": {', '.join(titles[:3])}" if titles else ""
        listed += f" and {len(titles) - 3:,} more" if len(titles) > 3 else ""
        failed = f"; {len(self.failures):,} failed" if self.failures else ""
        return f"Results({len(titles):,} measured{listed}{failed})"

    def _repr_html_(self) -> str:
        """In a notebook: a row for each metric of the last layer, a column for each model; names are escaped."""
        from collapselab.records.result_views import results_html

        return results_html([(result.title, result.to_frame()) for result in self.results], self.failures)

    def to_json(self) -> str:
        """One JSON document with all results and a checksum; each result has one of its own too."""
        results = [json.loads(result.to_json()) for result in self.results]
        whole = {"format": 2, "results": results, "failures": self.failures}
        return document_text(whole, compact=True).rstrip("\n")


def joined(parts: Sequence[Result | Results]) -> Results:
    """Several results, or lists of them, as one."""
    several = [part if isinstance(part, Results) else Results([part]) for part in parts]
    failures = {name: why for part in several for name, why in part.failures.items()}
    return Results([result for part in several for result in part], failures)


def check_suffix(path: str | Path) -> None:
    """ConfigError unless the file's name says what to write."""
    if Path(path).suffix not in SUFFIXES:
        raise ConfigError(
            f"{path}: ends with {Path(path).suffix!r}; {', '.join(SUFFIXES)} can be written. A folder ends with /."
        )


def write(path: str | Path, measured: Result | Results) -> None:
    """Write rows as .csv or .parquet with the facts in a file beside it, or both as .json; whole or not at all.

    Tables of many rows have a file of their own beside it; in the JSON of several models they are inside.
    """
    check_suffix(path)
    path = Path(path)
    if path.suffix == ".json" and isinstance(measured, Result):
        measured.save(path)
        return
    if path.suffix == ".csv":
        RESULTS.write(path, measured.rows)
    else:
        with written_whole(path) as temporary:
            if path.suffix == ".json":
                temporary.write_text(measured.to_json() + "\n")
            else:
                measured.to_frame().to_parquet(temporary, index=False)
    if path.suffix != ".json":
        write_document(facts_path(path), _facts_document(path, measured))
        _write_large_tables(path, measured)


def _write_large_tables(path: Path, measured: Result | Results) -> None:
    """Each table that is stored as Parquet, of all models, in a file of its own beside the rows."""
    several = measured if isinstance(measured, Results) else Results([measured])
    for name, table in TABLES.items():
        chunks = [chunk for result in several for chunk in result.further.get(name, [])]
        if chunks and isinstance(table, ColumnTable):
            table.write(table_path(path, name), chunks)


def table_path(path: str | Path, name: str) -> Path:
    """The file of a large table that belongs to a measurement: `1.classes.parquet` beside `1.json`."""
    return Path(path).with_suffix(f".{TABLES[name].file}")


def facts_path(path: str | Path) -> Path:
    """The file of the facts that belong to a table: `results.facts.json` beside `results.csv`."""
    return Path(path).with_suffix(".facts.json")


def _facts_document(path: Path, measured: Result | Results) -> dict[str, JsonValue]:
    """The facts of all models of a table, and the hash of the table that they belong to."""
    several = measured if isinstance(measured, Results) else Results([measured])
    return {
        "format": 2,
        "table": {"name": path.name, "sha256": sha256(path)},
        "facts": _as_json([result.facts for result in several]),
        "failures": _as_json(several.failures),
    }


def _as_json(value: object) -> JsonValue:
    """The same as JSON has it: lists for all sequences, None for a number that is not finite."""
    if isinstance(value, dict):
        return {str(key): _as_json(entry) for key, entry in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_as_json(entry) for entry in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    assert isinstance(value, str | int | None), f"{type(value).__name__} cannot be written as JSON"
    return value
