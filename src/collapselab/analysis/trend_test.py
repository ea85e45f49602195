"""Whether one direction prevails along an axis: tests over units, which are what is independent.

Groups that differ in the axis alone are not independent: those of one depth, at other epochs or decays, share their
architectures, and an architecture that is odd is odd in all of them. So they are one *unit*, and a unit counts once.

Two tests. Where the levels of the axis are exchangeable if the axis does nothing, they are permuted in one order for
all units: a level may be odd in every unit. Where they are not (checkpoints of a run follow from each other; a pair has
two levels), the signs of the units are flipped. All metrics see the same permutations, so that the largest of them has
a distribution too: the corrected p is Westfall and Young's (1993), step-down.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations as all_orders
from itertools import product
from math import factorial
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest, rankdata

from collapselab.analysis.resampling import TIE, Floats
from collapselab.analysis.verdict import LEVEL

Places = NDArray[np.intp]
MAX_ORDERS = 5_040
"""Orders of the levels that are enumerated (seven levels); of more levels they are drawn."""
MIN_LEVELS = next(levels for levels in range(2, 10) if 2 / factorial(levels) <= LEVEL)
"""Levels with enough orders for a p below the level. The correction does not raise this number: it compares with the
largest statistic of the family, and none is larger than that of a metric that follows the levels in every unit."""
MIN_UNITS = next(units for units in range(2, 10) if 2 / 2**units <= LEVEL)
"""Units with enough sign patterns."""


@final
@dataclass(frozen=True)
class Group:
    """Models that differ in the axis alone: the places of their levels among all of the axis, and their values."""

    places: Places
    values: Floats
    """(levels, metrics); NaN where a metric is missing."""


@final
@dataclass(frozen=True)
class Tested:
    """What a test says of every metric."""

    changes: Floats
    """(units, metrics): the mean rank correlation of a unit's groups, or its difference; NaN where it has none."""
    smallest: Floats
    """The smallest p that units like these could have."""
    p: Floats
    corrected: Floats


def permute_levels(units: Sequence[Sequence[Group]], *, families: Places, permutations: int, seed: int) -> Tested:
    """Test the sum over units of the mean rank correlation, with the levels permuted in one order for all units.

    A level that is odd in every unit is one observation, which separate orders would count once for each unit.
    """
    levels = 1 + max(int(group.places.max()) for unit in units for group in unit)
    complete = factorial(levels) <= MAX_ORDERS
    if complete:
        orders = np.array(list(all_orders(range(levels))))
    else:
        orders = np.argsort(np.random.default_rng(seed).random((permutations, levels)), axis=1)
    in_order, changes = np.arange(levels)[None], mean_correlations(units, levels)
    # No metric can have a smaller p than one that follows the levels in every group; it is missing where this one is.
    ideal = [[Group(g.places, np.where(np.isnan(g.values), np.nan, g.places[:, None])) for g in unit] for unit in units]
    smallest, _ = _p_values(_total(ideal, in_order)[0], _total(ideal, orders), families, complete=complete)
    p, corrected = _p_values(np.nan_to_num(changes).sum(0), _total(units, orders), families, complete=complete)
    return Tested(changes, smallest, p, corrected)


def flip_signs(changes: Floats, *, families: Places, permutations: int, seed: int) -> Tested:
    """Test the number of units that rise less those that fall, each unit's sign flipped or not in all metrics."""
    units, signs = len(changes), np.nan_to_num(np.sign(changes))
    complete = 2**units <= permutations
    if complete:
        flips = np.array(list(product((1.0, -1.0), repeat=units)))
    else:
        flips = np.random.default_rng(seed).choice((1.0, -1.0), size=(permutations, units))
    p, corrected = _p_values(signs.sum(0), flips @ signs, families, complete=complete)
    return Tested(changes, np.minimum(1.0, 2 * 0.5 ** (~np.isnan(changes)).sum(0)), p, corrected)


def one_way(rises: int, falls: int) -> bool:
    """Whether units agree: all of them, or as many as a sign test needs. A sum may be ruled by a few of many."""
    return min(rises, falls) == 0 or float(binomtest(rises, rises + falls).pvalue) < LEVEL


def mean_correlations(units: Sequence[Sequence[Group]], levels: int) -> Floats:
    """(units, metrics): the mean rank correlation of a unit's groups with the axis; NaN where it has none."""
    return np.round(np.array([_rhos(unit, np.arange(levels)[None])[0] for unit in units]), 12)


def _total(units: Sequence[Sequence[Group]], orders: Places) -> Floats:
    """The sum over units of their mean rank correlations: (orders, metrics)."""
    total = np.zeros((len(orders), units[0][0].values.shape[1]))
    for unit in units:
        total += np.nan_to_num(_rhos(unit, orders))
    return total


def _rhos(unit: Sequence[Group], orders: Places) -> Floats:
    """The mean rank correlation of a unit's groups under each order of its levels: (orders, metrics)."""
    total, count = np.zeros((len(orders), unit[0].values.shape[1])), np.zeros(unit[0].values.shape[1])
    for group in unit:
        for metrics, known in _by_known(group.values):
            if known.sum() < 2:
                continue
            axis = _standardised(_ranks(orders[:, group.places[known]], levels=orders.shape[1]).T.astype(float))
            values = _standardised(rankdata(group.values[np.ix_(known, metrics)], axis=0))
            total[:, metrics] += axis.T @ values
            count[metrics] += 1
    with np.errstate(invalid="ignore"):
        return np.asarray(total / np.where(count > 0, count, np.nan))


def _ranks(orders: Places, *, levels: int) -> Places:
    """The rank of each place in its row: the order itself where a group has all levels."""
    return orders if orders.shape[1] == levels else np.argsort(np.argsort(orders, axis=1), axis=1)


def _by_known(values: Floats) -> list[tuple[Places, NDArray[np.bool_]]]:
    """Metrics together that are known at the same levels."""
    masks, which = np.unique(~np.isnan(values), axis=1, return_inverse=True)
    return [(np.flatnonzero(which.ravel() == i), masks[:, i]) for i in range(masks.shape[1])]


def _standardised(columns: Floats) -> Floats:
    """Columns with mean 0 and length 1; a constant one is 0."""
    left = columns - columns.mean(0)
    length = np.sqrt((left**2).sum(0))
    return np.asarray(left / np.where(length > 0, length, 1.0))


def _p_values(observed: Floats, null: Floats, families: Places, *, complete: bool) -> tuple[Floats, Floats]:
    """Two-sided p, alone and corrected within its family; a complete list of permutations holds the observed one."""
    spread = np.sqrt((null**2).mean(0))
    scale = np.where(spread > 0, spread, 1.0)
    sizes, least = np.abs(null) / scale, np.abs(observed) / scale * (1 - TIE)
    more, total = (0, len(null)) if complete else (1, len(null) + 1)
    p = (more + (sizes >= least).sum(0)) / total
    corrected = np.empty_like(p)
    for family in np.unique(families):
        members = np.flatnonzero(families == family)
        members = members[np.argsort(-least[members], kind="stable")]
        largest = np.maximum.accumulate(sizes[:, members[::-1]], axis=1)[:, ::-1]
        corrected[members] = np.maximum.accumulate((more + (largest >= least[members]).sum(0)) / total)
    return p, corrected
