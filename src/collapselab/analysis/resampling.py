"""Permutation tests of correlations within cells, for many metrics in one matrix product.

Permuting the outcome within cells leaves every cell's mean where it is, so scale can never be what the test finds.
Where the same seeds were used in several cells, a seed that is lucky in one may be lucky in all: then the seeds change
places in all cells at once.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

Floats = NDArray[np.float64]
Codes = NDArray[np.intp]

POWER = 0.8
"""Share of tables in which an effect that is called detectable is found."""
CHUNK = 2_000_000
"""Random numbers in memory at a time."""
TIE = 1e-9
"""Relative: a permuted statistic that only rounding keeps below the observed one counts as equal to it."""


def centred(values: Floats, cells: Codes) -> Floats:
    """Values (models,) or (models, metrics) without their cell's mean."""
    counts = np.bincount(cells)
    columns = values.reshape(len(values), -1)
    sums = np.zeros((len(counts), columns.shape[1]))
    np.add.at(sums, cells, columns)
    return values - (sums / counts[:, None])[cells].reshape(values.shape)


@final
class PermutationTest(NamedTuple):
    """Two-sided p of every column: alone, and after Westfall and Young's step-down correction over its group."""

    p: Floats
    corrected: Floats
    """NaN for a column of no group."""
    deviation: Floats
    """Standard deviation of r over the permutations: what 1 / sqrt(models - cells) is where all are independent."""


def permutation_test(
    x: Floats,
    y: Floats,
    cells: Codes,
    *,
    permutations: int,
    seed: int,
    blocks: Sequence[Codes] | None = None,
    groups: Sequence[Sequence[int]] = (),
) -> PermutationTest:
    """The share of permutations of y within cells with an |r| as large; `blocks` are permuted column by column.

    The observed order counts as one of the permutations, so no p is 0 and none is too small on average. The same seed
    and number of models give the same permutations, whatever else is in the table. All columns see the same ones: so
    the largest |r| of a group has a null distribution too, and with it every column that is not yet rejected (Westfall
    and Young 1993, step-down).
    """
    x, y = centred(x, cells), centred(y, cells)
    x, y = x / np.sqrt((x**2).sum(0)), y / np.sqrt((y**2).sum())
    observed, permuted = _permuted_products(x, y, cells, permutations=permutations, seed=seed, blocks=blocks)
    least = np.abs(observed) * (1 - TIE)
    ordered = [np.asarray(group)[np.argsort(-np.abs(observed[list(group)]), kind="stable")] for group in groups]
    as_large, stepped = (
        np.zeros(len(least), dtype=np.int64),
        [np.zeros(len(group), dtype=np.int64) for group in ordered],
    )
    squares = np.zeros(len(least))
    for products in permuted:
        sizes = np.abs(products)
        as_large += (sizes >= least).sum(0)
        squares += (products**2).sum(0)
        for group, counts in zip(ordered, stepped, strict=True):
            largest = np.maximum.accumulate(sizes[:, group[::-1]], axis=1)[:, ::-1]
            counts += (largest >= least[group]).sum(0)
    corrected = np.full(len(least), np.nan)
    for group, counts in zip(ordered, stepped, strict=True):
        corrected[group] = np.maximum.accumulate((1 + counts) / (1 + permutations))
    return PermutationTest((1 + as_large) / (1 + permutations), corrected, np.sqrt(squares / permutations))


def _permuted_products(
    x: Floats, y: Floats, cells: Codes, *, permutations: int, seed: int, blocks: Sequence[Codes] | None
) -> tuple[Floats, Iterator[Floats]]:
    """yᵀx of the centred values as they are, and chunk by chunk with y permuted."""
    order = np.argsort(cells, kind="stable") if blocks is None else np.arange(len(cells))
    x, y, cells = centred(x, cells)[order], centred(y, cells)[order], cells[order]
    rng = np.random.default_rng(seed)

    def permuted() -> Iterator[Floats]:
        for count in _chunks(permutations, len(y)):
            if blocks is None:
                shuffled = np.argsort(cells + rng.random((count, len(y))), axis=1)  # integers: none leaves its cell
            else:
                shuffled = jointly(blocks, len(y), count, rng)
            yield y[shuffled] @ x

    return y @ x, permuted()


def jointly(blocks: Sequence[Codes], models: int, count: int, rng: np.random.Generator) -> Codes:
    """Orders of the models in which the columns of each block (cells, seeds) change places in all its rows alike."""
    shuffled = np.tile(np.arange(models), (count, 1))
    for block in blocks:
        columns = np.argsort(rng.random((count, block.shape[1])), axis=1)
        for row in block:
            shuffled[:, row] = row[columns]
    return shuffled


def _chunks(total: int, width: int) -> list[int]:
    size = max(1, CHUNK // width)
    return [min(size, total - start) for start in range(0, total, size)]


def detectable(models: float, *, cells: int = 1, alpha: float = 0.05, power: float = POWER) -> float:
    """The smallest |r| within cells that a two-sided test finds with this power (Fisher's z). NaN: too few models."""
    freedom = models - cells - 2
    return float(np.tanh(effect_in_z(alpha, power) / np.sqrt(freedom))) if freedom > 0 else np.nan


def effect_in_z(alpha: float, power: float) -> float:
    """Standard errors that an effect must have for a two-sided test of this level to find it with this power."""
    return float(norm.isf(alpha / 2) + norm.ppf(power))
