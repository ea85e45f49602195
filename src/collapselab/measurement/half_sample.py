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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

from collapselab.core.moments import ClassMoments
from collapselab.measurement.catalogue import layer_values
from collapselab.measurement.plan import MeasurePlan
from collapselab.measurement.sums import LAST, SamplePart, Sums
from collapselab.records.facts import HalfSampleFacts
from collapselab.records.tables import Row

LARGE_CHANGE = 0.05


@final
@dataclass(frozen=True)
class Halfway:
    """After how many blocks a pass over the training split computes the values of its part, and how."""

    blocks: int
    values: Callable[[ClassMoments], dict[str, float]]

    def part(self, moments: ClassMoments) -> SamplePart:
        return SamplePart(moments.tokens, self.values(moments))


def half_of(blocks: int, batch: int) -> int | None:
    """The number of blocks of about half a sample: whole batches if it has two or more; None for a single block."""
    if blocks < 2:
        return None
    return blocks // 2 if blocks < 2 * batch else batch * round(blocks / (2 * batch))


def halfway(plan: MeasurePlan) -> Halfway | None:
    """When a single process computes the values of half the sample; with resamples there are halves already."""
    blocks = half_of(len(plan.splits["train"].samples.last), plan.batch)
    if blocks is None or plan.processes.world > 1 or plan.options.bootstrap:
        return None
    return Halfway(blocks, lambda moments: _part_values(plan, moments))


def own_part(plan: MeasurePlan, own: Sums) -> SamplePart | None:
    """The values of the first process's part of the sample; none with sharded classes."""
    if not plan.processes.first or plan.options.shard_classes or plan.options.bootstrap:
        return None
    return SamplePart(own.moments[LAST].tokens, _part_values(plan, own.moments[LAST]))


def _part_values(plan: MeasurePlan, moments: ClassMoments) -> dict[str, float]:
    measured = layer_values(plan, moments, "train", "last", with_head=False, with_bins=False)
    return {key.metric: value.value for key, value in measured.items() if value.value is not None}


def compare_halves(part: SamplePart | None, rows: Sequence[Row], tokens: int) -> HalfSampleFacts | None:
    """The part beside the whole, whose rows these are; None where there is no part, or the part is the whole."""
    if part is None or not 0 < part.tokens < tokens:
        return None
    doublings = math.log2(tokens / part.tokens)
    last = [row for row in rows if (row.split, row.layer, row.bin) == ("train", "last", "all")]
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
