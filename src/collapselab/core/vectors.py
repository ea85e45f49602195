"""The rows of a table as float64, some at a time; and Gram matrices, of which half is computed.

Class means are sums over counts, and an output layer is stored in fewer bits. Neither is ever held a second time as
float64: whoever needs rows takes a block of them, or those of an index.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

BLOCK_BYTES = 4 << 20
"""Size of the blocks of rows that are taken at once."""


class Vectors:
    """table[chosen] / divisors in float64, computed where it is asked for."""

    def __init__(self, table: Tensor, *, chosen: Tensor | None = None, divisors: Tensor | None = None) -> None:
        self._table, self._chosen, self._divisors = table, chosen, divisors

    def __len__(self) -> int:
        return len(self._table) if self._chosen is None else len(self._chosen)

    @property
    def dim(self) -> int:
        return self._table.shape[1]

    @property
    def device(self) -> torch.device:
        return self._table.device

    def at(self, index: Tensor | slice) -> Tensor:
        """These rows, in memory of their own."""
        place = index if self._chosen is None else self._chosen[index]
        rows = self._table[place].to(torch.float64, copy=isinstance(place, slice))
        return rows if self._divisors is None else rows.div_(self._divisors[index, None])

    def blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """All rows, a block at a time."""
        step = max(1, BLOCK_BYTES // (8 * self.dim))
        for start in range(0, len(self), step):
            rows = slice(start, min(start + step, len(self)))
            yield rows, self.at(rows)

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
