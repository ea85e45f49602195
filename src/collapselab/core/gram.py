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

LEAST_SHARE = 1e-3
"""Squares about another point that are a smaller share of those about the reference point have lost digits."""


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
@dataclass
class SharedProducts:
    """Σ μ, Σ μ μᵀ and Σ n μ μᵀ over some classes, with μ their means from a reference point.

    Each of the two matrices can be used once: its memory becomes that of the result.
    """

    classes: Tensor  # (classes,) of bool
    reference: Tensor  # (dim,)
    total: Tensor  # (dim,)
    gram: Tensor | None  # (dim, dim)
    weighted: Tensor | None  # (dim, dim)

    @classmethod
    def of(
        cls, counts: Tensor, among: Tensor, reference: Tensor, sums: Callable[[Tensor], Tensor], *, rows: int
    ) -> Self | None:
        """Those of all counts that many of the classes have, or None where there are none.

        `among` masks the classes that may share, `sums` has n μ of given classes (classes, dim), `rows` at a time.
        """
        frequent, of_each = torch.unique(counts[among], return_counts=True)
        frequent = frequent[of_each >= TOGETHER]
        if not len(frequent):
            return None
        classes, dim = among & torch.isin(counts, frequent), len(reference)
        total, gram, weighted = (reference.new_zeros(shape) for shape in ((dim,), (dim, dim), (dim, dim)))
        of_count = torch.empty_like(gram)
        for count in frequent.tolist():
            of_count.zero_()
            for some in torch.split((classes & (counts == count)).nonzero().squeeze(1), rows):
                shifted = sums(some)
                total.add_(shifted.sum(0), alpha=1 / count)
                add_gram(of_count, shifted)
            gram.add_(of_count, alpha=1 / count**2)
            weighted.add_(of_count, alpha=1 / count)
        return cls(classes, reference, total, gram, weighted)

    def gram_about(self, point: Tensor) -> Tensor | None:
        """Σ (m - point)(m - point)ᵀ of the class means m; None where they lie so close that digits would be lost."""
        gram, self.gram = self.gram, None
        assert gram is not None, "the product was used before"
        offset, trace = point - self.reference, gram.trace()
        gram.addr_(self.total, offset, alpha=-1).addr_(offset, self.total, alpha=-1)
        gram.addr_(offset, offset, alpha=int(self.classes.sum()))
        return gram if gram.trace() > LEAST_SHARE * trace else None

    def taken_from(self, matrix: Tensor) -> Tensor:
        """matrix - Σ n μ μᵀ."""
        weighted, self.weighted = self.weighted, None
        assert weighted is not None, "the product was used before"
        return torch.sub(matrix, weighted, out=weighted)
