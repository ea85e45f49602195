"""The short answer of a suite for each property: does it grow with scale, and does it come with a better outcome?

A verdict summarises one row of the analysis' tables in a word, beside the numbers of that row. It is never stronger
than the row: what no corrected test shows is "not shown", whatever the sign.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from collapselab.analysis.families import EFFECTS, FIXED_SCALE, Family, surviving
from collapselab.analysis.relate import Relation, reversals
from collapselab.analysis.subsets import ALL, WITHIN
from collapselab.analysis.trends import Trend
from collapselab.analysis.verdict import Direction, Role, Verdict
from collapselab.analysis.words import NO_DIRECTION, REVERSAL, Sentence, many
from collapselab.report.data import ReportData
from collapselab.report.words import IN_PART, NO_ANSWER, VERDICT_WORDS, outcome_name, property_name


class Mark(StrEnum):
    """How a verdict is drawn: its CSS class and, in `SYMBOLS`, its sign."""

    WITH = "with"
    AGAINST = "against"
    MIXED = "mixed"
    UNSHOWN = "unshown"
    ABSENT = "absent"
    DESCRIBED = "described"


SYMBOLS = {Mark.WITH: "✓", Mark.AGAINST: "✗", Mark.MIXED: "±", Mark.UNSHOWN: "○", Mark.ABSENT: "–", Mark.DESCRIBED: "◇"}
MARKS = {
    Verdict.AS_PREDICTED: Mark.WITH,
    Verdict.OPPOSITE: Mark.AGAINST,
    Verdict.NO_DIRECTION: Mark.MIXED,
    Verdict.NOT_SHOWN: Mark.UNSHOWN,
    Verdict.TOO_FEW: Mark.ABSENT,
    Verdict.DESCRIPTION: Mark.DESCRIBED,
}
WEIGHTS = {Mark.WITH: 100, Mark.AGAINST: 100, Mark.MIXED: 50, Mark.UNSHOWN: 10, Mark.DESCRIBED: 1}
"""Weights by which the rows are ordered, strongest evidence first."""
AXES = {"width": "width", "depth": "depth", "epochs": "longer training"}
FIRST = (REVERSAL, "models", "across models", "scale held fixed", "as a cause", "trends")
"""Topics whose first sentence is part of the answer; the other sentences are in the sections of the page."""


@dataclass(frozen=True)
class Cell:
    """A verdict of the table in one word, and its evidence."""

    kind: Mark
    word: str
    evidence: str

    @property
    def symbol(self) -> str:
        return SYMBOLS[self.kind]


@dataclass(frozen=True)
class Line:
    """One metric of the table: its cells by column key (see `COLUMNS`)."""

    metric: str
    cells: dict[str, Cell]


COLUMNS = {"fixed": "At fixed scale?", "outcome": "Across models?", "scale": "Comes with scale?"}
NOT_MEASURED = Cell(Mark.ABSENT, NO_ANSWER, "not measured.")


@dataclass(frozen=True)
class Answer:
    """The first screen: a sentence, the verdicts with the most evidence first, and what is unknown."""

    headline: str
    columns: dict[str, str]
    """Columns with at least one verdict, with their titles."""
    lines: list[Line]
    silent: list[tuple[str, str]]
    """Reasons for missing verdicts, the most frequent first, each with what it concerns."""


def answer(data: ReportData) -> Answer:
    """Return the verdicts on the main metrics, ordered by evidence."""
    lines = verdicts(data)
    reasons: dict[str, list[str]] = {}
    for key, title in COLUMNS.items():
        of_reason: dict[str, list[str]] = {}
        for line in lines:
            if line.cells[key].kind is Mark.ABSENT:
                of_reason.setdefault(line.cells[key].evidence, []).append(line.metric)
        for reason, metrics in of_reason.items():
            names = "" if len(metrics) == len(lines) else f": {', '.join(metrics)}"
            reasons.setdefault(reason, []).append(f"{title.rstrip('?').lower()}{names}")
    known = {key: title for key, title in COLUMNS.items() if any(_known(line.cells[key]) for line in lines)}
    shown = [line for line in lines if any(_known(cell) for cell in line.cells.values())]
    shown.sort(key=lambda line: -sum(WEIGHTS.get(cell.kind, 0) for cell in line.cells.values()))
    silent = sorted(((reason, "; ".join(about)) for reason, about in reasons.items()), key=lambda pair: -len(pair[1]))
    return Answer(headline(data, lines), known, shown, silent)


def _known(cell: Cell) -> bool:
    return cell.kind is not Mark.ABSENT


def verdicts(data: ReportData) -> list[Line]:
    """Return the verdicts on the main metrics, in the order of the catalogue."""
    return [
        Line(metric, {"fixed": _related(data, metric, WITHIN), "outcome": _related(data, metric, ALL),
                      "scale": _with_scale(data, metric)})
        for metric in data.main
    ]  # fmt: skip


def headline(data: ReportData, lines: list[Line] | None = None) -> str:
    """Say in a few sentences what holds across models, at fixed scale, and of interventions.

    The latter two are claims that survive the correction over families of tests.
    """
    lines = verdicts(data) if lines is None else lines
    if not lines:
        return "No results yet."
    return " ".join((*_across_words(data, lines), *_fixed_words(data, lines), *_effect_words(data)))


def _survives(data: ReportData, family: Family) -> bool:
    return data.analysis is not None and family in surviving(data.analysis.tables)


def _across_words(data: ReportData, lines: list[Line]) -> Iterable[str]:
    outcome = outcome_name(data.outcome)
    if not any(_known(line.cells["outcome"]) for line in lines):
        yield f"There are too few runs to say whether more collapsed models have a better {outcome}."
        return
    relations = [data.relation(line.metric, ALL) for line in lines]
    across = sum(row is not None and row.goes is Direction.WITH for row in relations)
    yield (
        f"Models with a better {outcome} are more collapsed by {across or 'none'} of {many(len(lines), 'metric')}; "
        "they may differ in size and training too, so this only describes them."
    )
    pairs = reversals(data.analysis.tables["relate"]) if data.analysis and _survives(data, FIXED_SCALE) else []
    if names := ", ".join(dict.fromkeys(property_name(within.metric) for _, within in pairs)):
        yield f"At fixed scale the relation reverses for {names}."


def _fixed_words(data: ReportData, lines: list[Line]) -> Iterable[str]:
    kinds = Counter(line.cells["fixed"].kind for line in lines)
    if not any(_known(line.cells["outcome"]) for line in lines):
        return
    if kinds[Mark.ABSENT] + kinds[Mark.DESCRIBED] == len(lines):
        yield "Too few runs differ only in their seed to say whether it holds at fixed scale."
    elif not _survives(data, FIXED_SCALE):
        yield f"Among runs that differ only in their seed, tests show it for none of the {len(lines)}."
    else:
        names = {
            kind: ", ".join(
                dict.fromkeys(property_name(line.metric) for line in lines if line.cells["fixed"].kind is kind)
            )
            for kind in (Mark.WITH, Mark.AGAINST)
        }
        shown = f"{kinds[Mark.WITH]} of the {len(lines)} ({names[Mark.WITH]})" if names[Mark.WITH] else "none"
        opposite = f", and the opposite for {names[Mark.AGAINST]}" if names[Mark.AGAINST] else ""
        yield f"Among runs that differ only in their seed, tests show it for {shown}{opposite}."


def _effect_words(data: ReportData) -> Iterable[str]:
    effects = data.analysis.tables["effects"] if data.analysis else []
    rows = [row for row in effects if row.role is Role.OUTCOME and not row.sham]
    counts = Counter(row.verdict for row in rows)
    if counts[Verdict.TOO_FEW] == len(rows):
        return
    of_all = f"Of {many(len(rows), 'intervention')},"
    if not _survives(data, EFFECTS):
        yield f"{of_all} none is shown to change the {outcome_name(data.outcome)}."
        return
    helps, harms = (
        f"{counts[verdict] or 'none'} {verb}{'' if counts[verdict] > 1 else 's'}"
        for verdict, verb in ((Verdict.HELPS, "improve"), (Verdict.HARMS, "worsen"))
    )
    yield f"{of_all} {helps} the {outcome_name(data.outcome)} and {harms} it."


def opening(data: ReportData) -> list[Sentence]:
    """Return the first sentence of each topic of the summary."""
    sentences = data.analysis.sentences if data.analysis else []
    firsts = {sentence.topic: sentence for sentence in reversed(sentences)}
    return [firsts[topic] for topic in FIRST if topic in firsts]


def remaining(data: ReportData, *topics: str) -> list[Sentence]:
    """Return the sentences of these topics that are not part of the answer."""
    first = opening(data)
    sentences = data.analysis.sentences if data.analysis else []
    return [sentence for sentence in sentences if sentence.topic in topics and sentence not in first]


def unplaced(data: ReportData, placed: Iterable[str]) -> list[Sentence]:
    """Return the sentences that are neither in a section of the page nor part of the answer."""
    topics = {sentence.topic for sentence in data.analysis.sentences} if data.analysis else set()
    return remaining(data, *(topics - set(placed)))


def _related(data: ReportData, metric: str, subset: str) -> Cell:
    relation = data.relation(metric, subset)
    if relation is None or relation.r is None:
        return Cell(Mark.ABSENT, NO_ANSWER, relation.why) if relation and relation.why else NOT_MEASURED
    if relation.verdict is Verdict.TOO_FEW:
        return Cell(Mark.ABSENT, VERDICT_WORDS[Verdict.TOO_FEW], relation.why or NOT_MEASURED.evidence)
    evidence = _evidence(relation)
    if relation.verdict is Verdict.DESCRIPTION:
        return Cell(Mark.DESCRIBED, f"r {relation.r:+.2f}", evidence)
    aside = f"; {NO_DIRECTION}" if relation.verdict is Verdict.NO_DIRECTION else ""
    return Cell(MARKS[relation.verdict], VERDICT_WORDS[relation.verdict], f"r {relation.r:+.2f}, {evidence}{aside}")


def _evidence(relation: Relation) -> str:
    """Return the interval of r, its corrected p, and the number of runs."""
    parts = [] if None in (relation.low, relation.high) else [f"[{relation.low:+.2f}, {relation.high:+.2f}]"]
    parts += [f"p {relation.p_holm:.2g}"] if relation.subset == WITHIN and relation.p_holm is not None else []
    return ", ".join(part.replace(" ", "\N{NO-BREAK SPACE}") for part in (*parts, f"{relation.n} runs"))


def _with_scale(data: ReportData, metric: str) -> Cell:
    rows = [row for axis in AXES for row in data.trends(axis, metric)]
    verdicts = {row.verdict for row in rows}
    if not rows:
        return Cell(Mark.ABSENT, NO_ANSWER, "no two models differ only in size or in length of training.")
    if verdicts == {Verdict.TOO_FEW}:
        return Cell(Mark.ABSENT, VERDICT_WORDS[Verdict.TOO_FEW], rows[0].why or NOT_MEASURED.evidence)
    if verdicts in ({Verdict.AS_PREDICTED}, {Verdict.OPPOSITE}):
        verdict = verdicts.pop()
        return Cell(MARKS[verdict], VERDICT_WORDS[verdict], _shares(rows))
    if verdicts <= {Verdict.NOT_SHOWN, Verdict.TOO_FEW}:
        return Cell(Mark.UNSHOWN, VERDICT_WORDS[Verdict.NOT_SHOWN], _shares(rows))
    return Cell(Mark.MIXED, IN_PART, _shares(rows))


def _shares(rows: list[Trend]) -> str:
    """Count the groups in which the metric moves toward collapse or, for metrics without a direction, rises."""
    counts = ", ".join(f"{row.groups_toward} of {row.groups} by {AXES[row.axis]}" for row in rows)
    return f"{'rises' if rows[0].toward is None else 'toward collapse'} in {counts}"
