"""How a layer's variance is spread over its features: whether a handful of them carries most of it.

Squared distances from the mean of their batch are counted and added up by powers of two. The table has one size
whatever the number of features, and tables of parts add up to that of the whole.
"""

from dataclasses import dataclass, field
from typing import final

import torch
from torch import Tensor

LOWEST, HIGHEST = -300, 300
"""Exponents that are told apart: those of squared float32 numbers. Smaller and larger ones count as these."""

ROWS = 1024
"""Features whose distances are computed at once, in float64."""

HANDFUL, HANDFUL_SHARE = 10, 0.002
"""So many features, or this share of all if it is more, are a handful."""


def _zeros(dtype: torch.dtype) -> Tensor:
    return torch.zeros(HIGHEST - LOWEST + 1, dtype=dtype)


@final
@dataclass
class Spread:
    """Squared distances of features from their batch's mean, by powers of two: how many, and their sum."""

    counts: Tensor = field(default_factory=lambda: _zeros(torch.int64))
    sums: Tensor = field(default_factory=lambda: _zeros(torch.float64))

    def add(self, features: Tensor) -> None:
        """Count a batch (tokens, dim)."""
        if not len(features):
            return
        parts = torch.split(features.detach().cpu(), ROWS)
        mean = torch.stack([part.double().sum(0) for part in parts]).sum(0) / len(features)
        squares = torch.cat([(part.double() - mean).square_().sum(1) for part in parts])
        exponents = torch.where(squares > 0, torch.frexp(squares).exponent.long(), LOWEST).clamp(LOWEST, HIGHEST)
        self.counts += torch.bincount(exponents - LOWEST, minlength=len(self.counts))
        self.sums.index_add_(0, exponents - LOWEST, squares)

    def merge(self, other: "Spread", *, times: int = 1) -> None:
        self.counts += times * other.counts
        self.sums += times * other.sums

    @property
    def features(self) -> int:
        return int(self.counts.sum())

    @property
    def handful(self) -> int:
        return max(HANDFUL, int(HANDFUL_SHARE * self.features))

    def share_of_handful(self) -> float:
        """The share of the variance that the farthest features carry, a handful of them; 0 without variance.

        Of the last power of two that is reached, so many features count as are left, each with the mean of its power.
        """
        left, carried, total = self.handful, 0.0, float(self.sums.sum())
        if not 0 < total < float("inf") or self.features <= self.handful:
            return 0.0
        for place in self.counts.nonzero().squeeze(1).flip(0).tolist():
            count, power_sum = int(self.counts[place]), float(self.sums[place])
            taken = min(left, count)
            carried += power_sum * taken / count
            left -= taken
            if not left:
                break
        return carried / total
