"""Every statistic over pairs of points, in one sweep over tiles of the upper triangle.

One matrix product a tile gives x = (1 - cos) of the centred points' directions. With norms r about the centre and
lengths l from the origin,

    |p_i - p_j|²    = 2 x r_i r_j + (r_i - r_j)²             squared distance d²
    |u_i - u_j|²    = 2 x                                    squared chord of the centred directions
    |ũ_i - ũ_j|²    = (d² - (l_i - l_j)²) / (l_i l_j)        squared chord of the directions from the origin

None of these cancels when all points share a large offset. x itself loses digits when two directions nearly coincide,
and such pairs dominate the mean of 1 / d²: they are computed again from their two points, in float64.

Most points are swept in float32. Three things keep the promise of a millionth.

1. No near pair is missed: x is wrong by at most (dim + 8) 2^-24 however the product is added up, and every pair below a
   bound far above that is computed again. A tile with many such pairs is computed in float64.
2. Errors of the other pairs are about 1e-7 of a value and of either sign. That they average out is not assumed but
   measured: some of the points are swept both ways, and where a mean or standard deviation of theirs differs by more
   than TRUSTED, all are swept in float64. So is a small number of points.
3. The mean cosine has a closed form, (|Σ u|² - K) / (K (K - 1)), and needs no pairs.

Memory does not grow with the square of the number of points: it is one table of directions and a few tiles. Points are
divided by a power of two near the largest entry (`vectors.py`), which only `cdnv_k2` depends on.
"""

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar, final

import numpy as np
import torch
from torch import Tensor

from collapselab.core.cloud import TRUSTED, Cloud, Facts
from collapselab.core.pair_sums import (
    PairRows,
    PairStatistics,
    RowSums,
    Summary,
    Sums,
    Total,
    log_of,
    products_for_logs,
)
from collapselab.core.scale import SMALLEST, squared_lengths
from collapselab.core.tiles import (
    Space,
    Table,
    Tile,
    directions_of,
    fill,
    float32_holds,
    followed_by_one,
    indices_below,
)
from collapselab.core.vectors import Vectors

__all__ = ["PairRows", "PairStatistics", "Progress", "Summary", "pair_statistics"]

Progress = Callable[[int, int], object]
"""Called with the number of pairs done and the number of all pairs."""

FEW_POINTS = 2048
"""Up to this number of points, all pairs are computed in float64: float32 would save less than a tenth of a second."""

SAMPLE = 512
"""Points that are swept in both precisions."""

MOST_NEAR = 1 / 32
"""Share of a float32 tile's pairs that are computed again one by one; above it the tile is computed in float64."""

AGAIN_PAIRS, AGAIN_BYTES = 1 << 16, 2 << 20
"""Pairs that wait to be computed again, and the size of the points that are read for some of them at once."""

Part = TypeVar("Part")
Done = TypeVar("Done")

TRUSTED_ROW = 1e-6
"""Relative difference of a point's own mean in the two precisions up to which float32 is trusted with it."""


def pair_statistics(
    points: Tensor | Vectors,
    variances: Tensor | None = None,
    *,
    uncentred: bool = False,
    covariance: Tensor | None = None,
    rows: bool = False,
    tile: int = 1024,
    progress: Progress | None = None,
) -> PairStatistics:
    """All pair statistics of points (classes, dim) about their unweighted mean, within a millionth of the definition.

    `variances` (classes,) adds the CDNV family, whose standard deviations are not computed and are nan;
    `uncentred` adds the log distances of the directions from the origin, `covariance` (dim, dim), the one within
    classes, its variance along the line between two points, and `rows` what each point has over its own pairs. `tile`
    bounds memory at a few tile² numbers and changes nothing else.
    """
    if isinstance(points, Tensor):
        if points.ndim != 2 or len(points) < 2:
            raise ValueError(f"points of shape {tuple(points.shape)}; at least two rows are needed to form a pair.")
        points = Vectors(points)
    if variances is not None and variances.shape != (len(points),):
        raise ValueError(f"{len(points):,} points but variances of shape {tuple(variances.shape)}; each needs its own.")
    if variances is not None and (bad := int((~(variances >= 0) | variances.isinf()).sum())):
        raise ValueError(
            f"{bad:,} of {len(points):,} variances are nan, infinite or negative; each must be a number ≥ 0."
        )
    cloud = Cloud.of(points, variances, uncentred=uncentred, covariance=covariance)
    with _full_float32():
        statistics = _in_float32(cloud, tile, rows, progress) if len(cloud) > FEW_POINTS else None
        return _swept(cloud, torch.float64, tile, rows, progress) if statistics is None else statistics


def _in_float32(cloud: Cloud, tile: int, rows: bool, progress: Progress | None) -> PairStatistics | None:
    """All statistics with products in float32, or None where they would not keep the promise."""
    if not float32_holds(cloud):
        return None
    sample, dtypes = cloud.sample(SAMPLE), [torch.float64, torch.float32]
    exact, approximate = _in_threads(
        lambda dtype: _swept(sample, dtype, min(tile, SAMPLE), rows), dtypes, cloud.points.device
    )
    errors = [abs(value - true) for value, true in zip(approximate.values(), exact.values(), strict=True)]
    if not _within(errors, exact.values()) or not _rows_within(approximate.rows, exact.rows):
        return None
    statistics = _swept(cloud, torch.float32, tile, rows, progress)
    return statistics if _within(errors, statistics.values()) else None


def _within(errors: list[float], values: list[float]) -> bool:
    return len(errors) == len(values) and all(
        error <= TRUSTED * abs(value) for error, value in zip(errors, values, strict=True)
    )


def _rows_within(narrow: PairRows | None, wide: PairRows | None) -> bool:
    """Whether each point's own mean is the same in both precisions; where no rows or variances are, there is none."""
    if narrow is None or wide is None or narrow.cdnv is None or wide.cdnv is None:
        return True
    known = ~wide.cdnv.isnan()
    return bool(((narrow.cdnv - wide.cdnv)[known].abs() <= TRUSTED_ROW * wide.cdnv[known]).all())


def _swept(cloud: Cloud, dtype: torch.dtype, tile: int, rows: bool, progress: Progress | None = None) -> PairStatistics:
    table, sums = Table(cloud, dtype, tile=tile, with_rows=rows), Sums()
    sums.rows = RowSums(0, len(cloud), cloud.facts.row.device) if rows else None
    total = len(cloud) * (len(cloud) - 1) // 2

    def swept(block: slice) -> Sums:
        with table.space() as space:
            return _Sweep(table, block, space).sums()

    for some in _in_threads(swept, list(cloud.blocks(0, table.rows)), cloud.points.device):
        sums.merge(some)
        if progress is not None:
            progress(sums.pairs, total)
    return table.cloud.statistics(sums)


@contextmanager
def _full_float32() -> Iterator[None]:
    """Products of float32 keep all its digits, whatever the program around allows (TF32, bfloat16)."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _in_threads(work: Callable[[Part], Done], parts: list[Part], device: torch.device) -> Iterator[Done]:
    """Results in the order of the parts, so that sums do not depend on which thread did what.

    On a CPU each core processes tiles of its own with single-threaded operations. Two dozen operations a tile that each
    wait for all cores would cost more, and far more on a machine with other work to do.
    """
    threads = torch.get_num_threads()
    if device.type != "cpu" or threads == 1 or len(parts) == 1:
        yield from map(work, parts)
        return
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(threads) as pool:
            yield from pool.map(work, parts)
    finally:
        torch.set_num_threads(threads)


@final
class _Sweep:
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

    @np.errstate(all="ignore")
    def sums(self) -> Sums:
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
        return self._product(self.narrow_left, directions, facts, columns, table.near, table.exponent)

    def _tile_in_float64(self, columns: slice) -> Tile:
        directions = followed_by_one(self.cloud.directions(columns))
        facts = self.cloud.facts.at(self.rows).upright(), self.cloud.facts.at(columns)
        return self._product(self.left, directions, facts, columns, self.cloud.doubtful, 0)

    def _product(
        self, rows: Tensor, directions: Tensor, facts: tuple[Facts, Facts], columns: slice, near: float, exponent: int
    ) -> Tile:
        x, *others = self.space.of(rows.dtype, rows.shape[0], directions.shape[0])
        torch.mm(rows, directions.T, out=x)
        longest = self.table.longest(self.rows, columns) * 2.0 ** (self.table.exponent - exponent)
        widest = self.table.widest(self.rows, columns, near)
        return Tile(*facts, (self.rows.start, columns.start), near, exponent, longest, widest, x, *others)

    def _add(self, tile: Tile, sums: Sums) -> bool:
        """Add the pairs of a tile to every statistic, or nothing and False where float32 is not enough for them.

        Pairs that may be wrong are left to `_compute_again`: here they add log 1 or 0.
        """
        narrow = tile.x.dtype != torch.float64
        self._set_distances(tile)
        at = self._near_pairs(tile)
        near = 0 if at is None else at.shape[0]
        if narrow and near > MOST_NEAR * tile.x.numel() + tile.x.shape[0]:
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
            unit = 2.0 ** (-2 * tile.exponent)
            fill(inverse_squares, at, 0)
            if self.totals.rows is not None:
                fill(terms, at, 0)
                columns = slice(tile.corner[1], tile.corner[1] + terms.shape[1])
                self.totals.rows.add_tile(self.rows, columns, terms, inverse_squares, self.cloud.facts.row, unit)
            if self.cloud.varied:
                self._add_cdnv(sums, terms, inverse_squares, at, unit=unit, widest=tile.widest)
            if self.projected is not None:
                along = self._along(tile, self.projected)
                sums.directional.add(along.mul_(inverse_squares).mul_(inverse_squares), pairs, unit=unit**2)
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
            near.append(indices_below(tile.squares, SMALLEST))
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
        self,
        sums: Sums,
        terms: Tensor,
        inverse_squares: Tensor,
        at: Tensor | None,
        *,
        unit: float = 1.0,
        widest: float = math.inf,
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
        sums.cdnv_k2.add(terms.mul_(inverse_squares), pairs, unit=unit)

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
