"""Scores of single tokens in the validation pass: the loss of each class, how sure the model is, and how rightly.

`Observe` is what a pass does with each chunk of scored tokens, `TokenScores` what it adds up. Those of parts merge to
those of the whole, and are stored with the other sums.
"""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from collapselab.core.storage import Stored
from collapselab.models.scores import ScoredChunk
from collapselab.records.options import Options

NAMES = ("tokens", "loss", "confidence", "right", "scaled_loss")

OF_CLASSES = ("macro_loss", "rare_loss")
"""Outcomes that need the loss of each class."""


@final
@dataclass
class TokenScores:
    """Of tokens that were scored; empty where a quantity was not asked for."""

    tokens: Tensor
    """Scored tokens of each class of the vocabulary (classes,)."""
    loss: Tensor
    """Sum of their losses in nats, float64 (classes,)."""
    confidence: Tensor
    """The largest probability at each token, float32 (tokens,)."""
    right: Tensor
    """Whether it was that of the next token (tokens,)."""
    scaled_loss: Tensor
    """Sum of the losses after temperature, float64 (1,)."""

    @classmethod
    def none(cls, classes: int) -> "TokenScores":
        """Of no tokens."""
        return cls(
            torch.zeros(classes, dtype=torch.int64),
            torch.zeros(classes, dtype=torch.float64),
            torch.zeros(0),
            torch.zeros(0, dtype=torch.bool),
            torch.zeros(1, dtype=torch.float64),
        )

    def merge(self, other: "TokenScores", *, times: int = 1) -> "TokenScores":
        """Add those of other tokens, `times` times."""
        return TokenScores(
            self.tokens + times * other.tokens,
            self.loss + times * other.loss,
            torch.cat([self.confidence, *[other.confidence] * times]),
            torch.cat([self.right, *[other.right] * times]),
            self.scaled_loss + times * other.scaled_loss,
        )

    def tensors(self) -> dict[str, Tensor]:
        """All numbers, to be stored; what is empty is left out."""
        return {name: tensor for name in NAMES if (tensor := getattr(self, name)).numel()}

    @classmethod
    def from_tensors(cls, tensors: Stored) -> "TokenScores":
        empty = cls.none(0)
        stored = dict(tensors.items())
        return cls(**{name: stored[name].clone() if name in stored else getattr(empty, name) for name in NAMES})


@final
class Observe:
    """Adds up scored tokens, as far as the options ask for it; `scale` is one over the fitted temperature."""

    def __init__(self, options: Options, vocabulary: int, scale: float | None = None) -> None:
        self.vocabulary = vocabulary
        self.by_class = options.classes or any(map(options.asks, OF_CLASSES))
        self.confidences, self.scale = options.asks("ece"), scale

    @property
    def wanted(self) -> bool:
        return self.by_class or self.confidences or self.scale is not None

    def none(self) -> TokenScores:
        """Where the sums begin."""
        return TokenScores.none(self.vocabulary if self.by_class else 0)

    def add(self, scores: TokenScores, chunk: ScoredChunk) -> TokenScores:
        """The scores with a chunk of tokens added."""
        labels, losses = chunk.labels.cpu(), chunk.losses.cpu().double()
        if self.by_class:
            scores.tokens += torch.bincount(labels, minlength=self.vocabulary)
            scores.loss.index_add_(0, labels, losses)
        if self.confidences:
            largest = chunk.probabilities.gather(1, chunk.best[:, None]).squeeze(1).float().cpu()
            scores.confidence = torch.cat([scores.confidence, largest])
            scores.right = torch.cat([scores.right, (chunk.best == chunk.labels).cpu()])
        if self.scale is not None:
            # softmax(s z) from p = softmax(z): p^s over its sum, so the loss is s · loss + log Σ p^s
            total = chunk.probabilities.pow_(self.scale).sum(1).double().cpu().log_()
            scores.scaled_loss += (self.scale * losses + total).sum()
        return scores
