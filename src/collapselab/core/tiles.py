"""The table of a cloud's directions, and a tile of pairs that is made of it. `pairs.py` has the formulas."""

import math
import threading
from typing import NamedTuple, final

import torch
from torch import Tensor

from collapselab.core.cloud import Cloud, Facts, inverse
from collapselab.core.scale import binary_exponent, lengths

NEAR = 0.1
"""In float32, pairs of directions with 1 - cos below this are computed again in float64."""

CHUNK = 64
"""Neighbouring pairs among which near ones are looked for at once."""

WIDEST, SHORTEST = 2.0**10, 2.0**-20
"""Largest ratio of norms in a tile of float32, and the smallest norm over the largest of all."""

VARIANCES = 2.0**-90, 2.0**40
"""Range of the positive variances in float32, over the square of the largest norm."""


def float32_holds(cloud: Cloud) -> bool:
    """Whether the positive variances are in the range in which float32 computes with them."""
    positive = cloud.facts.variance[cloud.facts.variance > 0] / cloud.longest**2
    return not len(positive) or bool((positive.amin() >= VARIANCES[0]) & (positive.amax() <= VARIANCES[1]))


@final
class Table:
    """The directions of a cloud and the facts of its points, in float32 or float64."""

    def __init__(self, cloud: Cloud, dtype: torch.dtype, *, tile: int, with_rows: bool = False) -> None:
        self.with_rows = with_rows
        self.narrow = dtype == torch.float32
        self.cloud = cloud.for_float32() if self.narrow else cloud
        self.exponent = binary_exponent(cloud.facts.norm) if self.narrow else 0
        self.facts = cloud.facts.narrow(self.exponent) if self.narrow else cloud.facts
        self.directions = cloud.table(dtype)
        self.projected = None if cloud.projection is None else cloud.projection.right(cloud.facts.row).to(dtype)
        self._of_thread = threading.local()
        self.columns, self.rows = max(1, tile), max(1, tile // 2)

    @property
    def near(self) -> float:
        """Pairs with 1 - cos below this are computed again from their points.

        A product of unit vectors in float32 is wrong by at most (dim + 8) 2^-24, in whatever order it is added up: a
        pair that is not computed again is right to 1/63 in the worst case, and usually to a millionth.
        """
        return max(NEAR, 64 * (self.cloud.points.dim + 8) * 2.0**-24) if self.narrow else self.cloud.doubtful

    def space(self, number: int, shape: torch.Size | tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Memory of this thread, used again for each tile: new pages cost more than the arithmetic done in them."""
        spaces: dict[str, Tensor] = self._of_thread.__dict__
        key, size = f"{number} {dtype}", torch.Size(shape).numel()
        if key not in spaces or spaces[key].numel() < size:
            spaces[key] = torch.empty(size, dtype=dtype, device=self.directions.device)
        return spaces[key][:size].view(shape)


class Tile(NamedTuple):
    """The pairs of some points with others, in float32 or float64; values are overwritten as they are used up.

    The tile of a block with itself has each pair twice, and each point with itself.
    """

    left: Facts
    right: Facts
    corner: tuple[int, int]  # positions of the first points
    near: float  # pairs with 1 - cos below this are computed again
    exponent: int  # of the unit of length in the facts
    x: Tensor  # (1 - cos) / typical
    squares: Tensor  # squared distances
    chords: Tensor
    scratch: Tensor

    @property
    def twice(self) -> bool:
        return self.corner[0] == self.corner[1]

    @property
    def longest(self) -> float:
        """Root of the largest sum of squared norms in the tile, in which norms ascend."""
        return math.hypot(float(self.left.norm[-1]), float(self.right.norm[-1]))


def directions_of(points: Tensor) -> Tensor:
    return points * inverse(lengths(points))[:, None]


def followed_by_one(directions: Tensor) -> Tensor:
    return torch.nn.functional.pad(directions, (0, 1), value=1.0)


def norms_alike(left: Tensor, right: Tensor) -> bool:
    """Whether float32 can compute with these norms, which ascend."""
    shortest, longest = min(float(left[0]), float(right[0])), max(float(left[-1]), float(right[-1]))
    return shortest >= max(SHORTEST, longest / WIDEST)


def indices_below(values: Tensor, bound: float) -> Tensor:
    """Flat indices of the values below the bound, which are few: most chunks are seen to have none by their minimum."""
    flat = values.view(-1)
    whole = len(flat) // CHUNK * CHUNK
    chunks = flat[:whole].view(-1, CHUNK)
    some = (chunks.amin(1) < bound).nonzero().squeeze(1)
    chunk, place = (chunks[some] < bound).nonzero().unbind(1)
    rest = (flat[whole:] < bound).nonzero().squeeze(1)
    return torch.cat([some[chunk] * CHUNK + place, rest + whole])


def fill(values: Tensor, at: Tensor, value: float) -> None:
    if len(at):
        values.view(-1).index_fill_(0, at, value)
