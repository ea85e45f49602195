"""The function that computes each metric of the catalogue, and `collapse_metrics`, which computes all of them.

Each function has the name of its entry in `metrics.toml`, which says what the number means. A function raises `Missing`
where the metric has no value.
"""

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from collapselab.core.catalogue import METRICS, Metric, Missing, Need, ReasonCode, smallest_etf_error
from collapselab.core.decisions import Decisions
from collapselab.core.geometry import Geometry
from collapselab.core.moments import ClassMoments
from collapselab.core.pairs import PairRows
from collapselab.core.vectors import add_gram

Result = float | tuple[float, int]
"""A value, or a value and the number of pairs or tokens left out of it."""


@dataclass(frozen=True)
class Measurement:
    """A value, or the reason why there is none; never both. `left_out` counts pairs, or tokens for decisions.

    `collapse_metrics` gives one for each metric.

    >>> import torch
    >>> from collapselab import ClassMoments, collapse_metrics
    >>> moments = ClassMoments.empty(classes=2, dim=3)
    >>> moments.update(torch.eye(3)[[0, 0, 1]], torch.tensor([0, 0, 1]))
    >>> values = collapse_metrics(moments)
    >>> values["cdnv"].value, values["cdnv"].classes
    (0.0, 2)
    >>> values["agreement"].value is None, values["agreement"].why is None  # nothing was decided
    (True, False)
    """

    metric: str
    value: float | None
    why: str | None
    classes: int
    tokens: int
    left_out: int
    min_count: int
    ideal: float | None
    version: int
    code: ReasonCode | None = None
    """Which kind of reason it is."""


def collapse_metrics(
    moments: ClassMoments, *, only: Collection[str] | None = None, **given: Any
) -> dict[str, Measurement]:
    """Compute every metric of the catalogue, by id; or just those in `only`.

    >>> import torch
    >>> from collapselab import ClassMoments, collapse_metrics
    >>> moments = ClassMoments.empty(classes=3, dim=3)
    >>> moments.update(torch.eye(3).repeat(4, 1), torch.arange(3).repeat(4))  # three points: collapsed
    >>> values = collapse_metrics(moments)
    >>> values["cdnv"].value, round(values["cosine_mean"].value, 6)
    (0.0, -0.5)
    >>> values["agreement"].value, values["agreement"].why
    (None, 'no decisions were given; they are made on the validation split.')

    `given` are keyword arguments of `Geometry`: `weight` (classes, dim) and `bias`, the output layer as the model
    applies it; `decisions` of `NearestCentre` on the validation split; `curvature` of `OutputCurvature`; `centre_loss`
    of `CentreScores`; `min_count`; `classes`, a mask that keeps only those classes and the decisions on tokens labelled
    with them; `tile`. A metric of what is not given has a reason in place of a value.
    """
    return metrics_of(Geometry(moments, **given), only=only)


def metrics_of(geometry: Geometry, *, only: Collection[str] | None = None) -> dict[str, Measurement]:
    """Compute `collapse_metrics` from a geometry, of which the caller needs more than the metrics."""
    if unknown := [id for id in only or () if id not in METRICS]:
        raise ValueError(f"{unknown[0]} is not a metric of the catalogue.")
    wanted = [metric for metric in METRICS.values() if only is None or metric.id in only]
    geometry.variance_along_pairs = any({Need.PAIRS, Need.COVARIANCE} <= metric.needs for metric in wanted)
    return {metric.id: _measurement(metric, geometry) for metric in wanted}


def _measurement(metric: Metric, geometry: Geometry) -> Measurement:
    value: float | None = None
    why, code, left_out = None, None, 0
    try:
        geometry.at_least(1)
        result = FUNCTIONS[metric.id](geometry)
        value, left_out = result if isinstance(result, tuple) else (result, 0)
        if not math.isfinite(value):
            reason = f"the value is {value}: the numbers behind it leave the range of float64."
            raise Missing(ReasonCode.OUT_OF_RANGE, reason)
    except Missing as missing:
        value, why, code, left_out = None, str(missing), missing.code, missing.left_out
    return Measurement(
        metric=metric.id,
        value=value,
        why=why,
        classes=geometry.classes,
        tokens=_tokens(metric, geometry),
        left_out=left_out,
        min_count=geometry.min_count,
        ideal=metric.ideal_at(classes=geometry.classes, dim=geometry.dim),
        version=metric.version,
        code=code,
    )


def _tokens(metric: Metric, geometry: Geometry) -> int:
    if Need.DECISIONS in metric.needs and geometry.decided is not None:
        return int(geometry.decided.tokens.sum())
    if Need.CENTRE_LOSS in metric.needs and geometry.centre_loss is not None:
        return geometry.centre_loss.tokens
    if Need.CURVATURE in metric.needs and geometry.curvature_sums is not None:
        return geometry.curvature_sums.tokens
    return geometry.tokens


FUNCTIONS: dict[str, Callable[[Geometry], Result]] = {}
"""The function of each metric by its id."""

Function = TypeVar("Function", bound=Callable[[Geometry], Result])


def metric(function: Function) -> Function:
    """Register the function of the catalogue entry of the same name."""
    FUNCTIONS[function.__name__] = function
    return function


def ratio(numerator: float, denominator: float, name: str) -> float:
    """Divide, or raise `Missing` where the denominator is zero."""
    if denominator == 0:
        raise Missing(ReasonCode.ZERO, f"{name} is 0.")
    return numerator / denominator


def variation(values: Tensor, name: str) -> float:
    """Return the coefficient of variation: population standard deviation over mean."""
    return ratio(float(values.std(correction=0)), float(values.mean()), f"the mean of {name}")


# All pairs of classes ------------------------------------------------------------------------------------------------


def _of_pairs(family: str, of: Literal["mean", "std", "cv"], head: bool, geometry: Geometry) -> Result:
    """A statistic over all pairs of class means, or of output rows with `head`."""
    summary = geometry.summary(family, head=head)
    if of == "cv":
        return ratio(summary.std, summary.mean, f"the mean of {family}"), summary.left_out
    return summary.mean if of == "mean" else summary.std, summary.left_out


for _family in ("cdnv", "cdnv_k2", "cdnv_log", "cosine_error"):
    FUNCTIONS[_family] = partial(_of_pairs, _family, "mean", False)
FUNCTIONS["directional_cdnv"] = partial(_of_pairs, "directional", "mean", False)
for _family in ("cosine", "logdist", "logdist_uncentred"):
    for _of in ("mean", "std", "cv"):
        FUNCTIONS[f"{_family}_{_of}"] = partial(_of_pairs, _family, _of, False)
        FUNCTIONS[f"head_{_family}_{_of}"] = partial(_of_pairs, _family, _of, True)


@metric
def directional_gain(geometry: Geometry) -> Result:
    along, whole = geometry.summary("directional"), geometry.summary("cdnv")
    return ratio(geometry.dim * along.mean, whole.mean, "the mean of cdnv"), along.left_out


# Variability within classes ------------------------------------------------------------------------------------------


@metric
def scatter_ratio(geometry: Geometry) -> float:
    """tr Σ_W / tr Σ_B."""
    within = float(geometry.scatter.sum()) / geometry.tokens
    return ratio(within, float(geometry.norms.square().mean()), "the between-class scatter")


@metric
def scatter_pinv(geometry: Geometry) -> float:
    """tr(Σ_W Σ_B⁺) / K = tr(Σ_W (Mᵀ M)⁺)."""
    covariance = geometry.within_covariance
    values, vectors = geometry.spectrum
    along = torch.linalg.vecdot(vectors, covariance @ vectors, dim=0).clamp_(min=0)
    return float((along[values > 0] / values[values > 0]).sum())


@metric
def within_share(geometry: Geometry) -> float:
    """tr Σ_W / tr Σ_T, where a class counts by its tokens."""
    within = float(geometry.scatter.sum()) / geometry.tokens
    return ratio(within, within + geometry.between_tokens, "the variance of the features")


@metric
def vci(geometry: Geometry) -> float:
    """1 − tr(Σ_T⁺ Σ_B) / rank Σ_B."""
    values, vectors = geometry.total_spectrum
    between = geometry.total_covariance - geometry.within_covariance
    kept = values > 0
    if not kept.any():
        raise Missing(ReasonCode.COINCIDENT, "all features coincide.")
    along = torch.linalg.vecdot(vectors, between @ vectors, dim=0).clamp_(min=0)
    explained = float((along[kept] / values[kept]).sum())
    of_between = torch.linalg.eigvalsh(between)
    rank = int((of_between > geometry.total_rounding(float(of_between[-1]))).sum())
    return min(1.0, max(0.0, 1 - ratio(explained, rank, "the rank of the between-class covariance")))


# Simplex frames ------------------------------------------------------------------------------------------------------


def _distance_from_simplex(eigenvalues: Tensor, classes: int) -> float:
    """Compare the eigenvalues of Mᵀ M with the K - 1 equal ones of a simplex: no difference of near-equal numbers."""
    missing = max(0, classes - 1 - len(eigenvalues))
    largest = torch.nn.functional.pad(eigenvalues, (missing, 0))[-(classes - 1) :]
    power = float(largest.square().sum())
    overlap = float(largest.sum()) / math.sqrt((classes - 1) * power)
    defect = float((largest - largest.mean()).square().sum()) / power / (1 + overlap)
    return math.sqrt(2 * defect)


@metric
def etf_floor(geometry: Geometry) -> float:
    geometry.at_least(2)
    floor = smallest_etf_error(geometry.classes, geometry.dim)
    assert floor is not None
    return floor


# Class means and output layer ----------------------------------------------------------------------------------------


@metric
def duality_error(geometry: Geometry) -> float:
    """‖G/‖G‖ − (I − 11ᵀ/K)/√(K−1)‖ from tr G and ‖G‖² = ⟨Wᵀ W, Mᵀ M⟩: G = W Mᵀ is never formed, and G1 = 0."""
    head, gram = geometry.head, torch.zeros_like(geometry.gram)
    trace = 0.0
    for chosen, block in geometry.centred_blocks():
        rows = head.at(chosen)
        add_gram(gram, rows)
        trace += float(torch.sum(rows * block))
    norm = math.sqrt(max(0.0, float(gram.mul_(geometry.gram).sum())))
    if norm == 0:
        raise Missing(ReasonCode.ZERO, "the matrix of inner products is zero.")
    return math.sqrt(max(0.0, 2 - 2 * trace / (norm * math.sqrt(geometry.classes - 1))))


@metric
def duality_frobenius(geometry: Geometry) -> float:
    """From the differences themselves: nothing is lost where the two matrices nearly coincide."""
    geometry.at_least(2)
    head_norm, norm = float(geometry.head.lengths().norm()), float(geometry.norms.norm())
    head_share, share = ratio(1.0, head_norm, "the output layer"), ratio(1.0, norm, "the centred class means")
    squares = 0.0
    for chosen, block in geometry.centred_blocks():
        squares += float((geometry.head.at(chosen).mul_(head_share) - block.mul_(share)).square().sum())
    return math.sqrt(squares)


@metric
def head_sum(geometry: Geometry) -> float:
    rows = geometry.output_rows
    total = float(rows.mean().norm()) * len(rows)
    return ratio(total, float(rows.lengths().norm()), "the output layer")


# Decisions, losses and curvature -------------------------------------------------------------------------------------


def _share(decisions: Decisions, counts: Tensor) -> Result:
    return int(counts.sum()) / int(decisions.tokens.sum()), decisions.left_out


@metric
def ncc_loss(geometry: Geometry) -> Result:
    """The loss of predicting by the nearest centre, less the model's, on the same tokens."""
    sums = geometry.loss_by_centres
    return (sums.centres - sums.model) / sums.tokens, sums.left_out


@metric
def curvature_relative(geometry: Geometry) -> float:
    """Divide by what features and output rows of this size would give at most."""
    sums = geometry.curvature
    mean = ratio(sums.total, sums.squares, "the mean square of the features")
    return ratio(mean, sums.row_square, "the output layer")


# Spectra -------------------------------------------------------------------------------------------------------------


def _effective_number(values: Tensor) -> float:
    """exp of the entropy of the shares that these values have of their sum."""
    return math.exp(float(torch.special.entr(values / values.sum()).sum()))


@metric
def participation(geometry: Geometry) -> float:
    covariance = geometry.total_covariance
    return ratio(float(covariance.trace()) ** 2, float(covariance.square().sum()), "the variance of the features")


@metric
def spectral_entropy(geometry: Geometry) -> float:
    if geometry.dim < 2:
        raise Missing(ReasonCode.FEW_DIMENSIONS, "1 dimension; at least 2 are needed.")
    return math.log(_effective_number(geometry.total_eigenvalues)) / math.log(geometry.dim)


FIRST_RANK, LAST_RANK, MIN_RANKS = 11, 100, 3
"""Ranks between which `alpha_req` fits the decay of eigenvalues, and how many of them it needs."""

MIN_SHARE = 1e-12
"""Eigenvalues that are a smaller share of the largest are left out of that fit."""


@metric
def alpha_req(geometry: Geometry) -> float:
    """The α of λ_r ∝ r^−α: least squares of log eigenvalue on log rank r, weighted by 1/r, from rank 11 to 100."""
    values = geometry.total_eigenvalues.flip(0)
    values = values[values > MIN_SHARE * values[0]][:LAST_RANK]
    ranks = torch.arange(1, len(values) + 1, dtype=values.dtype, device=values.device)[FIRST_RANK - 1 :]
    if len(ranks) < MIN_RANKS:
        why = f"features vary in {len(values):,} directions; at least {FIRST_RANK + MIN_RANKS - 1} are needed."
        raise Missing(ReasonCode.FEW_DIMENSIONS, why)
    weights, logs = 1 / ranks, ranks.log()
    offsets = logs - (weights @ logs) / weights.sum()
    weighted = weights * offsets
    return -float(weighted @ values[FIRST_RANK - 1 :].log()) / float(weighted @ offsets)


# Frequency and the cloud of features ---------------------------------------------------------------------------------

RIDGE = 0.01
"""Penalty of `frequency_r2`, a share of the mean eigenvalue: a fit exists with fewer classes than dimensions too."""


@metric
def frequency_r2(geometry: Geometry) -> float:
    """1 − Σ(y − ŷ)²/Σ(y − ȳ)² for y = log n_c, where ŷ is predicted from μ_c by a regression on all other classes.

    A ridge regression with a free intercept. Leaving one class out has a closed form: with the leverage h_c = 1/K +
    m_cᵀ(MᵀM + λI)⁻¹m_c, the residual of the class is that of the whole fit over 1 − h_c, and that of ȳ over 1 − 1/K.
    """
    target = _log_counts(geometry)
    target = target - target.mean()
    penalty = RIDGE * float(geometry.gram.trace()) / geometry.dim
    if penalty == 0:
        raise Missing(ReasonCode.COINCIDENT, "all class means coincide.")
    factor, failed = torch.linalg.cholesky_ex(geometry.gram + penalty * torch.eye(geometry.dim).to(geometry.gram))
    if failed:
        raise Missing(ReasonCode.OUT_OF_RANGE, "the Gram matrix of the class means is not a matrix of numbers.")
    product = torch.stack([target[chosen] @ block for chosen, block in geometry.centred_blocks()]).sum(0)
    slopes = torch.cholesky_solve(product[:, None], factor).squeeze(1)
    errors = 0.0
    for chosen, block in geometry.centred_blocks():
        half = torch.linalg.solve_triangular(factor, block.T, upper=False)
        leverage = half.square().sum(0) + 1 / geometry.classes
        errors += float(((target[chosen] - block @ slopes) / (1 - leverage)).square().sum())
    spread = float(target.square().sum()) / (1 - 1 / geometry.classes) ** 2
    return 1 - ratio(errors, spread, "the variance of log counts")


def _log_counts(geometry: Geometry) -> Tensor:
    geometry.at_least(3)
    if bool((geometry.counts == geometry.counts[0]).all()):
        raise Missing(ReasonCode.ZERO, f"all classes have {int(geometry.counts[0]):,} samples; counts must differ.")
    return geometry.counts.double().log()


def _frequency_correlation(geometry: Geometry, norms: Callable[[], Tensor], name: str) -> float:
    lengths, logs = norms(), _log_counts(geometry)
    left, right = lengths - lengths.mean(), logs - logs.mean()
    spread = math.sqrt(float(left.square().sum()) * float(right.square().sum()))
    return max(-1.0, min(1.0, ratio(float(left @ right), spread, f"the spread of {name}")))


@metric
def anisotropy(geometry: Geometry) -> float:
    """‖E h‖² / E‖h‖², from the mean and the variance of all features."""
    geometry.at_least(2)
    mean = float(geometry.token_mean.square().sum())
    variance = float(geometry.scatter.sum()) / geometry.tokens + geometry.between_tokens
    return ratio(mean, mean + variance, "the mean square of the features")


@metric
def dispersion(geometry: Geometry) -> float:
    """1 minus the mean cosine of pairs of tokens, which follows from the sum of their directions."""
    geometry.at_least(2)
    n = geometry.tokens
    return max(0.0, 1 - (float(geometry.direction_sum.square().sum()) - n) / (n * (n - 1)))


# Metrics of one line -------------------------------------------------------------------------------------------------

FUNCTIONS |= {
    "norm_cv": lambda g: variation(g.norms, "the norms"),
    "lognorm_cv": lambda g: variation(g.positive_norms.log(), "the log norms"),
    "lognorm_mean": lambda g: float(g.positive_norms.log().mean()),
    "head_norm_cv": lambda g: variation(g.head_norms, "the output rows' norms"),
    "etf_error": lambda g: _distance_from_simplex(g.eigenvalues, g.classes),
    "head_etf_error": lambda g: _distance_from_simplex(g.head_eigenvalues, g.classes),
    "duality_cos_mean": lambda g: float(g.duality_cosines.mean()),
    "duality_cos_std": lambda g: float(g.duality_cosines.std(correction=0)),
    "duality_cos_cv": lambda g: variation(g.duality_cosines, "the duality cosines"),
    "agreement": lambda g: _share(g.decisions, g.decisions.agreed),
    "ncc_accuracy": lambda g: _share(g.decisions, g.decisions.nearest_right),
    "model_accuracy": lambda g: _share(g.decisions, g.decisions.head_right),
    "curvature": lambda g: g.curvature.total / g.curvature.tokens,
    "effective_rank": lambda g: _effective_number(g.eigenvalues.sqrt()),
    "effective_rank_share": lambda g: _effective_number(g.eigenvalues.sqrt()) / min(g.classes - 1, g.dim),
    "head_effective_rank": lambda g: _effective_number(g.output_row_eigenvalues.sqrt()),
    "rankme": lambda g: _effective_number(g.uncentred_eigenvalues.sqrt()),
    "rankme_share": lambda g: _effective_number(g.uncentred_eigenvalues.sqrt()) / min(g.tokens, g.dim),
    "rankme_covariance": lambda g: _effective_number(g.total_eigenvalues),
    "norm_frequency_r": lambda g: _frequency_correlation(g, lambda: g.norms, "the norms"),
    "head_norm_frequency_r": lambda g: _frequency_correlation(g, g.head.lengths, "the output rows' norms"),
}


# Single classes ------------------------------------------------------------------------------------------------------

T = TypeVar("T")


@dataclass(frozen=True)
class ClassRows:
    """The values of single classes, whose means over classes or pairs are metrics: one entry for each kept class.

    A column that does not exist is None, for the reasons that the metrics made from it give. Lengths are in the unit of
    the features.
    """

    classes: Tensor
    """Indices of the kept classes."""
    counts: Tensor
    norm: Tensor | None
    """‖m_c‖, about the mean of class means."""
    variance: Tensor | None
    """σ_c², the mean squared distance from the class mean."""
    cdnv: Tensor | None
    """Mean of the `cdnv` terms of the pairs with all other classes; nan where no pair has one."""
    cosine: Tensor | None
    """Mean of ⟨û_c, û_j⟩ over all other classes j."""
    nearest: Tensor | None
    """Index of the class with the nearest mean."""
    distance: Tensor | None
    """Distance to that mean."""
    duality_cos: Tensor | None
    """cos(w_c, m_c)."""
    head_norm: Tensor | None
    """‖w_c‖."""


def class_rows(geometry: Geometry) -> ClassRows:
    """Return the rows of a geometry that was made with `rows=True`.

    The mean of `cdnv` over classes is the metric `cdnv` where no two class means coincide, that of `cosine` is
    `cosine_mean`, and that of `duality_cos` is `duality_cos_mean`.
    """

    def or_none(quantity: Callable[[], T]) -> T | None:
        try:
            return quantity()
        except Missing:
            return None

    pairs: PairRows | None = or_none(lambda: geometry.pairs.rows)
    return ClassRows(
        classes=geometry.kept,
        counts=geometry.counts,
        norm=or_none(lambda: geometry.norms),
        variance=or_none(lambda: geometry.variances),
        cdnv=None if pairs is None else pairs.cdnv,
        cosine=None if pairs is None else pairs.cosine,
        nearest=None if pairs is None else geometry.kept[pairs.nearest],
        distance=None if pairs is None else pairs.distance,
        duality_cos=or_none(lambda: geometry.duality_cosines),
        head_norm=or_none(lambda: geometry.head.lengths()),
    )
