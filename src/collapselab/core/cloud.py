"""The points of a sweep over pairs: their order, norms, variances and directions."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, final

import torch
from torch import Tensor

from collapselab.core.pair_sums import PairRows, PairStatistics, RowSums, Sums
from collapselab.core.vectors import Vectors, power_of_two_above, squared_lengths

TRUSTED = 2.5e-7
"""Relative error up to which a value is taken from the matrix product."""

DOUBTFUL = 1e-9
"""A variance that is a smaller share of the largest possible is computed again, from the difference of the points."""


class Facts(NamedTuple):
    """What is known of each point, shaped so that left and right broadcast over the pairs of a tile."""

    row: Tensor  # in the points
    norm: Tensor  # about the centre
    excess: Tensor  # length from the origin minus that of the centre
    inverse_length: Tensor
    variance: Tensor

    def at(self, index: Tensor | slice) -> "Facts":
        if isinstance(index, Tensor):
            return Facts(*(fact.index_select(0, index) for fact in self))
        return Facts(*(fact[index] for fact in self))

    def upright(self) -> "Facts":
        return Facts(*(fact[:, None] for fact in self))

    def narrow(self) -> "Facts":
        """In float32."""
        return Facts(self.row, *(fact.float() for fact in self[1:]))


@final
@dataclass(frozen=True)
class Projection:
    """Points in coordinates in which squared lengths are variances: z = Lᵀ (p - centre), with L Lᵀ the covariance.

    The variance along the difference δ of two points is then δᵀ Σ δ = |z_i - z_j|², one more product for each tile.
    """

    points: Tensor
    squares: Tensor
    factor: Tensor
    largest: float
    """The largest variance of a direction of length 1."""

    @classmethod
    def of(cls, points: Vectors, centre: Tensor, covariance: Tensor) -> "Projection":
        """`covariance` (dim, dim) is in the square of the points' unit."""
        values, vectors = torch.linalg.eigh(covariance.to(centre))
        factor = vectors * values.clamp(min=0).sqrt()
        projected = torch.cat([block.sub_(centre) @ factor for _, block in points.blocks()])
        return cls(projected, squared_lengths(projected), factor, float(values[-1].clamp(min=0)))

    def left(self, rows: Tensor) -> Tensor:
        """(-2z, |z|², 1) of these points: times (z, 1, |z|²) of others, the variance along the difference."""
        points, squares = self.points[rows], self.squares[rows, None]
        return torch.cat([points * -2, squares, torch.ones_like(squares)], 1)

    def right(self, rows: Tensor) -> Tensor:
        """(z, 1, |z|²)."""
        points, squares = self.points[rows], self.squares[rows, None]
        return torch.cat([points, torch.ones_like(squares), squares], 1)

    def along(self, left: Tensor, right: Tensor, differences: Tensor, norms: Tensor) -> Tensor:
        """The variance along each pair's difference; `norms` are the two squared norms, added."""
        variances = squared_lengths(self.points[left] - self.points[right])
        doubtful = (variances < DOUBTFUL * self.largest * norms).nonzero().squeeze(1)
        if len(doubtful):
            variances[doubtful] = squared_lengths(differences[doubtful] @ self.factor)
        return variances


@final
@dataclass(frozen=True)
class Cloud:
    """Points in an order: those with variance first, then those without; within both by their norm. Read-only.

    Lengths are in multiples of `unit`, a power of two just above the largest norm: float32 holds their squares whatever
    the size of the points. `typical` is the mean of 1 - cos over pairs of directions from the centre, and
    `typical_uncentred` from the origin: values divided by it are about 1, their logarithms about 0.
    """

    points: Vectors
    unit: float
    centre: Tensor
    facts: Facts
    direction_sum: Tensor
    mean_cosine: float
    typical: float
    typical_uncentred: float
    centred: bool
    uncentred: bool
    varied: bool
    projection: Projection | None = None

    @classmethod
    def of(
        cls, points: Vectors, variances: Tensor | None, *, uncentred: bool, covariance: Tensor | None = None
    ) -> "Cloud":
        """The cloud of all points; with a covariance, also in the coordinates of `Projection`."""
        centre = points.mean()
        if not torch.isfinite(centre).all():
            raise ValueError("points: some are nan or infinite, or their sum is; finite numbers are needed.")
        norm, length, along, direction_sums = _measured(points, centre)
        unit = power_of_two_above(norm)
        points, centre = points.over(unit), centre / unit
        norm, length, along = norm / unit, length / unit, along / unit**2
        spread = torch.zeros_like(norm) if variances is None else variances.to(norm) / unit**2
        # |p| - |centre| without cancellation, however far the centre is from the origin.
        excess = (norm.square() + 2 * along) * inverse(length + torch.linalg.vector_norm(centre))
        # No tile crosses the border between points with and without variance: pairs of the latter have no log CDNV.
        # By norm, so that the norms of one tile are alike.
        order = norm.argsort(stable=True)
        order = order[(spread[order] <= 0).to(torch.int8).argsort(stable=True)]
        facts = Facts(order, *(fact[order] for fact in (norm, excess, inverse(length), spread)))
        mean_cosine, mean_uncentred = (_mean_cosine(total, len(points)) for total in direction_sums)
        return cls(
            points,
            unit,
            centre,
            facts,
            direction_sums[0],
            mean_cosine,
            typical=_positive(1 - mean_cosine),
            typical_uncentred=_positive(1 - mean_uncentred),
            centred=bool((norm > 0).all()),
            uncentred=uncentred and bool((length > 0).all()),
            varied=variances is not None,
            projection=None if covariance is None else Projection.of(points, centre, covariance / unit**2),
        )

    def __len__(self) -> int:
        return len(self.facts.row)

    def sample(self, points: int) -> "Cloud":
        """Some of the points, evenly spread over the order, with the centre of all."""
        positions = torch.linspace(0, len(self) - 1, points, device=self.facts.row.device).round().long()
        return replace(self, facts=self.facts.at(positions))

    def for_float32(self) -> "Cloud":
        """The same with divisors that float32 holds exactly: rounded, they would shift all values alike."""
        inverse, uncentred = torch.tensor([1 / self.typical, self.typical_uncentred], dtype=torch.float32).tolist()
        return replace(self, typical=1 / inverse, typical_uncentred=uncentred)

    @cached_property
    def border(self) -> int:
        """Points with variance."""
        return int((self.facts.variance > 0).sum())

    @property
    def simplex(self) -> float:
        """(1 - cos) / typical of the pairs of a simplex of as many points."""
        return (1 + 1 / (len(self.points) - 1)) / self.typical

    @cached_property
    def longest(self) -> float:
        """The largest norm."""
        return float(self.facts.norm.max())

    @property
    def doubtful(self) -> float:
        """Values of 1 - cos below this may be wrong by more than TRUSTED after a product in float64."""
        return max(self.points.dim, 64) * torch.finfo(torch.float64).eps / TRUSTED

    def blocks(self, start: int, step: int) -> Iterator[slice]:
        while start < len(self):
            stop = min(start + step, self.border if start < self.border else len(self))
            yield slice(start, stop)
            start = stop

    def directions(self, index: Tensor | slice) -> Tensor:
        """Unit vectors from the centre."""
        points = self.points.at(self.facts.row[index]).sub_(self.centre)
        return points.mul_(inverse(self.facts.norm[index])[:, None])

    def table(self, dtype: torch.dtype) -> Tensor:
        """All directions, each followed by 1: (-u/t, 1/t) · (u, 1) is (1 - cos) / t."""
        table = torch.ones(len(self), self.points.dim + 1, dtype=dtype, device=self.points.device)
        for now in self.blocks(0, 1024):
            table[now, :-1] = self.directions(now)
        return table

    def statistics(self, sums: Sums) -> PairStatistics:
        # With typical t: cos = 1 - t x, and the log distance is -log(2 t x) / 2.
        shift, shift_uncentred = (-0.5 * math.log(2 * t) for t in (self.typical, self.typical_uncentred))
        deviation = (1 - self.mean_cosine) / self.typical - 1
        cosine = replace(sums.cosine, sum=sums.cosine.pairs * deviation).summary(scale=-self.typical)
        cosine = replace(cosine, mean=self.mean_cosine)
        uncentred = sums.logdist_uncentred.summary(scale=-0.5, shift=shift_uncentred)
        squared = sums.cdnv_k2.summary(scale=0.5)
        squared = replace(squared, mean=squared.mean / self.unit**2)
        return PairStatistics(
            cosine=cosine if self.centred else None,
            logdist=sums.logdist.summary(scale=-0.5, shift=shift) if self.centred else None,
            logdist_uncentred=uncentred if self.uncentred else None,
            cdnv=sums.cdnv.summary(scale=0.5) if self.varied else None,
            cdnv_k2=squared if self.varied else None,
            cdnv_log=sums.cdnv_log.summary(shift=-math.log(2)) if self.varied else None,
            cosine_error=sums.cosine_error.summary(scale=self.typical) if self.centred else None,
            directional=None if self.projection is None else sums.directional.summary(),
            rows=None if sums.rows is None else self._rows(sums.rows),
        )

    def _rows(self, sums: RowSums) -> PairRows:
        """The sums by position as means by row of the points; a sample has those of its own points."""
        order, others = self.facts.row.argsort(), len(self) - 1
        terms, left_out, nearest = sums.cdnv[order] / 2, sums.left_out[order], sums.nearest[order]
        pairs = others - left_out
        return PairRows(
            cdnv=torch.where(pairs > 0, terms / pairs, torch.nan) if self.varied else None,
            left_out=left_out,
            cosine=self._mean_cosines() if self.centred and others == len(self.points) - 1 else None,
            nearest=nearest,
            distance=self.unit * self._distances(self.facts.row[order], nearest),
        )

    def _mean_cosines(self) -> Tensor:
        """Of each point with all others: (u · Σ u - 1) / (K - 1)."""
        cosines = torch.empty_like(self.facts.norm)
        for now in self.blocks(0, 1024):
            rows = self.facts.row[now]
            cosines[rows] = (self.directions(now) @ self.direction_sum - 1) / (len(self) - 1)
        return cosines

    def _distances(self, rows: Tensor, others: Tensor) -> Tensor:
        parts = zip(torch.split(rows, 1024), torch.split(others, 1024), strict=True)
        differences = (self.points.at(left).sub_(self.points.at(right)) for left, right in parts)
        return torch.cat([torch.linalg.vector_norm(some, dim=1) for some in differences])


def inverse(values: Tensor) -> Tensor:
    """1 / value, and 1 in place of 1 / 0."""
    return torch.where(values > 0, values, 1).reciprocal_()


def _measured(points: Vectors, centre: Tensor) -> tuple[Tensor, Tensor, Tensor, tuple[Tensor, Tensor]]:
    """Norms about the centre, lengths from the origin, products with the centre, and the sums of both directions."""
    norm, length, along = centre.new_empty(3, len(points))
    direction_sum, direction_sum_uncentred = centre.new_zeros(2, points.dim)
    for now, some in points.blocks():
        torch.linalg.vector_norm(some, dim=1, out=length[now])
        direction_sum_uncentred += inverse(length[now]) @ some
        some -= centre
        torch.linalg.vector_norm(some, dim=1, out=norm[now])
        torch.mv(some, centre, out=along[now])
        direction_sum += inverse(norm[now]) @ some
    return norm, length, along, (direction_sum, direction_sum_uncentred)


def _mean_cosine(direction_sum: Tensor, classes: int) -> float:
    """Over pairs of unit vectors with this sum: (|Σ u|² - K) / (K (K - 1))."""
    return (float(direction_sum.square().sum()) - classes) / (classes * (classes - 1))


def _positive(distance: float) -> float:
    """1 where rounding leaves nothing of it."""
    return distance if distance > 1e-12 else 1.0
