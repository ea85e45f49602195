"""Products of rows with themselves, rowsᵀ rows, of which half is computed.

The class means μ are multiplied with themselves twice: Σ μ μᵀ is the scatter between classes, and Σ n μ μᵀ, for classes
of n samples, is what the scatter within them is a difference of. Classes of one count have both from the same product,
and most classes of a text are rare: hundreds have one sample, hundreds two.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self, final

import torch
from torch import Tensor

PANELS = 64, 256
"""Columns of a product of rows with themselves that are computed at once, from and up to: a quarter of them is fastest.
Below twice the first the whole is faster."""

TOGETHER = 512
"""Classes of one count from which they share a product; for fewer, adding the matrix twice takes longer."""


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


@final
@dataclass(frozen=True)
class SharedProducts:
    """Σ μ, Σ μ μᵀ and Σ n μ μᵀ over some classes, with μ their means from the moments' reference point."""

    classes: Tensor  # (classes,) of bool
    total: Tensor  # (dim,)
    gram: Tensor  # (dim, dim)
    weighted: Tensor  # (dim, dim)

    @classmethod
    def of(cls, counts: Tensor, among: Tensor, sums: Callable[[Tensor], Tensor], *, rows: int, dim: int) -> Self | None:
        """Those of all counts that many of the classes have, or None where there are none.

        `among` masks the classes that may share, `sums` has n μ of given classes (classes, dim), `rows` at a time.
        """
        frequent, classes = torch.unique(counts[among], return_counts=True)
        frequent = frequent[classes >= TOGETHER]
        if not len(frequent):
            return None
        matrix = torch.zeros(dim, dim, dtype=torch.float64, device=counts.device)
        shared = cls(among & torch.isin(counts, frequent), torch.zeros_like(matrix[0]), matrix, matrix.clone())
        for count in frequent.tolist():
            of_count = torch.zeros_like(matrix)
            for some in torch.split((shared.classes & (counts == count)).nonzero().squeeze(1), rows):
                shifted = sums(some)
                shared.total.add_(shifted.sum(0), alpha=1 / count)
                add_gram(of_count, shifted)
            shared.gram.add_(of_count, alpha=1 / count**2)
            shared.weighted.add_(of_count, alpha=1 / count)
        return shared

    def about(self, point: Tensor) -> Tensor | None:
        """Σ (μ - point)(μ - point)ᵀ; None where the means lie so close together that the difference has lost digits."""
        cross = torch.outer(self.total, point)
        gram = self.gram - cross - cross.T
        gram.addr_(point, point, alpha=int(self.classes.sum()))
        return gram if gram.trace() > LEAST_SHARE * self.gram.trace() else None


LEAST_SHARE = 1e-3
"""Of the squares about the reference point, those about another point must be more."""
