"""The catalogue: every metric with its definition, its direction and the function that computes it.

K classes are kept; μ_c, σ_c² are mean and variance of class c, m_c = μ_c - (mean of the μ) its centred mean, w_c its row
of the output layer, û and ũ unit vectors along m and μ. Pairs are i < j; standard deviations are population form.
"""

import math
from collections.abc import Callable, Collection
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from collapselab.core.centre_loss import CentreLoss
from collapselab.core.decisions import Decisions
from collapselab.core.frequency import frequency_r2, head_norm_frequency_r, norm_frequency_r
from collapselab.core.geometry import Geometry, frame_error, ratio, variation
from collapselab.core.gram import add_gram
from collapselab.core.moments import ClassMoments
from collapselab.core.needs import Missing, Need, ReasonCode
from collapselab.core.output_curvature import CurvatureSums
from collapselab.core.pairs import Progress
from collapselab.core.spectrum import (
    alpha_req,
    effective_rank,
    effective_rank_share,
    head_effective_rank,
    participation,
    rankme,
    rankme_covariance,
    rankme_share,
    spectral_entropy,
    vci,
)
from collapselab.core.variability import (
    directional_cdnv,
    directional_gain,
    scatter_pinv,
    scatter_ratio,
    within_share,
)  # fmt: skip

Direction = Literal["falls", "rises", "approaches"]
Transform = Literal["raw", "log"]
Points = Literal["centred classes", "centred tokens", "tokens"]
Result = float | tuple[float, int]
"""A value, or a value and the number of pairs or tokens left out of it."""


class IdealOfSize(NamedTuple):
    """An ideal that depends on the number of classes and of dimensions, and how it is shown."""

    text: str
    at: Callable[[int, int], float | None]


Ideal = float | IdealOfSize | None


def ideal_at(ideal: Ideal, classes: int, dim: int) -> float | None:
    return ideal.at(classes, dim) if isinstance(ideal, IdealOfSize) else ideal


FIRST = "0.1.0"
"""The version of this package whose measurements have the metrics that do not say otherwise."""


@dataclass(frozen=True)
class Metric:
    """One entry of the catalogue.

    `needs` is what it is computed from. `direction` is where the value moves as a model collapses, None where collapse
    predicts nothing. `ideal` is the value of a collapsed model where it is one number; `ideal_at` gives it also where it depends on the number of classes and
    dimensions. `version` rises when the value changes for the same input. `since` is the version of this package that
    brought it: measurements made before lack it and are valid. `transform` is the scale on which the metric is related,
    predicted from and drawn, the same everywhere: "log" for positive values that span decades over models. `parts` are
    the two metrics of which it is a ratio with a denominator that may change its sign: then a larger value means nothing
    by itself, it has no direction and no verdict, and its parts have them. `directions_of` is set where the value is a
    number of directions, and says of what: N centred points have at most N − 1, others N.
    """

    id: str
    property: str
    formula: str
    direction: Direction | None
    ideal: Ideal
    reference: str
    function: Callable[[Geometry], Result]
    needs: frozenset[Need]
    _: KW_ONLY
    in_paper: bool = False
    version: int = 1
    since: str = FIRST
    transform: Transform = "raw"
    parts: tuple[str, str] | None = None
    directions_of: Points | None = None

    @cached_property  # `property` is a field here
    def ideal_text(self) -> str:
        """The ideal as it is shown."""
        if isinstance(self.ideal, IdealOfSize):
            return self.ideal.text
        return "–" if self.ideal is None else "−∞" if self.ideal == -math.inf else f"{self.ideal:g}"

    def ideal_at(self, *, classes: int, dim: int) -> float | None:
        """The ideal for this number of kept classes and dimensions, None where there is none."""
        return ideal_at(self.ideal, classes, dim)

    def at_most(self, *, classes: int, tokens: int, dim: int) -> int | None:
        """The most directions that this number of classes, tokens and dimensions has; None for other metrics."""
        points = {"centred classes": classes - 1, "centred tokens": tokens - 1, "tokens": tokens}
        return None if self.directions_of is None else min(points[self.directions_of], dim)


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
    moments: ClassMoments,
    *,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    min_count: int = 1,
    decisions: Decisions | None = None,
    curvature: CurvatureSums | None = None,
    centre_loss: CentreLoss | None = None,
    classes: Tensor | None = None,
    only: Collection[str] | None = None,
    tile: int = 1024,
    progress: Progress | None = None,
) -> dict[str, Measurement]:
    """Every metric of the catalogue, by id.

    >>> import torch
    >>> from collapselab import ClassMoments, collapse_metrics
    >>> moments = ClassMoments.empty(classes=3, dim=3)
    >>> moments.update(torch.eye(3).repeat(4, 1), torch.arange(3).repeat(4))  # three points: collapsed
    >>> values = collapse_metrics(moments)
    >>> values["cdnv"].value, round(values["cosine_mean"].value, 6)
    (0.0, -0.5)
    >>> values["agreement"].value, values["agreement"].why
    (None, 'no decisions were given; they are made on the validation split.')

    `weight` (classes, dim) and `bias` are the output layer as the model applies it; `decisions` come from a `Decider`
    on the validation split, `curvature` from an `OutputCurvature`, `centre_loss` from `CentreScores`. Metrics of what is
    not given have a reason in place of a value. `classes`, a mask, keeps only those classes and the decisions on tokens
    labelled with them; `only` computes just these metrics.
    """
    geometry = Geometry(
        moments,
        weight=weight,
        bias=bias,
        min_count=min_count,
        decisions=decisions,
        curvature=curvature,
        centre_loss=centre_loss,
        classes=classes,
        tile=tile,
        progress=progress,
    )
    return metrics_of(geometry, only=only)


def metrics_of(geometry: Geometry, *, only: Collection[str] | None = None) -> dict[str, Measurement]:
    """`collapse_metrics` of a geometry, of which the caller needs more than the metrics."""
    if unknown := [id for id in only or () if id not in METRICS]:
        raise ValueError(f"{unknown[0]} is not a metric of the catalogue.")
    wanted = [metric for metric in METRICS.values() if only is None or metric.id in only]
    geometry.variance_along_pairs = any({Need.PAIRS, Need.COVARIANCE} <= metric.needs for metric in wanted)
    return {metric.id: _measurement(metric, geometry, geometry.min_count) for metric in wanted}


def _measurement(metric: Metric, geometry: Geometry, min_count: int) -> Measurement:
    value: float | None = None
    why, code, left_out = None, None, 0
    try:
        geometry.at_least(1)
        result = metric.function(geometry)
        value, left_out = result if isinstance(result, tuple) else (result, 0)
        if not math.isfinite(value):
            raise Missing(
                ReasonCode.OUT_OF_RANGE, f"the value is {value}: the numbers behind it leave the range of float64."
            )
    except Missing as missing:
        value, why, code, left_out = None, str(missing), missing.code, missing.left_out
    return Measurement(
        metric=metric.id,
        value=value,
        why=why,
        classes=geometry.classes,
        tokens=_tokens(metric, geometry),
        left_out=left_out,
        min_count=min_count,
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


def _of_pairs(family: str, of: Literal["mean", "std", "cv"], *, head: bool = False) -> Callable[[Geometry], Result]:
    def function(geometry: Geometry) -> Result:
        summary = geometry.summary(family, head=head)
        if of == "cv":
            return ratio(summary.std, summary.mean, f"the mean of {family}"), summary.left_out
        return summary.mean if of == "mean" else summary.std, summary.left_out

    return function


def lognorm_cv(geometry: Geometry) -> float:
    """Of norms in the unit of the features, on which a logarithm depends."""
    return variation(geometry.positive_norms.log(), "the log norms")


def lognorm_mean(geometry: Geometry) -> float:
    """In the unit of the features, as `lognorm_cv`."""
    return float(geometry.positive_norms.log().mean())


def anisotropy(geometry: Geometry) -> float:
    """‖E h‖² / E‖h‖², from the mean and the variance of all features."""
    geometry.at_least(2)
    mean = float(geometry.token_mean.square().sum())
    variance = float(geometry.scatter.sum()) / geometry.tokens + geometry.between_tokens
    return ratio(mean, mean + variance, "the mean square of the features")


def dispersion(geometry: Geometry) -> float:
    """1 minus the mean cosine of pairs of tokens, which follows from the sum of their directions."""
    geometry.at_least(2)
    n = geometry.tokens
    return max(0.0, 1 - (float(geometry.direction_sum.square().sum()) - n) / (n * (n - 1)))


def ncc_loss(geometry: Geometry) -> Result:
    """The loss of predicting by the nearest centre, less the model's, on the same tokens."""
    sums = geometry.loss_by_centres
    return (sums.centres - sums.model) / sums.tokens, sums.left_out


def curvature(geometry: Geometry) -> float:
    """E[‖h‖² (Σ_s p_s‖w_s‖² − ‖Σ_s p_s w_s‖²)]: how much the loss bends where the output layer changes by its size."""
    return geometry.curvature.total / geometry.curvature.tokens


def curvature_relative(geometry: Geometry) -> float:
    """Over what features and output rows of this size would give at most: free of both units."""
    sums = geometry.curvature
    mean = ratio(sums.total, sums.squares, "the mean square of the features")
    return ratio(mean, sums.row_square, "the output layer")


def etf_error(geometry: Geometry) -> float:
    """From the eigenvalues of Mᵀ M, of which a simplex has K - 1 equal ones: no difference of near-equal numbers."""
    return _distance_from_simplex(geometry.eigenvalues, geometry.classes)


def head_etf_error(geometry: Geometry) -> float:
    """The same of the centred output rows."""
    return _distance_from_simplex(geometry.head_eigenvalues, geometry.classes)


def _distance_from_simplex(values: Tensor, classes: int) -> float:
    nonzero = classes - 1
    largest = (
        values[-nonzero:] if nonzero <= len(values) else torch.nn.functional.pad(values, (nonzero - len(values), 0))
    )
    power = float(largest.square().sum())
    overlap = float(largest.sum()) / math.sqrt(nonzero * power)
    defect = float((largest - largest.mean()).square().sum()) / power / (1 + overlap)
    return math.sqrt(2 * defect)


def etf_floor(classes: int, dim: int) -> float | None:
    if classes < 2:
        return None
    return math.sqrt(2 - 2 * math.sqrt(dim / (classes - 1))) if classes - 1 > dim else 0.0


def duality_error(geometry: Geometry) -> float:
    """From tr(W Mᵀ) and |W Mᵀ|² = ⟨Wᵀ W, Mᵀ M⟩, which need no matrix of classes by classes."""
    head, gram = geometry.head, torch.zeros_like(geometry.gram)
    overlap = 0.0
    for now, block in geometry.centred_blocks():
        rows = head.at(now)
        add_gram(gram, rows)
        overlap += float(torch.sum(rows * block))
    norm = math.sqrt(max(0.0, float(gram.mul_(geometry.gram).sum())))
    return frame_error(overlap, norm, geometry.classes)


def duality_frobenius(geometry: Geometry) -> float:
    """From the differences themselves: where the two nearly coincide, nothing is lost."""
    geometry.at_least(2)
    head_norm, norm = float(geometry.head.lengths().norm()), float(geometry.norms.norm())
    head_share, share = ratio(1.0, head_norm, "the output layer"), ratio(1.0, norm, "the centred class means")
    squares = 0.0
    for now, block in geometry.centred_blocks():
        squares += float((geometry.head.at(now).mul_(head_share) - block.mul_(share)).square().sum())
    return math.sqrt(squares)


def head_sum(geometry: Geometry) -> float:
    rows = geometry.output_rows
    total = float(rows.mean().norm()) * len(rows)
    return ratio(total, float(rows.lengths().norm()), "the output layer")


def _share(count: str) -> Callable[[Geometry], Result]:
    def function(geometry: Geometry) -> Result:
        decisions = geometry.decisions
        counted: Tensor = getattr(decisions, count)
        return int(counted.sum()) / int(decisions.tokens.sum()), decisions.left_out

    return function


def _existing_floor(geometry: Geometry) -> float:
    geometry.at_least(2)
    floor = etf_floor(geometry.classes, geometry.dim)
    assert floor is not None
    return floor


def _simplex_cosine(classes: int, dim: int) -> float | None:
    return -1 / (classes - 1) if classes > 1 else None


def uniform_logdist(classes: int, dim: int) -> float | None:
    """Mean of log(1/|u - v|) for u, v uniform on the sphere: |u - v|²/4 is Beta(a, a) with a = (dim - 1)/2."""
    if dim < 2:
        return None
    a = torch.tensor((dim - 1) / 2, dtype=torch.float64)
    return float(-math.log(2) - (torch.special.digamma(a) - torch.special.digamma(2 * a)) / 2)


CDNV = "Galanti, György & Hutter (2022), arXiv:2112.15121"
PAPER = "Wu & Papyan (2024), arXiv:2405.17767"
PAPYAN = "Papyan, Han & Donoho (2020), arXiv:2008.08186"
ZHU = "Zhu et al. (2021), arXiv:2105.02375"
ETHAYARAJH = "this project; the anisotropy of Ethayarajh (2019), arXiv:1909.00512, is 1 − `dispersion`"
UNIFORM = "Liu et al. (2023), arXiv:2303.06484"
ROY = "Roy & Vetterli (2007), EUSIPCO, 606-610"
ZHAO = "Zhao, Cheng, Masarczyk & Lucchi (2026), arXiv:2602.16642"
FLAT = "relative flatness, arXiv:2509.17738, in closed form"
DIRECTIONAL = "after arXiv:2603.03530, with the pooled covariance"
XU = "Xu & Liu (2023), arXiv:2306.03440"
RANKME = "Garrido et al. (2023), arXiv:2210.02885"
REPTRIX = "Garrido et al. (2023), arXiv:2210.02885, as reptrix computes it"
ALPHA = "Agrawal et al. (2022), arXiv:2202.05808, as reptrix computes it"
RUDMAN = "Rudman & Eickhoff (2024), arXiv:2305.19358"
HERE = "this project"


_SIMPLEX = IdealOfSize("−1/(K−1)", _simplex_cosine)
_FLOOR = IdealOfSize("`etf_floor`", etf_floor)
_SPHERE = IdealOfSize("uniform sphere", uniform_logdist)
_ANGLES, _UNIFORM, _NORMS = "NC2 equal angles", "GNC2", "NC2 equal norms"
_HEAD = "NC2 of the output layer"
_FEATURES, _FREQUENCY = "spectrum of the features", "frequency"
_CENTRED = "with centred rows w_c − w̄ of kept classes"
_HEAD_UNIFORM = "GNC2 of the output layer"

_MEANS = frozenset({Need.MEANS})
_PAIRS = _MEANS | {Need.PAIRS}
_SPREAD = _MEANS | {Need.SCATTER}
_COVARIANCE = _MEANS | {Need.COVARIANCE}
_PAIRS_SPREAD = _SPREAD | {Need.PAIRS}
_DUAL = _MEANS | {Need.HEAD}
_SPECTRUM = _MEANS | {Need.SPECTRUM}
_ROWS = frozenset({Need.HEAD})
_ALL_ROWS = frozenset({Need.OUTPUT_LAYER})
_ROW_PAIRS = _ROWS | {Need.PAIRS}
_DECIDED = frozenset({Need.DECISIONS})
_BY_CENTRES = frozenset({Need.CENTRE_LOSS})
_CURVED = frozenset({Need.CURVATURE})

# fmt: off
_CATALOGUE = [
    Metric("cdnv", "NC1", "pair mean of (σ_i² + σ_j²) / (2‖μ_i − μ_j‖²)", "falls", 0, CDNV, _of_pairs("cdnv", "mean"), _PAIRS_SPREAD, transform="log"),
    Metric("cdnv_k2", "NC1", "pair mean of (σ_i² + σ_j²) / (2‖μ_i − μ_j‖⁴)", "falls", 0, PAPER, _of_pairs("cdnv_k2", "mean"), _PAIRS_SPREAD, in_paper=True, transform="log"),
    Metric("cdnv_log", "NC1", "pair mean of log of the `cdnv` term", "falls", -math.inf, HERE, _of_pairs("cdnv_log", "mean"), _PAIRS_SPREAD),
    Metric("scatter_ratio", "NC1", "tr Σ_W / tr Σ_B", "falls", 0, PAPYAN, scatter_ratio, _SPREAD, transform="log"),
    Metric("scatter_pinv", "NC1", "tr(Σ_W Σ_B⁺) / K; where K − 1 > D it grows with D, so do not compare widths by it", "falls", 0, PAPYAN, scatter_pinv, _COVARIANCE, version=2, transform="log"),
    Metric("within_share", "NC1", "tr Σ_W / tr Σ_T, Σ_T = Σ_W + Σ_c (n_c/N)(μ_c − h̄)(μ_c − h̄)ᵀ", "falls", 0, HERE, within_share, _SPREAD, since="0.2.0"),
    Metric("vci", "NC1", "1 − tr(Σ_T⁺ Σ_B) / rank Σ_B, both with a class counted by its tokens", "falls", 0, XU, vci, _COVARIANCE, since="0.2.0"),
    Metric("directional_cdnv", "NC1", "pair mean of δᵀΣ_Wδ/‖δ‖⁴, δ = μ_i − μ_j, Σ_W pooled over classes", "falls", 0, DIRECTIONAL, directional_cdnv, _PAIRS | _COVARIANCE, since="0.2.0", transform="log"),
    Metric("directional_gain", "NC1", "D · `directional_cdnv` / `cdnv`: 1 where the variance within classes is the same in all directions", None, None, DIRECTIONAL, directional_gain, _PAIRS_SPREAD | _COVARIANCE, since="0.2.0", transform="log"),
    Metric("norm_cv", _NORMS, "CoV of ‖m_c‖", "falls", 0, PAPYAN, lambda g: variation(g.norms, "the norms"), _MEANS),
    Metric("lognorm_cv", _NORMS, "CoV of log‖m_c‖", "falls", 0, PAPER, lognorm_cv, _MEANS, in_paper=True),
    Metric("lognorm_mean", "norms", "class mean of log‖m_c‖", None, None, PAPER, lognorm_mean, _MEANS, since="0.2.0"),
    Metric("cosine_mean", _ANGLES, "pair mean of ⟨û_i, û_j⟩", "approaches", _SIMPLEX, PAPYAN, _of_pairs("cosine", "mean"), _PAIRS),
    Metric("cosine_std", _ANGLES, "pair standard deviation of ⟨û_i, û_j⟩", "falls", 0, PAPYAN, _of_pairs("cosine", "std"), _PAIRS),
    Metric("cosine_cv", _ANGLES, "`cosine_std` / `cosine_mean`", None, None, PAPER, _of_pairs("cosine", "cv"), _PAIRS, in_paper=True, parts=("cosine_std", "cosine_mean")),
    Metric("cosine_error", _ANGLES, "pair mean of |⟨û_i, û_j⟩ + 1/(K−1)|", "falls", 0, PAPYAN, _of_pairs("cosine_error", "mean"), _PAIRS, since="0.2.0"),
    Metric("etf_error", "NC2", "‖G/‖G‖_F − (I − 11ᵀ/K)/√(K−1)‖_F with G = M Mᵀ, rows m_c", "falls", _FLOOR, ZHU, etf_error, _MEANS),
    Metric("etf_floor", "NC2", "√(2 − 2√(D/(K−1))) for K − 1 > D, else 0", None, None, HERE, _existing_floor, _MEANS),
    Metric("logdist_mean", _UNIFORM, "pair mean of log(1/‖û_i − û_j‖)", "approaches", _SPHERE, UNIFORM, _of_pairs("logdist", "mean"), _PAIRS),
    Metric("logdist_std", _UNIFORM, "pair standard deviation of log(1/‖û_i − û_j‖)", "falls", None, UNIFORM, _of_pairs("logdist", "std"), _PAIRS),
    Metric("logdist_cv", _UNIFORM, "`logdist_std` / `logdist_mean`", None, None, PAPER, _of_pairs("logdist", "cv"), _PAIRS, parts=("logdist_std", "logdist_mean")),
    Metric("logdist_uncentred_mean", _UNIFORM, "pair mean of log(1/‖ũ_i − ũ_j‖)", "approaches", _SPHERE, PAPER, _of_pairs("logdist_uncentred", "mean"), _PAIRS),
    Metric("logdist_uncentred_std", _UNIFORM, "pair standard deviation of log(1/‖ũ_i − ũ_j‖)", "falls", None, PAPER, _of_pairs("logdist_uncentred", "std"), _PAIRS),
    Metric("logdist_uncentred_cv", _UNIFORM, "`logdist_uncentred_std` / `logdist_uncentred_mean`", None, None, PAPER, _of_pairs("logdist_uncentred", "cv"), _PAIRS, in_paper=True, parts=("logdist_uncentred_std", "logdist_uncentred_mean")),
    Metric("duality_cos_mean", "NC3", "class mean of cos(w_c, m_c)", "rises", 1, PAPER, lambda g: float(g.duality_cosines.mean()), _DUAL, in_paper=True),
    Metric("duality_cos_std", "UNC3", "class standard deviation of cos(w_c, m_c)", "falls", 0, PAPER, lambda g: float(g.duality_cosines.std(correction=0)), _DUAL),
    Metric("duality_cos_cv", "UNC3", "`duality_cos_std` / `duality_cos_mean`", "falls", 0, PAPER, lambda g: variation(g.duality_cosines, "the duality cosines"), _DUAL, in_paper=True),
    Metric("duality_error", "NC3", "as `etf_error` with G = W Mᵀ", "falls", None, ZHU, duality_error, _DUAL),
    Metric("duality_frobenius", "NC3", "‖W/‖W‖_F − M/‖M‖_F‖_F over kept classes, rows w_c and m_c", "falls", 0, PAPYAN, duality_frobenius, _DUAL, since="0.2.0"),
    Metric("agreement", "NC4", "share of validation tokens where argmax_c(⟨w_c, h⟩ + b_c) = argmin_c ‖h − μ_c‖", "rises", 1, PAPER, _share("agreed"), _DECIDED, in_paper=True),
    Metric("ncc_accuracy", "NC4", "share of validation tokens whose nearest centre is the next token's", "rises", 1, PAPYAN, _share("nearest_right"), _DECIDED),
    Metric("model_accuracy", "NC4", "share of validation tokens where the output layer is right", "rises", 1, PAPYAN, _share("head_right"), _DECIDED),
    Metric("ncc_loss", "NC4", "cross-entropy of softmax_c(−τ‖h − μ_c‖²/2 + log π_c) on validation, τ fitted to training tokens, minus the model's", "falls", 0, HERE, ncc_loss, _BY_CENTRES, since="0.2.0"),
    Metric("head_norm_cv", _HEAD, f"as `norm_cv` {_CENTRED}", "falls", 0, PAPYAN, lambda g: variation(g.head_norms, "the output rows' norms"), _ROWS),
    Metric("head_cosine_mean", _HEAD, f"as `cosine_mean` {_CENTRED}", "approaches", _SIMPLEX, PAPYAN, _of_pairs("cosine", "mean", head=True), _ROW_PAIRS),
    Metric("head_cosine_std", _HEAD, f"as `cosine_std` {_CENTRED}", "falls", 0, PAPYAN, _of_pairs("cosine", "std", head=True), _ROW_PAIRS),
    Metric("head_etf_error", _HEAD, f"as `etf_error` {_CENTRED}", "falls", _FLOOR, ZHU, head_etf_error, _ROWS, since="0.2.0"),
    Metric("head_logdist_mean", _HEAD_UNIFORM, f"as `logdist_mean` {_CENTRED}", "approaches", _SPHERE, UNIFORM, _of_pairs("logdist", "mean", head=True), _ROW_PAIRS),
    Metric("head_logdist_std", _HEAD_UNIFORM, f"as `logdist_std` {_CENTRED}", "falls", None, UNIFORM, _of_pairs("logdist", "std", head=True), _ROW_PAIRS),
    Metric("head_logdist_cv", _HEAD_UNIFORM, f"as `logdist_cv` {_CENTRED}", None, None, HERE, _of_pairs("logdist", "cv", head=True), _ROW_PAIRS, parts=("head_logdist_std", "head_logdist_mean")),
    Metric("head_sum", "NC0", "‖Σ_s w_s‖ / ‖W‖_F over all rows s of the output layer", "falls", 0, ZHAO, head_sum, _ALL_ROWS, version=2),
    Metric("head_effective_rank", "spectrum of the output layer", "exp of the entropy of the normalised singular values of all rows of the output layer, not centred", None, None, "arXiv:2602.20433", head_effective_rank, _ALL_ROWS, since="0.2.0", transform="log"),
    Metric("effective_rank", "spectrum", "exp of the entropy of the normalised singular values of the m_c", None, None, ROY, effective_rank, _MEANS, transform="log", directions_of="centred classes"),
    Metric("effective_rank_share", "spectrum", "`effective_rank` / min(K − 1, D), K kept classes: 1 where class means use all dimensions alike", None, None, ROY, effective_rank_share, _MEANS, since="0.2.0"),
    Metric("participation", _FEATURES, "(tr Σ_T)² / tr Σ_T²", None, None, RUDMAN, participation, _SPECTRUM, since="0.2.0", transform="log", directions_of="centred tokens"),
    Metric("spectral_entropy", _FEATURES, "entropy of the eigenvalue shares of Σ_T, over log D", None, None, "after Roy & Vetterli (2007), who take singular values", spectral_entropy, _SPECTRUM, since="0.2.0"),
    Metric("rankme", _FEATURES, "exp of the entropy of the normalised singular values of the uncentred features; at most min(N, D)", None, None, RANKME, rankme, _SPECTRUM, version=2, since="0.2.0", transform="log", directions_of="tokens"),
    Metric("rankme_covariance", _FEATURES, "exp of the entropy of the eigenvalue shares of Σ_T; at most min(N − 1, D)", None, None, REPTRIX, rankme_covariance, _SPECTRUM, since="0.2.0", transform="log", directions_of="centred tokens"),
    Metric("rankme_share", _FEATURES, "`rankme` / min(N, D), N tokens of kept classes: 1 where features use all dimensions alike", None, None, RANKME, rankme_share, _SPECTRUM, version=2, since="0.2.0"),
    Metric("alpha_req", _FEATURES, "α of λ_r ∝ r^−α: least squares of log eigenvalue of Σ_T on log rank r, weighted by 1/r, ranks 11 to 100", None, None, ALPHA, alpha_req, _SPECTRUM, version=2, since="0.2.0"),
    Metric("norm_frequency_r", _FREQUENCY, "correlation over classes of ‖m_c‖ with log n_c", None, None, HERE, norm_frequency_r, _MEANS, since="0.2.0"),
    Metric("head_norm_frequency_r", _FREQUENCY, "correlation over classes of ‖w_c‖ with log n_c", None, None, HERE, head_norm_frequency_r, _ROWS, since="0.2.0"),
    Metric("frequency_r2", _FREQUENCY, "R² of log n_c on μ_c, each class predicted from all others (ridge, λ = tr(MᵀM)/(100 D))", None, None, HERE, frequency_r2, _MEANS, since="0.2.0"),
    Metric("anisotropy", "cloud of the features", "‖E h‖² / E‖h‖²; the mean cosine of pairs of tokens is 1 − `dispersion`", None, None, ETHAYARAJH, anisotropy, _SPREAD, since="0.2.0"),
    Metric("dispersion", "cloud of the features", "1 − mean of ⟨h, h'⟩/(‖h‖‖h'‖) over pairs of tokens = 1 − (‖Σ h/‖h‖‖² − N)/(N(N − 1))", None, None, "arXiv:2506.24106", dispersion, _MEANS | {Need.DIRECTIONS}, since="0.2.0"),
    Metric("curvature", "curvature of the loss", "E[‖h‖²(Σ_s p_s‖w_s‖² − ‖Σ_s p_s w_s‖²)], s over the vocabulary: large is sharp, small is flat", None, None, FLAT, curvature, _CURVED, since="0.2.0"),
    Metric("curvature_relative", "curvature of the loss", "`curvature` / (E‖h‖²·‖W‖²_F/K), K rows", None, None, FLAT, curvature_relative, _CURVED, since="0.2.0"),
]
# fmt: on

METRICS: dict[str, Metric] = {metric.id: metric for metric in _CATALOGUE}
"""Every metric by its id, in the order of the catalogue."""
