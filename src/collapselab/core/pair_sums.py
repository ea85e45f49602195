"""Running sums over pairs, and the means and standard deviations that they give."""

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

GROUPS = 8, 4, 2
"""Numbers whose product is formed before a logarithm is taken: one logarithm costs as much as eight products."""

STRIP = 64
"""Values side by side whose maximum is taken at once, where the place of the largest is looked for."""


@dataclass(frozen=True)
class Summary:
    """Mean and population standard deviation over the pairs that have a value; nan where there are none."""

    mean: float
    std: float
    pairs: int
    left_out: int


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
    """Of |cos + 1/(K - 1)|; without a standard deviation, like the next."""
    directional: Summary | None = None
    """Of the variance within classes along the line between two class means, over their distance to the fourth."""
    rows: "PairRows | None" = None
    """What each point has over its own pairs, where that was asked for."""

    def values(self) -> list[float]:
        """Every mean and standard deviation there is."""
        families = (
            self.cosine, self.logdist, self.logdist_uncentred, self.cdnv, self.cdnv_k2, self.cdnv_log,
            self.cosine_error, self.directional,
        )  # fmt: skip
        return [value for family in families if family for value in (family.mean, family.std) if not math.isnan(value)]


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


class RowSums:
    """Running sums of each point over its pairs, for the points from position `start` to the last.

    Positions are those of the sweep; `nearest` holds rows of the points. `closeness` is one over the squared distance
    to the nearest so far.
    """

    def __init__(self, start: int, size: int, device: torch.device) -> None:
        self.start = start
        self.cdnv, self.closeness = torch.zeros(2, size, dtype=torch.float64, device=device)
        self.left_out, self.nearest = torch.zeros(2, size, dtype=torch.int64, device=device)
        self.nearest -= 1

    def merge(self, other: "RowSums") -> None:
        """Add the sums of a later or equal start."""
        now = slice(other.start - self.start, None)
        self.cdnv[now] += other.cdnv
        self.left_out[now] += other.left_out
        better = other.closeness > self.closeness[now]
        self.closeness[now] = torch.where(better, other.closeness, self.closeness[now])
        self.nearest[now] = torch.where(better, other.nearest, self.nearest[now])

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
        of, other = torch.cat([i, j]) - self.start, torch.cat([ids[j], ids[i]])
        closeness, terms = closeness.repeat(2), terms.repeat(2)
        apart = closeness < torch.inf
        self.cdnv.index_add_(0, of, torch.where(apart, terms, 0.0))
        self.left_out.index_add_(0, of, (~apart).long())
        order = other.argsort(stable=True)
        order = order[closeness[order].argsort(stable=True, descending=True)]
        order = order[of[order].argsort(stable=True)]  # by point, then the closest, then the first
        first = torch.ones_like(order, dtype=torch.bool)
        first[1:] = of[order][1:] != of[order][:-1]
        best = order[first]
        self._closer(of[best], closeness[best], other[best])

    def _add_side(self, at: slice, terms: Tensor, closeness: Tensor, others: Tensor) -> None:
        start, stop = at.start - self.start, at.stop - self.start
        self.cdnv[start:stop] += terms
        maxima = _strip_maxima(closeness)
        closest = maxima.amax(1).double()
        better = (closest > self.closeness[start:stop]).nonzero().squeeze(1)
        if len(better):
            self._closer(better + start, closest[better], others[_places(closeness, maxima, better)])

    def _closer(self, at: Tensor, closeness: Tensor, nearest: Tensor) -> None:
        better = closeness > self.closeness[at]
        self.closeness[at[better]] = closeness[better]
        self.nearest[at[better]] = nearest[better]


def _strip_maxima(values: Tensor) -> Tensor:
    """The largest of every STRIP neighbours in each row (rows, strips); the last strip may be shorter."""
    strips = values.shape[1] // STRIP
    maxima = values[:, : strips * STRIP].view(len(values), strips, STRIP).amax(2)
    rest = values[:, strips * STRIP :]
    return torch.cat([maxima, rest.amax(1, keepdim=True)], 1) if rest.shape[1] else maxima


def _places(values: Tensor, maxima: Tensor, rows: Tensor) -> Tensor:
    """Where these rows have their largest value, the first of equals: `argmax` of one strip, as that of all is slow."""
    strip = maxima.index_select(0, rows).argmax(1)
    columns = strip[:, None] * STRIP + torch.arange(STRIP, device=values.device)
    columns.clamp_(max=values.shape[1] - 1)
    return columns.gather(1, values[rows[:, None], columns].argmax(1, keepdim=True)).squeeze(1)


@dataclass
class Total:
    """Running sums over pairs.

    Values of a tile are summed along its rows, in its precision; `settle` adds these sums up in float64, for many tiles
    at once: a call for each tile and statistic would take longer than the arithmetic.
    """

    sum: float = 0.0
    squares: float = 0.0
    pairs: int = 0
    left_out: int = 0
    row_sums: list[Tensor] = field(default_factory=list, repr=False)
    row_norms: list[Tensor] = field(default_factory=list, repr=False)

    def add(self, values: Tensor, pairs: int) -> None:
        """Add values, 0 where a pair has none; without a standard deviation."""
        self.row_sums.append(values.sum(-1))
        self.squares = math.nan
        self.pairs += pairs

    def add_with_squares(self, values: Tensor, pairs: int, *, known_mean: bool = False) -> None:
        """Add values and their squares; where the mean is known, the squares alone."""
        if not known_mean:
            self.row_sums.append(values.sum(-1))
        self.row_norms.append(torch.linalg.vector_norm(values, dim=-1))
        self.pairs += pairs

    def settle(self) -> None:
        """Add up what waits."""
        if self.row_sums:
            self.sum += float(_in_float64(self.row_sums).sum())
        if self.row_norms:
            self.squares += float(_in_float64(self.row_norms).square_().sum())
        self.row_sums.clear()
        self.row_norms.clear()

    def merge(self, other: "Total", share: float = 1.0) -> None:
        """Add another, settled one, or a share of it."""
        self.sum += other.sum * share
        self.squares += other.squares * share
        self.pairs += round(other.pairs * share)
        self.left_out += round(other.left_out * share)

    def summary(self, *, scale: float = 1.0, shift: float = 0.0) -> Summary:
        """Mean and standard deviation of shift + scale · value."""
        if not self.pairs:
            return Summary(math.nan, math.nan, 0, self.left_out)
        mean = self.sum / self.pairs
        variance = self.squares / self.pairs - mean * mean
        std = math.nan if math.isnan(variance) else abs(scale) * math.sqrt(max(variance, 0.0))
        return Summary(shift + scale * mean, std, self.pairs, self.left_out)


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

    def totals(self) -> tuple[Total, ...]:
        of_directions = self.cosine, self.logdist, self.logdist_uncentred
        return *of_directions, self.cdnv, self.cdnv_k2, self.cdnv_log, self.cosine_error, self.directional

    def merge(self, other: "Sums", share: float = 1.0) -> None:
        """Add another's, or half of them where each of its pairs was added twice."""
        for ours, theirs in zip(self.totals(), other.totals(), strict=True):
            theirs.settle()
            ours.merge(theirs, share)
        self.pairs += round(other.pairs * share)
        if self.rows is not None and other.rows is not None:
            self.rows.merge(other.rows)


def _in_float64(parts: list[Tensor]) -> Tensor:
    return torch.cat([part if part.ndim else part[None] for part in parts]).double()


def log_of(values: Tensor, out: Tensor) -> Tensor:
    """Natural logarithms, in the memory of `out`.

    NumPy's loop over float32 takes a third of torch's time on a CPU and is right to four units in the last place.
    """
    if values.dtype != torch.float32 or values.device.type != "cpu":
        return torch.log(values, out=out)
    np.log(values.numpy(), out=out.numpy())
    return out


def products_for_logs(values: Tensor, widest: float) -> Tensor:
    """Products of up to eight of the positive values, as many as the exponent can hold: Σ log is that of the values.

    No value is farther from 1 than a factor of 2^widest.
    """
    room = math.log2(torch.finfo(values.dtype).max) - 4
    group = next((size for size in GROUPS if size * widest < room and not values.shape[0] % size), 1)
    return values if group == 1 else values.view(group, -1, *values.shape[1:]).prod(0)
