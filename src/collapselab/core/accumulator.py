"""Count, sum and scatter of every class, and how part of a batch is added to them.

A class with n samples h has the sum T = Σh and the scatter S = Σ|h - T/n|². Its scatter is held in one of two ways.

*Shifted*: as Q = Σ|h - r|² about a reference point r that all classes share, so that a token costs one addition:

    S = Q - |T - n r|² / n

This is a difference, and loses digits where S is a small share of Q. The share is checked whenever the count of the
class reaches 2, 8, 32 and so on; between two checks it cannot fall below a thirteenth of what it was.

*Direct*: as S itself, for a class whose share was found too small. With m samples held (T_A, S_A) and n more (T_B, S_B)

    S = S_A + S_B + m / (n (m + n)) |T_B - (n/m) T_A|²

All terms are positive and nothing cancels, however far from the origin or however narrow the class is (Chan, Golub &
LeVeque 1983, The American Statistician 37(3), 242-247). A class becomes direct as it was before the part that showed
its share to be small; then that part is added by the formula. It stays direct.

A batch is added part by part. What follows from its labels and counts alone (`Arrivals`), and what is computed from its
features without their labels (`Part`), is found once for all accumulators that take the batch.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from collapselab.core.vectors import add_gram, gram_of, squared_lengths

SHARE = 1e-3
"""A class whose scatter is a smaller share of its squares about the reference point becomes direct."""


PART_BYTES = {"cpu": 12 << 20, "cuda": 256 << 20}
"""Size in float64 of the part of a batch that is processed at once: on a CPU it should stay in the cache."""

SAMPLE = 1024
"""Features from which the mean squared length of all is estimated."""


CHECKS = 2 * 4 ** torch.arange(31)
"""Counts at which a class is checked: 2, 8, 32 and so on."""


@final
@dataclass(frozen=True)
class Part:
    """Features in float64 (tokens, dim), their offsets from a reference point, |offset|², offsetsᵀ offsets, Σ h/|h|.

    Only the product may be in float32: what is summed up of it is float64.
    """

    features: Tensor
    offsets: Tensor
    squares: Tensor
    product: Tensor | None
    directions: Tensor | None


@final
@dataclass(frozen=True)
class Arrived:
    """Labels (tokens,), the counts of their classes before and after the batch, and the classes due for a check.

    A class is due whenever its count reaches one of `CHECKS`. `due` is in ascending order; `due_tokens` are the
    tokens of each of these classes among the labels.
    """

    labels: Tensor
    before: Tensor
    after: Tensor
    due: Tensor
    due_tokens: Tensor


@final
@dataclass
class Accumulator:
    """Count and sum of every class; its squares Q about the reference point, or its scatter S where it is direct.

    `matrix`, if held, is Σ(h - r)(h - r)ᵀ over the tokens of shifted classes plus the scatter matrices of the direct;
    `total` is Σ(h - r)(h - r)ᵀ over all tokens.
    """

    counts: Tensor  # (classes,)
    sums: Tensor  # (classes, dim)
    squares: Tensor  # (classes,), Q or S
    direct: Tensor  # (classes,) of bool
    reference: Tensor | None = None  # (dim,), the r above, chosen with the first batch
    matrix: Tensor | None = None  # (dim, dim)
    directions: Tensor | None = None  # (dim,), Σ h/|h| over all tokens; None where some were added without it
    total: Tensor | None = None  # (dim, dim); None where some tokens were added without it

    def add(self, part: Part, arrived: Arrived) -> None:
        """Add the tokens of a part, which are counted already; its offsets are from the reference point."""
        labels, due, due_tokens = arrived.labels, arrived.due, arrived.due_tokens
        is_direct = self.direct.index_select(0, labels)  # of each token's class
        squares, direct = part.squares, is_direct.nonzero().squeeze(1)
        if len(direct):
            classes, tokens = torch.unique(labels[direct], return_counts=True)
            count_a, sum_a = self.counts[classes] - tokens, self.sums.index_select(0, classes)
            squares = squares.masked_fill(is_direct, 0)
            self.squares.index_add_(0, classes, self._gain(part, labels, direct, count_a, sum_a))
            is_shifted = ~self.direct.index_select(0, due)
            due, due_tokens = due[is_shifted], due_tokens[is_shifted]
        squares_before = self.squares.index_select(0, due)

        add_rows(self.squares, labels, squares)
        add_rows(self.sums, labels, part.features)
        if len(due):
            self._check_share(part, labels, due, due_tokens, squares_before)
        if self.matrix is not None and part.product is not None:
            self.matrix.add_(part.product)
        if self.total is not None and part.product is not None:
            self.total.add_(part.product)
        if self.directions is not None and part.directions is not None:
            self.directions.add_(part.directions)

    def join(self, classes: Tensor, counts: Tensor, sums: Tensor, scatter: Tensor) -> None:
        """Add samples of different classes by their counts, sums and scatter; the classes become direct."""
        count_a = self.counts.index_select(0, classes)
        sum_a = self.sums.index_select(0, classes)
        self.squares.index_add_(0, classes, self._between(count_a, sum_a, counts, sums).add_(scatter))
        self.counts.index_add_(0, classes, counts)
        self.sums.index_add_(0, classes, sums)
        self.direct.index_fill_(0, classes, True)

    def total_about(self, point: Tensor) -> Tensor | None:
        """Σ(h - point)(h - point)ᵀ over all tokens (dim, dim), or None where it is not held."""
        if self.total is None or self.reference is None:
            return self.total
        tokens, offset = int(self.counts.sum()), self.reference - point
        cross = torch.outer(offset, self.sums.sum(0).sub_(self.reference, alpha=tokens))
        return self.total + cross + cross.T + tokens * torch.outer(offset, offset)

    def scatter(self) -> Tensor:
        """S of every class (classes,)."""
        scatter = self.squares.clone()
        for classes in self._shifted_classes():
            scatter[classes] -= squared_lengths(self._shifted_sums(classes)) / self.counts[classes]
        # One sample has no scatter, and a value below zero is rounding.
        return torch.where(self.counts > 1, scatter, 0.0).clamp_(min=0)

    def scatter_matrix(self) -> Tensor | None:
        """Scatter matrix within classes, summed over them (dim, dim), or None where it is not held."""
        if self.matrix is None:
            return None
        matrix = self.matrix.clone()
        for classes in self._shifted_classes():
            shifted = self._shifted_sums(classes)
            add_gram(matrix, shifted / self.counts[classes].double().sqrt()[:, None], alpha=-1)
        return (matrix + matrix.T) / 2  # rounding left it not quite symmetric

    def make_direct(self) -> None:
        """Hold the scatter of every class directly."""
        self.squares, self.matrix = self.scatter(), self.scatter_matrix()
        self.direct = self.counts > 0

    def _gain(self, part: Part, labels: Tensor, chosen: Tensor, count_a: Tensor, sum_a: Tensor) -> Tensor:
        """What the scatter of the chosen tokens' classes, in ascending order, gains by these tokens.

        `count_a` and `sum_a` are those of the classes before the part; `sum_a` is overwritten.
        """
        features = part.features.index_select(0, chosen)
        classes, index, count_b = torch.unique(labels[chosen], return_inverse=True, return_counts=True)
        sum_b = torch.zeros(len(classes), features.shape[1], dtype=torch.float64, device=features.device)
        add_rows(sum_b, index, features)
        mean_b = sum_b.div(count_b[:, None])
        centred = features.sub_(mean_b.index_select(0, index))
        scatter_b = torch.zeros(len(classes), dtype=torch.float64, device=features.device)
        add_rows(scatter_b, index, squared_lengths(centred))
        self._subtract_products(part, chosen)
        if self.matrix is not None:
            self.matrix.addmm_(centred.T, centred)
        return scatter_b.add_(self._between(count_a, sum_a, count_b, sum_b))

    def _between(self, count_a: Tensor, sum_a: Tensor, count_b: Tensor, sum_b: Tensor) -> Tensor:
        """m / (n (m + n)) |T_B - (n/m) T_A|² of each class, also added to `matrix`; `sum_a` is overwritten."""
        m, n = count_a.double(), count_b.double()
        difference = torch.addcmul(sum_b, sum_a, (n / m.clamp(min=1))[:, None], value=-1, out=sum_a)
        weight = m / (n * (m + n))
        if self.matrix is not None:
            self.matrix.addmm_((difference * weight[:, None]).T, difference)
        return squared_lengths(difference).mul_(weight)

    def _subtract_products(self, part: Part, chosen: Tensor) -> None:
        """Take these tokens out of `matrix` in advance, as the product of the whole part will be added to it."""
        if self.matrix is not None:
            offsets = part.offsets.index_select(0, chosen)
            self.matrix.addmm_(offsets.T, offsets, alpha=-1)

    def _check_share(self, part: Part, labels: Tensor, due: Tensor, due_tokens: Tensor, squares_before: Tensor) -> None:
        """Make those of the classes due for a check direct whose S is a small share of Q, with the part added.

        `due_tokens` are their tokens in the part, `squares_before` their Q before it.
        """
        n, q = self.counts.index_select(0, due), self.squares.index_select(0, due)
        scatter = q - squared_lengths(self._shifted_sums(due)) / n
        small = (scatter < SHARE * q).nonzero().squeeze(1)
        if not len(small):
            return
        classes = due[small]
        chosen = torch.isin(labels, classes).nonzero().squeeze(1)
        count_a = n[small] - due_tokens[small]
        sum_a = self._sums_without(part, labels, chosen, classes)
        sum_a.masked_fill_((count_a == 0)[:, None], 0)  # exactly: the subtraction may leave rounding
        self._make_direct(classes, count_a, sum_a, squares_before[small])
        self.squares.index_add_(0, classes, self._gain(part, labels, chosen, count_a, sum_a))

    def _sums_without(self, part: Part, labels: Tensor, chosen: Tensor, classes: Tensor) -> Tensor:
        """Sums of the classes before the part, of which the chosen tokens are theirs: cheaper than to keep all sums."""
        sums = self.sums.index_select(0, classes)
        added = torch.zeros_like(sums)
        index = torch.searchsorted(classes, labels.index_select(0, chosen))
        add_rows(added, index, part.features.index_select(0, chosen))
        return sums.sub_(added)

    def _make_direct(self, classes: Tensor, counts: Tensor, sums: Tensor, squares: Tensor) -> None:
        """Hold S of these classes for the given n, T and Q."""
        n = counts.clamp(min=1)
        shifted = _shifted(self.reference, counts, sums)
        scatter = squares - squared_lengths(shifted) / n
        self.squares[classes] = torch.where(counts > 1, scatter, 0.0).clamp_(min=0)
        if self.matrix is not None:
            self.matrix.addmm_(shifted.T, shifted / n[:, None], alpha=-1)
        self.direct[classes] = True

    def _shifted_classes(self) -> Iterator[Tensor]:
        """Shifted classes that were seen, as many at once as a part has rows."""
        classes = ((self.counts > 0) & ~self.direct).nonzero().squeeze(1)
        return (some for some in torch.split(classes, part_rows(self.sums.shape[1], self.sums.device)) if len(some))

    def _shifted_sums(self, classes: Tensor) -> Tensor:
        sums = self.sums.index_select(0, classes)  # a copy, which may be overwritten
        return _shifted(self.reference, self.counts.index_select(0, classes), sums, out=sums)


def _shifted(reference: Tensor | None, counts: Tensor, sums: Tensor, *, out: Tensor | None = None) -> Tensor:
    """T - n r of each class; the sums themselves where r is the origin."""
    assert reference is not None
    if not reference.any():
        return sums
    return torch.addcmul(sums, counts.double()[:, None], reference, value=-1, out=out)


@final
class Arrivals:
    """What the labels of one batch do to counts, found once for all moments that take the batch."""

    def __init__(self) -> None:
        self._by_key: dict[tuple[int, int], Arrived] = {}

    def count(self, counts: Tensor, labels: Tensor, key: tuple[int, int]) -> Arrived:
        """Add the labels to the counts.

        `key` says which labelling of the batch this is, and which part of it. An earlier result for the key is used
        again only where labels and counts are those it was found for.
        """
        before, arrived = counts.index_select(0, labels), self._by_key.get(key)
        if arrived is not None and torch.equal(arrived.labels, labels) and torch.equal(arrived.before, before):
            counts.index_copy_(0, labels, arrived.after)
            return arrived
        add_rows(counts, labels, torch.ones_like(labels))
        after = counts.index_select(0, labels)
        # Between two of its checks, a class has the same number of CHECKS up to its count.
        checked, reached = (torch.bucketize(count, CHECKS.to(count.device), right=True) for count in (before, after))
        due, due_tokens = torch.unique(labels[reached > checked], return_counts=True)
        self._by_key[key] = Arrived(labels, before, after, due, due_tokens)
        return self._by_key[key]


def add_rows(table: Tensor, index: Tensor, rows: Tensor) -> None:
    """Add rows to those of a table, with the same bits each time."""
    # On CUDA index_add_ adds in another order each time; index_put_ sorts first: equal streams, equal bits.
    if table.is_cuda:
        table.index_put_((index,), rows, accumulate=True)
    else:
        table.index_add_(0, index, rows)


@final
class Workspace:
    """Memory for parts, reused for each part: faulting in new pages costs more than the arithmetic."""

    def __init__(self, rows: int, dim: int, device: torch.device) -> None:
        self.features, self.offsets = torch.empty(2, rows, dim, dtype=torch.float64, device=device)

    def part(self, features: Tensor, reference: Tensor, *, product: torch.dtype | None, directions: bool) -> Part:
        """The part made of these features, which are multiplied in `product`. The next call overwrites it."""
        wide, offsets = self.features[: len(features)], self.offsets[: len(features)]
        if features.dtype == torch.float64:
            wide = features
        else:
            wide.copy_(features)
        if reference.any():
            torch.sub(wide, reference, out=offsets)
        else:
            offsets = wide
        norms = torch.linalg.vector_norm(wide, dim=1) if directions else None
        squares = norms.square() if norms is not None and offsets is wide else squared_lengths(offsets)
        factors = features if offsets is wide and product != torch.float64 else offsets  # which need no conversion
        return Part(
            wide,
            offsets,
            squares,
            None if product is None else gram_of(factors.to(product)),
            None if norms is None else torch.mv(wide.T, norms.reciprocal()),
        )


def reference_point(features: Tensor) -> Tensor:
    """The mean of the features, or the origin where the mean is short beside the features themselves."""
    mean = features.mean(0, dtype=torch.promote_types(features.dtype, torch.float32)).double()
    mean_square = features[:SAMPLE].double().square().sum(1).mean()
    is_short = mean.square().sum() < mean_square / 2
    return torch.zeros_like(mean) if is_short else mean


def part_rows(dim: int, device: torch.device) -> int:
    """Rows of a part."""
    return max(1, PART_BYTES.get(device.type, PART_BYTES["cpu"]) // (8 * dim))
