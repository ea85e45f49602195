"""Metrics of the covariance Σ_T = Σ_W + Σ_B of all features, by its eigenvalues. A class counts by its tokens."""

import math

import torch

from collapselab.core.geometry import Geometry, ratio
from collapselab.core.needs import Missing, ReasonCode

FIRST_RANK, LAST_RANK, FEWEST_RANKS = 11, 100, 3
"""Ranks between which the decay of eigenvalues is fitted, and how many of them it takes."""


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


def spectral_entropy(geometry: Geometry) -> float:
    """Entropy of the shares of variance, over the largest possible: 1 where all directions have the same."""
    if geometry.dim < 2:
        raise Missing(ReasonCode.FEW_DIMENSIONS, "1 dimension; at least 2 are needed.")
    values = geometry.total_spectrum[0]
    shares = values / ratio(float(values.sum()), 1.0, "the variance of the features")
    return float(torch.special.entr(shares).sum()) / math.log(geometry.dim)


def rankme(geometry: Geometry) -> float:
    """exp of the entropy of the shares of standard deviations: at most min(N − 1, D)."""
    singular = geometry.total_spectrum[0].sqrt()
    return math.exp(float(torch.special.entr(singular / singular.sum()).sum()))


def rankme_share(geometry: Geometry) -> float:
    """Over the largest that it can be: 1 where features vary alike in all dimensions."""
    return rankme(geometry) / directions_at_most(geometry.tokens, geometry.dim)


def directions_at_most(points: int, dim: int) -> int:
    """In how many directions points can differ from their mean: min(points − 1, dim)."""
    return min(points - 1, dim)


def alpha_req(geometry: Geometry) -> float:
    """Slope of log eigenvalue on log rank, from rank 11 to 100: −1 where the r-th variance is as 1/r."""
    descending = geometry.total_spectrum[0].flip(0)
    tail = descending[FIRST_RANK - 1 : LAST_RANK]
    tail = tail[tail > 0]
    if len(tail) < FEWEST_RANKS:
        raise Missing(
            ReasonCode.FEW_DIMENSIONS,
            f"features vary in {int((descending > 0).sum()):,} directions; at least "
            f"{FIRST_RANK + FEWEST_RANKS - 1} are needed.",
        )
    ranks = torch.arange(FIRST_RANK, FIRST_RANK + len(tail), dtype=tail.dtype, device=tail.device).log()
    ranks -= ranks.mean()
    return float(ranks @ tail.log() / ranks.square().sum())
