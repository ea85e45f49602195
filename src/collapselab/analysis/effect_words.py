"""The sentences about arms: the effect first, with its interval and unit, then the test, then what may be said."""

from collections.abc import Iterable, Sequence

from collapselab.analysis.doses import Response
from collapselab.analysis.effects import Effect, Judgement, Role
from collapselab.analysis.instruments import Carried, Instrument
from collapselab.analysis.models import Models
from collapselab.analysis.words import Sentence, amount, many, size, unit_of

TOPIC = "as a cause"
NAMED = 6
"""Arms that a sentence names; more are counted."""
COUNTED = {Judgement.HELPS: "help", Judgement.HARMS: "harm"}
"""Verdicts that are verbs, of several arms."""
SPOKEN = (Judgement.HELPS, Judgement.HARMS, Judgement.EQUIVALENT, Judgement.UNDECIDED)
"""Verdicts whose arms have a sentence each."""


def of_effects(models: Models, rows: Sequence[Effect]) -> Iterable[Sentence]:
    """How many arms there are and how they fared, then each arm of which something can be said."""
    outcomes = [row for row in rows if row.role is Role.OUTCOME]
    treated = [row for row in outcomes if not row.sham]
    if not outcomes:
        return
    yield _sentence("effects", _overview(models, treated, outcomes))
    for verdict in SPOKEN:
        for row in treated:
            if row.verdict is verdict:
                yield _sentence("effects", _effect_words(models, row, rows))
    if missed := [row for row in treated if row.verdict is Judgement.DID_NOT_REACH]:
        yield _sentence(
            "effects", f"Did not reach the property, so nothing is said of their outcome: {_names(missed)}."
        )
    if untold := [row for row in treated if row.verdict is Judgement.CANNOT_TELL]:
        yield _sentence("effects", f"Cannot tell for {_names(untold)}: {untold[0].why}")
    if moved := [row for row in outcomes if row.sham and row.verdict in (Judgement.HELPS, Judgement.HARMS)]:
        listed = ", ".join(
            f"{row.label} ({amount(row.effect or 0.0, row.low, row.high, row.metric)})" for row in moved[:NAMED]
        )
        yield _sentence("effects", f"Shams that change {models.outcome} by themselves: {listed}.")


def _sentence(table: str, text: str) -> Sentence:
    return Sentence(TOPIC, table, text)


def _overview(models: Models, treated: Sequence[Effect], outcomes: Sequence[Effect]) -> str:
    shams = len(outcomes) - len(treated)
    pairs = [row.n for row in outcomes]
    seeds = f"{min(pairs)}" if min(pairs) == max(pairs) else f"{min(pairs)} to {max(pairs)}"
    beside = f" and {many(shams, 'sham')}" if shams else ""
    kind = (
        "registered before the first run"
        if outcomes[0].registered
        else "exploratory: nothing was registered beforehand"
    )
    counts = [(sum(row.verdict is verdict for row in treated), verdict) for verdict in Judgement]
    listed = ", ".join(f"{count} {COUNTED.get(verdict, verdict)}" for count, verdict in counts if count)
    return (
        f"{many(len(treated), 'arm')}{beside} against runs that differ in the arm alone, {seeds} pairs each ({kind}). "
        f"Arms by their effect on {models.outcome}: {listed}."
    )


def _effect_words(models: Models, row: Effect, rows: Sequence[Effect]) -> str:
    assert row.effect is not None
    if row.verdict in (Judgement.HELPS, Judgement.HARMS):
        change = f"{'raises' if row.effect > 0 else 'lowers'} {row.metric} by "
        change += size(row.effect, row.low, row.high, row.metric)
    else:
        change = f"changes {row.metric} by {amount(row.effect, row.low, row.high, row.metric)}"
    numbers = [f"{row.n} pairs", f"p {row.p_holm:.2g}" if row.p_holm is not None else ""]
    if row.verdict is Judgement.EQUIVALENT and row.margin is not None:
        numbers[-1] = f"within ±{row.margin:.2g}, p {row.p_equivalence:.2g}"
    elif row.verdict is Judgement.UNDECIDED and row.margin is not None:
        numbers.append(f"±{row.margin:.2g} would matter")
    parts = [f"{row.label} {change} ({', '.join(filter(None, numbers))}): {row.verdict}."]
    targets = [
        other for other in rows if other.key == row.key and other.role is Role.TARGET and other.effect is not None
    ]
    if targets:
        parts.append(f"It moved {', '.join(map(_moved, targets))}.")
    if row.far:
        parts.append(f"Outlying (robust deviations): {row.far}; median {_signed(row.median)}.")
    return " ".join(parts)


def _moved(row: Effect) -> str:
    sham = f" (sham {_signed(row.sham_effect)})" if row.sham_effect is not None else ""
    return f"{row.metric} by {_signed(row.effect)}{sham}"


def _signed(value: float | None) -> str:
    return "?" if value is None else f"{value:+.3g}".replace("-", "\N{MINUS SIGN}")


def _names(rows: Sequence[Effect]) -> str:
    listed = ", ".join(row.label for row in rows[:NAMED])
    return f"{listed} and {len(rows) - NAMED} more" if len(rows) > NAMED else listed


def of_doses(models: Models, rows: Sequence[Response]) -> Iterable[Sentence]:
    """One sentence for the outcome under each arm with several doses; those of which nothing can be said in one."""
    arms = {row.key: [other for other in rows if other.key == row.key] for row in rows if row.metric == models.outcome}
    for along in arms.values():
        if along[0].p_holm is not None:
            yield _sentence("doses", _dose_words(along))
    if untold := [along[0] for along in arms.values() if along[0].p_holm is None]:
        names = ", ".join(row.arm for row in untold)
        text = f"Whether {models.outcome} follows the dose of {names}: cannot tell; {untold[0].why}"
        yield _sentence("doses", text)


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


def of_instruments(models: Models, rows: Sequence[Instrument]) -> Iterable[Sentence]:
    """One sentence for every main metric that arms move; those of which nothing can be said in one."""
    untold = [row for row in rows if row.verdict is Carried.CANNOT_TELL]
    for row in rows:
        if row.verdict is not Carried.CANNOT_TELL:
            yield _sentence("instruments", _carried_words(models, row))
    if untold:
        names = ", ".join(row.metric for row in untold)
        text = f"Whether effects on {models.outcome} are carried by {names}: cannot tell; {untold[0].why}"
        yield _sentence("instruments", text)


def _carried_words(models: Models, row: Instrument) -> str:
    slope = amount(row.slope or 0.0, row.low, row.high, models.outcome)
    arms = f"{row.arms} arms ({many(row.interventions, 'kind')}, {row.n} seeds)"
    start = f"Per unit of {row.metric}, {models.outcome} changes by {slope} over {arms}"
    return {
        Carried.CARRIED: f"{start}, p {_p(row.p_holm)}, on one line through 0: the property carries the effect.",
        Carried.NOT_NEEDED: (
            f"{row.metric} moves by up to {_signed(row.largest_x)} over {arms}, and {models.outcome} by at most "
            f"{_signed(row.largest_y)}, all within ±{row.margin or 0:.2g}: this much collapse is not needed."
        ),
        Carried.INTERVENTIONS: (
            f"{start}, off one line (Q {row.q or 0:.3g}, p {_p(row.q_p)}): the interventions, not the property, "
            "or not in proportion."
        ),
        Carried.UNDECIDED: f"{start}, p {_p(row.p_holm)} (Q {row.q or 0:.3g}, p {_p(row.q_p)}): undecided.",
    }[row.verdict]


def _p(value: float | None) -> str:
    return "?" if value is None else f"{value:.2g}"
