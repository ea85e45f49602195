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
   bound far above that is computed again. Where there are many, all points are swept in float64.
2. Errors of the other pairs are about 1e-7 of a value and of either sign. That they average out is not assumed but
   measured: some of the points are swept both ways, and where a mean or standard deviation of theirs differs by more
   than TRUSTED, all are swept in float64. So is a small number of points.
3. The mean cosine has a closed form, (|Σ u|² - K) / (K (K - 1)), and needs no pairs.

Memory does not grow with the square of the number of points: it is one table of directions and a few tiles.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from collapselab.core.pair_sweep import RowSums, Summary, Sums, Sweep, Table
from collapselab.core.points import TRUSTED, Points
from collapselab.core.threads import in_threads
from collapselab.core.vectors import Vectors

FEW_POINTS = 2048
"""Up to this number of points, all pairs are computed in float64: float32 would save less than a tenth of a second."""

SAMPLE = 512
"""Points that are swept in both precisions."""

MAX_NEAR = 1 / 32
"""Share of the pairs that are computed again one by one; above it all are swept in float64."""


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


def pair_statistics(
    points: Tensor | Vectors,
    variances: Tensor | None = None,
    *,
    uncentred: bool = False,
    covariance: Tensor | None = None,
    rows: bool = False,
    tile: int = 1024,
) -> PairStatistics:
    """Compute all pair statistics of two points or more (classes, dim) about their unweighted mean, to a millionth.

    `variances` (classes,) adds the CDNV family, whose standard deviations are not computed and are nan;
    `uncentred` adds the log distances of the directions from the origin, `covariance` (dim, dim), the one within
    classes, its variance along the line between two points, and `rows` what each point has over its own pairs. `tile`
    bounds memory at a few tile² numbers and changes nothing else.
    """
    if isinstance(points, Tensor):
        points = Vectors(points)
    measured = Points.of(points, variances, uncentred=uncentred, covariance=covariance)
    with _full_float32():
        statistics = _in_float32(measured, tile, rows) if len(measured) > FEW_POINTS else None
        if statistics is None:
            statistics = _statistics(measured, _swept(measured, torch.float64, tile, rows))
        return statistics


def _in_float32(points: Points, tile: int, rows: bool) -> PairStatistics | None:
    """Return all statistics with products in float32, or None where they would not keep the promise."""
    if not points.facts.fit_float32():
        return None
    sample, dtypes = points.sample(SAMPLE), [torch.float64, torch.float32]
    swept = list(
        in_threads(lambda dtype: _swept(sample, dtype, min(tile, SAMPLE), rows), dtypes, points.vectors.device)
    )
    exact, approximate = (_statistics(sample, sums) for sums in swept)
    if swept[1].again > MAX_NEAR * swept[1].pairs:
        return None
    errors = [abs(value - true) for value, true in zip(approximate.values(), exact.values(), strict=True)]
    if not _within(errors, exact.values()):
        return None
    statistics = _statistics(points, _swept(points, torch.float32, tile, rows))
    return statistics if _within(errors, statistics.values()) else None


def _within(errors: list[float], values: list[float]) -> bool:
    return len(errors) == len(values) and all(
        error <= TRUSTED * abs(value) for error, value in zip(errors, values, strict=True)
    )


def _swept(points: Points, dtype: torch.dtype, tile: int, rows: bool) -> Sums:
    table, device = Table(points, dtype, tile=tile, with_rows=rows), points.vectors.device
    sums = Sums(rows=RowSums(len(points), device) if rows else None)
    for block_sums in in_threads(lambda block: Sweep(table, block).sums(), list(points.blocks(0, table.rows)), device):
        sums.merge(block_sums)
    return sums


def _statistics(points: Points, sums: Sums) -> PairStatistics:
    # With typical t: cos = 1 - t x, and the log distance is -log(2 t x) / 2.
    shift, shift_uncentred = (-0.5 * math.log(2 * t) for t in (points.typical, points.typical_uncentred))
    sums.cosine.sum = sums.cosine.pairs * ((1 - points.mean_cosine) / points.typical - 1)
    cosine = replace(sums.cosine.summary(scale=-points.typical), mean=points.mean_cosine)
    uncentred = sums.logdist_uncentred.summary(scale=-0.5, shift=shift_uncentred)
    return PairStatistics(
        cosine=cosine if points.centred else None,
        logdist=sums.logdist.summary(scale=-0.5, shift=shift) if points.centred else None,
        logdist_uncentred=uncentred if points.uncentred else None,
        cdnv=sums.cdnv.summary(scale=0.5, std=False) if points.varied else None,
        cdnv_k2=sums.cdnv_k2.summary(scale=0.5, std=False) if points.varied else None,
        cdnv_log=sums.cdnv_log.summary(shift=-math.log(2), std=False) if points.varied else None,
        cosine_error=sums.cosine_error.summary(scale=points.typical, std=False) if points.centred else None,
        directional=None if points.projection is None else sums.directional.summary(std=False),
        rows=None if sums.rows is None else _rows(points, sums.rows),
    )


def _rows(points: Points, sums: RowSums) -> PairRows:
    """Return the sums by position as means by row of the points; a sample has those of its own points."""
    order, others = points.facts.row.argsort(), len(points) - 1
    terms, left_out, nearest = sums.cdnv[order] / 2, sums.left_out[order], sums.nearest[order]
    pairs = others - left_out
    return PairRows(
        cdnv=torch.where(pairs > 0, terms / pairs, torch.nan) if points.varied else None,
        left_out=left_out,
        cosine=points.mean_cosines() if points.centred and others == len(points.vectors) - 1 else None,
        nearest=nearest,
        distance=points.distances(points.facts.row[order], nearest),
    )


@contextmanager
def _full_float32() -> Iterator[None]:
    """Keep all digits in products of float32, whatever the program around allows (TF32, bfloat16)."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
