"""Every statistic over pairs of points, in one sweep over tiles of the upper triangle.

One matrix product a tile gives x = (1 - cos) of the centred points' directions. With norms r about the centre and
lengths l from the origin,

    |p_i - p_j|²    = 2 x r_i r_j + (r_i - r_j)²             squared distance d²
    |u_i - u_j|²    = 2 x                                    squared chord of the centred directions
    |ũ_i - ũ_j|²    = (d² - (l_i - l_j)²) / (l_i l_j)        squared chord of the directions from the origin

None of these cancels when all points share a large offset. x itself loses its digits when two directions nearly
coincide, and just such pairs rule the mean of 1 / d²: wherever rounding could reach a few ten-millionths of a value,
the pair is done again from its two points.

Nothing here grows with the square of the number of points: memory is one table of directions and a few tiles.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, final

import torch
from torch import Tensor

Progress = Callable[[int, int], object]
"""Called with the number of pairs done and the number of all pairs."""

TRUSTED = 2.5e-7
"""Worst-case relative rounding error up to which a value is taken from the matrix product."""

AGAIN = 4096
"""Pairs that are done again from their points at once."""


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

    `variances` (classes,) adds the CDNV family, whose standard deviations are not computed and stand as nan;
    `uncentred` adds the log distances of the directions from the origin. `tile` bounds memory at a few tile² numbers
    and changes nothing else.
    """
    if points.ndim != 2 or len(points) < 2:
        raise ValueError(f"points of shape {tuple(points.shape)}; at least two rows are needed to form a pair.")
    if variances is not None and variances.shape != points.shape[:1]:
        raise ValueError(f"{len(points):,} points but variances of shape {tuple(variances.shape)}; each needs its own.")
    sweep = _Sweep(points.double(), variances, uncentred=uncentred, tile=tile)
    total = len(points) * (len(points) - 1) // 2
    done = 0
    for rows, columns in sweep.tiles():
        done += sweep.take(rows, columns)
        if progress is not None:
            progress(done, total)
    return sweep.statistics()


class _Facts(NamedTuple):
    """What is known of each point, shaped so that left and right broadcast over the pairs in hand."""

    row: Tensor  # in `points`
    norm: Tensor  # about the centre
    excess: Tensor  # length from the origin minus that of the centre
    inverse_length: Tensor
    variance: Tensor

    def at(self, index: Tensor | slice | tuple[slice, None]) -> "_Facts":
        if isinstance(index, Tensor):
            return _Facts(*(fact.index_select(0, index) for fact in self))
        return _Facts(*(fact[index] for fact in self))


@dataclass
class _Total:
    """Running sums over pairs, kept where the tiles are so that a GPU is not waited for."""

    sum: Tensor | float = 0.0
    squares: Tensor | float = 0.0
    pairs: int = 0
    left_out: int = 0

    def add(self, sum: Tensor, pairs: int, squares: Tensor | float = math.nan) -> None:
        self.sum = self.sum + sum
        self.squares = self.squares + squares
        self.pairs += pairs

    def add_about_zero(self, values: Tensor) -> None:
        """Values whose mean is known to be 0."""
        flat = values.view(-1)
        self.add(flat.new_zeros(()), len(flat), torch.dot(flat, flat))

    def add_values(self, values: Tensor) -> None:
        flat = values.view(-1)
        self.add(flat.sum(), len(flat), torch.dot(flat, flat))

    def add_logs(self, values: Tensor, out: Tensor, apart: Tensor | None) -> None:
        if apart is not None:
            values = values[apart]
            self.left_out += int(apart.numel() - values.numel())
            out = torch.empty_like(values)
        self.add_values(torch.log(values, out=out))

    def summary(self, *, scale: float = 1.0, shift: float = 0.0) -> Summary:
        """Mean and standard deviation of shift + scale · value."""
        if not self.pairs:
            return Summary(math.nan, math.nan, 0, self.left_out)
        mean = float(self.sum) / self.pairs
        variance = float(self.squares) / self.pairs - mean**2
        std = math.nan if math.isnan(variance) else abs(scale) * math.sqrt(max(variance, 0.0))
        return Summary(shift + scale * mean, std, self.pairs, self.left_out)


@final
class _Sweep:
    def __init__(self, points: Tensor, variances: Tensor | None, *, uncentred: bool, tile: int) -> None:
        self.points = points
        self.columns, self.rows, self.strip = max(1, tile), max(1, tile // 2), max(1, tile // 4)
        self.near = max(points.shape[1], 64) * torch.finfo(torch.float64).eps / TRUSTED
        spread = points.new_zeros(len(points)) if variances is None else variances.to(points)
        # Points without variance come last, and no tile crosses the border: their pairs have no log CDNV.
        self.border = int((spread > 0).sum())
        self._measure(points, spread, (spread <= 0).to(torch.int8).sort(stable=True).indices)
        self.product = points.new_empty(self.rows * self.columns)
        self.scratch = [points.new_empty(max(self.strip * self.columns, self.rows**2)) for _ in range(2)]

        self.triangle: tuple[int, Tensor] | None = None

        self.wanted = (bool((self.facts.norm > 0).all()), uncentred and self.has_length)
        self.cosine, self.logdist, self.logdist_uncentred = _Total(), _Total(), _Total()
        self.cdnv = None if variances is None else (_Total(), _Total(), _Total())

    def _measure(self, points: Tensor, spread: Tensor, order: Tensor) -> None:
        classes, dim = points.shape
        self.centre = centre = points.mean(0)
        self.table = points.new_ones(classes, dim + 1)
        norm, length, along = points.new_empty(3, classes)
        heading, heading_uncentred = points.new_zeros(2, dim)
        for start in range(0, classes, self.columns):
            now = slice(start, start + self.columns)
            some = points.index_select(0, order[now])
            torch.linalg.vector_norm(some, dim=1, out=length[now])
            heading_uncentred += _inverse(length[now]) @ some
            some -= centre
            torch.linalg.vector_norm(some, dim=1, out=norm[now])
            torch.mv(some, centre, out=along[now])
            heading += _inverse(norm[now]) @ some
            torch.mul(some, _inverse(norm[now])[:, None], out=self.table[now, :dim])
        # |p| - |centre| without cancellation, however far the centre is from the origin.
        excess = (norm.square() + 2 * along) * _inverse(length + torch.linalg.vector_norm(centre))
        self.facts = _Facts(order, norm, excess, _inverse(length), spread[order])
        self.longest = float(norm.max())
        self.has_length = bool((length > 0).all())
        # Values are divided by their mean, known beforehand, so that sums of squares and logarithms are about 1 and 0.
        self.typical = _typical_distance(heading, classes)
        self.typical_uncentred = _typical_distance(heading_uncentred, classes)

    def tiles(self) -> Iterator[tuple[slice, slice | None]]:
        """Row blocks, each first with itself (columns None: its upper triangle), then with all that comes after it."""
        for rows in self._blocks(0, self.rows):
            yield rows, None
            for columns in self._blocks(rows.stop, self.columns):
                yield rows, columns

    def _blocks(self, start: int, step: int) -> Iterator[slice]:
        while start < len(self.points):
            stop = min(start + step, self.border if start < self.border else len(self.points))
            yield slice(start, stop)
            start = stop

    def take(self, rows: slice, columns: slice | None) -> int:
        """Add the pairs of a tile to every statistic; how many they are."""
        if columns is None:  # (-u/t, 1/t) · (u, 1) is (1 - cos) / t
            self.left = self.table[rows] * (-1 / self.typical)
            self.left[:, -1] = 1 / self.typical
        across = rows if columns is None else columns
        shape = (rows.stop - rows.start, across.stop - across.start)
        x = torch.mm(self.left, self.table[across].T, out=self.product[: shape[0] * shape[1]].view(shape))
        left, right = self.facts.at(rows), self.facts.at(across)
        without_variance = rows.start >= self.border
        if columns is None:
            i, j = self._upper(shape[0])
            self._take_pairs(x.view(-1).index_select(0, i * shape[0] + j), left.at(i), left.at(j), without_variance)
            return len(i)
        for start in range(0, shape[0], self.strip):
            now = slice(start, start + self.strip)
            self._take_pairs(x[now], left.at((now, None)), right, without_variance)
        return x.numel()

    def _upper(self, size: int) -> tuple[Tensor, Tensor]:
        if self.triangle is None or self.triangle[0] != size:
            self.triangle = size, torch.triu_indices(size, size, offset=1, device=self.points.device)
        i, j = self.triangle[1]
        return i, j

    def _take_pairs(self, x: Tensor, left: _Facts, right: _Facts, without_variance: bool) -> None:
        """All statistics of the pairs whose (1 - cos) / typical is x; x is used up."""
        if not x.numel():
            return
        centred, uncentred = self.wanted
        first, second = (scratch[: x.numel()].view(x.shape) for scratch in self.scratch)
        near = _where_below(x, self.near / self.typical)
        self._again(x, near, left, right, lambda row: self._directions(row, centred=True), 2 * self.typical)
        if centred:
            self.logdist.add_logs(x, first, _apart(x, near))

        torch.mul(x, left.norm * (2 * self.typical), out=first).mul_(right.norm)
        torch.sub(left.norm, right.norm, out=second)
        squares = first.addcmul_(second, second)
        self._again(squares, near, left, right, lambda row: self.points[row])
        if centred:
            self.cosine.add_about_zero(x.sub_(1))
        if uncentred:
            self._take_uncentred(squares, left, right, x, second)
        if self.cdnv is not None:
            apart = _apart(squares, near) if centred else squares > 0
            self._take_cdnv(squares, second, left.variance, right.variance, apart, without_variance)

    def _take_uncentred(self, squares: Tensor, left: _Facts, right: _Facts, chords: Tensor, scratch: Tensor) -> None:
        torch.sub(left.excess, right.excess, out=scratch)
        torch.addcmul(squares, scratch, scratch, value=-1, out=chords)
        near = _where_below(chords, 2 * self.near * self.longest**2)
        if near is not None:
            near = _where_below(chords, self.near * (left.norm.square() + right.norm.square()))
        chords.mul_(left.inverse_length / (2 * self.typical_uncentred)).mul_(right.inverse_length)
        self._again(
            chords, near, left, right, lambda row: self._directions(row, centred=False), 2 * self.typical_uncentred
        )
        self.logdist_uncentred.add_logs(chords, scratch, _apart(chords, near))

    def _take_cdnv(
        self, squares: Tensor, scratch: Tensor, v_i: Tensor, v_j: Tensor, apart: Tensor | None, without_variance: bool
    ) -> None:
        assert self.cdnv is not None
        plain, squared, log = self.cdnv
        if apart is not None:  # coincident points have no CDNV
            v_i, v_j = v_i.expand(squares.shape)[apart], v_j.expand(squares.shape)[apart]
            for total in self.cdnv:
                total.left_out += int(squares.numel() - v_i.numel())
            squares, scratch = squares[apart], torch.empty_like(v_i)
        pairs = squares.numel()
        inverse = squares.reciprocal_()
        term = torch.add(v_i, v_j, out=scratch).mul_(inverse)
        plain.add(term.sum(), pairs)
        squared.add(torch.dot(term.view(-1), inverse.view(-1)), pairs)
        if without_variance:
            log.left_out += pairs
        else:
            log.add(term.log_().sum(), pairs)

    def _directions(self, row: Tensor, *, centred: bool) -> Tensor:
        points = self.points[row] - self.centre if centred else self.points[row]
        return points * _inverse(torch.linalg.vector_norm(points, dim=1))[:, None]

    def _again(
        self,
        values: Tensor,
        near: Tensor | None,
        left: _Facts,
        right: _Facts,
        place: Callable[[Tensor], Tensor],
        unit: float = 1.0,
    ) -> None:
        """Set the values at the flat indices `near` to |place_i - place_j|² / unit."""
        for at in () if near is None else torch.split(near, AGAIN):
            i, j = (side.row.expand(values.shape).reshape(-1)[at] for side in (left, right))
            values.view(-1)[at] = torch.linalg.vector_norm(place(i) - place(j), dim=1).square_().div_(unit)

    def statistics(self) -> PairStatistics:
        centred, uncentred = self.wanted
        # With typical t: cos = 1 - t x, and the log distance is -log(2 t x) / 2.
        shift, shift_uncentred = (-0.5 * math.log(2 * t) for t in (self.typical, self.typical_uncentred))
        cdnv = [None] * 3 if self.cdnv is None else [total.summary(scale=0.5) for total in self.cdnv[:2]]
        return PairStatistics(
            cosine=self.cosine.summary(scale=-self.typical, shift=1 - self.typical) if centred else None,
            logdist=self.logdist.summary(scale=-0.5, shift=shift) if centred else None,
            logdist_uncentred=self.logdist_uncentred.summary(scale=-0.5, shift=shift_uncentred) if uncentred else None,
            cdnv=cdnv[0],
            cdnv_k2=cdnv[1],
            cdnv_log=None if self.cdnv is None else self.cdnv[2].summary(shift=-math.log(2)),
        )


def _inverse(values: Tensor) -> Tensor:
    return torch.where(values > 0, values, 1).reciprocal_()


def _typical_distance(heading: Tensor, classes: int) -> float:
    """Mean of 1 - cos over pairs of unit vectors with the sum `heading`; 1 where rounding leaves nothing of it."""
    mean_cosine = (float(heading.square().sum()) - classes) / (classes * (classes - 1))
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
