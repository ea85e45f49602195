"""Class moments of every layer with their null, how the squares of each layer are spread over its features, and whether
a value still changes with the number of tokens: `HalfSample`.

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
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from collapselab.core.catalogue import Need, ReasonCode
from collapselab.core.devices import by_device
from collapselab.core.geometry import Geometry
from collapselab.core.metrics import ClassRows, Measurement, class_rows, metrics_of
from collapselab.core.moments import PART_BYTES, ClassMoments, update_all
from collapselab.measurement.batch import Batch
from collapselab.measurement.collector import (
    ALL,
    LAST,
    NULL,
    Collector,
    Collectors,
    Measurements,
    Values,
    counted_values,
    needing,
)  # fmt: skip
from collapselab.measurement.plan import MeasurePlan, Split
from collapselab.records.facts import HalfSampleFacts
from collapselab.records.measurement import Key
from collapselab.records.result_folder import layer_file, moments_identity
from collapselab.records.tables import Row

LOWEST, HIGHEST = -300, 300
"""Exponents that are counted apart: those of squared float32 numbers. Smaller and larger ones count as these."""

HANDFUL, HANDFUL_SHARE = 10, 0.002
"""A handful of features: ten, or this share of all if it is more."""

LARGE_CHANGE = 0.05
TOKENS = "tokens"
"""The name of the number of tokens among the values of a part of the sample."""
SPREAD = "spread/"
"""The beginning of the names of the spreads' sums."""


class Moments(Collector):
    """Counts, means and scatter of each class at every layer, for the labels and for permuted ones.

    The metrics of class means come from them. Once the pass is finished, NearestCentres takes them apart into centres.
    """

    name = "moments"
    resampled = True

    def __init__(self, plan: MeasurePlan, split: Split, earlier: Collectors) -> None:
        super().__init__(plan, split, earlier)
        self.class_rows: dict[str, ClassRows] = {}
        """What each class has by itself, by layer, where the table `classes` was asked for."""

    @classmethod
    def bytes(cls, plan: MeasurePlan, split: Split) -> float:
        """All tables, twice with a bootstrap; two buffers for a batch; and for training the metrics of one table."""
        width, classes = plan.width, plan.splits[split].numbers.classes
        tables = plan.tables * (table_bytes(plan.splits[split].rows, width) + 8 * width**2)
        catalogue = 16 * classes * width + 80 * width**2 if split == "train" else 0
        buffers = 2 * min(by_device(PART_BYTES, plan.model.moments_device), 8 * plan.batch_tokens * width)
        columns = 80 * len(plan.layers) * classes * plan.options.classes
        return (2 if plan.options.bootstrap else 1) * tables + catalogue + columns + buffers

    def update(self, layer: str, features: Tensor, batch: Batch) -> None:
        labels, last, classes = batch.labels.of(layer), layer == LAST, self.split_plan.rows
        dim = features.shape[1]
        tables = [(self.table(layer, classes, dim, covariance=last, spectrum=not last), labels.counted)]
        if labels.null is not None:  # labels do not change the spectrum
            tables.append((self.table(layer + NULL, classes, dim, covariance=last), labels.null))
        squares = update_all(labels.added(batch.everyones(features)), tables, check=False)
        batch.squares += [(layer, checked, own) for (_, checked), own in zip(tables, squares, strict=True)]
        if last:
            batch.check_finite()
        batch.moments[layer] = tables[0][0]
        if self.split == "train":
            counts, sums = spread_of(squares[0])
            self.add(f"{SPREAD}{layer}/counts", counts)
            self.add(f"{SPREAD}{layer}/sums", sums)

    def values(self, *, resampled: bool = False) -> Values:
        values, shards, first = Values(), self.split_plan.shards, self.plan.processes.first
        if first and not resampled and self.split == "train":
            weight = self.plan.model.classifier.weight
            values.measured |= counted_values(self.plan, Need.OUTPUT_LAYER, output_layer=weight)
        for name, moments in self.tables.items():
            whole = moments if shards is None else shards.whole(moments)
            if whole is None or not first:
                continue
            layer, null = name.removesuffix(NULL), name.endswith(NULL)
            rows = self.plan.options.classes and not null and not resampled
            geometry_rows = self.class_rows if rows else None
            measured = layer_values(self.plan, whole, self.split, layer, null=null, class_rows_of=geometry_rows)
            (values.nulls if null else values.measured).update(measured)
            file = self.plan.moments_file
            if (name == LAST or rows) and self.split == "train" and not resampled and file is not None:
                about = moments_identity(self.plan.request.identity(self.plan.model), layer)
                self.split_plan.numbers.save(whole, layer_file(file, layer), about)
        return values

    def share_of_handful(self, layer: str) -> float:
        """The share of a layer's squares that a handful of its features carries; 0 where all are zero."""
        counts, sums = self.sums[f"{SPREAD}{layer}/counts"], self.sums[f"{SPREAD}{layer}/sums"]
        return share_of_largest(counts, sums, handful(int(counts.sum())))

    @property
    def spread_layers(self) -> dict[str, int]:
        """How many features were counted of each layer whose spread is known."""
        ends = [name for name in self.sums if name.startswith(SPREAD) and name.endswith("/counts")]
        return {name.split("/")[1]: int(self.sums[name].sum()) for name in ends}


def layer_values(
    plan: MeasurePlan,
    moments: ClassMoments,
    split: Split,
    layer: str,
    *,
    null: bool = False,
    bins: bool = True,
    class_rows_of: dict[str, ClassRows] | None = None,
) -> Measurements:
    """The metrics of class means of one layer; of the training split also within bins, if asked for.

    With training's last layer, those of the output rows are included. `null` leaves out what does not depend on labels.
    The rows of the layer's classes are added to `class_rows_of`.
    """
    wanted = needing(Need.MEANS)
    if (split, layer) == ("train", LAST) and bins:
        wanted |= of_the_head()
    if null:
        wanted -= without_labels()
    weight, rows = plan.model.classifier.weight, plan.splits[split].numbers.rows
    weight_rows = rows(weight) if weight.shape[1] == moments.dim else None
    values: Measurements = {}
    for bin, mask in {ALL: None, **(plan.bins if split == "train" and bins else {})}.items():
        with_rows, least = bin == ALL and class_rows_of is not None, plan.options.min_count
        geometry = Geometry(moments, weight=weight_rows, min_count=least, classes=mask, rows=with_rows)
        measured = metrics_of(geometry, only=wanted)
        if bin == ALL and class_rows_of is not None:
            class_rows_of[layer] = class_rows(geometry)
        values |= {Key(split, layer, bin, id): _with_reason(value, layer, moments) for id, value in measured.items()}
    return values


def of_the_head() -> frozenset[str]:
    """Metrics of the output rows of kept classes alone."""
    return needing(Need.HEAD) - needing(Need.MEANS)


def without_labels() -> frozenset[str]:
    """Metrics that do not depend on labels: null and value agree."""
    return of_the_head() | needing(Need.SPECTRUM, Need.OUTPUT_LAYER, Need.CURVATURE)


def _with_reason(value: Measurement, layer: str, moments: ClassMoments) -> Measurement:
    """A more exact reason where a layer has another size than the output layer, or no pooled covariance."""
    if value.code is ReasonCode.NO_HEAD:
        return replace(value, why=f"layer {layer} has {moments.dim:,} dimensions, unlike the output layer.")
    if value.code is ReasonCode.NO_COVARIANCE and not moments.has_covariance:
        return replace(value, why="the covariance within classes is collected at the last layer only.")
    return value


def table_bytes(classes: float, width: int) -> float:
    """Bytes of one ClassMoments: for each class its sum, count and squares."""
    return classes * (8 * width + 16)


def spread_of(squares: Tensor) -> tuple[Tensor, Tensor]:
    """How many squared distances (tokens,) there are of each power of two, and their sums.

    Distances are from the reference point of the moments (`core/moments.py`). These tables have one size whatever
    the number of features, and those of parts add up to that of the whole.
    """
    squares = torch.nan_to_num(squares, nan=0.0, posinf=torch.inf)  # too small or too large for float64
    exponents = torch.where(squares > 0, torch.frexp(squares).exponent.long(), LOWEST).clamp(LOWEST, HIGHEST) - LOWEST
    counts = torch.zeros(HIGHEST - LOWEST + 1, dtype=torch.int64, device=squares.device)
    sums = counts.double()
    return counts.index_add_(0, exponents, torch.ones_like(exponents)), sums.index_add_(0, exponents, squares)


def handful(features: int) -> int:
    return max(HANDFUL, int(HANDFUL_SHARE * features))


def share_of_largest(counts: Tensor, sums: Tensor, largest: int) -> float:
    """The share of all squares that so many of the farthest features carry; 0 where all are zero.

    Of the last power of two that is reached, only the missing features count, each with the mean of its power.
    """
    left, carried, total = largest, 0.0, float(sums.sum())
    if not 0 < total < float("inf") or int(counts.sum()) <= largest:
        return 0.0
    for place in counts.nonzero().squeeze(1).flip(0).tolist():
        count, power_sum = int(counts[place]), float(sums[place])
        taken = min(left, count)
        carried += power_sum * taken / count
        left -= taken
        if not left:
            break
    return carried / total


@dataclass(frozen=True)
class SamplePart:
    """The values of the last layer's metrics in a part of the training split's sample."""

    tokens: int
    values: dict[str, float]


class HalfSample(Collector):
    """The values of about half of the training sample, once the pass has seen that much."""

    name = "half_sample"

    def __init__(self, plan: MeasurePlan, split: Split, earlier: Collectors) -> None:
        super().__init__(plan, split, earlier)
        self.blocks = half_of(len(self.split_plan.samples.last), plan.batch)
        if plan.processes.world > 1:  # the part of the first process; none with sharded classes
            self.blocks = None if plan.options.shard_classes else self.split_plan.groups[0].stop

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
            moments.update(labels.added(features)[:rows], labels.rows[:rows])
        measured = layer_values(self.plan, moments, "train", LAST, bins=False)
        values = {key.metric: value.value for key, value in measured.items() if value.value is not None}
        values[TOKENS] = moments.tokens
        self.sums = {name: torch.tensor(value, dtype=torch.float64) for name, value in values.items()}

    @property
    def part(self) -> SamplePart | None:
        values = {name: float(value) for name, value in self.sums.items()}
        return SamplePart(int(values.pop(TOKENS)), values) if values else None


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
