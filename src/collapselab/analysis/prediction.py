"""Prediction: how well a law of scale predicts the outcome of an unseen architecture, with and without each metric.

There are several laws: powers of all parameters, of those beside the embeddings (12 · depth · width²; embeddings rule
the count of a small model and do little for its loss), and a quadratic function of log width and log depth in which
every regime has a level. A metric beside a weak law finds what the law lacks. So the gain that counts is over the
strongest, chosen by its own left-out R² before any metric is seen. Fits are of the logarithm of the outcome; R² is on
the scale of the outcome itself. Seeds are averaged; every architecture is left out in turn with all its models.

A metric that is a smooth function of scale may still gain what the strongest law lacks. So p is the share of gains as
large when what such a function leaves of the metric changes places between architectures (multiverse.py).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np
import pandas as pd

from collapselab.analysis.attainable import FEWEST_FREEDOM, FEWEST_MODELS
from collapselab.analysis.models import NOT_TESTED, Floats, Models, Variable
from collapselab.analysis.multiverse import MOST_PERMUTATIONS, Multiverse, why_no_joint_test
from collapselab.analysis.resampling import TIE, Codes
from collapselab.analysis.subsets import codes_of, count_of
from collapselab.analysis.verdict import Cause, Corrected, Reason, Verdict, is_shown, judged
from collapselab.analysis.words import CANNOT_TELL, NOT_MEASURED, Sentence, metric_label
from collapselab.core.metrics import METRICS

RESAMPLES = 2000
ADDS = "adds to the strongest law"
"""The verdict of a gain that a corrected test shows."""


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
    """Why there are no numbers, or no p and no verdict."""
    why_code: Cause | None = None
    """As in `relate.csv`."""
    rank: int | None = None
    """1: the law that predicts best without a metric; only gains over it are judged."""
    family: str = "exploration"
    """`paper` or `exploration`."""
    p: float | None = None
    """Beside the strongest law: share of permutations of architectures, beyond a smooth function of scale, with a gain
    as large."""
    p_holm: float | None = None
    """Corrected within the family."""
    verdict: str | None = None
    """`adds to the strongest law`, `not shown`; empty for all other laws and for `cannot tell`."""
    verdict_code: Verdict = Verdict.DESCRIPTION
    """`no direction predicted` where it adds, `not shown`, `cannot tell`, or `description` beside weaker laws."""


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


def predictions(models: Models, *, permutations: int = MOST_PERMUTATIONS, seed: int = 0) -> list[Prediction]:
    """Every metric beside every law, on the scale of the catalogue."""
    chosen = [variable for variable in models.variables if variable.transform == METRICS[variable.metric].transform]
    rows = [row for variable in chosen for row in _of_metric(models, variable, permutations=permutations, seed=seed)]
    order = list(LAWS)
    return judged(
        sorted(rows, key=lambda row: order.index(row.law)),
        family=lambda row: row.family,
        p=lambda row: row.p,
        with_verdict=_with_verdict,
    )


def _of_metric(models: Models, variable: Variable, *, permutations: int, seed: int) -> list[Prediction]:
    """The metric beside every law, and beside the strongest its p."""
    rows = [_prediction(models, variable, law, seed) for law in LAWS]
    known = sorted((row for row in rows if row.r2_law is not None), key=lambda row: -(row.r2_law or 0.0))
    ranks = {row.law: rank for rank, row in enumerate(known, 1)}
    rows = [replace(row, rank=ranks.get(row.law)) for row in rows]
    return [_tested(models, variable, row, permutations, seed) if row.rank == 1 else row for row in rows]


def _prediction(models: Models, variable: Variable, law: str, seed: int) -> Prediction:
    cells, amount = _cells(models, variable)
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
    plain = _design(cells, amount, law)
    fitted, parameters = len(cells) - int(np.bincount(folds).max()), plain.shape[1] + 1
    if fitted - parameters < FEWEST_FREEDOM:
        needed = f"{parameters + FEWEST_FREEDOM} are needed"
        text = f"{fitted} models are left to fit {parameters} parameters to; {needed}."
        return replace(row, **Reason(Cause.TOO_FEW, text).columns)
    x = _standard(cells["x"].to_numpy(dtype=float))[:, None]
    errors = [_left_out_errors(plain, candidates, truth, folds)[:, 0] for candidates in (None, x)]
    r2_law, r2_metric = (_r2(error, truth) for error in errors)
    low, high = _gain_interval(errors[0] - errors[1], truth, folds, seed)
    return replace(row, r2_law=r2_law, r2_with_metric=r2_metric, gain=r2_metric - r2_law, low=low, high=high)


def _tested(models: Models, variable: Variable, row: Prediction, permutations: int, seed: int) -> Prediction:
    """The row of the strongest law with its p, or with the reason why there is none."""
    if described := variable.why_description:
        return replace(row, **described.columns)
    cells, amount = _cells(models, variable)
    if reason := why_no_joint_test(cells):
        return replace(row, **reason.columns, verdict_code=Verdict.CANNOT_TELL)
    assert row.gain is not None
    assert row.r2_law is not None
    universe, x = Multiverse(cells, [], permutations=permutations, seed=seed), cells["x"].to_numpy(dtype=float)
    smooth = universe.smooth @ (universe.smooth.T @ x)
    drawn = smooth[:, None] + (x - smooth)[universe.orders].T
    truth, folds = cells[models.outcome].to_numpy(dtype=float), codes_of(cells["architecture"])
    errors = _left_out_errors(_design(cells, amount, row.law), drawn, truth, folds)
    gains = 1 - errors.sum(0) / ((truth - truth.mean()) ** 2).sum() - row.r2_law
    as_large = int((gains >= row.gain - TIE).sum())
    return replace(row, p=(1 + as_large) / (1 + len(gains)))


def _with_verdict(row: Prediction, corrected: Corrected) -> Prediction:
    tested = replace(row, p_holm=corrected.holm)
    if is_shown(tested) and (row.gain or 0.0) > 0:
        return replace(tested, verdict=ADDS, verdict_code=Verdict.NO_DIRECTION)
    return replace(tested, verdict=Verdict.NOT_SHOWN.value, verdict_code=Verdict.NOT_SHOWN)


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
        text = f"{row.architectures} architectures; to leave each out in turn takes {FEWEST_MODELS} or more."
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


def _left_out_errors(law: Floats, candidates: Floats | None, truth: Floats, folds: Codes) -> Floats:
    """Squared errors of predictions from other architectures (models, candidates), each beside the law; or its own."""
    y = np.log(truth)
    predicted = np.empty((len(y), 1 if candidates is None else candidates.shape[1]))
    for fold in range(folds.max() + 1):
        test, train = folds == fold, folds != fold
        inverse = np.linalg.pinv(law[train])
        fit = inverse @ y[train]
        predicted[test] = (law[test] @ fit)[:, None]
        if candidates is not None:
            weights = inverse @ candidates[train]
            left = candidates[train] - law[train] @ weights
            squares = (left**2).sum(0)
            slopes = np.where(squares > 0, (y[train] - law[train] @ fit) @ left / np.where(squares > 0, squares, 1), 0)
            predicted[test] += (candidates[test] - law[test] @ weights) * slopes
    errors: Floats = (truth[:, None] - np.exp(predicted)) ** 2
    return errors


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
    """What the laws predict, and which metrics add to the strongest."""
    return (Sentence("prediction", "prediction", text) for text in _words(models, rows))


def _words(models: Models, rows: Sequence[Prediction]) -> Iterable[str]:
    strongest = [row for row in rows if row.rank == 1]
    if not strongest:
        yield f"Prediction of {models.outcome}: {CANNOT_TELL}; {next((row.why for row in rows), NOT_MEASURED)}"
        return
    law = strongest[0]
    weakest = min((row.r2_law for row in rows if row.metric == law.metric and row.r2_law is not None), default=0.0)
    yield (
        f"On architectures left out in turn, {law.scale} predict {models.outcome} with R² {law.r2_law:.3f}, the "
        f"strongest law (the weakest: {weakest:.3f}); R² is on the scale of {models.outcome} itself."
    )
    adds = sorted((row for row in strongest if row.verdict == ADDS), key=lambda row: -(row.gain or 0.0))
    for row in [row for row in adds if row.family == "paper"] or adds[:3]:
        yield (
            f"{metric_label(row)} adds {row.gain:+.3f} to that R² (Holm p {row.p_holm:.2g}). It is measured on the "
            "very model that is predicted: shared information, not a cause."
        )
    tested = [row for row in strongest if row.p is not None]
    if not tested:
        why = next((row.why for row in strongest if row.verdict_code is Verdict.CANNOT_TELL), NOT_MEASURED)
        yield f"Whether a metric adds to that law: {CANNOT_TELL}; {why}"
    elif not adds:
        best = max(tested, key=lambda row: row.gain or 0.0)
        largest = f"{best.gain:+.3f}, of {metric_label(best)}"
        yield f"No metric is shown to add to that law; the largest gain in R² is {largest}."
