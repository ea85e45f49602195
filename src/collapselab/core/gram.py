"""Products of rows with themselves, rowsᵀ rows, of which half is computed."""

from torch import Tensor

PANELS = 64, 256
"""Columns of a product of rows with themselves that are computed at once, from and up to: a quarter of them is fastest.
Below twice the first the whole is faster."""


def gram_of(rows: Tensor) -> Tensor:
    """rowsᵀ rows (dim, dim)."""
    gram = rows.new_zeros(rows.shape[1], rows.shape[1])
    add_gram(gram, rows)
    return gram


def add_gram(gram: Tensor, rows: Tensor, *, alpha: float = 1.0) -> None:
    """gram += alpha · rowsᵀ rows for a symmetric matrix (dim, dim), of which half is computed and copied."""
    dim, (least, most) = len(gram), PANELS
    if dim < 2 * least:
        gram.addmm_(rows.T, rows, alpha=alpha)
        return
    panel = max(least, min(dim // 4, most))
    for start in range(0, dim, panel):
        stop = min(start + panel, dim)
        gram[start:stop, start:].addmm_(rows[:, start:stop].T, rows[:, start:], alpha=alpha)
        gram[stop:, start:stop] = gram[start:stop, stop:].T
