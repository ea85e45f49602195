"""The tiles of one block of rows: distances of all their pairs, near pairs found, every statistic added up.

`pairs.py` has the formulas and why float32 is enough for most pairs. A tile whose norms differ too much, or with many
near pairs, is computed in float64; single near pairs wait to be computed again from the difference of their points.

A tile has half a million pairs, for which new memory would cost more than the arithmetic. All tiles of a thread
therefore share four matrices, which are overwritten in place; local names say what a matrix holds at the time.
"""

import math
import threading
from typing import final

import torch
from torch import Tensor

from collapselab.core.pair_sums import RowSums, Sums, log_of, products_for_logs
from collapselab.core.points import Facts, Points, inverse
from collapselab.core.vectors import squared_lengths

NEAR = 0.1
"""In float32, pairs of directions with 1 - cos below this are computed again in float64."""

MAX_NORM_RATIO, MIN_NORM = 2.0**10, 2.0**-20
"""Largest ratio of norms in a tile of float32, and the smallest norm over the largest of all."""

MAX_NEAR = 1 / 32
"""Share of a float32 tile's pairs that are computed again one by one; above it the tile is computed in float64."""

AGAIN_PAIRS, AGAIN_BYTES = 1 << 16, 2 << 20
"""Pairs that wait to be computed again, and the size of the points that are read for some of them at once."""


@final
class Table:
    """The directions of all points and their facts, in float32 or float64; and the memory of each thread."""

    def __init__(self, points: Points, dtype: torch.dtype, *, tile: int, with_rows: bool = False) -> None:
        self.points, self.dtype, self.with_rows, self._of_thread = points, dtype, with_rows, threading.local()
        self.columns, self.rows = max(1, tile), max(1, tile // 2)
        self.facts = points.facts.to(dtype)
        self.directions = torch.empty(len(points), points.vectors.dim + 1, dtype=dtype, device=points.vectors.device)
        for block in points.blocks(0, 1024):
            self.directions[block] = points.directions(block)
        self.norms: list[float] = self.facts.norm.tolist()
        variances = points.facts.variance[: points.border]
        self.variances = (float(variances.min()), float(variances.max())) if len(variances) else (1.0, 1.0)
        projection = points.projection
        self.projected = None if projection is None else projection.right(points.facts.row).to(dtype)

    def near(self, dtype: torch.dtype) -> float:
        """Return the value of 1 - cos below which pairs of a tile are computed again from their points.

        A product of unit vectors in float32 is wrong by at most (dim + 8) 2^-24, in whatever order it is added up: a
        pair that is not computed again is right to 1/63 in the worst case, and usually to a millionth.
        """
        is_float64 = dtype == torch.float64
        return self.points.doubtful if is_float64 else max(NEAR, 64 * (self.points.vectors.dim + 8) * 2.0**-24)

    def dtype_for(self, rows: slice, columns: slice) -> torch.dtype:
        """Return the table's precision, or float64 where it cannot compute with the norms, which ascend in both."""
        shortest = min(self.norms[rows.start], self.norms[columns.start])
        longest = max(self.norms[rows.stop - 1], self.norms[columns.stop - 1])
        return self.dtype if shortest >= max(MIN_NORM, longest / MAX_NORM_RATIO) else torch.float64

    def widest(self, rows: slice, columns: slice, near: float) -> float:
        """Return a bound of |log2| of the CDNV terms (v_i + v_j) / d² of pairs with 1 - cos ≥ near.

        One of the two points has variance. d² is at least 2 near r_i r_j and at most 2 (r_i² + r_j²).
        """
        nearest = 2 * near * self.norms[rows.start] * self.norms[columns.start]
        farthest = 2 * (self.norms[rows.stop - 1] ** 2 + self.norms[columns.stop - 1] ** 2)
        low, high = self.variances
        return max(math.log2(farthest / low), math.log2(2 * high / nearest)) if nearest > 0 else math.inf

    def matrices(self, dtype: torch.dtype, rows: int, columns: int) -> tuple[Tensor, ...]:
        """Return the four matrices (rows, columns) of this thread, which the next call returns again."""
        memory: Tensor | None = getattr(self._of_thread, str(dtype), None)
        if memory is None:
            size = self.rows * max(self.rows, self.columns)
            memory = torch.empty(4, size, dtype=dtype, device=self.directions.device)
            setattr(self._of_thread, str(dtype), memory)
        return memory[:, : rows * columns].view(4, rows, columns).unbind()


@final
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
        self.left = {dtype: left.to(dtype) for dtype in (torch.float64, table.dtype)}
        projection = self.points.projection
        self.projected = None if projection is None else projection.left(self.points.facts.row[rows])

    def sums(self) -> Sums:
        self._add_tile(self.rows, itself := Sums())
        self.totals.merge(itself, share=0.5)  # the tile of a block with itself has each pair twice
        for columns in self.points.blocks(self.rows.stop, self.table.columns):
            self._add_tile(columns, self.totals)
            if sum(len(i) for i, _ in self.again) > AGAIN_PAIRS:
                self._compute_again()
        self._compute_again()
        return self.totals

    def _add_tile(self, columns: slice, sums: Sums) -> None:
        dtype = self.table.dtype_for(self.rows, columns)
        if not self._add(columns, dtype, sums):
            self._add(columns, torch.float64, sums)

    def _add(self, columns: slice, dtype: torch.dtype, sums: Sums) -> bool:
        """Add the pairs of a tile to every statistic, or nothing and False where float32 is not enough for them.

        Pairs that may be wrong are left to `_compute_again`: here they add log 1 or 0.
        """
        points, table = self.points, self.table
        same = dtype == table.dtype
        facts, directions = (table.facts, table.directions) if same else (points.facts, None)
        left, right = facts.at(self.rows).upright(), facts.at(columns)
        x, squares, chords, scratch = table.matrices(dtype, len(left.row), len(right.row))
        # x = (1 - cos) / typical
        torch.mm(self.left[dtype], (points.directions(columns) if directions is None else directions[columns]).T, out=x)
        # d² = 2 x r_i r_j + (r_i - r_j)²
        torch.mul(x, left.norm / (0.5 / points.typical), out=squares).mul_(right.norm)
        difference = torch.sub(left.norm, right.norm, out=scratch)
        squares.addcmul_(difference, difference)
        if points.uncentred:
            # The squared chords of the directions from the origin, but for their divisors l_i l_j.
            difference = torch.sub(left.excess, right.excess, out=scratch)
            torch.addcmul(squares, difference, difference, value=-1, out=chords)
        at = self._near_pairs(columns, left, right, (x, squares, chords, scratch))
        near = len(at)
        if dtype == torch.float32 and near > MAX_NEAR * x.numel() + len(x):
            return False
        self._leave(at, columns)
        pairs = x.numel() - near
        sums.pairs += pairs
        if points.uncentred:
            chords.view(-1)[at] = 1
            logs = log_of(chords, out=chords)
            sums.logdist_uncentred.add(logs, pairs)
            sums.logdist_uncentred.add_squares(logs)
        if points.centred:
            x.view(-1)[at] = 1
            logs = log_of(x, out=scratch)
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
                widest = table.widest(self.rows, columns, table.near(dtype))
                self._add_cdnv(sums, terms, inverse_squares, at, widest=widest)
            if points.projection is not None:
                assert table.projected is not None
                assert self.projected is not None
                others = table.projected[columns] if same else points.projection.right(points.facts.row[columns])
                # The variance within classes along the difference of each pair.
                along = torch.mm(self.projected.to(dtype), others.T, out=chords)
                sums.directional.add(along.mul_(inverse_squares).mul_(inverse_squares), pairs)
        return True

    def _near_pairs(self, columns: slice, left: Facts, right: Facts, matrices: tuple[Tensor, ...]) -> Tensor:
        """Return flat indices of the pairs that rounding may have made wrong; divide the chords by their lengths.

        In the tile of a block with itself, each point with itself is one of them, and is not looked for.
        """
        points, (x, squares, chords, scratch) = self.points, matrices
        bound, found = self.table.near(x.dtype), []
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
        found = [indices for indices in found if len(indices)]
        return torch.unique(torch.cat(found)) if len(found) > 1 else found[0] if found else x.new_empty(0).long()

    def _leave(self, at: Tensor, columns: slice) -> None:
        """Leave these pairs of a tile, each once, to be computed again."""
        width = columns.stop - columns.start
        i, j = self.rows.start + at // width, columns.start + at % width
        once = i < j
        if once.any():
            self.again.append((i[once], j[once]))

    def _add_cdnv(
        self, sums: Sums, terms: Tensor, inverse_squares: Tensor, at: Tensor, *, widest: float = math.inf
    ) -> None:
        """Add the terms of a tile or of single pairs, but for those at the flat indices `at`; overwrites the terms."""
        pairs = terms.numel() - len(at)
        if self.rows.start >= self.points.border:  # neither point has variance
            sums.cdnv_log.left_out += pairs
        else:
            terms.view(-1)[at] = 1
            products = products_for_logs(terms, widest)
            sums.cdnv_log.add(log_of(products, out=torch.empty_like(products)), pairs)
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
            norms = left.norm.square() + right.norm.square()
            along = points.projection.along(left.row, right.row, differences, norms)[apart]
            totals.directional.left_out += coincident
            totals.directional.add(along / squares[apart].square(), len(along))
        if points.varied:
            for total in (totals.cdnv, totals.cdnv_k2, totals.cdnv_log):
                total.left_out += coincident
            inverse_squares = squares[apart].reciprocal_()
            terms = (left.variance + right.variance)[apart] * inverse_squares
            self._add_cdnv(totals, terms, inverse_squares, terms.new_empty(0).long())

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
