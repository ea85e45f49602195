"""The short answer for each property: does it grow with scale, and does it correlate with the outcome at fixed scale?

A verdict is a row of the analysis' tables in one word, with the numbers of that row beside it. It is never stronger
than the row: what no corrected test shows is "not shown", whatever the sign.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import final

from collapselab.analysis.families import EFFECTS, FIXED_SCALE, Family, surviving
from collapselab.analysis.relate import Relation
from collapselab.analysis.subsets import ALL, WITHIN
from collapselab.analysis.trends import Trend
from collapselab.analysis.verdict import Direction, Role, Verdict
from collapselab.analysis.words import NO_DIRECTION, REVERSAL, Sentence, counted, many, reversals
from collapselab.report.story import Story
from collapselab.report.words import IN_PART, NO_ANSWER, VERDICT_WORDS, outcome_name, property_name


@final
class Mark(StrEnum):
    """How a verdict is drawn: the class of its style, and by `SYMBOLS` its sign."""

    WITH = "with"
    AGAINST = "against"
    MIXED = "mixed"
    UNSHOWN = "unshown"
    ABSENT = "absent"
    DESCRIBED = "described"


SYMBOLS = {Mark.WITH: "✓", Mark.AGAINST: "✗", Mark.MIXED: "±", Mark.UNSHOWN: "○", Mark.ABSENT: "–", Mark.DESCRIBED: "·"}
MARKS = {
    Verdict.AS_PREDICTED: Mark.WITH,
    Verdict.OPPOSITE: Mark.AGAINST,
    Verdict.NO_DIRECTION: Mark.MIXED,
    Verdict.NOT_SHOWN: Mark.UNSHOWN,
    Verdict.TOO_FEW: Mark.ABSENT,
    Verdict.DESCRIPTION: Mark.DESCRIBED,
}
AXES = {"width": "width", "depth": "depth", "epochs": "longer training"}
FIRST = (REVERSAL, "models", "across models", "scale held fixed", "as a cause", "trends")
"""Topics whose first sentence is part of the answer; the others are in the sections they are about."""


@final
@dataclass(frozen=True)
class Cell:
    """A verdict of the strip in one word, and its evidence."""

    kind: Mark
    word: str
    evidence: str

    @property
    def symbol(self) -> str:
        return SYMBOLS[self.kind]


@final
@dataclass(frozen=True)
class StripLine:
    """One metric of the strip."""

    metric: str
    scale: Cell
    outcome: Cell
    fixed: Cell


NOT_MEASURED = Cell(Mark.ABSENT, NO_ANSWER, "not measured.")


def strip(story: Story) -> list[StripLine]:
    """The verdicts of every main metric, in the order of the catalogue."""
    return [
        StripLine(metric, _with_scale(story, metric), _related(story, metric, ALL), _related(story, metric, WITHIN))
        for metric in story.main
    ]


def headline(story: Story, lines: list[StripLine]) -> str:
    """Describe relations across runs, then the claims about fixed scale and interventions that survive the correction
    over families."""
    return f"{_related_words(story, lines)}{_effect_words(story)}"


def _survives(story: Story, family: Family) -> bool:
    return story.analysis is not None and family in surviving(story.analysis.tables)


def _effect_words(story: Story) -> str:
    rows = (
        [row for row in story.analysis.effects if row.role is Role.OUTCOME and not row.sham] if story.analysis else []
    )
    counts = {verdict: sum(row.verdict is verdict for row in rows) for verdict in Verdict}
    if counts[Verdict.TOO_FEW] == len(rows):
        return ""
    if not _survives(story, EFFECTS):
        return f" Of {many(len(rows), 'intervention')} none helps or harms after the correction over families of tests."
    helps, harms = (
        f"{counts[verdict] or 'none'} {verdict if counts[verdict] < 2 else plural}"
        for verdict, plural in ((Verdict.HELPS, "help"), (Verdict.HARMS, "harm"))
    )
    return f" Of {many(len(rows), 'intervention')} {helps} and {harms}."


def _related_words(story: Story, lines: list[StripLine]) -> str:
    if not lines:
        return "There is nothing to say yet."
    outcome = outcome_name(story.outcome)
    if all(line.outcome.kind is Mark.ABSENT for line in lines):
        return f"There are too few runs to say whether collapse correlates with a better {outcome} (reasons below)."
    relations = [story.relation(line.metric, ALL) for line in lines]
    across = sum(row is not None and row.goes is Direction.WITH for row in relations)
    number = f"{across or 'none'} of {len(lines)} metrics {'moves' if across == 1 else 'move'}"
    text = f"Across runs of different size or training, {number} toward collapse as {outcome} improves"
    text = f"{_reversed_words(story)}{text} (descriptive only)."
    if all(line.fixed.kind in (Mark.ABSENT, Mark.DESCRIBED) for line in lines):
        return f"{text} There are too few seeds of one size to say whether that holds at fixed scale."
    if not _survives(story, FIXED_SCALE):
        return f"{text} Among seeds of one size, none of {len(lines)} does after the correction over families of tests."
    shown = f" Among seeds of one size, {_counted(lines, Mark.WITH)} of {len(lines)} does"
    opposite = f", and {_counted(lines, Mark.AGAINST)} moves the opposite way"
    return f"{text}{shown}{opposite if any(line.fixed.kind is Mark.AGAINST for line in lines) else ''}."


def _counted(lines: list[StripLine], kind: Mark) -> str:
    named = [property_name(line.metric) for line in lines if line.fixed.kind is kind]
    return f"{len(named)} ({', '.join(dict.fromkeys(named))})" if named else "none"


def _reversed_words(story: Story) -> str:
    pairs = reversals(story.analysis.relations) if story.analysis and _survives(story, FIXED_SCALE) else []
    names = ", ".join(dict.fromkeys(property_name(within.metric) for _, within in pairs))
    return f"At fixed scale the relation reverses: {names}. " if names else ""


def opening(story: Story) -> list[Sentence]:
    """The first sentence of each topic of the summary."""
    sentences = story.analysis.sentences if story.analysis else []
    firsts = {sentence.topic: sentence for sentence in reversed(sentences)}
    return [firsts[topic] for topic in FIRST if topic in firsts]


def remaining(story: Story, *topics: str) -> list[Sentence]:
    """The sentences of these topics that are not part of the answer."""
    first = opening(story)
    sentences = story.analysis.sentences if story.analysis else []
    return [sentence for sentence in sentences if sentence.topic in topics and sentence not in first]


def unplaced(story: Story, placed: Iterable[str]) -> list[Sentence]:
    """The sentences of topics that no section of the page is about, and that are no part of the answer."""
    topics = {sentence.topic for sentence in story.analysis.sentences} if story.analysis else set()
    return remaining(story, *(topics - set(placed)))


def _related(story: Story, metric: str, subset: str) -> Cell:
    relation = story.relation(metric, subset)
    if relation is None or relation.r is None:
        return Cell(Mark.ABSENT, NO_ANSWER, relation.why) if relation and relation.why else NOT_MEASURED
    aside = {Verdict.TOO_FEW: f"; {relation.why}", Verdict.NO_DIRECTION: f"; {NO_DIRECTION}"}
    if relation.verdict is Verdict.DESCRIPTION:
        return Cell(Mark.DESCRIBED, VERDICT_WORDS[Verdict.DESCRIPTION], _evidence(relation))
    return _cell(relation.verdict, _evidence(relation) + aside.get(relation.verdict, ""))


def _cell(verdict: Verdict, evidence: str) -> Cell:
    return Cell(MARKS[verdict], VERDICT_WORDS[verdict], evidence)


def _evidence(relation: Relation) -> str:
    interval = f" [{relation.low:+.2f}, {relation.high:+.2f}]" if None not in (relation.low, relation.high) else ""
    parts = [f"r {relation.r:+.2f}{interval}", f"R² {relation.r2:.2f}", counted(relation)]
    parts += [f"Holm p {relation.p_holm:.2g}"] if relation.subset == WITHIN and relation.p_holm is not None else []
    return ", ".join(part.replace(" ", "\N{NO-BREAK SPACE}") for part in parts)


def _with_scale(story: Story, metric: str) -> Cell:
    rows = [row for axis in AXES for row in story.trends(axis, metric)]
    if not rows:
        return Cell(Mark.ABSENT, NO_ANSWER, "no two models differ in size or length of training alone.")
    evidence, verdicts = _shares(rows), {row.verdict for row in rows}
    if verdicts == {Verdict.TOO_FEW}:
        return _cell(Verdict.TOO_FEW, f"{evidence}; {rows[0].why}")
    if verdicts == {Verdict.AS_PREDICTED} or verdicts == {Verdict.OPPOSITE}:
        return _cell(verdicts.pop(), evidence)
    if verdicts <= {Verdict.NOT_SHOWN, Verdict.TOO_FEW}:
        return _cell(Verdict.NOT_SHOWN, evidence)
    return Cell(Mark.MIXED, IN_PART, evidence)


def _shares(rows: list[Trend]) -> str:
    """In how many groups the metric moves toward collapse; where that says no direction, in how many it rises."""
    counts = ", ".join(f"{row.groups_toward} of {row.groups} by {AXES[row.axis]}" for row in rows)
    return f"{'rises' if rows[0].toward is None else 'toward collapse'} in {counts}"
