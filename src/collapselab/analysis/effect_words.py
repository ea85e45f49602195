"""The sentences about arms: the effect first, with its interval and unit, then the test, then what may be said."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from collapselab.analysis.doses import Response
from collapselab.analysis.effects import Effect, Role
from collapselab.analysis.learning_speed import about_speed
from collapselab.analysis.lost_runs import unpaired
from collapselab.analysis.models import Models
from collapselab.analysis.verdict import Verdict
from collapselab.analysis.words import LONGEST, Sentence, amount, many, size, unit_of

TOPIC = "as a cause"
Judged = TypeVar("Judged", Effect, Response)
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
    outcomes = [row for row in rows if row.role is Role.OUTCOME]
    treated = [row for row in outcomes if not row.sham]
    if treated and (speed := about_speed(models, treated[0].margin)):
        yield _sentence("effects", speed)
    if outcomes:
        yield _sentence("effects", _overview(models, treated, outcomes))
        if models.trained["train_loss"].isna().all():
            yield _sentence("effects", "Comparisons at equal training loss are not available: no training loss was "
                            "evaluated at the checkpoints of these runs.")  # fmt: skip
    for verdict in SPOKEN:
        for row in treated:
            if row.verdict is verdict:
                yield _sentence("effects", _effect_words(models, row, rows))
    yield from (_sentence("effects", text) for text in _further_words(rows))
    if missed := [row for row in treated if row.verdict is Verdict.DID_NOT_REACH]:
        names = _names([row.label for row in missed])
        yield _sentence("effects", f"Did not reach the property, so nothing is said of their outcome: {names}.")
    for why, untold in _by_reason(row for row in treated if row.verdict is Verdict.TOO_FEW):
        yield _sentence("effects", f"No verdict on {_names([row.label for row in untold])}; {why}")
    if moved := [row for row in outcomes if row.sham and row.verdict in (Verdict.HELPS, Verdict.HARMS)]:
        listed = ", ".join(
            f"{row.label} ({amount(row.effect or 0.0, row.low, row.high, row.metric)})" for row in moved[:NAMED]
        )
        yield _sentence("effects", f"Shams that change {models.outcome} by themselves: {listed}.")
    yield from (_sentence("effects", text) for text in _unpaired_words(models, {row.label for row in outcomes}))


def _further_words(rows: Sequence[Effect]) -> Iterable[str]:
    """For every further outcome the arms that are shown to change it, or that none is."""
    further = [row for row in rows if row.role is Role.FURTHER and not row.sham and row.p_holm is not None]
    for name in dict.fromkeys(row.metric for row in further):
        own = [row for row in further if row.metric == name]
        shown = [row for row in own if row.verdict in COUNTED]
        kind = "registered" if own[0].registered else "exploratory"
        if shown:
            listed = ", ".join(f"{row.label} {amount(row.effect or 0.0, row.low, row.high, name)}" for row in shown[:3])
            more = f" and {len(shown) - 3} more" if len(shown) > 3 else ""
            yield f"{name} ({kind}) changes in {len(shown)} of {many(len(own), 'arm')}: {listed}{more}."
        else:
            yield f"{name} ({kind}): no evidence of a change in any of {many(len(own), 'arm')}."


def _unpaired_words(models: Models, judged: set[str]) -> Iterable[str]:
    """The arms that have no pair: all their runs failed, or they have no control."""
    runs = unpaired(models)
    if failed := [arm.label for arm in runs.lost if arm.label not in judged]:
        yield f"No pair with {models.outcome} in arm and control, so not judged: {_names(failed)}."
    if runs.alone:
        names = _names([f"{label} ({many(count, 'run')})" for label, count in runs.alone.items()])
        yield f"Without a control that has the same seeds and settings, so not judged: {names}."


def _sentence(table: str, text: str) -> Sentence:
    return Sentence(TOPIC, table, text)


def _overview(models: Models, treated: Sequence[Effect], outcomes: Sequence[Effect]) -> str:
    shams = len(outcomes) - len(treated)
    pairs = [row.n for row in outcomes]
    seeds = many(pairs[0], "pair") if min(pairs) == max(pairs) else f"{min(pairs)} to {max(pairs)} pairs"
    beside = f" and {many(shams, 'sham')}" if shams else ""
    kind = (
        "registered before the first run"
        if outcomes[0].registered
        else "exploratory: nothing was registered beforehand"
    )
    counts = [(sum(row.verdict is verdict for row in treated), verdict) for verdict in Verdict]
    listed = ", ".join(
        f"{count} {COUNTED.get(verdict, verdict) if count > 1 else verdict}" for count, verdict in counts if count
    )
    by_verdict = f" Arms by their effect on {models.outcome}: {listed}." if treated else ""
    arms = f"{many(len(treated), 'arm')}{beside}"
    return f"{arms} against runs that differ in the arm alone, {seeds} each ({kind}).{by_verdict}"


def _effect_words(models: Models, row: Effect, rows: Sequence[Effect]) -> str:
    assert row.effect is not None
    if row.verdict in (Verdict.HELPS, Verdict.HARMS):
        change = f"{'raises' if row.effect > 0 else 'lowers'} {row.metric} by "
        change += size(row.effect, row.low, row.high, row.metric)
    else:
        change = f"changes {row.metric} by {amount(row.effect, row.low, row.high, row.metric)}"
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
    targets = [
        other for other in rows if other.key == row.key and other.role is Role.TARGET and other.effect is not None
    ]
    if targets:
        parts.append(f"It moved {', '.join(map(_moved, targets))}.")
    if row.movement is Verdict.IN_CONFLICT:
        parts.append("The metrics of its property disagree.")
    if row.why is None and (row.lost or row.lost_controls):
        parts.append(f"{many(row.lost + row.lost_controls, 'pair')} without {row.metric} left out.")
    if row.cell_low is not None and row.cell_high is not None and row.cell_low < 0 < row.cell_high:
        parts.append(f"Not alike in its {row.cells} cells: {_signed(row.cell_low)} to {_signed(row.cell_high)}.")
    if row.far:
        parts.append(f"Outlying (robust deviations): {row.far}; median {_signed(row.median)}.")
    if row.equal_loss is not None:
        at_equal = amount(row.equal_loss, row.equal_loss_low, row.equal_loss_high, row.metric)
        parts.append(f"At equal training loss {at_equal} ({many(row.equal_loss_n, 'pair')}).")
    if row.clipped is not None and abs(row.clipped) >= NOTABLE_CLIPPING:
        parts.append(f"Clipped steps: {100 * row.clipped:+.0f} points.")
    while len(" ".join(parts)) > LONGEST and len(parts) > 2:
        parts.pop()
    return " ".join(parts)


def _moved(row: Effect) -> str:
    sham = f" (sham {_signed(row.sham_effect)})" if row.sham_effect is not None else ""
    return f"{row.metric} by {_signed(row.effect)}{sham}"


def _signed(value: float | None) -> str:
    return "?" if value is None else f"{value:+.3g}".replace("-", "\N{MINUS SIGN}")


def _names(names: Sequence[str]) -> str:
    listed = ", ".join(names[:NAMED])
    return f"{listed} and {len(names) - NAMED} more" if len(names) > NAMED else listed


def _by_reason(rows: Iterable[Judged]) -> Iterable[tuple[str, list[Judged]]]:
    """Rows that nothing can be said of, with the reason that they share."""
    reasons: dict[str, list[Judged]] = {}
    for row in rows:
        reasons.setdefault(row.why or "", []).append(row)
    return reasons.items()


def of_doses(models: Models, rows: Sequence[Response]) -> Iterable[Sentence]:
    """One sentence for the outcome under each arm with several doses; those of which nothing can be said in one."""
    arms = {row.key: [other for other in rows if other.key == row.key] for row in rows if row.metric == models.outcome}
    for along in arms.values():
        if along[0].p_holm is not None:
            yield _sentence("doses", _dose_words(along))
    for why, untold in _by_reason(along[0] for along in arms.values() if along[0].p_holm is None):
        names = _names(list(dict.fromkeys(row.arm for row in untold)))  # an arm may be in several cells
        yield _sentence("doses", f"Whether {models.outcome} follows the dose of {names}: no verdict; {why}")


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
