"""From what was gathered to measurements: the catalogue of every layer, split and frequency bin.

A measurement's key is (split, layer, bin, metric). Decisions (NC4) stand under the training split, which their centres
come from. Metrics of the output layer alone stand with the last layer.
"""

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple, final

import torch
from torch import Tensor

from collapselab.core.decisions import Decisions
from collapselab.core.metrics import METRICS, Measurement, collapse_metrics
from collapselab.core.moments import ClassMoments
from collapselab.core.needs import Need, ReasonCode
from collapselab.measurement.class_numbers import ClassNumbers
from collapselab.measurement.sample import ByLayer
from collapselab.measurement.sums import LayerKey
from collapselab.models.taps import OutputLayer

ALL = "all"
"""The bin of all classes."""


def of_decisions() -> frozenset[str]:
    """Metrics of decisions (NC4)."""
    return frozenset(id for id, metric in METRICS.items() if Need.DECISIONS in metric.needs)


def of_features() -> frozenset[str]:
    """Metrics that class means enter."""
    return frozenset(id for id, metric in METRICS.items() if Need.MEANS in metric.needs)


def of_the_head() -> frozenset[str]:
    """Metrics of the output layer alone, which no label enters."""
    return frozenset(METRICS) - of_decisions() - of_features()


class Key(NamedTuple):
    """What a measurement is about."""

    split: str
    layer: str
    bin: str
    metric: str


Measurements = dict[Key, Measurement]


class Catalogue(NamedTuple):
    """How measurements are made: the output layer as it is applied, which classes have rows, and the bins."""

    head: OutputLayer
    numbers: ClassNumbers
    min_count: int
    bins: dict[str, Tensor]

    def of_moments(self, moments: ClassMoments, split: str, layer: str, *, with_head: bool) -> Measurements:
        """Everything but decisions, for one layer; bins for the training split.

        `with_head` adds the output layer's own metrics, which no label enters: they stand with the last layer's values.
        """
        wanted = of_features() | of_the_head() if with_head else of_features()
        found: Measurements = {}
        for bin, classes in {ALL: None, **(self.bins if split == "train" else {})}.items():
            values = self._values(moments, wanted, classes)
            found |= {Key(split, layer, bin, id): _with_reason(one, layer, moments) for id, one in values.items()}
        return found

    def of_decisions(
        self, decisions: dict[LayerKey, Decisions], counts: ByLayer[Tensor], *, null: bool = False
    ) -> Measurements:
        """NC4 for each layer, with centres of the training split, whose class counts these are."""
        found: Measurements = {}
        for key, judged in decisions.items():
            if key.null != null:
                continue
            light = _only_counts(counts.of(key.layer))
            for bin, classes in {ALL: None, **self.bins}.items():
                values = collapse_metrics(
                    light, min_count=self.min_count, decisions=judged, classes=classes, only=of_decisions()
                )
                found |= {Key("train", key.layer, bin, id): one for id, one in values.items()}
        return found

    def _values(self, moments: ClassMoments, wanted: frozenset[str], classes: Tensor | None) -> dict[str, Measurement]:
        weight, bias = self.head.weight, self.head.bias
        fits = weight.shape[1] == moments.dim
        return collapse_metrics(
            moments,
            weight=self.numbers.rows(weight) if fits else None,
            bias=self.numbers.rows(bias) if fits and bias is not None else None,
            min_count=self.min_count,
            classes=classes,
            only=wanted,
        )


def _only_counts(counts: Tensor) -> ClassMoments:
    return ClassMoments(counts, torch.zeros(len(counts), 1).double(), torch.zeros(len(counts)).double())


@final
@dataclass(frozen=True)
class ClassSizes:
    """How a sample is spread over its classes. Classes that are seen once have a mean, and no variance."""

    classes: int
    classes_seen_once: int
    tokens_per_class: float


def class_sizes(counts: Tensor) -> ClassSizes:
    """Of the classes with these counts; those of count 0 are not in the sample."""
    classes = int((counts > 0).sum())
    return ClassSizes(classes, int((counts == 1).sum()), int(counts.sum()) / max(classes, 1))


def frequency_bins(counts: Tensor, bins: int, *, min_count: int) -> dict[str, Tensor]:
    """Classes by how often they are a label, in ranges of equal width on a logarithmic axis: "LOW-HIGH" → mask.

    Ranges cover the counts from the rarest kept class to the most frequent and hold whole numbers; where so narrow that
    one would hold none, it is not there.
    """
    kept = counts[counts >= min_count]
    if not bins or not len(kept):
        return {}
    low, high = int(kept.min()), int(kept.max())
    edges = [math.ceil(low * ((high + 1) / low) ** (i / bins) - 1e-9) for i in range(bins)] + [high + 1]
    ranges = [(start, stop - 1) for start, stop in pairwise(edges) if start < stop]
    return {f"{start}-{stop}": (counts >= start) & (counts <= stop) for start, stop in ranges}


def _with_reason(one: Measurement, layer: str, moments: ClassMoments) -> Measurement:
    """The true reason where a layer is of another size than the output layer, or has no pooled covariance."""
    if one.code is ReasonCode.NO_HEAD:
        return replace(one, why=f"layer {layer} has {moments.dim:,} dimensions, unlike the output layer.")
    if one.code is ReasonCode.NO_COVARIANCE and not moments.has_covariance:
        return replace(one, why="the pooled covariance is collected at the last layer only.")
    return one
