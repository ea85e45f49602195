"""The tiles of one block of rows: distances of all their pairs, near pairs found, every statistic added up.

`pairs.py` has the formulas and why float32 is enough for most pairs. A tile whose norms differ too much, or with many
near pairs, is computed in float64; single near pairs wait to be computed again from the difference of their points.
"""

import math
from typing import final

import numpy as np
import torch
from torch import Tensor

from collapselab.core.cloud import Facts
from collapselab.core.pair_sums import RowSums, Sums, Total, log_of, products_for_logs
from collapselab.core.tiles import Space, Table, Tile, directions_of, fill, followed_by_one, indices_below
from collapselab.core.vectors import squared_lengths

MAX_NEAR = 1 / 32
"""Share of a float32 tile's pairs that are computed again one by one; above it the tile is computed in float64."""

AGAIN_PAIRS, AGAIN_BYTES = 1 << 16, 2 << 20
"""Pairs that wait to be computed again, and the size of the points that are read for some of them at once."""


@final
class Sweep:
    """The sweep of one block, in the working memory of one thread."""

    def __init__(self, table: Table, rows: slice, space: Space) -> None:
        self.table, self.cloud, self.rows, self.space = table, table.cloud, rows, space
        self.totals, self.simplex = Sums(), self.cloud.simplex
        if table.with_rows:
            self.totals.rows = RowSums(rows.start, len(self.cloud) - rows.start, self.cloud.facts.row.device)
        self.again: list[tuple[Tensor, Tensor]] = []
        self.left = followed_by_one(self.cloud.directions(rows) * (-1 / self.cloud.typical))
        self.left[:, -1] = 1 / self.cloud.typical  # (-u/t, 1/t) · (u, 1) is (1 - cos) / t
        self.narrow_left, self.narrow_facts = self.left.to(table.directions.dtype), table.facts.at(rows).upright()
        projection = self.cloud.projection
        self.projected = None if projection is None else projection.left(self.cloud.facts.row[rows])

    def sums(self) -> Sums:
        with np.errstate(all="ignore"):  # as torch: what is not finite is found in the result
            self._add_tile(self.rows, itself := Sums())
            self.totals.merge(itself, share=0.5)  # the tile of a block with itself has each pair twice
            for columns in self.cloud.blocks(self.rows.stop, self.table.columns):
                self._add_tile(columns, self.totals)
                if sum(len(i) for i, _ in self.again) > AGAIN_PAIRS:
                    self._compute_again()
            self._compute_again()
        return self.totals

    def _add_tile(self, columns: slice, sums: Sums) -> None:
        alike = self.table.norms_alike(self.rows, columns)
        if not (alike and self._add(self._tile(columns), sums)):
            self._add(self._tile_in_float64(columns), sums)

    def _tile(self, columns: slice) -> Tile:
        """Of the table's precision."""
        table, directions = self.table, self.table.directions[columns]
        facts = self.narrow_facts, table.facts.at(columns)
        return self._product(self.narrow_left, directions, facts, columns, table.near)

    def _tile_in_float64(self, columns: slice) -> Tile:
        directions = followed_by_one(self.cloud.directions(columns))
        facts = self.cloud.facts.at(self.rows).upright(), self.cloud.facts.at(columns)
        return self._product(self.left, directions, facts, columns, self.cloud.doubtful)

    def _product(
        self, rows: Tensor, directions: Tensor, facts: tuple[Facts, Facts], columns: slice, near: float
    ) -> Tile:
        x, *others = self.space.of(rows.dtype, rows.shape[0], directions.shape[0])
        torch.mm(rows, directions.T, out=x)
        longest, widest = self.table.longest(self.rows, columns), self.table.widest(self.rows, columns, near)
        return Tile(*facts, (self.rows.start, columns.start), near, longest, widest, x, *others)

    def _add(self, tile: Tile, sums: Sums) -> bool:
        """Add the pairs of a tile to every statistic, or nothing and False where float32 is not enough for them.

        Pairs that may be wrong are left to `_compute_again`: here they add log 1 or 0.
        """
        narrow = tile.x.dtype != torch.float64
        self._set_distances(tile)
        at = self._near_pairs(tile)
        near = 0 if at is None else at.shape[0]
        if narrow and near > MAX_NEAR * tile.x.numel() + tile.x.shape[0]:
            return False
        if at is not None:
            self._leave(at, tile)
        pairs = tile.x.numel() - near
        sums.pairs += pairs
        if self.cloud.uncentred:
            fill(tile.chords, at, 1)
            sums.logdist_uncentred.add_with_squares(log_of(tile.chords, out=tile.chords), pairs)
        if self.cloud.centred:
            fill(tile.x, at, 1)
            sums.logdist.add_with_squares(log_of(tile.x, out=tile.scratch), pairs)
            sums.cosine.add_with_squares(tile.x.sub_(1), pairs, known_mean=True)
            fill(tile.x, at, self.simplex - 1)
            sums.cosine_error.add(tile.x.sub_(self.simplex - 1).abs_(), pairs)
        if self.cloud.varied or self.totals.rows is not None or self.projected is not None:
            inverse_squares = tile.squares.reciprocal_()
            terms = torch.add(tile.left.variance, tile.right.variance, out=tile.scratch).mul_(inverse_squares)
            fill(inverse_squares, at, 0)
            if self.totals.rows is not None:
                fill(terms, at, 0)
                columns = slice(tile.corner[1], tile.corner[1] + terms.shape[1])
                self.totals.rows.add_tile(self.rows, columns, terms, inverse_squares, self.cloud.facts.row)
            if self.cloud.varied:
                self._add_cdnv(sums, terms, inverse_squares, at, widest=tile.widest)
            if self.projected is not None:
                along = self._along(tile, self.projected)
                sums.directional.add(along.mul_(inverse_squares).mul_(inverse_squares), pairs)
        return True

    def _along(self, tile: Tile, left: Tensor) -> Tensor:
        """The variance within classes along the difference of each pair; in the memory of the chords, used up."""
        table, projection = self.table, self.cloud.projection
        columns = slice(tile.corner[1], tile.corner[1] + tile.x.shape[1])
        assert table.projected is not None
        assert projection is not None
        same = table.projected.dtype == tile.x.dtype
        right = table.projected[columns] if same else projection.right(self.cloud.facts.row[columns])
        return torch.mm(left.to(tile.x.dtype), right.T, out=tile.chords)

    def _set_distances(self, tile: Tile) -> None:
        """d² = 2 x r_i r_j + (r_i - r_j)², and the chords from the origin but for their divisors l_i l_j."""
        left, right, squares, scratch = tile.left, tile.right, tile.squares, tile.scratch
        torch.mul(tile.x, left.norm / (0.5 / self.cloud.typical), out=squares).mul_(right.norm)
        torch.sub(left.norm, right.norm, out=scratch)
        squares.addcmul_(scratch, scratch)
        if self.cloud.uncentred:
            torch.sub(left.excess, right.excess, out=scratch)
            torch.addcmul(squares, scratch, scratch, value=-1, out=tile.chords)

    def _near_pairs(self, tile: Tile) -> Tensor | None:
        """Flat indices of the pairs that rounding may have made wrong, if there are any; the chords get their divisors.

        In the tile of a block with itself, each point with itself is one of them, and is not looked for.
        """
        cloud, left, right = self.cloud, tile.left, tile.right
        near: list[Tensor | None] = []
        if tile.diagonal:
            for values in (tile.x, tile.squares, tile.chords):
                values.fill_diagonal_(torch.finfo(values.dtype).max ** 0.25)
            near.append(torch.arange(0, tile.x.numel(), tile.x.shape[1] + 1, device=tile.x.device))
        near.append(indices_below(tile.x, tile.near / cloud.typical))
        if not cloud.centred:
            near.append(indices_below(tile.squares, torch.finfo(tile.squares.dtype).tiny))
        if cloud.uncentred:
            if float(tile.chords.amin()) < tile.near * tile.longest**2:
                bound = torch.add(left.norm.square() * tile.near, right.norm.square() * tile.near, out=tile.scratch)
                near.append(indices_below(torch.sub(tile.chords, bound, out=tile.scratch), 0.0))
            unit = 2 * cloud.typical_uncentred
            tile.chords.mul_(left.inverse_length / unit).mul_(right.inverse_length)
        some = [at for at in near if at is not None]
        return None if not some else some[0] if len(some) == 1 else torch.unique(torch.cat(some))

    def _leave(self, at: Tensor, tile: Tile) -> None:
        """Leave these pairs of a tile, each once, to be computed again."""
        width = tile.x.shape[1]
        i, j = tile.corner[0] + at // width, tile.corner[1] + at % width
        once = i < j
        if once.any():
            self.again.append((i[once], j[once]))

    def _add_cdnv(
        self, sums: Sums, terms: Tensor, inverse_squares: Tensor, at: Tensor | None, *, widest: float = math.inf
    ) -> None:
        """`widest` is a bound of |log2| of the terms."""
        pairs = terms.numel() - (0 if at is None else at.shape[0])
        if self.rows.start >= self.cloud.border:  # neither point has variance
            sums.cdnv_log.left_out += pairs
        else:
            fill(terms, at, 1)
            products = products_for_logs(terms, widest)
            sums.cdnv_log.add(log_of(products, out=torch.empty_like(products)), pairs)
        fill(terms, at, 0)
        sums.cdnv.add(terms, pairs)
        sums.cdnv_k2.add(terms.mul_(inverse_squares), pairs)

    def _compute_again(self) -> None:
        """Add the pairs that were left out of tiles, from the difference of their points."""
        chunk = max(1, AGAIN_BYTES // (8 * self.cloud.points.dim))
        for first, second in self.again:
            for i, j in zip(torch.split(first, chunk), torch.split(second, chunk), strict=True):
                self._add_pairs(i, j)
        self.again.clear()

    def _add_pairs(self, i: Tensor, j: Tensor) -> None:
        """Add the pairs of these positions in float64.

        x and the chord follow from the distance, unless they are so small that rounding would show: then both are
        differences of directions.
        """
        cloud, totals, left, right = self.cloud, self.totals, self.cloud.facts.at(i), self.cloud.facts.at(j)
        totals.pairs += len(left.row)
        differences = cloud.points.at(left.row).sub_(cloud.points.at(right.row))
        squares = squared_lengths(differences)
        if cloud.centred:
            products = 2 * left.norm * right.norm
            x = (squares - (left.norm - right.norm).square()) / products
            self._difference_of_directions(x, x < cloud.doubtful, left, right, cloud.centre)
            x /= cloud.typical
            _add_logs(totals.logdist, x)
            totals.cosine.add_with_squares(x - 1, len(x), known_mean=True)
            totals.cosine_error.add((x - cloud.simplex).abs(), len(x))
        if cloud.uncentred:
            chords = squares - (left.excess - right.excess).square()
            doubtful = chords < cloud.doubtful * (left.norm.square() + right.norm.square())
            chords *= left.inverse_length * right.inverse_length / 2
            self._difference_of_directions(chords, doubtful, left, right, 0.0)
            _add_logs(totals.logdist_uncentred, chords / cloud.typical_uncentred)
        if totals.rows is not None:
            closeness = squares.reciprocal()
            totals.rows.add_pairs(i, j, (left.variance + right.variance) * closeness, closeness, cloud.facts.row)
        apart = squares > 0  # coincident points have no CDNV
        if cloud.projection is not None:
            norms = left.norm.square() + right.norm.square()
            along = cloud.projection.along(left.row, right.row, differences, norms)[apart]
            totals.directional.left_out += int((~apart).sum())
            totals.directional.add(along / squares[apart].square(), len(along))
        if cloud.varied:
            for total in (totals.cdnv, totals.cdnv_k2, totals.cdnv_log):
                total.left_out += int((~apart).sum())
            inverse_squares = squares[apart].reciprocal_()
            terms = (left.variance + right.variance)[apart] * inverse_squares
            self._add_cdnv(totals, terms, inverse_squares, None)

    def _difference_of_directions(
        self, values: Tensor, doubtful: Tensor, left: Facts, right: Facts, origin: Tensor | float
    ) -> None:
        """Set doubtful values to |u_i - u_j|² / 2, with directions u from the origin."""
        at = doubtful.nonzero().squeeze(1)
        if not len(at):
            return
        first, second = (directions_of(self.cloud.points.at(side.row[at]).sub_(origin)) for side in (left, right))
        values[at] = squared_lengths(first - second) / 2


def _add_logs(total: Total, values: Tensor) -> None:
    """Of the positive values; the others are left out and counted."""
    apart = values[values > 0]
    total.left_out += len(values) - len(apart)
    total.add_with_squares(apart.log(), len(apart))
