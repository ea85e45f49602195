"""The nearest centre as a prediction with probabilities, and its loss beside the model's.

    p_c ∝ π_c exp(-τ ‖h - μ_c‖² / 2)        π_c: share of the training tokens of class c

over the kept classes, at the τ of the least cross-entropy on training tokens, in which that is convex. NC4 says that
the model decides by the nearest centre; this scores how well that describes what it predicts, not only its choice.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Self

import torch
from torch import Tensor

from collapselab.core.decisions import LinearClassifier, Tile, aligned_rows, aligned_stride, nearest_centre
from collapselab.core.moments import ClassMoments

SCORES_BYTES, MIN_TOKENS = 1 << 20, 64
"""Size of the scores that are computed at once, which stay in the cache, and tokens below which products slow down."""


@dataclass(frozen=True)
class CentreLoss:
    """Losses in nats over tokens whose class has a centre, by the centres and by the model."""

    centres: float = 0.0
    model: float = 0.0
    tokens: int = 0
    left_out: int = 0
    """Tokens whose class has no centre."""


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
        classes, device = nearest.classes, nearest.rows.device
        self.nearest, self.scale = nearest, math.nan  # τ
        self.means = nearest.table(dtype)
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
        features, places = self._with_centre(features, labels)
        if len(places):
            scatter = float((features - self.means[places]).double().square().sum(1).mean())
            self.scale = features.shape[1] / max(scatter, 1e-30)  # one over the variance of a dimension within classes
            for tokens in (len(places) // 8, len(places)):  # some lead near it, in less time than all would
                if tokens:
                    self.scale = fit_scale(partial(self._derivatives, features[:tokens], places[:tokens]), self.scale)
        return self.scale

    @torch.no_grad()
    def loss(self, features: Tensor, labels: Tensor, model_losses: Tensor) -> CentreLoss:
        """The losses of these tokens; `model_losses` (tokens,) are the model's own."""
        watch = self.watch(labels)
        self.nearest.choices(features.to(self.means.dtype), observe=watch.see)
        centres, model, tokens, left_out = watch.loss(model_losses).tolist()
        return CentreLoss(centres, model, int(tokens), int(left_out))

    def watch(self, labels: Tensor) -> "CentreWatch":
        """To be shown the classifier's scores of the tokens that these labels follow."""
        return CentreWatch(self, self._places_of(labels))

    def _places_of(self, labels: Tensor) -> Tensor:
        """Places of these classes among the centres; -1 where there is none."""
        labels = labels.to(self.places.device)
        return torch.where(labels < 0, -1, self.places[labels.clamp(min=0)])

    def _with_centre(self, features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Features less the origin, and places of their classes."""
        places = self._places_of(labels)
        kept = (places >= 0).nonzero().squeeze(1)
        return self.nearest.inputs(features.to(self.places.device)[kept], self.means.dtype), places[kept]

    def _products(self, features: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """<h, μ_c> - |μ_c|²/2 for some tokens at a time (tokens, classes), in memory that the next ones overwrite."""
        offset, classes, size = -self.halves.to(features), len(self.halves), features.element_size()
        at_once = min(max(MIN_TOKENS, SCORES_BYTES // (size * classes)), len(features))
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
        for now, scores in self._products(features):
            scores -= scores.gather(1, places[now, None])  # differences keep more digits
            chances = torch.add(log_priors, scores, alpha=scale).softmax(1)
            mean = (chances * scores).sum(1, keepdim=True)
            slope += float(mean.double().sum())
            curvature += float(chances.mul_(scores.sub_(mean).square_()).sum(dtype=torch.float64))
        return slope / len(places), curvature / len(places)


class CentreWatch:
    """Adds up the losses of tokens by the scores that a classifier chooses their nearest centres with.

    So that products with all centres are formed once for both. With the largest score s* so far, a token has

        log Σ_c π_c exp(τ s_c) = τ s* + log Σ_c exp(τ (s_c - s*) + log π_c)

    where no exponent is above 0, and that of the nearest centre is not far below.
    """

    def __init__(self, scores: CentreScores, places: Tensor) -> None:
        self.scores, self.places = scores, places
        self.best, self.total, self.chosen = scores.halves.new_zeros(3, len(places))
        self.best.fill_(-torch.inf)

    def see(self, tile: Tile) -> None:
        """Add a tile of scores, which is overwritten."""
        now, scores, scale = tile.tokens, tile.scores, self.scores.scale
        place = self.places[now] - tile.rows.start
        own = scores.gather(1, place.clamp(0, scores.shape[1] - 1)[:, None]).squeeze(1)
        is_here = (place >= 0) & (place < scores.shape[1])
        self.chosen[now] = torch.where(is_here, own.double(), self.chosen[now])
        before, self.best[now] = self.best[now].clone(), tile.best
        log_priors = self.scores.log_priors[tile.rows].to(scores)
        rows = max(1, SCORES_BYTES // (scores.element_size() * scores.shape[1]))
        sums = []
        for part, best in zip(torch.split(scores, rows), torch.split(tile.best, rows), strict=True):
            part.sub_(best[:, None])
            sums.append(torch.add(log_priors, part, alpha=scale, out=part).exp_().sum(1))
        shrunk = (scale * (before - self.best[now])).exp_()
        self.total[now] = self.total[now] * shrunk + torch.cat(sums)

    def loss(self, model_losses: Tensor, tokens: Tensor | None = None) -> Tensor:
        """The numbers of a CentreLoss beside the model's own losses (tokens,): of all tokens, or of these, by index."""
        chosen = slice(None) if tokens is None else tokens
        places, best = self.places[chosen], self.best[chosen]
        has_centre = places >= 0
        losses = self.total[chosen].log() + self.scores.scale * (best - self.chosen[chosen])
        losses -= self.scores.log_priors[places.clamp(min=0)]
        both = torch.stack([losses, model_losses.to(places.device).double()])
        sums = torch.where(has_centre, both, 0.0).sum(1)
        return torch.cat([sums, torch.stack([has_centre.sum(), (~has_centre).sum()])])


MAX_STEPS, MAX_FACTOR, PRECISION = 30, 4.0, 1e-6
"""At most a factor of 4 at once, until the relative change is this small."""


def fit_scale(derivatives: Callable[[float], tuple[float, float]], start: float) -> float:
    """The scale at which a function, convex in it, is least: by its first and second derivative, from `start` on."""
    scale = start
    for _ in range(MAX_STEPS):
        slope, curvature = derivatives(scale)
        step = scale - slope / curvature if curvature > 0 else (math.inf if slope < 0 else 0.0)
        before, scale = scale, min(max(step, scale / MAX_FACTOR), scale * MAX_FACTOR)
        if abs(scale - before) <= PRECISION * scale or not 1e-9 * start < scale < 1e9 * start:
            break
    return scale
