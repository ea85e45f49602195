"""Dose and response: does the outcome, or an arm's metric, rise or fall with the signed dose?

The doses of an arm with its control as dose 0, in every seed that has all of them. Page's test ranks the doses within
each seed, so that a seed's own level plays no part; its p comes from flipping the signs of seeds. Page's test alone
calls a trend where both sides of the control harm, one more than the other; so neither side may go against the trend.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np
import pandas as pd

from collapselab.analysis.arms import Comparison, comparisons
from collapselab.analysis.models import Floats, Models, Regime
from collapselab.analysis.paired import MIN_PAIRS, mean_of, sign_flips
from collapselab.analysis.verdict import FALLS, LEVEL, RISES, Cause, corrections, too_few

MIN_DOSES = 3
"""The control is one of them."""
PERMUTATIONS = 9_999
"""Sign patterns that are drawn where there are too many seeds for all of them."""


@final
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
        estimate = mean_of(values[:, i])
        interval = (estimate.low, estimate.high) if dose else (None, None)
        rows.append(Response(arm.name, metric, dose, estimate.n, estimate.mean, *interval, where=arm.where))
    if len(values) < MIN_PAIRS:
        reason = too_few(len(values), "seeds with every dose", MIN_PAIRS)
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
    return float(sign_flips(contrasts[None], permutations=PERMUTATIONS, seed=0)[0][0])


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
