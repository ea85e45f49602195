"""A collector from outside: the mean length of each layer's features, as a value and as a row of a table of its own.

Importing it changes nothing; `install` adds it to the collectors and its table to the tables.
"""

from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from collapselab.core.metrics import Measurement
from collapselab.measurement.batch import Batch
from collapselab.measurement.collector import ALL, Collector, Values
from collapselab.measurement.plan import MeasurePlan, Split
from collapselab.records.measurement import Key
from collapselab.records.table import Amount, Name, Table


@dataclass(frozen=True)
class Length:
    """One row for each layer."""

    run: Name
    checkpoint: Name
    split: Name
    layer: Name
    length: Amount


TABLE: Table[Length] = Table("lengths", Length, key=("run", "checkpoint", "split", "layer"))


@final
class MeanLength(Collector):
    name = "lengths"
    resampled = True

    @classmethod
    def bytes(cls, plan: MeasurePlan, split: Split) -> float:
        return 16 * len(plan.layers)

    def update(self, layer: str, features: Tensor, batch: Batch) -> None:
        lengths = torch.linalg.vector_norm(batch.labels.of(layer).sampled(features), dim=1, dtype=torch.float64)
        self.add(layer, torch.stack([lengths.sum(), torch.tensor(len(lengths)).double()]))

    def values(self, *, resampled: bool = False) -> Values:
        values = Values()
        for layer, sums in self.sums.items():
            total, tokens = sums.tolist()
            measured = Measurement("mean_length", total / tokens, None, 1, int(tokens), 0, 1, None, 1)
            values.measured[Key(self.split, layer, ALL, "mean_length")] = measured
            row = Length(**self.plan.names, split=self.split, layer=layer, length=total / tokens)
            values.add_rows("lengths", [row])
        return values


def install(collectors: list[type[Collector]], tables: MutableMapping[str, Any]) -> None:
    collectors.append(MeanLength)
    tables["lengths"] = TABLE
