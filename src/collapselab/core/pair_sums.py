"""Running sums over pairs, and the means and standard deviations that they give."""

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

GROUPS = 8, 4, 2
"""Numbers of values whose product is formed before a logarithm: one logarithm costs as much as eight products."""


@dataclass(frozen=True)
class Summary:
    """Mean and population standard deviation over the pairs that have a value; nan where there are none."""

    mean: float
    std: float
    pairs: int
    left_out: int


@dataclass(frozen=True)
class PairRows:
    """For each point, in their order: means over its pairs with all others, and the nearest of these.

    The mean of `cdnv` over points, each weighted by its pairs, is twice the sum over pairs that `PairStatistics` has
    the mean of; that of `cosine` is the mean cosine.
    """

    cdnv: Tensor | None
    """Mean term over the pairs that have one; nan where none has. None without variances."""
    left_out: Tensor
    """Pairs at distance zero, which have no term."""
    cosine: Tensor | None
    """Mean cosine of the centred directions; None where a point has no direction."""
    nearest: Tensor
    """The point at the smallest distance."""
    distance: Tensor


@dataclass(frozen=True)
class PairStatistics:
    """A family is None where it was not asked for or does not exist: a point of zero norm has no direction."""

    cosine: Summary | None
    logdist: Summary | None
    logdist_uncentred: Summary | None
    cdnv: Summary | None
    cdnv_k2: Summary | None
    cdnv_log: Summary | None
    cosine_error: Summary | None = None
    """Of |cos + 1/(K - 1)|; without a standard deviation, as the CDNV family and the next."""
    directional: Summary | None = None
    """Of the variance within classes along the line between two class means, over their distance to the fourth."""
    rows: PairRows | None = None
    """Statistics of each point over its pairs, if requested."""

    def values(self) -> list[float]:
        """Return every mean and standard deviation there is."""
        families = [family for family in vars(self).values() if isinstance(family, Summary)]
        return [value for family in families for value in (family.mean, family.std) if not math.isnan(value)]


class RowSums:
    """Running sums of each point over its pairs, by its position in the sweep.

    `nearest` holds rows of the points. `closeness` is one over the squared distance to the nearest so far.
    """

    def __init__(self, points: int, device: torch.device) -> None:
        self.cdnv, self.closeness = torch.zeros(2, points, dtype=torch.float64, device=device)
        self.left_out, self.nearest = torch.zeros(2, points, dtype=torch.int64, device=device)

    def merge(self, other: "RowSums") -> None:
        self.cdnv += other.cdnv
        self.left_out += other.left_out
        self._closer(slice(None), other.closeness, other.nearest)

    def add_tile(self, rows: slice, columns: slice, terms: Tensor, closeness: Tensor, ids: Tensor) -> None:
        """Add a tile of terms and of one over squared distances, both 0 where a pair is not to be added here.

        `ids` are the rows of the points by position.
        """
        by_row = terms.sum(1).double()
        self._add_side(rows, by_row, closeness, ids[columns])
        if rows.start != columns.start:  # the tile of a block with itself has each pair twice
            by_column = terms.sum(0).double()
            total = by_column.sum()
            # Rounding in the tile's precision differs by direction; made equal, rows add up to the sum over pairs.
            by_column *= torch.where(total > 0, by_row.sum() / total, 1.0)
            self._add_side(columns, by_column, closeness.T, ids[rows])

    def add_pairs(self, i: Tensor, j: Tensor, terms: Tensor, closeness: Tensor, ids: Tensor) -> None:
        """Add single pairs of positions; those at distance zero, of infinite closeness, have no term."""
        of, others = torch.cat([i, j]), torch.cat([ids[j], ids[i]])
        closeness, terms = closeness.repeat(2), terms.repeat(2)
        apart = closeness < torch.inf
        self.cdnv.index_add_(0, of, torch.where(apart, terms, 0.0))
        self.left_out.index_add_(0, of, (~apart).long())
        # A point may be in several of the pairs: take the closest, and of equals the one with the first row.
        points, index = torch.unique(of, return_inverse=True)
        closest = closeness.new_zeros(len(points)).scatter_reduce(0, index, closeness, "amax")
        wins = closeness == closest[index]
        nearest = torch.full_like(points, len(ids)).scatter_reduce(0, index[wins], others[wins], "amin")
        self._closer(points, closest, nearest)

    def _add_side(self, side: slice, terms: Tensor, closeness: Tensor, others: Tensor) -> None:
        self.cdnv[side] += terms
        closest, index = closeness.max(1)
        self._closer(side, closest.double(), others[index])

    def _closer(self, side: slice | Tensor, closeness: Tensor, nearest: Tensor) -> None:
        better = closeness > self.closeness[side]
        self.closeness[side] = torch.where(better, closeness, self.closeness[side])
        self.nearest[side] = torch.where(better, nearest, self.nearest[side])


@dataclass
class Total:
    """Running sums over pairs. Values of a tile are summed along its rows in its precision, then in float64."""

    sum: Tensor | float = 0.0
    squares: Tensor | float = 0.0
    pairs: int = 0
    left_out: int = 0

    def add(self, values: Tensor, pairs: int) -> None:
        """Add values, 0 where a pair has none."""
        self.sum = self.sum + values.sum(-1).double().sum()
        self.pairs += pairs

    def add_squares(self, values: Tensor) -> None:
        self.squares = self.squares + torch.linalg.vector_norm(values, dim=-1).double().square().sum()

    def add_logs(self, values: Tensor) -> None:
        """Add the logarithms of the positive values; count the others as left out."""
        logs = values[values > 0].log()
        self.left_out += len(values) - len(logs)
        self.add(logs, len(logs))
        self.add_squares(logs)

    def merge(self, other: "Total", share: float = 1.0) -> None:
        """Add another, or a share of it."""
        self.sum = self.sum + other.sum * share
        self.squares = self.squares + other.squares * share
        self.pairs += round(other.pairs * share)
        self.left_out += round(other.left_out * share)

    def summary(self, *, scale: float = 1.0, shift: float = 0.0, std: bool = True) -> Summary:
        """Return mean and standard deviation of shift + scale · value."""
        if not self.pairs:
            return Summary(math.nan, math.nan, 0, self.left_out)
        mean = float(self.sum) / self.pairs
        variance = max(0.0, float(self.squares) / self.pairs - mean * mean)
        deviation = abs(scale) * math.sqrt(variance) if std else math.nan
        return Summary(shift + scale * mean, deviation, self.pairs, self.left_out)


@dataclass
class Sums:
    """The running sums of every statistic."""

    cosine: Total = field(default_factory=Total)
    logdist: Total = field(default_factory=Total)
    logdist_uncentred: Total = field(default_factory=Total)
    cdnv: Total = field(default_factory=Total)
    cdnv_k2: Total = field(default_factory=Total)
    cdnv_log: Total = field(default_factory=Total)
    cosine_error: Total = field(default_factory=Total)
    directional: Total = field(default_factory=Total)
    pairs: int = 0
    rows: RowSums | None = None

    def merge(self, other: "Sums", share: float = 1.0) -> None:
        """Add another's, or half of them where each of its pairs was added twice."""
        for name, ours in vars(self).items():
            if isinstance(ours, Total):
                ours.merge(getattr(other, name), share)
        self.pairs += round(other.pairs * share)
        if self.rows is not None and other.rows is not None:
            self.rows.merge(other.rows)


def log_of(values: Tensor, out: Tensor) -> Tensor:
    """Return natural logarithms, in the memory of `out`.

    NumPy's loop over float32 takes a third of torch's time on a CPU and is right to four units in the last place.
    """
    if values.dtype != torch.float32 or values.device.type != "cpu":
        return torch.log(values, out=out)
    np.log(values.numpy(), out=out.numpy())
    return out


def products_for_logs(values: Tensor, widest: float) -> Tensor:
    """Return products of up to eight of the positive values, as many as the exponent can hold: Σ log is the same.

    `widest` is a bound of |log2| of the values.
    """
    room = math.log2(torch.finfo(values.dtype).max) - 4
    group = next((size for size in GROUPS if size * widest < room and not values.shape[0] % size), 1)
    return values if group == 1 else values.view(group, -1, *values.shape[1:]).prod(0)
