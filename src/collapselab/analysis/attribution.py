"""Attribution: can the effects of the arms on the outcome be put down to the properties that the arms moved?

Every arm is a point: its effects on some metrics, x, and its effect on the outcome, y. If the outcome changes through
these properties alone, the points lie on a line (one metric) or plane (two) through 0, whatever moved the metrics, as
in multivariable Mendelian randomisation. All sets of one and two metrics of different properties are tried: the
registered ones and the paper's of the same properties. They are judged in this order:

1. The metrics of the set must move apart: the conditional F of each, given the other, is at least 10 (Sanderson &
   Windmeijer 2016). Otherwise the effect cannot be attributed to one of them.
2. Points off the plane by more than chance (Cochran's Q, by flipping the signs of whole seeds, since arms share their
   controls): not these properties alone.
3. Slopes that are significant (jackknife over seeds, Holm within the set), and stay so, with the same sign, when each
   intervention is left out: the effect is attributed to these metrics.

Doses of one intervention are one instrument: they lie near a line whatever their effect goes through, so a set of k
metrics needs k + 2 interventions, and intervals come from leaving out interventions.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import t

from collapselab.analysis.arms import Comparison, Registered, comparisons
from collapselab.analysis.effects import Effect
from collapselab.analysis.models import RELATED, Floats, Models
from collapselab.analysis.paired import MIN_PAIRS
from collapselab.analysis.properties import PropertyRow
from collapselab.analysis.resampling import LEVEL, holm, sign_patterns, step_down
from collapselab.analysis.verdict import ATTRIBUTION, Cause, Estimate, Reason, Role, Verdict, judge
from collapselab.analysis.words import Sentence, amount, many

MIN_F = 10.0
"""Conditional F below which slopes are biased and the metrics of a set cannot be separated."""
MAX_METRICS = 2
"""Metrics of a set."""


@dataclass(frozen=True)
class Attributed:
    """One metric of one set; a row of `attribution.csv`."""

    metrics: str
    """The set: one or two ids of the catalogue."""
    metric: str
    """The one that this row is about."""
    arms: int = 0
    """Arms and doses, without shams."""
    interventions: int = 0
    """Different interventions among them, whatever their dose."""
    n: int = 0
    """Seeds that all arms have."""
    r: float | None = None
    """Of two metrics: correlation of their effects over the arms."""
    conditional_f: float | None = None
    """How far the arms move this metric beyond what the other one explains."""
    slope: float | None = None
    """Outcome per unit of the metric, the other one fixed: inverse-variance weighted, through 0."""
    low: float | None = None
    """Lower end of its 95 % interval, by leaving out interventions."""
    high: float | None = None
    """Upper end."""
    p: float | None = None
    """Of the slope, by leaving out seeds from all arms at once."""
    p_holm: float | None = None
    """Corrected over the metrics of the set."""
    leave_one_p: float | None = None
    """The largest p with one intervention left out; 1 where the sign changes."""
    leave_one: str = ""
    """The intervention that was left out there."""
    q: float | None = None
    """Cochran's Q: how far the arms are from the line or plane."""
    q_p: float | None = None
    """Of Q, by flipping the signs of whole seeds."""
    verdict: Verdict = Verdict.TOO_FEW
    """`attributed`, `not these properties alone`, `cannot be attributed`, `undecided` or `too few runs`."""
    conflict: bool = False
    """Whether the metrics of its property disagree for one of the arms."""
    registered: bool = False
    """Whether metrics and outcome were registered before the first run."""
    why: str | None = None
    """Why there is no verdict."""
    why_code: Cause | None = None
    """As in `relate.csv`."""


class Points(NamedTuple):
    """The arms of a suite in the seeds that all of them have."""

    x: Floats
    """(metrics, arms, seeds): effects on the metrics."""
    y: Floats
    """(arms, seeds): effects on the outcome."""
    interventions: Sequence[str]
    """Of every arm."""

    def without(self, intervention: str) -> "Points":
        kept = [i for i, name in enumerate(self.interventions) if name != intervention]
        return Points(self.x[:, kept], self.y[kept], [self.interventions[i] for i in kept])


def attribution(
    models: Models, effects: Sequence[Effect], properties: Sequence[PropertyRow], registered: Registered, *,
    permutations: int, seed: int,
) -> list[Attributed]:  # fmt: skip
    """A row for every metric of every set; none where the table has no arms."""
    compared = [comparison for comparison in comparisons(models) if not comparison.arm.sham]
    if not compared:
        return []
    measured = candidates(models, registered)
    conflicts = {row.property for row in properties if row.arm and row.verdict is Verdict.IN_CONFLICT}
    of_arms = [row for row in effects if row.role is Role.OUTCOME and not row.sham and row.metric == models.outcome]
    moved = any(row.verdict in (Verdict.HELPS, Verdict.HARMS) for row in of_arms)
    rows: list[Attributed] = []
    for metrics in [sets for count in range(1, MAX_METRICS + 1) for sets in combinations(measured, count)]:
        if len({RELATED[metric].property for metric in metrics}) == len(metrics):
            points = points_of(compared, metrics, models.outcome)
            blank = [_blank(points, metrics, metric, conflicts) for metric in metrics]
            blank = [replace(row, registered=registered.covers(models.outcome)) for row in blank]
            if (reason := _why_not(points, moved)) is not None:
                rows += [replace(row, **reason.columns) for row in blank]
            else:
                rows += judge_set(blank, points, permutations=permutations, seed=seed)
    return rows


def candidates(models: Models, registered: Registered) -> list[str]:
    """The registered metrics that were measured, and the paper's metrics of their properties that have a direction."""
    chosen = [metric for metric in registered.primary.metrics if metric in models.metrics]
    about = {RELATED[metric].property for metric in chosen}
    paper = [metric for metric in models.metrics if RELATED[metric].in_paper and models.toward[metric]]
    return chosen + [metric for metric in paper if RELATED[metric].property in about and metric not in chosen]


def points_of(compared: Sequence[Comparison], metrics: Sequence[str], outcome: str) -> Points:
    """Differences of every arm, in the seeds in which all are known."""
    columns = [
        pd.concat([comparison.scaled(column) for comparison in compared], axis=1).to_numpy(dtype=float).T
        for column in (*metrics, outcome)
    ]
    known = ~np.isnan(columns).any(axis=(0, 1))
    return Points(
        np.array([column[:, known] for column in columns[:-1]]),
        columns[-1][:, known],
        [intervention_of(comparison) for comparison in compared],
    )


def intervention_of(comparison: Comparison) -> str:
    """Arms that differ in their doses alone are one intervention, in whatever combination."""
    return " + ".join(part.partition(":")[0] for part in comparison.arm.name.split(" + "))


def _blank(points: Points, metrics: Sequence[str], metric: str, conflicts: set[str]) -> Attributed:
    arms, seeds = points.y.shape
    r = None
    if len(metrics) > 1 and arms > 2:
        means = points.x.mean(2)
        r = float(np.corrcoef(means)[0, 1]) if (np.ptp(means, axis=1) > 0).all() else None
    return Attributed(
        " ".join(metrics), metric, arms, len(set(points.interventions)), seeds, r,
        conflict=RELATED[metric].property in conflicts,
    )  # fmt: skip


def _why_not(points: Points, moved: bool) -> Reason | None:
    seeds, interventions, needed = points.y.shape[1], len(set(points.interventions)), len(points.x) + 2
    if seeds < MIN_PAIRS:
        return Reason.too_few(seeds, "seeds with every arm", MIN_PAIRS)
    if interventions < needed:
        return Reason.too_few(interventions, f"interventions for {many(len(points.x), 'metric')}", needed)
    if not moved:
        return Reason(Cause.NO_VARIATION, "no arm is shown to change the outcome: there is nothing to attribute.")
    return None


def slopes(points: Points) -> Floats:
    """Inverse-variance weighted least squares of mean effects through 0; the weights are found in two steps."""
    x, y = points.x.mean(2).T, points.y.mean(1)
    fitted = np.zeros(len(points.x))
    for _ in range(2):
        root = np.sqrt(_weights(points, fitted))
        fitted = np.linalg.lstsq(x * root[:, None], y * root, rcond=None)[0]
    return fitted


def _weights(points: Points, fitted: Floats) -> Floats:
    """1 over the variance of each arm's mean distance from the plane."""
    left = points.y - np.tensordot(fitted, points.x, 1)
    variance = left.var(axis=1, ddof=1) / left.shape[1]
    weights: Floats = 1 / np.maximum(variance, 1e-12 * max(float(np.mean(variance)), np.finfo(float).tiny))
    return weights


def slope_p(points: Points) -> tuple[Floats, Floats]:
    """The slopes and their two-sided p: each seed is left out from all arms at once."""
    seeds, fitted = points.y.shape[1], slopes(points)
    without = np.array(
        [slopes(points._replace(x=np.delete(points.x, s, 2), y=np.delete(points.y, s, 1))) for s in range(seeds)]
    )
    error = np.sqrt((seeds - 1) / seeds * ((without - without.mean(0)) ** 2).sum(0))
    return fitted, 2 * t.sf(np.abs(fitted) / np.maximum(error, np.finfo(float).tiny), seeds - 1)


def conditional_f(points: Points) -> Floats:
    """F of each metric: what the other metrics leave of its effects, over the error of what they leave."""
    strengths = []
    for i, own in enumerate(points.x):
        others = np.delete(points.x, i, 0)
        fitted = slopes(Points(others, own, points.interventions)) if len(others) else np.zeros(0)
        left = own - np.tensordot(fitted, others, 1) if len(others) else own
        error = np.maximum(left.var(axis=1, ddof=1) / left.shape[1], np.finfo(float).tiny)
        strengths.append(float((left.mean(1) ** 2 / error).sum() / (len(left) - len(others))))
    return np.array(strengths)


def scatter(points: Points, fitted: Floats, *, permutations: int, seed: int) -> tuple[float, float]:
    """Cochran's Q and its p: residuals of whole seeds change their sign, and the plane is fitted again each time.

    Arms share their controls, so that the usual chi-squared distribution would count one seed's luck several times.
    """
    left, x = points.y - np.tensordot(fitted, points.x, 1), points.x.mean(2).T
    weights = _weights(points, fitted)
    leverage = x @ np.linalg.pinv((x * weights[:, None]).T @ x) @ (x * weights[:, None]).T
    seeds = left.shape[1]

    def q_of(values: Floats) -> Floats:
        off = values - values @ leverage.T
        spread = (left**2).mean(1) - values**2  # flipping signs leaves the squares as they are
        scaled: Floats = (off**2 * (seeds - 1) / np.maximum(spread, 1e-12 * (left**2).mean(1) + 1e-300)).sum(-1)
        return scaled

    signs, exact = sign_patterns(seeds, permutations, seed)
    observed = q_of(left.mean(1))
    p, _ = step_down(observed[None], q_of(signs @ left.T / seeds)[:, None], exact=exact)
    return float(observed), float(p[0])


def judge_set(rows: Sequence[Attributed], points: Points, *, permutations: int, seed: int) -> list[Attributed]:
    """The rows of one set, a metric each, with their numbers and verdicts: the checks in their order."""
    (fitted, p), strengths = slope_p(points), conditional_f(points)
    q, q_p = scatter(points, fitted, permutations=permutations, seed=seed)
    reason = None
    if strengths.min() < MIN_F:
        reason = Reason(None, None, Verdict.INSEPARABLE)
    elif q_p < LEVEL:
        reason = Reason(None, None, Verdict.NOT_ALONE)
    names = list(dict.fromkeys(points.interventions))
    left_out = {name: slope_p(points.without(name)) for name in names}
    made = []
    for i, (row, p_holm) in enumerate(zip(rows, holm(p.tolist()), strict=True)):
        worst, name = max(
            (1.0 if slope[i] * fitted[i] <= 0 else float(p_of[i]), name) for name, (slope, p_of) in left_out.items()
        )
        without = np.array([slope[i] for slope, _ in left_out.values()])
        error = float(np.sqrt((len(names) - 1) / len(names) * ((without - without.mean()) ** 2).sum()))
        half = float(t.isf(LEVEL / 2, len(names) - 1)) * error
        made.append(replace(
            row, slope=float(fitted[i]), low=float(fitted[i]) - half, high=float(fitted[i]) + half, p=float(p[i]),
            p_holm=p_holm, leave_one_p=worst, leave_one=name, q=q, q_p=q_p, conditional_f=float(strengths[i]),
            **judge(Estimate(p=max(p_holm, worst), reason=reason), ATTRIBUTION),
        ))  # fmt: skip
    return made


def sentences(models: Models, rows: Sequence[Attributed]) -> Iterable[Sentence]:
    """What the smallest sets allow to say: an attribution, that none is enough, or why nothing can be said."""
    return (Sentence("as a cause", "attribution", text) for text in (_words(models, rows) if rows else ()))


def _words(models: Models, rows: Sequence[Attributed]) -> Iterable[str]:
    start = f"Effects on {models.outcome} cannot be attributed to"
    names = ", ".join(dict.fromkeys(row.metric for row in rows))
    tested = [row for row in rows if row.verdict is not Verdict.TOO_FEW]
    if not tested:
        yield f"{start} {names}: {rows[0].why}"
        return
    attributed = [row for row in tested if row.verdict is Verdict.ATTRIBUTED]
    fewest = min((len(row.metrics.split()) for row in attributed), default=0)
    yield from (_attributed_words(models, row) for row in attributed if len(row.metrics.split()) == fewest)
    if all(row.verdict is Verdict.NOT_ALONE for row in tested):
        least = max(tested, key=lambda row: row.q_p or 0.0)
        number = "any one or two of " if any(" " in row.metrics for row in tested) else ""
        yield (
            f"{start} {number}{names}: the {least.arms} arms ({many(least.interventions, 'intervention')}, {least.n} "
            f"seeds) change it in other ways too (Cochran's Q, p ≤ {least.q_p:.2g})."
        )
    for row in {row.metrics: row for row in tested if row.verdict is Verdict.INSEPARABLE}.values():
        together = f" move together (r {row.r:+.2f}," if row.r is not None else " hardly moves ("
        weakest = min(other.conditional_f or 0.0 for other in tested if other.metrics == row.metrics)
        yield f"{start} {row.metrics.replace(' ', ' and ')}, which{together} conditional F {weakest:.3g})."


def _attributed_words(models: Models, row: Attributed) -> str:
    others = [name for name in row.metrics.split() if name != row.metric]
    beside = f" with {others[0]} held fixed" if others else ""
    slope = amount(row.slope or 0.0, row.low, row.high, models.outcome)
    text = (
        f"Effects on {models.outcome} follow {row.metric}{beside}: {slope} per unit over {row.arms} arms "
        f"({many(row.interventions, 'intervention')}, {row.n} seeds; p {row.p_holm:.2g}, {row.leave_one_p:.2g} without "
        f"{row.leave_one})."
    )
    if row.conflict:
        text += f" The metrics of {RELATED[row.metric].property} disagree, so this is about {row.metric} alone."
    return text
