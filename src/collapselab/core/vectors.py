"""The rows of a table as float64, some at a time; and Gram matrices, of which half is computed.

Class means are sums over counts, and an output layer is stored in fewer bits. Neither is ever held a second time as
float64: whoever needs rows takes a block of them, or those of an index.
"""

import math
from collections.abc import Iterator
from typing import final

import torch
from torch import Tensor

BLOCK_BYTES = 4 << 20
"""Size of the blocks of rows that are taken at once."""


@final
class Vectors:
    """table[chosen] / divisors / unit in float64, computed where it is asked for."""

    def __init__(
        self, table: Tensor, *, chosen: Tensor | None = None, divisors: Tensor | None = None, unit: float = 1.0
    ) -> None:
        if chosen is not None and (rows := _neighbours(chosen)) is not None:
            table, chosen = table[rows], None
        self._table, self._chosen, self._divisors, self._unit = table, chosen, divisors, unit

    def __len__(self) -> int:
        return len(self._table) if self._chosen is None else len(self._chosen)

    @property
    def dim(self) -> int:
        return self._table.shape[1]

    @property
    def device(self) -> torch.device:
        return self._table.device

    def over(self, unit: float) -> "Vectors":
        """Return the same rows divided by a unit."""
        return Vectors(self._table, chosen=self._chosen, divisors=self._divisors, unit=self._unit * unit)

    def at(self, index: Tensor | slice) -> Tensor:
        """These rows, in memory of their own."""
        place = index if self._chosen is None else self._chosen[index]
        taken = self._table[place] if isinstance(place, slice) else self._table.index_select(0, place)
        rows = taken.double()
        out = None if isinstance(place, slice) and rows is taken else rows  # where it is no view of the table
        if self._divisors is not None:
            return torch.div(rows, self._divisors[index, None].double() * self._unit, out=out)
        return torch.mul(rows, 1 / self._unit, out=out)

    def blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """All rows, a block at a time."""
        for start in range(0, len(self), self._step):
            now = slice(start, min(start + self._step, len(self)))
            yield now, self.at(now)

    @property
    def _step(self) -> int:
        return max(1, BLOCK_BYTES // (8 * self.dim))

    def mean(self) -> Tensor:
        """The unweighted mean of all rows (dim,)."""
        return torch.stack([block.sum(0) for _, block in self.blocks()]).sum(0) / len(self)

    def lengths(self) -> Tensor:
        """Euclidean length of each row."""
        return torch.cat([torch.linalg.vector_norm(block, dim=1) for _, block in self.blocks()])


def squared_lengths(rows: Tensor) -> Tensor:
    """Squared Euclidean length of each row."""
    lengths: Tensor = torch.linalg.vector_norm(rows, dim=1)
    return lengths.square_()


def power_of_two_above(values: Tensor) -> float:
    """Return 2^k with the largest |value| in [2^(k-1), 2^k), by which dividing is exact; 1 where all are 0."""
    low, high = torch.aminmax(values)
    _, exponent = math.frexp(max(-float(low), float(high)))
    return 2.0**exponent


def _neighbours(chosen: Tensor) -> slice | None:
    """The chosen rows as a slice, where they follow one another: it need not be copied to be read."""
    first, last = (int(chosen[0]), int(chosen[-1])) if len(chosen) else (0, -1)
    follow = last - first + 1 == len(chosen) and bool((chosen.diff() == 1).all())
    return slice(first, last + 1) if follow else None


MIN_PANEL, MAX_PANEL = 64, 256
"""Columns of a Gram matrix that are computed at once; a quarter of them is fastest, and below twice the minimum all."""


def gram_of(rows: Tensor) -> Tensor:
    """rowsᵀ rows (dim, dim)."""
    gram = rows.new_zeros(rows.shape[1], rows.shape[1])
    add_gram(gram, rows)
    return gram


def add_gram(gram: Tensor, rows: Tensor, *, alpha: float = 1.0) -> None:
    """gram += alpha · rowsᵀ rows for a symmetric matrix (dim, dim), of which half is computed and copied."""
    dim = len(gram)
    if dim < 2 * MIN_PANEL:
        gram.addmm_(rows.T, rows, alpha=alpha)
        return
    panel = max(MIN_PANEL, min(dim // 4, MAX_PANEL))
    for start in range(0, dim, panel):
        stop = min(start + panel, dim)
        gram[start:stop, start:].addmm_(rows[:, start:stop].T, rows[:, start:], alpha=alpha)
        gram[stop:, start:stop] = gram[start:stop, stop:].T
