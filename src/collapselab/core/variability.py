"""Metrics of how far features scatter about their class mean (NC1), beside the distances between class means."""

import torch

from collapselab.core.geometry import Geometry, ratio


def scatter_ratio(geometry: Geometry) -> float:
    """tr Σ_W / tr Σ_B."""
    within = float(geometry.scatter.sum()) / geometry.tokens
    return ratio(within, float(geometry.norms.square().mean()), "the between-class scatter")


def scatter_pinv(geometry: Geometry) -> float:
    """tr(Σ_W Σ_B⁺) / K = tr(Σ_W (Mᵀ M)⁺).

    Where Mᵀ M = L Lᵀ has a sound inverse, this is tr(L⁻¹ Σ_W L⁻ᵀ); elsewhere the pseudo-inverse needs the eigenvectors.
    """
    covariance = geometry.within_covariance
    inverse = geometry.inverse_factor
    if inverse is not None:
        return max(0.0, float(torch.sum((inverse @ covariance).mul_(inverse))))  # rounding may take it below
    values, vectors = geometry.spectrum
    along = torch.linalg.vecdot(vectors, covariance @ vectors, dim=0).clamp_(min=0)
    return float((along[values > 0] / values[values > 0]).sum())


def within_share(geometry: Geometry) -> float:
    """tr Σ_W / tr Σ_T, a class counting by its tokens."""
    within = float(geometry.scatter.sum()) / geometry.tokens
    return ratio(within, within + geometry.between_tokens, "the variance of the features")


def directional_cdnv(geometry: Geometry) -> tuple[float, int]:
    """Pair mean of the variance within classes along δ = μ_i − μ_j alone, δᵀΣ_Wδ/‖δ‖², over ‖δ‖².

    Variance across δ does not mix two classes up: this is the part of it that does, up to a factor of D.
    """
    summary = geometry.summary("directional")
    return summary.mean, summary.left_out


def directional_gain(geometry: Geometry) -> tuple[float, int]:
    """D times the directional part over all of it: above 1, features vary mostly between class means."""
    along, whole = geometry.summary("directional"), geometry.summary("cdnv")
    return ratio(geometry.dim * along.mean, whole.mean, "the mean of cdnv"), along.left_out
