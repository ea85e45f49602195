"""Contexts: how often each next token followed each context, and how far contexts with the same future have collapsed.

A token class is a mixture of contexts, so its features must vary where its contexts predict different futures. What can
collapse is the context. A context j is what came before a token; here it is an index. A *cell* (j, c) is a context with
one of its successors. p̂_j is the empirical next-token distribution of a context, S_j the set of its successors, μ_j the
mean of its features; Σ_T is the covariance of all N tokens in these contexts. docs/contexts.md has the theory.

`ContextTable` has what needs no feature: entropies, supports, coverage, the kernels of ideal features and the
permutation of the null. `context_metrics` computes the catalogue of contexts from the moments of the cells.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from collapselab.core.catalogue import CONTEXT_METRICS, ContextMetric, Missing, ReasonCode
from collapselab.core.moments import ClassMoments

MAX_KERNEL = 1024
"""Contexts that kernels compare at most; of more, a seeded sample of this size."""
TILE = 4096
"""Columns of a kernel's factor that are in memory at once."""
ROWS = 8192
"""Cells whose means are in memory at once."""


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
    def shares(self) -> Tensor:
        """p̂ of each cell (cells,)."""
        return self.count.double() / self.uses[self.context].double()

    @cached_property
    def coverage(self) -> float:
        """Good and Turing's estimate of the chance that the next successor of these contexts has been seen."""
        return 1 - int((self.count == 1).sum()) / max(self.tokens, 1)

    @cached_property
    def supports(self) -> Tensor:
        """The number of each context's set of successors (contexts,); contexts with the same set have the same."""
        parts = torch.split(self.token, self.sizes.tolist())
        numbers: dict[bytes, int] = {}
        return torch.tensor([numbers.setdefault(part.numpy().tobytes(), len(numbers)) for part in parts])

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
        if self.contexts <= MAX_KERNEL:
            return torch.arange(self.contexts)
        generator = torch.Generator().manual_seed(self.seed)
        return torch.randperm(self.contexts, generator=generator)[:MAX_KERNEL].sort().values

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
    groups: list[Tensor] = []
    for power in torch.unique(powers):
        group = (powers == power).nonzero().squeeze(1)
        if groups and len(group) == 1:
            groups[-1] = torch.cat([groups[-1], group])
        else:
            groups.append(group)
    for group in groups:
        image[group] = group[torch.randperm(len(group), generator=generator)]
    return image


@dataclass(frozen=True)
class Gap:
    """Sums over tokens that were scored: how much more surprising the model finds them than their context does."""

    tokens: int = 0
    total: float = 0.0
    """Σ log p̂_j(c) - log q(c), over tokens c in context j."""
    null_total: float = 0.0
    """The same, each token replaced by a successor of the context that the null exchanges with its own."""


@dataclass(frozen=True)
class Found:
    """What a metric gives: a value, that of its null, and what took part."""

    value: float
    null: float | None
    contexts: int
    tokens: int


@dataclass(frozen=True)
class TokenSplit:
    """Within-token scatter by next token, split into what is left within contexts and what is between them."""

    tokens: Tensor
    """Ids of the next tokens, rising (tokens,)."""
    counts: Tensor
    contexts: Tensor
    """Contexts that each follows."""
    within: Tensor
    """Σ over its cells of their scatter."""
    between: Tensor
    """Σ over its cells of n ‖μ_cell - μ_token‖²."""


class ContextGeometry:
    """What the metrics of contexts are made from. Row i of the moments is cell i of the table; later rows are ignored.

    `logits` gives the logits of tokens (rows,) at features (rows, dim), one each; with `gap`, of the last layer alone.
    """

    def __init__(
        self,
        moments: ClassMoments,
        table: ContextTable,
        *,
        logits: Callable[[Tensor, Tensor], Tensor] | None = None,
        gap: Gap | None = None,
    ) -> None:
        counts = moments.counts[: table.cells].cpu()
        if not torch.equal(counts, table.count):
            raise ValueError(f"moments of {int(counts.sum()):,} tokens, but their contexts have {table.tokens:,}.")
        self.table, self.logits, self.gap = table, logits, gap
        contexts, self._moments = moments.grouped(table.context, table.contexts), moments
        self.means, self.within = contexts.means, float(contexts.scatter.sum())

    @cached_property
    def split(self) -> TokenSplit:
        tokens, rows = torch.unique(self.table.token, return_inverse=True)
        by_token = self._moments.grouped(rows, len(tokens))
        scatter = self._moments.scatter[: self.table.cells].cpu()
        within = torch.zeros(len(tokens), dtype=torch.float64).index_add_(0, rows, scatter)
        contexts = torch.bincount(rows, minlength=len(tokens))
        between = (by_token.scatter.cpu() - within).clamp_(min=0)
        return TokenSplit(tokens, by_token.counts.cpu(), contexts, within, between)

    @cached_property
    def total(self) -> float:
        """tr Σ_T times the number of tokens; Missing where all tokens coincide."""
        total = float(self._moments.grouped(torch.zeros_like(self.table.context), 1).scatter)
        if total == 0:
            raise Missing(ReasonCode.ZERO, "the variance of these tokens is 0.")
        return total

    @cached_property
    def kernel(self) -> Tensor:
        """The kernel of context means, of the contexts that kernels compare; Missing where they coincide."""
        if len(self.table.chosen) < 3:
            raise Missing(ReasonCode.FEW_CLASSES, f"{len(self.table.chosen)} contexts; at least 3 are needed.")
        means = self.means[self.table.chosen.to(self.means.device)].cpu()
        means = means - means.mean(0)
        if not means.any():
            raise Missing(ReasonCode.COINCIDENT, "the context means coincide.")
        return unit_kernel(means @ means.T)

    @cached_property
    def directions(self) -> Tensor:
        """Unit vectors of the centred context means (contexts, dim); zeros where a mean is the centre."""
        centred = self.means - self.means.mean(0)
        return torch.nn.functional.normalize(centred, eps=1e-300).cpu()

    def logits_at(self, contexts: Tensor) -> Tensor:
        """The logit of each cell's token at the mean of these contexts, one a cell."""
        if self.logits is None:
            raise Missing(ReasonCode.NO_HEAD, "about the output layer, thus the last layer only.")
        device = self.means.device
        cells = zip(torch.split(contexts, ROWS), torch.split(self.table.token, ROWS), strict=True)
        return torch.cat([self.logits(self.means[some.to(device)], token).double().cpu() for some, token in cells])


FUNCTIONS: dict[str, Callable[[ContextGeometry], Found]] = {}
"""The function of each metric by its id."""


def metric(function: Callable[[ContextGeometry], Found]) -> Callable[[ContextGeometry], Found]:
    """Register the function of the catalogue entry of the same name."""
    FUNCTIONS[function.__name__] = function
    return function


@metric
def context_within(g: ContextGeometry) -> Found:
    """Within-context scatter over all: its null is the mean over all permutations, (N - K)/(N - 1), exactly."""
    tokens, contexts = g.table.tokens, g.table.contexts
    return Found(g.within / g.total, (tokens - contexts) / max(tokens - 1, 1), contexts, tokens)


def _part_of_tokens(g: ContextGeometry, part: Tensor, degrees: Tensor) -> Found:
    """The null exchanges contexts among the tokens of a class: scatter divides as degrees of freedom do, on average."""
    split = g.split
    null = ((split.within + split.between) * degrees / (split.counts - 1).clamp(min=1)).sum()
    return Found(float(part.sum()) / g.total, float(null) / g.total, g.table.contexts, g.table.tokens)


def _alignment(g: ContextGeometry, ideal: Tensor, what: str) -> Found:
    kernel, chosen = g.kernel, g.table.chosen
    if not bool(ideal.any()):
        raise Missing(ReasonCode.COINCIDENT, f"all contexts have the same {what}.")
    # The permutation of the null, of these contexts alone.
    all_chosen = len(chosen) == g.table.contexts
    other = g.table.other if all_chosen else exchanged(g.table.uses[chosen], seed=g.table.seed)
    null = float((kernel * ideal[other][:, other]).sum())
    return Found(float((kernel * ideal).sum()), null, len(chosen), int(g.table.uses[chosen].sum()))


@metric
def support_cosine(g: ContextGeometry) -> Found:
    table = g.table
    value, contexts = _support_cosine(g.directions, table.supports, table.sizes)
    try:
        null: float | None = _support_cosine(g.directions, table.supports[table.other], table.sizes[table.other])[0]
    except Missing:
        null = None
    return Found(value, null, int(contexts.sum()), int(table.uses[contexts].sum()))


def _support_cosine(directions: Tensor, supports: Tensor, sizes: Tensor) -> tuple[float, Tensor]:
    """Mean cosine of pairs with the same support less that of other pairs of the same size; which contexts took part.

    Every size counts by its pairs with the same support. Sums over pairs are squared norms of sums of unit vectors.
    """
    part = (sizes >= 2) & (directions.square().sum(1) > 0)
    units, supports, sizes = directions[part], supports[part], sizes[part]
    same_sums, same_pairs = _pair_sums(units, supports)
    size_of = torch.zeros(len(same_pairs), dtype=torch.int64)
    size_of[supports] = sizes
    all_sums, all_pairs = _pair_sums(units, sizes)
    same = torch.zeros_like(all_sums).index_add_(0, size_of, same_sums)
    pairs = torch.zeros_like(all_pairs).index_add_(0, size_of, same_pairs)
    has_both = (pairs > 0) & (all_pairs > pairs)
    if not bool(has_both.any()):
        raise Missing(
            ReasonCode.NOTHING_LEFT, "no two contexts have the same support of several tokens beside one of that size."
        )
    differences = same[has_both] / pairs[has_both] - (all_sums - same)[has_both] / (all_pairs - pairs)[has_both]
    value = float((differences * pairs[has_both]).sum() / pairs[has_both].sum())
    used = torch.zeros(len(part), dtype=torch.bool)
    used[part.nonzero().squeeze(1)[has_both[sizes]]] = True
    return value, used


def _pair_sums(units: Tensor, groups: Tensor) -> tuple[Tensor, Tensor]:
    """Σ of cosines over ordered pairs within each group, and the number of these pairs."""
    count = int(groups.max()) + 1 if len(groups) else 0
    sums = units.new_zeros(count, units.shape[1]).index_add_(0, groups, units)
    members = torch.bincount(groups, minlength=count).double()
    own = units.new_zeros(count).index_add_(0, groups, units.square().sum(1))
    return sums.square().sum(1) - own, members * (members - 1)


def _regression(g: ContextGeometry, what: Literal["slope", "r2"]) -> Found:
    """Logits on log p̂, both less their mean over the tokens of a context; every token counts alike."""
    table = g.table
    several = table.sizes >= 2
    cells = several[table.context]
    if not bool(cells.any()):
        raise Missing(ReasonCode.NOTHING_LEFT, "no context has several successors.")
    value = _fit(table, g.logits_at(table.context), what)
    owner = torch.empty_like(table.other)
    owner[table.other] = torch.arange(table.contexts)
    null = _fit(table, g.logits_at(owner[table.context]), what)
    return Found(value, null, int(several.sum()), int(table.uses[several].sum()))


def _fit(table: ContextTable, logits: Tensor, what: Literal["slope", "r2"]) -> float:
    weights = table.count.double()

    def centred(values: Tensor) -> Tensor:
        means = torch.zeros(table.contexts, dtype=torch.float64).index_add_(0, table.context, weights * values)
        return values - (means / table.uses.double())[table.context]

    x, y = centred(table.shares.log()), centred(logits)
    xx, xy, yy = (float((weights * left * right).sum()) for left, right in ((x, x), (x, y), (y, y)))
    if xx <= 1e-20 * float(weights.sum()):
        raise Missing(ReasonCode.ZERO, "all successors of a context are equally frequent: there is no ratio to follow.")
    if what == "slope":
        return xy / xx
    if yy <= 0:
        raise Missing(ReasonCode.ZERO, "all successors of a context have the same logit.")
    return min(1.0, xy * xy / (xx * yy))


@metric
def entropy_gap(g: ContextGeometry) -> Found:
    """Mean of log p̂_j(c) - log q(c) over scored tokens: cross-entropy less Σ π_j H(p̂_j), each token its own control."""
    if g.gap is None:
        raise Missing(ReasonCode.NO_HEAD, "about the output layer, thus the last layer only.")
    if not g.gap.tokens:
        raise Missing(ReasonCode.NOTHING_LEFT, "none of the tokens that were scored is in one of these contexts.")
    gap = g.gap
    return Found(gap.total / gap.tokens, gap.null_total / gap.tokens, g.table.contexts, gap.tokens)


FUNCTIONS |= {
    "token_within_context": lambda g: _part_of_tokens(g, g.split.within, g.split.counts - g.split.contexts),
    "token_between_contexts": lambda g: _part_of_tokens(g, g.split.between, g.split.contexts - 1),
    "context_cka": lambda g: _alignment(g, g.table.chance_kernel, "next-token distributions"),
    "support_cka": lambda g: _alignment(g, g.table.support_kernel, "supports"),
    "in_support_slope": lambda g: _regression(g, "slope"),
    "in_support_r2": lambda g: _regression(g, "r2"),
}


@dataclass(frozen=True)
class ContextMeasurement:
    """A value with its null, or the reason why there is none."""

    metric: str
    value: float | None
    null: float | None
    contexts: int
    tokens: int
    version: int
    why: str | None = None


def context_metrics(geometry: ContextGeometry) -> dict[str, ContextMeasurement]:
    """Every metric of the catalogue of contexts, by id; those of the output layer where the geometry has one."""
    wanted = [metric for metric in CONTEXT_METRICS.values() if geometry.logits is not None or not metric.of_head]
    return {metric.id: _measurement(metric, geometry) for metric in wanted}


def _measurement(metric: ContextMetric, geometry: ContextGeometry) -> ContextMeasurement:
    table = geometry.table
    try:
        measured = FUNCTIONS[metric.id](geometry)
    except Missing as missing:
        return ContextMeasurement(metric.id, None, None, table.contexts, table.tokens, metric.version, str(missing))
    return ContextMeasurement(
        metric.id, measured.value, measured.null, measured.contexts, measured.tokens, metric.version
    )
