"""Sentences: their parts that statements share, the short summary, and the sentences about arms and doses.

A sentence gives the effect first, in units of the outcome and with its interval, then r and p, then the verdict. All
other statements have their sentences in their own file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from collapselab.analysis.arms import comparisons, unpaired
from collapselab.analysis.models import UNKNOWN, Models, Regime
from collapselab.analysis.paired import gap_stays, proportion_of_losses
from collapselab.analysis.verdict import Role, Verdict
from collapselab.records.outcomes import BITS_PER_BYTE, ON

if TYPE_CHECKING:
    from collapselab.analysis.effects import Effect, Response

OPPOSITE = "in the opposite direction"
PREDICTED = "as collapse predicts"
NO_DIRECTION = "collapse predicts no direction"
REVERSAL = "reversal"
"""The topic that is said before all others."""
LONGEST = 200
"""Characters of a sentence: two lines."""
NATS = (
    "val_loss", "train_loss", "macro_loss", "rare_loss", "gap", "loss_after_temperature", "corruption_slope",
)  # fmt: skip
"""Outcomes that are cross-entropies, or differences of them."""

SHOWN = {Verdict.AS_PREDICTED: PREDICTED, Verdict.OPPOSITE: OPPOSITE, Verdict.NO_DIRECTION: f"where {NO_DIRECTION}"}
"""What is significant, in the words that follow a count."""
ALONG = {
    Verdict.AS_PREDICTED: "toward collapse",
    Verdict.OPPOSITE: "away from collapse",
    Verdict.NO_DIRECTION: "in one direction, where collapse predicts none",
}
"""How the part of a sentence begins that lists the metrics with a trend."""


@dataclass(frozen=True)
class Sentence:
    """One sentence of the summary, its topic, and the table that it is made from."""

    topic: str
    table: str
    text: str


IN_SUMMARY = {
    ("models", "runs"): 1, (REVERSAL, "relate"): 1, ("as a cause", "effects"): 3, ("as a cause", "attribution"): 1,
    ("properties", "properties"): 1, ("scale held fixed", "relate"): 1, ("controls", "controls"): 1,
    ("trends", "trends"): 2, ("error rates", "summary"): 1,
}  # fmt: skip
"""The most sentences of each topic and table in the short summary; `short_summary` keeps ten."""
NOT_SHOWN = ("nothing is shown", "no evidence", ": undecided.")
NO_ANSWER = ("no verdict", "say nothing", "cannot be attributed")
"""Words of sentences without a claim: nothing was shown, or the question has no answer."""


def short_summary(sentences: Sequence[Sentence]) -> list[Sentence]:
    """Return at most ten sentences that answer the five questions, the most certain first."""
    chosen = []
    for key, most in IN_SUMMARY.items():
        own = [sentence for sentence in sentences if (sentence.topic, sentence.table) == key]
        chosen += sorted(own, key=lambda sentence: _doubt(sentence) == 2)[:most]
    return [*chosen[:1], *sorted(chosen[1:], key=_doubt)][:10]


def _doubt(sentence: Sentence) -> int:
    """0 for a claim or a description, 1 where nothing is shown, 2 without an answer."""
    text = sentence.text.lower()
    return 2 if any(words in text for words in NO_ANSWER) else int(any(words in text for words in NOT_SHOWN))


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


def by_reason(reasons: Iterable[tuple[str | None, str]]) -> dict[str, list[str]]:
    """The names of rows without a verdict, by the reason that they share."""
    names: dict[str, list[str]] = {}
    for why, name in reasons:
        names.setdefault(why or "", []).append(name)
    return names


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


def label_of(metric: str, transform: str) -> str:
    """`cdnv`, or `log cdnv`."""
    return metric if transform == "raw" else f"log {metric}"


def amount(value: float, low: float | None, high: float | None, outcome: str) -> str:
    """`-0.0069 nats [-0.0102, -0.0035]`: a change of the outcome, with as many digits as its interval allows."""
    known = [bound for bound in (low, high) if bound is not None and math.isfinite(bound)]
    width = max(known) - min(known) if len(known) == 2 else abs(value)
    digits = min(8, max(0, 1 - math.floor(math.log10(width)))) if width > 0 else 4
    digits += value != 0 and round(value, digits) == 0
    interval = f" [{low:+.{digits}f}, {high:+.{digits}f}]" if len(known) == 2 else ""
    return f"{value:+.{digits}f}{unit_of(outcome)}{interval}"


# Arms and doses

TOPIC = "as a cause"
NOTABLE_CLIPPING = 0.1
"""Difference of the shares of clipped steps that is named."""
COUNTED = {Verdict.HELPS: "help", Verdict.HARMS: "harm"}
"""Verdicts that are verbs, of several arms."""
SPOKEN = (Verdict.HELPS, Verdict.HARMS, Verdict.EQUIVALENT, Verdict.UNDECIDED)
"""Verdicts whose arms have a sentence each."""


def of_effects(models: Models, rows: Sequence[Effect]) -> Iterable[Sentence]:
    """How many arms there are and how they fared, then each arm of which something can be said."""
    return (Sentence(TOPIC, "effects", text) for text in _words_of_effects(models, rows))


def _words_of_effects(models: Models, rows: Sequence[Effect]) -> Iterable[str]:
    outcomes = [row for row in rows if row.role is Role.OUTCOME]
    treated = [row for row in outcomes if not row.sham]
    if treated and (speed := about_speed(models, treated[0].margin)):
        yield speed
    if outcomes:
        yield _overview(models, treated, outcomes)
    for verdict in SPOKEN:
        yield from (_effect_words(row, rows) for row in treated if row.verdict is verdict)
    yield from _further_words(rows)
    if missed := [row.label for row in treated if row.verdict is Verdict.DID_NOT_REACH]:
        yield f"Did not move the metric that they must move, so not judged: {listed(missed)}."
    for why, labels in by_reason((row.why, row.label) for row in treated if row.verdict is Verdict.TOO_FEW).items():
        yield f"No verdict on {listed(labels)}; {why}"
    if moved := [f"{row.label} ({_amount_of(row)})" for row in outcomes if row.sham and row.verdict in COUNTED]:
        yield f"Shams that change {models.outcome} by themselves: {listed(moved)}."
    if outcomes and models.trained["train_loss"].isna().all():
        yield "No comparison at equal training loss: no checkpoint has an evaluated training loss."
    (lost, alone), labels_of_rows = unpaired(models), {row.label for row in outcomes}
    if failed := [arm.label for arm in lost if arm.label not in labels_of_rows]:
        yield f"Not judged, as in no seed arm and control both have {models.outcome}: {listed(failed)}."
    if alone:
        names = [f"{label} ({many(count, 'run')})" for label, count in alone.items()]
        yield f"Not judged, as there is no control with the same seeds and settings: {listed(names)}."


def about_speed(models: Models, margin: float | None) -> str | None:
    """The sentence that a suite is about learning speed; None where it is about generalisation too."""
    compared = [comparison for comparison in comparisons(models) if not comparison.arm.sham]
    if not compared:
        return None
    epochs = float(models.trained.loc[models.trained["last"], "epoch"].max())
    if epochs < 1:
        reason = f"its runs see {epochs:.2g} of an epoch, so no text twice"
    elif gap_stays(compared, margin):
        reason = f"no arm changes the gap between validation and training loss by ±{margin:.2g} or more"
    else:
        return None
    parts = [f"This suite is about learning speed: {reason}", proportion_of_losses(compared)]
    return ". ".join(filter(None, parts)) + "."


def _further_words(rows: Sequence[Effect]) -> Iterable[str]:
    """For every further outcome the arms that are shown to change it, or that none is."""
    further = [row for row in rows if row.role is Role.FURTHER and not row.sham and row.p_holm is not None]
    for name in dict.fromkeys(row.metric for row in further):
        own = [row for row in further if row.metric == name]
        start = f"{name} ({'registered' if own[0].registered else 'exploratory'})"
        if shown := [f"{row.label} {_amount_of(row)}" for row in own if row.verdict in COUNTED]:
            yield f"{start} changes in {len(shown)} of {many(len(own), 'arm')}: {listed(shown, room=125)}."
        else:
            yield f"{start}: no evidence of a change in any of {many(len(own), 'arm')}."


def _overview(models: Models, treated: Sequence[Effect], outcomes: Sequence[Effect]) -> str:
    shams, pairs = len(outcomes) - len(treated), sorted({row.n for row in outcomes})
    arms = many(len(treated), "arm") + (f" and {many(shams, 'sham')}" if shams else "")
    seeds = many(pairs[0], "pair") if len(pairs) == 1 else f"{pairs[0]} to {pairs[-1]} pairs"
    kind = "registered before the first run" if outcomes[0].registered else "exploratory: not registered beforehand"
    counts = [(sum(row.verdict is verdict for row in treated), verdict) for verdict in Verdict]
    verdicts = ", ".join(
        f"{count} {COUNTED.get(verdict, verdict) if count > 1 else verdict}" for count, verdict in counts if count
    )
    by_verdict = f" Effects on {models.outcome}: {verdicts}." if treated else ""
    return f"{arms}, each compared with controls that differ in nothing else ({seeds} each; {kind}).{by_verdict}"


def _effect_words(row: Effect, rows: Sequence[Effect]) -> str:
    numbers = [many(row.n, "pair"), f"p {row.p_holm:.2g}" if row.p_holm is not None else ""]
    if row.skewed and row.verdict in COUNTED:
        numbers.insert(1, f"skewed: median {_signed(row.median)}, {max(row.lower, row.higher)} of {row.n} seeds")
    if row.verdict is Verdict.EQUIVALENT and row.margin is not None:
        numbers[-1] = f"within ±{row.margin:.2g}, p {row.p_equivalence:.2g}"
    elif row.verdict is Verdict.UNDECIDED and row.margin is not None and row.why is None:
        numbers.append(f"±{row.margin:.2g} would matter")
    change = f"changes {row.metric} by {_amount_of(row)}"
    parts = [f"{row.label} {change} ({', '.join(filter(None, numbers))}): {row.verdict}."]
    if row.why:
        parts.append(row.why)
    if targets := [_moved(one) for one in rows if one.key == row.key and one.role is Role.TARGET and one.n]:
        opposed = f", but {listed(row.opposed.split(), room=30)} the other way" if row.opposed else ""
        parts.append(f"It moved {', '.join(targets)}{opposed}.")
    if row.why is None and (row.lost or row.lost_controls):
        parts.append(f"{many(row.lost + row.lost_controls, 'pair')} without {row.metric} left out.")
    if row.equal_loss is not None:
        at_equal = amount(row.equal_loss, row.equal_loss_low, row.equal_loss_high, row.metric)
        parts.append(f"At equal training loss {at_equal} ({many(row.equal_loss_n, 'pair')}).")
    if row.clipped is not None and abs(row.clipped) >= NOTABLE_CLIPPING:
        parts.append(f"Clipped steps: {100 * row.clipped:+.0f} points.")
    while len(" ".join(parts)) > LONGEST and len(parts) > 2:
        parts.pop()
    return " ".join(parts)


def _amount_of(row: Effect) -> str:
    return amount(row.effect or 0.0, row.low, row.high, row.metric)


def _moved(row: Effect) -> str:
    sham = f" (sham {_signed(row.sham_effect)})" if row.sham_effect is not None else ""
    return f"{row.metric} by {_signed(row.effect)}{sham}"


def _signed(value: float | None) -> str:
    return "?" if value is None else f"{value:+.3g}"


def of_doses(models: Models, rows: Sequence[Response]) -> Iterable[Sentence]:
    """One sentence for the outcome under each arm with several doses; those of which nothing can be said in one."""
    arms = {row.key: [other for other in rows if other.key == row.key] for row in rows if row.metric == models.outcome}
    texts = [_dose_words(along) for along in arms.values() if along[0].p_holm is not None]
    untested = ((along[0].why, along[0].arm) for along in arms.values() if along[0].p_holm is None)
    for why, names in by_reason(untested).items():  # an arm may be in several cells
        texts.append(
            f"Whether {models.outcome} follows the dose of {listed([*dict.fromkeys(names)])}: no verdict; {why}"
        )
    return [Sentence(TOPIC, "doses", text) for text in texts]


def _dose_words(rows: Sequence[Response]) -> str:
    first = rows[0]
    effects = ", ".join(f"{_signed(row.effect)} at {_signed(row.dose)}" for row in rows if row.dose)
    where, unit = f" ({first.where})" if first.where else "", unit_of(first.metric)
    trend = f"{first.trend} with the dose" if first.trend else "no trend with the dose shown"
    return (
        f"{first.arm}{where} changes {first.metric} by dose{f', in{unit}' if unit else ''}: {effects}; {trend} (Page's "
        f"test, {first.n} seeds, p {first.p_holm:.2g})."
    )
