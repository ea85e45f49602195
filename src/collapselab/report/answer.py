"""The answer at a glance: for each property, does it come with scale, with a better outcome, and at fixed scale?

A verdict is a row of the analysis' tables in one word, with the numbers of that row beside it. It is never stronger
than the row: what no corrected test shows is "not shown", whatever the sign.
"""

from dataclasses import dataclass
from typing import Literal, final

from collapselab.analysis.relate import ALL, CANNOT_TELL, WITHIN, Relation
from collapselab.analysis.summary import Sentence
from collapselab.analysis.trends import Trend
from collapselab.report.story import Story
from collapselab.report.words import outcome_name, property_name

Kind = Literal["with", "against", "mixed", "unshown", "absent"]
MARKS: dict[Kind, str] = {"with": "✓", "against": "✗", "mixed": "±", "unshown": "○", "absent": "–"}
AXES = {"width": "width", "depth": "depth", "epochs": "longer training"}
FIRST = ("models", "across models", "scale held fixed", "trends", "prediction")
"""Topics whose first sentence is part of the answer; the others stand in the sections they are about."""


@final
@dataclass(frozen=True)
class Verdict:
    """One word and its evidence."""

    kind: Kind
    word: str
    evidence: str

    @property
    def mark(self) -> str:
        return MARKS[self.kind]


@final
@dataclass(frozen=True)
class Line:
    """One metric of the strip."""

    metric: str
    scale: Verdict
    outcome: Verdict
    fixed: Verdict


def strip(story: Story) -> list[Line]:
    """The verdicts of every main metric, in the order of the catalogue."""
    return [
        Line(metric, _with_scale(story, metric), _related(story, metric, ALL), _related(story, metric, WITHIN))
        for metric in story.main
    ]


def headline(story: Story, lines: list[Line]) -> str:
    """The whole in one sentence of counts; each is a count of verdicts in the strip."""
    if not lines:
        return "There is nothing to say yet."
    outcome = outcome_name(story.outcome)
    if all(line.outcome.kind == "absent" for line in lines):
        return f"These models cannot tell whether collapse goes with a better {outcome}; the reasons are below."
    across, fixed = (sum(getattr(line, column).kind == "with" for line in lines) for column in ("outcome", "fixed"))
    number = f"{across or 'none'} of {len(lines)} metrics {'is' if across < 2 else 'are'}"
    text = f"Across models, {number} shown to move toward collapse as {outcome} gets better"
    if all(line.fixed.kind == "absent" for line in lines):
        return f"{text}; whether that holds at fixed scale these models cannot say."
    named = [property_name(line.metric) for line in lines if line.fixed.kind == "with"]
    told = f": {', '.join(dict.fromkeys(named))}" if named else ""
    return f"{text}; with scale held fixed, that is shown for {fixed}{told}."


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


def _related(story: Story, metric: str, subset: str) -> Verdict:
    relation = story.relation(metric, subset)
    if relation is None or relation.r is None:
        return Verdict("absent", "no answer", relation.why if relation and relation.why else "not measured.")
    evidence = _evidence(relation)
    if relation.verdict is None:
        return Verdict("absent", CANNOT_TELL, f"{evidence}; {relation.why}")
    if relation.verdict == "not shown":
        return Verdict("unshown", "not shown", evidence)
    if relation.goes is None:
        return Verdict("mixed", "related", f"{evidence}; collapse predicts no direction")
    return Verdict("with", "yes", evidence) if relation.goes == "with" else Verdict("against", "wrong way", evidence)


def _evidence(relation: Relation) -> str:
    interval = f" [{relation.low:+.2f}, {relation.high:+.2f}]" if None not in (relation.low, relation.high) else ""
    parts = [f"r {relation.r:+.2f}{interval}", f"R² {relation.r2:.2f}", f"{relation.n:,} models"]
    parts += [f"Holm p {relation.p_holm:.2g}"] if relation.subset == WITHIN and relation.p_holm is not None else []
    return ", ".join(part.replace(" ", "\N{NO-BREAK SPACE}") for part in parts)


def _with_scale(story: Story, metric: str) -> Verdict:
    rows = [row for row in (story.analysis.trends if story.analysis else []) if row.metric == metric]
    known = [row for row in rows if row.axis in AXES and row.groups]
    if not known:
        return Verdict("absent", "no answer", "no two models differ in size or length of training alone.")
    evidence = _shares(known)
    kinds = {_way(row) for row in known}
    if kinds == {"absent"}:
        return Verdict("absent", CANNOT_TELL, f"{evidence}; {known[0].why}")
    if kinds == {"with"}:
        return Verdict("with", "yes", evidence)
    if kinds == {"against"}:
        return Verdict("against", "wrong way", evidence)
    if kinds <= {"unshown", "absent"}:
        return Verdict("unshown", "not shown", evidence)
    return Verdict("mixed", "in part", evidence)


def _way(row: Trend) -> str:
    if row.verdict is None:
        return "absent"
    if row.verdict.endswith("toward collapse"):
        return "with"
    if row.verdict.endswith("away from collapse"):
        return "against"
    return "unshown" if row.verdict == "not shown" else "mixed"


def _shares(rows: list[Trend]) -> str:
    """In how many groups the metric moves toward collapse; where that says no direction, in how many it rises."""
    toward = rows[0].toward
    counts = [(row.falls if toward == "falls" else row.rises, row) for row in rows]
    told = ", ".join(f"{count} of {row.groups} by {AXES[row.axis]}" for count, row in counts)
    return f"{'rises' if toward is None else 'toward collapse'} in {told}"
