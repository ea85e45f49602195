"""NC4 at every layer: the output layer's choice beside the nearest class centre of each layer, and of its null."""

from typing import final

from torch import Tensor

from collapselab.core.decisions import Decisions, LinearClassifier, nearest_centre
from collapselab.measurement.shards import ClassShards
from collapselab.measurement.sums import Gathered, null_of
from collapselab.models.taps import OutputLayer


@final
class Judge:
    """Classifiers made from the training split's moments, for the features of the validation split.

    `see` each layer of a batch as the forward pass brings it, then `tally` the batch.
    """

    def __init__(
        self, trained: Gathered, head: OutputLayer, kept: Tensor, *, min_count: int, shards: ClassShards | None = None
    ) -> None:
        """`kept` masks the classes that are candidates. The moments are used up, so that means are not held twice."""
        device = head.weight.device
        self.min_count, self.shards = min_count, shards
        self.is_kept = kept.to(device)
        self.kept = self.is_kept.nonzero().squeeze(1)
        bias = None if head.bias is None else head.bias[self.kept]
        self.head = LinearClassifier(head.weight[self.kept], bias)
        self.centred = self.kept if shards is None else shards.own(self.is_kept).nonzero().squeeze(1)
        self.nearest: dict[str, LinearClassifier | None] = {}
        for key in list(trained.moments):
            moments = trained.moments.pop(key)
            centred = self.centred.to(moments.device)
            self.nearest[key] = nearest_centre(moments, centred) if len(centred) else None
        self._choices: dict[str, Tensor] = {}

    def see(self, layer: str, features: Tensor, everyones: Tensor | None = None) -> None:
        """Choose for each token. With shards the features of all processes are needed too."""
        for key in (layer, null_of(layer)):
            if key in self.nearest:
                self._choices[key] = self._nearest(key, features if everyones is None else everyones)
        if layer == "last":
            self._choices["head"] = self.kept[self.head.choices(features)]

    def tally(self, gathered: Gathered, labels: Tensor) -> None:
        """Add the batch that was seen to the decisions: tokens whose label is a kept class."""
        judged = self.is_kept[labels.to(self.is_kept.device)].cpu()
        chosen = {key: choices[: len(labels)].cpu()[judged] for key, choices in self._choices.items()}
        head, counted = chosen.pop("head"), labels.cpu()[judged]
        for key, nearest in chosen.items():
            decisions = Decisions.counted(
                counted,
                head,
                nearest,
                classes=len(self.is_kept),
                min_count=self.min_count,
                left_out=int((~judged).sum()),
            )
            gathered.add_decisions(key, decisions)
        self._choices = {}

    def _nearest(self, key: str, features: Tensor) -> Tensor:
        classifier = self.nearest[key]
        if self.shards is not None:
            return self.shards.nearest(classifier, self.centred, features)
        assert classifier is not None
        return self.kept[classifier.choices(features.to(classifier.rows.device)).to(self.kept.device)]
