"""Paired differences over seeds: their mean with an interval, sign-flip tests, equivalence, and runs far from the rest.

Flipping signs: if an arm does nothing, run and control could change places, so every difference could have either sign.
The p of a mean is the share of sign patterns that give one as large. Of n pairs there are 2ⁿ patterns, which are all
used up to 12 pairs and drawn above, and no p is below 2/2ⁿ.
"""

from collections.abc import Sequence
from typing import NamedTuple, final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import permutation_test, t

from collapselab.analysis.attainable import LEVEL
from collapselab.analysis.resampling import TIE

Floats = NDArray[np.float64]

MOST_EXACT = 12
"""Pairs of which every sign pattern is used."""
FEWEST_PAIRS = next(pairs for pairs in range(1, 99) if 2 / 2**pairs < LEVEL)
"""With fewer no sign-flip test can be below the level."""
SKEWED = 1.9
"""Robust standard errors between mean and median that 95 % of normal samples of 6 to 20 pairs stay below."""
FAR = 5.0
"""Robust standard deviations from the median at which a difference is noted; 3.5 marks one of 20 in tens of pairs."""
FEWEST_FOR_FAR = 4


@final
class Mean(NamedTuple):
    """The mean of differences, its 95 % interval by Student's t, and their standard deviation; None of a single one."""

    n: int
    mean: float
    low: float | None
    high: float | None
    sd: float | None


def mean_of(differences: Floats) -> Mean:
    """Of differences without NaN, at least one."""
    n, mean = len(differences), float(np.mean(differences))
    if n < 2:
        return Mean(n, mean, None, None, None)
    sd = float(np.std(differences, ddof=1))
    half = float(t.isf(0.025, n - 1)) * sd / np.sqrt(n)
    return Mean(n, mean, mean - half, mean + half, sd)


def sign_flip_p(differences: Floats, *, permutations: int, seed: int) -> Floats:
    """Two-sided p of each row of (rows, pairs): that the mean is 0, by flipping signs."""
    exact = differences.shape[1] <= MOST_EXACT
    result = permutation_test(
        (differences,),
        lambda values, axis: np.mean(values, axis=axis),
        permutation_type="samples",
        n_resamples=2 ** differences.shape[1] if exact else permutations,
        vectorized=True,
        axis=1,
        rng=np.random.default_rng(seed),
    )
    p: Floats = np.minimum(np.atleast_1d(result.pvalue), 1.0)
    return p


def step_down_p(differences: Floats, *, permutations: int, seed: int) -> Floats:
    """p of each row of (tests, seeds), NaN where a pair is missing, corrected over the rows.

    Holm's step-down with the sign patterns of the seeds in place of Bonferroni's bound: tests that share their seeds,
    and arms that share their controls, are flipped together, and each is compared with the largest statistic of those
    that are not larger than it. So the family can have any size, and the smallest p is still 2/2ⁿ.

    Westfall & Young (1993), Resampling-based multiple testing, algorithm 2.8.
    """
    known = ~np.isnan(differences)
    values = np.where(known, differences, 0.0)
    scale = np.sqrt(known.sum(1) * (values**2).sum(1))
    scale[scale == 0] = 1.0
    signs, exact = sign_patterns(values.shape[1], permutations=permutations, seed=seed)
    flipped = np.abs(signs @ values.T) / scale  # |mean| / root mean square: rises with |t|
    observed = np.abs(values.sum(1)) / scale
    adjusted, before = np.ones(len(values)), 0.0
    left = list(np.argsort(-observed, kind="stable"))
    while left:
        first = left[0]
        as_large = int((flipped[:, left].max(1) >= observed[first] * (1 - TIE)).sum())
        p = as_large / len(signs) if exact else (1 + as_large) / (1 + len(signs))
        before = max(before, p)
        adjusted[left.pop(0)] = before
    return adjusted


def sign_patterns(pairs: int, *, permutations: int, seed: int) -> tuple[Floats, bool]:
    """Sign patterns (patterns, pairs): all of them, or drawn."""
    if pairs <= MOST_EXACT:
        bits = np.arange(2**pairs)[:, None] >> np.arange(pairs) & 1
        signs: Floats = np.asarray(1.0 - 2.0 * bits, dtype=np.float64)
        return signs, True
    rng = np.random.default_rng(seed)
    return rng.choice([-1.0, 1.0], size=(permutations, pairs)), False


def equivalence_p(differences: Floats, margin: float) -> float:
    """p of the two one-sided t-tests that the mean is outside ± margin: small where it is inside."""
    from statsmodels.stats.weightstats import ttost_paired  # type: ignore[import-untyped]

    if np.ptp(differences) == 0:
        return 0.0 if abs(differences[0]) < margin else 1.0
    return float(ttost_paired(differences, np.zeros_like(differences), -margin, margin)[0])


def is_skewed(differences: Floats) -> bool:
    """Whether differences are skewed or have spikes, so that their mean is not that of a typical pair.

    Mean and median are farther apart than in 95 % of normal samples (`SKEWED`), or one difference is far from the rest.
    Eight pairs show this of 30 % of exponential samples, so `effects` also pools the pairs of all arms.
    """
    spread = 1.4826 * float(np.median(np.abs(differences - np.median(differences))))
    away = abs(float(np.mean(differences) - np.median(differences))) * np.sqrt(len(differences))
    return bool(away > SKEWED * spread) or bool(far_from_the_rest(differences, [""] * len(differences)))


def bootstrap_t(differences: Floats, *, resamples: int = 1999, seed: int = 0) -> tuple[float, float]:
    """A 95 % interval of the mean that follows the skew of the differences: quantiles of resampled t statistics."""
    n, mean = len(differences), float(np.mean(differences))
    drawn = np.random.default_rng(seed).choice(differences, (resamples, n))
    spread = drawn.std(axis=1, ddof=1)
    known = spread > 1e-9 * float(np.ptp(differences))
    statistics = (drawn.mean(1)[known] - mean) / (spread[known] / np.sqrt(n))
    low, high = np.quantile(statistics, [LEVEL / 2, 1 - LEVEL / 2])
    error = float(np.std(differences, ddof=1)) / np.sqrt(n)
    return mean - float(high) * error, mean - float(low) * error


def far_from_the_rest(differences: Floats, names: Sequence[str]) -> list[tuple[str, float]]:
    """The names of differences far from the others of their arm, with their distance in robust standard deviations."""
    if len(differences) < FEWEST_FOR_FAR:
        return []
    away = differences - np.median(differences)
    spread = 1.4826 * float(np.median(np.abs(away)))
    if spread == 0:
        return []
    return [(name, float(far / spread)) for name, far in zip(names, away, strict=True) if abs(far) > FAR * spread]
