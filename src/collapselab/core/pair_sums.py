"""Running sums over pairs, and the means and standard deviations that they give."""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

GROUPS = 8, 4, 2
"""Numbers whose product is formed before a logarithm is taken: one logarithm costs as much as eight products."""


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

    def values(self) -> list[float]:
        """Every mean and standard deviation there is."""
        families = (self.cosine, self.logdist, self.logdist_uncentred, self.cdnv, self.cdnv_k2, self.cdnv_log)
        return [value for family in families if family for value in (family.mean, family.std) if not math.isnan(value)]


@dataclass
class Total:
    """Running sums over pairs."""

    sum: float = 0.0
    squares: float = 0.0
    pairs: int = 0
    left_out: int = 0

    def add(self, sum: float, pairs: int, squares: float = math.nan) -> None:
        self.sum += sum
        self.squares += squares
        self.pairs += pairs

    def merge(self, other: "Total") -> None:
        self.add(other.sum, other.pairs, other.squares)
        self.left_out += other.left_out

    def halved(self) -> "Total":
        """Of pairs that were each added twice."""
        return Total(self.sum / 2, self.squares / 2, self.pairs // 2, self.left_out // 2)

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
    pairs: int = 0

    def totals(self) -> tuple[Total, ...]:
        return self.cosine, self.logdist, self.logdist_uncentred, self.cdnv, self.cdnv_k2, self.cdnv_log

    def merge(self, other: "Sums") -> None:
        for ours, theirs in zip(self.totals(), other.totals(), strict=True):
            ours.merge(theirs)
        self.pairs += other.pairs

    def halved(self) -> "Sums":
        """Of pairs that were each added twice."""
        cosine, logdist, uncentred, cdnv, cdnv_k2, cdnv_log = (total.halved() for total in self.totals())
        return Sums(cosine, logdist, uncentred, cdnv, cdnv_k2, cdnv_log, self.pairs // 2)


def sum_of(values: Tensor) -> float:
    """Along rows in the precision of the values, which are few a row, then in float64."""
    return float(values.sum(-1).sum(dtype=torch.float64))


def sum_of_squares(values: Tensor) -> float:
    """As `sum_of`."""
    return float(torch.linalg.vector_norm(values, dim=-1).double().square_().sum())


def sum_of_logs(values: Tensor) -> float:
    """Σ log of positive values, by logarithms of products of up to eight of them, as many as the exponent can hold."""
    flat = values.reshape(-1)
    if not len(flat):
        return 0.0
    low, high = (float(value) for value in torch.aminmax(flat))
    widest = max(-math.log2(low), math.log2(high)) if 0 < low <= high < math.inf else math.inf
    room = math.log2(torch.finfo(flat.dtype).max) - 4
    group = next((size for size in GROUPS if size * widest < room), 1)
    whole = len(flat) // group * group
    logs = flat[:whole].view(group, -1).prod(0).log_()
    return sum_of(logs) + sum_of(flat[whole:].log())
