"""Metrics of spectra: of all features, of class means and of the output layer, by their eigenvalues.

Σ_T = Σ_W + Σ_B is the covariance of all features. A class counts by its tokens.
"""

import math

import torch
from torch import Tensor

from collapselab.core.geometry import Geometry, ratio
from collapselab.core.needs import Missing, ReasonCode

FIRST_RANK, LAST_RANK, FEWEST_RANKS = 11, 100, 3
"""Ranks between which the decay of eigenvalues is fitted, and how many of them it takes."""

SMALLEST_SHARE = 1e-12
"""Eigenvalues that are a smaller share of the largest are left out of that fit."""


def vci(geometry: Geometry) -> float:
    """1 − tr(Σ_T⁺ Σ_B) / rank Σ_B: the share of variance within classes, in units in which all variance is alike.

    0 where features are their class means, 1 where class means coincide; no linear map of the features changes it.
    """
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


def participation(geometry: Geometry) -> float:
    """(tr Σ_T)² / tr Σ_T²: in how many directions features vary alike."""
    covariance = geometry.total_covariance
    return ratio(float(covariance.trace()) ** 2, float(covariance.square().sum()), "the variance of the features")


def spectral_entropy(geometry: Geometry) -> float:
    """Entropy of the shares of variance, over the largest possible: 1 where all directions have the same."""
    if geometry.dim < 2:
        raise Missing(ReasonCode.FEW_DIMENSIONS, "1 dimension; at least 2 are needed.")
    return math.log(_effective_number(geometry.total_eigenvalues)) / math.log(geometry.dim)


def rankme(geometry: Geometry) -> float:
    """exp of the entropy of the normalised singular values of the uncentred features: at most min(N, D)."""
    return _effective_number(geometry.uncentred_eigenvalues.sqrt())


def rankme_share(geometry: Geometry) -> float:
    """Over the largest that it can be: 1 where features use all dimensions alike."""
    return rankme(geometry) / min(geometry.tokens, geometry.dim)


def rankme_covariance(geometry: Geometry) -> float:
    """exp of the entropy of the eigenvalue shares of Σ_T: at most min(N − 1, D)."""
    return _effective_number(geometry.total_eigenvalues)


def effective_rank(geometry: Geometry) -> float:
    """exp of the entropy of the normalised singular values of the centred means: at most min(K − 1, D)."""
    return _effective_number(geometry.eigenvalues.sqrt())


def effective_rank_share(geometry: Geometry) -> float:
    """Over the largest that it can be: 1 where class means use all dimensions alike."""
    return effective_rank(geometry) / min(geometry.classes - 1, geometry.dim)


def head_effective_rank(geometry: Geometry) -> float:
    """exp of the entropy of the normalised singular values of the output layer, whose rows are not centred."""
    return _effective_number(geometry.output_row_eigenvalues.sqrt())


def _effective_number(values: Tensor) -> float:
    """exp of the entropy of the shares that these values have of their sum."""
    return math.exp(float(torch.special.entr(values / values.sum()).sum()))


def alpha_req(geometry: Geometry) -> float:
    """The α of λ_r ∝ r^−α: least squares of log eigenvalue on log rank r, weighted by 1/r, from rank 11 to 100."""
    values = geometry.total_eigenvalues.flip(0)
    values = values[values > SMALLEST_SHARE * values[0]][:LAST_RANK]
    ranks = torch.arange(1, len(values) + 1, dtype=values.dtype, device=values.device)[FIRST_RANK - 1 :]
    if len(ranks) < FEWEST_RANKS:
        needed = FIRST_RANK + FEWEST_RANKS - 1
        why = f"features vary in {len(values):,} directions; at least {needed} are needed."
        raise Missing(ReasonCode.FEW_DIMENSIONS, why)
    weights, logs = 1 / ranks, ranks.log()
    offsets = logs - (weights @ logs) / weights.sum()
    weighted = weights * offsets
    return -float(weighted @ values[FIRST_RANK - 1 :].log()) / float(weighted @ offsets)
