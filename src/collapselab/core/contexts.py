"""Contexts and what follows them: how often each next token followed each context, before any feature is known.

A context j is what came before a token; here it is a number. A *cell* is a context with one of its successors. p̂_j is
the empirical next-token distribution of a context, S_j the set of its successors. Everything that needs no feature is
here: entropies, supports, coverage, the kernels of ideal features, and the permutation of the null.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import final

import torch
from torch import Tensor

MOST_KERNEL = 1024
"""Contexts that kernels compare at most; of more, a seeded sample of this size."""
TILE = 4096
"""Columns of a kernel's factor that are in memory at once."""


@final
@dataclass(frozen=True)
class ContextTable:
    """Cells in the order of context and token: which context, which next token, how often.

    Every context from 0 to the largest has a cell. `vocabulary` is the number of tokens that could follow.
    """

    context: Tensor
    token: Tensor
    count: Tensor
    vocabulary: int
    seed: int = 0

    @property
    def cells(self) -> int:
        return len(self.context)

    @cached_property
    def uses(self) -> Tensor:
        """Tokens of each context (contexts,)."""
        return torch.zeros(self.contexts, dtype=torch.int64).index_add_(0, self.context, self.count)

    @cached_property
    def contexts(self) -> int:
        return int(self.context[-1]) + 1 if self.cells else 0

    @cached_property
    def tokens(self) -> int:
        return int(self.count.sum())

    @cached_property
    def sizes(self) -> Tensor:
        """Successors of each context (contexts,)."""
        return torch.bincount(self.context, minlength=self.contexts)

    @cached_property
    def starts(self) -> Tensor:
        """The first cell of each context (contexts,)."""
        return self.sizes.cumsum(0) - self.sizes

    @cached_property
    def shares(self) -> Tensor:
        """p̂ of each cell (cells,)."""
        return self.count.double() / self.uses[self.context].double()

    @cached_property
    def entropy(self) -> float:
        """Σ_j π_j H(p̂_j) in nats, with π_j the share of tokens."""
        return float(-(self.count.double() * self.shares.log()).sum() / max(self.tokens, 1))

    @cached_property
    def coverage(self) -> float:
        """Good and Turing's estimate of the chance that the next successor of these contexts has been seen."""
        return 1 - int((self.count == 1).sum()) / max(self.tokens, 1)

    @cached_property
    def supports(self) -> Tensor:
        """The number of each context's set of successors (contexts,); contexts with the same set have the same."""
        tokens = self.token.numpy()
        numbers: dict[bytes, int] = {}
        support_numbers = torch.zeros(self.contexts, dtype=torch.int64)
        for context, (start, size) in enumerate(zip(self.starts.tolist(), self.sizes.tolist(), strict=True)):
            support_numbers[context] = numbers.setdefault(tokens[start : start + size].tobytes(), len(numbers))
        return support_numbers

    @cached_property
    def other(self) -> Tensor:
        """The null: context j gets the successors of context `other[j]`, one of about as many uses.

        Contexts are exchanged within powers of two of their uses. Exactly equal numbers would leave the most frequent
        contexts in their places; a power with a single context is joined with the one below.
        """
        return exchanged(self.uses, seed=self.seed)

    @cached_property
    def chosen(self) -> Tensor:
        """Contexts that kernels compare."""
        if self.contexts <= MOST_KERNEL:
            return torch.arange(self.contexts)
        generator = torch.Generator().manual_seed(self.seed)
        return torch.randperm(self.contexts, generator=generator)[:MOST_KERNEL].sort().values

    @cached_property
    def chance_kernel(self) -> Tensor:
        """The kernel of ideal features for p̂ (chosen, chosen): see `ideal_kernel`."""
        return ideal_kernel(self._factor_gram(self.shares))

    @cached_property
    def support_kernel(self) -> Tensor:
        """The same for S, whose entries are 1 for a successor."""
        return ideal_kernel(self._factor_gram(torch.ones_like(self.shares)))

    def _factor_gram(self, values: Tensor) -> Tensor:
        """X Xᵀ of the chosen contexts, X the values by context and token times I - 11ᵀ/V."""
        place = torch.full((self.contexts,), -1)
        place[self.chosen] = torch.arange(len(self.chosen))
        rows = place[self.context]
        used = (rows >= 0).nonzero().squeeze(1)
        rows, values = rows[used], values[used]
        columns = torch.unique(self.token[used], return_inverse=True)[1]
        gram = torch.zeros(len(self.chosen), len(self.chosen), dtype=torch.float64)
        totals = torch.zeros(len(self.chosen), dtype=torch.float64).index_add_(0, rows, values)
        for start in range(0, int(columns.max()) + 1, TILE):
            here = ((columns >= start) & (columns < start + TILE)).nonzero().squeeze(1)
            part = torch.zeros(len(self.chosen), TILE, dtype=torch.float64)
            part[rows[here], columns[here] - start] = values[here]
            gram.addmm_(part, part.T)
        return gram - torch.outer(totals, totals) / self.vocabulary


def ideal_kernel(gram: Tensor) -> Tensor:
    """(X Xᵀ)^½, centred over contexts and of norm 1: the kernel of the features U Σ^½, where X = U Σ Vᵀ.

    These are the features, with V Σ^½ as output rows, that make the logits X with the least norm; what gradient descent
    on regularised or long training ends in (arXiv:2408.15417, 2505.08348).
    """
    values, vectors = torch.linalg.eigh(gram)
    # What rounding makes of an eigenvalue of 0 would count as its root, 1e-8 of the largest.
    roots = torch.where(values > 1e-13 * values[-1], values, 0).sqrt()
    root = (vectors * roots) @ vectors.T
    return unit_kernel(root)


def unit_kernel(kernel: Tensor) -> Tensor:
    """The kernel centred in rows and columns, over its norm; zeros where it has none."""
    centred = kernel - kernel.mean(0) - kernel.mean(1, keepdim=True) + kernel.mean()
    norm = centred.norm()
    # Rounding leaves about 1e-15 of the entries where nothing is left.
    return centred / norm if norm > 1e-12 * kernel.norm() else torch.zeros_like(kernel)


def exchanged(uses: Tensor, *, seed: int) -> Tensor:
    """A permutation of contexts within powers of two of their uses."""
    generator = torch.Generator().manual_seed(seed)
    powers = torch.frexp(uses.double()).exponent
    image = torch.arange(len(uses))
    groups = [(powers == power).nonzero().squeeze(1) for power in torch.unique(powers).tolist()]
    joined: list[Tensor] = []
    for group in groups:
        if joined and len(group) == 1:
            joined[-1] = torch.cat([joined[-1], group])
        else:
            joined.append(group)
    for group in joined:
        image[group] = group[torch.randperm(len(group), generator=generator)]
    return image
