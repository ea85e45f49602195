"""Effects: what every arm does to the metrics and to the outcome, in pairs that differ in the arm alone.

First the manipulation check. An arm *reached* its property where the metric that it must move has moved by at least two
standard deviations of the paired differences in the right direction, by a quarter of that metric's range over widths
where the suite has several, and by more than under the sham. Of an arm that did not reach its property nothing is said
about the outcome.

An arm *passes* the check if, in addition, the metrics of the property move as designed and none the other way, and its
sham does not do the same (properties.py). Only then may a sentence name the property.

Then the verdict on the outcome, which needs a corrected test: helps or harms by flipping signs, equivalent by two
one-sided tests within the smallest effect of interest. What is neither is undecided, and never called equivalent. So
is what would be shown by the runs that are left where others diverged. Flipping signs assumes that differences are
symmetric. Where they are skewed or have spikes, the verdict is about the median, the interval follows the skew, and
nothing is called equivalent.
"""

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, final

import numpy as np
import pandas as pd

from collapselab.analysis.arms import (
    FURTHER,
    SHAM_OF,
    Arm,
    ArmKey,
    Comparison,
    Lost,
    Registered,
    Target,
    comparisons,
    unpaired,
)
from collapselab.analysis.models import Models, better
from collapselab.analysis.paired import (
    MIN_PAIRS,
    bootstrap_t,
    equal_loss_differences,
    equivalence_p,
    far_from_the_rest,
    is_skewed,
    mean_of,
    sign_flip_p,
    step_down_p,
)
from collapselab.analysis.properties import PropertyRow, arm_key
from collapselab.analysis.regime import Regime
from collapselab.analysis.related import RELATED
from collapselab.analysis.verdict import EFFECT, Cause, Estimate, Reason, Role, Verdict, judge, judged, too_few

SDS = 2.0
"""Paired standard deviations by which the metric of an arm's property must move."""
SHARE_OF_RANGE = 0.25
"""The share of that metric's range over widths by which it must."""
MIN_TO_REACH = 3
"""Pairs: two that do nothing are by chance that far apart once in nine times, three once in 27."""
MIN_POOLED_ARMS = 4
SKEWED_POOLED = 1.5
"""As `paired.SKEWED`, of the pairs of all arms together."""
MIN_SPIKY_ARMS = 2
"""Arms with an outlying pair, from which on spikes are taken to be common to all arms."""
EARLIER = 0.8
"""The slope at the end of a run is measured from its last checkpoint with at most this share of the tokens."""
OUTCOMES = (Role.OUTCOME, Role.FURTHER)
"""Roles of rows with a verdict."""


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
    """Pairs: seeds in which arm and control are both known."""
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
    """Corrected by steps: of the outcome over arms, of a metric over those of its role in this arm."""
    reached: bool | None = None
    """Whether the arm moved what it is for."""
    verdict: Verdict | None = None
    """Of outcomes alone."""
    where: Regime | None = None
    """Settings that arm and control share and other arms of the suite do not."""
    role: Role = Role.EXPLORATORY
    """`outcome`, `further outcome`, `target`, `primary` or `exploratory`."""
    registered: bool = False
    """Whether this test was registered before the first run."""
    median: float | None = None
    """Of the differences."""
    sham_effect: float | None = None
    """The same of its sham, where there is one."""
    share_of_range: float | None = None
    """|effect| over the metric's range over widths, where the suite has several."""
    margin: float | None = None
    """The smallest effect of interest, of the outcome."""
    p_equivalence: float | None = None
    """Of two one-sided tests within the margin, corrected over arms (Holm)."""
    far: str | None = None
    """Seeds whose difference is far from the others, with robust standard deviations."""
    cells: int = 1
    """Cells that are averaged."""
    cell_low: float | None = None
    """Where there are several: the smallest effect in a cell."""
    cell_high: float | None = None
    """The largest."""
    lost: int = 0
    """Of the outcome: seeds left out because the arm's run has none."""
    lost_controls: int = 0
    """Seeds that are left out because the control's did."""
    label: str = ""
    """The arm as it is set, for people."""
    lower: int = 0
    """Pairs in which the arm's value is below its control's."""
    higher: int = 0
    """Pairs in which it is above."""
    skewed: bool = False
    """Whether the differences are skewed; the interval is then that of the bootstrap-t."""
    movement: Verdict | None = None
    """What the metrics of the arm's property say together."""
    passed: bool | None = None
    """Whether the arm passed its manipulation check."""
    clipped: float | None = None
    """Of the outcome: share of clipped steps, arm minus control."""
    equal_loss: float | None = None
    """Of `val_loss`: arm minus control where both have the same evaluated training loss."""
    equal_loss_low: float | None = None
    """Lower end of its 95 % interval."""
    equal_loss_high: float | None = None
    """Upper end."""
    equal_loss_n: int = 0
    """Pairs with a checkpoint close enough to that training loss."""
    why: str | None = None
    """Why there is no p or no verdict."""
    why_code: Cause | None = None
    """As in `relate.csv`."""

    @property
    def key(self) -> ArmKey:
        """The arm, with its dose."""
        return self.where, self.arm, self.dose, self.sham


class _Suite(NamedTuple):
    """What the rows of all arms are made from."""

    models: Models
    registered: Registered
    compared: Sequence[Comparison]
    further: Sequence[str]
    """Outcomes that are tested beside the main one."""
    margin: float | None
    lost: Mapping[Arm, Lost]
    movements: Mapping[tuple[ArmKey, str], Verdict]
    """What the metrics of a property say together, by arm and property."""
    skewed: bool
    """Whether arms share skewed or spiky noise."""


def effects(
    models: Models, registered: Registered, properties: Sequence[PropertyRow] = (), *, permutations: int, seed: int
) -> list[Effect]:
    """A row for every arm and metric, and for the outcome first; none where the table has no arm with a control."""
    compared = comparisons(models)
    suite = _Suite(
        models,
        registered,
        compared,
        further_outcomes(models, registered),
        smallest_effect(models, registered, compared),
        unpaired(models).lost,
        {(arm_key(row), row.property): row.verdict for row in properties if row.arm is not None},
        _is_skewed_together(compared, models.outcome),
    )
    pairs = [(row, comparison) for comparison in compared for row in _rows(suite, comparison)]
    pairs = _with_equivalence(_with_p(pairs, permutations=permutations, seed=seed))
    return [_judged(row, checked=not arm.arm.targets or row.reached is not None) for row, arm in pairs]


def further_outcomes(models: Models, registered: Registered) -> list[str]:
    """Outcomes that are tested beside the main one: those that were registered, and the gap."""
    named = dict.fromkeys((*registered.primary.outcomes, "gap"))
    return [name for name in named if name in models.trained and name != models.outcome]


def smallest_effect(models: Models, registered: Registered, compared: Sequence[Comparison]) -> float | None:
    """The smallest effect of interest on the outcome: as it was given, else what a share of the tokens is worth."""
    if (given := registered.smallest_effect(models.outcome)) is not None:
        return given
    runs = {str(models.trained.at[place, "run"]) for comparison in compared for place in comparison.pairs["control"]}
    return worth_of_tokens(models, runs, registered.primary.smallest_effect_tokens)


def worth_of_tokens(models: Models, runs: set[str], share: float) -> float | None:
    """Return what this share of training tokens more changes: |d outcome / d log tokens| log(1 + share).

    The slope is that of the control runs at their end, the median over runs. None where no run has a checkpoint before
    its last, or where the outcome does not change. Under a falling learning rate the end is steeper than a longer
    training would be.
    """
    slopes = []
    for _, checkpoints in models.trained[models.trained["run"].isin(runs)].groupby("run"):
        known = checkpoints.dropna(subset=["tokens", models.outcome]).sort_values("tokens")
        known = known[known["tokens"] > 0]
        earlier = known[known["tokens"] <= EARLIER * known["tokens"].max()]
        if len(earlier):
            first, last = earlier.iloc[-1], known.iloc[-1]
            change = float(last[models.outcome] - first[models.outcome])
            slopes.append(change / math.log(last["tokens"] / first["tokens"]))
    worth = abs(float(np.median(slopes))) * math.log1p(share) if slopes else 0.0
    return worth or None


def _is_skewed_together(compared: Sequence[Comparison], outcome: str) -> bool:
    """Whether arms share skewed or spiky noise: 8 pairs hardly show it, the pairs of all arms together do."""
    scaled, spiky = [], 0
    for comparison in compared:
        values = comparison.differences[outcome].dropna().to_numpy(dtype=float)
        if comparison.arm.sham or len(values) < MIN_PAIRS or np.ptp(values) == 0:
            continue
        spiky += bool(far_from_the_rest(values, [""] * len(values)))
        away = values - np.median(values)
        scaled.append(away / (1.4826 * max(float(np.median(np.abs(away))), 1e-9 * float(np.ptp(values)))))
    if len(scaled) < MIN_POOLED_ARMS:
        return False
    pooled = np.concatenate(scaled)
    return spiky >= MIN_SPIKY_ARMS or bool(abs(float(pooled.mean())) * np.sqrt(len(pooled)) > SKEWED_POOLED)


def _rows(suite: _Suite, comparison: Comparison) -> Iterator[Effect]:
    sham, targets = sham_of(comparison, suite.compared), {target.metric: target for target in comparison.arm.targets}
    further = [name for name in suite.further if name in comparison.treated]
    metrics = [str(column) for column in comparison.treated if column not in (suite.models.outcome, *FURTHER)]
    reached: dict[str, bool | None] = dict.fromkeys(targets)
    rows = []
    for column in (*further, *metrics):
        row = _row(suite, comparison, column, sham)
        if column in targets:
            reached[column] = _reached(row, comparison, targets[column], sham)
            row = replace(row, role=Role.TARGET, reached=reached[column])
        rows.append(row)
    yield _outcome_row(suite, comparison, sham, reached)
    yield from rows


def _row(suite: _Suite, comparison: Comparison, column: str, sham: Comparison | None) -> Effect:
    """The effect on one metric or outcome, without a test."""
    arm, differences = comparison.arm, comparison.differences[column].dropna()
    primary, margin = suite.registered.primary, None
    role, planned = Role.EXPLORATORY, suite.registered.beforehand and column in primary.metrics
    if column == suite.models.outcome:
        role, planned, margin = Role.OUTCOME, suite.registered.covers(column), suite.margin
    elif column in suite.further:
        role, planned = Role.FURTHER, suite.registered.beforehand and column in (primary.outcome, *primary.outcomes)
        margin = None if column == "val_accuracy" else suite.margin
    elif column in primary.metrics:
        role = Role.PRIMARY
    row = Effect(arm.name, arm.dose, arm.sham, column, where=arm.where, label=arm.label, role=role, margin=margin,
                 registered=planned, cells=comparison.pairs["cell"].nunique())  # fmt: skip
    if differences.empty:
        return replace(row, why="no pair in which both values are known.", why_code=Cause.MISSING)
    values = differences.to_numpy(dtype=float)
    estimate = mean_of(values)
    low, high = estimate.low, estimate.high
    skewed = False
    if role in OUTCOMES and estimate.n >= MIN_PAIRS and np.ptp(values) > 0:
        skewed = is_skewed(values) or (suite.skewed and role is Role.OUTCOME)
    if skewed:
        low, high = bootstrap_t(values)
    moved = None if sham is None else sham.differences[column].mean()
    span, of_cells = _range_over_widths(comparison, column), [cell.mean() for cell in comparison.by_cell(column)]
    far = far_from_the_rest(values, [str(unit) for unit in differences.index])
    reason = too_few(estimate.n, "pairs", MIN_PAIRS) if estimate.n < MIN_PAIRS else Reason(None, None)
    return replace(
        row,
        n=estimate.n,
        effect=estimate.mean,
        low=low,
        high=high,
        effect_in_sd=estimate.mean / estimate.sd if estimate.sd else None,
        median=float(np.median(values)),
        sham_effect=None if moved is None or np.isnan(moved) else float(moved),
        share_of_range=abs(estimate.mean) / span if span else None,
        cell_low=float(min(of_cells)) if len(of_cells) > 1 else None,
        cell_high=float(max(of_cells)) if len(of_cells) > 1 else None,
        far=", ".join(f"seed {name.split()[0]} ({score:+.1f})" for name, score in far) or None,
        lower=int((values < 0).sum()),
        higher=int((values > 0).sum()),
        skewed=skewed,
        why=reason.text,
        why_code=reason.code,
    )


def _outcome_row(
    suite: _Suite, comparison: Comparison, sham: Comparison | None, reached: Mapping[str, bool | None]
) -> Effect:
    """The effect on the outcome, with the manipulation check, lost runs, clipping, and equal training loss."""
    models, row = suite.models, _row(suite, comparison, suite.models.outcome, sham)
    unknown = [metric for metric, answer in reached.items() if answer is None]
    if reached and not unknown:
        row = replace(row, reached=all(reached.values()))
    elif unknown and row.why is None:
        text = f"whether it reached its property is not known: {', '.join(unknown)} was not measured in enough pairs."
        row = replace(row, why=text, why_code=Cause.MISSING)
    row = replace(_with_check(suite, row, comparison, sham), clipped=_clipped(models, comparison))
    if len(equal := equal_loss_differences(models, comparison)) > 1:
        mean = mean_of(equal)
        row = replace(
            row, equal_loss=mean.mean, equal_loss_low=mean.low, equal_loss_high=mean.high, equal_loss_n=mean.n
        )
    lost = suite.lost.get(comparison.arm, Lost())
    return replace(row, lost=len(lost.treated), lost_controls=len(lost.control))


def _with_check(suite: _Suite, row: Effect, comparison: Comparison, sham: Comparison | None) -> Effect:
    """The row with what the metrics of the arm's property say together, and whether that is as designed."""
    for target in comparison.arm.targets:
        toward = suite.models.toward[target.metric].sign if target.metric in suite.models.toward else 0
        about = RELATED[target.metric].property
        movement = suite.movements.get((row.key, about))
        if not toward or movement is None:
            continue
        sign = target.sign * toward
        designed = {1: {Verdict.TOWARD}, -1: {Verdict.AWAY}, 0: {Verdict.TOWARD, Verdict.AWAY}}[sign]
        of_sham = None if sham is None else suite.movements.get((sham.arm.key, about))
        passed = movement in designed and of_sham not in designed and row.passed is not False
        row = replace(row, movement=row.movement or movement, passed=passed)
    return row


def _clipped(models: Models, comparison: Comparison) -> float | None:
    """Mean difference of the shares of clipped steps; None where they are not known."""
    if "clipped" not in models.trained:
        return None
    shares = pd.to_numeric(models.trained["clipped"]).astype(float)
    sides = [shares.loc[comparison.pairs[side]].to_numpy() for side in ("treated", "control")]
    mean = float(np.mean(sides[0] - sides[1]))
    return None if np.isnan(mean) else mean


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
    if len(differences) < MIN_TO_REACH or row.effect is None:
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
    """All arms and registered outcomes together, shams by themselves; of metrics those of one arm, by their role."""
    if row.role in OUTCOMES:
        return row.sham, row.registered or row.role is Role.OUTCOME or row.metric
    return row.key, row.role is Role.EXPLORATORY


def _with_p(
    pairs: Sequence[tuple[Effect, Comparison]], *, permutations: int, seed: int
) -> list[tuple[Effect, Comparison]]:
    """The rows with their p, alone and corrected over their family."""
    families: dict[Hashable, list[int]] = {}
    tested = list(pairs)
    for i, (row, _) in enumerate(pairs):
        if row.n >= MIN_PAIRS:
            families.setdefault(_family(row), []).append(i)
    for places in families.values():
        columns = [pairs[i][1].differences[pairs[i][0].metric] for i in places]
        table = pd.concat(columns, axis=1).to_numpy(dtype=float).T
        corrected = step_down_p(table, permutations=permutations, seed=seed)
        known, single = ~np.isnan(table), np.ones(len(table))
        for mask in np.unique(known, axis=0):  # rows that have the same pairs are flipped at once
            rows = (known == mask).all(axis=1)
            single[rows] = sign_flip_p(table[np.ix_(rows, mask)], permutations=permutations, seed=seed)
        for i, p, p_holm in zip(places, single, corrected, strict=True):
            row, comparison = pairs[i]
            tested[i] = replace(row, p=float(p), p_holm=float(max(p, p_holm))), comparison
    return tested


def _with_equivalence(pairs: Sequence[tuple[Effect, Comparison]]) -> list[tuple[Effect, Comparison]]:
    """The rows of outcomes with the p of equivalence, corrected over the same families as the other tests."""

    def p_of(pair: tuple[Effect, Comparison]) -> float | None:
        row, comparison = pair
        if row.margin is None or row.n < MIN_PAIRS or row.role not in OUTCOMES:
            return None
        return 1.0 if row.skewed else equivalent_in_every_cell(comparison, row.metric, row.margin)

    return judged(
        pairs,
        family=lambda pair: _family(pair[0]),
        p=p_of,
        with_verdict=lambda pair, corrected: (replace(pair[0], p_equivalence=corrected.holm), pair[1]),
    )


def equivalent_in_every_cell(comparison: Comparison, column: str, margin: float) -> float:
    """p of equivalence of the mean and of every cell, the largest: effects of two cells may cancel each other."""
    cells = comparison.by_cell(column)
    pooled = comparison.differences[column].dropna().to_numpy(dtype=float)
    if len(cells) > 1 and min(map(len, cells)) < MIN_TO_REACH:
        return 1.0
    return max(equivalence_p(values, margin) for values in ([pooled, *cells] if len(cells) > 1 else [pooled]))


def _judged(row: Effect, *, checked: bool) -> Effect:
    if row.role not in OUTCOMES:
        return row
    reason = None
    if row.reached is False:
        reason = Reason(row.why_code, row.why, Verdict.DID_NOT_REACH)
    elif row.p_holm is None or not (checked or row.role is Role.FURTHER):
        reason = Reason(row.why_code, row.why)
    # A run that diverged could undo a claim: an arm that helps must not have lost runs, one that harms no controls.
    either = row.lost + row.lost_controls
    lost = {Verdict.HELPS: row.lost, Verdict.HARMS: row.lost_controls, Verdict.EQUIVALENT: either}
    doubts = {verdict: _why_lost(row, count) for verdict, count in lost.items() if count}
    change = row.median if row.skewed and row.median else row.effect or 0.0
    estimate = Estimate(change, row.p_holm, better(row.metric), row.p_equivalence, reason, doubts)
    return replace(row, **judge(estimate, EFFECT))


def _why_lost(row: Effect, lost: int) -> Reason:
    whose = "runs" if lost == row.lost else "controls" if lost == row.lost_controls else "runs and controls"
    have = "has" if lost == 1 else "have"
    text = f"{lost} of its {whose} {have} no {row.metric}; the other pairs alone do not decide."
    return Reason(Cause.MISSING, text, Verdict.UNDECIDED)
