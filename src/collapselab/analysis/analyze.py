"""analyze: from the two tables of a suite to statements about them.

`<directory>/analysis/` gets a table for every entry of `STATEMENTS`, and `summary.json`: what the tables allow to say,
in sentences, and what it was made from. A sentence is no stronger than the rows it is made from. What a corrected test
shows is called shown, and nothing else. What is not shown is not called absent: the power is beside it. Where there are
too few models for a test, the sentence says so and how many are needed. Relations across models are called
descriptions, since scale and training differ too.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from collapselab.analysis.arms import registered_in
from collapselab.analysis.families import error_words
from collapselab.analysis.models import Models, combine, default_outcome, is_comparable
from collapselab.analysis.statements import STATEMENTS, Given
from collapselab.analysis.stored import (
    SCORES,
    Analysis,
    Request,
    last_request,
    read_analysis,
    score_sentences,
    scores_hash,
    stored_scores,
)
from collapselab.analysis.words import REVERSAL, Sentence, many
from collapselab.core.catalogue import METRICS
from collapselab.disk import write_bytes
from collapselab.errors import RunError
from collapselab.messages import progress
from collapselab.records.scores import STORED, JoinedScores, join_scores, read_scores, scores_bytes, with_scores
from collapselab.records.tables import RowsByTable, StoredTables, read_tables, required_files


def analyze(
    directory: str | Path,
    *,
    outcome: str | None = None,
    permutations: int = 10_000,
    seed: int = 0,
    scores: str | Path | None = None,
) -> Analysis:
    """Relate every metric of `directory` to the outcome, in scale and apart from scale, and write what was found.

    >>> from collapselab import analyze
    >>> analysis = analyze("suites/tiny", permutations=99)
    >>> analysis.outcome
    'val_loss'

    Without an outcome it is `val_loss`, or `bits_per_byte` where the models have several tokenizers. `scores` is a
    table of the user's own (`records/scores.py`), whose numbers are outcomes as well: `score:NAME` and `cost:NAME`; it
    is kept, so later calls have them too. The same tables, permutations and seed give the same numbers.
    """
    directory = Path(directory)
    for name in required_files():
        if not (directory / name).is_file():
            raise RunError(
                f"{directory}: no {name}. Analyse a suite that has run, or a folder that `collapselab collect` or "
                "`collapselab import` made."
            )
    tables = read_tables(directory)
    request = Request(outcome or default_outcome(tables.runs), permutations, seed)
    joined = None if scores is None else join_scores(read_scores(scores), tables.runs)
    return _analyze(directory, tables, request, joined)


def current_analysis(directory: str | Path, tables: StoredTables) -> Analysis:
    """The analysis of these tables: the one in the folder if it fits them, else a new one with the same request."""
    directory, outcome = Path(directory), default_outcome(tables.runs)
    analysis = read_analysis(directory, tables)
    if analysis is not None:
        return analysis
    request = last_request(directory, outcome=outcome)
    if not is_comparable(request.outcome, tables.runs):  # models of another tokenizer have joined
        request = replace(request, outcome=outcome)
    return _analyze(directory, tables, request)


def _analyze(directory: Path, tables: StoredTables, request: Request, joined: JoinedScores | None = None) -> Analysis:
    stored = stored_scores(directory) if joined is None else scores_bytes(joined)
    models = combine(with_scores(tables.runs, stored), tables.rows, tables.contexts, outcome=request.outcome)
    registered = registered_in(directory)
    rows: RowsByTable = {}
    sentences = [Sentence("models", "runs", _models_words(models))]
    sentences += (
        score_sentences(directory, stored)
        if joined is None
        else [Sentence(SCORES, "runs", text) for text in joined.report()]
    )
    sentences += [Sentence("versions", "results", text) for text in _version_words(tables)]
    with progress("analysing", total=len(STATEMENTS), unit="tables") as advance:
        for name, statement in STATEMENTS.items():
            rows[name] = statement.rows(Given(models, request.permutations, request.seed, rows, registered))
            sentences += statement.sentences(models, rows[name])
            advance(1)
    if words := error_words(rows):
        sentences.append(Sentence("error rates", "summary", words))
    sentences.sort(key=lambda sentence: sentence.topic != REVERSAL)  # stable: all others stay in their order
    asked = (request.outcome, request.permutations, request.seed)
    hashes = (tables.hashes, registered.hash, scores_hash(stored))
    analysis = Analysis(directory, *asked, len(models.known), rows, sentences, *hashes)
    if joined is not None:
        write_bytes(directory / "analysis" / STORED, scores_bytes(joined))
    analysis.write(directory / "analysis")
    return analysis


def _version_words(tables: StoredTables) -> Iterator[str]:
    """Metrics whose values follow an earlier definition than today's, which is the one that the words describe."""
    for metric, version in sorted({(row.metric, row.version) for row in tables.rows}):
        if metric in METRICS and version != METRICS[metric].version:
            yield f"{metric} follows version {version} of its definition; today's is version {METRICS[metric].version}."


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
