"""The largest and the second-largest score of each token, by the maxima of strips of scores side by side.

The place of a token's best is then looked for in one strip alone, since `argmax` takes half as long as the product that
the scores come from.
"""

from typing import NamedTuple

import torch
from torch import Tensor

STRIP = 64
"""Scores of a strip."""


class TopTwo(NamedTuple):
    """Of each token the place of the largest score, the first of equals, and how much less the second-largest is."""

    best: Tensor
    gap: Tensor


def top_two(scores: Tensor) -> TopTwo:
    """Of scores (tokens, classes); the gap is infinite where there is one class."""
    columns = scores.shape[1]
    whole = columns // STRIP * STRIP
    parts = [scores[:, :whole].view(len(scores), whole // STRIP, STRIP).amax(2)] if whole else []
    if whole < columns:
        parts.append(scores[:, whole:].amax(1, keepdim=True))
    maxima = torch.cat(parts, 1)
    strip = maxima.argmax(1, keepdim=True)
    places = strip * STRIP + torch.arange(STRIP, device=scores.device)
    some = scores.gather(1, places.clamp(max=columns - 1)).masked_fill_(places >= columns, -torch.inf)
    at, runner_up = _best_and_next(maxima, strip, some)
    return TopTwo(strip.squeeze(1) * STRIP + at, some.amax(1) - runner_up)


def best_two(strips: Tensor, maxima: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Of these tokens the place of the largest score, the first of equals, and the second-largest score.

    `strips` are scores (tokens, strips, STRIP), `maxima` the largest of each strip.
    """
    largest = maxima.index_select(0, tokens)
    strip = largest.argmax(1, keepdim=True)
    some = strips.view(-1, STRIP).index_select(0, tokens * strips.shape[1] + strip.squeeze(1))
    at, runner_up = _best_and_next(largest, strip, some)
    return strip.squeeze(1) * STRIP + at, runner_up


def _best_and_next(maxima: Tensor, strip: Tensor, some: Tensor) -> tuple[Tensor, Tensor]:
    """The place of the best in its strip, of which `some` are the scores, and the second-best score of all."""
    at = some.argmax(1, keepdim=True)
    elsewhere = maxima.scatter(1, strip, -torch.inf).amax(1)
    return at.squeeze(1), torch.maximum(elsewhere, some.scatter(1, at, -torch.inf).amax(1))
