"""Class moments of every layer with their null, and how the squares of each layer are spread over its features."""

from typing import final

import torch
from torch import Tensor

from collapselab.core.accumulator import PART_BYTES
from collapselab.core.catalogue import Need
from collapselab.core.geometry import Geometry
from collapselab.core.metrics import ClassRows, class_rows, metrics_of
from collapselab.core.moments import ClassMoments, update_all
from collapselab.measurement.batch import Batch
from collapselab.measurement.catalogue import (
    ALL,
    counted_values,
    needing,
    of_the_head,
    with_reason,
    without_labels,
)  # fmt: skip
from collapselab.measurement.collector import LAST, NULL, Collectors, Measurements, Summed, Values
from collapselab.measurement.plan import MeasurePlan, Split
from collapselab.records.measurement import Key
from collapselab.records.result_folder import moments_identity
from collapselab.records.run import kept_layers, layer_moments

LOWEST, HIGHEST = -300, 300
"""Exponents that are counted apart: those of squared float32 numbers. Smaller and larger ones count as these."""

HANDFUL, HANDFUL_SHARE = 10, 0.002
"""A handful of features: ten, or this share of all if it is more."""

SPREAD = "spread/"
"""The beginning of the names of the spreads' sums."""


@final
class Moments(Summed):
    """Counts, means and scatter of each class at every layer, for the labels and for permuted ones.

    The metrics of class means come from them. Once the pass is finished, NearestCentres takes them apart into centres.
    """

    name = "moments"
    resampled = True

    def __init__(self, plan: MeasurePlan, split: Split, earlier: Collectors | None = None) -> None:
        super().__init__(plan, split, earlier)
        self.class_rows: dict[str, ClassRows] = {}
        """What each class has by itself, by layer, where the table `classes` was asked for."""

    @classmethod
    def bytes(cls, plan: MeasurePlan, split: Split) -> float:
        """All tables, twice with a bootstrap; two buffers for a batch; and for training the metrics of one table."""
        width, classes = plan.width, plan.splits[split].numbers.classes
        tables = plan.tables * (table_bytes(plan.splits[split].rows, width) + 8 * width**2)
        catalogue = 16 * classes * width + 80 * width**2 if split == "train" else 0
        buffers = 2 * min(PART_BYTES["cpu"], 8 * plan.batch_tokens * width)
        columns = 80 * len(plan.layers) * classes * plan.options.classes
        return (2 if plan.options.bootstrap else 1) * tables + catalogue + columns + buffers

    def update(self, layer: str, features: Tensor, batch: Batch) -> None:
        labels, last, classes = batch.labels.of(layer), layer == LAST, self._classes()
        dim = features.shape[1]
        tables = [(self.table(layer, classes, dim, covariance=last, spectrum=not last), labels.counted)]
        if labels.null is not None:  # labels do not change the spectrum
            tables.append((self.table(layer + NULL, classes, dim, covariance=last), labels.null))
        try:
            squares = update_all(labels.added(batch.everyones(features)), tables, labels.arrivals)
        except ValueError as error:
            raise batch.refused(layer, features, error) from error
        batch.moments[layer] = tables[0][0]
        if self.split == "train":
            self._add_spread(layer, squares)

    def values(self, *, resampled: bool = False) -> Values:
        values, shards, first = Values(), self.split_plan.shards, self.plan.processes.first
        if first and not resampled:
            self._remove_earlier_files()
            if self.split == "train":
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
            if not (null or resampled):
                self._keep(layer, whole)
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

    def _classes(self) -> int:
        shards = self.split_plan.shards
        return self.split_plan.numbers.classes if shards is None else shards.classes

    def _add_spread(self, layer: str, squares: Tensor) -> None:
        counts, sums = spread_of(squares)
        self.add(f"{SPREAD}{layer}/counts", counts)
        self.add(f"{SPREAD}{layer}/sums", sums)

    def _remove_earlier_files(self) -> None:
        """Delete the moments of an earlier measurement."""
        if self.plan.moments_file is not None and self.split == "train":
            for file in kept_layers(self.plan.moments_file).values():
                file.unlink()

    def _keep(self, layer: str, moments: ClassMoments) -> None:
        """Save moments where the result is kept: of training's last layer, with the option `classes` of all."""
        file = self.plan.moments_file
        if file is not None and self.split == "train" and (layer == LAST or self.plan.options.classes):
            about = moments_identity(self.plan.request.identity(self.plan.model), layer)
            self.split_plan.numbers.save(moments, file if layer == LAST else layer_moments(file, layer), about)


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
    weight, bias, rows = plan.model.classifier.weight, plan.model.classifier.bias, plan.splits[split].numbers.rows
    fits = weight.shape[1] == moments.dim
    weight_rows, bias_rows = rows(weight) if fits else None, rows(bias) if fits and bias is not None else None
    values: Measurements = {}
    for bin, mask in {ALL: None, **(plan.bins if split == "train" and bins else {})}.items():
        geometry = Geometry(
            moments,
            weight=weight_rows,
            bias=bias_rows,
            min_count=plan.options.min_count,
            classes=mask,
            rows=bin == ALL and class_rows_of is not None,
        )
        measured = metrics_of(geometry, only=wanted)
        if bin == ALL and class_rows_of is not None:
            class_rows_of[layer] = class_rows(geometry)
        values |= {Key(split, layer, bin, id): with_reason(value, layer, moments) for id, value in measured.items()}
    return values


def table_bytes(classes: float, width: int) -> float:
    """Bytes of one ClassMoments: for each class its sum, count, squares and a flag."""
    return classes * (8 * width + 17)


def spread_of(squares: Tensor) -> tuple[Tensor, Tensor]:
    """How many squared distances (tokens,) there are of each power of two, and their sums.

    Distances are from the reference point of the moments (`core/accumulator.py`). These tables have one size whatever
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
