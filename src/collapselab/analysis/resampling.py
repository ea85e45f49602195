"""Permutation tests within cells for many metrics in one matrix product, and intervals of correlations and slopes.

Permuting the outcome within cells leaves every cell's mean where it is, so scale can never be what the test finds.
Cells are standardised, so that none counts for more because its runs differ more. Where the same seeds were used in
several cells or for several runs of a cell, a seed that is lucky in one may be lucky in all: then the seeds change
places in all of them at once; where seeds and data seeds are crossed, both do.

Independent models have intervals by Fisher's z and by the t of least squares. Clusters (architectures, runs, seeds that
several cells share) are left out in turn: the spread of what is then found is the error, which needs no assumption
about how alike the models of a cluster are and stays honest with few clusters (the jackknife, CR3 of MacKinnon, Nielsen
& Webb 2023, doi:10.1002/jae.2969).
"""

from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm
from scipy.stats import t as student

Floats = NDArray[np.float64]
Codes = NDArray[np.intp]

LEVEL = 0.05
POWER = 0.8
"""Share of tables in which an effect that is called detectable is found."""
CHUNK = 2_000_000
"""Random numbers in memory at a time."""
TIE = 1e-9
"""Relative: a permuted statistic that only rounding keeps below the observed one counts as equal to it."""
MIN_UNITS = 5
"""Models or clusters that an interval needs."""
MAX_EXACT = 12
"""Units of which every sign pattern is used."""
LARGEST = 1 - 1e-12
"""An |r| above this is taken as this: Fisher's z of 1 is infinite."""


def centred(values: Floats, cells: Codes) -> Floats:
    """Values (models,) or (models, metrics) without their cell's mean."""
    counts = np.bincount(cells)
    columns = values.reshape(len(values), -1)
    sums = np.zeros((len(counts), columns.shape[1]))
    np.add.at(sums, cells, columns)
    return values - (sums / counts[:, None])[cells].reshape(values.shape)


def standardised(values: Floats, cells: Codes) -> Floats:
    """Values without their cell's mean, in standard deviations of their cell; 0 where all of a cell are the same.

    In a cell of two only the sign of the difference is left.
    """
    left = centred(values, cells)
    squares = (left**2).reshape(len(left), -1)
    freedom = np.maximum(np.bincount(cells) - 1, 1)[:, None]
    sums = np.zeros((len(freedom), squares.shape[1]))
    np.add.at(sums, cells, squares)
    spread = np.sqrt(sums / freedom)[cells].reshape(left.shape)
    varies = spread > 1e-12 * np.abs(values).max(axis=0, initial=0)
    return np.where(varies, left / np.where(varies, spread, 1.0), 0.0)


class PermutationTest(NamedTuple):
    """Two-sided p of every column."""

    p: Floats
    deviation: Floats
    """Standard deviation of r over the permutations: what 1 / sqrt(models - cells) is where all are independent."""


def permutation_test(
    x: Floats, y: Floats, cells: Codes, *, permutations: int, seed: int, factors: Sequence[Sequence[Codes]] = ()
) -> PermutationTest:
    """The share of permutations of y within cells with an |r| as large; `factors` say what changes places instead.

    Each factor is a list of blocks whose columns change places (see `jointly`), such as seeds and data seeds. The
    observed order counts as one of the permutations, so no p is 0 and none is too small on average. The same seed and
    number of models give the same permutations, whatever else is in the table.
    """
    order = np.arange(len(cells)) if factors else np.argsort(cells, kind="stable")
    x, y, cells = standardised(x, cells)[order], standardised(y, cells)[order], cells[order]
    x, y = x / np.sqrt((x**2).sum(0)), y / np.sqrt((y**2).sum())
    least, rng = np.abs(y @ x) * (1 - TIE), np.random.default_rng(seed)
    as_large, squares = np.zeros(len(least), dtype=np.int64), np.zeros(len(least))
    size = max(1, CHUNK // len(y))
    for start in range(0, permutations, size):
        count = min(size, permutations - start)
        if factors:
            shuffled = np.tile(np.arange(len(y)), (count, 1))
            for blocks in factors:
                shuffled = np.take_along_axis(shuffled, jointly(blocks, len(y), count, rng), axis=1)
        else:
            shuffled = np.argsort(cells + rng.random((count, len(y))), axis=1)  # integers: none leaves its cell
        products = y[shuffled] @ x
        as_large += (np.abs(products) >= least).sum(0)
        squares += (products**2).sum(0)
    return PermutationTest((1 + as_large) / (1 + permutations), np.sqrt(squares / permutations))


def jointly(blocks: Sequence[Codes], models: int, count: int, rng: np.random.Generator) -> Codes:
    """Orders of the models in which the columns of each block (runs, seeds) change places in all its rows alike."""
    shuffled = np.tile(np.arange(models), (count, 1))
    for block in blocks:
        columns = np.argsort(rng.random((count, block.shape[1])), axis=1)
        for row in block:
            shuffled[:, row] = row[columns]
    return shuffled


def sign_patterns(units: int, permutations: int, seed: int) -> tuple[Floats, bool]:
    """Sign patterns (patterns, units): all of them, or drawn; and whether they are all."""
    if units <= MAX_EXACT:
        bits = np.arange(2**units)[:, None] >> np.arange(units) & 1
        return np.asarray(1.0 - 2.0 * bits), True
    return np.random.default_rng(seed).choice([-1.0, 1.0], size=(permutations, units)), False


def step_down(observed: Floats, null: Floats, *, exact: bool) -> tuple[Floats, Floats]:
    """Two-sided p of statistics (tests,) among those of permutations (permutations, tests), alone and corrected.

    Each is compared with the largest of those that are not larger than it under the same permutation; `exact`: the
    permutations are all there are, the observed one among them.

    Westfall & Young (1993), Resampling-based multiple testing, algorithm 2.8.
    """
    sizes, least = np.abs(null), np.abs(observed) * (1 - TIE)
    more, total = (0, len(null)) if exact else (1, len(null) + 1)
    order = np.argsort(-least, kind="stable")
    largest = np.maximum.accumulate(sizes[:, order[::-1]], axis=1)[:, ::-1]
    corrected = np.empty(len(least))
    corrected[order] = np.maximum.accumulate((more + (largest >= least[order]).sum(0)) / total)
    return (more + (sizes >= least).sum(0)) / total, corrected


class Corrected(NamedTuple):
    """A p after the corrections over its family, and the number of tests in that family."""

    holm: float
    family_size: int


def corrections(tests: Iterable[tuple[Hashable, float | None]]) -> dict[int, Corrected]:
    """The corrected p of every test that has one, by its place; a test is given as its family and its p."""
    families: dict[Hashable, dict[int, float]] = {}
    for place, (family, p) in enumerate(tests):
        if p is not None:
            families.setdefault(family, {})[place] = p
    found = {}
    for tested in families.values():
        for place, p_holm in zip(tested, holm(list(tested.values())), strict=True):
            found[place] = Corrected(p_holm, len(tested))
    return found


def holm(p: Sequence[float]) -> list[float]:
    """Holm's adjusted p: the i-th smallest of n times n - i, never smaller than the one before, at most 1.

    statsmodels' `multipletests` collects the whole program's garbage at every call, which takes 0.2 s beside torch and
    would double the time of an analysis; a test compares the two.
    """
    values = np.asarray(p, dtype=float)
    order = np.argsort(values)
    stepped = np.maximum.accumulate(values[order] * np.arange(len(values), 0, -1))
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(stepped, 1.0)
    return [float(value) for value in adjusted]


def detectable(models: float) -> float:
    """The smallest |r| in one cell that a two-sided test finds with the power `POWER` (Fisher's z); NaN: too few."""
    return float(np.tanh(effect_in_z(LEVEL) / np.sqrt(models - 3))) if models > 3 else np.nan


def effect_in_z(alpha: float) -> float:
    """Standard errors that an effect must have for a two-sided test of this level to find it with the power `POWER`."""
    return float(norm.isf(alpha / 2) + norm.ppf(POWER))


class Interval(NamedTuple):
    """The ends of a 95 % interval; NaN where there is none."""

    low: float
    high: float


NONE = Interval(np.nan, np.nan)


class LeftOut(NamedTuple):
    """Slope and correlation with each cluster left out in turn, the controls fitted again each time."""

    slopes: Floats
    correlations: Floats


def fisher_interval(r: float, freedom: int) -> Interval:
    """Of r among independent models; `freedom` is models - cells - 2, which is n - 3 in one cell."""
    if freedom + 3 < MIN_UNITS:
        return NONE
    z, half = np.arctanh(np.clip(r, -LARGEST, LARGEST)), norm.isf(LEVEL / 2) / np.sqrt(freedom)
    return Interval(float(np.tanh(z - half)), float(np.tanh(z + half)))


def slope_interval(slope: float, r: float, freedom: int) -> Interval:
    """Of the slope of least squares among independent models, with these degrees of freedom."""
    if freedom + 2 < MIN_UNITS or r == 0:
        return NONE
    error = abs(slope / r) * np.sqrt(max(0.0, 1 - r**2) / freedom)
    half = float(student.isf(LEVEL / 2, freedom) * error)
    return Interval(slope - half, slope + half)


def left_out(x: Floats, y: Floats, basis: Floats, clusters: Codes) -> LeftOut:
    """What the clusters leave when each is left out; x and y are what the controls leave of metric and outcome.

        x_(g) · y_(g) = x · y - x_g · (I - H_gg)⁺ y_g      with H = basis basisᵀ, an orthonormal basis of the controls

    so that no regression is fitted twice. The pseudo-inverse is for controls that a cluster alone determines.
    """
    total = int(clusters.max()) + 1
    pairs = ((x, y), (x, x), (y, y))
    products = np.tile([first @ second for first, second in pairs], (total, 1))
    for cluster in range(total):
        members = np.flatnonzero(clusters == cluster)
        block = basis[members]
        inverse = np.linalg.pinv(np.eye(len(members)) - block @ block.T, rcond=1e-9, hermitian=True)
        products[cluster] -= [first[members] @ inverse @ second[members] for first, second in pairs]
    xy, xx, yy = products.T
    xx, yy = np.maximum(xx, 0), np.maximum(yy, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return LeftOut(xy / xx, np.clip(xy / np.sqrt(xx * yy), -LARGEST, LARGEST))


def clustered_interval(r: float, without: Floats) -> Interval:
    """Of r, from the r with each cluster left out, on the scale of Fisher's z."""
    z = clustered_slope_interval(float(np.arctanh(np.clip(r, -LARGEST, LARGEST))), np.arctanh(without))
    return Interval(float(np.tanh(z.low)), float(np.tanh(z.high)))


def clustered_slope_interval(slope: float, without: Floats) -> Interval:
    """Of a slope, from the slopes with each cluster left out: the spread of these is the error."""
    total = len(without)
    if total < MIN_UNITS or not np.isfinite(without).all():
        return NONE
    error = np.sqrt((total - 1) / total * ((without - slope) ** 2).sum())
    half = float(student.isf(LEVEL / 2, total - 1) * error)
    return Interval(slope - half, slope + half)
