"""Tokens of each sequence of a step side by side, for penalties that compare tokens inside a sequence."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from collapselab.training.interventions.penalty import Step

TOKENS = 256
"""The most that are taken of a sequence, fewer where the step is small; which, is drawn at every step."""


class Drawn(NamedTuple):
    """Places of tokens in the step (sequences, tokens); those beyond the end of a short sequence are 0."""

    places: Tensor
    inside: Tensor | None
    """Which of `places` are tokens of the sequence; None where all are."""

    @property
    def pairs(self) -> Tensor | int:
        """Ordered pairs of two tokens, of each sequence (sequences,)."""
        tokens = self.places.shape[1] if self.inside is None else self.inside.sum(1)
        return tokens * (tokens - 1)

    def only_pairs(self, values: Tensor, other: float) -> Tensor:
        """(sequences, tokens, tokens) values with another number in place, where there are not two tokens."""
        values.diagonal(dim1=1, dim2=2).fill_(other)
        if self.inside is not None:
            values.masked_fill_(~(self.inside[:, :, None] & self.inside[:, None, :]), other)
        return values


def drawn_tokens(step: Step) -> Drawn | None:
    """Some tokens of each sequence that has two or more; None where none has."""
    counts = torch.bincount(step.sequences)
    some = counts >= 2
    if not some.any():
        return None
    lengths, starts = counts[some], (counts.cumsum(0) - counts)[some]
    number, longest, shortest = len(lengths), int(lengths.max()), int(lengths.min())
    limit = min(TOKENS, max(32, math.isqrt(step.pair_rows(1 << 20) ** 2 // (2 * number))))
    offsets = torch.arange(longest, device=lengths.device).expand(number, longest)
    if longest > limit:
        keys = torch.rand(number, longest, generator=step.generator).to(lengths.device)
        keys[offsets >= lengths[:, None]] = 2.0
        offsets = keys.topk(limit, largest=False).indices.sort().values
    if shortest >= offsets.shape[1]:
        return Drawn(starts[:, None] + offsets, None)
    inside = offsets < lengths[:, None]
    return Drawn((starts[:, None] + offsets).where(inside, 0), inside)


def spread(of_drawn: Tensor, places: Tensor, features: Tensor) -> Tensor:
    """The gradient of all features from that of the drawn tokens; a place that is there for nothing adds zero."""
    return torch.zeros_like(features).index_add_(0, places.reshape(-1), of_drawn.reshape(-1, features.shape[1]))
