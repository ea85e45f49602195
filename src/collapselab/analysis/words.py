"""The words for verdicts, in tables and in sentences. Every file of the analysis uses these."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, final

from collapselab.analysis.regime import UNKNOWN, Regime
from collapselab.analysis.verdict import Verdict
from collapselab.records.outcomes import BITS_PER_BYTE, ON

OPPOSITE = "in the opposite direction"
PREDICTED = "as collapse predicts"
NO_DIRECTION = "collapse predicts no direction"
NOT_MEASURED = "no metric was measured."
REVERSAL = "reversal"
"""The topic that is said before all others."""
LONGEST = 200
"""Characters of a sentence: two lines."""
NATS = (
    "val_loss", "train_loss", "macro_loss", "rare_loss", "gap", "loss_after_temperature", "corruption_slope",
)  # fmt: skip
"""Outcomes that are cross-entropies, or differences of them."""

SHOWN = {
    Verdict.AS_PREDICTED: PREDICTED,
    Verdict.OPPOSITE: OPPOSITE,
    Verdict.NO_DIRECTION: f"where {NO_DIRECTION}",
}
"""What is significant, in the words that follow a count."""
ALONG = {
    Verdict.AS_PREDICTED: "toward collapse",
    Verdict.OPPOSITE: "away from collapse",
    Verdict.NO_DIRECTION: "in one direction, where collapse predicts none",
}
"""How the part of a sentence begins that lists the metrics with a trend."""


@final
@dataclass(frozen=True)
class Sentence:
    """One sentence of the summary, its topic, and the table that it is made from."""

    topic: str
    table: str
    text: str


IN_SUMMARY = {
    ("models", "runs"): 1, (REVERSAL, "relate"): 1, ("as a cause", "effects"): 3, ("as a cause", "attribution"): 1,
    ("properties", "properties"): 1, ("scale held fixed", "relate"): 1, ("controls", "controls"): 1,
    ("trends", "trends"): 1, ("error rates", "summary"): 1,
}  # fmt: skip
"""The most sentences of each topic and table in the short summary; `short_summary` keeps ten."""
NO_ANSWER = ("no verdict", "not available", "cannot be attributed")
"""Words of sentences that say why a question has no answer."""


def short_summary(sentences: Sequence[Sentence]) -> list[Sentence]:
    """Return at most ten sentences that answer the five questions; those without an answer come last."""
    chosen = []
    for key, most in IN_SUMMARY.items():
        own = [sentence for sentence in sentences if (sentence.topic, sentence.table) == key]
        chosen += sorted(own, key=_has_no_answer)[:most]
    first, rest = chosen[:1], chosen[1:]
    return [*first, *sorted(rest, key=_has_no_answer)][:10]


def _has_no_answer(sentence: Sentence) -> bool:
    return any(words in sentence.text for words in NO_ANSWER)


def relation_words(verdict: Verdict, *, outcome: str, better: int) -> str:
    """The verdict on a correlation with the outcome, in a sentence."""
    lower, higher = ("lower", "higher") if better < 0 else ("higher", "lower")
    return {
        Verdict.AS_PREDICTED: f"more collapse correlates with {lower} {outcome}",
        Verdict.OPPOSITE: f"significant {OPPOSITE}: more collapse correlates with {higher} {outcome}",
        Verdict.NO_DIRECTION: f"significant; {NO_DIRECTION}",
        Verdict.NOT_SHOWN: "not shown",
        Verdict.TOO_FEW: Verdict.TOO_FEW.value,
        Verdict.DESCRIPTION: "a description, without a test",
    }[verdict]


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


def regime_words(regime: Regime, name_of: Callable[[str], str] = str) -> str:
    """`epochs=10 epoch=6 weight_decay=0.1` as `10 epochs, at epoch 6, weight_decay 0.1`."""
    if not regime.settings:
        return str(regime)
    if _rounded(regime.number("epochs")) == _rounded(regime.number("epoch")):
        regime = regime.without("epoch") if regime.number("epoch") is not None else regime  # a run at its end
    return ", ".join(_setting_words(name, value, name_of) for name, value in regime.settings)


def _setting_words(name: str, value: float | str | None, name_of: Callable[[str], str]) -> str:
    if name == "epochs":
        count = _rounded(value)
        return f"{count} epoch{'' if count == '1' else 's'}"
    if name == "epoch":
        return f"at epoch {_rounded(value)}"
    if name == "intervene":
        return "no intervention" if value is None else str(value)
    shown = UNKNOWN if value is None else f"{value:g}" if isinstance(value, float) else value
    return f"{name_of(name)} {shown}"


def _rounded(value: float | str | None) -> str:
    """`0.0997506` as `0.0998`: a checkpoint is at a whole step, near the epoch that it is called after."""
    return f"{value:.3g}" if isinstance(value, float) else UNKNOWN


def unit_of(outcome: str) -> str:
    """` nats` or ` bits per byte`, to follow a number; nothing for an outcome without a unit."""
    if outcome in NATS or outcome.startswith("entropy_gap_"):
        return " nats"
    return " bits per byte" if outcome == BITS_PER_BYTE or outcome.startswith(ON) else ""


def amount(value: float, low: float | None, high: float | None, outcome: str) -> str:
    """`-0.0069 nats [-0.0102, -0.0035]`: a change of the outcome, with as many digits as its interval allows."""
    return _with_interval(value, low, high, outcome, "+")


def size(value: float, low: float | None, high: float | None, outcome: str) -> str:
    """`0.0069 nats [0.0035, 0.0102]`: the same without its sign, after words that say the direction."""
    if value < 0 and low is not None and high is not None:
        low, high = -high, -low
    return _with_interval(abs(value), low, high, outcome, "")


def _with_interval(value: float, low: float | None, high: float | None, outcome: str, sign: str) -> str:
    known = [bound for bound in (low, high) if bound is not None and math.isfinite(bound)]
    width = max(known) - min(known) if len(known) == 2 else abs(value)
    digits = min(8, max(0, 1 - math.floor(math.log10(width)))) if width > 0 else 4
    digits += value != 0 and round(value, digits) == 0
    interval = f" [{low:{sign}.{digits}f}, {high:{sign}.{digits}f}]" if len(known) == 2 else ""
    return f"{value:{sign}.{digits}f}{unit_of(outcome)}{interval}"


class OfMetric(Protocol):
    """A row about one metric, or about its logarithm."""

    @property
    def metric(self) -> str: ...

    @property
    def transform(self) -> str: ...


def metric_label(row: OfMetric) -> str:
    """`cdnv`, or `log cdnv`."""
    return row.metric if row.transform == "raw" else f"log {row.metric}"
