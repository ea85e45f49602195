"""The points of a sweep over pairs: their order, norms, variances and directions."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from collapselab.core.vectors import Vectors, squared_lengths

TRUSTED = 2.5e-7
"""Relative error up to which a value is taken from the matrix product."""

RANGE = 2.0**16
"""Norms are swept in float32 if they are between one over this and this, and variances if between their squares."""


class Facts(NamedTuple):
    """What is known of each point, shaped so that left and right broadcast over the pairs of a tile."""

    row: Tensor  # index into the points
    norm: Tensor  # about the centre
    excess: Tensor  # length from the origin minus that of the centre
    inverse_length: Tensor  # from the origin
    variance: Tensor

    def at(self, index: Tensor | slice) -> "Facts":
        return Facts(*(fact[index] for fact in self))

    def upright(self) -> "Facts":
        return Facts(*(fact[:, None] for fact in self))

    def to(self, dtype: torch.dtype) -> "Facts":
        return Facts(self.row, *(fact.to(dtype) for fact in self[1:]))

    def fit_float32(self) -> bool:
        """Return whether float32 holds one over the fourth powers of distances."""
        low, high = self.norm.aminmax()
        varied = self.variance[self.variance > 0]
        least, most = varied.aminmax() if len(varied) else (low, high)
        return bool(low > 1 / RANGE and high < RANGE and least > 1 / RANGE**2 and most < RANGE**2)


@dataclass(frozen=True)
class Projection:
    """Points in coordinates in which squared lengths are variances: z = Lᵀ (p - centre), with L Lᵀ the covariance.

    The variance along the difference δ of two points is then δᵀ Σ δ = |z_i - z_j|², one more product for each tile.
    """

    points: Tensor
    squares: Tensor
    factor: Tensor

    @classmethod
    def of(cls, points: Vectors, centre: Tensor, covariance: Tensor) -> "Projection":
        """Project all points; `covariance` (dim, dim) is in the square of the points' unit."""
        values, vectors = torch.linalg.eigh(covariance.to(centre))
        factor = vectors * values.clamp(min=0).sqrt()
        projected = torch.cat([block.sub_(centre) @ factor for _, block in points.blocks()])
        return cls(projected, squared_lengths(projected), factor)

    def left(self, rows: Tensor) -> Tensor:
        """Return (-2z, |z|², 1): times (z, 1, |z|²) of another point, the variance along the difference."""
        points, squares = self.points[rows], self.squares[rows, None]
        return torch.cat([points * -2, squares, torch.ones_like(squares)], 1)

    def right(self, rows: Tensor) -> Tensor:
        """Return (z, 1, |z|²)."""
        points, squares = self.points[rows], self.squares[rows, None]
        return torch.cat([points, torch.ones_like(squares), squares], 1)


@dataclass(frozen=True)
class Points:
    """Points in the order of the sweep: those with variance first, then those without; within both by their norm.

    `typical` is the mean of 1 - cos over pairs of directions from the centre, and `typical_uncentred` from the origin:
    values divided by it are about 1, their logarithms about 0, which saves digits in float32.
    """

    vectors: Vectors
    centre: Tensor
    facts: Facts
    direction_sum: Tensor
    mean_cosine: float
    typical: float
    typical_uncentred: float
    centred: bool
    """Whether all points have a direction from the centre."""
    uncentred: bool
    """Whether directions from the origin are asked for, and all points have one."""
    varied: bool
    """Whether variances were given."""
    projection: Projection | None = None

    @classmethod
    def of(
        cls, vectors: Vectors, variances: Tensor | None, *, uncentred: bool, covariance: Tensor | None = None
    ) -> "Points":
        """Measure and order all points; with a covariance, also project them."""
        centre = vectors.mean()
        if not torch.isfinite(centre).all():
            raise ValueError("points: some are nan or infinite, or their sum is; finite numbers are needed.")
        norm, length, along = centre.new_empty(3, len(vectors))  # along: product of the centred point with the centre
        direction_sum, direction_sum_uncentred = centre.new_zeros(2, vectors.dim)
        for chosen, block in vectors.blocks():
            torch.linalg.vector_norm(block, dim=1, out=length[chosen])
            direction_sum_uncentred += inverse(length[chosen]) @ block
            block -= centre
            torch.linalg.vector_norm(block, dim=1, out=norm[chosen])
            torch.mv(block, centre, out=along[chosen])
            direction_sum += inverse(norm[chosen]) @ block
        spread = torch.zeros_like(norm) if variances is None else variances.to(norm)
        # |p| - |centre| without cancellation, however far the centre is from the origin.
        excess = (norm.square() + 2 * along) * inverse(length + torch.linalg.vector_norm(centre))
        # No tile crosses the border between points with and without variance: pairs of the latter have no log CDNV.
        # By norm, so that the norms of one tile are similar.
        order = norm.argsort(stable=True)
        order = order[(spread[order] <= 0).to(torch.int8).argsort(stable=True)]
        mean_cosine, typical = _mean_cosine(direction_sum, len(vectors))
        # In a tile, 1 / typical and typical_uncentred are factors: float32 must hold them exactly, or all values shift.
        _, typical_uncentred = _mean_cosine(direction_sum_uncentred, len(vectors))
        inverse_typical, typical_uncentred = torch.tensor([1 / typical, typical_uncentred]).float().tolist()
        return cls(
            vectors,
            centre,
            Facts(order, *(fact[order] for fact in (norm, excess, inverse(length), spread))),
            direction_sum,
            mean_cosine,
            typical=1 / inverse_typical,
            typical_uncentred=typical_uncentred,
            centred=bool((norm > 0).all()),
            uncentred=uncentred and bool((length > 0).all()),
            varied=variances is not None,
            projection=None if covariance is None else Projection.of(vectors, centre, covariance),
        )

    def __len__(self) -> int:
        return len(self.facts.row)

    def sample(self, points: int) -> "Points":
        """Return some of the points, evenly spread over the order, with the centre of all."""
        positions = torch.linspace(0, len(self) - 1, points, device=self.facts.row.device).round().long()
        return replace(self, facts=self.facts.at(positions))

    @cached_property
    def border(self) -> int:
        """Number of points with variance."""
        return int((self.facts.variance > 0).sum())

    @property
    def simplex(self) -> float:
        """(1 - cos) / typical of the pairs of a simplex of as many points."""
        return (1 + 1 / (len(self.vectors) - 1)) / self.typical

    @property
    def doubtful(self) -> float:
        """Values of 1 - cos below this may be wrong by more than TRUSTED after a product in float64."""
        return max(self.vectors.dim, 64) * torch.finfo(torch.float64).eps / TRUSTED

    def blocks(self, start: int, step: int) -> Iterator[slice]:
        while start < len(self):
            stop = min(start + step, self.border if start < self.border else len(self))
            yield slice(start, stop)
            start = stop

    def directions(self, index: Tensor | slice) -> Tensor:
        """Return unit vectors from the centre, each followed by 1: (-u/t, 1/t) · (u, 1) is (1 - cos) / t."""
        points = self.vectors.at(self.facts.row[index]).sub_(self.centre)
        points.mul_(inverse(self.facts.norm[index])[:, None])
        return torch.nn.functional.pad(points, (0, 1), value=1.0)

    def mean_cosines(self) -> Tensor:
        """Return the mean cosine of each point with all others, by row: (u · Σ u - 1) / (K - 1)."""
        cosines = torch.empty_like(self.facts.norm)
        for block in self.blocks(0, 1024):
            products = self.directions(block)[:, :-1] @ self.direction_sum
            cosines[self.facts.row[block]] = (products - 1) / (len(self) - 1)
        return cosines

    def distances(self, rows: Tensor, others: Tensor) -> Tensor:
        """Return the distance of each of these points from another."""
        parts = zip(torch.split(rows, 1024), torch.split(others, 1024), strict=True)
        differences = (self.vectors.at(left).sub_(self.vectors.at(right)) for left, right in parts)
        return torch.cat([torch.linalg.vector_norm(block, dim=1) for block in differences])


def inverse(values: Tensor) -> Tensor:
    """Return 1 / value, and 1 in place of 1 / 0."""
    return torch.where(values > 0, values, 1).reciprocal_()


def _mean_cosine(direction_sum: Tensor, classes: int) -> tuple[float, float]:
    """Return the mean cosine over pairs of unit vectors with this sum, (|Σ u|² - K) / (K (K - 1)), and 1 minus it.

    The second is 1 where rounding leaves nothing of it.
    """
    mean = (float(direction_sum.square().sum()) - classes) / (classes * (classes - 1))
    return mean, 1 - mean if 1 - mean > 1e-12 else 1.0
