"""Points in coordinates in which squared lengths are variances: z = Lᵀ (p - centre), with L Lᵀ the covariance.

The variance along the difference δ of two points is then δᵀ Σ δ = |z_i - z_j|², one more product for a tile of pairs.
"""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from collapselab.core.scale import binary_exponent, scaled, squared_lengths, times_power_of_two
from collapselab.core.vectors import Vectors

DOUBTFUL = 1e-9
"""A variance that is a smaller share of the largest possible is computed again, from the difference of the points."""


@final
@dataclass(frozen=True)
class Projection:
    """The points z (classes, dim), over 2^exponent, so that their squares are in the range of float32."""

    points: Tensor
    squares: Tensor
    factor: Tensor
    exponent: int
    largest: float
    """The largest variance of a direction of length 1, over 2^(2 exponent)."""

    @classmethod
    def of(cls, points: Vectors, centre: Tensor, covariance: Tensor) -> "Projection":
        """`covariance` (dim, dim) is in the square of the points' unit."""
        values, vectors = torch.linalg.eigh(covariance.to(centre))
        factor = vectors * values.clamp(min=0).sqrt()
        projected = torch.cat([block.sub_(centre) @ factor for _, block in points.blocks()])
        exponent = binary_exponent(projected)
        projected = scaled(projected, -exponent)
        largest = times_power_of_two(float(values[-1].clamp(min=0)), -2 * exponent)
        return cls(projected, squared_lengths(projected), scaled(factor, -exponent), exponent, largest)

    def left(self, rows: Tensor) -> Tensor:
        """(-2z, |z|², 1) of these points: times (z, 1, |z|²) of others, the variance along the difference."""
        points, squares = self.points[rows], self.squares[rows, None]
        return torch.cat([points * -2, squares, torch.ones_like(squares)], 1)

    def right(self, rows: Tensor) -> Tensor:
        """(z, 1, |z|²)."""
        points, squares = self.points[rows], self.squares[rows, None]
        return torch.cat([points, torch.ones_like(squares), squares], 1)

    def along(self, one: Tensor, other: Tensor, differences: Tensor, norms: Tensor) -> Tensor:
        """The variance along each pair's difference; `norms` are the two squared norms, added."""
        variances = squared_lengths(self.points[one] - self.points[other])
        doubtful = (variances < DOUBTFUL * self.largest * norms).nonzero().squeeze(1)
        if len(doubtful):
            variances[doubtful] = squared_lengths(differences[doubtful] @ self.factor)
        return variances
