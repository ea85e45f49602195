"""Prediction: how well a law of scale predicts the outcome of an unseen architecture, with and without each metric.

There are several laws: powers of all parameters, of those beside the embeddings (12 · depth · width²; embeddings rule
the count of a small model and do little for its loss), and a quadratic function of log width and log depth in which
every regime has a level. A metric beside a weak law finds what the law lacks. So the gain that counts is over the
strongest, chosen by its own left-out R² before any metric is seen. Fits are of the logarithm of the outcome; R² is on
the scale of the outcome itself. Seeds are averaged; every architecture is left out in turn with all its models.

All of it describes, and nothing is judged: a metric that is a smooth function of scale may gain what the strongest law
lacks, and a metric that knows more than scale need not gain, since one slope serves both parts of it. Whether a metric
says something beyond scale is the question of controls.py.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np
import pandas as pd

from collapselab.analysis.attainable import FEWEST_FREEDOM, FEWEST_MODELS
from collapselab.analysis.models import NOT_TESTED, Floats, Models, Variable
from collapselab.analysis.related import RELATED
from collapselab.analysis.resampling import Codes
from collapselab.analysis.subsets import codes_of, count_of
from collapselab.analysis.verdict import Cause, Reason
from collapselab.analysis.words import CANNOT_TELL, NOT_MEASURED, Sentence, many, metric_label

RESAMPLES = 2000


@final
@dataclass(frozen=True)
class Prediction:
    """One metric beside one law; a row of `prediction.csv`. R² is of models whose architecture was left out."""

    law: str
    """`power law`, `bending power law` (with squares and the product), `non-embedding power law`, or `width, depth and
    regime`."""
    metric: str
    """Id in the catalogue."""
    transform: str
    """`raw` or `log`."""
    n: int
    """Cells, seeds averaged."""
    architectures: int
    """That are left out in turn."""
    r2_law: float | None = None
    """R² on what was left out, of the law alone, on the scale of the outcome."""
    r2_with_metric: float | None = None
    """With the metric beside it."""
    gain: float | None = None
    """The difference."""
    low: float | None = None
    """Lower end of its 95 % interval, from drawing architectures: a description."""
    high: float | None = None
    """Upper end."""
    scale: str = ""
    """What the law is in: parameters and tokens, or epochs; width, depth and regime."""
    why: str | None = None
    """Why there are no numbers."""
    why_code: Cause | None = None
    """As in `relate.csv`."""
    rank: int | None = None
    """1: the law that predicts best without a metric; gains over weaker ones are what those lack."""
    family: str = "exploration"
    """`paper`, `exploration` or `contexts`."""


@final
@dataclass(frozen=True)
class Law:
    """The columns of a law of scale, from one row for every cell, and what it is in; `amount` is tokens or epoch."""

    columns: Callable[[pd.DataFrame, str], list[Floats]]
    needs: tuple[str, ...]
    scale: str


def _power(size: Floats, data: Floats) -> list[Floats]:
    return [_standard(np.log(size)), _standard(np.log(data))]


def _bent(columns: list[Floats]) -> list[Floats]:
    first, second = columns
    return [first, second, first**2, second**2, first * second]


def _numbers(frame: pd.DataFrame, *names: str) -> list[Floats]:
    return [frame[name].to_numpy(dtype=float) for name in names]


def _blocks(frame: pd.DataFrame) -> Floats:
    depth, width = _numbers(frame, "depth", "width")
    return 12 * depth * width**2


LAWS = {
    "power law": Law(lambda f, a: _power(*_numbers(f, "parameters", a)), ("parameters",), "parameters and {amount}"),
    "bending power law": Law(
        lambda f, a: _bent(_power(*_numbers(f, "parameters", a))), ("parameters",), "parameters and {amount}"
    ),
    "non-embedding power law": Law(
        lambda f, a: _bent(_power(_blocks(f), *_numbers(f, a))), ("width", "depth"), "12 · depth · width² and {amount}"
    ),
    "width, depth and regime": Law(
        lambda f, a: [*_bent(_power(*_numbers(f, "width", "depth"))), *_levels(f["regime"])],
        ("width", "depth"),
        "width, depth and regime",
    ),
}


def predictions(models: Models, *, seed: int = 0) -> list[Prediction]:
    """Every metric beside every law, on the scale of the catalogue."""
    chosen = [variable for variable in models.variables if variable.transform == RELATED[variable.metric].transform]
    fits: dict[tuple[str, bytes], _LeftOut] = {}
    rows = [row for variable in chosen for row in _of_metric(models, variable, fits, seed)]
    order = list(LAWS)
    return sorted(rows, key=lambda row: order.index(row.law))


def _of_metric(
    models: Models, variable: Variable, fits: dict[tuple[str, bytes], "_LeftOut"], seed: int
) -> list[Prediction]:
    """The metric beside every law, the strongest law marked."""
    cells, amount = _cells(models, variable)
    rows = [_prediction(models, variable, law, cells, amount, fits, seed) for law in LAWS]
    known = sorted((row for row in rows if row.r2_law is not None), key=lambda row: -(row.r2_law or 0.0))
    ranks = {row.law: rank for rank, row in enumerate(known, 1)}
    return [replace(row, rank=ranks.get(row.law)) for row in rows]


def _prediction(
    models: Models,
    variable: Variable,
    law: str,
    cells: pd.DataFrame,
    amount: str,
    fits: dict[tuple[str, bytes], "_LeftOut"],
    seed: int,
) -> Prediction:
    """One row; `fits` keeps those of the law, for the next metric that is known for the same models."""
    row = Prediction(
        law=law,
        metric=variable.metric,
        transform=variable.transform,
        n=len(cells),
        architectures=cells["architecture"].nunique(),
        scale=LAWS[law].scale.format(amount=amount),
        family=variable.family,
    )
    if reason := _reason(row, cells, models.outcome):
        return replace(row, **reason.columns)
    truth, folds = cells[models.outcome].to_numpy(dtype=float), codes_of(cells["architecture"])
    key = (law, (~np.isnan(variable.values)).tobytes())
    if key not in fits:
        fits[key] = _LeftOut(_design(cells, amount, law), truth, folds, seed)
    fit = fits[key]
    fitted, parameters = len(cells) - int(np.bincount(folds).max()), fit.law.shape[1] + 1
    if fitted - parameters < FEWEST_FREEDOM:
        needed = f"{parameters + FEWEST_FREEDOM} are needed"
        text = f"{fitted} models are left to fit {parameters} parameters to; {needed}."
        return replace(row, **Reason(Cause.TOO_FEW, text).columns)
    plain, beside = fit.errors(), fit.errors(_standard(cells["x"].to_numpy(dtype=float)))
    r2_law, r2_metric = (_r2(errors, truth) for errors in (plain, beside))
    low, high = fit.gain_interval(plain - beside)
    return replace(row, r2_law=r2_law, r2_with_metric=r2_metric, gain=r2_metric - r2_law, low=low, high=high)


def _cells(models: Models, variable: Variable) -> tuple[pd.DataFrame, str]:
    """One row a cell, its seeds averaged, and the column that measures the amount of training."""
    labels = ["family", "architecture", "regime"]
    frame = models.trained[[*labels, "parameters", "width", "depth", "tokens", "epoch", models.outcome]]
    frame = frame.assign(x=variable.values)
    amount = "tokens" if frame["tokens"].notna().all() else "epoch"
    frame = frame.dropna(subset=["x", models.outcome, amount])
    return frame.groupby(labels, dropna=False).mean().reset_index(), amount


def _reason(row: Prediction, cells: pd.DataFrame, outcome: str) -> Reason | None:
    if row.metric in NOT_TESTED:
        return Reason(Cause.NOT_A_TEST, NOT_TESTED[row.metric])
    if row.architectures < FEWEST_MODELS:
        text = f"{many(row.architectures, 'architecture')}; to leave each out in turn takes {FEWEST_MODELS} or more."
        return Reason(Cause.TOO_FEW, text)
    if missing := [name for name in LAWS[row.law].needs if cells[name].isna().any()]:
        return Reason(Cause.MISSING, f"{missing[0]} is not known for all models.")
    for name, values in ((row.metric, cells["x"]), (outcome, cells[outcome])):
        if np.ptp(values) <= 1e-12 * values.abs().max():
            return Reason(Cause.NO_VARIATION, f"{name} is the same in all {row.n} models.")
    if (cells[outcome] <= 0).any():
        return Reason(Cause.NO_FIT, f"{outcome} is not positive; a power law needs that.")
    return None


def _design(cells: pd.DataFrame, amount: str, law: str) -> Floats:
    columns = LAWS[law].columns(cells, amount)
    varying = [column for column in columns if np.ptp(column) > 0]
    return np.column_stack([np.ones(len(cells)), *varying])


def _levels(labels: pd.Series) -> list[Floats]:
    """A column for each level but the first."""
    codes = codes_of(labels)
    return [(codes == level).astype(float) for level in range(1, count_of(codes))]


def _standard(values: Floats) -> Floats:
    spread: float = values.std() if np.ptp(values) > 0 else 1.0
    standard: Floats = (values - values.mean()) / spread
    return standard


@final
class _LeftOut:
    """A law (models, parameters) fitted to the logarithm of the outcome, each architecture left out in turn."""

    def __init__(self, law: Floats, truth: Floats, folds: Codes, seed: int) -> None:
        self.law, self.truth, self.folds = law, truth, folds
        total = int(folds.max()) + 1
        self.inverses = [np.linalg.pinv(law[folds != fold]) for fold in range(total)]
        rng = np.random.default_rng(seed)
        self.weights = rng.multinomial(total, np.full(total, 1 / total), size=RESAMPLES).astype(float)

    def errors(self, metric: Floats | None = None) -> Floats:
        """Squared errors of predictions from other architectures, of the law alone or with a metric beside it."""
        law, y, predicted = self.law, np.log(self.truth), np.empty(len(self.truth))
        for fold, inverse in enumerate(self.inverses):
            test, train = self.folds == fold, self.folds != fold
            fit = inverse @ y[train]
            predicted[test] = law[test] @ fit
            if metric is None:
                continue
            weights = inverse @ metric[train]
            left = metric[train] - law[train] @ weights
            slope = (y[train] - law[train] @ fit) @ left / (left @ left) if left @ left > 0 else 0.0
            predicted[test] += (metric[test] - law[test] @ weights) * slope
        errors: Floats = (self.truth - np.exp(predicted)) ** 2
        return errors

    def gain_interval(self, saved: Floats) -> tuple[float, float]:
        """95 % of the gain in R² from these differences of squared errors, architectures drawn."""
        count, first, second, gained = (
            self.weights @ np.bincount(self.folds, values) for values in (None, self.truth, self.truth**2, saved)
        )
        low, high = np.percentile(gained / (second - first**2 / count), [2.5, 97.5])
        return float(low), float(high)


def _r2(errors: Floats, truth: Floats) -> float:
    return float(1 - errors.sum() / ((truth - truth.mean()) ** 2).sum())


def sentences(models: Models, rows: Sequence[Prediction]) -> Iterable[Sentence]:
    """What the strongest law predicts, and what the best metric adds to it."""
    return (Sentence("prediction", "prediction", text) for text in _words(models, rows))


def _words(models: Models, rows: Sequence[Prediction]) -> Iterable[str]:
    strongest = [row for row in rows if row.rank == 1]
    if not strongest:
        yield f"Prediction of {models.outcome}: {CANNOT_TELL}; {next((row.why for row in rows), NOT_MEASURED)}"
        return
    law = strongest[0]
    weakest = min((row.r2_law for row in rows if row.metric == law.metric and row.r2_law is not None), default=0.0)
    yield (
        f"R² is {law.r2_law:.3f} where {models.outcome} is predicted from {law.scale} for architectures that were left "
        f"out: the strongest law (the weakest has {weakest:.3f})."
    )
    best = max(strongest, key=lambda row: row.gain or 0.0)
    interval = "" if best.low is None or best.high is None else f" [{best.low:+.3f}, {best.high:+.3f}]"
    yield (
        f"{best.gain:+.3f}{interval} is what {metric_label(best)} adds to that R², the most of all metrics. This "
        "describes: it is measured on the very model that is predicted."
    )
