"""Tokens of each sequence of a step side by side, for penalties that compare tokens inside a sequence."""

from typing import NamedTuple

import torch
from torch import Tensor

from collapselab.training.interventions.penalty import Step

TOKENS = 256
"""The most that are taken of a sequence; which, is drawn at every step."""


class Drawn(NamedTuple):
    """Places of tokens in the step (sequences, tokens), and which pairs of them are two tokens of the sequence."""

    places: Tensor
    pairs: Tensor
    """(sequences, tokens, tokens)."""


def drawn_tokens(step: Step) -> Drawn | None:
    """At most 256 tokens of each sequence; None where no sequence has two. Places beyond a short one's end are 0."""
    counts = torch.bincount(step.sequences)
    some = counts >= 2
    if not some.any():
        return None
    lengths, starts = counts[some], (counts.cumsum(0) - counts)[some]
    longest, number = int(lengths.max()), len(lengths)
    offsets = torch.arange(longest, device=lengths.device).expand(number, longest)
    if longest > TOKENS:
        keys = torch.rand(number, longest, generator=step.generator).to(lengths.device)
        keys[offsets >= lengths[:, None]] = 2.0
        offsets = keys.topk(TOKENS, largest=False).indices.sort().values
    inside = offsets < lengths[:, None]
    pairs = (inside[:, :, None] & inside[:, None, :]).clone()
    pairs.diagonal(dim1=1, dim2=2).fill_(False)
    return Drawn((starts[:, None] + offsets).where(inside, 0), pairs)


def spread(of_drawn: Tensor, places: Tensor, features: Tensor) -> Tensor:
    """The gradient of all features from that of the drawn tokens; a place that is there for nothing adds zero."""
    return torch.zeros_like(features).index_add_(0, places.reshape(-1), of_drawn.reshape(-1, features.shape[1]))
