"""Matrices of scores (tokens, classes): aligned in memory, their softmax, and the two largest scores of each token.

A product whose rows of 50,257 numbers follow each other without a gap takes 1.7 times as long as one whose rows begin
at aligned addresses. `argmax` takes half as long as the product that the scores come from, so the index of a token's
best is looked for in one strip of scores alone, by the maxima of all strips.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

ALIGNED_BYTES, MIN_ALIGNED = 64, 1024
"""The multiple of bytes at which rows begin, and the shortest row for which that pays."""

STRIP = 64
"""Scores of a strip."""


def aligned_stride(columns: int, number_bytes: int) -> int:
    """Numbers from the beginning of a row to that of the next."""
    numbers = ALIGNED_BYTES // number_bytes if columns >= MIN_ALIGNED else 1
    return math.ceil(columns / numbers) * numbers


def aligned_rows(buffer: Tensor, rows: int, columns: int) -> Tensor:
    """The memory of a buffer of at least rows · `aligned_stride` numbers as (rows, columns)."""
    stride = aligned_stride(columns, buffer.element_size())
    return buffer[: rows * stride].view(rows, stride)[:, :columns]


def softmax_of_aligned(rows: Tensor) -> None:
    """Softmax of each row, in place. torch would copy rows with a gap between them, so the gap takes part."""
    columns, stride = rows.shape[1], rows.stride(0)
    with_gaps = rows.as_strided((len(rows), stride), (stride, 1))
    with_gaps[:, columns:] = -torch.inf
    torch.softmax(with_gaps, 1, out=with_gaps)


class TopTwo(NamedTuple):
    """Of each token the place of the largest score, the first of equals, and how much less the second-largest is."""

    best: Tensor
    gap: Tensor


def top_two(scores: Tensor) -> TopTwo:
    """Return the two best of scores (tokens, classes); the gap is infinite where there is one class."""
    place, largest, runner_up = two_largest(scores)
    return TopTwo(place, largest - runner_up)


def two_largest(scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return of each token the place of the largest score, the first of equals, that score, and the second-largest."""
    columns = scores.shape[1]
    whole = columns // STRIP * STRIP
    parts = [scores[:, :whole].view(len(scores), whole // STRIP, STRIP).amax(2)] if whole else []
    if whole < columns:
        parts.append(scores[:, whole:].amax(1, keepdim=True))
    maxima = torch.cat(parts, 1)
    strip = maxima.argmax(1, keepdim=True)
    places = strip * STRIP + torch.arange(STRIP, device=scores.device)
    some = scores.gather(1, places.clamp(max=columns - 1)).masked_fill_(places >= columns, -torch.inf)
    largest, at = some.max(1, keepdim=True)
    elsewhere = maxima.scatter_(1, strip, -torch.inf).amax(1)
    runner_up = torch.maximum(elsewhere, some.scatter_(1, at, -torch.inf).amax(1))
    return (strip * STRIP + at).squeeze(1), largest.squeeze(1), runner_up
