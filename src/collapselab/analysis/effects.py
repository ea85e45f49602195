"""Effects: what every arm does to the metrics and to the outcome, in pairs that differ in the arm alone.

First the manipulation check. An arm *reached* its property where the metric that it must move has moved by at least two
standard deviations of the paired differences in the right direction, by a quarter of that metric's range over widths
where the suite has several, and by more than under the sham. Of an arm that did not reach its property nothing is said
about the outcome.

Then the verdict on the outcome, which needs a corrected test: helps or harms by flipping signs, equivalent by two
one-sided tests within the smallest effect of interest. What is neither is undecided, and never called equivalent. So
is what would be shown by the runs that are left where others diverged.
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import final

import numpy as np
import pandas as pd

from collapselab.analysis.arms import SHAM_OF, Comparison, Target, comparisons
from collapselab.analysis.attainable import LEVEL
from collapselab.analysis.lost_runs import Lost, unpaired
from collapselab.analysis.models import Models
from collapselab.analysis.pace import NO_CHECKPOINTS, at_equal_training_loss, worth_of_tokens
from collapselab.analysis.paired import (
    FEWEST_PAIRS,
    Floats,
    equivalence_p,
    far_from_the_rest,
    mean_of,
    sign_flip_p,
    step_down_p,
)
from collapselab.analysis.regime import Regime
from collapselab.analysis.registered import Registered
from collapselab.analysis.verdict import Cause, Reason, holm

SDS = 2.0
"""Paired standard deviations by which the metric of an arm's property must move."""
SHARE_OF_RANGE = 0.25
"""The share of that metric's range over widths by which it must."""
FEWEST_TO_REACH = 3
"""Pairs: two that do nothing are by chance that far apart once in nine times, three once in 27."""


@final
class Judgement(StrEnum):
    """What may be said of an arm's effect on the outcome."""

    HELPS = "helps"
    HARMS = "harms"
    EQUIVALENT = "equivalent"
    """Smaller than the smallest effect of interest."""
    UNDECIDED = "undecided"
    """Neither shown to be there nor shown to be that small."""
    DID_NOT_REACH = "did not reach"
    """The arm did not move the property that it is for."""
    CANNOT_TELL = "cannot tell"
    """Too few pairs for any result, or the arm's property was not measured."""


@final
class Role(StrEnum):
    """What a row is for."""

    OUTCOME = "outcome"
    TARGET = "target"
    """The metric that this arm must move."""
    PRIMARY = "primary"
    """One of the main metrics."""
    EXPLORATORY = "exploratory"


@final
@dataclass(frozen=True)
class Effect:
    """One arm's effect on one metric, or on the outcome; a row of `effects.csv`."""

    arm: str
    """Intervention, head or optimiser; of several at once all of them, with their doses."""
    dose: float | None
    """Signed; empty where the arm has none."""
    sham: bool
    """Whether it is a sham: `True` or `False`."""
    metric: str
    """Id in the catalogue, or the outcome."""
    n: int = 0
    """Pairs: seeds in which arm and control are both known. Cells that share a seed are averaged first."""
    effect: float | None = None
    """Mean of arm minus control."""
    low: float | None = None
    """Lower end of its 95 % interval (Student's t)."""
    high: float | None = None
    """Upper end."""
    effect_in_sd: float | None = None
    """The effect over the standard deviation of the paired differences."""
    p: float | None = None
    """Two-sided, by flipping signs: exact up to 12 pairs."""
    p_holm: float | None = None
    """Corrected by steps, as Holm does, with the joint sign patterns of the seeds: of the outcome over all arms, of a
    metric over the metrics of its role in this arm."""
    reached: bool | None = None
    """Whether the arm moved what it is for; of the outcome: all of its targets. Empty where there is none."""
    verdict: Judgement | None = None
    """Of the outcome alone."""
    where: Regime | None = None
    """Settings that arm and control share and other arms of the suite do not."""
    role: Role = Role.EXPLORATORY
    """`outcome`, `target`, `primary` or `exploratory`."""
    registered: bool = False
    """Whether this test was registered before the first run."""
    median: float | None = None
    """Of the differences."""
    pair_correlation: float | None = None
    """Of arm and control over pairs: what pairing gains."""
    sham_effect: float | None = None
    """The same of its sham, where there is one."""
    share_of_range: float | None = None
    """|effect| over the metric's range over widths, where the suite has several."""
    margin: float | None = None
    """The smallest effect of interest, of the outcome."""
    p_equivalence: float | None = None
    """Of two one-sided tests within the margin, corrected over arms (Holm)."""
    equal_loss_n: int | None = None
    """Pairs that can be compared at equal training loss."""
    equal_loss_effect: float | None = None
    """The effect there."""
    equal_loss_low: float | None = None
    """Lower end of its 95 % interval."""
    equal_loss_high: float | None = None
    """Upper end."""
    equal_loss_why: str | None = None
    """Why there is no effect at equal training loss."""
    far: str | None = None
    """Seeds whose difference is far from the others, with robust standard deviations."""
    cells: int = 1
    """Cells (architecture and regime) that are averaged."""
    cell_low: float | None = None
    """Where there are several: the smallest effect in a cell."""
    cell_high: float | None = None
    """The largest."""
    lost: int = 0
    """Of the outcome: seeds that are left out because the arm's run diverged, failed or lacks the outcome."""
    lost_controls: int = 0
    """Seeds that are left out because the control's did."""
    label: str = ""
    """The arm as it is set, for people."""
    why: str | None = None
    """Why there is no p or no verdict."""
    why_code: Cause | None = None
    """As in `relate.csv`."""

    @property
    def key(self) -> tuple[Regime | None, str, float | None, bool]:
        """The arm, with its dose."""
        return self.where, self.arm, self.dose, self.sham


def effects(models: Models, registered: Registered, *, permutations: int, seed: int) -> list[Effect]:
    """A row for every arm and metric, and for the outcome first; none where the table has no arm with a control."""
    compared = comparisons(models)
    margin, lost = smallest_effect(models, registered, compared), unpaired(models).lost
    pairs = [
        (comparison, _with_lost(row, lost.get(comparison.arm)))
        for comparison in compared
        for row in _rows(models, registered, comparison, compared, margin)
    ]
    rows = [row for _, row in pairs]
    differences = [comparison.differences[row.metric] for comparison, row in pairs]
    rows = _with_p(rows, differences, permutations=permutations, seed=seed)
    rows = _with_equivalence(rows, [comparison for comparison, _ in pairs])
    return [
        _judged(row, models.better, checked=not comparison.arm.targets or row.reached is not None)
        for (comparison, _), row in zip(pairs, rows, strict=True)
    ]


def smallest_effect(models: Models, registered: Registered, compared: Sequence[Comparison]) -> float | None:
    """The smallest effect of interest on the outcome: as it was given, else what a share of the tokens is worth."""
    if (given := registered.smallest_effect(models.outcome)) is not None:
        return given
    runs = {str(models.trained.at[place, "run"]) for comparison in compared for place in comparison.pairs["control"]}
    return worth_of_tokens(models, runs, registered.primary.smallest_effect_tokens)


def _rows(
    models: Models, registered: Registered, comparison: Comparison, compared: Sequence[Comparison], margin: float | None
) -> Iterator[Effect]:
    sham, equal = sham_of(comparison, compared), at_equal_training_loss(models, comparison)
    targets = {target.metric: target for target in comparison.arm.targets}
    columns = [models.outcome, *(str(column) for column in comparison.treated if column != models.outcome)]
    made = [_row(comparison, column, sham, equal) for column in columns]
    for i, row in enumerate(made):
        if (target := targets.get(row.metric)) is not None:
            made[i] = replace(row, role=Role.TARGET, reached=_reached(row, comparison, target, sham))
        elif row.metric in registered.primary.metrics:
            made[i] = replace(row, role=Role.PRIMARY)
        if row.metric in registered.primary.metrics:
            made[i] = replace(made[i], registered=registered.beforehand)
    known = {row.metric: row.reached for row in made if row.role is Role.TARGET}
    unknown = [metric for metric in targets if known.get(metric) is None]
    outcome = replace(made[0], role=Role.OUTCOME, margin=margin, registered=registered.covers(models.outcome))
    if targets and not unknown:
        outcome = replace(outcome, reached=all(known.values()))
    elif unknown and outcome.why is None:
        text = f"whether it reached its property is not known: {', '.join(unknown)} was not measured in enough pairs."
        outcome = replace(outcome, **Reason(Cause.MISSING, text).columns)
    yield outcome
    yield from made[1:]


def _row(comparison: Comparison, column: str, sham: Comparison | None, equal: pd.DataFrame | None) -> Effect:
    arm, differences = comparison.arm, comparison.differences[column].dropna()
    row = Effect(arm.name, arm.dose, arm.sham, column, where=arm.where, label=arm.label,
                 cells=comparison.pairs["cell"].nunique())  # fmt: skip
    if differences.empty:
        return replace(row, **Reason(Cause.MISSING, "no pair in which both values are known.").columns)
    values = differences.to_numpy()
    estimate = mean_of(values)
    moved = None if sham is None else sham.differences[column].mean()
    span, of_cells = _range_over_widths(comparison, column), [cell.mean() for cell in comparison.by_cell(column)]
    far = far_from_the_rest(values, [str(unit) for unit in differences.index])
    row = replace(
        row,
        n=estimate.n,
        effect=estimate.mean,
        low=estimate.low,
        high=estimate.high,
        effect_in_sd=estimate.mean / estimate.sd if estimate.sd else None,
        median=float(np.median(values)),
        pair_correlation=comparison.correlation(column),
        sham_effect=None if moved is None or np.isnan(moved) else float(moved),
        share_of_range=abs(estimate.mean) / span if span else None,
        cell_low=float(min(of_cells)) if len(of_cells) > 1 else None,
        cell_high=float(max(of_cells)) if len(of_cells) > 1 else None,
        far=", ".join(f"seed {name.split()[0]} ({score:+.1f})" for name, score in far) or None,
    )
    if estimate.n < FEWEST_PAIRS:
        row = replace(row, **_too_few(estimate.n).columns)
    return _with_equal_loss(row, equal)


def _with_lost(row: Effect, lost: Lost | None) -> Effect:
    if lost is None or row.role is not Role.OUTCOME:
        return row
    return replace(row, lost=len(lost.treated), lost_controls=len(lost.control))


def _too_few(pairs: int) -> Reason:
    noun = "pair has" if pairs == 1 else "pairs have"
    text = f"{pairs} {noun} {2**pairs} sign patterns: no p can be below {100 * LEVEL:g} %; {FEWEST_PAIRS} pairs can."
    return Reason(Cause.TOO_FEW, text)


def _with_equal_loss(row: Effect, equal: pd.DataFrame | None) -> Effect:
    known = None if equal is None else equal[row.metric].dropna().to_numpy()
    if known is None or not len(known):
        return replace(row, equal_loss_why=NO_CHECKPOINTS)
    estimate = mean_of(known)
    return replace(
        row,
        equal_loss_n=estimate.n,
        equal_loss_effect=estimate.mean,
        equal_loss_low=estimate.low,
        equal_loss_high=estimate.high,
    )


def sham_of(comparison: Comparison, compared: Sequence[Comparison]) -> Comparison | None:
    """The sham of an arm: that of the same dose, else of the nearest size; of a head the one whose rows say nothing."""
    arm = comparison.arm
    if arm.sham:
        return None
    name = SHAM_OF.get(arm.name)
    if name is not None:
        return next((other for other in compared if other.arm.of == (arm.where, name)), None)
    shams = [other for other in compared if other.arm.of == arm.of and other.arm.sham]
    dose = arm.dose or 0.0
    return min(shams, key=lambda o: (abs(abs(o.arm.dose or 0.0) - abs(dose)), (o.arm.dose or 0) != dose), default=None)


def _reached(row: Effect, comparison: Comparison, target: Target, sham: Comparison | None) -> bool | None:
    """Whether the metric moved: two standard deviations, the right way, a quarter of its range, more than the sham."""
    differences = comparison.differences[target.metric].dropna()
    if len(differences) < FEWEST_TO_REACH or row.effect is None:
        return None
    sign = target.sign or (1 if row.effect > 0 else -1)
    if sign * row.effect <= 0 or (row.effect_in_sd is not None and abs(row.effect_in_sd) < SDS):
        return False
    if row.share_of_range is not None and row.share_of_range < SHARE_OF_RANGE:
        return False
    if sham is None:
        return True
    beyond = (sign * (differences - sham.differences[target.metric])).dropna().to_numpy()
    low = mean_of(beyond).low if len(beyond) else None
    return low is not None and low > 0


def _range_over_widths(comparison: Comparison, column: str) -> float | None:
    """The range of the controls' means over widths; None where all have one width."""
    widths = comparison.pairs["width"].to_numpy()
    if len(np.unique(widths)) < 2:
        return None
    means = comparison.control[column].groupby(widths).mean().dropna()
    return float(np.ptp(means)) if len(means) > 1 else None


def _family(row: Effect) -> Hashable:
    """Of the outcome all arms, shams by themselves; of metrics those of one arm, the main ones by themselves."""
    if row.role is Role.OUTCOME:
        return row.role, row.sham
    return row.key, row.role is Role.EXPLORATORY


def _with_p(
    rows: Sequence[Effect], differences: Sequence["pd.Series[float]"], *, permutations: int, seed: int
) -> list[Effect]:
    families: dict[Hashable, list[int]] = {}
    tested = list(rows)
    for i, row in enumerate(rows):
        if row.n >= FEWEST_PAIRS:
            families.setdefault(_family(row), []).append(i)
    for places in families.values():
        table = pd.concat([differences[i] for i in places], axis=1).to_numpy(dtype=float).T
        corrected = step_down_p(table, permutations=permutations, seed=seed)
        single = _single_p(table, permutations=permutations, seed=seed)
        for i, p, p_holm in zip(places, single, corrected, strict=True):
            tested[i] = replace(rows[i], p=float(p), p_holm=float(max(p, p_holm)))
    return tested


def _single_p(table: Floats, *, permutations: int, seed: int) -> Floats:
    """The p of each row by itself: rows that have the same pairs are flipped at once."""
    known, p = ~np.isnan(table), np.ones(len(table))
    for mask in np.unique(known, axis=0):
        rows = (known == mask).all(axis=1)
        p[rows] = sign_flip_p(table[np.ix_(rows, mask)], permutations=permutations, seed=seed)
    return p


def _with_equivalence(rows: Sequence[Effect], compared: Sequence[Comparison]) -> list[Effect]:
    """The rows of the outcome with the p of equivalence, corrected over treatments and over shams."""
    tested = list(rows)
    for sham in (False, True):
        p = {
            i: equivalent_in_every_cell(compared[i], row.metric, row.margin)
            for i, row in enumerate(rows)
            if row.sham is sham and row.margin is not None and row.n >= FEWEST_PAIRS
        }
        for i, corrected in zip(p, holm(list(p.values())), strict=True):
            tested[i] = replace(rows[i], p_equivalence=corrected)
    return tested


def equivalent_in_every_cell(comparison: Comparison, column: str, margin: float) -> float:
    """p of equivalence of the mean and of every cell, the largest: effects of two cells may cancel each other."""
    cells = comparison.by_cell(column)
    pooled = comparison.differences[column].dropna().to_numpy(dtype=float)
    if len(cells) > 1 and min(map(len, cells)) < FEWEST_TO_REACH:
        return 1.0
    return max(equivalence_p(values, margin) for values in ([pooled, *cells] if len(cells) > 1 else [pooled]))


def _judged(row: Effect, better: int, *, checked: bool) -> Effect:
    if row.role is not Role.OUTCOME:
        return row
    if row.reached is False:
        return replace(row, verdict=Judgement.DID_NOT_REACH)
    if row.p_holm is None or row.effect is None or not checked:
        return replace(row, verdict=Judgement.CANNOT_TELL)
    verdict = Judgement.UNDECIDED
    if row.p_equivalence is not None and row.p_equivalence < LEVEL:
        verdict = Judgement.EQUIVALENT
    elif row.p_holm < LEVEL:
        verdict = Judgement.HELPS if row.effect * better > 0 else Judgement.HARMS
    lost = {Judgement.HELPS: row.lost, Judgement.HARMS: row.lost_controls}.get(verdict, row.lost + row.lost_controls)
    if lost and verdict is not Judgement.UNDECIDED:
        return replace(row, verdict=Judgement.UNDECIDED, **_why_lost(row, lost).columns)
    return replace(row, verdict=verdict)


def _why_lost(row: Effect, lost: int) -> Reason:
    whose = "runs" if lost == row.lost else "controls" if lost == row.lost_controls else "runs and controls"
    have = "has" if lost == 1 else "have"
    return Reason(Cause.MISSING, f"{lost} of its {whose} {have} no {row.metric}; the other pairs alone do not decide.")
