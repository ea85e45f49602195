"""Directions of rows with gradients back to the rows, and the energy of pairs of directions."""

from typing import NamedTuple

import torch
from torch import Tensor


class Directions(NamedTuple):
    """Rows divided by their norms."""

    units: Tensor
    norms: Tensor

    def gradient(self, of_units: Tensor) -> Tensor:
        """∂R/∂x = (I − û ûᵀ) ∂R/∂û / ‖x‖, of every row; `of_units` is used up."""
        along = torch.linalg.vecdot(of_units, self.units)
        return of_units.addcmul_(self.units, -along[..., None]).div_(self.norms)


def directions(rows: Tensor) -> Directions:
    """The directions of rows (…, dim); a row of zeros has none and keeps its zeros."""
    norms = torch.linalg.vector_norm(rows, dim=-1, keepdim=True).clamp_(min=torch.finfo(rows.dtype).tiny)
    return Directions(rows / norms, norms)


NEAREST = 0.01
"""Distance below which two directions count as this far apart: the energy is bounded, and has no gradient there."""


def log_energy(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Mean of −log‖û_i − û_j‖ over pairs of rows, and its gradient in the rows."""
    row_directions = directions(rows)
    units, pairs = row_directions.units, len(rows) * (len(rows) - 1)
    squares = torch.addmm(units.new_full((), 2.0), units, units.T, alpha=-2)  # ‖û_i − û_j‖² = 2 − 2⟨û_i, û_j⟩
    squares.fill_diagonal_(1.0)  # which has the logarithm 0
    squares.clamp_(min=NEAREST**2)
    value = squares.log().sum() / (-2 * pairs)
    weights = squares.reciprocal().mul_(squares > NEAREST**2)  # of ⟨û_i, û_j⟩
    weights.fill_diagonal_(0.0)
    return value, row_directions.gradient((weights @ units).mul_(2 / pairs))
