"""The tiles of one block of rows: distances of all their pairs, near pairs found, every statistic added up.

`pairs.py` has the formulas and why float32 is enough for most pairs. Single near pairs wait to be computed again from
the difference of their points.

A tile has half a million pairs, for which new memory would cost more than the arithmetic. All tiles of a thread
therefore share four matrices, which are overwritten in place; local names say what a matrix holds at the time.
"""

import math
import threading
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from collapselab.core.points import Facts, Points, inverse
from collapselab.core.vectors import squared_lengths

NEAR = 0.1
"""In float32, pairs of directions with 1 - cos below this are computed again in float64."""

AGAIN_PAIRS, AGAIN_BYTES = 1 << 16, 2 << 20
"""Pairs that wait to be computed again, and the size of the points that are read for some of them at once."""


@dataclass(frozen=True)
class Summary:
    """Mean and population standard deviation over the pairs that have a value; nan where there are none."""

    mean: float
    std: float
    pairs: int
    left_out: int


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
    again: int = 0
    """Of these pairs, how many were computed again from their points."""
    rows: RowSums | None = None

    def merge(self, other: "Sums", share: float = 1.0) -> None:
        """Add another's, or half of them where each of its pairs was added twice."""
        for name, ours in vars(self).items():
            if isinstance(ours, Total):
                ours.merge(getattr(other, name), share)
        self.pairs += round(other.pairs * share)
        self.again += other.again
        if self.rows is not None and other.rows is not None:
            self.rows.merge(other.rows)


class Table:
    """The directions of all points and their facts, in float32 or float64; and the memory of each thread."""

    def __init__(self, points: Points, dtype: torch.dtype, *, tile: int, with_rows: bool = False) -> None:
        self.points, self.dtype, self.with_rows, self._of_thread = points, dtype, with_rows, threading.local()
        self.columns, self.rows = max(1, tile), max(1, tile // 2)
        self.facts = points.facts.to(dtype)
        self.directions = torch.empty(len(points), points.vectors.dim + 1, dtype=dtype, device=points.vectors.device)
        for block in points.blocks(0, 1024):
            self.directions[block] = points.directions(block)
        projection = points.projection
        self.projected = None if projection is None else projection.right(points.facts.row).to(dtype)
        # A product of unit vectors in float32 is wrong by at most (dim + 8) 2^-24, in whatever order it is added up: a
        # pair that is not computed again is right to 1/63 in the worst case, and usually to a millionth.
        rounding = 64 * (points.vectors.dim + 8) * 2.0**-24
        self.near = points.doubtful if dtype == torch.float64 else max(NEAR, rounding)
        """The value of 1 - cos below which pairs of a tile are computed again from their points."""
        self.group = self._group()

    def _group(self) -> int:
        """Return how many terms (v_i + v_j) / d² to multiply before a logarithm, which costs as much as eight products.

        d² is at least 2 near r² with the smallest norm r, and at most 4 r² with the largest.
        """
        variances, (low, high) = self.points.facts.variance[: self.points.border], self.points.facts.norm.aminmax()
        if not len(variances) or not low > 0:
            return 1
        most = variances.max() / (self.near * low**2)
        least = variances.min() / (4 * high**2)
        widest, room = float(torch.stack([most, least]).log2().abs().max()), math.log2(torch.finfo(self.dtype).max) - 4
        return next((size for size in (8, 4, 2) if size * widest < room), 1)

    def matrices(self, rows: int, columns: int) -> tuple[Tensor, ...]:
        """Return the four matrices (rows, columns) of this thread, which the next call returns again."""
        memory: Tensor | None = getattr(self._of_thread, "memory", None)
        if memory is None:
            size = self.rows * max(self.rows, self.columns)
            memory = self._of_thread.memory = self.directions.new_empty(4, size)
        return memory[:, : rows * columns].view(4, rows, columns).unbind()


class Sweep:
    """The sweep of one block of rows with all columns from these rows on."""

    def __init__(self, table: Table, rows: slice) -> None:
        self.table, self.points, self.rows = table, table.points, rows
        device = self.points.facts.row.device
        self.totals = Sums(rows=RowSums(len(self.points), device) if table.with_rows else None)
        self.again: list[tuple[Tensor, Tensor]] = []
        # (-u/t, 1/t) · (u, 1) is (1 - cos) / t
        left = self.points.directions(rows) * (-1 / self.points.typical)
        left[:, -1] = 1 / self.points.typical
        self.left = left.to(table.dtype)
        projection = self.points.projection
        self.projected = None if projection is None else projection.left(self.points.facts.row[rows]).to(table.dtype)

    def sums(self) -> Sums:
        self._add(self.rows, itself := Sums())
        self.totals.merge(itself, share=0.5)  # the tile of a block with itself has each pair twice
        for columns in self.points.blocks(self.rows.stop, self.table.columns):
            self._add(columns, self.totals)
            if sum(len(i) for i, _ in self.again) > AGAIN_PAIRS:
                self._compute_again()
        self._compute_again()
        return self.totals

    def _add(self, columns: slice, sums: Sums) -> None:
        """Add the pairs of a tile to every statistic.

        Pairs that may be wrong are left to `_compute_again`: here they add log 1 or 0.
        """
        points, table = self.points, self.table
        left, right = table.facts.at(self.rows).upright(), table.facts.at(columns)
        x, squares, chords, scratch = table.matrices(len(left.row), len(right.row))
        # x = (1 - cos) / typical
        torch.mm(self.left, table.directions[columns].T, out=x)
        # d² = 2 x r_i r_j + (r_i - r_j)²
        torch.mul(x, left.norm / (0.5 / points.typical), out=squares).mul_(right.norm)
        difference = torch.sub(left.norm, right.norm, out=scratch)
        squares.addcmul_(difference, difference)
        if points.uncentred:
            # The squared chords of the directions from the origin, but for their divisors l_i l_j.
            difference = torch.sub(left.excess, right.excess, out=scratch)
            torch.addcmul(squares, difference, difference, value=-1, out=chords)
        at = self._near_pairs(columns, left, right, (x, squares, chords, scratch))
        self._leave(at, columns)
        pairs = x.numel() - len(at)
        sums.pairs += pairs
        if points.uncentred:
            chords.view(-1)[at] = 1
            logs = _log(chords, out=chords)
            sums.logdist_uncentred.add(logs, pairs)
            sums.logdist_uncentred.add_squares(logs)
        if points.centred:
            x.view(-1)[at] = 1
            logs = _log(x, out=scratch)
            sums.logdist.add(logs, pairs)
            sums.logdist.add_squares(logs)
            deviations = x.sub_(1)  # of (1 - cos) / typical from 1; their mean has a closed form
            sums.cosine.add_squares(deviations)
            sums.cosine.pairs += pairs
            deviations.view(-1)[at] = points.simplex - 1
            sums.cosine_error.add(deviations.sub_(points.simplex - 1).abs_(), pairs)
        if points.varied or self.totals.rows is not None or points.projection is not None:
            inverse_squares = squares.reciprocal_()
            terms = torch.add(left.variance, right.variance, out=scratch).mul_(inverse_squares)
            inverse_squares.view(-1)[at] = 0
            if self.totals.rows is not None:
                terms.view(-1)[at] = 0
                self.totals.rows.add_tile(self.rows, columns, terms, inverse_squares, points.facts.row)
            if points.varied:
                group = self.table.group if len(x) % self.table.group == 0 else 1
                self._add_cdnv(sums, terms, inverse_squares, at, group=group)
            if self.projected is not None and table.projected is not None:
                # The variance within classes along the difference of each pair.
                along = torch.mm(self.projected, table.projected[columns].T, out=chords)
                sums.directional.add(along.mul_(inverse_squares).mul_(inverse_squares), pairs)

    def _near_pairs(self, columns: slice, left: Facts, right: Facts, matrices: tuple[Tensor, ...]) -> Tensor:
        """Return flat indices of the pairs that rounding may have made wrong; divide the chords by their lengths.

        In the tile of a block with itself, each point with itself is one of them, and is not looked for.
        """
        points, (x, squares, chords, scratch) = self.points, matrices
        bound, found = self.table.near, [x.new_empty(0).long()]
        if columns.start == self.rows.start:
            for values in (x, squares, chords):
                values.fill_diagonal_(torch.finfo(values.dtype).max ** 0.25)
            found.append(torch.arange(0, x.numel(), x.shape[1] + 1, device=x.device))
        found.append(_indices_below(x, bound / points.typical))
        if not points.centred:
            found.append(_indices_below(squares, torch.finfo(squares.dtype).tiny))
        if points.uncentred:
            longest = left.norm[-1].square() + right.norm[-1].square()  # norms ascend
            if bool(chords.amin() < bound * longest):
                bounds = torch.add(left.norm.square() * bound, right.norm.square() * bound, out=scratch)
                found.append(_indices_below(torch.sub(chords, bounds, out=scratch), 0.0))
            chords.mul_(left.inverse_length / (2 * points.typical_uncentred)).mul_(right.inverse_length)
        indices: Tensor = torch.unique(torch.cat(found))
        return indices

    def _leave(self, at: Tensor, columns: slice) -> None:
        """Leave these pairs of a tile, each once, to be computed again."""
        width = columns.stop - columns.start
        i, j = self.rows.start + at // width, columns.start + at % width
        once = i < j
        if once.any():
            self.again.append((i[once], j[once]))

    def _add_cdnv(self, sums: Sums, terms: Tensor, inverse_squares: Tensor, at: Tensor, *, group: int = 1) -> None:
        """Add terms and their logarithms, but for those at the flat indices `at`; overwrites the terms."""
        pairs = terms.numel() - len(at)
        if self.rows.start >= self.points.border:  # neither point has variance
            sums.cdnv_log.left_out += pairs
        else:
            terms.view(-1)[at] = 1
            products = terms if group == 1 else terms.view(group, -1, *terms.shape[1:]).prod(0)
            sums.cdnv_log.add(_log(products, out=torch.empty_like(products)), pairs)
        terms.view(-1)[at] = 0
        sums.cdnv.add(terms, pairs)
        sums.cdnv_k2.add(terms.mul_(inverse_squares), pairs)

    def _compute_again(self) -> None:
        """Add the pairs that were left out of tiles, from the difference of their points."""
        chunk = max(1, AGAIN_BYTES // (8 * self.points.vectors.dim))
        for first, second in self.again:
            for i, j in zip(torch.split(first, chunk), torch.split(second, chunk), strict=True):
                self._add_pairs(i, j)
        self.again.clear()

    def _add_pairs(self, i: Tensor, j: Tensor) -> None:
        """Add the pairs of these positions in float64.

        x and the chord follow from the distance, unless they are so small that rounding would show: then both are
        differences of directions.
        """
        points, totals, left, right = self.points, self.totals, self.points.facts.at(i), self.points.facts.at(j)
        totals.pairs += len(i)
        totals.again += len(i)
        differences = points.vectors.at(left.row).sub_(points.vectors.at(right.row))
        squares = squared_lengths(differences)
        if points.centred:
            x = (squares - (left.norm - right.norm).square()) / (2 * left.norm * right.norm)
            self._difference_of_directions(x, x < points.doubtful, left, right, points.centre)
            x /= points.typical
            totals.logdist.add_logs(x)
            totals.cosine.add_squares(x - 1)
            totals.cosine.pairs += len(x)
            totals.cosine_error.add((x - points.simplex).abs(), len(x))
        if points.uncentred:
            chords = squares - (left.excess - right.excess).square()
            doubtful = chords < points.doubtful * (left.norm.square() + right.norm.square())
            chords *= left.inverse_length * right.inverse_length / 2
            self._difference_of_directions(chords, doubtful, left, right, 0.0)
            totals.logdist_uncentred.add_logs(chords / points.typical_uncentred)
        if totals.rows is not None:
            closeness = squares.reciprocal()
            totals.rows.add_pairs(i, j, (left.variance + right.variance) * closeness, closeness, points.facts.row)
        apart = squares > 0  # coincident points have no CDNV
        coincident = int((~apart).sum())
        if points.projection is not None:
            along = squared_lengths(differences[apart] @ points.projection.factor)
            totals.directional.left_out += coincident
            totals.directional.add(along / squares[apart].square(), len(along))
        if points.varied:
            for total in (totals.cdnv, totals.cdnv_k2, totals.cdnv_log):
                total.left_out += coincident
            inverse_squares = squares[apart].reciprocal_()
            terms = (left.variance + right.variance)[apart] * inverse_squares
            self._add_cdnv(totals, terms, inverse_squares, i[:0])

    def _difference_of_directions(
        self, values: Tensor, doubtful: Tensor, left: Facts, right: Facts, origin: Tensor | float
    ) -> None:
        """Set doubtful values to |u_i - u_j|² / 2, with directions u from the origin."""
        points = [self.points.vectors.at(side.row[doubtful]).sub_(origin) for side in (left, right)]
        first, second = (some * inverse(torch.linalg.vector_norm(some, dim=1))[:, None] for some in points)
        values[doubtful] = squared_lengths(first - second) / 2


def _indices_below(values: Tensor, bound: float) -> Tensor:
    """Return flat indices of the values (rows, columns) below the bound; looked for where a row has one."""
    rows = (values.amin(1) < bound).nonzero().squeeze(1)
    row, column = (values[rows] < bound).nonzero().unbind(1)
    return rows[row] * values.shape[1] + column


def _log(values: Tensor, out: Tensor) -> Tensor:
    """Return natural logarithms, in the memory of `out`.

    NumPy's loop over float32 takes a third of torch's time on a CPU and is right to four units in the last place.
    """
    if values.dtype != torch.float32 or values.device.type != "cpu":
        return torch.log(values, out=out)
    np.log(values.numpy(), out=out.numpy())
    return out
