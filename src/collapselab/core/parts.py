"""A part of a batch, and what is computed from its features without their labels.

Several moments may take the same features (with true labels, with shuffled ones): this is done once for all of them.
"""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from collapselab.core.vectors import gram_of, squared_lengths

PART_BYTES = {"cpu": 12 << 20, "cuda": 256 << 20}
"""Size in float64 of the part of a batch that is processed at once: on a CPU it should stay in the cache."""

SLICES = 4
"""Slices of rows that are added up side by side: the same for any number of threads, which then changes no bit."""

SAMPLE = 1024
"""Features from which the mean squared length of all is estimated."""


@final
@dataclass(frozen=True)
class Part:
    """Features in float64 (tokens, dim), their offsets from a reference point, |offset|², offsetsᵀ offsets, Σ h/|h|.

    Only the product may be in float32: what is summed up of it is float64.
    """

    features: Tensor
    offsets: Tensor
    squares: Tensor
    product: Tensor | None
    directions: Tensor | None


@final
class Workspace:
    """Memory for parts, used again for each: new pages cost more than the arithmetic done in them."""

    def __init__(self, rows: int, dim: int, device: torch.device) -> None:
        self.features, self.offsets = torch.empty(2, rows, dim, dtype=torch.float64, device=device)

    def part(self, features: Tensor, reference: Tensor, *, product: torch.dtype | None, directions: bool) -> Part:
        """The part made of these features, which are multiplied in `product`. The next call overwrites it."""
        wide, offsets = self.features[: len(features)], self.offsets[: len(features)]
        if features.dtype == torch.float64:
            wide = features
        else:
            wide.copy_(features)
        if reference.any():
            torch.sub(wide, reference, out=offsets)
        else:
            offsets = wide
        norms = torch.linalg.vector_norm(wide, dim=1) if directions else None
        squares = norms.square() if norms is not None and offsets is wide else squared_lengths(offsets)
        factors = features if offsets is wide and product != torch.float64 else offsets  # which need no conversion
        return Part(
            wide,
            offsets,
            squares,
            None if product is None else gram_of(factors.to(product)),
            None if norms is None else _weighted_sum(wide, norms.reciprocal()),
        )


def _weighted_sum(rows: Tensor, weights: Tensor) -> Tensor:
    """Σ weight · row (dim,) in slices: PyTorch runs a product with one vector on one thread."""
    each = len(rows) // SLICES
    whole = each * SLICES
    total = torch.mv(rows[whole:].T, weights[whole:])
    if each:
        sums = torch.bmm(weights[:whole].view(SLICES, 1, each), rows[:whole].reshape(SLICES, each, -1))
        total += sums.sum((0, 1))
    return total


def reference_point(features: Tensor) -> Tensor:
    """The mean of the features, or the origin where the mean is short beside the features themselves."""
    mean = features.mean(0, dtype=torch.promote_types(features.dtype, torch.float32)).double()
    mean_square = features[:SAMPLE].double().square().sum(1).mean()
    is_short = mean.square().sum() < mean_square / 2
    return torch.zeros_like(mean) if is_short else mean


def part_rows(dim: int, device: torch.device) -> int:
    """Rows of a part."""
    return max(1, PART_BYTES.get(device.type, PART_BYTES["cpu"]) // (8 * dim))
