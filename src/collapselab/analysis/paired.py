"""Paired differences over seeds: mean, sign-flip tests, equivalence, outliers, equal training loss, the gap.

Flipping signs: if an arm does nothing, run and control could change places, so every difference could have either sign.
The p of a mean is the share of sign patterns that give one as large. Of n pairs there are 2ⁿ patterns, which are all
used up to 12 pairs and drawn above, and no p is below 2/2ⁿ.

The validation loss after a fixed budget mixes learning speed and generalisation. A comparison at equal training loss
takes speed out. It needs training losses that were evaluated at the checkpoints: the mean of the last training steps
lags behind the weights, and the lag alone looks like an effect.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from collapselab.analysis.arms import Comparison
from collapselab.analysis.models import Floats, Models
from collapselab.analysis.resampling import LEVEL, sign_patterns, step_down

MIN_PAIRS = next(pairs for pairs in range(1, 99) if 2 / 2**pairs < LEVEL)
"""With fewer no sign-flip test can be below the level."""
SKEWED = 1.9
"""Robust standard errors between mean and median that 95 % of normal samples of 6 to 20 pairs stay below."""
FAR = 5.0
"""Robust standard deviations from the median beyond which a difference is a spike; 3.5 marks one of 20 in tens of
pairs."""
MIN_FOR_FAR = 4
NEAR_LEVEL = 0.1
"""Share of all tokens within which a checkpoint must be for a comparison at equal training loss."""
MIN_FOR_GAP = 3
"""Pairs of every arm for a test that the gap stays."""
MIN_ARMS = 3
"""Arms for a correlation over them."""


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
    from statsmodels.stats.weightstats import DescrStatsW  # type: ignore[import-untyped]

    low, high = DescrStatsW(differences).tconfint_mean(LEVEL)
    return Mean(n, mean, float(low), float(high), float(np.std(differences, ddof=1)))


def sign_flips(differences: Floats, *, permutations: int, seed: int) -> tuple[Floats, Floats]:
    """Two-sided p of each row of (tests, seeds), that its mean is 0, alone and corrected over the rows.

    NaN where a pair is missing. The correction is Holm's step-down with the sign patterns of the seeds in place of
    Bonferroni's bound: tests that share their seeds, and arms that share their controls, are flipped together. So the
    family can have any size, and the smallest p is still 2/2ⁿ.
    """
    known = ~np.isnan(differences)
    values = np.where(known, differences, 0.0)
    scale = np.sqrt(known.sum(1) * (values**2).sum(1))
    scale[scale == 0] = 1.0
    signs, exact = sign_patterns(values.shape[1], permutations, seed)
    return step_down(values.sum(1) / scale, signs @ values.T / scale, exact=exact)  # rises with |t|


def equivalence_p(differences: Floats, margin: float) -> float:
    """p of the two one-sided t-tests that the mean is outside ± margin: small where it is inside."""
    from statsmodels.stats.weightstats import ttost_paired

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
    return bool(away > SKEWED * spread) or has_spikes(differences)


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


def has_spikes(differences: Floats) -> bool:
    """Whether one of at least four differences is more than `FAR` robust standard deviations from their median."""
    away = np.abs(differences - np.median(differences))
    spread = 1.4826 * float(np.median(away))
    return len(differences) >= MIN_FOR_FAR and spread > 0 and bool((away > FAR * spread).any())


def gap_stays(compared: Sequence[Comparison], margin: float | None) -> bool:
    """Whether every arm's change of the gap is shown to be within the margin (two one-sided tests each)."""
    if margin is None or "gap" not in compared[0].treated:
        return False
    gaps = [comparison.differences["gap"].dropna().to_numpy(dtype=float) for comparison in compared]
    return all(len(gap) >= MIN_FOR_GAP and equivalence_p(gap, margin) < LEVEL for gap in gaps)


def proportion_of_losses(compared: Sequence[Comparison]) -> str | None:
    """How the changes of both losses belong together over the arms, in words; None with fewer than three.

    The slope is that through 0: change of the validation loss per change of the training loss, evaluated or running.
    """
    column = next((name for name in ("train_loss", "train_loss_running") if name in compared[0].treated), None)
    if column is None or "val_loss" not in compared[0].treated or len(compared) < MIN_ARMS:
        return None
    means = np.array([comparison.differences[[column, "val_loss"]].mean() for comparison in compared])
    train, val = means[~np.isnan(means).any(1)].T
    if len(train) < MIN_ARMS or np.ptp(train) == 0 or np.ptp(val) == 0:
        return None
    slope, r = train @ val / (train @ train), np.corrcoef(train, val)[0, 1]
    return f"Over {len(train)} arms Δval_loss is {slope:.3f} Δ{column} (r {r:.4f})"


def equal_loss_differences(models: Models, comparison: Comparison) -> Floats:
    """Arm minus control in validation loss at equal training loss, one a seed; none where losses were not evaluated.

    At equal training loss this is also the difference of the gap.
    """
    if models.outcome not in ("val_loss", "gap") or models.trained["train_loss"].isna().all():
        return np.empty(0)
    runs, units = models.trained["run"], dict[object, list[float]]()
    for treated, control, unit in comparison.pairs[["treated", "control", "unit"]].itertuples(index=False):
        curves = (models.trained[runs == runs[place]] for place in (treated, control))
        difference = at_equal_training_loss(*curves)
        if difference is not None:
            units.setdefault(unit, []).append(difference)
    return np.array([np.mean(values) for values in units.values()])


def at_equal_training_loss(treated: pd.DataFrame, control: pd.DataFrame) -> float | None:
    """Difference of the validation losses of two runs at the final training loss of the slower one.

    The faster run's validation loss is interpolated linearly in its evaluated training loss between the neighbouring
    checkpoints. None where no checkpoint is within `NEAR_LEVEL` of all tokens of that place.
    """
    curves = []
    for run in (treated, control):
        known = run.dropna(subset=["train_loss", "val_loss", "tokens"]).sort_values("tokens")
        if known.empty:
            return None
        curves.append(known[["train_loss", "val_loss", "tokens"]].to_numpy(dtype=float))
    slower = int(curves[1][-1, 0] > curves[0][-1, 0])
    level, faster = curves[slower][-1, 0], curves[1 - slower]
    below = np.flatnonzero((faster[:-1, 0] >= level) & (faster[1:, 0] <= level))
    if not len(below):
        return None
    before, after = faster[below[-1]], faster[below[-1] + 1]
    share = 0.0 if before[0] == after[0] else float((before[0] - level) / (before[0] - after[0]))
    at_level = before + share * (after - before)
    if min(at_level[2] - before[2], after[2] - at_level[2]) > NEAR_LEVEL * faster[-1, 2]:
        return None
    losses = {slower: curves[slower][-1, 1], 1 - slower: at_level[1]}
    return float(losses[0] - losses[1])
