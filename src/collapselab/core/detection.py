"""Scores that tell tokens of one kind from others by their features, and how well each of them does.

For a feature h with logits z, chosen class c and row w_c of the output layer, class means μ and the token mean m of the
training features. Larger means more like the training text, or surer:

    energy            log Σ_s exp z_s                                        Liu et al. 2020, arXiv:2010.03759
    max_probability   max_s softmax(z)_s                       Hendrycks & Gimpel 2017, arXiv:1610.02136
    nearest_mean      −min_c ‖h − μ_c‖
    nci               ⟨w_c, h − m⟩ / ‖h − m‖ + α ‖h‖₁                   Liu & Qin 2025, arXiv:2311.01479
    neco              ‖P (h − m)‖ / ‖h − m‖                     Ben Ammar et al. 2024, arXiv:2310.06823

P projects onto the leading principal components of the training features that carry 90 % of their variance.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from collapselab.core.decisions import LinearClassifier

SCORES = ("energy", "max_probability", "nearest_mean", "nci", "neco")
ALPHA = 1e-3
"""Weight of the length ‖h‖₁ in `nci`, of the order that its authors use; they choose it for each data set."""
EXPLAINED = 0.9
RECALL = 0.95
"""The share of positives that must be found where the false-positive rate is read off."""

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class TokenScorer:
    """Scores features (tokens, dim) by what was learned from the training split."""

    mean: Tensor
    """Mean of all training features (dim,)."""
    components: Tensor
    """Leading principal directions of the training features (dim, d), orthonormal."""
    nearest: LinearClassifier
    """The classifier by nearest class means."""

    @classmethod
    def of(cls, mean: Tensor, covariance: Tensor, nearest: LinearClassifier) -> "TokenScorer":
        """Return the scorer for training features with this mean and covariance."""
        values, vectors = torch.linalg.eigh(covariance)
        shares = values.flip(0).clamp(min=0).cumsum(0)
        leading = int((shares < EXPLAINED * shares[-1]).sum()) + 1
        rows = LinearClassifier(nearest.rows, nearest.offset, origin=nearest.origin)  # chooses rows, not classes
        return cls(mean, vectors.flip(1)[:, :leading].contiguous(), rows)

    def scores(self, features: Tensor, logits: Tensor, weight: Tensor) -> Tensor:
        """Return the scores (5, tokens) in float32; `logits` (tokens, classes) are those of all rows of `weight`."""
        largest, chosen = logits.max(1)
        energy = logits.logsumexp(1)
        # In float64: centred features may be small beside the mean.
        h, rows = features.to(self.mean), self.nearest.choices(features)
        assert self.nearest.origin is not None
        to_nearest = torch.linalg.vector_norm(h - self.nearest.origin - self.nearest.rows[rows], dim=1)
        centred = h - self.mean
        length = torch.linalg.vector_norm(centred, dim=1).clamp(min=torch.finfo(torch.float64).tiny)
        proximity = (centred * weight[chosen].to(centred)).sum(1) / length
        explained = torch.linalg.vector_norm(centred @ self.components, dim=1) / length
        found = (energy, (largest - energy).exp(), -to_nearest, proximity + ALPHA * h.abs().sum(1), explained)
        return torch.stack([score.to(torch.float32) for score in (one.to(h.device) for one in found)])


class Separation(NamedTuple):
    """How well a score tells positives from negatives, by its ranking alone; equal scores share a threshold."""

    auroc: float
    """P(positive > negative) + P(equal) / 2; 0.5 by chance."""
    aupr: float
    """Average precision, Σ (change of recall) · precision; by chance the share of positives."""
    fpr95: float
    """Share of negatives above the threshold that 95 % of positives reach; 0.95 by chance."""


class Ranking:
    """Positives and negatives in the order of a score; `separation` weighs them anew for each resample."""

    def __init__(self, positives: Numbers, negatives: Numbers) -> None:
        scores = np.concatenate([positives, negatives])
        self.order = np.argsort(-scores, kind="stable")
        ranked = scores[self.order]
        self.starts = np.concatenate([[0], np.flatnonzero(ranked[1:] != ranked[:-1]) + 1])
        self.positives = len(positives)

    def separation(self, weights: Numbers | None = None) -> Separation:
        """Return the separation with these weights of positives and then negatives; equal ones by default."""
        weights = np.ones(len(self.order)) if weights is None else weights
        is_positive = np.arange(len(weights)) < self.positives
        hits, alarms = (
            np.add.reduceat(np.where(chosen, weights, 0.0)[self.order], self.starts).cumsum()
            for chosen in (is_positive, ~is_positive)
        )
        recall, false = hits / hits[-1], alarms / alarms[-1]
        steps = np.diff(recall, prepend=0.0)
        middle = (false + np.concatenate([[0.0], false[:-1]])) / 2
        with np.errstate(invalid="ignore"):  # resamples may leave out the first tokens
            precision = np.nan_to_num(hits / (hits + alarms))
        reached = int(np.argmax(recall >= RECALL))
        return Separation(float(1 - steps @ middle), float(steps @ precision), float(false[reached]))
