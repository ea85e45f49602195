"""A part of a batch, and what is done to its features before it matters which class they belong to.

Several moments may take the same features (with true labels, with shuffled ones): this is done once for all of them.
"""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from collapselab.core.scale import squared_lengths

PART_BYTES = {"cpu": 12 << 20, "cuda": 256 << 20}
"""Size in float64 of the part of a batch that is worked on at once: on a CPU it should stay in the cache."""

FEW = 1024
"""Features that tell how far features are from the origin."""


@final
@dataclass(frozen=True)
class Part:
    """Features in float64 (tokens, dim), their offsets from a point, squared lengths of these, and offsetsᵀ offsets."""

    wide: Tensor
    offset: Tensor
    squares: Tensor
    product: Tensor | None


@final
class Room:
    """Memory for parts, kept from one to the next: fresh pages cost more than the arithmetic done in them."""

    def __init__(self, rows: int, dim: int, device: torch.device) -> None:
        self.wide, self.offset = torch.empty(2, rows, dim, dtype=torch.float64, device=device)

    def part(self, features: Tensor, point: Tensor, *, product: bool) -> Part:
        """What there is to know of these features about this point. It is overwritten by the next part."""
        rows = len(features)
        wide, offset = self.wide[:rows], self.offset[:rows]
        if features.dtype == torch.float64:
            wide = features
        if not point.any():
            offset = wide
        if wide is not features:
            wide.copy_(features)
        if offset is not wide:
            torch.sub(wide, point, out=offset)
        return Part(wide, offset, squared_lengths(offset), offset.T @ offset if product else None)


def common_point(features: Tensor) -> Tensor:
    """A point from which these features do not lie far, as seen from one another: the origin if it will do."""
    mean = features.mean(0, dtype=torch.promote_types(features.dtype, torch.float32)).double()
    some = features[:FEW].double()
    near = mean.square().sum() < some.square().sum(1).mean() / 2
    return torch.zeros_like(mean) if near else mean


def part_rows(dim: int, device: torch.device) -> int:
    """Rows of a part."""
    return max(1, PART_BYTES.get(device.type, PART_BYTES["cpu"]) // (8 * dim))
