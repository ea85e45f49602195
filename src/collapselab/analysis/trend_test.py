"""Whether one direction prevails along an axis: tests over units, which are what is independent.

Groups that differ in the axis alone are not independent: those of one depth, at other epochs or decays, share their
architectures, and an architecture that is odd is odd in all of them. So they are one *unit*, and a unit counts once.

Two tests. Where models of a unit are exchangeable if the axis does nothing, its levels are permuted within each unit,
in all its groups at once. Where they are not (checkpoints of a run follow from each other; a pair has two levels), the
signs of the units are flipped. All metrics see the same permutations, so that the largest of them has a distribution
too: the corrected p is Westfall and Young's (1993), step-down.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations as all_orders
from itertools import product
from math import factorial, prod
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest, rankdata

from collapselab.analysis.attainable import LEVEL

Floats = NDArray[np.float64]
Places = NDArray[np.intp]
TIE = 1e-9
"""Relative: a permuted statistic that only rounding keeps below the observed one counts as equal to it."""


@final
@dataclass(frozen=True)
class Group:
    """Models that differ in the axis alone: the places of their levels among those of the unit, and their values."""

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
    """Test the sum over units of the mean rank correlation, levels permuted within each unit."""
    levels = [1 + max(int(group.places.max()) for group in unit) for unit in units]
    metrics = units[0][0].values.shape[1]
    orders = np.array([prod(_orders(unit, metric) for unit in units) for metric in range(metrics)], dtype=float)
    complete = prod(map(factorial, levels)) <= permutations
    rng = np.random.default_rng(seed)
    changes, null = [], np.zeros((1 if complete else permutations, metrics))
    for unit, count in zip(units, levels, strict=True):
        if complete:
            drawn = np.array(list(all_orders(range(count))))
        else:
            drawn = np.argsort(rng.random((permutations, count)), axis=1)
        changes.append(np.round(_rhos(unit, np.arange(count)[None])[0], 12))
        permuted = np.nan_to_num(_rhos(unit, drawn))
        null = (null[:, None] + permuted).reshape(-1, metrics) if complete else null + permuted
    observed = np.nan_to_num(np.array(changes)).sum(0)
    p, corrected = _p_values(observed, null, families, complete=complete)
    return Tested(np.array(changes), np.minimum(1.0, 2 / orders), p, corrected)


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


def rhos(axis: Floats, values: Floats) -> Floats:
    """Spearman's of every column of values; 0 where they are all the same, NaN where fewer than two are known."""
    correlations = np.full(values.shape[1], np.nan)
    for metrics, known in _by_known(values):
        if len(np.unique(axis[known])) < 2:
            continue
        of_axis, of_values = rankdata(axis[known]), rankdata(values[np.ix_(known, metrics)], axis=0)
        for metric, ranks in zip(metrics, of_values.T, strict=True):
            correlations[metric] = np.corrcoef(of_axis, ranks)[0, 1] if np.ptp(ranks) else 0.0
    return correlations


def _orders(unit: Sequence[Group], metric: int) -> int:
    known = {int(place) for group in unit for place in group.places[~np.isnan(group.values[:, metric])]}
    return factorial(len(known)) if len(known) > 1 else 1


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
    """The rank of each place in its row: the order itself where a group has all levels of its unit."""
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
