"""Whether a value still changes with the number of tokens: part of the sample beside all of it, in the same pass.

Many values grow or fall with the logarithm of the number of tokens, since classes that are seen once have no variance.
The value of about half of the sample is taken as the pass goes by it, when the moments are those of that half; no
table is held twice. Several processes each have a part of the sample: there it is that of the first one's part. With
resamples it is the mean over random halves, which are there already. The change that twice the tokens would make is

    (whole - part) / log2(tokens / part_tokens)

It is reported where it would leave the value's interval. Without an interval it is where it is more than a twentieth
of the value, or of its distance from the null if that is larger: ten times the tokens would then move it by a sixth
and more, so that values from different numbers of tokens cannot be compared.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, final

from collapselab.core.moments import ClassMoments
from collapselab.records.tables import Row

LARGE_CHANGE = 0.05


@final
@dataclass(frozen=True)
class Part:
    """The values of the last layer's metrics in a part of the training split's sample."""

    tokens: int
    values: dict[str, float]


@final
@dataclass(frozen=True)
class HalfSample:
    """A part of the sample beside all of it; `changing` are the metrics that twice the tokens would move too far."""

    part_tokens: int
    tokens: int
    values: dict[str, float]
    changing: list[str]

    def facts(self) -> dict[str, Any]:
        """As JSON knows it."""
        return asdict(self)


@final
@dataclass(frozen=True)
class Halfway:
    """Where a pass over the training split takes the values of what it has collected: after this many blocks."""

    blocks: int
    values: Callable[[ClassMoments], dict[str, float]]

    def part(self, moments: ClassMoments) -> Part:
        return Part(moments.tokens, self.values(moments))


def half_of(blocks: int, batch: int) -> int | None:
    """The blocks of about half a sample: whole batches, where it has two or more; None for a single block."""
    if blocks < 2:
        return None
    return blocks // 2 if blocks < 2 * batch else batch * round(blocks / (2 * batch))


def compared(part: Part | None, rows: Sequence[Row], tokens: int) -> HalfSample | None:
    """The part beside the whole, whose rows these are; None where there is no part, or it is all there is."""
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
    return HalfSample(part.tokens, tokens, part.values, changing)


def is_large(change: float, row: Row) -> bool:
    """Whether such a change would leave the interval of a row's value, or is large for a value without one."""
    assert row.value is not None
    if row.low is not None and row.high is not None:
        return not row.low <= row.value + change <= row.high
    distance = 0.0 if row.null is None else abs(row.value - row.null)
    return abs(change) > LARGE_CHANGE * max(abs(row.value), distance)
