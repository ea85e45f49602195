"""One block of points against itself and all later points, tile by tile. `pairs.py` has the formulas."""

import math
import threading
from typing import NamedTuple, final

import torch
from torch import Tensor

from collapselab.core.cloud import Cloud, Facts, inverse
from collapselab.core.pair_sums import RowSums, Sums, Total, sum_of, sum_of_logs, sum_of_squares
from collapselab.core.scale import SMALLEST, binary_exponent, lengths, squared_lengths

NEAR = 0.1
"""In float32, pairs of directions with 1 - cos below this are computed again in float64."""

MOST_NEAR = 1 / 32
"""Share of a float32 tile's pairs that are computed again one by one; above it the tile is computed in float64."""

AGAIN_PAIRS, AGAIN_BYTES = 1 << 16, 2 << 20
"""Pairs that wait to be computed again, and the size of the points that are read for some of them at once."""

CHUNK = 64
"""Neighbouring pairs among which near ones are looked for at once."""

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
        self.exponent = binary_exponent(cloud.facts.norm) if self.narrow else 0
        self.facts = cloud.facts.narrow(self.exponent) if self.narrow else cloud.facts
        self.directions = cloud.table(dtype)
        self.projected = None if cloud.projection is None else cloud.projection.right(cloud.facts.row).to(dtype)
        self._of_thread = threading.local()
        self.columns, self.rows = max(1, tile), max(1, tile // 2)

    @property
    def near(self) -> float:
        """Pairs with 1 - cos below this are computed again from their points.

        A product of unit vectors in float32 is wrong by at most (dim + 8) 2^-24, in whatever order it is added up: a
        pair that is not computed again is right to 1/63 in the worst case, and usually to a millionth.
        """
        return max(NEAR, 64 * (self.cloud.points.dim + 8) * 2.0**-24) if self.narrow else self.cloud.doubtful

    def space(self, number: int, shape: torch.Size | tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Memory of this thread, used again for each tile: new pages cost more than the arithmetic done in them."""
        spaces: dict[str, Tensor] = self._of_thread.__dict__
        key, size = f"{number} {dtype}", torch.Size(shape).numel()
        if key not in spaces or spaces[key].numel() < size:
            spaces[key] = torch.empty(size, dtype=dtype, device=self.directions.device)
        return spaces[key][:size].view(shape)

    def sums_of(self, rows: slice) -> Sums:
        """The sums over the pairs of a block of rows with itself and with all later points."""
        return _Sweep(self, rows).sums()


class _Tile(NamedTuple):
    """The pairs of some points with others, in float32 or float64; values are overwritten as they are used up.

    The tile of a block with itself has each pair twice, and each point with itself.
    """

    left: Facts
    right: Facts
    corner: tuple[int, int]  # positions of the first points
    near: float  # pairs with 1 - cos below this are computed again
    exponent: int  # of the unit of length in the facts
    x: Tensor  # (1 - cos) / typical
    squares: Tensor  # squared distances
    chords: Tensor
    scratch: Tensor

    @property
    def twice(self) -> bool:
        return self.corner[0] == self.corner[1]

    @property
    def longest(self) -> float:
        """Root of the largest sum of squared norms in the tile, in which norms ascend."""
        return math.hypot(float(self.left.norm[-1]), float(self.right.norm[-1]))


@final
class _Sweep:
    """The sweep of one block, with the working space of one thread."""

    def __init__(self, table: Table, rows: slice) -> None:
        self.table, self.cloud, self.rows = table, table.cloud, rows
        self.totals = Sums()
        if table.with_rows:
            self.totals.rows = RowSums(rows.start, len(self.cloud) - rows.start, self.cloud.facts.row.device)
        self.again: list[tuple[Tensor, Tensor]] = []
        self.left = _followed_by_one(self.cloud.directions(rows) * (-1 / self.cloud.typical))
        self.left[:, -1] = 1 / self.cloud.typical  # (-u/t, 1/t) · (u, 1) is (1 - cos) / t
        self.narrow_left = self.left.to(table.directions.dtype)
        projection = self.cloud.projection
        self.projected = None if projection is None else projection.left(self.cloud.facts.row[rows])

    def sums(self) -> Sums:
        for columns in (self.rows, *self.cloud.blocks(self.rows.stop, self.table.columns)):
            if not self._add(self._tile(columns)):
                self._add(self._tile_in_float64(columns))
            if sum(len(i) for i, _ in self.again) > AGAIN_PAIRS:
                self._compute_again()
        self._compute_again()
        return self.totals

    def _tile(self, columns: slice) -> _Tile:
        """Of the table's precision."""
        table, directions = self.table, self.table.directions[columns]
        return self._product(self.narrow_left, directions, table.facts, columns, table.near, table.exponent)

    def _tile_in_float64(self, columns: slice) -> _Tile:
        directions = _followed_by_one(self.cloud.directions(columns))
        return self._product(self.left, directions, self.cloud.facts, columns, self.cloud.doubtful, 0)

    def _product(
        self, rows: Tensor, directions: Tensor, facts: Facts, columns: slice, near: float, exponent: int
    ) -> _Tile:
        shape = (len(rows), len(directions))
        x, *others = (self.table.space(number, shape, rows.dtype) for number in range(4))
        torch.mm(rows, directions.T, out=x)
        corner = self.rows.start, columns.start
        return _Tile(facts.at(self.rows).upright(), facts.at(columns), corner, near, exponent, x, *others)

    def _add(self, tile: _Tile) -> bool:
        """Add the pairs of a tile to every statistic, or nothing and False where float32 is not enough for them.

        Pairs that may be wrong are left to `_compute_again`: here they add log 1 or 0.
        """
        narrow = tile.x.dtype != torch.float64
        if narrow and not _alike(tile.left.norm[:, 0], tile.right.norm):
            return False
        self._set_distances(tile)
        at = self._near_pairs(tile)
        if narrow and len(at) > MOST_NEAR * tile.x.numel() + len(tile.x):
            return False
        if len(at):
            self._leave(at, tile)
        sums, pairs = Sums(), tile.x.numel() - len(at)
        sums.pairs = pairs
        if self.cloud.uncentred:
            _fill(tile.chords, at, 1)
            tile.chords.log_()
            sums.logdist_uncentred.add(sum_of(tile.chords), pairs, sum_of_squares(tile.chords))
        if self.cloud.centred:
            _fill(tile.x, at, 1)
            torch.log(tile.x, out=tile.scratch)
            sums.logdist.add(sum_of(tile.scratch), pairs, sum_of_squares(tile.scratch))
            sums.cosine.add(0.0, pairs, sum_of_squares(tile.x.sub_(1)))  # the mean is known
            _fill(tile.x, at, self.cloud.simplex - 1)
            sums.cosine_error.add(sum_of(tile.x.sub_(self.cloud.simplex - 1).abs_()), pairs)
        if self.cloud.varied or self.totals.rows is not None or self.projected is not None:
            inverse_squares = tile.squares.reciprocal_()
            terms = torch.add(tile.left.variance, tile.right.variance, out=tile.scratch).mul_(inverse_squares)
            unit = 2.0 ** (-2 * tile.exponent)
            _fill(inverse_squares, at, 0)
            if self.totals.rows is not None:
                _fill(terms, at, 0)
                columns = slice(tile.corner[1], tile.corner[1] + terms.shape[1])
                self.totals.rows.add_tile(self.rows, columns, terms, inverse_squares, self.cloud.facts.row, unit)
            if self.cloud.varied:
                self._add_cdnv(sums, terms, inverse_squares, at, unit)
            if self.projected is not None:
                along = self._along(tile, self.projected)
                total = sum_of(along.mul_(inverse_squares).mul_(inverse_squares))
                sums.directional.add(total * unit**2, pairs)
        self.totals.merge(sums.halved() if tile.twice else sums)
        return True

    def _along(self, tile: _Tile, left: Tensor) -> Tensor:
        """The variance within classes along the difference of each pair; in the memory of the chords, used up."""
        table, projection = self.table, self.cloud.projection
        columns = slice(tile.corner[1], tile.corner[1] + tile.x.shape[1])
        assert table.projected is not None
        assert projection is not None
        same = table.projected.dtype == tile.x.dtype
        right = table.projected[columns] if same else projection.right(self.cloud.facts.row[columns])
        return torch.mm(left.to(tile.x.dtype), right.T, out=tile.chords)

    def _set_distances(self, tile: _Tile) -> None:
        """d² = 2 x r_i r_j + (r_i - r_j)², and the chords from the origin but for their divisors l_i l_j."""
        left, right, squares, scratch = tile.left, tile.right, tile.squares, tile.scratch
        torch.mul(tile.x, left.norm / (0.5 / self.cloud.typical), out=squares).mul_(right.norm)
        torch.sub(left.norm, right.norm, out=scratch)
        squares.addcmul_(scratch, scratch)
        if self.cloud.uncentred:
            torch.sub(left.excess, right.excess, out=scratch)
            torch.addcmul(squares, scratch, scratch, value=-1, out=tile.chords)

    def _near_pairs(self, tile: _Tile) -> Tensor:
        """Flat indices of the pairs that rounding may have made wrong; the chords get their divisors."""
        cloud, left, right = self.cloud, tile.left, tile.right
        near = [_below(tile.x, tile.near / cloud.typical)]
        if not cloud.centred:
            near.append(_below(tile.squares, SMALLEST))
        if cloud.uncentred:
            if tile.chords.amin() < tile.near * tile.longest**2:
                bound = torch.add(left.norm.square() * tile.near, right.norm.square() * tile.near, out=tile.scratch)
                near.append(_below(torch.sub(tile.chords, bound, out=tile.scratch), 0.0))
            unit = 2 * cloud.typical_uncentred
            tile.chords.mul_(left.inverse_length / unit).mul_(right.inverse_length)
        near = [at for at in near if len(at)]
        return torch.unique(torch.cat(near)) if len(near) > 1 else near[0] if near else left.row.new_empty(0)

    def _leave(self, at: Tensor, tile: _Tile) -> None:
        """Leave these pairs of a tile, each once, to be computed again."""
        width = tile.x.shape[1]
        i, j = tile.corner[0] + at // width, tile.corner[1] + at % width
        once = i < j
        if once.any():
            self.again.append((i[once], j[once]))

    def _add_cdnv(self, sums: Sums, terms: Tensor, inverse_squares: Tensor, at: Tensor, unit: float = 1.0) -> None:
        pairs = terms.numel() - len(at)
        if self.rows.start >= self.cloud.border:  # neither point has variance
            sums.cdnv_log.left_out += pairs
        else:
            _fill(terms, at, 1)
            sums.cdnv_log.add(sum_of_logs(terms), pairs)
        _fill(terms, at, 0)
        sums.cdnv.add(sum_of(terms), pairs)
        sums.cdnv_k2.add(sum_of(terms.mul_(inverse_squares)) * unit, pairs)

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
            totals.cosine.add(0.0, len(x), sum_of_squares(x - 1))
            totals.cosine_error.add(sum_of((x - cloud.simplex).abs()), len(x))
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
            totals.directional.add(sum_of(along / squares[apart].square()), len(along))
        if cloud.varied:
            for total in (totals.cdnv, totals.cdnv_k2, totals.cdnv_log):
                total.left_out += int((~apart).sum())
            inverse_squares = squares[apart].reciprocal_()
            terms = (left.variance + right.variance)[apart] * inverse_squares
            self._add_cdnv(totals, terms, inverse_squares, left.row[:0])

    def _difference_of_directions(
        self, values: Tensor, doubtful: Tensor, left: Facts, right: Facts, origin: Tensor | float
    ) -> None:
        """Set doubtful values to |u_i - u_j|² / 2, with directions u from the origin."""
        at = doubtful.nonzero().squeeze(1)
        if not len(at):
            return
        first, second = (_directions(self.cloud.points.at(side.row[at]).sub_(origin)) for side in (left, right))
        values[at] = squared_lengths(first - second) / 2


def _directions(points: Tensor) -> Tensor:
    return points * inverse(lengths(points))[:, None]


def _followed_by_one(directions: Tensor) -> Tensor:
    return torch.nn.functional.pad(directions, (0, 1), value=1.0)


def _alike(left: Tensor, right: Tensor) -> bool:
    """Whether float32 can compute with these norms, which ascend."""
    shortest, longest = min(float(left[0]), float(right[0])), max(float(left[-1]), float(right[-1]))
    return shortest >= max(SHORTEST, longest / WIDEST)


def _below(values: Tensor, bound: float) -> Tensor:
    """Flat indices of the values below the bound, which are few: most chunks are seen to have none by their minimum."""
    flat = values.view(-1)
    whole = len(flat) // CHUNK * CHUNK
    chunks = flat[:whole].view(-1, CHUNK)
    some = (chunks.amin(1) < bound).nonzero().squeeze(1)
    chunk, place = (chunks[some] < bound).nonzero().unbind(1)
    rest = (flat[whole:] < bound).nonzero().squeeze(1)
    return torch.cat([some[chunk] * CHUNK + place, rest + whole])


def _fill(values: Tensor, at: Tensor, value: float) -> None:
    if len(at):
        values.view(-1).index_fill_(0, at, value)


def _add_logs(total: Total, values: Tensor) -> None:
    """Of the positive values; the others are left out and counted."""
    apart = values[values > 0]
    total.left_out += len(values) - len(apart)
    logs = apart.log()
    total.add(sum_of(logs), len(logs), sum_of_squares(logs))
