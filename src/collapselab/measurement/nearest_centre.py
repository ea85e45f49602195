"""NC4 at every layer: the output layer's choice beside the nearest class centre of the layer, and of its null."""

from typing import final

import torch
from torch import Tensor

from collapselab.core.batch import IGNORED
from collapselab.core.decisions import Classifier, Decider, LinearClassifier, nearest_centre, output_classifier
from collapselab.core.moments import ClassMoments
from collapselab.measurement.deciders import AgreementMatrix
from collapselab.measurement.distributed import ShardedCentres
from collapselab.measurement.plan import MeasurePlan
from collapselab.measurement.sample import ByLayer
from collapselab.measurement.sums import LayerKey, Sums
from collapselab.models.taps import OutputLayer


@final
class NearestCentres:
    """A `Decider` for each layer and its null: centres of the training split, for features of the validation split.

    Call `choose` for each layer of a batch when the forward pass reaches it, then `tally` for the batch. The output
    layer chooses once, for all layers. Layers below the last may skip positions, and with them classes: there both
    classifiers choose among the classes that are left.
    """

    def __init__(self, plan: MeasurePlan, trained: Sums) -> None:
        """The moments of `trained` are removed from it as their means are taken, so that memory has one of the two."""
        self.numbers, self.shards = plan.splits["train"].numbers, plan.splits["train"].shards
        kept = ByLayer(plan.counts.last > 0, plan.counts.below > 0)
        last = self._head(plan.model.classifier, kept.last)
        same = torch.equal(kept.last, kept.below)
        self.head = ByLayer(last, last if same else self._head(plan.model.classifier, kept.below))
        self.is_below = kept.below.to(plan.model.device)
        self.deciders: dict[LayerKey, Decider] = {}
        for key in list(trained.moments):
            moments, mask, head = trained.moments.pop(key), kept.of(key.layer), self.head.of(key.layer)
            nearest, min_count = self._centres(moments, mask), plan.options.min_count
            self.deciders[key] = Decider.of(mask, moments.dim, head=head, nearest=nearest, min_count=min_count)
        self.matrix = AgreementMatrix(plan, self.head.below, kept.below) if plan.options.deciders else None
        self._nearest: dict[LayerKey, Tensor] = {}
        self._heads: ByLayer[Tensor] | None = None

    def choose(self, layer: str, features: Tensor, everyones: Tensor) -> None:
        """Choose a class for each token. `everyones` are the features of all processes, which shards need."""
        for key in (LayerKey(layer), LayerKey(layer, null=True)):
            if key in self.deciders:
                self._nearest[key] = self.deciders[key].nearest.choices(features if self.shards is None else everyones)
        if self.matrix is not None:
            self.matrix.look(layer, features)
        if layer == "last":
            chosen = self.head.last.choices(features)
            self._heads = ByLayer(chosen.cpu(), self._among_classes_below(chosen, features).cpu())

    def tally(self, sums: Sums, labels: ByLayer[Tensor]) -> None:
        """Add the decisions about the batch to the sums; labels are (blocks, positions)."""
        heads, columns = self._heads, labels.last.shape[1]
        assert heads is not None, "the last layer was not seen"
        for key, choices in self._nearest.items():
            label = labels.of(key.layer).cpu()
            row = self.numbers.of(label)
            blocks, width = row.shape
            head = heads.of(key.layer).view(-1, columns)[:blocks, columns - width :]  # positions that this layer has
            nearest = choices.cpu().view(-1, width)[:blocks]
            has_row = row != IGNORED
            without_row = int(((label != IGNORED) & ~has_row).sum())
            decisions = self.deciders[key].tally(row[has_row], head[has_row], nearest[has_row], left_out=without_row)
            sums.add_decisions(key, decisions)
        if self.matrix is not None:
            self._add_to_matrix(self.matrix, sums, heads, labels)
        self._nearest, self._heads = {}, None

    def _add_to_matrix(
        self, matrix: AgreementMatrix, sums: Sums, heads: ByLayer[Tensor], labels: ByLayer[Tensor]
    ) -> None:
        """The choices of all, at the positions that layers below have; the last layer may have more before them."""
        (blocks, width), columns = labels.below.shape, labels.last.shape[1]
        nearest = {
            key.layer: chosen.cpu().view(-1, columns if key.layer == "last" else width)[:blocks, -width:]
            for key, chosen in self._nearest.items()
            if not key.null
        }
        head = heads.below.view(-1, columns)[:blocks, columns - width :]
        matrix.add(sums, self.numbers.of(labels.below.cpu()), head, nearest)

    def _head(self, layer: OutputLayer, kept: Tensor) -> LinearClassifier:
        classes = kept.nonzero().squeeze(1)
        rows, device = self.numbers.ids[classes], layer.weight.device
        return output_classifier(layer.weight, layer.bias, classes.to(device), rows=rows.to(device))

    def _centres(self, moments: ClassMoments, kept: Tensor) -> Classifier:
        if self.shards is not None:
            return ShardedCentres(self.shards, moments, kept)
        return nearest_centre(moments, kept.nonzero().squeeze(1).to(moments.device))

    def _among_classes_below(self, chosen: Tensor, features: Tensor) -> Tensor:
        """The output layer's choices among the classes below: another one only where its first choice is not there."""
        if self.head.below is self.head.last:
            return chosen
        again = (~self.is_below[chosen]).nonzero().squeeze(1)
        chosen = chosen.clone()
        if len(again):
            chosen[again] = self.head.below.choices(features[again])
        return chosen
