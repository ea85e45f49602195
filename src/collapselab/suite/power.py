"""How many pairs an effect needs, and what a number of pairs can show.

A pair is a run of an arm and the run of its control with the same seed. With n pairs whose differences have standard
deviation σ and are found to have s, √n d̄/s has a noncentral t distribution with n - 1 degrees of freedom.
"""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, final

from collapselab.suite.recipe import Suite

if TYPE_CHECKING:
    import numpy as np

POWER = 0.8
EFFECTS = (0.5, 0.75, 1.0, 1.5, 2.0, 3.0)
"""Sizes of effects that a plan shows: mean difference over standard deviation of the differences."""

SEEDS = {"seed": 0, "data_seed": None}
MAX_PAIRS = 10_000
ALPHA = 0.05


@final
@dataclass(frozen=True)
class Planned:
    """What one size of effect needs, and the power that a suite's pairs have for it."""

    effect: float
    """d/s; for equivalence, the margin over s."""
    pairs_at_5_percent: int
    pairs_at_1_percent: int
    pairs_for_equivalence: int
    power: float | None
    """Of the suite's pairs at 0.05; None where there are fewer than two."""
    power_of_equivalence: float | None


@final
@dataclass(frozen=True)
class PlannedComparison:
    """The pairs of a suite of arms, and what they can show."""

    arms: list[str]
    control: str | None
    """None where no arm is the control."""
    pairs: int
    """Seeds of each arm; of the fewest where cells differ."""
    cells: int
    """Combinations of settings other than arm and seed, each compared by itself."""
    properties: int
    """Primary metrics, over which p values are adjusted."""
    smallest_p: float
    survives_holm: bool
    """Whether the smallest p stays below 0.05 when it is the first of these properties in Holm's adjustment."""
    fewest_pairs: int
    """That survive."""
    power: list[Planned]


def comparison(suite: Suite) -> PlannedComparison | None:
    """Return what the arms of a suite can show; None where it has none."""
    if not suite.arms or suite.primary is None:
        return None
    runs = suite.runs[:: len(suite.arms)]  # those of the first arm: the others have the same seeds
    seeds = Counter((corpus, settings.model_copy(update=SEEDS)) for settings, corpus in set(runs))
    pairs, properties = min(seeds.values()), len(suite.primary.metrics)
    return PlannedComparison(
        [arm.name for arm in suite.arms],
        next((arm.name for arm in suite.arms if arm.is_control), None),
        pairs,
        len(seeds),
        properties,
        smallest_p(pairs),
        smallest_p(pairs) * properties <= ALPHA,
        fewest_pairs(properties),
        planned_power(pairs),
    )


def comparison_warnings(suite: Suite, compared: PlannedComparison | None) -> list[str]:
    """Return what to know of the arms before they are trained."""
    if compared is None or suite.primary is None:
        return []
    warnings = []
    if compared.control is None:
        warnings.append("no arm is the control: effects are differences from `none`. Add it to arms.")
    if compared.pairs < 2:
        warnings.append("each arm has one seed: differences of one pair have no spread. Add seeds to the grid.")
    if suite.primary.seeds not in (None, compared.pairs):
        warnings.append(f"primary says {suite.primary.seeds} seeds, but each arm has {compared.pairs}.")
    return warnings


def planned_power(pairs: int) -> list[Planned]:
    """Return what a suite of this number of pairs can show, for each size of effect."""
    return [
        Planned(
            effect,
            pairs_needed(paired_power, effect),
            pairs_needed(partial(paired_power, alpha=0.01), effect),
            pairs_needed(equivalence_power, effect),
            paired_power(pairs, effect) if pairs > 1 else None,
            equivalence_power(pairs, effect) if pairs > 1 else None,
        )
        for effect in EFFECTS
    ]


def pairs_needed(power: Callable[[int, float], float], effect: float) -> int:
    """The fewest pairs with a power of 0.8 or more; it grows with their number."""
    return 2 + bisect_left(range(2, MAX_PAIRS), POWER, key=lambda pairs: power(pairs, effect))


def paired_power(pairs: int, effect: float, *, alpha: float = ALPHA) -> float:
    """The probability that a paired t test in both directions finds a difference of `effect` standard deviations.

        P = E[Φ(√n effect - t u) + Φ(-√n effect - t u)],    u = s/σ

    It is the noncentral t distribution, whose implementation in scipy gives nan where the centre is large.
    """
    from scipy.stats import norm, t

    limit, centre = t.ppf(1 - alpha / 2, pairs - 1), math.sqrt(pairs) * effect
    return _expected(lambda u: norm.cdf(centre - limit * u) + norm.cdf(-centre - limit * u), pairs - 1)


def equivalence_power(pairs: int, margin: float) -> float:
    """The probability that two one-sided tests find no difference as large as `margin`, where there is none at all.

        P = E[max(0, 2Φ(√n margin - t u) - 1)],    since both reject where |d̄| < margin - t s/√n

    Schuirmann (1987), doi:10.1007/BF01068419.
    """
    from scipy.stats import norm, t

    limit, centre = t.ppf(1 - ALPHA, pairs - 1), math.sqrt(pairs) * margin
    return _expected(lambda u: (2 * norm.cdf(centre - limit * u) - 1).clip(min=0), pairs - 1)


def _expected(function: "Callable[[np.ndarray], np.ndarray]", freedom: int) -> float:
    """The mean of a function of u = s/σ, the root of χ² over its degrees of freedom: over 10,000 equal shares of u."""
    import numpy as np
    from scipy.stats import chi

    shares = (np.arange(10_000) + 0.5) / 10_000
    return float(function(chi.ppf(shares, freedom) / math.sqrt(freedom)).mean())


def smallest_p(pairs: int) -> float:
    """The smallest p of a test that flips the signs of all differences: 2 of the 2ⁿ choices are as extreme."""
    return min(1.0, 2.0 ** (1 - pairs))


def fewest_pairs(properties: int) -> int:
    """The fewest pairs whose smallest p survives Holm's adjustment over this number of properties."""
    return math.ceil(1 + math.log2(properties / ALPHA))
