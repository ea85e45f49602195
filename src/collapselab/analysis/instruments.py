"""Is an effect carried by a property? Every arm and dose is an instrument, as in Mendelian randomisation.

An instrument has x, its effect on a metric, and y, its effect on the outcome. If the metric carries what the arms do,
the points lie on one line through 0, whatever moved the metric. If they do not, it is the interventions, or the effect
is not proportional to the metric. If x is large and every y is smaller than the smallest effect of interest, this much
of the property is not needed.

Instruments of a metric are the arms that move it with F > 10; shams are none, since they are not to move it. Arms share
their controls, so seeds are left out one at a time from all arms together: intervals and standard errors are those of
the jackknife. That points lie on a line is not concluded from a test that finds no scatter: every arm must be shown
(two one-sided tests) to be near the line that the others make. Doses of one intervention are always near a line, so at
least two interventions are needed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import final

import numpy as np
import pandas as pd
from scipy.stats import t

from collapselab.analysis.arms import Comparison, comparisons
from collapselab.analysis.attainable import LEVEL
from collapselab.analysis.effects import equivalent_in_every_cell, smallest_effect
from collapselab.analysis.mediation import mediation
from collapselab.analysis.models import Models
from collapselab.analysis.paired import FEWEST_PAIRS, Floats, sign_patterns
from collapselab.analysis.registered import Registered
from collapselab.analysis.resampling import TIE
from collapselab.analysis.verdict import Cause, Reason, holm
from collapselab.analysis.words import many

STRONG = 10.0
"""F of an instrument: below, its slope is biased (Staiger & Stock 1997)."""
FEWEST_INSTRUMENTS, FEWEST_FLAT = 3, 2
NEAR = 0.25
"""An arm is near the line where it is off by less than this share of the largest effect of the other arms."""


@final
class Carried(StrEnum):
    """What the instruments of a metric allow to say."""

    CARRIED = "carried by the property"
    """One line through 0, whatever moved the metric."""
    NOT_NEEDED = "not needed"
    """The metric moves, and the outcome does not by any amount of interest."""
    INTERVENTIONS = "the interventions, not the property"
    """Points off any one line through 0."""
    UNDECIDED = "undecided"
    CANNOT_TELL = "cannot tell"
    """Too few instruments or seeds, or all of one intervention."""


@final
@dataclass(frozen=True)
class Instrument:
    """One metric as the carrier of the effects on the outcome; a row of `instruments.csv`."""

    metric: str
    """Id in the catalogue."""
    arms: int = 0
    """Instruments: arms and doses that move the metric with F > 10."""
    slope: float | None = None
    """Outcome per unit of the metric: inverse-variance weighted, through 0."""
    low: float | None = None
    """Lower end of its 95 % interval, by leaving out seeds from all arms at once."""
    high: float | None = None
    """Upper end."""
    q: float | None = None
    """Cochran's Q: how far the points are from the line, in standard errors squared."""
    q_p: float | None = None
    """Of Q, by flipping signs of the residuals of whole seeds; corrected over metrics (Holm)."""
    egger: float | None = None
    """Intercept of the line that need not pass through 0, all x counted as positive."""
    egger_p: float | None = None
    """Of the intercept."""
    weighted_median: float | None = None
    """Of the slopes of single arms: right as long as half of the weight is."""
    weakest_f: float | None = None
    """Smallest F among the instruments."""
    verdict: Carried = Carried.CANNOT_TELL
    """`carried by the property`, `not needed`, `the interventions, not the property`, `undecided` or `cannot tell`."""
    registered: bool = False
    """Whether metric and outcome were registered before the first run."""
    n: int = 0
    """Seeds that all instruments have."""
    interventions: int = 0
    """Different interventions among the instruments, whatever their dose."""
    weak: int = 0
    """Arms that are left out, since they hardly move the metric."""
    p: float | None = None
    """Of the slope."""
    p_holm: float | None = None
    """Corrected over metrics."""
    leave_one_low: float | None = None
    """Smallest slope with one arm left out."""
    leave_one_high: float | None = None
    """Largest."""
    off_line: float | None = None
    """Distance of the arm that is farthest from the line of the others."""
    off_line_p: float | None = None
    """That some arm is off the line by more than is near: small where all are near."""
    largest_x: float | None = None
    """Largest effect on the metric."""
    largest_y: float | None = None
    """Largest effect on the outcome."""
    margin: float | None = None
    """The smallest effect of interest on the outcome."""
    mediated: float | None = None
    """Of the arms made for this metric, outcome per unit of dose that runs through it, in a model of mediation: a
    description."""
    direct: float | None = None
    """The rest of it."""
    explained_away: float | None = None
    """The correlation of residuals that would make `mediated` 0."""
    why: str | None = None
    """Why there is no verdict."""
    why_code: Cause | None = None
    """As in `relate.csv`."""


def instruments(models: Models, registered: Registered, *, permutations: int, seed: int) -> list[Instrument]:
    """A row for each main metric that was measured; none where the table has no arms."""
    compared = [comparison for comparison in comparisons(models) if not comparison.arm.sham]
    if not compared:
        return []
    margin = smallest_effect(models, registered, compared)
    measured = [metric for metric in registered.primary.metrics if metric in models.metrics]
    rows = [_row(models, compared, metric, margin, permutations=permutations, seed=seed) for metric in measured]
    known = [i for i, row in enumerate(rows) if row.p is not None]
    corrected = holm([rows[i].p or 0.0 for i in known]), holm([rows[i].q_p or 0.0 for i in known])
    for i, p, q_p in zip(known, *corrected, strict=True):
        rows[i] = _judged(replace(rows[i], p_holm=p, q_p=q_p))
    return [replace(row, registered=registered.covers(models.outcome)) for row in rows]


def _row(
    models: Models, compared: Sequence[Comparison], metric: str, margin: float | None, *, permutations: int, seed: int
) -> Instrument:
    strong = [comparison for comparison in compared if _strength(comparison, metric) > STRONG]
    row = Instrument(
        metric,
        arms=len(strong),
        weak=len(compared) - len(strong),
        interventions=len({comparison.arm.of for comparison in strong}),
        margin=margin,
        weakest_f=min((_strength(comparison, metric) for comparison in strong), default=None),
    )
    row = replace(row, **mediation(compared, metric, models.outcome)._asdict())
    if not strong:
        return replace(row, **Reason(Cause.TOO_FEW, f"no arm moves the metric with F > {STRONG:g}.").columns)
    x, y = _aligned(strong, metric), _aligned(strong, models.outcome)
    known = ~(np.isnan(x) | np.isnan(y)).any(axis=0)
    x, y = x[:, known], y[:, known]
    row = replace(row, n=x.shape[1])
    if (reason := _too_few(row)) is not None:
        return replace(row, **reason.columns)
    row = _fitted(row, x, y, permutations=permutations, seed=seed)
    return replace(row, verdict=Carried.NOT_NEEDED) if _is_flat(strong, models.outcome, margin) else row


def _strength(comparison: Comparison, metric: str) -> float:
    """F of an arm: its squared effect over the squared standard error; 0 where it is not known."""
    values = comparison.differences[metric].dropna().to_numpy()
    if len(values) < 2 or values.mean() == 0:
        return 0.0
    return float(values.mean() ** 2 / max(values.var(ddof=1) / len(values), np.finfo(float).tiny))


def _aligned(strong: Sequence[Comparison], column: str) -> Floats:
    """(arms, seeds): the differences, NaN where an arm lacks a seed."""
    return pd.concat([comparison.differences[column] for comparison in strong], axis=1).to_numpy(dtype=float).T


def _too_few(row: Instrument) -> Reason | None:
    if row.arms < FEWEST_FLAT:
        return Reason(Cause.TOO_FEW, f"one arm moves the metric; {FEWEST_INSTRUMENTS} are needed.")
    if row.n < FEWEST_PAIRS:
        return Reason(
            Cause.TOO_FEW,
            f"{many(row.n, 'seed')} {'has' if row.n == 1 else 'have'} every arm; {FEWEST_PAIRS} are needed.",
        )
    return None


def _fitted(row: Instrument, x: Floats, y: Floats, *, permutations: int, seed: int) -> Instrument:
    """The numbers of one metric from the differences (arms, seeds) of metric and outcome."""
    arms = len(x)
    slope = weighted_slope(x, y)
    error = float(_jackknife(weighted_slope, x, y))
    half = float(t.isf(LEVEL / 2, x.shape[1] - 1)) * error
    q, q_p = _scatter(x, y, slope, permutations=permutations, seed=seed)
    without = [weighted_slope(np.delete(x, i, 0), np.delete(y, i, 0)) for i in range(arms)]
    largest = int(np.argmax(np.abs(x.mean(1))))
    row = replace(
        row,
        slope=slope,
        low=slope - half,
        high=slope + half,
        p=_t_p(slope, error, x.shape[1]),
        q=q,
        q_p=q_p,
        weighted_median=_weighted_median(x, y),
        leave_one_low=min(without),
        leave_one_high=max(without),
        largest_x=float(x.mean(1)[largest]),
        largest_y=float(y.mean(1)[np.argmax(np.abs(y.mean(1)))]),
    )
    if arms >= FEWEST_INSTRUMENTS:
        intercept = _egger(x, y)
        row = replace(row, egger=intercept, egger_p=_t_p(intercept, float(_jackknife(_egger, x, y)), x.shape[1]))
        row = _with_distance(row, x, y)
    return row


def _weights(x: Floats, y: Floats, slope: float) -> Floats:
    """1 over the variance of each arm's mean distance from the line."""
    variance = (y - slope * x).var(axis=1, ddof=1) / x.shape[1]
    weights: Floats = 1 / np.maximum(variance, 1e-12 * max(float(np.mean(variance)), np.finfo(float).tiny))
    return weights


def weighted_slope(x: Floats, y: Floats) -> float:
    """Inverse-variance weighted, through 0; the weights are those of the distance from the line, found in two steps."""
    from statsmodels.regression.linear_model import WLS  # type: ignore[import-untyped]

    slope = 0.0
    for _ in range(2):
        slope = float(WLS(y.mean(1), x.mean(1), weights=_weights(x, y, slope)).fit().params[0])
    return slope


def _egger(x: Floats, y: Floats) -> float:
    from statsmodels.regression.linear_model import WLS

    signs = np.sign(x.mean(1))
    design = np.column_stack([np.ones(len(x)), np.abs(x.mean(1))])
    return float(WLS(signs * y.mean(1), design, weights=_weights(x, y, weighted_slope(x, y))).fit().params[0])


def _weighted_median(x: Floats, y: Floats) -> float:
    """The slope of single arms at which half of the weight is below, between two arms in proportion (Bowden 2016)."""
    slopes = y.mean(1) / x.mean(1)
    weights = x.mean(1) ** 2 / np.maximum(y.var(axis=1, ddof=1), np.finfo(float).tiny)
    order = np.argsort(slopes)
    below = np.cumsum(weights[order]) - weights[order] / 2
    return float(np.interp(0.5 * weights.sum(), below, slopes[order]))


def _scatter(x: Floats, y: Floats, slope: float, *, permutations: int, seed: int) -> tuple[float, float]:
    """Cochran's Q and its p: residuals of whole seeds change their sign, and the line is fitted again each time.

    Arms share their controls, so that the usual chi-squared distribution would count one seed's luck several times.
    """
    left = y - slope * x
    means, weights = x.mean(1), _weights(x, y, slope)
    leverage = np.outer(means, means * weights) / (weights @ means**2)

    def q_of(values: Floats) -> Floats:
        off = values - values @ leverage.T
        spread = (left**2).mean(1) - values**2  # flipping signs leaves the squares as they are
        scaled: Floats = (off**2 * (x.shape[1] - 1) / np.maximum(spread, 1e-12 * (left**2).mean(1) + 1e-300)).sum(-1)
        return scaled

    signs, exact = sign_patterns(x.shape[1], permutations=permutations, seed=seed)
    observed = float(q_of(left.mean(1)))
    as_large = int((q_of(signs @ left.T / x.shape[1]) >= observed * (1 - TIE)).sum())
    return observed, as_large / len(signs) if exact else (1 + as_large) / (1 + len(signs))


def _jackknife(statistic: Callable[[Floats, Floats], float | Floats], x: Floats, y: Floats) -> Floats:
    """The standard error of a statistic, or of several, by leaving out each seed from all arms at once."""
    seeds = x.shape[1]
    values = np.array([statistic(np.delete(x, s, 1), np.delete(y, s, 1)) for s in range(seeds)])
    return np.asarray(np.sqrt((seeds - 1) / seeds * ((values - values.mean(0)) ** 2).sum(0)))


def _t_p(value: float, error: float, seeds: int) -> float:
    """Two-sided: that the value is 0."""
    return min(1.0, 2 * _t_p_above(abs(value), error, seeds))


def _t_p_above(value: float, error: float, seeds: int) -> float:
    """One-sided: that the value is not above 0."""
    return float(t.sf(value / error, seeds - 1)) if error else float(value <= 0)


def _with_distance(row: Instrument, x: Floats, y: Floats) -> Instrument:
    """How far each arm is from the line of the others, and whether all are shown to be near.

    What is near is a share of the largest effect of the *others*: an arm that is off widens nothing for itself. That
    effect is estimated too, so both tests are of what is left between the arm and either end of what is near.
    """

    def off(arm: int, a: Floats, b: Floats) -> float:
        return float(b[arm].mean() - weighted_slope(np.delete(a, arm, 0), np.delete(b, arm, 0)) * a[arm].mean())

    def room(arm: int, a: Floats, b: Floats) -> Floats:
        near = max(row.margin or 0.0, NEAR * float(np.abs(np.delete(b, arm, 0).mean(1)).max()))
        distance = off(arm, a, b)
        return np.array([near - distance, near + distance])

    p = []
    for arm in range(len(x)):
        left, error = room(arm, x, y), _jackknife(partial(room, arm), x, y)
        p.append(
            max(_t_p_above(float(value), float(spread), x.shape[1]) for value, spread in zip(left, error, strict=True))
        )
    return replace(row, off_line=max((off(arm, x, y) for arm in range(len(x))), key=abs), off_line_p=max(p))


def _is_flat(strong: Sequence[Comparison], outcome: str, margin: float | None) -> bool:
    """Whether every effect on the outcome is shown to be smaller than what is of interest."""
    return margin is not None and max(equivalent_in_every_cell(arm, outcome, margin) for arm in strong) < LEVEL


def _judged(row: Instrument) -> Instrument:
    if row.verdict is Carried.NOT_NEEDED:
        return row
    if row.arms < FEWEST_INSTRUMENTS:
        why = f"{row.arms} arms move the metric; {FEWEST_INSTRUMENTS} are needed."
        return replace(row, **Reason(Cause.TOO_FEW, why).columns)
    if row.interventions < FEWEST_FLAT:
        why = "all instruments are doses of one intervention, which lie near a line whatever carries their effect."
        return replace(row, **Reason(Cause.TOO_FEW, why).columns)
    on_line = row.off_line_p is not None and row.off_line_p < LEVEL
    if on_line and row.p_holm is not None and row.p_holm < LEVEL:
        return replace(row, verdict=Carried.CARRIED)
    if row.q_p is not None and row.q_p < LEVEL and not on_line:
        return replace(row, verdict=Carried.INTERVENTIONS)
    return replace(row, verdict=Carried.UNDECIDED)
