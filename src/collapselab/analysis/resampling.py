"""Correlations within cells, their permutation tests and bootstrap intervals, for many metrics in one matrix product.

A correlation within cells is that of what is left when each cell's mean is subtracted. One cell of all models: the
plain correlation. Permuting the outcome within cells leaves every cell's mean where it is, so scale can never be what
the test finds.
"""

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, rankdata

Floats = NDArray[np.float64]
Codes = NDArray[np.intp]

CHUNK = 2_000_000
"""Random numbers in memory at a time."""
SMALLEST_BOOTSTRAP = 5
"""Fewer units than this have no interval worth printing."""
TIE = 1e-9
"""Relative: a permuted statistic that only rounding keeps below the observed one counts as equal to it."""


def centred(values: Floats, cells: Codes) -> Floats:
    """Values (models,) or (models, metrics) without their cell's mean."""
    counts = np.bincount(cells)
    columns = values.reshape(len(values), -1)
    sums = np.zeros((len(counts), columns.shape[1]))
    np.add.at(sums, cells, columns)
    return values - (sums / counts[:, None])[cells].reshape(values.shape)


def correlation(x: Floats, y: Floats, cells: Codes) -> Floats:
    """Pearson correlation within cells of each column of x with y."""
    x, y = centred(x, cells), centred(y, cells)
    r: Floats = (y @ x) / np.sqrt((x**2).sum(0) * (y**2).sum())
    return np.clip(r, -1, 1)


def rank_correlation(x: Floats, y: Floats, cells: Codes) -> Floats:
    """Spearman correlation within cells: ranks are of a model among those of its cell."""
    ranks_x, ranks_y = np.empty_like(x), np.empty_like(y)
    for cell in np.unique(cells):
        members = cells == cell
        ranks_x[members], ranks_y[members] = rankdata(x[members], axis=0), rankdata(y[members])
    return correlation(ranks_x, ranks_y, cells)


def permutation_p(x: Floats, y: Floats, cells: Codes, *, permutations: int, seed: int) -> Floats:
    """Two-sided p of each column of x with y: the share of permutations of y within cells with an |r| as large.

    The observed order counts as one of the permutations, so no p is 0 and none is too small on average. The same seed
    and number of models give the same permutations, whatever else is in the table.
    """
    observed, permuted = _permuted_products(x, y, cells, permutations=permutations, seed=seed)
    least = np.abs(observed) * (1 - TIE)
    as_large = np.zeros(x.shape[1], dtype=np.int64)
    for products in permuted:
        as_large += (np.abs(products) >= least).sum(0)
    p: Floats = (1 + as_large) / (1 + permutations)
    return p


def permuted_correlations(x: Floats, y: Floats, cells: Codes, *, permutations: int, seed: int) -> Floats:
    """r of x (models,) with every permutation of y within cells: those that `permutation_p` of the same seed counts."""
    _, permuted = _permuted_products(x[:, None], y, cells, permutations=permutations, seed=seed)
    left_x, left_y = centred(x, cells), centred(y, cells)
    r: Floats = np.concatenate(list(permuted))[:, 0] / np.sqrt((left_x @ left_x) * (left_y @ left_y))
    return r


def _permuted_products(
    x: Floats, y: Floats, cells: Codes, *, permutations: int, seed: int
) -> tuple[Floats, Iterator[Floats]]:
    """yᵀx of the centred values as they are, and chunk by chunk with y permuted within cells."""
    order = np.argsort(cells, kind="stable")
    x, y, cells = centred(x, cells)[order], centred(y, cells)[order], cells[order]
    rng = np.random.default_rng(seed)

    def permuted() -> Iterator[Floats]:
        for count in _chunks(permutations, len(y)):
            shuffled = np.argsort(
                cells + rng.random((count, len(y))), axis=1
            )  # cells are integers: none leaves its own
            yield y[shuffled] @ x

    return y @ x, permuted()


def bootstrap_interval(
    x: Floats, y: Floats, units: Codes, *, draws: int | None = None, resamples: int, seed: int
) -> tuple[Floats, Floats]:
    """95 % percentile interval of the correlation of each column of x with y, drawing whole units with replacement.

    Units are what is independent: architectures where several models share one, models in a cell of seeds. NaN where
    there are too few.
    """
    total = int(units.max()) + 1
    if total < SMALLEST_BOOTSTRAP:
        return np.full(x.shape[1], np.nan), np.full(x.shape[1], np.nan)
    rng = np.random.default_rng(seed)
    products = np.concatenate([x, x**2, x * y[:, None], y[:, None], y[:, None] ** 2], axis=1)
    sums = np.zeros((total, products.shape[1]))
    np.add.at(sums, units, products)
    sizes = np.bincount(units).astype(float)
    draws = total if draws is None else draws
    values = []
    for count in _chunks(resamples, total):
        weights = rng.multinomial(draws, np.full(total, 1 / total), size=count).astype(float)
        values.append(_weighted_correlation(weights @ sums, (weights @ sizes)[:, None], x.shape[1]))
    low, high = np.nanpercentile(np.concatenate(values), [2.5, 97.5], axis=0)
    return low, high


def _weighted_correlation(sums: Floats, sizes: Floats, metrics: int) -> Floats:
    x, xx, xy = (sums[:, i * metrics : (i + 1) * metrics] / sizes for i in range(3))
    y, yy = sums[:, -2:-1] / sizes, sums[:, -1:] / sizes
    spread_x, spread_y = xx - x**2, yy - y**2
    spread_x[spread_x < 1e-12 * xx] = np.nan  # a resample of one model again and again has no correlation
    spread_y[spread_y < 1e-12 * yy] = np.nan
    r: Floats = (xy - x * y) / np.sqrt(spread_x * spread_y)
    return r


def _chunks(total: int, width: int) -> list[int]:
    size = max(1, CHUNK // width)
    return [min(size, total - start) for start in range(0, total, size)]


def detectable(models: int, *, cells: int = 1, alpha: float = 0.05, power: float = 0.8) -> float:
    """The smallest |r| within cells that a two-sided test finds with this power (Fisher's z). NaN: too few models."""
    freedom = models - cells - 2
    return float(np.tanh(_effect(alpha, power) / np.sqrt(freedom))) if freedom > 0 else np.nan


def models_needed(r: float, *, alpha: float = 0.05, power: float = 0.8) -> int | None:
    """Models of one cell in which a correlation of r would be found with this power. None: no number is enough."""
    if r == 0:
        return None
    return math.ceil((_effect(alpha, power) / math.atanh(min(abs(r), 1 - 1e-12))) ** 2 + 3)


def _effect(alpha: float, power: float) -> float:
    return float(norm.isf(alpha / 2) + norm.ppf(power))
