import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

from collapselab.analysis.relate import correlation
from collapselab.analysis.resampling import Codes, Floats, detectable, permutation_test, standardised

RNG = np.random.default_rng(7)
ONE_CELL = np.zeros(12, dtype=np.intp)
X, Y = RNG.standard_normal((12, 3)), RNG.standard_normal(12)
CELLS = np.array([0, 0, 0, 1, 1, 2, 2, 2, 2, 1, 0, 2])


def permutation_p(x: Floats, y: Floats, cells: Codes, *, permutations: int, seed: int) -> Floats:
    return permutation_test(x, y, cells, permutations=permutations, seed=seed).p


def test_in_one_cell_the_correlations_are_those_of_scipy() -> None:
    assert_allclose(correlation(X, Y, ONE_CELL), [stats.pearsonr(x, Y).statistic for x in X.T], rtol=1e-12)


def test_a_correlation_within_cells_by_hand() -> None:
    """Cells of three, two and one. Of the first x is -1, 0, 1 and y -1, 2, -1 over √3: r = 0; of the pair only signs are
    left, ±√½ each. Together r = -1 / 3, and the one alone says nothing."""
    x, y = np.array([[1.0], [2.0], [3.0], [10.0], [14.0], [9.0]]), np.array([0.0, 3.0, 0.0, 900.0, 0.0, 5.0])
    cells = np.array([0, 0, 0, 1, 1, 2])
    assert_allclose(correlation(x, y, cells), -1 / 3, rtol=1e-12)


def test_a_cell_of_large_spread_counts_as_much_as_the_others() -> None:
    scale = np.array([1.0, 1e6, 1e-3])[CELLS]
    assert_allclose(correlation(X * scale[:, None], Y / scale, CELLS), correlation(X, Y, CELLS), rtol=1e-9)
    found = [permutation_p(x, Y, CELLS, permutations=999, seed=1) for x in (X, X * scale[:, None])]
    assert_allclose(*found, atol=0.002)


def test_a_cell_in_which_nothing_varies_is_left_out() -> None:
    values = np.array([0.1, 0.1, 0.1, 1.0, 2.0, 4.0])
    assert (standardised(values + 1e-17, np.repeat([0, 1], 3))[:3] == 0).all()


def test_the_mean_of_a_cell_says_nothing_within_cells() -> None:
    shift = np.array([1e3, -5e3, 2e4])[CELLS]
    assert_allclose(correlation(X + shift[:, None], Y - shift, CELLS), correlation(X, Y, CELLS), rtol=1e-9)
    kwargs = {"permutations": 999, "seed": 1}
    assert_allclose(
        permutation_p(X + shift[:, None], Y - shift, CELLS, **kwargs), permutation_p(X, Y, CELLS, **kwargs), atol=0.002
    )


def test_small_tables_have_the_p_of_all_their_permutations() -> None:
    """All 720 orders of six models, by hand and by scipy; 100,000 drawn ones scatter by 4 standard errors at most."""
    x, y = X[:6, :1], Y[:6]
    observed = abs(np.corrcoef(x[:, 0], y)[0, 1])
    every = [abs(np.corrcoef(x[:, 0], y[list(order)])[0, 1]) for order in itertools.permutations(range(6))]
    exact = np.mean(np.array(every) >= observed * (1 - 1e-9))
    found = permutation_p(x, y, ONE_CELL[:6], permutations=100_000, seed=0)[0]
    assert abs(found - exact) < 4 * np.sqrt(exact * (1 - exact) / 100_000)


def test_the_p_agrees_with_scipys_permutation_test() -> None:
    for x, found in zip(X.T, permutation_p(X, Y, ONE_CELL, permutations=20_000, seed=3), strict=True):
        method = stats.PermutationMethod(n_resamples=20_000, rng=np.random.default_rng(5))
        theirs = stats.pearsonr(x, Y, method=method).pvalue
        assert abs(found - theirs) < 5 * np.sqrt(2 * theirs * (1 - theirs) / 20_000) + 0.01  # scipy doubles one tail


def test_permuting_within_cells_gives_all_orders_of_each_cell_and_no_other() -> None:
    """Cells of 2 and 3: 12 orders, so the exact p is a multiple of 1/12."""
    x, y, cells = X[:5, :1], Y[:5], np.array([0, 1, 0, 1, 1])
    observed = abs(standardised(x, cells)[:, 0] @ standardised(y, cells))
    found = []
    for pair in itertools.permutations([0, 2]):
        for triple in itertools.permutations([1, 3, 4]):
            order = np.empty(5, dtype=int)
            order[[0, 2]], order[[1, 3, 4]] = pair, triple
            found.append(abs(standardised(x, cells)[:, 0] @ standardised(y, cells)[order]))
    exact = np.mean(np.array(found) >= observed * (1 - 1e-9))
    p = permutation_p(x, y, cells, permutations=50_000, seed=0)[0]
    assert abs(p - exact) < 4 * np.sqrt(exact * (1 - exact) / 50_000) + 1e-4


def test_no_p_is_zero_and_the_same_seed_gives_the_same() -> None:
    x = np.arange(12.0)[:, None]
    assert permutation_p(x, np.arange(12.0), ONE_CELL, permutations=999, seed=0)[0] == 1 / 1000
    first, again, other = (permutation_p(X, Y, ONE_CELL, permutations=500, seed=seed) for seed in (4, 4, 5))
    assert (first == again).all()
    assert (first != other).any()


def test_many_metrics_at_once_are_each_alone() -> None:
    together = permutation_p(X, Y, CELLS, permutations=999, seed=2)
    alone = [permutation_p(X[:, [i]], Y, CELLS, permutations=999, seed=2)[0] for i in range(3)]
    assert_allclose(together, alone, rtol=0, atol=0)


def test_shared_seeds_change_places_in_all_cells_at_once() -> None:
    """Two cells of the same three seeds: 6 orders, each applied to both, so the exact p is a multiple of 1/6."""
    x, y, cells = X[:6, :1], Y[:6], np.array([0, 0, 0, 1, 1, 1])
    observed = abs(standardised(x, cells)[:, 0] @ standardised(y, cells))
    orders = [[*order, *(place + 3 for place in order)] for order in itertools.permutations(range(3))]
    sizes = np.array([abs(standardised(x, cells)[:, 0] @ standardised(y, cells)[order]) for order in orders])
    exact = np.mean(sizes >= observed * (1 - 1e-9))
    blocks = [np.arange(6).reshape(2, 3)]
    p = permutation_test(x, y, cells, permutations=20_000, seed=0, factors=[blocks]).p[0]
    assert abs(p - exact) < 4 * np.sqrt(exact * (1 - exact) / 20_000) + 1e-4
    assert len(orders) == 6


def test_the_claimed_power_is_the_power_there_is() -> None:
    """Pairs with the smallest correlation that is claimed to be found in 80 %: found in 80 %, by this test itself."""
    for n, cells in ((21, np.zeros(21, dtype=np.intp)), (24, np.repeat(np.arange(4), 6))):
        r = detectable(n - 2 * cells.max())
        found = 0
        for _ in range(600):
            x = RNG.standard_normal((n, 1))
            y = r * x[:, 0] + np.sqrt(1 - r**2) * RNG.standard_normal(n)
            found += permutation_p(x, y, cells, permutations=299, seed=0)[0] <= 0.05
        assert 0.74 < found / 600 < 0.86  # 1.6 % is the error of 600 draws; Fisher's z is good to a few


def test_the_detectable_correlation() -> None:
    assert detectable(21) == pytest.approx(0.5786, abs=1e-4)
    assert detectable(30) < 0.5 < detectable(29)  # a table of Cohen's kind says 29 or 30
    assert np.isnan(detectable(3))
