"""The tables `contexts` and `token_contexts`: metrics of contexts, and within-token variance against its floor."""

from collections.abc import Iterator
from typing import final

import torch
from torch import Tensor

from collapselab.core.catalogue import CONTEXT_METRICS
from collapselab.core.contexts import ContextGeometry, ContextMeasurement, Gap, context_metrics
from collapselab.core.moments import ClassMoments
from collapselab.measurement.find_contexts import Contexts
from collapselab.measurement.plan import MeasurePlan
from collapselab.models.taps import OutputLayer
from collapselab.records.table import Chunk
from collapselab.records.tables import TOKEN_CONTEXTS, ContextRow, RowsByTable


@final
class ContextTables:
    """Rows of both tables, added layer by layer: `add` for every layer and length, then `rows` and `chunks`."""

    def __init__(self, plan: MeasurePlan) -> None:
        self.plan = plan
        self.rows: list[ContextRow] = []
        self.chunks: list[Chunk] = []

    def add(self, layer: str, contexts: Contexts, moments: ClassMoments, gap: Gap) -> None:
        """The metrics of one layer and length, from the moments of all processes."""
        is_last = layer == "last"
        if contexts.why is not None:
            self.rows += self._missing(layer, contexts)
            return
        logits = _Logits(self.plan.model.head) if is_last else None
        geometry = ContextGeometry(moments, contexts.table, logits=logits, gap=gap if is_last else None)
        self.rows += [self._row(layer, contexts, value) for value in context_metrics(geometry).values()]
        if self.plan.options.classes:
            self.chunks.append(self._chunk(layer, contexts, geometry))

    def filled(self) -> RowsByTable:
        """The rows of each table, in the order of layers and lengths."""
        return {"contexts": self.rows, "token_contexts": self.chunks}

    def _missing(self, layer: str, contexts: Contexts) -> Iterator[ContextRow]:
        for metric in CONTEXT_METRICS.values():
            if layer == "last" or not metric.of_head:
                empty = ContextMeasurement(metric.id, None, None, 0, 0, metric.version, contexts.why)
                yield self._row(layer, contexts, empty)

    def _row(self, layer: str, contexts: Contexts, value: ContextMeasurement) -> ContextRow:
        model = self.plan.model
        return ContextRow(
            run=model.run or model.name,
            checkpoint=model.checkpoint or "-",
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
        split, model = geometry.split, self.plan.model
        rows, counts = len(split.tokens), split.counts.double()
        return TOKEN_CONTEXTS.chunk(
            {
                "run": [model.run or model.name] * rows,
                "checkpoint": [model.checkpoint or "-"] * rows,
                "split": ["train"] * rows,
                "layer": [layer] * rows,
                "n": [contexts.n] * rows,
                "token": split.tokens.numpy(),
                "count": split.counts.numpy(),
                "contexts": split.contexts.numpy(),
                "variance": ((split.within + split.between) / counts).numpy(),
                "within_context": (split.within / counts).numpy(),
                "between_contexts": (split.between / counts).numpy(),
            }
        )


@final
class _Logits:
    """The logit of one token at each feature."""

    def __init__(self, head: OutputLayer) -> None:
        self.head = head

    @torch.no_grad()
    def __call__(self, features: Tensor, tokens: Tensor) -> Tensor:
        head, tokens = self.head, tokens.to(self.head.weight.device)
        rows = head.weight[tokens].to(features)
        logits = (features * rows).sum(1)
        if head.bias is not None:
            logits = logits + head.bias[tokens].to(logits)
        logits = head.scale * logits
        return logits if head.softcap is None else head.softcap * torch.tanh(logits / head.softcap)
