"""Every statistic over pairs of points, in one sweep over tiles of the upper triangle.

One matrix product a tile gives x = (1 - cos) of the centred points' directions. With norms r about the centre and
lengths l from the origin,

    |p_i - p_j|²    = 2 x r_i r_j + (r_i - r_j)²             squared distance d²
    |u_i - u_j|²    = 2 x                                    squared chord of the centred directions
    |ũ_i - ũ_j|²    = (d² - (l_i - l_j)²) / (l_i l_j)        squared chord of the directions from the origin

None of these cancels when all points share a large offset. x itself loses digits when two directions nearly coincide,
and such pairs dominate the mean of 1 / d²: wherever rounding could reach a few ten-millionths of a value, the pair is
computed again from its two points.

Memory does not grow with the square of the number of points: it is one table of directions and a few tiles. Points are
divided by a power of two near the largest entry (`scale.py`), which only `cdnv_k2` depends on.
"""

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import NamedTuple, final

import torch
from torch import Tensor

from collapselab.core.scale import SMALLEST, binary_exponent, lengths, scaled, squared_lengths, times_power_of_two

Progress = Callable[[int, int], object]
"""Called with the number of pairs done and the number of all pairs."""

TRUSTED = 2.5e-7
"""Worst-case relative rounding error up to which a value is taken from the matrix product."""

RECOMPUTED = 4096
"""Pairs that are computed again from their points at once."""


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


def pair_statistics(
    points: Tensor,
    variances: Tensor | None = None,
    *,
    uncentred: bool = False,
    tile: int = 1024,
    progress: Progress | None = None,
) -> PairStatistics:
    """All pair statistics of points (classes, dim), in float64, about their unweighted mean.

    `variances` (classes,) adds the CDNV family, whose standard deviations are not computed and are nan;
    `uncentred` adds the log distances of the directions from the origin. `tile` bounds memory at a few tile² numbers
    and changes nothing else.
    """
    if points.ndim != 2 or len(points) < 2:
        raise ValueError(f"points of shape {tuple(points.shape)}; at least two rows are needed to form a pair.")
    if variances is not None and variances.shape != points.shape[:1]:
        raise ValueError(f"{len(points):,} points but variances of shape {tuple(variances.shape)}; each needs its own.")
    if variances is not None and (bad := int((~(variances >= 0) | variances.isinf()).sum())):
        raise ValueError(
            f"{bad:,} of {len(points):,} variances are nan, infinite or negative; each must be a number ≥ 0."
        )
    cloud = _Cloud(points.double(), variances, uncentred=uncentred, tile=tile)
    total = len(points) * (len(points) - 1) // 2
    sums = _Sums()
    for some in _in_threads(cloud.sums_of, list(cloud.blocks(0, cloud.rows)), points.device):
        sums.merge(some)
        if progress is not None:
            progress(sums.pairs, total)
    return cloud.statistics(sums)


def _in_threads(work: Callable[[slice], "_Sums"], blocks: list[slice], device: torch.device) -> Iterator["_Sums"]:
    """Results in the order of the blocks, so that sums do not depend on which thread did what.

    On a CPU each core processes tiles of its own with single-threaded operations. Two dozen operations a tile that each
    wait for all cores would cost more, and far more on a machine with other work to do.
    """
    threads = torch.get_num_threads()
    if device.type != "cpu" or threads == 1 or len(blocks) == 1:
        yield from map(work, blocks)
        return
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(threads) as pool:
            yield from pool.map(work, blocks)
    finally:
        torch.set_num_threads(threads)


class _Facts(NamedTuple):
    """What is known of each point, shaped so that left and right broadcast over the pairs of a tile."""

    row: Tensor  # in `points`
    norm: Tensor  # about the centre
    excess: Tensor  # length from the origin minus that of the centre
    inverse_length: Tensor
    variance: Tensor

    def at(self, index: Tensor | slice) -> "_Facts":
        if isinstance(index, Tensor):
            return _Facts(*(fact.index_select(0, index) for fact in self))
        return _Facts(*(fact[index] for fact in self))


@dataclass
class _Total:
    """Running sums over pairs."""

    sum: float = 0.0
    squares: float = 0.0
    pairs: int = 0
    left_out: int = 0

    def add(self, sum: float, pairs: int, squares: float = math.nan) -> None:
        self.sum += sum
        self.squares += squares
        self.pairs += pairs

    def add_values(self, values: Tensor) -> None:
        flat = values.view(-1)
        self.add(flat.sum().item(), len(flat), torch.dot(flat, flat).item())

    def add_logs(self, values: Tensor, out: Tensor, apart: Tensor | None) -> None:
        if apart is not None:
            values = values[apart]
            self.left_out += int(apart.numel() - values.numel())
            out = torch.empty_like(values)
        self.add_values(torch.log(values, out=out))

    def merge(self, other: "_Total") -> None:
        self.add(other.sum, other.pairs, other.squares)
        self.left_out += other.left_out

    def summary(self, *, scale: float = 1.0, shift: float = 0.0) -> Summary:
        """Mean and standard deviation of shift + scale · value."""
        if not self.pairs:
            return Summary(math.nan, math.nan, 0, self.left_out)
        mean = self.sum / self.pairs
        variance = self.squares / self.pairs - mean * mean
        std = math.nan if math.isnan(variance) else abs(scale) * math.sqrt(max(variance, 0.0))
        return Summary(shift + scale * mean, std, self.pairs, self.left_out)


@dataclass
class _Sums:
    """The running sums of every statistic."""

    cosine: _Total = field(default_factory=_Total)
    logdist: _Total = field(default_factory=_Total)
    logdist_uncentred: _Total = field(default_factory=_Total)
    cdnv: _Total = field(default_factory=_Total)
    cdnv_k2: _Total = field(default_factory=_Total)
    cdnv_log: _Total = field(default_factory=_Total)
    pairs: int = 0

    def totals(self) -> tuple[_Total, ...]:
        return self.cosine, self.logdist, self.logdist_uncentred, self.cdnv, self.cdnv_k2, self.cdnv_log

    def merge(self, other: "_Sums") -> None:
        for ours, theirs in zip(self.totals(), other.totals(), strict=True):
            ours.merge(theirs)
        self.pairs += other.pairs


@final
class _Cloud:
    """The points as the sweep needs them: a table of directions, and what is known of each point. Read-only."""

    def __init__(self, points: Tensor, variances: Tensor | None, *, uncentred: bool, tile: int) -> None:
        self._points, self.exponent = points, binary_exponent(points)
        self.classes = len(points)
        self.columns, self.rows, self.strip = max(1, tile), max(1, tile // 2), max(1, tile // 4)
        self.near = max(points.shape[1], 64) * torch.finfo(torch.float64).eps / TRUSTED
        spread = points.new_zeros(len(points)) if variances is None else variances.to(points)
        over_unit = scaled(spread, -2 * self.exponent)
        if not (((over_unit >= SMALLEST) & (over_unit < torch.inf)) | (spread == 0)).all():
            raise ValueError(
                "variances: some are too large or too small beside the points; the CDNV leaves the range of float64."
            )
        spread = over_unit
        # Points without variance come last, and no tile crosses the border: their pairs have no log CDNV.
        self.border = int((spread > 0).sum())
        self._measure(points, spread, (spread <= 0).to(torch.int8).sort(stable=True).indices)
        self.centred = bool((self.facts.norm > 0).all())
        self.uncentred = uncentred and self.has_length
        self.varied = variances is not None

    def _measure(self, points: Tensor, spread: Tensor, order: Tensor) -> None:
        classes, dim = points.shape
        self.centre = centre = points.mean(0) * 2.0**-self.exponent
        if not torch.isfinite(centre).all():
            raise ValueError("points: some are nan or infinite, or their sum is; finite numbers are needed.")
        self.table = points.new_ones(classes, dim + 1)
        norm, length, along = points.new_empty(3, classes)
        direction_sum, direction_sum_uncentred = points.new_zeros(2, dim)
        for start in range(0, classes, self.columns):
            now = slice(start, start + self.columns)
            some = self.points(order[now])
            length[now] = lengths(some)
            direction_sum_uncentred += _inverse(length[now]) @ some
            some -= centre
            norm[now] = lengths(some)
            torch.mv(some, centre, out=along[now])
            direction_sum += _inverse(norm[now]) @ some
            torch.mul(some, _inverse(norm[now])[:, None], out=self.table[now, :dim])
        # |p| - |centre| without cancellation, however far the centre is from the origin.
        excess = (norm.square() + 2 * along) * _inverse(length + torch.linalg.vector_norm(centre))
        self.facts = _Facts(order, norm, excess, _inverse(length), spread[order])
        self.longest = float(norm.max())
        self.has_length = bool((length > 0).all())
        # Values are divided by their mean, which the sums of directions give: they are about 1, logarithms about 0.
        self.typical = _typical_distance(direction_sum, classes)
        self.typical_uncentred = _typical_distance(direction_sum_uncentred, classes)

    def points(self, rows: Tensor) -> Tensor:
        """These points over 2^exponent, so that they can be squared."""
        return self._points.index_select(0, rows).mul_(2.0**-self.exponent)

    def blocks(self, start: int, step: int) -> Iterator[slice]:
        while start < self.classes:
            stop = min(start + step, self.border if start < self.border else self.classes)
            yield slice(start, stop)
            start = stop

    def sums_of(self, rows: slice) -> _Sums:
        """The sums over the pairs of a block of rows with itself and with all later points."""
        return _Sweep(self, rows).sums()

    def statistics(self, sums: _Sums) -> PairStatistics:
        # With typical t: cos = 1 - t x, and the log distance is -log(2 t x) / 2.
        shift, shift_uncentred = (-0.5 * math.log(2 * t) for t in (self.typical, self.typical_uncentred))
        cosine = sums.cosine.summary(scale=-self.typical, shift=1 - self.typical)
        uncentred = sums.logdist_uncentred.summary(scale=-0.5, shift=shift_uncentred)
        squared = sums.cdnv_k2.summary(scale=0.5)
        squared = replace(squared, mean=times_power_of_two(squared.mean, -2 * self.exponent))
        return PairStatistics(
            cosine=cosine if self.centred else None,
            logdist=sums.logdist.summary(scale=-0.5, shift=shift) if self.centred else None,
            logdist_uncentred=uncentred if self.uncentred else None,
            cdnv=sums.cdnv.summary(scale=0.5) if self.varied else None,
            cdnv_k2=squared if self.varied else None,
            cdnv_log=sums.cdnv_log.summary(shift=-math.log(2)) if self.varied else None,
        )


@final
class _Sweep:
    """One block of rows against itself and all later points, with the working space of one thread."""

    def __init__(self, cloud: _Cloud, rows: slice) -> None:
        self.cloud, self.rows = cloud, rows
        self.totals = _Sums()
        size = rows.stop - rows.start
        self.product = cloud.table.new_empty(size * max(size, cloud.columns))
        self.scratch = [cloud.table.new_empty(max(cloud.strip * cloud.columns, size**2)) for _ in range(2)]
        self.left = cloud.table[rows] * (-1 / cloud.typical)  # (-u/t, 1/t) · (u, 1) is (1 - cos) / t
        self.left[:, -1] = 1 / cloud.typical

    def sums(self) -> _Sums:
        left = self.cloud.facts.at(self.rows)
        size = self.rows.stop - self.rows.start
        i, j = torch.triu_indices(size, size, offset=1, device=self.cloud.table.device)
        x = self._product(self.rows).view(-1).index_select(0, i * size + j)
        self._add(x, left.at(i), left.at(j))
        upright = _Facts(*(fact[:, None] for fact in left))
        for columns in self.cloud.blocks(self.rows.stop, self.cloud.columns):
            x, right = self._product(columns), self.cloud.facts.at(columns)
            for start in range(0, size, self.cloud.strip):
                now = slice(start, start + self.cloud.strip)
                self._add(x[now], upright.at(now), right)
        return self.totals

    def _product(self, columns: slice) -> Tensor:
        shape = (self.rows.stop - self.rows.start, columns.stop - columns.start)
        return torch.mm(self.left, self.cloud.table[columns].T, out=self.product[: shape[0] * shape[1]].view(shape))

    def _add(self, x: Tensor, left: _Facts, right: _Facts) -> None:
        """Add the pairs whose (1 - cos) / typical is x to every statistic; x is overwritten."""
        if not x.numel():
            return
        cloud = self.cloud
        self.totals.pairs += x.numel()
        first, second = (scratch[: x.numel()].view(x.shape) for scratch in self.scratch)
        near = _where_below(x, cloud.near / cloud.typical)
        self._recompute(x, near, left, right, lambda row: self._directions(row, centred=True), 2 * cloud.typical)
        if cloud.centred:
            self.totals.logdist.add_logs(x, first, _apart(x, near))

        torch.mul(x, left.norm * (2 * cloud.typical), out=first).mul_(right.norm)
        torch.sub(left.norm, right.norm, out=second)
        squares = first.addcmul_(second, second)
        self._recompute(squares, near, left, right, cloud.points)
        if cloud.centred:  # their mean is 1, as they were divided by it
            flat = x.sub_(1).view(-1)
            self.totals.cosine.add(0.0, len(flat), torch.dot(flat, flat).item())
        if cloud.uncentred:
            self._add_uncentred(squares, left, right, x, second)
        if cloud.varied:
            apart = _apart(squares, near) if cloud.centred else squares > 0
            self._add_cdnv(squares, second, left.variance, right.variance, apart)

    def _add_uncentred(self, squares: Tensor, left: _Facts, right: _Facts, chords: Tensor, scratch: Tensor) -> None:
        near_bound, unit = self.cloud.near, 2 * self.cloud.typical_uncentred
        torch.sub(left.excess, right.excess, out=scratch)
        torch.addcmul(squares, scratch, scratch, value=-1, out=chords)
        near = _where_below(chords, 2 * near_bound * self.cloud.longest**2)
        if near is not None:
            near = _where_below(chords, near_bound * (left.norm.square() + right.norm.square()))
        chords.mul_(left.inverse_length / unit).mul_(right.inverse_length)
        self._recompute(chords, near, left, right, lambda row: self._directions(row, centred=False), unit)
        self.totals.logdist_uncentred.add_logs(chords, scratch, _apart(chords, near))

    def _add_cdnv(self, squares: Tensor, scratch: Tensor, v_i: Tensor, v_j: Tensor, apart: Tensor | None) -> None:
        plain, squared, log = self.totals.cdnv, self.totals.cdnv_k2, self.totals.cdnv_log
        if apart is not None:  # coincident points have no CDNV
            v_i, v_j = v_i.expand(squares.shape)[apart], v_j.expand(squares.shape)[apart]
            for total in (plain, squared, log):
                total.left_out += int(squares.numel() - v_i.numel())
            squares, scratch = squares[apart], torch.empty_like(v_i)
        pairs = squares.numel()
        inverse = squares.reciprocal_()
        term = torch.add(v_i, v_j, out=scratch).mul_(inverse)
        plain.add(term.sum().item(), pairs)
        squared.add(torch.dot(term.view(-1), inverse.view(-1)).item(), pairs)
        if self.rows.start >= self.cloud.border:  # neither point has variance
            log.left_out += pairs
        else:
            log.add(term.log_().sum().item(), pairs)

    def _directions(self, row: Tensor, *, centred: bool) -> Tensor:
        points = self.cloud.points(row)
        if centred:
            points -= self.cloud.centre
        return points * _inverse(lengths(points))[:, None]

    def _recompute(
        self,
        values: Tensor,
        near: Tensor | None,
        left: _Facts,
        right: _Facts,
        place: Callable[[Tensor], Tensor],
        unit: float = 1.0,
    ) -> None:
        """Set the values at the flat indices `near` to |place_i - place_j|² / unit."""
        for at in () if near is None else torch.split(near, RECOMPUTED):
            i, j = (side.row.expand(values.shape).reshape(-1)[at] for side in (left, right))
            values.view(-1)[at] = squared_lengths(place(i) - place(j)).div_(unit)


def _inverse(values: Tensor) -> Tensor:
    return torch.where(values > 0, values, 1).reciprocal_()


def _typical_distance(direction_sum: Tensor, classes: int) -> float:
    """Mean of 1 - cos over pairs of unit vectors with this sum; 1 where rounding leaves nothing of it."""
    mean_cosine = (float(direction_sum.square().sum()) - classes) / (classes * (classes - 1))
    return 1 - mean_cosine if mean_cosine < 1 - 1e-12 else 1.0


def _where_below(values: Tensor, bound: Tensor | float) -> Tensor | None:
    """Flat indices of the values below the bound, None where there are none."""
    if isinstance(bound, float) and values.amin().item() >= bound:
        return None
    at = (values < bound).view(-1).nonzero().squeeze(1)
    return at if len(at) else None


def _apart(values: Tensor, near: Tensor | None) -> Tensor | None:
    """A mask of the positive values, None if all are. Only values that were near zero can be zero."""
    return None if near is None or values.amin() > 0 else values > 0
