"""Sentences about relations: a reversal first, then between and within side by side, then what a test shows.

Every sentence begins with the effect: what one standard deviation of the metric comes with, in units of the outcome,
and its interval. r and p follow.
"""

from collections.abc import Iterable, Sequence

from collapselab.analysis.models import Models
from collapselab.analysis.regime import Regime
from collapselab.analysis.relate import Relation, counted
from collapselab.analysis.related import RELATED, Family
from collapselab.analysis.subsets import SubsetKind, within_cells
from collapselab.analysis.verdict import Cause, Verdict
from collapselab.analysis.words import (
    NOT_MEASURED,
    REVERSAL,
    SHOWN,
    Sentence,
    amount,
    listed,
    many,
    metric_label,
    regime_words,
)

ACROSS, FIXED = "across models", "scale held fixed"
EXPLORED = 3
"""Metrics of a further family that have a sentence each; more are named together."""
FURTHER: dict[Family, str] = {"exploration": "Exploring", "contexts": "Exploring contexts"}
"""The families beside the paper's, and how their sentences begin."""


def sentences(models: Models, relations: Sequence[Relation]) -> Iterable[Sentence]:
    """Reversals; across models, which is a description; then with scale held fixed."""
    yield from (Sentence(REVERSAL, "relate", text) for text in _reversals(relations))
    yield from (Sentence(ACROSS, "relate", text) for text in _across_models(models, relations))
    yield from (Sentence(FIXED, "relate", text) for text in _fixed_scale(models, relations))


def reversals(relations: Sequence[Relation]) -> list[tuple[Relation, Relation]]:
    """Across models and at fixed scale: the pairs of rows that have opposite signs, both beyond doubt.

    At fixed scale a corrected test must show it; across models, where none can, the interval must exclude 0.
    """
    within = {row.metric: row for row in _main(relations, SubsetKind.WITHIN) if row.verdict in SHOWN}
    return [
        (row, within[row.metric])
        for row in _main(relations, SubsetKind.ALL)
        if row.metric in within and row.low is not None and row.high is not None and row.low * row.high > 0
        if (row.r or 0.0) * (within[row.metric].r or 0.0) < 0
    ]


def _reversals(relations: Sequence[Relation]) -> Iterable[str]:
    for across, within in reversals(relations):
        yield (
            f"{metric_label(within)} reverses: one standard deviation more comes with {_effect(within)} of "
            f"{within.outcome} at fixed scale (Holm p {within.p_holm:.2g}), and with {_effect(across)} across models."
        )


def _across_models(models: Models, relations: Sequence[Relation]) -> Iterable[str]:
    rows = _main(relations, SubsetKind.ALL)
    if not rows:
        yield f"No metric can be related to {models.outcome} across all models; relate.csv says why for each."
        return
    if models.trained["cell"].nunique() == 1:
        return  # seeds alone: what there is to say is said at fixed scale
    strongest = max(rows, key=lambda row: abs(row.r or 0.0))
    yield (
        f"Across {counted(strongest)}, descriptive only: one standard deviation more of {metric_label(strongest)} "
        f"comes with {_effect(strongest)} of {models.outcome} (r {strongest.r:+.2f}), the strongest relation."
    )
    fixed = {row.metric: row for row in _main(relations, SubsetKind.WITHIN)}
    for row in rows:
        within = fixed.get(row.metric)
        beside = f"{_effect(within)} at fixed scale (r {within.r:+.2f})" if within else "at fixed scale not known"
        across = f"{_effect(row)} across models (r {row.r:+.2f})"
        yield f"{metric_label(row)}, per standard deviation: {across}, {beside}."


def says_nothing(rows: Sequence[Relation]) -> str:
    """Why no relation at fixed scale is known, and what to train where models are missing."""
    reason, cause = next(((row.why, row.why_code) for row in rows if row.why), (NOT_MEASURED, None))
    hint = " Train the same model with several seeds." if cause is Cause.TOO_FEW else ""
    return f"With scale held fixed these tables say nothing: {reason}{hint}"


def _fixed_scale(models: Models, relations: Sequence[Relation]) -> Iterable[str]:
    rows = [row for row in relations if row.subset_kind is SubsetKind.WITHIN]
    main = _main(rows, SubsetKind.WITHIN)
    if not main:
        yield says_nothing(rows)
        return
    tested = [row for row in main if row.verdict not in (Verdict.TOO_FEW, Verdict.DESCRIPTION)]
    if not tested:
        why = next((row.why for row in main if row.verdict is Verdict.TOO_FEW), main[0].why)
        yield f"With scale held fixed: no verdict; {why}"
        return
    shown = _strongest_first(row for row in tested if row.verdict in SHOWN)
    yield _first(models, tested, shown)
    yield from (f"At fixed scale too, {_shown_words(models, row)}" for row in shown[1:])
    rest = [row for row in tested if row.verdict is Verdict.NOT_SHOWN]
    if rest:
        yield f"Not shown at fixed scale, which is not absent: {listed(_with_r(rest), room=140)}."
    yield from _power(tested[0])
    yield from _described(main)
    if tested[0].cells == 1:
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


def _first(models: Models, tested: Sequence[Relation], shown: Sequence[Relation]) -> str:
    """The first sentence: which models these are, and what is shown first, or that nothing is."""
    start = f"With scale held fixed ({counted(tested[0])})"
    if shown:
        return f"{start}: {_shown_words(models, shown[0])}"
    largest = max(tested, key=lambda row: abs(row.r or 0.0))
    effect = f"{_effect(largest)} of {models.outcome}"
    return f"{start}, nothing is shown; the largest is {metric_label(largest)} with {effect}."


def _shown_words(models: Models, row: Relation) -> str:
    return (
        f"one standard deviation between seeds of {metric_label(row)} comes with {_effect(row)} of {models.outcome}, "
        f"{SHOWN[row.verdict]} (r {row.r:+.2f}, Holm p {row.p_holm:.2g}{_without(row)})."
    )


def _power(first: Relation) -> Iterable[str]:
    if first.detectable_r is None or first.detectable_r_corrected is None:
        yield "There are too few models to say what they could have found."
        return
    yield (
        f"{counted(first)} find |r| of {first.detectable_r:.2f} with 80 % power, "
        f"{first.detectable_r_corrected:.2f} at the strictest step of the correction; a smaller one may be unseen."
    )


def _described(rows: Sequence[Relation]) -> Iterable[str]:
    """Ratios and what is of too few models: numbers without a verdict, and why."""
    for row in rows:
        if row.verdict is Verdict.DESCRIPTION and RELATED[row.metric].parts:
            yield f"{row.metric} (r {row.r:+.2f}) has no verdict: {row.why}"
    few = [row for row in rows if row.verdict is Verdict.TOO_FEW]
    if few:
        names = listed(_with_r(few))
        yield f"At fixed scale, too few runs for {many(len(few), 'metric')}: {names}."


def _main(relations: Iterable[Relation], kind: SubsetKind) -> list[Relation]:
    """The rows of the paper's metrics that have a number, on the scale of the catalogue; where none, of all metrics."""
    known = [
        row
        for row in relations
        if row.subset_kind is kind and row.r is not None and row.transform == RELATED[row.metric].transform
    ]
    return [row for row in known if row.family == "paper"] or known


def _effect(row: Relation) -> str:
    assert row.slope is not None
    return amount(row.slope, row.slope_low, row.slope_high, row.outcome)
