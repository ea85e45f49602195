"""From sums to rows: the catalogue of every layer, split and frequency bin.

Decisions (NC4) are listed under the training split, which their centres come from. Metrics of the output layer alone
are listed with the last layer.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, final

import torch

from collapselab.core.catalogue import METRICS, Need, ReasonCode
from collapselab.core.centre_loss import CentreLoss
from collapselab.core.decisions import Decisions
from collapselab.core.geometry import Geometry
from collapselab.core.metrics import Measurement, class_rows, metrics_of
from collapselab.core.moments import ClassMoments
from collapselab.core.output_curvature import CurvatureSums
from collapselab.measurement.plan import MeasurePlan, Split
from collapselab.measurement.sums import LayerKey
from collapselab.measurement.tables import LayerRows
from collapselab.records.measurement import Key
from collapselab.records.tables import Row, RowsByTable, bin_start

ALL = "all"
"""The bin that has all classes."""


def needing(*needs: Need) -> frozenset[str]:
    """Metrics that are computed from any of these."""
    return frozenset(id for id, metric in METRICS.items() if metric.needs & set(needs))


def of_the_head() -> frozenset[str]:
    """Metrics of the output rows of kept classes alone."""
    return needing(Need.HEAD) - needing(Need.MEANS)


def without_labels() -> frozenset[str]:
    """Metrics that do not depend on labels: null and value agree."""
    return of_the_head() | needing(Need.SPECTRUM, Need.OUTPUT_LAYER, Need.CURVATURE)


Measurements = dict[Key, Measurement]
Interval = Callable[[Key, float | None], tuple[float | None, float | None]]
"""Both ends of the interval of a value."""


@final
@dataclass
class Values:
    """All measurements of a model, those of the null, and the rows of further tables by their name."""

    measured: Measurements = field(default_factory=dict)
    nulls: Measurements = field(default_factory=dict)
    tables: RowsByTable = field(default_factory=dict)
    classes: list[LayerRows] = field(default_factory=list)
    """What each class has by itself, layer by layer, where the table `classes` was asked for."""


def layer_values(
    plan: MeasurePlan,
    moments: ClassMoments,
    split: Split,
    layer: str,
    *,
    with_head: bool,
    with_bins: bool = True,
    null: bool = False,
    classes: list[LayerRows] | None = None,
) -> Measurements:
    """Everything but decisions, for one layer; within bins too for the training split.

    `with_head` adds the metrics of the output rows alone, which are listed with the last layer; `null` leaves out what
    does not depend on labels. `classes` is a list to which the rows of the layer's classes are added.
    """
    wanted = needing(Need.MEANS) | of_the_head() if with_head else needing(Need.MEANS)
    wanted -= without_labels() if null else frozenset()
    weight, bias, rows = plan.model.classifier.weight, plan.model.classifier.bias, plan.splits[split].numbers.rows
    fits = weight.shape[1] == moments.dim
    weight_rows, bias_rows = rows(weight) if fits else None, rows(bias) if fits and bias is not None else None
    values: Measurements = {}
    for bin, mask in {ALL: None, **(plan.bins if split == "train" and with_bins else {})}.items():
        with_rows = bin == ALL and classes is not None
        geometry = Geometry(
            moments,
            weight=weight_rows,
            bias=bias_rows,
            min_count=plan.options.min_count,
            classes=mask,
            rows=with_rows,
        )
        measured = metrics_of(geometry, only=wanted)
        if with_rows and classes is not None:
            classes.append(LayerRows(split, layer, class_rows(geometry)))
        values |= {Key(split, layer, bin, id): _with_reason(value, layer, moments) for id, value in measured.items()}
    return values


def decision_values(plan: MeasurePlan, decisions: dict[LayerKey, Decisions], *, null: bool = False) -> Measurements:
    """NC4 for each layer, or for each null; under the training split, where the centres come from."""
    values: Measurements = {}
    for key, counted in decisions.items():
        for bin, classes in {ALL: None, **plan.bins}.items() if key.null == null else ():
            values |= _of_counts(plan, Need.DECISIONS, layer=key.layer, bin=bin, decisions=counted, classes=classes)
    return values


def curvature_values(plan: MeasurePlan, split: Split, sums: CurvatureSums) -> Measurements:
    """How the loss bends in the output layer, for all classes at once."""
    return _of_counts(plan, Need.CURVATURE, split=split, curvature=sums)


def output_layer_values(plan: MeasurePlan) -> Measurements:
    """Metrics of all rows of the output layer, whether they are classes of the sample or not."""
    return _of_counts(plan, Need.OUTPUT_LAYER, output_layer=plan.model.classifier.weight)


def centre_loss_values(plan: MeasurePlan, losses: dict[LayerKey, CentreLoss], *, null: bool = False) -> Measurements:
    """The loss by the centres of the last layer, or of its null; under the training split, where these come from."""
    loss = losses.get(LayerKey("last", null=null))
    measured = _of_counts(plan, Need.CENTRE_LOSS, centre_loss=loss)
    why = "centres that are spread over processes (--shard-classes) make no probabilities."
    return {key: replace(value, why=why) if loss is None else value for key, value in measured.items()}


def _of_counts(
    plan: MeasurePlan, need: Need, *, split: Split = "train", layer: str = "last", bin: str = ALL, **given: Any
) -> Measurements:
    """The metrics that need no more than what is given, and the counts of classes."""
    counts = plan.counts.of(layer)
    moments = ClassMoments(counts, torch.zeros(len(counts), 1).double(), torch.zeros(len(counts)).double())
    measured = metrics_of(Geometry(moments, min_count=plan.options.min_count, **given), only=needing(need))
    return {Key(split, layer, bin, id): value for id, value in measured.items()}


def value_rows(plan: MeasurePlan, values: Values, interval: Interval | None) -> list[Row]:
    """A row for each value, beside its null and its interval, in order."""
    rows = []
    for key in sorted(values.measured, key=row_order):
        measured, null = values.measured[key], values.nulls.get(key)
        low, high = (None, None) if interval is None else interval(key, measured.value)
        rows.append(
            Row(
                run=plan.model.run or plan.model.name,
                checkpoint=plan.model.checkpoint or "-",
                split="train" if key.split == "train" else "validation",
                layer=key.layer,
                bin=key.bin,
                metric=key.metric,
                value=measured.value,
                null=None if null is None else null.value,
                low=low,
                high=high,
                classes=measured.classes,
                tokens=measured.tokens,
                min_count=measured.min_count,
                left_out=measured.left_out,
                version=measured.version,
                why=measured.why,
            )
        )
    return rows


def row_order(key: Key | Row) -> tuple[str, tuple[int, int], int, int]:
    """Rows in the order of splits, layers, bins and the catalogue."""
    layer = (1, 0) if key.layer == "last" else (0, int(key.layer))
    known = list(METRICS)
    return key.split, layer, bin_start(key.bin), known.index(key.metric) if key.metric in known else len(known)


def _with_reason(value: Measurement, layer: str, moments: ClassMoments) -> Measurement:
    """A more exact reason where a layer has another size than the output layer, or no pooled covariance."""
    if value.code is ReasonCode.NO_HEAD:
        return replace(value, why=f"layer {layer} has {moments.dim:,} dimensions, unlike the output layer.")
    if value.code is ReasonCode.NO_COVARIANCE and not moments.has_covariance:
        return replace(value, why="the covariance within classes is collected at the last layer only.")
    return value
