"""The words of the analysis: verdicts and numbers in sentences, and the sentences about relations, arms and doses.

Every sentence begins with the effect, in units of the outcome and with its interval; r and p follow, then what may be
said. Statements with few sentences of their own have them in their file, made from the words here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from collapselab.analysis.arms import comparisons, unpaired
from collapselab.analysis.models import RELATED, UNKNOWN, Models, Regime
from collapselab.analysis.paired import gap_stays, proportion_of_losses
from collapselab.analysis.subsets import ALL, WITHIN, within_cells
from collapselab.analysis.verdict import Cause, Role, Verdict
from collapselab.records.outcomes import BITS_PER_BYTE, ON

if TYPE_CHECKING:
    from collapselab.analysis.controls import Control
    from collapselab.analysis.doses import Response
    from collapselab.analysis.effects import Effect
    from collapselab.analysis.relate import Relation

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

SHOWN = {Verdict.AS_PREDICTED: PREDICTED, Verdict.OPPOSITE: OPPOSITE, Verdict.NO_DIRECTION: f"where {NO_DIRECTION}"}
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
    ("trends", "trends"): 2, ("error rates", "summary"): 1,
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


def metric_label(row: Relation | Control) -> str:
    """`cdnv`, or `log cdnv`."""
    return row.metric if row.transform == "raw" else f"log {row.metric}"


# Relations

ACROSS, FIXED = "across models", "scale held fixed"
EXPLORED = 3
"""Metrics of a further family that have a sentence each; more are named together."""
FURTHER = {"exploration": "Exploring", "contexts": "Exploring contexts"}
"""The families beside the paper's, and how their sentences begin."""


def counted(row: Relation) -> str:
    """Say what the rows of a relation are: runs, and how many seeds they share. Checkpoints are never counted."""
    if row.subset == ALL:
        return many(row.n, "run")
    if row.shared_seeds and row.cells == 1:
        return f"{row.n} runs of {many(row.shared_seeds, 'seed')}"
    if row.shared_seeds:
        return f"{many(row.shared_seeds, 'seed')}, each in up to {row.cells} cells ({row.n} runs)"
    return many(row.n, "seed") if row.cells == 1 else f"{row.n} runs in {row.cells} cells"


def of_relations(models: Models, relations: Sequence[Relation]) -> Iterable[Sentence]:
    """Reversals; across models, which is a description; then with scale held fixed."""
    for across, within in reversals(relations):
        text = (
            f"{metric_label(within)} reverses: one standard deviation more comes with {_slope(within)} of "
            f"{within.outcome} at fixed scale (Holm p {within.p_holm:.2g}), and with {_slope(across)} across models."
        )
        yield Sentence(REVERSAL, "relate", text)
    yield from (Sentence(ACROSS, "relate", text) for text in _across_models(models, relations))
    yield from (Sentence(FIXED, "relate", text) for text in _at_fixed_scale(models, relations))


def reversals(relations: Sequence[Relation]) -> list[tuple[Relation, Relation]]:
    """Across models and at fixed scale: the pairs of rows that have opposite signs, both beyond doubt.

    At fixed scale a corrected test must show it; across models, where none can, the interval must exclude 0.
    """
    within = {row.metric: row for row in _main(relations, WITHIN) if row.verdict in SHOWN}
    return [
        (row, within[row.metric])
        for row in _main(relations, ALL)
        if row.metric in within and row.low is not None and row.high is not None and row.low * row.high > 0
        if (row.r or 0.0) * (within[row.metric].r or 0.0) < 0
    ]


def _across_models(models: Models, relations: Sequence[Relation]) -> Iterable[str]:
    rows = _main(relations, ALL)
    if not rows:
        yield f"No metric can be related to {models.outcome} across all models; relate.csv says why for each."
        return
    if models.trained["cell"].nunique() == 1:
        return  # seeds alone: what there is to say is said at fixed scale
    strongest = max(rows, key=lambda row: abs(row.r or 0.0))
    yield (
        f"Across {counted(strongest)}, descriptive only: one standard deviation more of {metric_label(strongest)} "
        f"comes with {_slope(strongest)} of {models.outcome} (r {strongest.r:+.2f}), the strongest relation."
    )
    fixed = {row.metric: row for row in _main(relations, WITHIN)}
    for row in rows:
        within = fixed.get(row.metric)
        beside = f"{_slope(within)} at fixed scale (r {within.r:+.2f})" if within else "at fixed scale not known"
        across = f"{_slope(row)} across models (r {row.r:+.2f})"
        yield f"{metric_label(row)}, per standard deviation: {across}, {beside}."


def says_nothing(rows: Sequence[Relation]) -> str:
    """Why no relation at fixed scale is known, and what to train where models are missing."""
    reason, cause = next(((row.why, row.why_code) for row in rows if row.why), (NOT_MEASURED, None))
    hint = " Train the same model with several seeds." if cause is Cause.TOO_FEW else ""
    return f"With scale held fixed these tables say nothing: {reason}{hint}"


def _at_fixed_scale(models: Models, relations: Sequence[Relation]) -> Iterable[str]:
    rows = [row for row in relations if row.subset == WITHIN]
    main = _main(rows, WITHIN)
    if not main:
        yield says_nothing(rows)
        return
    tested = [row for row in main if row.verdict not in (Verdict.TOO_FEW, Verdict.DESCRIPTION)]
    if not tested:
        why = next((row.why for row in main if row.verdict is Verdict.TOO_FEW), main[0].why)
        yield f"With scale held fixed: no verdict; {why}"
        return
    shown = _strongest_first(row for row in tested if row.verdict in SHOWN)
    start = f"With scale held fixed ({counted(tested[0])})"
    if shown:
        yield f"{start}: {_shown_words(models, shown[0])}"
    else:
        largest = _strongest_first(tested)[0]
        effect = f"{_slope(largest)} of {models.outcome}"
        yield f"{start}, nothing is shown; the largest is {metric_label(largest)} with {effect}."
    yield from (f"At fixed scale too, {_shown_words(models, row)}" for row in shown[1:])
    rest = [row for row in tested if row.verdict is Verdict.NOT_SHOWN]
    if rest:
        yield f"Not shown at fixed scale, which is not absent: {listed(_with_r(rest), room=140)}."
    first = tested[0]
    if first.detectable_r is None or first.detectable_r_corrected is None:
        yield "There are too few models to say what they could have found."
    else:
        yield (
            f"{counted(first)} find |r| of {first.detectable_r:.2f} with 80 % power, "
            f"{first.detectable_r_corrected:.2f} at the strictest step of the correction; a smaller one may be unseen."
        )
    for row in main:
        if row.verdict is Verdict.DESCRIPTION and RELATED[row.metric].parts:
            yield f"{row.metric} (r {row.r:+.2f}) has no verdict: {row.why}"
    if few := [row for row in main if row.verdict is Verdict.TOO_FEW]:
        yield f"At fixed scale, too few runs for {many(len(few), 'metric')}: {listed(_with_r(few))}."
    if first.cells == 1:
        model = models.trained.iloc[within_cells(models.trained).members[0]]
        cell = f"{model['architecture']}, {regime_words(Regime.read(model['regime']))}"
        yield f"All of that is one architecture in one regime ({cell}): whether it holds elsewhere is not known."
    for family, words in FURTHER.items():
        explored = [row for row in rows if row.family == family and row not in main and row.verdict in SHOWN]
        explored = _strongest_first(explored)
        yield from (f"{words}: {_shown_words(models, row)}" for row in explored[:EXPLORED])
        if more := explored[EXPLORED:]:
            yield f"{words}, {len(more)} more are shown (`relate.csv`): {listed(_with_r(more), room=130)}."


def _with_r(rows: Iterable[Relation]) -> list[str]:
    return [f"{metric_label(row)} (r {row.r:+.2f}{_without(row)})" for row in rows]


def _without(row: Relation) -> str:
    return f"; without run {row.influential}: r {row.r_without:+.2f}" if row.influential else ""


def _strongest_first(rows: Iterable[Relation]) -> list[Relation]:
    return sorted(rows, key=lambda row: -abs(row.r or 0.0))


def _shown_words(models: Models, row: Relation) -> str:
    return (
        f"one standard deviation between seeds of {metric_label(row)} comes with {_slope(row)} of {models.outcome}, "
        f"{SHOWN[row.verdict]} (r {row.r:+.2f}, Holm p {row.p_holm:.2g}{_without(row)})."
    )


def _main(relations: Iterable[Relation], subset: str) -> list[Relation]:
    """The rows of the paper's metrics that have a number, on the scale of the catalogue; where none, of all metrics."""
    known = [
        row
        for row in relations
        if row.subset == subset and row.r is not None and row.transform == RELATED[row.metric].transform
    ]
    return [row for row in known if row.family == "paper"] or known


def _slope(row: Relation) -> str:
    assert row.slope is not None
    return amount(row.slope, row.slope_low, row.slope_high, row.outcome)


# Arms and doses

TOPIC = "as a cause"
NOTABLE_CLIPPING = 0.1
"""Difference of the shares of clipped steps that is named."""
NAMED = 6
"""Arms that a sentence names; more are counted."""
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
        if models.trained["train_loss"].isna().all():
            yield (
                "Comparisons at equal training loss are not available: no training loss was evaluated at the "
                "checkpoints of these runs."
            )
    for verdict in SPOKEN:
        yield from (_effect_words(row, rows) for row in treated if row.verdict is verdict)
    yield from _further_words(rows)
    if missed := [row.label for row in treated if row.verdict is Verdict.DID_NOT_REACH]:
        yield f"Did not reach the property, so nothing is said of their outcome: {_first_names(missed)}."
    for why, labels in by_reason((row.why, row.label) for row in treated if row.verdict is Verdict.TOO_FEW).items():
        yield f"No verdict on {_first_names(labels)}; {why}"
    if moved := [f"{row.label} ({_amount_of(row)})" for row in outcomes if row.sham and row.verdict in COUNTED]:
        yield f"Shams that change {models.outcome} by themselves: {_first_names(moved)}."
    (lost, alone), labels_of_rows = unpaired(models), {row.label for row in outcomes}
    if failed := [arm.label for arm in lost if arm.label not in labels_of_rows]:
        yield f"No pair with {models.outcome} in arm and control, so not judged: {_first_names(failed)}."
    if alone:
        names_of_alone = [f"{label} ({many(count, 'run')})" for label, count in alone.items()]
        yield f"Without a control that has the same seeds and settings, so not judged: {_first_names(names_of_alone)}."


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
        shown = [f"{row.label} {_amount_of(row)}" for row in own if row.verdict in COUNTED]
        kind = "registered" if own[0].registered else "exploratory"
        if shown:
            more = f" and {len(shown) - 3} more" if len(shown) > 3 else ""
            text = f"{', '.join(shown[:3])}{more}"
            yield f"{name} ({kind}) changes in {len(shown)} of {many(len(own), 'arm')}: {text}."
        else:
            yield f"{name} ({kind}): no evidence of a change in any of {many(len(own), 'arm')}."


def _overview(models: Models, treated: Sequence[Effect], outcomes: Sequence[Effect]) -> str:
    shams = len(outcomes) - len(treated)
    pairs = [row.n for row in outcomes]
    seeds = many(pairs[0], "pair") if min(pairs) == max(pairs) else f"{min(pairs)} to {max(pairs)} pairs"
    beside = f" and {many(shams, 'sham')}" if shams else ""
    planned, unplanned = "registered before the first run", "exploratory: not registered beforehand"
    kind = planned if outcomes[0].registered else unplanned
    counts = [(sum(row.verdict is verdict for row in treated), verdict) for verdict in Verdict]
    listed = ", ".join(
        f"{count} {COUNTED.get(verdict, verdict) if count > 1 else verdict}" for count, verdict in counts if count
    )
    by_verdict = f" Arms by their effect on {models.outcome}: {listed}." if treated else ""
    arms = f"{many(len(treated), 'arm')}{beside}"
    return f"{arms} against runs that differ in the arm alone, {seeds} each ({kind}).{by_verdict}"


def _effect_words(row: Effect, rows: Sequence[Effect]) -> str:
    assert row.effect is not None
    if row.verdict in (Verdict.HELPS, Verdict.HARMS):
        change = f"{'raises' if row.effect > 0 else 'lowers'} {row.metric} by "
        change += size(row.effect, row.low, row.high, row.metric)
    else:
        change = f"changes {row.metric} by {_amount_of(row)}"
    numbers = [f"{row.n} pairs", f"p {row.p_holm:.2g}" if row.p_holm is not None else ""]
    if row.skewed and row.verdict in COUNTED:
        numbers.insert(1, f"skewed: median {_signed(row.median)}, {max(row.lower, row.higher)} of {row.n} seeds")
    if row.verdict is Verdict.EQUIVALENT and row.margin is not None:
        numbers[-1] = f"within ±{row.margin:.2g}, p {row.p_equivalence:.2g}"
    elif row.verdict is Verdict.UNDECIDED and row.margin is not None and row.why is None:
        numbers.append(f"±{row.margin:.2g} would matter")
    parts = [f"{row.label} {change} ({', '.join(filter(None, numbers))}): {row.verdict}."]
    if row.why:
        parts.append(row.why)
    if targets := [_moved(one) for one in rows if one.key == row.key and one.role is Role.TARGET and one.n]:
        parts.append(f"It moved {', '.join(targets)}.")
    if row.movement is Verdict.IN_CONFLICT:
        parts.append("The metrics of its property disagree.")
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
    return "?" if value is None else f"{value:+.3g}".replace("-", "\N{MINUS SIGN}")


def _first_names(names: Sequence[str]) -> str:
    listed = ", ".join(names[:NAMED])
    return f"{listed} and {len(names) - NAMED} more" if len(names) > NAMED else listed


def of_doses(models: Models, rows: Sequence[Response]) -> Iterable[Sentence]:
    """One sentence for the outcome under each arm with several doses; those of which nothing can be said in one."""
    arms = {row.key: [other for other in rows if other.key == row.key] for row in rows if row.metric == models.outcome}
    texts = [_dose_words(along) for along in arms.values() if along[0].p_holm is not None]
    untested = ((along[0].why, along[0].arm) for along in arms.values() if along[0].p_holm is None)
    for why, names in by_reason(untested).items():  # an arm may be in several cells
        arms_of_reason = _first_names([*dict.fromkeys(names)])
        texts.append(f"Whether {models.outcome} follows the dose of {arms_of_reason}: no verdict; {why}")
    return [Sentence(TOPIC, "doses", text) for text in texts]


def _dose_words(rows: Sequence[Response]) -> str:
    first = rows[0]
    listed = ", ".join(f"{_signed(row.effect)} at {_signed(row.dose)}" for row in rows if row.dose)
    where = f" ({first.where})" if first.where else ""
    unit = f" in{unit}" if (unit := unit_of(first.metric)) else ""
    said = f"{first.trend} with the dose" if first.trend else "no trend with the dose shown"
    return (
        f"{first.arm}{where} by dose, change of {first.metric}{unit}: {listed}; {said} (Page's test in {first.n} "
        f"seeds, p {first.p_holm:.2g})."
    )
