"""Moments of the tokens that follow each context, and how the model's predictions compare with what follows.

The tables `contexts` and `token_contexts`: metrics of contexts, and within-token variance against its floor. For the
metric `entropy_gap`, some tokens of the last layer are scored, since a token costs a product with the whole output
layer: runs that are chosen as those of the curvature are. Each is its own control: over the tokens of these contexts,
log p̂_j(c) - log q(c) has the mean CE - Σ π_j H(p̂_j), and a small spread where the model is good, so that a few
thousand tokens suffice.
"""

import math
from functools import partial

import torch
from torch import Tensor

from collapselab.core.catalogue import CONTEXT_METRICS
from collapselab.core.contexts import (
    MAX_KERNEL,
    ContextGeometry,
    ContextMeasurement,
    ContextTable,
    Gap,
    context_metrics,
)
from collapselab.core.moments import ClassMoments, update_all
from collapselab.corpus.hashing import uniform
from collapselab.measurement.batch import Batch
from collapselab.measurement.collector import LAST, Collector, Collectors, Values
from collapselab.measurement.collectors.curvature import chosen_runs, step_for
from collapselab.measurement.collectors.moments import table_bytes
from collapselab.measurement.plan import MeasurePlan, Split
from collapselab.measurement.sample import MOST_CURVED, POSITION_BYTES, RUN, Contexts, fitted_tokens
from collapselab.models.scores import LogitSpace, in_chunks
from collapselab.models.taps import OutputLayer
from collapselab.records.table import Chunk
from collapselab.records.tables import TOKEN_CONTEXTS, ContextRow

GAP = "gap/"
"""The beginning of the names of the sums of scored tokens, by the length of contexts."""


class ContextMoments(Collector):
    """Class moments of the cells of contexts, by layer and length; and of some tokens how they are predicted.

    A cell is a context with a next token; the last row of a table has all tokens that are in none.
    """

    name = "contexts"
    option = "contexts"
    splits = ("train",)

    def __init__(self, plan: MeasurePlan, split: Split, earlier: Collectors) -> None:
        super().__init__(plan, split, earlier)
        self.contexts, self.seed = plan.contexts, plan.options.seed
        sample, weight = self.split_plan.samples.last, plan.model.head.weight
        most = min(MOST_CURVED, 4 * fitted_tokens(*weight.shape))  # one product a token, and no more
        self.runs = max(1, math.ceil(sample.labels_per_block / RUN))
        self.step = step_for(len(sample) * sample.labels_per_block, self.runs, most)
        self.dtype = torch.promote_types(weight.dtype, torch.float32)
        self.head, self.space = plan.model.head.to(self.dtype), LogitSpace()
        self.batch: Batch | None = None
        self.cells: dict[int, Tensor] = {}
        """The cells of the positions of the present batch, by length."""

    @classmethod
    def bytes(cls, plan: MeasurePlan, split: Split) -> float:
        """All tables, twice with a bootstrap; and contexts as they are counted, or the means of the largest table."""
        cells, layers = [some.rows for some in plan.contexts.values()], len(plan.layers)
        tables = layers * sum(table_bytes(rows, plan.width) for rows in cells)
        finding = plan.splits[split].samples.last.tokens * POSITION_BYTES
        means = 16 * plan.width * max(cells) + 32 * min(max(cells), MAX_KERNEL) ** 2
        return (2 if plan.options.bootstrap else 1) * tables + max(finding, means)

    def update(self, layer: str, features: Tensor, batch: Batch) -> None:
        if batch is not self.batch:
            self.batch = batch
            self.cells = {n: some.cells(batch.own_ids, batch.own_labels) for n, some in self.contexts.items()}
        labels, tables = batch.labels.of(layer), []
        for n, cells in self.cells.items():
            flat = cells[:, labels.first :].reshape(-1)
            table = self.table(f"{layer} {n}", self.contexts[n].rows, features.shape[1])
            tables.append((table, flat if labels.used is None else flat[labels.used]))
        update_all(labels.sampled(features), tables, check=False)
        if layer == LAST:
            self._score(features, batch, labels.first)

    def values(self, *, resampled: bool = False) -> Values:
        """The rows of both tables, in the order of layers and lengths."""
        values = Values()
        if self.plan.processes.first:
            for name, moments in self.tables.items():
                layer, n = name.split(" ")
                rows, chunk = self._rows(layer, self.contexts[int(n)], moments)
                values.add_rows("contexts", rows)
                values.add_rows("token_contexts", chunk)
        return values

    def _rows(self, layer: str, contexts: Contexts, moments: ClassMoments) -> tuple[list[ContextRow], list[Chunk]]:
        """The metrics of one layer and length, and with the option `classes` a chunk of the other table."""
        is_last = layer == LAST
        if contexts.why is not None:
            metrics = [metric for metric in CONTEXT_METRICS.values() if is_last or not metric.of_head]
            empty = [ContextMeasurement(one.id, None, None, 0, 0, one.version, contexts.why) for one in metrics]
            return [self._row(layer, contexts, value) for value in empty], []
        tokens, total, null_total = self.sums[f"{GAP}{contexts.n}"].tolist()
        gap = Gap(int(tokens), total, null_total) if is_last else None
        logits = partial(_logits, self.plan.model.head) if is_last else None
        geometry = ContextGeometry(moments, contexts.table, logits=logits, gap=gap)
        rows = [self._row(layer, contexts, value) for value in context_metrics(geometry).values()]
        return rows, [self._chunk(layer, contexts, geometry)] if self.plan.options.classes else []

    def _score(self, features: Tensor, batch: Batch, first: int) -> None:
        """Score the chosen runs of a batch."""
        cells = {n: some[:, first:] for n, some in self.cells.items()}
        width = next(iter(cells.values())).shape[1] if cells else 0
        for n in self.contexts:
            self.add(f"{GAP}{n}", torch.zeros(3, dtype=torch.float64))
        for row, block, now in chosen_runs(batch.blocks, width, runs=self.runs, step=self.step):
            own = features[row * width + now.start : row * width + now.stop].to(self.dtype)
            for rows, logits in in_chunks(self.head, own, None, self.space):
                scores = logits.log_softmax(1)
                for n, contexts in self.contexts.items():
                    places = cells[n][row, now][rows]
                    self.add(f"{GAP}{n}", _gap(contexts, places, scores, self._draws(block, now, rows, n)))

    def _draws(self, block: int, now: slice, rows: slice, n: int) -> Tensor:
        """A number from 0 to below 1 for each token, whatever batch it is in."""
        first = block * (1 << 24) + now.start + rows.start
        return torch.from_numpy(uniform(self.seed, f"gap {n}", rows.stop - rows.start, start=first))

    def _row(self, layer: str, contexts: Contexts, value: ContextMeasurement) -> ContextRow:
        return ContextRow(
            **self.plan.names,
            layer=layer,
            n=contexts.n,
            metric=value.metric,
            value=value.value,
            null=value.null if self.plan.options.null else None,
            contexts=value.contexts,
            tokens=value.tokens,
            coverage=contexts.table.coverage if contexts.table.cells else None,
            left_out=contexts.seen - value.contexts,
            version=value.version,
            why=value.why,
        )

    def _chunk(self, layer: str, contexts: Contexts, geometry: ContextGeometry) -> Chunk:
        split = geometry.split
        rows, counts = len(split.tokens), split.counts.double()
        same = {**self.plan.names, "split": "train", "layer": layer, "n": contexts.n}
        return TOKEN_CONTEXTS.chunk(
            {
                **{name: [value] * rows for name, value in same.items()},
                "token": split.tokens.numpy(),
                "count": split.counts.numpy(),
                "contexts": split.contexts.numpy(),
                "variance": ((split.within + split.between) / counts).numpy(),
                "within_context": (split.within / counts).numpy(),
                "between_contexts": (split.between / counts).numpy(),
            }
        )


def _gap(contexts: Contexts, cells: Tensor, scores: Tensor, draws: Tensor) -> Tensor:
    """The numbers of a `Gap`; `scores` are log q of every token (tokens, vocab)."""
    table = contexts.table
    inside = (cells < table.cells).nonzero().squeeze(1)
    if not len(inside):
        return torch.zeros(3, dtype=torch.float64)
    cell, of_scores = cells[inside], scores[inside.to(scores.device)]
    surprises = []
    for some in (cell, _drawn(table, table.other[table.context[cell]], draws[inside])):
        own = of_scores.gather(1, table.token[some].to(scores.device)[:, None]).squeeze(1).double()
        surprises.append((table.shares[some].log().to(own) - own).sum())
    return torch.stack([torch.full_like(surprises[0], len(inside)), *surprises])


def _drawn(table: ContextTable, contexts: Tensor, draws: Tensor) -> Tensor:
    """A cell of each of these contexts, drawn by how often it occurs."""
    before = table.uses.cumsum(0) - table.uses
    place = before[contexts] + (draws * table.uses[contexts]).long()
    place = torch.minimum(place, before[contexts] + table.uses[contexts] - 1)
    return torch.searchsorted(table.count.cumsum(0), place, right=True)


@torch.no_grad()
def _logits(head: OutputLayer, features: Tensor, tokens: Tensor) -> Tensor:
    """The logit of one token at each feature."""
    tokens = tokens.to(head.weight.device)
    logits = (features * head.weight[tokens].to(features)).sum(1)
    if head.bias is not None:
        logits = logits + head.bias[tokens].to(logits)
    logits = head.scale * logits
    return logits if head.softcap is None else head.softcap * torch.tanh(logits / head.softcap)
