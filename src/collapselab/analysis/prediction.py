"""Prediction: how well a scaling law predicts the outcome of an unseen architecture, with and without each metric.

The law is a power of parameters and tokens, a plane in logarithms; a second one may bend. What a metric adds to the
stiff law may be no more than the bend it lacks; what it adds to both is more. Seeds are averaged; every architecture
is left out in turn with all its models. The interval of a gain draws architectures, so it needs as many of them as a
permutation test needs models; and each fit must keep degrees of freedom beyond its parameters.
"""

from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import pandas as pd

from collapselab.analysis.attainable import FEWEST_FREEDOM, FEWEST_MODELS
from collapselab.analysis.models import NOT_TESTED, Floats, Models, Variable
from collapselab.analysis.resampling import Codes

LAWS = {"power law": 1, "bending power law": 2}
RESAMPLES = 2000


@final
@dataclass(frozen=True)
class Prediction:
    """One metric beside one law; a row of `prediction.csv`. R² is of models whose architecture was left out."""

    law: str
    metric: str
    transform: str
    n: int
    architectures: int
    r2_law: float | None = None
    r2_with_metric: float | None = None
    gain: float | None = None
    low: float | None = None
    """95 % interval of the gain, drawing architectures with replacement."""
    high: float | None = None
    scale: str = ""
    why: str | None = None


def predictions(models: Models, *, seed: int = 0) -> list[Prediction]:
    """Every metric beside every law."""
    return [_prediction(models, variable, law, seed) for law in LAWS for variable in models.variables]


def _prediction(models: Models, variable: Variable, law: str, seed: int) -> Prediction:
    cells, tokens = _cells(models, variable)
    row = Prediction(
        law=law,
        metric=variable.metric,
        transform=variable.transform,
        n=len(cells),
        architectures=cells["architecture"].nunique(),
        scale=f"parameters and {tokens}",
    )
    if why := _reason(row, cells, models.outcome):
        return replace(row, why=why)
    truth, folds = cells[models.outcome].to_numpy(dtype=float), _codes(cells["architecture"])
    plain = _design(cells, tokens, LAWS[law])
    with_metric = np.column_stack([plain, _standard(cells["x"].to_numpy(dtype=float))])
    fitted, parameters = len(cells) - int(np.bincount(folds).max()), with_metric.shape[1]
    if fitted - parameters < FEWEST_FREEDOM:
        needed = f"{parameters + FEWEST_FREEDOM} are needed"
        return replace(row, why=f"{fitted} models are left to fit {parameters} parameters to; {needed}.")
    errors = [(truth - np.exp(_left_out(z, np.log(truth), folds))) ** 2 for z in (plain, with_metric)]
    r2_law, r2_metric = (_r2(error, truth) for error in errors)
    low, high = _gain_interval(errors[0] - errors[1], truth, folds, seed)
    return replace(row, r2_law=r2_law, r2_with_metric=r2_metric, gain=r2_metric - r2_law, low=low, high=high)


def _cells(models: Models, variable: Variable) -> tuple[pd.DataFrame, str]:
    """One row a cell, its seeds averaged, and the column that stands for the amount of training."""
    columns = ["architecture", "cell", "parameters", "tokens", "epoch", models.outcome]
    frame = models.trained[columns].assign(x=variable.values)
    tokens = "tokens" if frame["tokens"].notna().all() else "epoch"
    frame = frame.dropna(subset=["x", models.outcome, "parameters", tokens])
    return frame.groupby(["architecture", "cell"]).mean().reset_index(), tokens


def _codes(labels: "pd.Series[Any]") -> Codes:
    return np.asarray(pd.factorize(labels)[0], dtype=np.intp)


def _reason(row: Prediction, cells: pd.DataFrame, outcome: str) -> str | None:
    if row.metric in NOT_TESTED:
        return NOT_TESTED[row.metric]
    if row.architectures < FEWEST_MODELS:
        return f"{row.architectures} architectures; to leave each out in turn takes {FEWEST_MODELS} or more."
    for name, values in ((row.metric, cells["x"]), (outcome, cells[outcome])):
        if np.ptp(values) <= 1e-12 * values.abs().max():
            return f"{name} is the same in all {row.n} models."
    return f"{outcome} is not positive; a power law needs that." if (cells[outcome] <= 0).any() else None


def _design(cells: pd.DataFrame, tokens: str, degree: int) -> Floats:
    size, data = (_standard(np.log(cells[column].to_numpy())) for column in ("parameters", tokens))
    columns = [np.ones(len(cells)), size, data]
    if degree == 2:
        columns += [size**2, data**2, size * data]
    return np.column_stack(columns)


def _standard(values: Floats) -> Floats:
    spread: float = values.std() if np.ptp(values) > 0 else 1.0
    standard: Floats = (values - values.mean()) / spread
    return standard


def _left_out(z: Floats, y: Floats, folds: Codes) -> Floats:
    """The prediction for every model from the models of other architectures."""
    found = np.empty_like(y)
    for fold in range(folds.max() + 1):
        held = folds == fold
        found[held] = z[held] @ np.linalg.lstsq(z[~held], y[~held])[0]
    return found


def _r2(errors: Floats, truth: Floats) -> float:
    return float(1 - errors.sum() / ((truth - truth.mean()) ** 2).sum())


def _gain_interval(saved: Floats, truth: Floats, folds: Codes, seed: int) -> tuple[float, float]:
    total = int(folds.max()) + 1
    rng = np.random.default_rng(seed)
    weights = rng.multinomial(total, np.full(total, 1 / total), size=RESAMPLES)[:, folds].astype(float)
    means = (weights @ truth) / weights.sum(1)
    spread = weights @ truth**2 - weights.sum(1) * means**2
    low, high = np.percentile((weights @ saved) / spread, [2.5, 97.5])
    return float(low), float(high)
