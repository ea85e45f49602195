"""The table of a cloud's directions, and a tile of pairs that is made of it. `pairs.py` has the formulas."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, final

import torch
from torch import Tensor

from collapselab.core.cloud import Cloud, Facts, inverse

NEAR = 0.1
"""In float32, pairs of directions with 1 - cos below this are computed again in float64."""

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
        self.facts = cloud.facts.narrow() if self.narrow else cloud.facts
        self.directions = cloud.table(dtype)
        self.projected = None if cloud.projection is None else cloud.projection.right(cloud.facts.row).to(dtype)
        self.norms: list[float] = self.facts.norm.tolist()
        positive = self.facts.variance[self.facts.variance > 0]
        self.variances: list[float] = [float(value) for value in torch.aminmax(positive)] if len(positive) else []
        self.columns, self.rows = max(1, tile), max(1, tile // 2)
        self._spaces: list[Space] = []

    @property
    def near(self) -> float:
        """Pairs with 1 - cos below this are computed again from their points.

        A product of unit vectors in float32 is wrong by at most (dim + 8) 2^-24, in whatever order it is added up: a
        pair that is not computed again is right to 1/63 in the worst case, and usually to a millionth.
        """
        return max(NEAR, 64 * (self.cloud.points.dim + 8) * 2.0**-24) if self.narrow else self.cloud.doubtful

    def norms_alike(self, rows: slice, columns: slice) -> bool:
        """Whether the table's precision can compute with the norms of these points, which ascend in both."""
        if not self.narrow:
            return True
        shortest = min(self.norms[rows.start], self.norms[columns.start])
        longest = max(self.norms[rows.stop - 1], self.norms[columns.stop - 1])
        return bool(shortest >= max(SHORTEST, longest / WIDEST))

    def longest(self, rows: slice, columns: slice) -> float:
        """Root of the largest sum of two squared norms."""
        return math.hypot(self.norms[rows.stop - 1], self.norms[columns.stop - 1])

    def widest(self, rows: slice, columns: slice, near: float) -> float:
        """A bound of |log2| of the CDNV terms (v_i + v_j) / d² of pairs with 1 - cos ≥ near, one of which has variance.

        d² is at least 2 near r_i r_j and at most 2 (r_i² + r_j²).
        """
        nearest = 2 * near * self.norms[rows.start] * self.norms[columns.start]
        if not nearest > 0 or not self.variances:
            return math.inf
        low, high = self.variances
        return max(-math.log2(low / (2 * self.longest(rows, columns) ** 2)), math.log2(2 * high / nearest))

    @contextmanager
    def space(self) -> Iterator["Space"]:
        """Working memory for one thread, given back to be used again: new pages cost more than the arithmetic."""
        try:
            space = self._spaces.pop()
        except IndexError:
            space = Space(self.directions.device)
        yield space
        self._spaces.append(space)


@final
class Space:
    """Memory for the four matrices of a tile, the same for all tiles."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._memory: dict[torch.dtype, Tensor] = {}
        self._views: dict[tuple[torch.dtype, int, int], tuple[Tensor, ...]] = {}

    def of(self, dtype: torch.dtype, rows: int, columns: int) -> tuple[Tensor, ...]:
        if (dtype, rows, columns) not in self._views:
            size = 4 * rows * columns
            if dtype not in self._memory or self._memory[dtype].numel() < size:
                self._memory[dtype] = torch.empty(size, dtype=dtype, device=self.device)
            self._views[dtype, rows, columns] = self._memory[dtype][:size].view(4, rows, columns).unbind()
        return self._views[dtype, rows, columns]


class Tile(NamedTuple):
    """The pairs of some points with others, in float32 or float64; values are overwritten as they are used up.

    The tile of a block with itself has each pair twice, and each point with itself.
    """

    left: Facts
    right: Facts
    corner: tuple[int, int]  # positions of the first points
    near: float  # pairs with 1 - cos below this are computed again
    longest: float  # root of the largest sum of two squared norms
    widest: float  # bound of |log2| of the CDNV terms that are not computed again
    x: Tensor  # (1 - cos) / typical
    squares: Tensor  # squared distances
    chords: Tensor
    scratch: Tensor

    @property
    def diagonal(self) -> bool:
        return self.corner[0] == self.corner[1]


def directions_of(points: Tensor) -> Tensor:
    return points * inverse(torch.linalg.vector_norm(points, dim=1))[:, None]


def followed_by_one(directions: Tensor) -> Tensor:
    return torch.nn.functional.pad(directions, (0, 1), value=1.0)


def indices_below(values: Tensor, bound: float) -> Tensor | None:
    """Flat indices of the values (rows, columns) below the bound, if there are any; looked for where a row has one."""
    lowest = values.amin(1)
    if float(lowest.amin()) >= bound:
        return None
    rows = (lowest < bound).nonzero().squeeze(1)
    row, column = (values[rows] < bound).nonzero().unbind(1)
    return rows[row] * values.shape[1] + column


def fill(values: Tensor, at: Tensor | None, value: float) -> None:
    if at is not None:
        values.view(-1).index_fill_(0, at, value)
