"""Pace: what a share of the training tokens is worth in loss, and models compared at equal training loss.

Arms change how fast a model learns. So an effect at equal steps is shown beside that at equal training cross-entropy:
each pair is compared at the lowest training loss that both reach, the faster one interpolated between its checkpoints.
"""

import math

import numpy as np
import pandas as pd

from collapselab.analysis.arms import Comparison
from collapselab.analysis.models import Floats, Models

EARLIER = 0.8
"""The slope at the end of a run is measured from its last checkpoint with at most this share of the tokens."""
NO_CHECKPOINTS = (
    "a comparison at equal training loss needs two checkpoints with a training loss in every run, which bracket the "
    "last of the other; keep more checkpoints (`checkpoints: log:8`)."
)


def worth_of_tokens(models: Models, runs: set[str], share: float) -> float | None:
    """The outcome's change for this share of training tokens more: |d outcome / d log tokens| · log(1 + share).

    The slope is that of the control runs at their end, the median over runs; None where no run has a checkpoint before
    its last, or where the outcome does not change. Under a falling learning rate the end is steeper than a longer
    training would be.
    """
    slopes = []
    for _, checkpoints in models.trained[models.trained["run"].isin(runs)].groupby("run"):
        known = checkpoints.dropna(subset=["tokens", models.outcome]).sort_values("tokens")
        known = known[known["tokens"] > 0]
        earlier = known[known["tokens"] <= EARLIER * known["tokens"].max()]
        if len(earlier):
            first, last = earlier.iloc[-1], known.iloc[-1]
            change = float(last[models.outcome] - first[models.outcome])
            slopes.append(change / math.log(last["tokens"] / first["tokens"]))
    worth = abs(float(np.median(slopes))) * math.log1p(share) if slopes else 0.0
    return worth or None


def at_equal_training_loss(models: Models, comparison: Comparison) -> pd.DataFrame | None:
    """Arm minus control where both have the same training loss, a row a seed; None where checkpoints do not allow it.

    Pairs that do not allow it are left out.
    """
    columns = [str(column) for column in comparison.treated]
    frame = models.trained
    needed = set(frame.loc[[*comparison.pairs["treated"], *comparison.pairs["control"]], "run"])
    kept = frame.loc[frame["run"].isin(needed), list(dict.fromkeys(["run", "epoch", "train_loss", *columns]))]
    kept = kept.dropna(subset=["train_loss"])
    if not kept["run"].duplicated().any():
        return None
    runs = {str(run): rows.sort_values("epoch") for run, rows in kept.groupby("run")}
    rows, units = [], []
    for pair in comparison.pairs.itertuples():
        treated, control = (runs.get(str(frame.at[place, "run"])) for place in (pair.treated, pair.control))
        if treated is None or control is None:
            continue
        level = max(float(side["train_loss"].iloc[-1]) for side in (treated, control))
        ends = [_at(side, level, columns) for side in (treated, control)]
        if ends[0] is not None and ends[1] is not None:
            rows.append(ends[0] - ends[1])
            units.append(pair.unit)
    return pd.DataFrame(rows, columns=columns).groupby(pd.Series(units), sort=True).mean() if rows else None


def _at(checkpoints: pd.DataFrame, level: float, columns: list[str]) -> Floats | None:
    """The values of a run where its training loss last reached a level, between two checkpoints."""
    losses = checkpoints["train_loss"].to_numpy(dtype=float)
    values: Floats = checkpoints[columns].to_numpy(dtype=float)
    if losses[-1] == level:
        last: Floats = values[-1]
        return last if len(losses) > 1 else None
    for i in range(len(losses) - 1, 0, -1):
        if losses[i] <= level <= losses[i - 1] and losses[i - 1] > losses[i]:
            share = (losses[i - 1] - level) / (losses[i - 1] - losses[i])
            between: Floats = (1 - share) * values[i - 1] + share * values[i]
            return between
    return None
