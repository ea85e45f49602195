"""Which metrics come from what, and the rows of their values.

Decisions (NC4) are listed under the training split, which their centres come from. Metrics of the output layer alone
are listed with the last layer.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from collapselab.core.catalogue import METRICS, Need, ReasonCode
from collapselab.core.geometry import Geometry
from collapselab.core.metrics import Measurement, metrics_of
from collapselab.core.moments import ClassMoments
from collapselab.measurement.plan import MeasurePlan, Split
from collapselab.records.measurement import Key
from collapselab.records.tables import Row, bin_start

if TYPE_CHECKING:
    from collapselab.measurement.collector import Values

ALL = "all"
"""The bin that has all classes."""

Interval = Callable[[Key, float | None], tuple[float | None, float | None]]
"""Both ends of the interval of a value."""


def needing(*needs: Need) -> frozenset[str]:
    """Metrics that are computed from any of these."""
    return frozenset(id for id, metric in METRICS.items() if metric.needs & set(needs))


def of_the_head() -> frozenset[str]:
    """Metrics of the output rows of kept classes alone."""
    return needing(Need.HEAD) - needing(Need.MEANS)


def without_labels() -> frozenset[str]:
    """Metrics that do not depend on labels: null and value agree."""
    return of_the_head() | needing(Need.SPECTRUM, Need.OUTPUT_LAYER, Need.CURVATURE)


def counted_values(
    plan: MeasurePlan, need: Need, *, split: Split = "train", layer: str = "last", bin: str = ALL, **given: Any
) -> dict[Key, Measurement]:
    """The metrics that need no more than what is given, and the counts of classes."""
    geometry = Geometry(plan.counts.of(layer), min_count=plan.options.min_count, **given)
    measured = metrics_of(geometry, only=needing(need))
    return {Key(split, layer, bin, id): value for id, value in measured.items()}


def value_rows(plan: MeasurePlan, values: "Values", interval: Interval | None) -> list[Row]:
    """A row for each value, beside its null and its interval, in order."""
    free = without_labels() if plan.options.null else frozenset()
    rows = []
    for key in sorted(values.measured, key=row_order):
        measured = values.measured[key]
        null = measured if key.metric in free else values.nulls.get(key)
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


def with_reason(value: Measurement, layer: str, moments: ClassMoments) -> Measurement:
    """A more exact reason where a layer has another size than the output layer, or no pooled covariance."""
    if value.code is ReasonCode.NO_HEAD:
        return replace(value, why=f"layer {layer} has {moments.dim:,} dimensions, unlike the output layer.")
    if value.code is ReasonCode.NO_COVARIANCE and not moments.has_covariance:
        return replace(value, why="the covariance within classes is collected at the last layer only.")
    return value
