"""analyze: from the tables of a suite to statements about them, and how they are kept.

`<directory>/analysis/` gets a table for every entry of `STATEMENTS`, and `summary.json`: what the tables allow to say,
in sentences, and what it was made from. A sentence is no stronger than the rows it is made from. What a corrected test
shows is called shown, and nothing else. What is not shown is not called absent: the power is beside it. Where there are
too few models for a test, the sentence says so and how many are needed. Relations across models are called
descriptions, since scale and training differ too.

The summary is written last and holds the sha256 of the tables that were analysed, of each table that came out, and the
version of the program. An analysis of which any of that has changed is never shown: it is made again.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from html import escape
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from pydantic import Field, JsonValue, ValidationError

from collapselab import __version__
from collapselab.analysis import attribution, controls, curves, effects, properties, relate, trends, words
from collapselab.analysis.arms import Registered, registered_in
from collapselab.analysis.families import error_words
from collapselab.analysis.models import Models, Regime, combine, default_outcome, is_comparable
from collapselab.analysis.words import REVERSAL, Sentence, many
from collapselab.core.catalogue import METRICS
from collapselab.disk import Part, Record, first_error, read_bytes, read_document, write_bytes
from collapselab.errors import ConfigError, DamagedError, RunError
from collapselab.messages import progress
from collapselab.records.scores import STORED, JoinedScores, join_scores, read_scores, scores_bytes, with_scores
from collapselab.records.suite import registered_primary
from collapselab.records.table import Cell, parse_table, table_bytes
from collapselab.records.tables import REQUIRED, RowsByTable, StoredTables, read_tables

if TYPE_CHECKING:
    import pandas as pd
    from _typeshed import DataclassInstance

SUMMARY = "summary.json"


@dataclass(frozen=True)
class Given:
    """What a statement is made from: the models, the request, the rows of the statements before it, and what was
    registered before the first run."""

    models: Models
    permutations: int
    seed: int
    rows: RowsByTable
    registered: Registered = field(default_factory=Registered)

    @property
    def draws(self) -> dict[str, Any]:
        return {"permutations": self.permutations, "seed": self.seed}


@dataclass(frozen=True)
class Statement:
    """One table of the analysis: what a row of it is, how the rows are made, and what they allow to say."""

    row: type[Any]
    rows: Callable[[Given], list[Any]]
    sentences: Callable[[Models, Sequence[Any]], Iterable[Sentence]]


STATEMENTS: dict[str, Statement] = {
    "relate": Statement(relate.Relation, lambda given: relate.relate(given.models, **given.draws), relate.sentences),
    "controls": Statement(
        controls.Control, lambda given: controls.controls(given.models, **given.draws), controls.sentences
    ),
    "trends": Statement(trends.Trend, lambda given: trends.trends(given.models, **given.draws), trends.sentences),
    "properties": Statement(
        properties.PropertyRow,
        lambda given: properties.properties(given.models, given.rows["relate"], given.rows["trends"], **given.draws),
        properties.sentences,
    ),
    "effects": Statement(
        effects.Effect,
        lambda given: effects.effects(given.models, given.registered, given.rows["properties"], **given.draws),
        words.of_effects,
    ),
    "doses": Statement(effects.Response, lambda given: effects.doses(given.models), words.of_doses),
    "attribution": Statement(
        attribution.Attributed,
        lambda given: attribution.attribution(
            given.models, given.rows["effects"], given.rows["properties"], given.registered, **given.draws
        ),
        attribution.sentences,
    ),
    "phases": Statement(curves.Phase, lambda given: curves.half_times(given.models), curves.of_half_times),
    "diagnosis": Statement(curves.Finding, lambda given: curves.diagnose(given.models), curves.of_findings),
}
"""In the order in which they are made and in which the summary reports them, by the name of their table."""


def analyze(
    directory: str | Path,
    *,
    outcome: str | None = None,
    permutations: int = 10_000,
    seed: int = 0,
    scores: str | Path | None = None,
) -> "Analysis":
    """Relate every metric of `directory` to the outcome, in scale and apart from scale, and write what was found.

    >>> from collapselab import analyze
    >>> analysis = analyze("suites/tiny", permutations=99)
    >>> analysis.outcome
    'val_loss'

    Without an outcome it is the one that the suite registered, else `val_loss`, or `bits_per_byte` where the models
    have several tokenizers. `scores` is a table of the user's own (`records/scores.py`), whose numbers are outcomes as
    well: `score:NAME` and `cost:NAME`; it
    is kept, so later calls have them too. The same tables, permutations and seed give the same numbers.
    """
    directory = Path(directory)
    for name in REQUIRED:
        if not (directory / name).is_file():
            raise RunError(
                f"{directory}: no {name}. Analyse a suite that has run, or a folder that `collapselab collect` or "
                "`collapselab import` made."
            )
    tables = read_tables(directory)
    try:
        request = Request(outcome=outcome or _default_outcome(directory, tables), permutations=permutations, seed=seed)
    except ValidationError as error:
        raise ConfigError(f"{first_error(error)}.") from error
    joined = None if scores is None else join_scores(read_scores(scores), tables.runs)
    return _analyze(directory, tables, request, joined)


def current_analysis(directory: str | Path, tables: StoredTables) -> "Analysis":
    """The analysis of these tables: the one in the folder if it fits them, else a new one with the same request."""
    directory = Path(directory)
    outcome = _default_outcome(directory, tables)
    analysis = read_analysis(directory, tables)
    if analysis is not None:
        return analysis
    request = _last_request(directory, outcome)
    if not is_comparable(request.outcome, tables.runs):  # models of another tokenizer have joined
        request = request.model_copy(update={"outcome": outcome})
    return _analyze(directory, tables, request)


def _default_outcome(directory: Path, tables: StoredTables) -> str:
    """The outcome that the suite registered, if its models can be compared by it; else that of the tables."""
    primary = registered_primary(directory)
    if primary is not None and is_comparable(primary.outcome, tables.runs):
        return primary.outcome
    return default_outcome(tables.runs)


class Request(Part):
    """What an analysis is asked for."""

    outcome: str = "val_loss"
    permutations: int = Field(10_000, ge=99, le=10_000_000)
    """Fewer could not reach 0.05 after any correction; more would take days."""
    seed: int = Field(0, ge=0)


def _analyze(directory: Path, tables: StoredTables, request: Request, joined: JoinedScores | None = None) -> "Analysis":
    stored = stored_scores(directory) if joined is None else scores_bytes(joined)
    models = combine(with_scores(tables.runs, stored), tables.rows, tables.contexts, outcome=request.outcome)
    registered = registered_in(directory)
    rows: RowsByTable = {}
    sentences = [Sentence("models", "runs", _models_words(models))]
    if joined is not None:
        sentences += [Sentence("scores", "runs", text) for text in joined.report()]
    elif stored is not None and (last := _last_summary(directory)) is not None:
        sentences += [Sentence(**sentence) for sentence in last.sentences if sentence["topic"] == "scores"]
    for metric, version in sorted({(row.metric, row.version) for row in tables.rows}):
        if metric in METRICS and version != METRICS[metric].version:
            text = f"version {version} of its definition; today's is version {METRICS[metric].version}"
            sentences.append(Sentence("versions", "results", f"{metric} follows {text}."))
    with progress("analysing", total=len(STATEMENTS), unit="tables") as advance:
        for name, statement in STATEMENTS.items():
            rows[name] = statement.rows(Given(models, request.permutations, request.seed, rows, registered))
            sentences += statement.sentences(models, rows[name])
            advance(1)
    if words := error_words(rows):
        sentences.append(Sentence("error rates", "summary", words))
    sentences.sort(key=lambda sentence: sentence.topic != REVERSAL)  # stable: all others stay in their order
    hashes = (tables.hashes, registered.hash, _scores_hash(stored))
    analysis = Analysis(directory, **dict(request), models=len(models.known), tables=rows, sentences=sentences,
                        sources=hashes[0], registered=hashes[1], scores=hashes[2])  # fmt: skip
    if joined is not None:
        write_bytes(directory / "analysis" / STORED, scores_bytes(joined))
    analysis.write(directory / "analysis")
    return analysis


def _models_words(models: Models) -> str:
    frame = models.known
    runs, failed = frame["run"].nunique(), models.frame.loc[models.frame["why"].notna(), "run"].nunique()
    checkpoints = f" at {len(frame)} checkpoints" if runs < len(frame) else ""
    counts = [(frame["architecture"].nunique(), "architecture"), (frame["seed"].nunique(), "seed")]
    shown = ", ".join(many(count, unit) for count, unit in counts if count)
    text = f"{many(runs, 'run')}{checkpoints}: {shown}, {many(len(models.metrics), 'metric')} at each checkpoint"
    if repeats := frame.loc[models.repeats & frame["last"], "run"].nunique():
        text += f"; {many(repeats, 'run')} with the settings and seeds of another, which count once at fixed scale"
    missing = int(frame[[*models.metrics, models.outcome]].isna().sum().sum())
    text += f"; {many(missing, 'value')} missing and left out of what needs them" if missing else ""
    return f"{text}; {many(failed, 'run')} failed, and what is unfinished is not counted." if failed else f"{text}."


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

    In a notebook it is its sentences.
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
        same = ("outcome", "models", "permutations", "seed", "registered", "scores")
        return SummaryRecord(
            program=program_version(), files=_hashes(contents), directory=str(self.directory), tables=self.sources,
            sentences=[asdict(row) for row in self.sentences], **{name: getattr(self, name) for name in same},
        )  # fmt: skip


def read_analysis(directory: Path, tables: StoredTables) -> Analysis | None:
    """The analysis of these tables that is in the folder; None where there is none, or where anything has changed."""
    folder, summary = directory / "analysis", _last_summary(directory)
    if summary is None:
        return None
    try:
        contents = {f"{name}.csv": read_bytes(folder / f"{name}.csv") for name in STATEMENTS}
    except (FileNotFoundError, DamagedError, RunError):
        return None
    scores = _scores_hash(stored_scores(directory))
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


def stored_scores(directory: Path) -> bytes | None:
    """The scores that the user brought to an analysis of this folder; None where there are none.

    DamagedError where they are not those that the last analysis had: nothing else says what they were.
    """
    path, summary = directory / "analysis" / STORED, _last_summary(directory)
    if not path.is_file():
        return None
    content = read_bytes(path)
    if summary is not None and summary.scores not in (None, _scores_hash(content)):
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


def _last_request(directory: Path, outcome: str) -> Request:
    """What the analysis in the folder was asked for, by this version or an earlier one; else this outcome."""
    path = directory / "analysis" / SUMMARY
    try:
        summary = read_document(path, unchecked=True)
        return Request.model_validate({name: summary.get(name) for name in Request.model_fields})
    except FileNotFoundError:
        return Request(outcome=outcome)
    except (DamagedError, ValidationError) as error:
        again = "Run `collapselab analyze` again, with the options that you want."
        raise DamagedError(f"{path}: damaged or edited, so the last request is not known. {again}") from error


def _scores_hash(stored: bytes | None) -> str | None:
    return None if stored is None else hashlib.sha256(stored).hexdigest()


@cache
def program_version() -> str:
    """The version of collapselab, and a hash of its source: both change what an analysis or a page holds."""
    digest, package = hashlib.sha256(), Path(__file__).parents[1]
    for path in sorted(package.rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            digest.update(path.relative_to(package).as_posix().encode() + b"\0")
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return f"{__version__}+{digest.hexdigest()[:12]}"


def _hashes(contents: dict[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}


def _columns(kind: "type[DataclassInstance]") -> list[str]:
    return [field.name for field in fields(kind)]


def _cells(row: "DataclassInstance") -> dict[str, Cell]:
    """A row by its columns, as it is written."""
    values = ((field.name, getattr(row, field.name)) for field in fields(row))
    return {name: str(value) if isinstance(value, Regime) else value for name, value in values}


def _parsed(content: bytes, path: Path, kind: type[Any]) -> list[Any]:
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
