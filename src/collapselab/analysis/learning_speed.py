"""Learning speed or generalisation: does an arm change the gap between both losses, or only how fast they fall?

The validation loss after a fixed budget mixes the two. Below one epoch no text is seen twice, so training and
validation loss estimate the same number, and a suite can speak of learning speed alone. So can a suite in which every
arm's change of the gap is shown to be smaller than the smallest effect of interest.

A comparison at equal training loss takes speed out. It needs training losses that were evaluated at the checkpoints:
the mean of the last training steps lags behind the weights, and the lag alone looks like an effect.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from collapselab.analysis.arms import Comparison, comparisons
from collapselab.analysis.attainable import LEVEL
from collapselab.analysis.models import Models
from collapselab.analysis.paired import Floats, equivalence_p
from collapselab.analysis.words import many

NEAR_LEVEL = 0.1
"""Share of all tokens within which a checkpoint must be for a comparison at equal training loss."""
MIN_PAIRS = 3


def about_speed(models: Models, margin: float | None) -> str | None:
    """The sentence that a suite is about learning speed; None where it is about generalisation too."""
    compared = [comparison for comparison in comparisons(models) if not comparison.arm.sham]
    if not compared:
        return None
    epochs = float(models.trained.loc[models.trained["last"], "epoch"].max())
    if epochs < 1:
        reason = f"its runs see {epochs:.2g} of an epoch, so no text twice"
    elif _gap_stays(compared, margin):
        reason = f"no arm changes the gap between validation and training loss by ±{margin:.2g} or more"
    else:
        return None
    return f"This suite is about learning speed, not about generalisation: {reason}{_proportion(compared)}."


def _gap_stays(compared: Sequence[Comparison], margin: float | None) -> bool:
    """Whether every arm's change of the gap is shown to be within the margin (two one-sided tests each)."""
    if margin is None or "gap" not in compared[0].treated:
        return False
    gaps = [comparison.differences["gap"].dropna().to_numpy(dtype=float) for comparison in compared]
    return all(len(gap) >= MIN_PAIRS and equivalence_p(gap, margin) < LEVEL for gap in gaps)


def _proportion(compared: Sequence[Comparison]) -> str:
    """How the changes of both losses go together over the arms: slope through 0 and correlation."""
    column = next((name for name in ("train_loss", "train_loss_running") if name in compared[0].treated), None)
    if column is None or "val_loss" not in compared[0].treated or len(compared) < 3:
        return ""
    names = (column, "val_loss")
    means = np.array([[comparison.differences[name].mean() for name in names] for comparison in compared])
    train, val = means[~np.isnan(means).any(1)].T
    if len(train) < 3 or np.ptp(train) == 0 or np.ptp(val) == 0:
        return ""
    slope, r = float(train @ val / (train @ train)), float(np.corrcoef(train, val)[0, 1])
    return f". Over {many(len(train), 'arm')} Δval_loss is {slope:.3f} Δ{column} (r {r:.4f})"


def equal_loss_differences(models: Models, comparison: Comparison) -> Floats:
    """Arm minus control in validation loss at equal training loss, one a seed; none where losses were not evaluated."""
    if models.outcome != "val_loss" or models.trained["train_loss"].isna().all():
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
