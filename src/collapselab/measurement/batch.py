"""Some blocks that go through the model together: ids, labels at every layer, and what collectors share about them."""

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from collapselab.core.batch import IGNORED, CheckedLabels
from collapselab.core.decisions import DecidedLater, TopTwo
from collapselab.errors import ModelError
from collapselab.measurement.plan import MeasurePlan, Split
from collapselab.measurement.sample import ByLayer, Sample

if TYPE_CHECKING:
    from collapselab.core.centre_loss import CentreWatch
    from collapselab.core.moments import ClassMoments


class Scored(NamedTuple):
    """What scoring the tokens of a batch gave, so that the output layer is not run again."""

    top: TopTwo
    """Of the logits of each token."""
    losses: Tensor


class Batch:
    """The blocks `blocks` of a split's sample, with filler up to the size of a batch.

    Every batch has the same shape, the last one too: the same block gives the same features in any batch.
    """

    def __init__(self, plan: MeasurePlan, split: Split, blocks: range) -> None:
        self.plan, self.split, self.blocks = plan, plan.splits[split], blocks
        samples = self.split.samples
        read = samples.last.read(blocks.start, blocks.stop, fill=plan.batch)
        self.ids, self.attention = read.ids, read.attention
        self.own_ids, self.own_labels = read.ids[: len(blocks)], read.labels[: len(blocks)]
        """Of whole blocks: (blocks, length) and (blocks, length - 1)."""
        of_last = Labels(self, samples.last, layer="last")  # below, the same blocks may skip positions
        same = samples.below is samples.last
        self.labels = ByLayer(of_last, of_last if same else Labels(self, samples.below, layer="below"))
        self._everyones: tuple[Tensor, Tensor] | None = None
        # What one collector leaves for those after it.
        self.moments: dict[str, ClassMoments] = {}
        """The class moments with this batch, by layer."""
        self.squares: list[tuple[str, CheckedLabels, Tensor]] = []
        """Squared distances of the features of each layer from a point; these are not finite where features are not."""
        self.scored: Scored | None = None
        """Of the validation split."""
        self.nearest: dict[str, Tensor] = {}
        """The class with the nearest centre, by layer."""
        self.later = DecidedLater(plan.model.moments_device)
        """Choices in doubt, which have their class when the last layer is decided."""
        self.head: ByLayer[Tensor] | None = None
        """The output layer's choice, among the classes of each layer."""
        self.lens: dict[str, Tensor] = {}
        """The logit lens's choice, by block."""
        self.watches: dict[str, CentreWatch] = {}
        """What saw the scores of the centres."""

    def features(self, layer: str, states: Tensor) -> Tensor:
        """The features of a layer (batch, length, dim) that collectors get, at the positions of its labels.

        Without shards those of the filler are left out; with shards all processes need the same number.
        """
        blocks = len(self.blocks) if self.split.shards is None else self.plan.batch
        states = states.to(self.plan.model.moments_device)  # a block may be on another device than the output layer
        return states[:blocks, self.labels.of(layer).first : -1].reshape(-1, states.shape[-1])

    def everyones(self, features: Tensor) -> Tensor:
        """The features of all processes where classes are sharded; exchanged once for a layer."""
        if self.split.shards is None:
            return features
        if self._everyones is None or self._everyones[0] is not features:
            self._everyones = features, self.split.shards.processes.gather_rows(features)
        return self._everyones[1]

    def check_finite(self) -> None:
        """ModelError if a layer has features that are nan or infinite; the host waits once for all layers."""
        if bool(torch.stack([squares.sum() for *_, squares in self.squares]).isfinite().all()):
            return
        layer, checked, squares = next(found for found in self.squares if not found[2].isfinite().all())
        labels, sample = self.labels.of(layer), self.split.samples.of(layer)
        bad = (~squares.isfinite()).nonzero().squeeze(1)
        places = bad if checked.positions is None else checked.positions[bad]
        if self.split.shards is None and labels.used is not None:
            places = labels.used[places.cpu()]
        block, position = divmod(int(places[0]) % labels.padded, sample.labels_per_block)
        where = f", the first at token {position + sample.first:,}"
        if self.split.shards is None:
            where += f" of block {int(sample.blocks[self.blocks[block]]):,} of the {sample.name}"
        raise ModelError(
            f"{self.plan.model.name}: layer {layer}: nan or infinite features at {len(bad):,} tokens of a "
            f"batch{where}. Another --dtype may hold the numbers this one does not."
        )


class Labels:
    """The labels of a batch at the positions of a layer's samples, and the same as class moments take them.

    Positions that are not samples, such as padding, are dropped before features are added; with shards they are
    ignored instead, since all processes need features of one shape.
    """

    def __init__(self, batch: Batch, sample: Sample, *, layer: str) -> None:
        self.first, self.split, self.layer, blocks = sample.first, batch.split, layer, batch.blocks
        self.padded = batch.plan.batch * sample.labels_per_block
        self.own = batch.own_labels[:, sample.first :]
        """(blocks, positions)."""
        flat = self.own.reshape(-1)
        self.used = None if sample.split.lengths is None else (flat != IGNORED).nonzero().squeeze(1)
        """The positions that are samples; None where all are."""
        kept = None if self.split.kept is None else self.split.kept.of(layer)
        self.rows = self._rows(flat if kept is None else kept.labels(blocks.start, blocks.stop, flat))
        """Row numbers, as class moments take them."""
        null = sample.null_labels(blocks.start, blocks.stop).reshape(-1) if batch.plan.options.null else None
        if null is not None and kept is not None:
            null = kept.labels(blocks.start, blocks.stop, null, null=True)
        # Checked once for all layers, and sent to their device.
        device = batch.plan.model.moments_device
        self.counted = CheckedLabels.checked(self.rows, self.split.rows, device)
        self.null = None if null is None else CheckedLabels.checked(self._rows(null), self.split.rows, device)

    def sampled(self, features: Tensor) -> Tensor:
        """The features that are samples; `features` are those of these blocks, and possibly more after them."""
        if self.used is None:
            return features[: self.own.numel()]
        return features.index_select(0, self.used.to(features.device))

    def added(self, features: Tensor) -> Tensor:
        """The features that `counted` and `null` label."""
        return features if self.split.shards is not None else self.sampled(features)

    def _rows(self, labels: Tensor) -> Tensor:
        """Row numbers of kept classes; with shards those of this process's classes."""
        labels = self.split.numbers.of(labels, layer=self.layer)
        if self.split.shards is None:
            return labels if self.used is None else labels[self.used]
        padded = torch.full((self.padded,), IGNORED)
        padded[: len(labels)] = labels
        return self.split.shards.labels(padded)
