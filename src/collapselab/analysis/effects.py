"""Effects: what every arm does to the metrics and to the outcome, in pairs that differ in the arm alone; and doses.

First the manipulation check. An arm *reached* its property where the metric that it must move has moved by at least two
standard deviations of the paired differences in the right direction, and by more than under the sham. Of an arm that
did not reach its property nothing is said about the outcome. What all metrics of the property say together is beside it
(`movement`, from properties.py).

Then the verdict on the outcome, which needs a corrected test: helps or harms by flipping signs, equivalent by two
one-sided tests against the smallest effect that matters. What is neither is undecided, and never called equivalent. So
is a claim that runs which diverged could undo. Flipping signs assumes that differences are symmetric. Where they are
skewed or have spikes, the verdict is about the median, the interval follows the skew, and nothing is called equivalent.

Does the outcome, or an arm's metric, rise or fall with the signed dose (`doses.csv`)? The control is dose 0, and seeds
that have all doses take part. Page's test ranks the doses within each seed, so that a seed's own level plays no part;
its p comes from flipping the signs of seeds. Page's test alone calls a trend where both sides of the control harm, one
more than the other; so neither side may go against the trend.
"""

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from collapselab.analysis import paired
from collapselab.analysis.arms import FURTHER, Arm, ArmKey, Comparison, Registered, comparisons, sham_of, unpaired
from collapselab.analysis.models import RELATED, Floats, Models, Regime, better
from collapselab.analysis.paired import MIN_PAIRS
from collapselab.analysis.properties import PropertyRow, arm_key
from collapselab.analysis.resampling import LEVEL, corrections
from collapselab.analysis.verdict import EFFECT, FALLS, RISES, Cause, Estimate, Reason, Role, Verdict, judge

SDS = 2.0
"""Paired standard deviations by which the metric of an arm's property must move."""
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
MIN_DOSES = 3
"""The control is one of them."""
PERMUTATIONS = 9_999
"""Sign patterns of Page's test that are drawn where there are too many seeds for all of them."""


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
    margin: float | None = None
    """The smallest effect on the outcome that matters."""
    p_equivalence: float | None = None
    """Of two one-sided tests within the margin, corrected over arms (Holm)."""
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
    opposed: str = ""
    """In conflict: the metrics of the property that are shown to move the other way than the one it must move."""
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
    lost: Mapping[Arm, tuple[Sized, Sized]]
    movements: Mapping[tuple[ArmKey, str], PropertyRow]
    """What the metrics of a property say together, by arm and property."""
    skewed: bool
    """Whether arms share skewed or spiky noise."""


def effects(
    models: Models, registered: Registered, properties: Sequence[PropertyRow] = (), *, permutations: int, seed: int
) -> list[Effect]:
    """A row for every arm and metric, and for the outcome first; none where the table has no arm with a control."""
    compared = comparisons(models)
    named = dict.fromkeys((*registered.primary.outcomes, "gap"))
    further = [name for name in named if name in models.trained and name != models.outcome]
    margin = smallest_effect(models, registered, compared)
    movements = {(arm_key(row), row.property): row for row in properties if row.arm is not None}
    skewed = _is_skewed_together(compared, models.outcome)
    suite = _Suite(models, registered, compared, further, margin, unpaired(models)[0], movements, skewed)
    by_arm = {comparison.arm.key: comparison for comparison in compared}
    rows = [row for comparison in compared for row in _rows(suite, comparison)]
    rows = _with_equivalence(_with_p(rows, by_arm, permutations=permutations, seed=seed), by_arm)
    return [_judged(row, checked=not by_arm[row.key].arm.targets or row.reached is not None) for row in rows]


def smallest_effect(models: Models, registered: Registered, compared: Sequence[Comparison]) -> float | None:
    """The smallest effect of interest on the outcome: as it was given, else what a share of the tokens is worth."""
    if registered.primary.smallest_effect is not None and registered.primary.outcome == models.outcome:
        return registered.primary.smallest_effect
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
        spiky += paired.has_spikes(values)
        away = values - np.median(values)
        scaled.append(away / (1.4826 * max(float(np.median(np.abs(away))), 1e-9 * float(np.ptp(values)))))
    if len(scaled) < MIN_POOLED_ARMS:
        return False
    pooled = np.concatenate(scaled)
    return spiky >= MIN_SPIKY_ARMS or bool(abs(float(pooled.mean())) * np.sqrt(len(pooled)) > SKEWED_POOLED)


def _rows(suite: _Suite, comparison: Comparison) -> Iterator[Effect]:
    sham, targets = sham_of(comparison, suite.compared), dict(comparison.arm.targets)
    further = [name for name in suite.further if name in comparison.treated]
    metrics = [str(column) for column in comparison.treated if column not in (suite.models.outcome, *FURTHER)]
    rows = [_row(suite, comparison, column, sham) for column in (*further, *metrics)]
    by_metric = {row.metric: row for row in rows if row.metric in targets}
    reached = {name: _reached(row, comparison, targets[name], sham) for name, row in by_metric.items()}
    yield _outcome_row(suite, comparison, sham, dict.fromkeys(targets) | reached)
    for row in rows:
        yield replace(row, role=Role.TARGET, reached=reached[row.metric]) if row.metric in reached else row


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
                 registered=planned)  # fmt: skip
    if differences.empty:
        return replace(row, why="no pair in which both values are known.", why_code=Cause.MISSING)
    values = differences.to_numpy(dtype=float)
    estimate = paired.mean_of(values)
    low, high, skewed = estimate.low, estimate.high, False
    if role in OUTCOMES and estimate.n >= MIN_PAIRS and np.ptp(values) > 0:
        skewed = paired.is_skewed(values) or (suite.skewed and role is Role.OUTCOME)
        low, high = paired.bootstrap_t(values) if skewed else (low, high)
    moved = None if sham is None else sham.differences[column].mean()
    reason = Reason.too_few(estimate.n, "pairs", MIN_PAIRS) if estimate.n < MIN_PAIRS else Reason(None, None)
    return replace(
        row, n=estimate.n, effect=estimate.mean, low=low, high=high, median=float(np.median(values)),
        effect_in_sd=estimate.mean / estimate.sd if estimate.sd else None,
        sham_effect=None if moved is None or np.isnan(moved) else float(moved),
        lower=int((values < 0).sum()), higher=int((values > 0).sum()), skewed=skewed,
        why=reason.text, why_code=reason.code,
    )  # fmt: skip


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
    for metric in reached:
        moved = suite.movements.get((row.key, RELATED[metric].property)) if models.toward.get(metric) else None
        if moved is not None and row.movement is None:
            sides = (moved.toward_metrics, moved.away_metrics) if moved.odd_metrics else ()
            opposed = next((side for side in sides if metric not in side.split()), "")
            row = replace(row, movement=moved.verdict, opposed=opposed)
    if len(equal := paired.equal_loss_differences(models, comparison)) > 1:
        at = paired.mean_of(equal)
        row = replace(row, equal_loss=at.mean, equal_loss_low=at.low, equal_loss_high=at.high, equal_loss_n=at.n)
    if "clipped" in comparison.treated:
        clipped = float((comparison.treated["clipped"] - comparison.control["clipped"]).mean(skipna=False))
        row = replace(row, clipped=None if np.isnan(clipped) else clipped)
    lost, lost_controls = suite.lost.get(comparison.arm, ((), ()))
    return replace(row, lost=len(lost), lost_controls=len(lost_controls))


def _reached(row: Effect, comparison: Comparison, sign: int, sham: Comparison | None) -> bool | None:
    """Whether the metric moved: two standard deviations, in this direction (0: either), more than under the sham."""
    differences = comparison.differences[row.metric].dropna()
    if len(differences) < MIN_TO_REACH or row.effect is None:
        return None
    sign = sign or (1 if row.effect > 0 else -1)
    if sign * row.effect <= 0 or (row.effect_in_sd is not None and abs(row.effect_in_sd) < SDS):
        return False
    if sham is None:
        return True
    beyond = (sign * (differences - sham.differences[row.metric])).dropna().to_numpy()
    low = paired.mean_of(beyond).low if len(beyond) else None
    return low is not None and low > 0


def _family(row: Effect) -> Hashable:
    """All arms and registered outcomes together, shams by themselves; of metrics those of one arm, by their role."""
    if row.role in OUTCOMES:
        return row.sham, row.registered or row.role is Role.OUTCOME or row.metric
    return row.key, row.role is Role.EXPLORATORY


def _with_p(
    rows: Sequence[Effect], by_arm: Mapping[ArmKey, Comparison], *, permutations: int, seed: int
) -> list[Effect]:
    """The rows with their p, alone and corrected over their family."""
    families: dict[Hashable, list[int]] = {}
    for i, row in enumerate(rows):
        if row.n >= MIN_PAIRS:
            families.setdefault(_family(row), []).append(i)
    tested = list(rows)
    for places in families.values():
        columns = [by_arm[rows[i].key].differences[rows[i].metric] for i in places]
        table = pd.concat(columns, axis=1).to_numpy(dtype=float).T
        tests = paired.sign_flips(table, permutations=permutations, seed=seed)
        for i, p, p_holm in zip(places, *tests, strict=True):
            tested[i] = replace(rows[i], p=float(p), p_holm=float(max(p, p_holm)))
    return tested


def _with_equivalence(rows: Sequence[Effect], by_arm: Mapping[ArmKey, Comparison]) -> list[Effect]:
    """The rows of outcomes with the p of equivalence, corrected over the same families as the other tests."""

    def p_of(row: Effect) -> float | None:
        if row.margin is None or row.n < MIN_PAIRS or row.role not in OUTCOMES:
            return None
        return 1.0 if row.skewed else equivalent_in_every_cell(by_arm[row.key], row.metric, row.margin)

    tested = list(rows)
    for place, corrected in corrections((_family(row), p_of(row)) for row in rows).items():
        tested[place] = replace(rows[place], p_equivalence=corrected.holm)
    return tested


def equivalent_in_every_cell(comparison: Comparison, column: str, margin: float) -> float:
    """p of equivalence of the mean and of every cell, the largest: effects of two cells may cancel each other."""
    pairs, change = comparison.pairs, comparison.treated[column] - comparison.control[column]
    by_cell = change.groupby([pairs["cell"], pairs["unit"]]).mean().dropna().groupby(level=0)
    cells = [values.to_numpy(dtype=float) for _, values in by_cell]
    pooled = comparison.differences[column].dropna().to_numpy(dtype=float)
    if len(cells) > 1 and min(map(len, cells)) < MIN_TO_REACH:
        return 1.0
    return max(paired.equivalence_p(values, margin) for values in ([pooled, *cells] if len(cells) > 1 else [pooled]))


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
    text = f"{row.metric} is missing in {row.lost} of its runs and {row.lost_controls} controls, which could undo that."
    missing = Reason(Cause.MISSING, text, Verdict.UNDECIDED)
    doubts = {verdict: missing for verdict, count in lost.items() if count}
    change = row.median if row.skewed and row.median else row.effect or 0.0
    low, high = row.equal_loss_low, row.equal_loss_high
    if row.metric == "gap" and low is not None and high is not None and (high < 0 < change or change < 0 < low):
        interval = f"{row.equal_loss:+.3f} nats [{low:+.3f}, {high:+.3f}]"
        text = f"At equal training loss {interval}: the change of the gap comes from the training loss."
        doubts |= dict.fromkeys((Verdict.HELPS, Verdict.HARMS), Reason(Cause.REVERSED, text, Verdict.UNDECIDED))
    estimate = Estimate(change, row.p_holm, better(row.metric), row.p_equivalence, reason, doubts)
    return replace(row, **judge(estimate, EFFECT))


@dataclass(frozen=True)
class Response:
    """One dose of one arm and its effect on one metric; a row of `doses.csv`."""

    arm: str
    """Intervention, or `coupling`."""
    metric: str
    """The metric that the arm must move, or the outcome."""
    dose: float
    """Signed; 0 is the control."""
    n: int
    """Seeds that have every dose."""
    effect: float
    """Mean of this dose minus the control."""
    low: float | None
    """Lower end of its 95 % interval."""
    high: float | None
    """Upper end."""
    p: float | None = None
    """Of Page's statistic over all doses of the arm, by flipping the signs of seeds; the same in all of its rows."""
    p_holm: float | None = None
    """Corrected over the arms, for the outcome and for metrics by themselves."""
    trend: str | None = None
    """`rises` or `falls` where the corrected test is significant."""
    where: Regime | None = None
    """As in `effects.csv`."""
    why: str | None = None
    """Why there is no p."""
    why_code: Cause | None = None
    """As in `relate.csv`."""

    @property
    def key(self) -> tuple[Regime | None, str, str]:
        """The arm and the metric."""
        return self.where, self.arm, self.metric


def doses(models: Models) -> list[Response]:
    """A row for every dose of every arm that has two or more beside the control."""
    arms: dict[tuple[Regime | None, str], list[Comparison]] = {}
    for comparison in comparisons(models):
        if comparison.arm.dose is not None and not comparison.arm.sham:
            arms.setdefault(comparison.arm.of, []).append(comparison)
    made = [
        _responses(sorted(group, key=lambda comparison: comparison.arm.dose or 0.0), metric)
        for group in arms.values()
        if len(group) + 1 >= MIN_DOSES
        for metric in dict.fromkeys([models.outcome, *(target.metric for target in group[0].arm.targets)])
        if metric in group[0].treated
    ]
    made = [rows for rows in made if rows]
    for place, corrected in corrections((rows[0].metric == models.outcome, rows[0].p) for rows in made).items():
        rows = made[place]
        trend = direction(rows) if corrected.holm < LEVEL and not goes_against(rows) else None
        made[place] = [replace(row, p_holm=corrected.holm, trend=trend) for row in rows]
    return [row for rows in made for row in rows]


def _responses(group: Sequence[Comparison], metric: str) -> list[Response]:
    effects = pd.concat(
        [comparison.differences[metric] for comparison in group],
        axis=1,
        keys=[comparison.arm.dose for comparison in group],
    )
    effects[0.0] = 0.0
    effects = effects.dropna().sort_index(axis=1)
    if effects.empty:
        return []
    arm, values = group[0].arm, effects.to_numpy(dtype=float)
    rows = []
    for i, dose in enumerate(float(str(dose)) for dose in effects.columns):
        estimate = paired.mean_of(values[:, i])
        interval = (estimate.low, estimate.high) if dose else (None, None)
        rows.append(Response(arm.name, metric, dose, estimate.n, estimate.mean, *interval, where=arm.where))
    if len(values) < MIN_PAIRS:
        reason = Reason.too_few(len(values), "seeds with every dose", MIN_PAIRS)
        return [replace(row, why=reason.text, why_code=reason.code) for row in rows]
    p = _page_p(values)
    return [replace(row, p=p) for row in rows]


def _page_p(values: Floats) -> float:
    """Two-sided p of Page's statistic over (seeds, doses), by flipping the signs of whole seeds.

    Page's own p takes doses for exchangeable within a seed. Where the spread grows with the dose they are not: it was
    below 0.05 in 7 to 8 % of such tables. Reversing the order of all doses of a seed is exact there too.
    """
    from scipy.stats import rankdata

    weights = np.arange(values.shape[1]) - (values.shape[1] - 1) / 2
    contrasts = rankdata(values, axis=1) @ weights
    return float(paired.sign_flips(contrasts[None], permutations=PERMUTATIONS, seed=0)[0][0])


def goes_against(rows: Sequence[Response]) -> bool:
    """Whether the mean effect of the negative or of the positive doses is opposite to the trend."""
    sign = 1 if direction(rows) == RISES else -1
    sides = ([row.effect * side for row in rows if row.dose * side > 0] for side in (-1, 1))
    return any(sign * sum(side) < 0 for side in sides)


def direction(rows: Sequence[Response]) -> str:
    """Where the effects go with the rank of the dose, on the whole."""
    ordered = sorted(rows, key=lambda row: row.dose)
    middle = (len(rows) - 1) / 2
    return RISES if sum((rank - middle) * row.effect for rank, row in enumerate(ordered)) >= 0 else FALLS
