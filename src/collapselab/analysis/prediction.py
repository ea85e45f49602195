"""Prediction: how well a scaling law predicts the outcome of an unseen architecture, with and without each metric.

The law is a power of parameters and tokens, a plane in logarithms; a second one may bend. What a metric adds to the
stiff law may be no more than the bend it lacks; what it adds to both is more. Seeds are averaged; every architecture
is left out in turn with all its models. The interval of a gain draws architectures, so it needs as many of them as a
permutation test needs models; and each fit must keep degrees of freedom beyond its parameters.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np
import pandas as pd

from collapselab.analysis.attainable import FEWEST_FREEDOM, FEWEST_MODELS
from collapselab.analysis.models import NOT_TESTED, Floats, Models, Variable
from collapselab.analysis.resampling import Codes
from collapselab.analysis.subsets import codes_of
from collapselab.analysis.verdict import Cause, Reason
from collapselab.analysis.words import CANNOT_TELL, NOT_MEASURED, Sentence, metric_label

LAWS = {"power law": 1, "bending power law": 2}
RESAMPLES = 2000


@final
@dataclass(frozen=True)
class Prediction:
    """One metric beside one law; a row of `prediction.csv`. R² is of models whose architecture was left out."""

    law: str
    """`power law` or `bending power law`."""
    metric: str
    """Id in the catalogue."""
    transform: str
    """`raw` or `log`."""
    n: int
    """Cells, seeds averaged."""
    architectures: int
    """That are left out in turn."""
    r2_law: float | None = None
    """R² on what was left out, of the law alone."""
    r2_with_metric: float | None = None
    """With the metric beside it."""
    gain: float | None = None
    """The difference."""
    low: float | None = None
    """Lower end of its 95 % interval."""
    high: float | None = None
    """Upper end."""
    scale: str = ""
    """What the law is in: parameters and tokens, or epochs."""
    why: str | None = None
    """Why there are no numbers, or no p and no verdict."""
    why_code: Cause | None = None
    """As in `relate.csv`."""


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
    if reason := _reason(row, cells, models.outcome):
        return replace(row, **reason.columns)
    truth, folds = cells[models.outcome].to_numpy(dtype=float), codes_of(cells["architecture"])
    plain = _design(cells, tokens, LAWS[law])
    with_metric = np.column_stack([plain, _standard(cells["x"].to_numpy(dtype=float))])
    fitted, parameters = len(cells) - int(np.bincount(folds).max()), with_metric.shape[1]
    if fitted - parameters < FEWEST_FREEDOM:
        needed = f"{parameters + FEWEST_FREEDOM} are needed"
        text = f"{fitted} models are left to fit {parameters} parameters to; {needed}."
        return replace(row, **Reason(Cause.TOO_FEW, text).columns)
    errors = [(truth - np.exp(_left_out(z, np.log(truth), folds))) ** 2 for z in (plain, with_metric)]
    r2_law, r2_metric = (_r2(error, truth) for error in errors)
    low, high = _gain_interval(errors[0] - errors[1], truth, folds, seed)
    return replace(row, r2_law=r2_law, r2_with_metric=r2_metric, gain=r2_metric - r2_law, low=low, high=high)


def _cells(models: Models, variable: Variable) -> tuple[pd.DataFrame, str]:
    """One row a cell, its seeds averaged, and the column that measures the amount of training."""
    columns = ["architecture", "cell", "parameters", "tokens", "epoch", models.outcome]
    frame = models.trained[columns].assign(x=variable.values)
    tokens = "tokens" if frame["tokens"].notna().all() else "epoch"
    frame = frame.dropna(subset=["x", models.outcome, "parameters", tokens])
    return frame.groupby(["architecture", "cell"]).mean().reset_index(), tokens


def _reason(row: Prediction, cells: pd.DataFrame, outcome: str) -> Reason | None:
    if row.metric in NOT_TESTED:
        return Reason(Cause.NOT_A_TEST, NOT_TESTED[row.metric])
    if row.architectures < FEWEST_MODELS:
        text = f"{row.architectures} architectures; to leave each out in turn takes {FEWEST_MODELS} or more."
        return Reason(Cause.TOO_FEW, text)
    for name, values in ((row.metric, cells["x"]), (outcome, cells[outcome])):
        if np.ptp(values) <= 1e-12 * values.abs().max():
            return Reason(Cause.NO_VARIATION, f"{name} is the same in all {row.n} models.")
    if (cells[outcome] <= 0).any():
        return Reason(Cause.NO_FIT, f"{outcome} is not positive; a power law needs that.")
    return None


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
    predicted = np.empty_like(y)
    for fold in range(folds.max() + 1):
        left_out = folds == fold
        predicted[left_out] = z[left_out] @ np.linalg.lstsq(z[~left_out], y[~left_out])[0]
    return predicted


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


def sentences(models: Models, rows: Sequence[Prediction]) -> Iterable[Sentence]:
    """What the laws predict, and which metrics add to every one of them."""
    of_law = {law: [row for row in rows if row.law == law and row.gain is not None] for law in LAWS}
    if not all(of_law.values()):
        unknown = next(law for law, known in of_law.items() if not known)
        why = next((row.why for row in rows if row.law == unknown), NOT_MEASURED)
        yield Sentence("prediction", "prediction", f"Prediction of {models.outcome}: {CANNOT_TELL}; {why}")
        return
    r2 = ", ".join(f"{known[0].r2_law:.3f} ({law})" for law, known in of_law.items())
    sure = set.intersection(
        *({metric_label(row) for row in known if row.low is not None and row.low > 0} for known in of_law.values())
    )
    last = list(LAWS)[-1]
    helpful = sorted(
        (row for row in of_law[last] if metric_label(row) in sure), key=lambda row: row.gain or 0.0, reverse=True
    )
    listed = ", ".join(f"{metric_label(row)} {row.r2_with_metric:.3f}" for row in helpful) or "none"
    yield Sentence(
        "prediction",
        "prediction",
        f"On architectures left out in turn, {of_law[last][0].scale} predict {models.outcome} with R² {r2}. Metrics "
        f"whose gain has an interval above 0 beside every law, with R² beside the {last}: {listed}. They are measured "
        "on the very model that is predicted: a gain shows shared information, not a cause.",
    )
