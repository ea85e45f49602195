"""NC4 at every layer: the output layer's choice beside the nearest class centre of each layer, and of its null."""

from typing import final

import torch
from torch import Tensor

from collapselab.core.batch import IGNORED
from collapselab.core.decisions import Decisions, LinearClassifier, nearest_centre
from collapselab.measurement.class_numbers import ClassNumbers
from collapselab.measurement.sample import ByLayer
from collapselab.measurement.shards import ClassShards
from collapselab.measurement.sums import Gathered, LayerKey
from collapselab.models.taps import OutputLayer


@final
class Judge:
    """Classifiers made from the training split's moments, for the features of the validation split.

    `see` each layer of a batch as the forward pass brings it, then `tally` the batch. Layers below the last may leave
    out positions, and with them classes: there both classifiers choose among the classes that are kept there.
    """

    def __init__(
        self,
        trained: Gathered,
        head: OutputLayer,
        kept: ByLayer[Tensor],
        numbers: ClassNumbers,
        *,
        min_count: int,
        shards: ClassShards | None = None,
    ) -> None:
        """`kept` masks the rows of classes that are candidates, `numbers` says which classes these are.

        The moments are used up, so that means are not held twice.
        """
        device = head.weight.device
        self.min_count, self.numbers, self.shards = min_count, numbers, shards
        self.is_kept = ByLayer(kept.last.to(device), kept.below.to(device))
        self.kept = ByLayer(*(mask.nonzero().squeeze(1) for mask in (self.is_kept.last, self.is_kept.below)))
        ids = numbers.ids.to(device)
        self.head = _rows_of(head, ids[self.kept.last])
        alike = torch.equal(self.kept.last, self.kept.below)
        self.head_below = self.head if alike else _rows_of(head, ids[self.kept.below])
        self.centred = (
            self.kept if shards is None else ByLayer(self._own(self.is_kept.last), self._own(self.is_kept.below))
        )
        self.nearest: dict[LayerKey, LinearClassifier | None] = {}
        for key in list(trained.moments):
            moments = trained.moments.pop(key)
            centred = self.centred.of(key.layer).to(moments.device)
            self.nearest[key] = nearest_centre(moments, centred) if len(centred) else None
        self._choices: dict[LayerKey, Tensor] = {}
        self._heads: ByLayer[Tensor] | None = None

    def see(self, layer: str, features: Tensor, everyones: Tensor | None = None) -> None:
        """Choose for each token. With shards the features of all processes are needed too."""
        for key in (LayerKey(layer), LayerKey(layer, null=True)):
            if key in self.nearest:
                self._choices[key] = self._nearest(key, features if everyones is None else everyones)
        if layer == "last":
            chosen = self.kept.last[self.head.choices(features)]
            self._heads = ByLayer(chosen.cpu(), self._among_those_below(chosen, features).cpu())

    def tally(self, gathered: Gathered, labels: ByLayer[Tensor]) -> None:
        """Add the batch that was seen to the decisions: samples (blocks, positions) whose label is a kept class."""
        chosen = {key: choices.cpu() for key, choices in self._choices.items()}
        heads, columns = self._heads, labels.last.shape[1]
        assert heads is not None, "the last layer was not seen"
        self._choices, self._heads = {}, None
        for key, nearest in chosen.items():
            layer = key.layer
            label, is_kept = labels.of(layer).cpu(), self.is_kept.of(layer).cpu()
            right = self.numbers.of(label)
            blocks, width = right.shape
            head = heads.of(layer).view(-1, columns)[:blocks, columns - width :]  # of the positions this layer has
            sampled = label != IGNORED
            judged = (right != IGNORED) & is_kept[right.clamp(min=0)]
            decisions = Decisions.counted(
                right[judged],
                head[judged],
                nearest.view(-1, width)[:blocks][judged],
                classes=len(is_kept),
                min_count=self.min_count,
                left_out=int((sampled & ~judged).sum()),
            )
            gathered.add_decisions(key, decisions)

    def _among_those_below(self, chosen: Tensor, features: Tensor) -> Tensor:
        """The output layer's choices among the classes kept below: another only where its first choice is not one."""
        if self.head_below is self.head:
            return chosen
        again = (~self.is_kept.below[chosen]).nonzero().squeeze(1)
        chosen = chosen.clone()
        if len(again):
            chosen[again] = self.kept.below[self.head_below.choices(features[again])]
        return chosen

    def _nearest(self, key: LayerKey, features: Tensor) -> Tensor:
        classifier, layer = self.nearest[key], key.layer
        if self.shards is not None:
            return self.shards.nearest(classifier, self.centred.of(layer), features)
        assert classifier is not None
        kept = self.kept.of(layer)
        return kept[classifier.choices(features.to(classifier.rows.device)).to(kept.device)]

    def _own(self, mask: Tensor) -> Tensor:
        assert self.shards is not None
        return self.shards.own(mask).nonzero().squeeze(1)


def _rows_of(head: OutputLayer, kept: Tensor) -> LinearClassifier:
    return LinearClassifier(head.weight[kept], None if head.bias is None else head.bias[kept])
