"""The words for verdicts, in tables and in sentences. Every file of the analysis uses these."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, final

from collapselab.analysis.verdict import Verdict

CANNOT_TELL = Verdict.CANNOT_TELL.value
OPPOSITE = "in the opposite direction"
PREDICTED = "as collapse predicts"
NO_DIRECTION = "collapse predicts no direction"
NOT_MEASURED = "no metric was measured."
REVERSAL = "reversal"
"""The topic that is said before all others."""
LONGEST = 200
"""Characters of a sentence: two lines."""
UNITS = {"val_loss": " nats", "train_loss": " nats"}
"""Of the outcomes that have one."""

SHOWN = {
    Verdict.AS_PREDICTED: PREDICTED,
    Verdict.OPPOSITE: OPPOSITE,
    Verdict.NO_DIRECTION: f"where {NO_DIRECTION}",
}
"""What is significant, in the words that follow a count."""
ALONG = {
    Verdict.AS_PREDICTED: "toward collapse",
    Verdict.OPPOSITE: "away from collapse",
    Verdict.NO_DIRECTION: "one way, where collapse predicts none,",
}
"""How the part of a sentence begins that lists the metrics with a trend."""


@final
@dataclass(frozen=True)
class Sentence:
    """One sentence of the summary, its topic, and the table that it is made from."""

    topic: str
    table: str
    text: str


def relation_column(verdict: Verdict, *, outcome: str, better: int) -> str | None:
    """The column `verdict` of `relate.csv` and `controls.csv`, in the words of the first version: scripts read them."""
    lower, higher = ("lower", "higher") if better < 0 else ("higher", "lower")
    return {
        Verdict.AS_PREDICTED: f"more collapse goes with {lower} {outcome}",
        Verdict.OPPOSITE: f"wrong way: more collapse goes with {higher} {outcome}",
        Verdict.NO_DIRECTION: f"related; {NO_DIRECTION}",
        Verdict.NOT_SHOWN: "not shown",
    }.get(verdict)


def relation_words(verdict: Verdict, *, outcome: str, better: int) -> str:
    """The verdict on a correlation with the outcome, in a sentence."""
    lower, higher = ("lower", "higher") if better < 0 else ("higher", "lower")
    return {
        Verdict.AS_PREDICTED: f"more collapse correlates with {lower} {outcome}",
        Verdict.OPPOSITE: f"significant {OPPOSITE}: more collapse correlates with {higher} {outcome}",
        Verdict.NO_DIRECTION: f"significant; {NO_DIRECTION}",
        Verdict.NOT_SHOWN: "not shown",
        Verdict.CANNOT_TELL: CANNOT_TELL,
        Verdict.DESCRIPTION: "a description, without a test",
    }[verdict]


def trend_column(verdict: Verdict, way: str, *, of_outcome: bool) -> str | None:
    """The column `verdict` of `trends.csv`; `way` is rises or falls."""
    good, bad = ("better", "worse") if of_outcome else ("toward collapse", "away from collapse")
    return {
        Verdict.AS_PREDICTED: f"{way}: {good}",
        Verdict.OPPOSITE: f"{way}: {bad}",
        Verdict.NO_DIRECTION: f"{way}; {NO_DIRECTION}",
        Verdict.NOT_SHOWN: "not shown",
    }.get(verdict)


def many(number: int, noun: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def listed(names: Sequence[str], *, room: int = 90) -> str:
    """The first names that fit into this many characters, at least one; the others are counted."""
    kept: list[str] = []
    for name in names:
        if kept and len(", ".join([*kept, name])) > room:
            break
        kept.append(name)
    more = len(names) - len(kept)
    return f"{', '.join(kept)} and {more} more" if more else ", ".join(kept)


def amount(value: float, low: float | None, high: float | None, outcome: str) -> str:
    """`-0.0069 nats [-0.0102, -0.0035]`: a change of the outcome, with as many digits as its interval allows."""
    known = [bound for bound in (low, high) if bound is not None and math.isfinite(bound)]
    width = max(known) - min(known) if len(known) == 2 else abs(value)
    digits = min(8, max(0, 1 - math.floor(math.log10(width)))) if width > 0 else 4
    interval = f" [{low:+.{digits}f}, {high:+.{digits}f}]" if len(known) == 2 else ""
    return f"{value:+.{digits}f}{UNITS.get(outcome, '')}{interval}"


class OfMetric(Protocol):
    """A row about one metric, or about its logarithm."""

    @property
    def metric(self) -> str: ...

    @property
    def transform(self) -> str: ...


def metric_label(row: OfMetric) -> str:
    """`cdnv`, or `log cdnv`."""
    return row.metric if row.transform == "raw" else f"log {row.metric}"


Row = TypeVar("Row", bound=OfMetric)


def by_metric(rows: Sequence[Row]) -> Iterable[list[Row]]:
    """The rows of each metric, in the order in which the metrics come."""
    return ([row for row in rows if row.metric == metric] for metric in dict.fromkeys(row.metric for row in rows))
