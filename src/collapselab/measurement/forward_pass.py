"""One pass over a split: the model runs once, and everything is taken from its layers as they come by."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, final

import torch
from torch import Tensor

from collapselab.core.batch import IGNORED
from collapselab.core.moments import ClassMoments, update_all
from collapselab.errors import ModelError
from collapselab.measurement.class_numbers import ClassNumbers
from collapselab.measurement.half_sample import Halfway
from collapselab.measurement.model import Subject
from collapselab.measurement.nearest_centre import Judge
from collapselab.measurement.resume import Store
from collapselab.measurement.sample import ByLayer, Sample
from collapselab.measurement.shards import ClassShards
from collapselab.measurement.sums import LAST, Gathered, LayerKey, empty_like
from collapselab.models.scores import Scorer, mask_inputs
from collapselab.models.taps import features, layer_features
from collapselab.progress import Advance, progress
from collapselab.records.options import Options


@final
@dataclass(frozen=True)
class Walk:
    """What a pass over a split needs to know. `numbers` says which classes are kept, and the row of each."""

    subject: Subject
    options: Options
    batch: int
    numbers: ClassNumbers
    store: Store | None = None
    shards: ClassShards | None = None
    quiet: bool = False

    def over(
        self,
        samples: ByLayer[Sample],
        groups: dict[int, range],
        judge: Judge | None = None,
        halfway: Halfway | None = None,
    ) -> Gathered:
        """Everything gathered over these groups of a sample; groups that were finished before are read from disk."""
        total: Gathered | None = None
        sample = samples.last
        tokens = sum(sample.samples(group.start, group.stop) for group in groups.values())
        shown = progress(sample.name, total=tokens, unit="tokens", quiet=self.quiet)
        scorer = Scorer(self.subject.head) if judge is not None or self.options.train_loss else None
        with torch.no_grad(), shown as advance:
            over = _Pass(samples, judge, scorer, advance, halfway)
            for number, group in groups.items():
                part = self._group(over, number, group)
                total = part if total is None else total.merge(part)
        return total or Gathered()

    def _group(self, over: "_Pass", number: int, group: range) -> Gathered:
        device, sample = self.subject.moments_device, over.samples.last
        split = sample.split.path.stem
        gathered = self.store.kept(split, number, device) if self.store else None
        if gathered is not None:
            over.advance(sample.samples(group.start, group.stop))
            return gathered
        gathered = self.store.saved(split, number, device) if self.store else Gathered()
        done = min(gathered.batches * self.batch, self._longest(sample, group))
        over.advance(sample.samples(group.start, group.start + min(done, len(group))))
        for start in range(done, self._longest(sample, group), self.batch):
            blocks = group[start : start + self.batch]
            _Batch(self, over, blocks, gathered).gather()
            gathered.batches += 1
            over.advance(sample.samples(blocks.start, blocks.stop))
            if self.store:
                self.store.save_if_due(split, number, gathered)
        if self.store:
            self.store.keep(split, number, gathered)
        return gathered

    def _longest(self, sample: Sample, group: range) -> int:
        """Blocks to go through: with shards all processes take as many steps as the one that has most."""
        return len(group) if self.shards is None else -(-len(sample) // self.shards.processes.world)


class _Pass(NamedTuple):
    """What the batches of a pass share. Tokens are scored where there is a scorer, judged where there is a judge."""

    samples: ByLayer[Sample]
    judge: Judge | None
    scorer: Scorer | None
    advance: Advance
    halfway: Halfway | None = None


@final
class _Batch:
    """Some blocks on their way through the model."""

    def __init__(self, walk: Walk, over: _Pass, blocks: range, gathered: Gathered) -> None:
        self.walk, self.blocks, self.gathered = walk, blocks, gathered
        self.samples, self.judge, self.scorer, self.halfway = over.samples, over.judge, over.scorer, over.halfway
        # Every batch has the same shape, the last one too: the same block gives the same features in any batch.
        own, filler = (self.samples.last.read(*bounds) for bounds in ((blocks.start, blocks.stop), (0, 1)))
        self.ids = _filled(own.ids, filler.ids, walk.batch)
        self.attention = None
        if own.attention is not None and filler.attention is not None:
            self.attention = _filled(own.attention, filler.attention, walk.batch)
        last = _Labels(walk, self.samples.last, blocks, layer="last")
        alike = self.samples.below is self.samples.last
        self.labels = ByLayer(last, last if alike else _Labels(walk, self.samples.below, blocks, layer="below"))

    def gather(self) -> None:
        """Run the model, and take what comes by."""
        subject = self.walk.subject
        with _out_of_memory_told(self.walk.batch):
            ids = self.ids.to(subject.device)
            mask = mask_inputs(subject.model, self.attention, subject.device)
            if self.walk.options.layers == "all":
                layer_features(subject.model, ids, take=self.take, **mask)
            else:
                self.take("last", features(subject.model, ids, **mask))
            if self.judge is not None:
                self.judge.tally(self.gathered, ByLayer(self.labels.last.own, self.labels.below.own))

    def take(self, layer: str, states: Tensor) -> None:
        """Fold in what one layer gave (batch, length, dim)."""
        labels = self.labels.of(layer)
        rows = len(self.blocks) if self.walk.shards is None else self.walk.batch
        own = states[:rows, labels.first : -1].reshape(-1, states.shape[-1])
        everyones = own if self.walk.shards is None else self.walk.shards.features(own)
        try:
            both = [(LayerKey(layer), labels.counted)]
            both += [] if labels.null is None else [(LayerKey(layer, null=True), labels.null)]
            tables = [(self._moments(key, own.shape[1]), counted) for key, counted in both]
            update_all(labels.folded(everyones), tables)
        except ValueError as error:
            raise self._refused(layer, own, error) from error
        if layer == "last" and self.halfway is not None and self.blocks.start < self.halfway.blocks <= self.blocks.stop:
            self.gathered.part = self.halfway.part(self._first_half(own, self.halfway.blocks - self.blocks.start))
        if self.judge is not None:
            self.judge.see(layer, own, None if self.walk.shards is None else everyones)
        else:
            self.gathered.spread(layer).add(labels.sampled(own))
        if layer == "last" and self.scorer is not None:
            self.gathered.scores += self.scorer.scores(labels.sampled(own), labels.own[labels.own != IGNORED])

    def _moments(self, key: LayerKey, dim: int) -> ClassMoments:
        held, subject, shards = self.gathered.moments, self.walk.subject, self.walk.shards
        if key not in held:
            classes = self.walk.numbers.classes if shards is None else shards.classes
            covariance = key.layer == LAST.layer
            held[key] = ClassMoments.empty(classes, dim, subject.moments_device, covariance=covariance)
        return held[key]

    def _first_half(self, own: Tensor, blocks: int) -> ClassMoments:
        """The last layer's moments, so far or, where the first batch holds more than half, of its first blocks."""
        if blocks == len(self.blocks):
            return self.gathered.moments[LAST]
        labels, half = self.labels.last, empty_like(self.gathered.moments[LAST])
        rows = self.samples.last.samples(self.blocks.start, self.blocks.start + blocks)
        half.update(labels.folded(own)[:rows], labels.counted[:rows])
        return half

    def _refused(self, layer: str, found: Tensor, error: ValueError) -> ModelError:
        labels, sample = self.labels.of(layer), self.samples.of(layer)
        is_bad = (~torch.isfinite(found)).any(1).cpu()
        samples = labels.own.reshape(-1) != IGNORED
        is_bad[: len(samples)] &= samples  # whatever becomes of padding
        bad = is_bad.nonzero().squeeze(1)
        where = f"{self.walk.subject.name}: layer {layer}"
        if not len(bad):
            return ModelError(f"{where}: {error}")
        block, position = divmod(int(bad[0]), sample.labels_per_block)
        number = int(sample.blocks[self.blocks[block]]) if block < len(self.blocks) else 0
        return ModelError(
            f"{where}: nan or infinite features at {len(bad):,} tokens of a batch, the first at token "
            f"{position + sample.first:,} of block {number:,} of the {sample.name}. Another --dtype may hold the "
            "numbers this one does not."
        )


@final
class _Labels:
    """The labels of some blocks at the positions of a layer's samples, and the same as moments take them.

    Positions that are no samples, of padding, are dropped before features are folded in; with shards they are ignored,
    since all processes need features of one shape.
    """

    def __init__(self, walk: Walk, sample: Sample, blocks: range, *, layer: str) -> None:
        self.walk, self.first, self.width = walk, sample.first, sample.labels_per_block
        self.layer = layer
        self.own = sample.labels(blocks.start, blocks.stop)
        flat = self.own.reshape(-1)
        all_sampled = sample.split.lengths is None
        self._used = None if all_sampled else (flat != IGNORED).nonzero().squeeze(1)
        self.counted = self._counted(flat)
        null = sample.null_labels(blocks.start, blocks.stop) if walk.options.null else None
        self.null = None if null is None else self._counted(null.reshape(-1))

    def sampled(self, features: Tensor) -> Tensor:
        """Of the features of these blocks, and whatever comes after them, those that are samples."""
        if self._used is None:
            return features[: self.own.numel()]
        return features.index_select(0, self._used.to(features.device))

    def folded(self, features: Tensor) -> Tensor:
        """The features that `counted` and `null` label."""
        return features if self.walk.shards is not None else self.sampled(features)

    def _counted(self, labels: Tensor) -> Tensor:
        """Labels as the moments take them: rows of kept classes; with shards those of this process's classes."""
        labels = self.walk.numbers.of(labels, layer=self.layer)
        if self.walk.shards is None:
            return labels if self._used is None else labels[self._used]
        padded = torch.full((self.walk.batch * self.width,), IGNORED)
        padded[: len(labels)] = labels
        return self.walk.shards.labels(padded)


def _filled(blocks: Tensor, filler: Tensor, rows: int) -> Tensor:
    return torch.cat([blocks, filler.expand(rows - len(blocks), -1)])


@contextmanager
def _out_of_memory_told(batch: int) -> Iterator[None]:
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise ModelError(f"out of memory at {batch:,} blocks a batch. Try --batch {max(1, batch // 2)}.") from error
