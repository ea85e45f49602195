"""Finished measurements: rows in long form, the facts needed to interpret them, and reading and writing both.

A notebook shows a `Result` as a table, and one of its metrics as a chart that contains its data.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NotRequired

from pydantic import JsonValue, TypeAdapter
from pydantic_core import to_jsonable_python
from typing_extensions import TypedDict  # that of typing only from Python 3.12 on

from collapselab.core.catalogue import FIRST, METRICS
from collapselab.disk import (
    document_text,
    first_error,
    read_document,
    sha256,
    with_checksum,
    write_document,
    written_whole,
)
from collapselab.errors import ConfigError, DamagedError, did_you_mean
from collapselab.records.facts import Facts
from collapselab.records.table import ColumnTable, StoredChunk, shown
from collapselab.records.tables import RESULTS, TABLES, Row, RowsByTable, bin_start

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

SUFFIXES = (".csv", ".json", ".parquet")
"""Suffixes of files that results can be written to."""
WIDTH, HEIGHT = 360, 220
MOST_COLUMNS = 8
"""Models that a notebook shows side by side; the frame has all of them."""


class Key(NamedTuple):
    """What a value describes: `Key("train", "last", "all", "cdnv")`."""

    split: str
    layer: str
    bin: str
    metric: str

    @property
    def name(self) -> str:
        """The name of the key in the facts of a result."""
        return "/".join(self)


@dataclass(frozen=True, repr=False)
class Result:
    """The rows of one model and the facts about them: hashes, options, counts, dtype, versions, scores and seconds.

    >>> from collapselab import load_results
    >>> result = load_results("runs/small")[-1]  # the last checkpoint
    >>> result.row("cdnv").value < result.row("cdnv").null  # classes are tighter than with shuffled labels
    True
    >>> result.frames["results"].columns[:3].tolist()
    ['run', 'checkpoint', 'split']
    >>> result.plot("cdnv").to_dict()["title"]
    'small, checkpoint 1'

    A notebook shows it as a table, and `result.plot("cdnv")` as a chart.
    """

    rows: list[Row]
    facts: Facts
    further: RowsByTable = field(default_factory=dict)
    """The rows of further tables, by their names in `TABLES`."""

    @property
    def tables(self) -> RowsByTable:
        """The rows of every table of the measurement, by the name of the table."""
        return {"results": self.rows, **self.further}

    def loaded_tables(self) -> RowsByTable:
        """Return `tables`, including those stored in a separate file; DamagedError if such a file has changed."""
        return {
            name: [row.read() if isinstance(row, StoredChunk) else row for row in rows]
            for name, rows in self.tables.items()
        }

    @property
    def name(self) -> str:
        return self.facts["model"]

    def outdated(self) -> str | None:
        """Return why the values cannot be compared with those of this program; None if they can.

        The measurement must have every metric of the first catalogue, and no later version of a definition than this
        program has. Metrics that were removed or added, and earlier versions of a definition, do not matter.
        """
        names = {row.metric for row in self.rows}
        lacking = [name for name, metric in METRICS.items() if metric.since == FIRST and name not in names]
        if lacking:
            return f"it lacks the metric {lacking[0]}"
        for row in self.rows:
            if row.metric in METRICS and row.version > (known := METRICS[row.metric].version):
                return f"its {row.metric} follows version {row.version} of the definition, not version {known}"
        return None

    def row(self, metric: str, *, split: str = "train", layer: str = "last", bin: str = "all") -> Row:
        """Return the row of a metric; KeyError if it was not measured."""
        key = Key(split, layer, bin, metric)
        found = next((row for row in self.rows if (row.split, row.layer, row.bin, row.metric) == key), None)
        if found is None:
            raise KeyError(f"{' / '.join(key)}: no such row. {did_you_mean(metric, {row.metric for row in self.rows})}")
        return found

    def frame(self, table: str = "results") -> "pd.DataFrame":
        """Return a table as a DataFrame; KeyError if the measurement does not have it."""
        if table not in self.tables:
            raise KeyError(f"{table}: no such table. This measurement has {', '.join(self.tables)}.")
        return TABLES[table].frame(self.tables[table])

    @property
    def frames(self) -> "dict[str, pd.DataFrame]":
        """Every table of the measurement as a DataFrame, by its name."""
        return {name: self.frame(name) for name in self.tables}

    @property
    def title(self) -> str:
        """A name among several results: the run with its checkpoint, or the model."""
        in_run = f"{self.facts['run']}, checkpoint {self.facts['checkpoint']}"
        return in_run if self.facts["in_a_run"] else self.name

    def plot(self, metric: str) -> "alt.Chart":
        """Return an Altair chart of a metric: over layers if several were measured, else over bins of class counts."""
        return _chart([self], metric).properties(title=self.title)

    def show(self) -> Path:
        """Show the page of this model in the notebook, or in a browser, and return its path."""
        shown: Path = import_module("collapselab.report.report").show(self)  # a higher layer than this one
        return shown

    @property
    def summary(self) -> str:
        """Seven lines: the headline metric of each property between null and ideal, with an explanation."""
        text: str = import_module("collapselab.measurement.show").summary_text(self)  # a higher layer than this one
        return text

    def __repr__(self) -> str:
        """Return one line instead of thousands of rows."""
        return f"Result({self.name!r}: {len(self.rows):,} rows; tables {', '.join(self.tables)})"

    def _repr_html_(self) -> str:
        """Return a table for a notebook: every metric of the last layer with its null."""
        table = _html(_last_layer(self)[["metric", "value", "null", "classes", "tokens"]])
        return f"<p><b>{escape(self.title)}</b></p>{table}<p>tables: {escape(', '.join(self.tables))}</p>"

    def to_json(self) -> str:
        """Return one JSON document with a checksum; an infinite value, such as a perplexity, becomes null."""
        return document_text(self.document(), compact=True, sort_keys=True).rstrip("\n")

    def save(self, path: str | Path) -> None:
        """Write large tables as Parquet files beside the JSON document, then the document, each atomically."""
        files: dict[str, dict[str, str]] = {}
        large = {name: table for name, table in TABLES.items() if isinstance(table, ColumnTable)}
        for name in large.keys() & self.further.keys():
            beside = table_path(path, name)
            files[name] = {"file": beside.name, "sha256": large[name].write(beside, self.further[name])}
        write_document(path, self.document(files), compact=True)
        for name in large.keys() - files.keys():
            table_path(path, name).unlink(missing_ok=True)  # left by the measurement that this one replaces

    @classmethod
    def load(cls, path: str | Path) -> "Result":
        """Read a file written by `save`; DamagedError if it has changed or is something else."""
        path = Path(path)
        status = path.stat()
        stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
        if path not in _loaded or _loaded[path][0] != stamp:  # the status of a suite reads the same files repeatedly
            _loaded[path] = (stamp, cls.of_document(read_document(path, unchecked=True), path))
        return _loaded[path][1]

    @classmethod
    def of_document(cls, document: dict[str, JsonValue], path: Path) -> "Result":
        """Return the result in a JSON document that was read from this file."""
        try:
            stored = _STORED.validate_python(document)
            further = {
                name: _stored_rows(name, rows, path)
                for name, rows in stored.get("tables", {}).items()
                if name in TABLES  # a later version may have more
            }
            # Stored rows have every cell; the defaults of Row are for rows made by hand.
            lacking = [name for cells in stored["rows"] for name in RESULTS.columns if name not in cells]
            if lacking:
                raise ValueError(f"a row without {lacking[0]}")
            rows = [RESULTS.row(**RESULTS.upgraded(cells)) for cells in stored["rows"]]
            return cls(rows, stored["facts"], further)
        except (ValueError, TypeError, ArithmeticError) as error:  # a number that no column can hold
            what = first_error(error) if isinstance(error, ValueError) else error
            raise DamagedError(f"{path}: not a measurement ({what}). Delete it and measure again.") from error

    def document(self, files: dict[str, dict[str, str]] | None = None) -> dict[str, JsonValue]:
        """Return the result as JSON without a checksum; `files` lists the tables that are stored separately.

        Infinite and undefined numbers become null.
        """
        further: dict[str, object] = dict(files or {})
        for name in self.further.keys() - further.keys():
            table, rows = TABLES[name], self.further[name]
            # A large table is stored in one piece, however many chunks it was measured in.
            pieces = [table.whole(rows)] if isinstance(table, ColumnTable) else rows
            further[name] = [table.cells(piece) for piece in pieces]
        document = {"format": 2, "facts": self.facts, "rows": [RESULTS.cells(row) for row in self.rows]}
        if further:
            document["tables"] = {name: further[name] for name in self.further}
        plain: dict[str, JsonValue] = to_jsonable_python(document, inf_nan_mode="null")
        return plain


class _Stored(TypedDict):
    """The document of a result; cells are validated later, by the class of the row."""

    facts: Facts
    rows: list[dict[str, JsonValue]]
    tables: NotRequired[dict[str, list[dict[str, JsonValue]] | dict[str, str]]]
    """Rows, chunks of columns, or the name and sha256 of a file beside the document."""


def _stored_rows(name: str, rows: list[dict[str, JsonValue]] | dict[str, str], document: Path) -> list[Any]:
    table = TABLES[name]
    if not isinstance(table, ColumnTable):
        if isinstance(rows, dict):
            raise ValueError(f"tables.{name} must be a list of rows.")
        return [table.row(**cells) for cells in rows]
    if isinstance(rows, list):
        chunks = [table.chunk(columns) for columns in rows]
        table.check(table.whole(chunks), document)
        return chunks
    if Path(rows["file"]).name != rows["file"]:
        raise ValueError(f"tables.{name}: {shown(rows['file'])} is not the name of a file in the same folder")
    return [StoredChunk(table, document.with_name(rows["file"]), rows["sha256"])]


_STORED: TypeAdapter[_Stored] = TypeAdapter(_Stored)
_loaded: dict[Path, tuple[tuple[int, int, int], Result]] = {}


@dataclass(frozen=True, repr=False)
class Results:
    """The results of several models, and the reasons why others could not be measured.

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
        """Return the measurement of the same run at initialisation, if it is here."""
        run = result.facts["run"]
        same_run = (other for other in self.results if other.facts["run"] == run and other.facts["checkpoint"] == "0")
        return next((other for other in same_run if other is not result), None) if result.facts["in_a_run"] else None

    def frame(self) -> "pd.DataFrame":
        """Return the rows of all models as one DataFrame."""
        return RESULTS.frame(self.rows)

    @property
    def frames(self) -> "dict[str, pd.DataFrame]":
        """Every table of all models as a DataFrame, by its name."""
        rows: RowsByTable = {}
        for name, own in (table for result in self.results for table in result.tables.items()):
            rows.setdefault(name, []).extend(own)
        return {name: TABLES[name].frame(all_rows) for name, all_rows in rows.items()}

    def plot(self, metric: str) -> "alt.Chart":
        """Return an Altair chart of a metric of all models: over layers, or side by side."""
        return _chart(self.results, metric, several=True).properties(title=metric)

    def __repr__(self) -> str:
        titles = [repr(result.title) for result in self.results]
        listed = f": {', '.join(titles[:3])}" if titles else ""
        listed += f" and {len(titles) - 3:,} more" if len(titles) > 3 else ""
        failed = f"; {len(self.failures):,} failed" if self.failures else ""
        return f"Results({len(titles):,} measured{listed}{failed})"

    def _repr_html_(self) -> str:
        """Return a table for a notebook: one column per model, followed by the failures."""
        import pandas as pd

        shown = self.results[:MOST_COLUMNS]
        columns = [_last_layer(result).set_index("metric")["value"].rename(result.title) for result in shown]
        parts = [_html(pd.concat(columns, axis=1).rename_axis("metric").reset_index())] if columns else []
        if left := len(self.results) - len(shown):
            parts.append(f"<p>and {left:,} more: <code>frame()</code> has them all.</p>")
        parts += [f"<p><b>{escape(name)}</b>: {escape(why)}</p>" for name, why in self.failures.items()]
        return "".join(parts) or "<p>nothing was measured.</p>"

    def to_json(self) -> str:
        """Return one JSON document with a checksum that contains all results, each with its own checksum."""
        results = [with_checksum(result.document()) for result in self.results]
        return document_text(
            {"format": 2, "results": results, "failures": self.failures}, compact=True, sort_keys=True
        ).rstrip("\n")


def check_suffix(path: str | Path) -> None:
    """Raise ConfigError unless the suffix of the file names a known format."""
    if Path(path).suffix not in SUFFIXES:
        raise ConfigError(
            f"{path}: the suffix must be one of {', '.join(SUFFIXES)}, got {Path(path).suffix!r}. End a folder with /."
        )


def write(path: str | Path, measured: Result | Results) -> None:
    """Write rows as .csv or .parquet with the facts in a second file, or both as .json; each file atomically.

    Large tables are written as separate Parquet files; the JSON of several models contains them.
    """
    check_suffix(path)
    path = Path(path)
    if path.suffix == ".json" and isinstance(measured, Result):
        measured.save(path)
        return
    several = measured if isinstance(measured, Results) else Results([measured])
    if path.suffix == ".csv":
        RESULTS.write(path, several.rows)
    else:
        with written_whole(path) as temporary:
            if path.suffix == ".json":
                temporary.write_text(several.to_json() + "\n")
                return
            several.frame().to_parquet(temporary, index=False)
    facts = to_jsonable_python([result.facts for result in several], inf_nan_mode="null")
    table = {"name": path.name, "sha256": sha256(path)}
    write_document(facts_path(path), {"format": 2, "table": table, "facts": facts, "failures": several.failures})
    for name, large in TABLES.items():
        chunks = [chunk for result in several for chunk in result.further.get(name, [])]
        if chunks and isinstance(large, ColumnTable):
            large.write(table_path(path, name), chunks)


def table_path(path: str | Path, name: str) -> Path:
    """Return the file of a large table that belongs to a measurement: `1.classes.parquet` beside `1.json`."""
    return Path(path).with_suffix(f".{TABLES[name].file}")


def facts_path(path: str | Path) -> Path:
    """Return the file of the facts that belong to a table: `results.facts.json` beside `results.csv`."""
    return Path(path).with_suffix(".facts.json")


def _chart(results: Sequence[Result], metric: str, *, several: bool = False) -> "alt.Chart":
    """Return a chart of a metric over layers if several were measured, else over bins of one model, else by model.

    KeyError, with the most similar name, for a metric without a value.
    """
    import altair as alt
    import pandas as pd

    frames = [result.frame().assign(model=result.title) for result in results]
    frame = pd.concat(frames, ignore_index=True) if frames else RESULTS.frame([]).assign(model="")
    rows = frame[(frame["metric"] == metric) & (frame["split"] == "train") & frame["value"].notna()]
    if rows.empty:
        hint = did_you_mean(metric, () if metric in METRICS else METRICS)
        raise KeyError(f"{metric}: no such metric has a value. {hint}".rstrip())
    layers, bins = rows[rows["bin"] == "all"], rows[rows["bin"] != "all"]
    if layers["layer"].nunique() > 1:
        rows, place, title = layers, "layer", "layer"
        order = [*sorted(set(rows["layer"]) - {"last"}, key=int), "last"]
    elif not several and len(bins):
        rows, place, title, order = bins, "bin", "samples of the class", sorted(bins["bin"], key=bin_start)
    else:
        rows, place, title, order = layers, "model", "model", list(dict.fromkeys(layers["model"]))
    names = list(dict.fromkeys(["model", place]))
    long = rows.melt(id_vars=names, value_vars=["value", "null"], var_name="labels", value_name=metric).dropna()
    long = long.assign(labels=long["labels"].map({"value": "as they are", "null": "shuffled"}))
    # A null that is a hundred times larger would press all other values onto a linear axis.
    logarithmic = metric in METRICS and METRICS[metric].transform == "log" and bool((long[metric] > 0).all())
    colour, dash = alt.Color("labels:N", title="labels"), alt.StrokeDash("labels:N", legend=None)
    if several:
        whole_names = alt.Legend(title="model", labelLimit=0)  # names of checkpoints differ at their end
        colour = alt.Color("model:N", sort=list(dict.fromkeys(rows["model"])), legend=whole_names)
        dash = alt.StrokeDash("labels:N", legend=alt.Legend(title="labels", symbolType="stroke"))
    chart: alt.Chart = alt.Chart(long).mark_line(point=True)
    return chart.encode(
        x=alt.X(f"{place}:N", sort=order, title=title, axis=alt.Axis(labelAngle=0, labelLimit=0)),
        y=alt.Y(f"{metric}:Q", scale=alt.Scale(type="log") if logarithmic else alt.Scale(zero=False)),
        color=colour,
        strokeDash=dash,
        tooltip=[*(f"{name}:N" for name in names), "labels:N", f"{metric}:Q"],
    ).properties(width=WIDTH, height=HEIGHT)


def _last_layer(result: Result) -> "pd.DataFrame":
    frame = result.frame()
    return frame[(frame["layer"] == "last") & (frame["bin"] == "all") & (frame["split"] == "train")]


def _html(table: "pd.DataFrame") -> str:
    return table.to_html(index=False, float_format="{:.4g}".format, na_rep="–", border=0)
