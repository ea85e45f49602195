"""The catalogue of contexts: how far contexts with the same future have collapsed, from the moments of their cells.

A token class is a mixture of contexts, so its features must vary where its contexts predict different futures. What can
collapse is the context. N tokens, contexts j with mean μ_j, cells (j, c) of context and next token; Σ_T is the
covariance of all these tokens. docs/contexts.md has the theory.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, final

import torch
from torch import Tensor

from collapselab.core.contexts import ContextTable, exchanged, unit_kernel
from collapselab.core.moments import ClassMoments
from collapselab.core.needs import Missing, ReasonCode

ROWS = 8192
"""Cells whose means are in memory at once."""


@final
@dataclass(frozen=True)
class Gap:
    """Sums over tokens that were scored: how much more surprising the model finds them than their context does."""

    tokens: int = 0
    total: float = 0.0
    """Σ log p̂_j(c) - log q(c), over tokens c in context j."""
    null_total: float = 0.0
    """The same, each token replaced by a successor of the context that the null exchanges with its own."""

    def merge(self, other: "Gap", *, times: int = 1) -> "Gap":
        return Gap(
            self.tokens + times * other.tokens,
            self.total + times * other.total,
            self.null_total + times * other.null_total,
        )


@final
@dataclass(frozen=True)
class Found:
    """What a metric gives: a value, that of its null, and what took part."""

    value: float
    null: float | None
    contexts: int
    tokens: int


@final
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


@final
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
        self._tokens, self._token_rows = torch.unique(table.token, return_inverse=True)
        sums, dim = moments.sums, moments.dim
        totals = sums.new_zeros(table.contexts, dim)
        by_token = sums.new_zeros(len(self._tokens), dim)
        for rows in self._parts():
            totals.index_add_(0, table.context[rows].to(sums.device), sums[rows])
            by_token.index_add_(0, self._token_rows[rows].to(sums.device), sums[rows])
        self.means = totals.div_(table.uses.to(sums.device)[:, None])
        counted = torch.zeros(len(self._tokens), dtype=torch.int64).index_add_(0, self._token_rows, table.count)
        by_token /= counted.to(sums.device)[:, None]
        self.split, self.within = self._split(moments, by_token, counted)

    def _split(self, moments: ClassMoments, by_token: Tensor, counted: Tensor) -> tuple[TokenSplit, float]:
        table, sums = self.table, moments.sums
        scatter = moments.scatter[: table.cells].cpu()
        between = torch.zeros(len(self._tokens), dtype=torch.float64)
        around_contexts = 0.0
        for rows in self._parts():
            counts = table.count[rows].double().to(sums.device)
            means = sums[rows] / counts[:, None]
            of_token = counts * (means - by_token[self._token_rows[rows].to(sums.device)]).square_().sum(1)
            of_context = counts * (means - self.means[table.context[rows].to(sums.device)]).square_().sum(1)
            between.index_add_(0, self._token_rows[rows], of_token.cpu())
            around_contexts += float(of_context.sum())
        within = torch.zeros_like(between).index_add_(0, self._token_rows, scatter)
        contexts = torch.bincount(self._token_rows, minlength=len(self._tokens))
        return TokenSplit(self._tokens, counted, contexts, within, between), float(scatter.sum()) + around_contexts

    def _parts(self) -> list[slice]:
        return [slice(start, min(start + ROWS, self.table.cells)) for start in range(0, self.table.cells, ROWS)]

    @cached_property
    def total(self) -> float:
        """tr Σ_T times the number of tokens; Missing where all tokens coincide."""
        weights = self.table.uses.double().to(self.means.device)
        centre = (weights[:, None] * self.means).sum(0) / weights.sum()
        between = float((weights * (self.means - centre).square().sum(1)).sum())
        total = self.within + between
        if not 0 < total < math.inf:
            raise Missing(ReasonCode.ZERO, f"the variance of these tokens is {total}.")
        return total

    @cached_property
    def kernel(self) -> Tensor:
        """The kernel of context means, of the contexts that kernels compare; Missing where they coincide."""
        if len(self.table.chosen) < 3:
            raise Missing(ReasonCode.FEW_CLASSES, f"{len(self.table.chosen)} contexts; at least 3 are needed.")
        means = self.means[self.table.chosen.to(self.means.device)].cpu()
        means = means - means.mean(0)
        largest = float(means.abs().max())
        if not 0 < largest < math.inf:
            raise Missing(ReasonCode.COINCIDENT, "the context means coincide.")
        means /= largest
        return unit_kernel(means @ means.T)

    @cached_property
    def directions(self) -> Tensor:
        """Unit vectors of the centred context means (contexts, dim); zeros where a mean is the centre."""
        centred = self.means - self.means.mean(0)
        norms = centred.norm(dim=1, keepdim=True)
        return torch.where(norms > 0, centred / norms.clamp(min=1e-300), 0).cpu()

    @cached_property
    def cell_logits(self) -> Tensor:
        """The logit of each cell's token at the mean of its context (cells,)."""
        return self.logits_at(self.table.context)

    def logits_at(self, contexts: Tensor) -> Tensor:
        """The logit of each cell's token at the mean of these contexts, one a cell."""
        if self.logits is None:
            raise Missing(ReasonCode.NO_HEAD, "about the output layer, thus the last layer only.")
        parts = [
            self.logits(self.means[contexts[rows].to(self.means.device)], self.table.token[rows])
            for rows in self._parts()
        ]
        return torch.cat([part.double().cpu() for part in parts])


def context_within(g: ContextGeometry) -> Found:
    """Within-context scatter over all: its null is the mean over all permutations, (N - K)/(N - 1), exactly."""
    tokens, contexts = g.table.tokens, g.table.contexts
    return Found(g.within / g.total, (tokens - contexts) / max(tokens - 1, 1), contexts, tokens)


def token_within_context(g: ContextGeometry) -> Found:
    return _part_of_tokens(g, g.split.within, g.split.counts - g.split.contexts)


def token_between_contexts(g: ContextGeometry) -> Found:
    return _part_of_tokens(g, g.split.between, g.split.contexts - 1)


def _part_of_tokens(g: ContextGeometry, part: Tensor, degrees: Tensor) -> Found:
    """The null exchanges contexts among the tokens of a class: scatter divides as degrees of freedom do, on average."""
    split = g.split
    null = ((split.within + split.between) * degrees / (split.counts - 1).clamp(min=1)).sum()
    return Found(float(part.sum()) / g.total, float(null) / g.total, g.table.contexts, g.table.tokens)


def context_cka(g: ContextGeometry) -> Found:
    return _alignment(g, g.table.chance_kernel, "next-token distributions")


def support_cka(g: ContextGeometry) -> Found:
    return _alignment(g, g.table.support_kernel, "supports")


def _alignment(g: ContextGeometry, ideal: Tensor, what: str) -> Found:
    kernel, chosen = g.kernel, g.table.chosen
    if not bool(ideal.any()):
        raise Missing(ReasonCode.COINCIDENT, f"all contexts have the same {what}.")
    other = exchanged_among(g.table, chosen)
    null = float((kernel * ideal[other][:, other]).sum())
    return Found(float((kernel * ideal).sum()), null, len(chosen), int(g.table.uses[chosen].sum()))


def exchanged_among(table: ContextTable, chosen: Tensor) -> Tensor:
    """The permutation of the null, of these contexts alone."""
    return table.other if len(chosen) == table.contexts else exchanged(table.uses[chosen], seed=table.seed)


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


def in_support_slope(g: ContextGeometry) -> Found:
    return _regression(g, "slope")


def in_support_r2(g: ContextGeometry) -> Found:
    return _regression(g, "r2")


def _regression(g: ContextGeometry, what: Literal["slope", "r2"]) -> Found:
    """Logits on log p̂, both less their mean over the tokens of a context; every token counts alike."""
    table = g.table
    several = table.sizes >= 2
    cells = several[table.context]
    if not bool(cells.any()):
        raise Missing(ReasonCode.NOTHING_LEFT, "no context has several successors.")
    value = _fit(table, g.cell_logits, what)
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


def entropy_gap(g: ContextGeometry) -> Found:
    """Mean of log p̂_j(c) - log q(c) over scored tokens: cross-entropy less Σ π_j H(p̂_j), each token its own control."""
    if g.gap is None:
        raise Missing(ReasonCode.NO_HEAD, "about the output layer, thus the last layer only.")
    if not g.gap.tokens:
        raise Missing(ReasonCode.NOTHING_LEFT, "none of the tokens that were scored is in one of these contexts.")
    gap = g.gap
    return Found(gap.total / gap.tokens, gap.null_total / gap.tokens, g.table.contexts, gap.tokens)


@final
@dataclass(frozen=True)
class ContextMetric:
    """One entry of the catalogue of contexts; as `Metric`, for contexts of n tokens."""

    id: str
    formula: str
    direction: Literal["falls", "rises"] | None
    ideal_text: str
    function: Callable[[ContextGeometry], Found]
    reference: str
    of_head: bool = False
    """Whether it is about the output layer, so that only the last layer has it."""
    version: int = 1
    transform: Literal["raw", "log"] = "raw"
    """As in `Metric`: the scale on which it is related and drawn."""
    least: float | None = None
    """The ideal where it is the least value that there can be; a gap may be below 0."""


ZHAO, ZHAO_2 = "Zhao et al., arXiv:2408.15417", "Zhao & Thrampoulidis, arXiv:2505.08348"

CONTEXT_METRICS: dict[str, ContextMetric] = {
    metric.id: metric
    for metric in (
        ContextMetric(
            "context_within",
            "tr of the within-context covariance / tr Σ_T",
            "falls",
            "0",
            context_within,
            ZHAO,
            transform="log",
            least=0,
        ),
        ContextMetric(
            "token_within_context",
            "Σ ‖h − μ_cell‖² / N tr Σ_T: within-token variance that is left in single contexts",
            "falls",
            "0",
            token_within_context,
            "law of total variance",
            transform="log",
            least=0,
        ),
        ContextMetric(
            "token_between_contexts",
            "Σ n_cell ‖μ_cell − μ_token‖² / N tr Σ_T: within-token variance between contexts",
            None,
            "–",
            token_between_contexts,
            "law of total variance",
        ),
        ContextMetric(
            "context_cka", "CKA of context means with U Σ^½ of p̂ (I − 11ᵀ/V)", "rises", "1", context_cka, ZHAO_2
        ),
        ContextMetric(
            "support_cka", "CKA of context means with U Σ^½ of S (I − 11ᵀ/V)", "rises", "1", support_cka, ZHAO
        ),
        ContextMetric(
            "support_cosine",
            "mean cosine of centred context means: same support of several tokens, less other supports of that size",
            "rises",
            "1 − mean cosine of other supports",
            support_cosine,
            ZHAO,
        ),
        ContextMetric(
            "in_support_slope",
            "slope of logits at μ_j on log p̂_j within supports",
            None,
            "1",
            in_support_slope,
            ZHAO,
            of_head=True,
        ),
        ContextMetric("in_support_r2", "R² of the same", "rises", "1", in_support_r2, ZHAO, of_head=True),
        ContextMetric(
            "entropy_gap",
            "cross-entropy − Σ_j π_j H(p̂_j), in nats",
            "falls",
            "0",
            entropy_gap,
            ZHAO,
            of_head=True,
        ),
    )
}


@final
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
        measured = metric.function(geometry)
        if not math.isfinite(measured.value):
            raise Missing(ReasonCode.OUT_OF_RANGE, f"the value is {measured.value}.")
    except Missing as missing:
        return ContextMeasurement(metric.id, None, None, table.contexts, table.tokens, metric.version, str(missing))
    null = measured.null if measured.null is not None and math.isfinite(measured.null) else None
    return ContextMeasurement(metric.id, measured.value, null, measured.contexts, measured.tokens, metric.version)
