"""The table `deciders`: on how many validation tokens each two ways of choosing a class agree."""

from collections.abc import Iterator
from typing import ClassVar, final

import torch
from torch import Tensor, nn

from collapselab.core.batch import IGNORED
from collapselab.core.decisions import LinearClassifier
from collapselab.measurement.batch import Batch
from collapselab.measurement.collector import LAST, NULL, Collectors, Summed, Values
from collapselab.measurement.collectors.decisions import NearestCentres
from collapselab.measurement.distributed import Processes
from collapselab.measurement.plan import MeasurePlan, Split
from collapselab.models.taps import last_norm, layer_names
from collapselab.records.tables import DeciderRow

TOKEN, HEAD = "token", "head"


@final
class AgreementMatrix(Summed):
    """The number of tokens on which two deciders choose the same class, for each two of them.

        token         the next token itself: agreement with it is accuracy
        head          the model's output layer
        nearest L     the nearest class centre of layer L, "last" being what enters the output layer
        lens L        the logit lens of block L: its output through the final norm and the output layer

    All of them choose among the classes that have a centre at every layer, for the tokens that are samples at every
    layer. The lens takes one more product for a block; it is that of nostalgebraist (2020), "interpreting GPT: the
    logit lens".
    """

    name = "deciders"
    option: ClassVar[str | None] = "deciders"

    def __init__(self, plan: MeasurePlan, split: Split, earlier: Collectors | None = None) -> None:
        super().__init__(plan, split, earlier)
        assert earlier is not None
        decided = earlier[NearestCentres]
        self.head: LinearClassifier | None = decided.head.below
        self.numbers, self.is_candidate = decided.numbers, decided.kept.below
        every_layer = plan.options.layers == "all"
        self.norm: nn.Module | None = last_norm(plan.model.model) if every_layer else None
        self.blocks = layer_names(plan.model.model)[:-1] if every_layer else []
        self.names = [TOKEN, HEAD, *(f"nearest {layer}" for layer in (*self.blocks, LAST))]
        self.names += [f"lens {layer}" for layer in self.blocks]

    @classmethod
    def wanted(cls, plan: MeasurePlan, split: Split) -> bool:
        return plan.options.deciders and split == "validation"

    @torch.no_grad()
    def update(self, layer: str, features: Tensor, batch: Batch) -> None:
        assert self.head is not None
        if layer in self.blocks and features.shape[1] == self.head.rows.shape[1]:
            batch.lens[layer] = self.head.choices(features if self.norm is None else self.norm(features))
        if layer == LAST:
            self._count(batch)

    def finish(self, processes: Processes) -> None:
        super().finish(processes)
        self.head = None

    def values(self, *, resampled: bool = False) -> Values:
        values = Values()
        values.add_rows(self.name, list(self._rows()))
        return values

    def _count(self, batch: Batch) -> None:
        """Count the choices about a batch, at the positions that all layers have."""
        labels, columns, heads = self.numbers.of(batch.labels.below.own), batch.labels.last.own.shape[1], batch.head
        assert heads is not None
        blocks, width = labels.shape
        chosen = {
            TOKEN: labels,
            HEAD: heads.below.view(-1, columns)[:blocks, columns - width :],
            **{
                f"nearest {layer}": choices.view(-1, columns if layer == LAST else width)[:blocks, -width:]
                for layer, choices in batch.nearest.items()
                if not layer.endswith(NULL)
            },
            **{f"lens {layer}": choices.view(-1, width)[:blocks] for layer, choices in batch.lens.items()},
        }
        used = (labels != IGNORED) & self.is_candidate.cpu()[labels.clamp(min=0)]
        missing = torch.full_like(labels, IGNORED)
        table = torch.stack([chosen.get(name, missing).cpu()[used] for name in self.names])
        counts = torch.stack([(table == row).sum(1) for row in table])
        counts[[name not in chosen for name in self.names]] = 0
        self.add("agreed", counts)

    def _rows(self) -> Iterator[DeciderRow]:
        """The rows of the table; each pair once."""
        model, agreed = self.plan.model, self.sums["agreed"].tolist()
        tokens = agreed[0][0]
        for i, first in enumerate(self.names):
            for j, second in enumerate(self.names[i + 1 :], start=i + 1):
                if agreed[i][i] and agreed[j][j]:  # a block of another width has no lens
                    yield DeciderRow(
                        run=model.run or model.name,
                        checkpoint=model.checkpoint or "-",
                        first=first,
                        second=second,
                        tokens=tokens,
                        agreed=agreed[i][j],
                        agreement=agreed[i][j] / tokens,
                    )
