"""NC4 at every layer: the output layer's choice beside the nearest class centre of the layer, and of its null."""

from collections.abc import Callable
from typing import final

import torch
from torch import Tensor

from collapselab.core.batch import IGNORED
from collapselab.core.catalogue import Need
from collapselab.core.decisions import (
    Classifier,
    Decisions,
    LinearClassifier,
    Observer,
    nearest_centre,
    output_classifier,
)  # fmt: skip
from collapselab.core.moments import ClassMoments
from collapselab.measurement.batch import Batch
from collapselab.measurement.catalogue import ALL, counted_values
from collapselab.measurement.collector import LAST, NULL, Collectors, Summed, Values
from collapselab.measurement.collectors.moments import Moments
from collapselab.measurement.distributed import Processes, ShardedCentres
from collapselab.measurement.plan import MeasurePlan, Split
from collapselab.measurement.sample import ByLayer
from collapselab.models.taps import OutputLayer

LEFT_OUT = "left out, "
"""The beginning of the names of the numbers of tokens whose class has no centre."""


@final
class NearestCentres(Summed):
    """Counts (4, classes) for each layer and its null: decided tokens, agreement, and which classifier was right.

    Centres are of the training split, features of the validation split. The output layer chooses once, for all layers.
    Layers below the last may skip positions, and with them classes: there both classifiers choose among the classes
    that are left.
    """

    name = "decisions"
    resampled = True

    def __init__(self, plan: MeasurePlan, split: Split, earlier: Collectors | None = None) -> None:
        """Training's moments are removed from their collector as means are taken, so that memory has one of the two."""
        super().__init__(plan, split, earlier)
        assert earlier is not None
        assert earlier.trained is not None, "centres are those of the training split"
        self.numbers, self.shards = plan.splits["train"].numbers, plan.splits["train"].shards
        self.kept = ByLayer(plan.counts.last > 0, plan.counts.below > 0)
        last = self._head(plan.model.classifier, self.kept.last)
        same = torch.equal(self.kept.last, self.kept.below)
        self.head = ByLayer(last, last if same else self._head(plan.model.classifier, self.kept.below))
        self.is_below = self.kept.below.to(plan.model.device)
        self.class_of = self._classes(plan.model.classes, self.kept.last).to(plan.model.device)
        self.may_use_logits = plan.model.head.softcap is None and plan.model.head.scale == 1
        """Whether the logits are the scores of the classifier, whose rounding is known."""
        tables = earlier.trained[Moments].tables
        self.nearest = {
            name: self._centres(tables.pop(name), self.kept.of(name.removesuffix(NULL))) for name in list(tables)
        }
        self.observers: dict[str, Callable[[Batch], Observer]] = {}
        """What is shown the scores that nearest centres are chosen with."""

    @classmethod
    def wanted(cls, plan: MeasurePlan, split: Split) -> bool:
        return split == "validation"

    @classmethod
    def bytes(cls, plan: MeasurePlan, split: Split) -> float:
        """Centres in float64 and float32, output rows as they are and in float32, scores of a batch, and counts."""
        train, width = plan.splits["train"], plan.width
        classes = train.numbers.classes
        head = (plan.model.head.weight.element_size() + 4) * classes * width
        scores = plan.batch_tokens * (20 * width + 4 * min(2048, classes))
        return plan.tables * train.rows * (12 * width + 64) + head + scores

    def update(self, layer: str, features: Tensor, batch: Batch) -> None:
        for name in (layer, layer + NULL):
            nearest = self.nearest.get(name)
            if isinstance(nearest, LinearClassifier):
                observe = self.observers[name](batch) if name in self.observers else None
                batch.nearest[name] = nearest.choices(features, observe=observe)
            elif nearest is not None:
                batch.nearest[name] = nearest.choices(batch.everyones(features))
        if layer == LAST:
            chosen = self._of_the_head(features, batch)
            batch.head = ByLayer(chosen, self._among_classes_below(chosen, features))
            self._count(batch, batch.head)

    def values(self, *, resampled: bool = False) -> Values:
        values = Values()
        for name in self.nearest_names:
            layer, into = name.removesuffix(NULL), values.nulls if name.endswith(NULL) else values.measured
            for bin, classes in {ALL: None, **self.plan.bins}.items():
                into |= counted_values(
                    self.plan, Need.DECISIONS, layer=layer, bin=bin, decisions=self.decisions(name), classes=classes
                )
        return values

    def finish(self, processes: Processes) -> None:
        super().finish(processes)
        self.nearest, self.observers = {}, {}  # as large as the moments

    @property
    def nearest_names(self) -> list[str]:
        """Layers, and their nulls, that were decided."""
        return [name for name in self.sums if not name.startswith(LEFT_OUT)]

    def decisions(self, name: str = LAST) -> Decisions:
        """The counts of a layer."""
        tokens, agreed, nearest_right, head_right = self.sums[name].cpu()
        left_out, min_count = int(self.sums[LEFT_OUT + name]), self.plan.options.min_count
        return Decisions(tokens, agreed, nearest_right, head_right, left_out, min_count)

    def _count(self, batch: Batch, heads: ByLayer[Tensor]) -> None:
        """Count the choices about a batch, on the device of the choices."""
        columns = batch.labels.last.own.shape[1]
        for name, choices in batch.nearest.items():
            layer = name.removesuffix(NULL)
            labels = batch.labels.of(layer).own
            blocks, width = labels.shape
            head = heads.of(layer).view(-1, columns)[:blocks, columns - width :]  # positions that this layer has
            nearest = choices.view(-1, width)[:blocks].to(head.device)
            row = self.numbers.of(labels).to(head.device)
            place = row.clamp(min=0)
            decided = (row != IGNORED) & self.kept.of(layer).to(head.device)[place]
            counts = torch.zeros(4, len(self.kept.last), dtype=torch.int64, device=head.device)
            for count, hit in zip(counts, (decided, head == nearest, nearest == row, head == row), strict=True):
                count.index_add_(0, place.reshape(-1), (decided & hit).reshape(-1).long())
            self.add(name, counts)
            self.add(LEFT_OUT + name, (labels != IGNORED).sum().to(head.device) - decided.sum())

    def _of_the_head(self, features: Tensor, batch: Batch) -> Tensor:
        """The output layer's choices among the classes of the last layer; any of tokens that are not scored."""
        scored = batch.scored
        if scored is None or not self.may_use_logits or scored.top.gap.dtype != torch.float32:
            return self.head.last.choices(features)
        tokens: Tensor | slice = slice(len(scored.top.best))  # shards have blocks that fill a batch after them
        if batch.labels.last.used is not None:
            tokens = batch.labels.last.used.to(features.device)
        chosen = torch.zeros(len(features), dtype=torch.int64, device=features.device)
        chosen[tokens] = self.head.last.sure_choices(scored.top, features[tokens], self.class_of)
        return chosen

    def _among_classes_below(self, chosen: Tensor, features: Tensor) -> Tensor:
        """The output layer's choices among the classes below: another one only where its first choice is not there."""
        if self.head.below is self.head.last:
            return chosen
        again = (~self.is_below[chosen]).nonzero().squeeze(1)
        chosen = chosen.clone()
        if len(again):
            chosen[again] = self.head.below.choices(features[again])
        return chosen

    def _head(self, layer: OutputLayer, kept: Tensor) -> LinearClassifier:
        classes = kept.nonzero().squeeze(1)
        rows, device = self.numbers.ids[classes], layer.weight.device
        return output_classifier(layer.weight, layer.bias, classes.to(device), rows=rows.to(device))

    def _classes(self, vocabulary: int, kept: Tensor) -> Tensor:
        """The class of each row of the output layer; -1 where it is not kept."""
        class_of, classes = torch.full((vocabulary,), -1), kept.nonzero().squeeze(1)
        class_of[self.numbers.ids[classes]] = classes
        return class_of

    def _centres(self, moments: ClassMoments, kept: Tensor) -> Classifier:
        if self.shards is not None:
            return ShardedCentres(self.shards, moments, kept)
        return nearest_centre(moments, kept.nonzero().squeeze(1).to(moments.device))
