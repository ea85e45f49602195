import itertools

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from collapselab.analysis.paired import (
    MIN_PAIRS,
    bootstrap_t,
    equivalence_p,
    has_spikes,
    is_skewed,
    mean_of,
    sign_flips,
)
from collapselab.analysis.resampling import holm


def flips(n: int) -> list[tuple[int, ...]]:
    return list(itertools.product((1, -1), repeat=n))


def test_the_mean_has_the_interval_of_student() -> None:
    d = np.array([0.1, 0.4, 0.2, 0.35])
    found, other = mean_of(d), ttest_1samp(d, 0).confidence_interval()
    assert (found.n, found.low, found.high) == (4, pytest.approx(other.low), pytest.approx(other.high))
    assert mean_of(d[:1])[2:] == (None, None, None)


def test_the_sign_flip_p_is_the_share_of_patterns_counted_one_by_one() -> None:
    d = np.array([[0.5, 0.1, -0.2, 0.4, 0.3, 0.25], [1.0, -1.0, 1.0, -1.0, 1.0, -1.0]])
    counted = [
        np.mean([abs(np.dot(signs, row)) >= abs(row.sum()) - 1e-12 for signs in flips(6)]) for row in d
    ]  # fmt: skip
    assert sign_flips(d, permutations=9999, seed=0)[0] == pytest.approx(counted)


def test_eight_pairs_survive_a_correction_over_five_and_five_pairs_show_nothing() -> None:
    rng = np.random.default_rng(0)
    strong = 1 + 0.1 * rng.standard_normal((5, 8))
    assert sign_flips(strong, permutations=99, seed=0)[1] == pytest.approx([2 / 2**8] * 5)
    assert holm([2 / 2**8] * 5)[0] < 0.05 < holm([2 / 2**7] * 5)[0]
    assert MIN_PAIRS == 6
    assert sign_flips(strong[:, :5], permutations=99, seed=0)[0].min() == pytest.approx(2 / 2**5)


def test_step_down_is_the_definition_in_loops() -> None:
    rng = np.random.default_rng(1)
    d = rng.standard_normal((4, 7)) + np.array([1.5, 0.8, 0.2, 0.0])[:, None]
    size = [abs(row.sum()) / np.sqrt(7 * (row**2).sum()) for row in d]
    expected, largest = {}, 0.0
    order = sorted(range(4), key=lambda i: -size[i])
    for place, i in enumerate(order):
        rest = order[place:]
        count = sum(
            max(abs(np.dot(signs, d[j])) / np.sqrt(7 * (d[j] ** 2).sum()) for j in rest) >= size[i] - 1e-12
            for signs in flips(7)
        )
        largest = max(largest, count / 2**7)
        expected[i] = largest
    assert sign_flips(d, permutations=99, seed=0)[1] == pytest.approx([expected[i] for i in range(4)])


def test_missing_pairs_count_for_nothing() -> None:
    d = np.array([[1.0, 1.1, 0.9, 1.2, 1.0, 1.05, np.nan], [0.1, -0.1, 0.2, -0.2, 0.1, -0.1, 0.3]])
    assert sign_flips(d, permutations=99, seed=0)[1][0] == pytest.approx(2 / 2**6)


def test_equivalence_is_the_larger_of_two_one_sided_tests() -> None:
    d = np.array([0.01, -0.02, 0.015, 0.0, -0.01, 0.02])
    expected = max(ttest_1samp(d, -0.05, alternative="greater").pvalue, ttest_1samp(d, 0.05, alternative="less").pvalue)
    assert equivalence_p(d, 0.05) == pytest.approx(expected)
    assert equivalence_p(np.full(6, 0.01), 0.05) == 0
    assert equivalence_p(np.full(6, 0.05), 0.05) == 1


def test_a_run_that_went_unstable_is_named() -> None:
    d = np.array([-0.047, 0.038, 0.554, 0.015, 0.044, 0.139])
    assert has_spikes(d)
    assert not has_spikes(np.delete(d, 2)), "the one that is far away"
    assert not has_spikes(d[:3])
    assert not has_spikes(np.zeros(8))


def test_spikes_and_skew_are_seen_and_normal_differences_seldom() -> None:
    rng = np.random.default_rng(0)
    spiky = np.array([0.0, 0.01, -0.01, 0.02, 0.0, -0.02, 0.01, 0.5])
    assert is_skewed(spiky)
    assert np.mean([is_skewed(rng.standard_normal(8)) for _ in range(400)]) < 0.12
    assert np.mean([is_skewed(rng.exponential(1, 40) - 1) for _ in range(200)]) > 0.6


def test_the_bootstrap_t_reaches_farther_toward_the_tail() -> None:
    values = np.array([-0.2, -0.15, -0.1, -0.1, -0.05, 0.0, 0.1, 0.9])
    low, high = bootstrap_t(values)
    mean = values.mean()
    assert low < mean < high
    assert high - mean > mean - low, "the long tail is on this side"
