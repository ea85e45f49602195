"""An analysis, and how it is kept: a table for every statement, and `summary.json` that says what they were made from.

The summary is written last and holds the sha256 of the tables that were analysed, of each table that came out, and the
version of the program. An analysis of which any of that has changed is never shown: it is made again.
"""

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache
from html import escape
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, final, get_type_hints

from pydantic import JsonValue

from collapselab import __version__
from collapselab.analysis.arms import registered_in
from collapselab.analysis.regime import Regime
from collapselab.analysis.statements import STATEMENTS
from collapselab.analysis.verdict import TableRow
from collapselab.analysis.words import Sentence
from collapselab.disk import Record, read_bytes, read_document, write_bytes
from collapselab.errors import ConfigError, DamagedError, RunError
from collapselab.records.scores import STORED
from collapselab.records.table import Cell, parse_table, shown, table_bytes
from collapselab.records.tables import RowsByTable, StoredTables

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd
    from _typeshed import DataclassInstance

    from collapselab.analysis.attribution import Attributed
    from collapselab.analysis.controls import Control
    from collapselab.analysis.diagnosis import Finding
    from collapselab.analysis.doses import Response
    from collapselab.analysis.effects import Effect
    from collapselab.analysis.relate import Relation
    from collapselab.analysis.trends import Trend

SCORES = "scores"
"""The topic of sentences about scores that the user brought."""
SUMMARY = "summary.json"
PERMUTATIONS = (99, 10_000_000)
"""Fewer could not reach 0.05 after any correction; more would take days."""
DRAWN = {
    "relate": ("r", "correlation with the outcome", "metric", "subset"),
    "effects": ("effect", "outcome minus that of the control", "label", "metric"),
}
"""Tables that can be drawn: the column of estimates, its title, the column of lines, and that of panels."""
COLOURS = {
    "as predicted": "#00694e",
    "opposite direction": "#a83c00",
    "no direction predicted": "#7a5b00",
    "not shown": "#59636e",
    "description": "#0b61a4",
    "too few runs": "#9aa4ae",
}
"""Colours that colour-blind readers can distinguish, by the code of the verdict."""


@final
@dataclass(frozen=True)
class Request:
    """What an analysis is asked for, checked."""

    outcome: str = "val_loss"
    permutations: int = 10_000
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least, most in (("permutations", *PERMUTATIONS), ("seed", 0, math.inf)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
                raise ConfigError(f"{name} must be a whole number from {least:,} to {most:,}, got {shown(value)}.")
        if not isinstance(self.outcome, str):
            raise ConfigError(f"outcome must be a name such as val_loss, got {shown(self.outcome)}.")


class SummaryRecord(Record):
    """summary.json: the request, hashes of what was analysed and of what was written, and the sentences."""

    program: str
    """Version of collapselab, and a hash of its source."""
    files: dict[str, str]
    """The sha256 of each table beside it."""
    directory: str
    """What was analysed."""
    outcome: str
    """What the metrics are related to."""
    models: int
    """How many trained checkpoints."""
    permutations: int
    """Of each test."""
    seed: int
    """Of permutations and resamples."""
    tables: dict[str, str]
    """The sha256 of the tables that were analysed."""
    sentences: list[dict[str, str]]
    """Each has a `topic`, the `table` it comes from, and a `text`."""
    registered: str | None = None
    """Hash of what was registered before the first run, as in suite.json; empty where nothing was."""
    scores: str | None = None
    """The sha256 of scores.csv, the scores that the user brought; empty where there are none."""


@final
@dataclass(frozen=True, repr=False)
class Analysis:
    """All that `analyze` found; `to_json()` is the whole of it, `frames` has each table as a DataFrame.

    >>> from collapselab import analyze
    >>> analysis = analyze("suites/tiny", permutations=99)
    >>> repr(analysis).partition(",")[0]
    "Analysis('suites/tiny': val_loss"
    >>> len(analysis.sentences) > 1
    True
    >>> analysis.frames["relate"].columns[:3].tolist()
    ['subset', 'metric', 'outcome']

    In a notebook it is its sentences, and `analysis.plot()` a chart of the correlations.
    """

    directory: Path
    outcome: str
    permutations: int
    seed: int
    models: int
    tables: RowsByTable
    """The rows of each table by its name: `relate`, `controls`, …"""
    sentences: list[Sentence]
    sources: dict[str, str]
    """sha256 of `runs.csv` and `results.csv`."""
    registered: str | None = None
    """Hash of what was registered before the first run."""
    scores: str | None = None
    """sha256 of the user's own scores."""

    def to_json(self) -> dict[str, JsonValue]:
        """The summary and every table, ready for `json.dumps`."""
        return self.summary | {name: [{**_cells(row)} for row in rows] for name, rows in self.tables.items()}

    @property
    def summary(self) -> dict[str, JsonValue]:
        """What `summary.json` says: the request, the tables that were analysed, and the sentences."""
        return self._record({}).model_dump(exclude={"format", "program", "files"})

    @property
    def frames(self) -> dict[str, "pd.DataFrame"]:
        """Every table as a DataFrame, by its name."""
        import pandas as pd

        return {
            name: pd.DataFrame([_cells(row) for row in rows], columns=_columns(STATEMENTS[name].row))
            for name, rows in self.tables.items()
        }

    def plot(self, table: str = "relate") -> "alt.FacetChart":
        """The table `relate` (correlations) or `effects` (of arms) as a chart.

        Each metric with its 95 % interval, coloured by the verdict. KeyError for a table that cannot be drawn.
        """
        import altair as alt

        if table not in DRAWN:
            raise KeyError(f"{table}: not a table that can be drawn. There are {', '.join(DRAWN)}.")
        value, title, line, panel = DRAWN[table]
        rows = self.frames[table]
        rows = rows[rows[value].notna() & (rows["role"].eq("outcome") if table == "effects" else True)]
        if rows.empty:
            raise KeyError(f"{table}: no row of it has a number. The sentences say why: analysis.sentences.")
        shown = rows[[value, panel, line, "low", "high"]].set_axis(["estimate", "panel", "line", "low", "high"], axis=1)
        shown = shown.assign(judged=[str(code) if isinstance(code, str) else "none" for code in rows["verdict"]])
        shown = shown.drop_duplicates(["panel", "line"], keep="last")  # a metric on two scales is judged on the last
        others = sorted(set(shown["judged"]) - COLOURS.keys())
        scale = alt.Scale(domain=[*COLOURS, *others], range=[*COLOURS.values(), *["#7d8790"] * len(others)])
        base = alt.Chart(shown).encode(
            y=alt.Y("line:N", sort=list(dict.fromkeys(shown["line"])), title=None),
            color=alt.Color("judged:N", scale=scale, title="verdict"),
        )
        intervals = base.mark_rule().encode(x=alt.X("low:Q", title=title), x2="high:Q")
        tooltip = ["line:N", "estimate:Q", "low:Q", "high:Q", "judged:N"]
        points = base.mark_point(filled=True, size=45).encode(x=alt.X("estimate:Q"), tooltip=tooltip)
        layered = alt.layer(intervals, points).properties(width=320, height=alt.Step(16))
        panels: alt.FacetChart = layered.facet(column=alt.Column("panel:N", title=None))
        return panels.properties(title=f"{table}: {self.outcome}")

    def __repr__(self) -> str:
        return f"Analysis({str(self.directory)!r}: {self.outcome}, {self.models:,} models; {len(self.tables)} tables)"

    def _repr_html_(self) -> str:
        """In a notebook: the sentences of the summary by topic, escaped, and the size of every table."""
        parts = [f"<p><b>{escape(f'{self.directory}: {self.outcome}, {self.models:,} models')}</b></p>"]
        for topic, of_topic in groupby(self.sentences, key=lambda sentence: sentence.topic):
            items = "".join(f"<li>{escape(sentence.text)}</li>" for sentence in of_topic)
            parts.append(f"<p><i>{escape(topic)}</i></p><ul>{items}</ul>")
        tables = ", ".join(f"{name} ({len(rows):,})" for name, rows in self.tables.items())
        return "".join([*parts, f"<p>tables: {tables}</p>"])

    @property
    def relations(self) -> "Sequence[Relation]":
        return self.tables["relate"]

    @property
    def controls(self) -> "Sequence[Control]":
        return self.tables["controls"]

    @property
    def trends(self) -> "Sequence[Trend]":
        return self.tables["trends"]

    @property
    def effects(self) -> "Sequence[Effect]":
        return self.tables["effects"]

    @property
    def responses(self) -> "Sequence[Response]":
        return self.tables["doses"]

    @property
    def attribution(self) -> "Sequence[Attributed]":
        return self.tables["attribution"]

    @property
    def findings(self) -> "Sequence[Finding]":
        return self.tables["diagnosis"]

    def contents(self) -> dict[str, bytes]:
        """The bytes of each table's file, by its name."""
        return {
            f"{name}.csv": table_bytes(_columns(STATEMENTS[name].row), (_cells(row).values() for row in rows))
            for name, rows in self.tables.items()
        }

    def write(self, folder: Path) -> None:
        """Write the tables, and then the summary: what an interrupted write leaves behind does not fit the summary."""
        contents = self.contents()
        for name, content in contents.items():
            write_bytes(folder / name, content)
        self._record(contents).write(folder / SUMMARY)

    def _record(self, contents: dict[str, bytes]) -> SummaryRecord:
        return SummaryRecord(
            program=program_version(),
            files=_hashes(contents),
            directory=str(self.directory),
            outcome=self.outcome,
            models=self.models,
            permutations=self.permutations,
            seed=self.seed,
            tables=self.sources,
            sentences=[asdict(row) for row in self.sentences],
            registered=self.registered,
            scores=self.scores,
        )


def read_analysis(directory: Path, tables: StoredTables) -> Analysis | None:
    """The analysis of these tables that is in the folder; None where there is none, or where anything has changed."""
    folder, summary = directory / "analysis", _last_summary(directory)
    if summary is None:
        return None
    try:
        contents = {f"{name}.csv": read_bytes(folder / f"{name}.csv") for name in STATEMENTS}
    except (FileNotFoundError, DamagedError, RunError):
        return None
    scores = scores_hash(stored_scores(directory))
    made_from = (program_version(), tables.hashes, _hashes(contents), registered_in(directory).hash, scores)
    if (summary.program, summary.tables, summary.files, summary.registered, summary.scores) != made_from:
        return None
    rows: RowsByTable = {
        name: _parsed(contents[f"{name}.csv"], folder / f"{name}.csv", statement.row)
        for name, statement in STATEMENTS.items()
    }
    sentences = [Sentence(**sentence) for sentence in summary.sentences]
    request = (summary.outcome, summary.permutations, summary.seed)
    hashes = (tables.hashes, summary.registered, summary.scores)
    return Analysis(directory, *request, summary.models, rows, sentences, *hashes)


def score_sentences(directory: Path, scores: bytes | None) -> list[Sentence]:
    """What the last analysis said of joining these scores: the names that matched nothing are kept nowhere else."""
    summary = _last_summary(directory)
    if summary is None or scores is None or summary.scores != scores_hash(scores):
        return []
    return [Sentence(**sentence) for sentence in summary.sentences if sentence["topic"] == SCORES]


def stored_scores(directory: Path) -> bytes | None:
    """The scores that the user brought to an analysis of this folder; None where there are none.

    DamagedError where they are not those that the last analysis had: nothing else says what they were.
    """
    path, summary = directory / "analysis" / STORED, _last_summary(directory)
    if not path.is_file():
        return None
    content = read_bytes(path)
    if summary is not None and summary.scores not in (None, scores_hash(content)):
        raise DamagedError(
            f"{path}: not the scores that were analysed last. Run `collapselab analyze {directory} --scores FILE` "
            "again; or delete it, to go on without scores."
        )
    return content


def _last_summary(directory: Path) -> SummaryRecord | None:
    path = directory / "analysis" / SUMMARY
    try:
        return SummaryRecord.parsed(read_document(path), path)
    except (FileNotFoundError, DamagedError, RunError):
        return None


def scores_hash(stored: bytes | None) -> str | None:
    return None if stored is None else hashlib.sha256(stored).hexdigest()


def last_request(directory: Path, *, outcome: str = "val_loss") -> Request:
    """What the analysis in the folder was asked for, by this version or an earlier one; else this outcome."""
    path = directory / "analysis" / SUMMARY
    again = "Run `collapselab analyze` again, with the options that you want."
    try:
        summary = read_document(path, unchecked=True)
        request: Callable[..., Request] = Request  # which checks the types of its values itself
        return request(*(summary[field.name] for field in fields(Request)))
    except FileNotFoundError:
        return Request(outcome)
    except KeyError as error:
        raise DamagedError(f"{path}: no {error.args[0]} in it. {again}") from error
    except (DamagedError, ConfigError) as error:
        where = "" if isinstance(error, DamagedError) else f"{path}: "
        raise DamagedError(f"{where}{error} {again}") from error


@cache
def program_version() -> str:
    """The version of collapselab, and a hash of its source: both change what an analysis or a page holds."""
    digest = hashlib.sha256()
    for name, content in sorted(_source(files("collapselab"), "")):
        digest.update(name.encode() + b"\0" + hashlib.sha256(content).digest())
    return f"{__version__}+{digest.hexdigest()[:12]}"


def _source(folder: Traversable, prefix: str) -> list[tuple[str, bytes]]:
    contents = []
    for entry in folder.iterdir():
        if entry.is_dir() and entry.name != "__pycache__":
            contents += _source(entry, f"{prefix}{entry.name}/")
        elif entry.is_file():
            contents.append((prefix + entry.name, entry.read_bytes()))
    return contents


def _hashes(contents: dict[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}


def _columns(kind: "type[DataclassInstance]") -> list[str]:
    return [field.name for field in fields(kind)]


def _cells(row: "DataclassInstance") -> dict[str, Cell]:
    """A row by its columns, as it is written."""
    values = ((field.name, getattr(row, field.name)) for field in fields(row))
    return {name: str(value) if isinstance(value, Regime) else value for name, value in values}


def _parsed(content: bytes, path: Path, kind: type[TableRow]) -> list[TableRow]:
    """The rows of one of the tables, as what they were before they were written."""
    hints, (header, lines) = get_type_hints(kind), parse_table(content, path)
    return [
        kind(**{name: _value(text, hints[name]) for name, text in zip(header, line, strict=True)}) for _, line in lines
    ]


def _value(text: str, hint: Any) -> Any:
    kinds = [kind for kind in getattr(hint, "__args__", (hint,)) if kind is not type(None)]
    if hint is not kinds[0] and not text:
        return None
    if kinds[0] is bool:
        return text == "True"
    return Regime.read(text) if kinds[0] is Regime else kinds[0](text)
