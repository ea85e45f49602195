"""Pairs and power: published numbers, simulation, and the limits of a test that flips signs."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from collapselab.suite.plan import (
    EFFECTS,
    equivalence_power,
    fewest_pairs,
    paired_power,
    planned_power,
    smallest_p,
)


def test_pairs_for_80_percent_are_those_of_the_tables() -> None:
    rows = planned_power(8)
    assert [row.effect for row in rows] == list(EFFECTS) == [0.5, 0.75, 1, 1.5, 2, 3]
    assert [row.pairs_at_5_percent for row in rows] == [34, 16, 10, 6, 5, 4]
    assert [row.pairs_for_equivalence for row in rows] == [36, 17, 11, 6, 4, 3]


@pytest.mark.parametrize(("pairs", "effect"), [(4, 0.5), (8, 1.0), (34, 0.5)])
def test_the_power_of_a_paired_test_is_that_of_the_noncentral_t_distribution(pairs: int, effect: float) -> None:
    limit, centre = stats.t.ppf(0.975, pairs - 1), math.sqrt(pairs) * effect
    expected = stats.nct.sf(limit, pairs - 1, centre) + stats.nct.cdf(-limit, pairs - 1, centre)
    assert paired_power(pairs, effect) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(("pairs", "size"), [(5, 1.0), (8, 1.0), (12, 0.75)])
def test_both_powers_are_those_of_simulated_suites(pairs: int, size: float) -> None:
    draws = np.random.default_rng(0).normal(size=(40_000, pairs))
    shifted = stats.ttest_1samp(draws + size, 0, axis=1).pvalue < 0.05
    above = stats.ttest_1samp(draws, -size, axis=1, alternative="greater").pvalue < 0.05
    below = stats.ttest_1samp(draws, size, axis=1, alternative="less").pvalue < 0.05
    assert paired_power(pairs, size) == pytest.approx(shifted.mean(), abs=0.01)
    assert equivalence_power(pairs, size) == pytest.approx((above & below).mean(), abs=0.01)


def test_without_an_effect_the_power_is_the_error_rate() -> None:
    assert paired_power(8, 0.0) == pytest.approx(0.05, abs=1e-5)
    assert equivalence_power(8, 0.0) == 0


@pytest.mark.parametrize("pairs", [1, 2, 5, 8])
def test_the_smallest_p_is_that_of_flipping_all_signs(pairs: int) -> None:
    differences = np.arange(1, pairs + 1) / 3
    sums = [abs(np.dot(signs, differences)) for signs in itertools.product((1, -1), repeat=pairs)]
    assert smallest_p(pairs) == np.mean(np.array(sums) >= differences.sum() - 1e-9)


def test_eight_pairs_are_the_fewest_that_survive_holm_over_five_properties() -> None:
    assert fewest_pairs(5) == 8
    for properties in range(1, 40):
        fewest = fewest_pairs(properties)
        assert smallest_p(fewest) * properties <= 0.05 < smallest_p(fewest - 1) * properties
