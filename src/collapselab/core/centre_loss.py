"""The nearest centre as a prediction with probabilities, and its loss beside the model's.

    p_c ∝ π_c exp(-τ ‖h - μ_c‖² / 2)        π_c: share of the training tokens of class c

over the kept classes, at the τ of the least cross-entropy on training tokens, in which that is convex. NC4 says that
the model decides by the nearest centre; this scores how well that describes what it predicts, not only its choice.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Self, final

import torch
from torch import Tensor

from collapselab.core.aligned import aligned_rows, aligned_stride
from collapselab.core.decisions import LinearClassifier, nearest_centre
from collapselab.core.fit_scale import fit_scale
from collapselab.core.moments import ClassMoments
from collapselab.core.scale import scaled, times_power_of_two

SCORES_BYTES, LEAST_TOKENS = 1 << 20, 64
"""Size of the scores that are computed at once, which stay in the cache, and tokens below which products slow down."""


@final
@dataclass(frozen=True)
class CentreLoss:
    """Losses in nats over tokens whose class has a centre, by the centres and by the model; those of parts merge."""

    centres: float = 0.0
    model: float = 0.0
    tokens: int = 0
    left_out: int = 0
    """Tokens whose class has no centre."""

    def merge(self, other: "CentreLoss", *, times: int = 1) -> "CentreLoss":
        """With the sums of other tokens, `times` times."""
        return CentreLoss(
            self.centres + times * other.centres,
            self.model + times * other.model,
            self.tokens + times * other.tokens,
            self.left_out + times * other.left_out,
        )


@final
class CentreScores:
    """Scores tokens by the centres of a nearest-centre classifier.

        scores = CentreScores.of(moments)
        scores.fit(features, labels)                                     # τ, on training tokens
        scores.loss(more_features, more_labels, model_losses)            # a CentreLoss, on validation tokens

    Class numbers are those of the moments; a label without a centre is left out.
    """

    def __init__(self, nearest: LinearClassifier, counts: Tensor, *, dtype: torch.dtype = torch.float32) -> None:
        """`counts` (classes,) are training tokens of all classes, of which the classifier has some."""
        assert nearest.classes is not None
        assert nearest.origin is not None
        classes, device = nearest.classes, nearest.rows.device
        self.scale, self.origin = math.nan, nearest.origin
        """τ, in the unit of the means: their largest number is near 1, so that features of any size can be squared."""
        self.means, self.exponent = nearest.table(dtype)
        kept = counts.to(device)[classes].double()
        self.halves = torch.cat([part.double().square().sum(1) for part in torch.split(self.means, 4096)]) / 2
        self.log_priors = (kept / kept.sum()).log()
        self.places = torch.full((len(counts),), -1, device=device)
        self.places[classes] = torch.arange(len(classes), device=device)

    @classmethod
    def of(cls, moments: ClassMoments, *, min_count: int = 1, dtype: torch.dtype = torch.float64) -> Self:
        """Of the classes with at least `min_count` samples."""
        kept = (moments.counts >= min_count).nonzero().squeeze(1)
        return cls(nearest_centre(moments, kept), moments.counts, dtype=dtype)

    @torch.no_grad()
    def fit(self, features: Tensor, labels: Tensor) -> float:
        """Set τ to that of the least cross-entropy on these tokens, by Newton's method; nan where none has a centre."""
        features, places, _ = self._with_centre(features, labels)
        if len(places):
            scatter = float((features - self.means[places]).double().square().sum(1).mean())
            self.scale = features.shape[1] / max(scatter, 1e-30)  # one over the variance of a dimension within classes
            for tokens in (len(places) // 8, len(places)):  # some lead near it, in less time than all would
                if tokens:
                    self.scale = fit_scale(partial(self._derivatives, features[:tokens], places[:tokens]), self.scale)
        return times_power_of_two(self.scale, -2 * self.exponent)

    @torch.no_grad()
    def loss(self, features: Tensor, labels: Tensor, model_losses: Tensor) -> CentreLoss:
        """The losses of these tokens; `model_losses` (tokens,) are the model's own."""
        features, places, kept = self._with_centre(features, labels)
        total = 0.0
        offset = self.log_priors - self.scale * self.halves
        for now, logits in self._products(features * self.scale, offset):
            chosen, largest = logits.gather(1, places[now, None]), logits.amax(1, keepdim=True)
            losses = logits.sub_(largest).exp_().sum(1, keepdim=True).log_().add_(largest - chosen)
            total += float(losses.double().sum())
        model = float(model_losses.to(kept.device)[kept].double().sum())
        return CentreLoss(total, model, len(places), len(labels) - len(places))

    def _with_centre(self, features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Features less the origin, in the unit of the means, and places of their classes; of which tokens."""
        labels = labels.to(self.places.device)
        places = torch.where(labels < 0, -1, self.places[labels.clamp(min=0)])
        kept = (places >= 0).nonzero().squeeze(1)
        wide = scaled(features.to(self.places.device)[kept].double() - self.origin, -self.exponent)
        return wide.to(self.means.dtype), places[kept], kept

    def _products(self, features: Tensor, offset: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """<h, μ_c> + offset for some tokens at a time (tokens, classes), in memory that the next ones overwrite."""
        offset, classes, size = offset.to(features), len(offset), features.element_size()
        at_once = min(max(LEAST_TOKENS, SCORES_BYTES // (size * classes)), len(features))
        space = features.new_empty(at_once * aligned_stride(classes, size))
        for start in range(0, len(features), max(at_once, 1)):
            now = slice(start, min(start + at_once, len(features)))
            out = aligned_rows(space, now.stop - start, classes)
            yield now, torch.addmm(offset, features[now], self.means.T, out=out)

    def _derivatives(self, features: Tensor, places: Tensor, scale: float) -> tuple[float, float]:
        """First and second derivative of the mean cross-entropy in τ: E[E_p s − s_y] and E[Var_p s].

        s is ‖h - origin‖²/2 - ‖h - μ_c‖²/2.
        """
        slope = curvature = 0.0
        log_priors = self.log_priors.to(features)
        for now, scores in self._products(features, -self.halves):
            scores -= scores.gather(1, places[now, None])  # differences keep more digits
            chances = torch.add(log_priors, scores, alpha=scale).softmax(1)
            mean = (chances * scores).sum(1, keepdim=True)
            slope += float(mean.double().sum())
            curvature += float(chances.mul_(scores.sub_(mean).square_()).sum(dtype=torch.float64))
        return slope / len(places), curvature / len(places)
