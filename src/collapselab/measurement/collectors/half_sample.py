"""Whether a value still changes with the number of tokens: part of the sample beside all of it, in the same pass.

Many values grow or fall with the logarithm of the number of tokens, since classes that are seen once have no variance.
The values of about half of the sample are computed in the middle of the pass, when the moments are those of that half;
no table is needed twice. With several processes they are those of the first process's part of the sample. With
resamples they are the mean over random halves, which exist already. The change that twice the tokens would make is

    (whole - part) / log2(tokens / part_tokens)

A metric is reported as changing if that change would leave the interval of its value. Without an interval: if the
change is more than a twentieth of the value, or of its distance from the null if that is larger. Ten times the tokens
would then change it by a sixth and more, so that values from different numbers of tokens cannot be compared.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from collapselab.core.moments import ClassMoments
from collapselab.measurement.batch import Batch
from collapselab.measurement.collector import LAST, Collectors, Summed
from collapselab.measurement.collectors.moments import layer_values
from collapselab.measurement.plan import MeasurePlan, Split
from collapselab.records.facts import HalfSampleFacts
from collapselab.records.tables import Row

LARGE_CHANGE = 0.05

TOKENS = "tokens"
"""The name of the number of tokens among the values."""


@final
@dataclass(frozen=True)
class SamplePart:
    """The values of the last layer's metrics in a part of the training split's sample."""

    tokens: int
    values: dict[str, float]


@final
class HalfSample(Summed):
    """The values of about half of the training sample, once the pass has seen that much."""

    name = "half_sample"

    def __init__(self, plan: MeasurePlan, split: Split, earlier: Collectors | None = None) -> None:
        super().__init__(plan, split, earlier)
        several = plan.processes.world > 1
        """Whether the part is that of the first process; there is none with sharded classes."""
        whole = half_of(len(self.split_plan.samples.last), plan.batch)
        own = None if plan.options.shard_classes else self.split_plan.groups[0].stop if self.split_plan.groups else None
        self.blocks = own if several else whole

    @classmethod
    def wanted(cls, plan: MeasurePlan, split: Split) -> bool:
        return split == "train" and not plan.options.bootstrap

    def update(self, layer: str, features: Tensor, batch: Batch) -> None:
        blocks = self.blocks
        if layer != LAST or blocks is None or not batch.blocks.start < blocks <= batch.blocks.stop:
            return
        moments = batch.moments[LAST]
        if blocks < batch.blocks.stop:  # the first batch holds more than half
            labels, rows = batch.labels.last, self.split_plan.samples.last.samples(batch.blocks.start, blocks)
            moments = moments.empty_like()
            moments.update(labels.added(features)[:rows], labels.counted[:rows])
        self._set(moments)

    @property
    def part(self) -> SamplePart | None:
        values = {name: float(value) for name, value in self.sums.items()}
        return SamplePart(int(values.pop(TOKENS)), values) if values else None

    def _set(self, moments: ClassMoments) -> None:
        measured = layer_values(self.plan, moments, "train", LAST, bins=False)
        values = {key.metric: value.value for key, value in measured.items() if value.value is not None}
        values[TOKENS] = moments.tokens
        self.sums = {name: torch.tensor(value, dtype=torch.float64) for name, value in values.items()}


def half_of(blocks: int, batch: int) -> int | None:
    """The number of blocks of about half a sample: whole batches if it has two or more; None for a single block."""
    if blocks < 2:
        return None
    return blocks // 2 if blocks < 2 * batch else batch * round(blocks / (2 * batch))


def compare_halves(part: SamplePart | None, rows: Sequence[Row], tokens: int) -> HalfSampleFacts | None:
    """The part beside the whole, whose rows these are; None where there is no part, or the part is the whole."""
    if part is None or not 0 < part.tokens < tokens:
        return None
    doublings = math.log2(tokens / part.tokens)
    last = [row for row in rows if (row.split, row.layer, row.bin) == ("train", LAST, "all")]
    changing = [
        row.metric
        for row in last
        if row.value is not None
        and row.metric in part.values
        and is_large((row.value - part.values[row.metric]) / doublings, row)
    ]
    return {"part_tokens": part.tokens, "tokens": tokens, "values": part.values, "changing": changing}


def is_large(change: float, row: Row) -> bool:
    """Whether a change would leave the interval of a row's value, or is large for a value without an interval."""
    assert row.value is not None
    if row.low is not None and row.high is not None:
        return not row.low <= row.value + change <= row.high
    distance = 0.0 if row.null is None else abs(row.value - row.null)
    return abs(change) > LARGE_CHANGE * max(abs(row.value), distance)
