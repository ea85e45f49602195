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
from collapselab.measurement.half_sample import Halfway
from collapselab.measurement.model import Subject
from collapselab.measurement.nearest_centre import Judge
from collapselab.measurement.resume import Store
from collapselab.measurement.sample import Sample
from collapselab.measurement.shards import ClassShards
from collapselab.measurement.sums import Gathered, empty_like, null_of
from collapselab.models.scores import Scorer
from collapselab.models.taps import features, layer_features
from collapselab.progress import Advance, progress
from collapselab.records.options import Options


@final
@dataclass(frozen=True)
class Walk:
    """What a pass needs to know. `kept` masks the classes that are kept, where not all are."""

    subject: Subject
    options: Options
    batch: int
    store: Store | None = None
    kept: Tensor | None = None
    shards: ClassShards | None = None
    quiet: bool = False

    def over(
        self, sample: Sample, groups: dict[int, range], judge: Judge | None = None, halfway: Halfway | None = None
    ) -> Gathered:
        """Everything gathered over these groups of a sample; groups that were finished before are read from disk."""
        total: Gathered | None = None
        tokens = sum(map(len, groups.values())) * sample.labels_per_block
        shown = progress(sample.name, total=tokens, unit="tokens", quiet=self.quiet)
        scorer = Scorer(self.subject.head) if judge is not None or self.options.train_loss else None
        with torch.no_grad(), shown as advance:
            over = _Pass(sample, judge, scorer, advance, halfway)
            for number, group in groups.items():
                part = self._group(over, number, group)
                total = part if total is None else total.merge(part)
        return total or Gathered()

    def _group(self, over: "_Pass", number: int, group: range) -> Gathered:
        device, split, labels = self.subject.moments_device, over.sample.split.path.stem, over.sample.labels_per_block
        gathered = self.store.kept(split, number, device) if self.store else None
        if gathered is not None:
            over.advance(len(group) * labels)
            return gathered
        gathered = self.store.saved(split, number, device) if self.store else Gathered()
        done = gathered.batches * self.batch
        over.advance(min(done, len(group)) * labels)
        for start in range(done, self._longest(over.sample, group), self.batch):
            blocks = group[start : start + self.batch]
            _Batch(self, over, blocks, gathered).gather()
            gathered.batches += 1
            over.advance(len(blocks) * labels)
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

    sample: Sample
    judge: Judge | None
    scorer: Scorer | None
    advance: Advance
    halfway: Halfway | None = None


@final
class _Batch:
    """Some blocks on their way through the model."""

    def __init__(self, walk: Walk, over: _Pass, blocks: range, gathered: Gathered) -> None:
        self.walk, self.blocks, self.gathered = walk, blocks, gathered
        self.sample, self.judge, self.scorer, self.halfway = over.sample, over.judge, over.scorer, over.halfway
        # Every batch has the same shape, the last one too: the same block gives the same features in any batch.
        ids = self.sample.ids(blocks.start, blocks.stop)
        padding = self.sample.ids(0, 1).expand(walk.batch - len(ids), -1)
        self.ids = torch.cat([ids, padding])
        self.labels = ids[:, 1:].reshape(-1)
        self.counted = self._counted(self.labels)
        self.null = self._counted(self.sample.null_labels(blocks.start, blocks.stop)) if walk.options.null else None

    def gather(self) -> None:
        """Run the model, and take what comes by."""
        with _out_of_memory_told(self.walk.batch):
            ids = self.ids.to(self.walk.subject.device)
            if self.walk.options.layers == "all":
                layer_features(self.walk.subject.model, ids, take=self.take)
            else:
                self.take("last", features(self.walk.subject.model, ids))
            if self.judge is not None:
                self.judge.tally(self.gathered, self.labels)

    def take(self, layer: str, states: Tensor) -> None:
        """Fold in what one layer gave (batch, length, dim)."""
        rows = len(self.blocks) if self.walk.shards is None else self.walk.batch
        own = states[:rows, :-1].reshape(-1, states.shape[-1])
        everyones = own if self.walk.shards is None else self.walk.shards.features(own)
        try:
            both = [(layer, self.counted), *([] if self.null is None else [(null_of(layer), self.null)])]
            update_all(everyones, [(self._moments(key, own.shape[1]), labels) for key, labels in both])
        except ValueError as error:
            raise self._refused(layer, own, error) from error
        if layer == "last" and self.halfway is not None and self.blocks.start < self.halfway.blocks <= self.blocks.stop:
            self.gathered.part = self.halfway.part(self._first_half(own, self.halfway.blocks - self.blocks.start))
        if self.judge is not None:
            self.judge.see(layer, own, None if self.walk.shards is None else everyones)
        if layer == "last" and len(self.labels) and self.scorer is not None:
            self.gathered.scores += self.scorer.scores(own[: len(self.labels)], self.labels)

    def _moments(self, key: str, dim: int) -> ClassMoments:
        held, subject, shards = self.gathered.moments, self.walk.subject, self.walk.shards
        if key not in held:
            classes = subject.classes if shards is None else shards.classes
            covariance = key in ("last", null_of("last"))
            held[key] = ClassMoments.empty(classes, dim, subject.moments_device, covariance=covariance)
        return held[key]

    def _first_half(self, own: Tensor, blocks: int) -> ClassMoments:
        """The last layer's moments, so far or, where the first batch holds more than half, of its first blocks."""
        if blocks == len(self.blocks):
            return self.gathered.moments["last"]
        rows, half = blocks * self.sample.labels_per_block, empty_like(self.gathered.moments["last"])
        half.update(own[:rows], self.counted[:rows])
        return half

    def _counted(self, labels: Tensor) -> Tensor:
        """Labels as the moments take them: those of kept classes; with shards those of this process's classes."""
        labels = labels.reshape(-1)
        if self.walk.kept is not None:
            labels = torch.where(self.walk.kept[labels], labels, IGNORED)
        if self.walk.shards is None:
            return labels
        padded = torch.full((self.walk.batch * self.sample.labels_per_block,), IGNORED)
        padded[: len(labels)] = labels
        return self.walk.shards.labels(padded)

    def _refused(self, layer: str, found: Tensor, error: ValueError) -> ModelError:
        bad = (~torch.isfinite(found)).any(1).nonzero().squeeze(1)
        where = f"{self.walk.subject.name}: layer {layer}"
        if not len(bad):
            return ModelError(f"{where}: {error}")
        block, position = divmod(int(bad[0]), self.sample.labels_per_block)
        number = int(self.sample.blocks[self.blocks[block]]) if block < len(self.blocks) else 0
        return ModelError(
            f"{where}: nan or infinite features at {len(bad):,} tokens of a batch, the first at token {position:,} of "
            f"block {number:,} of the {self.sample.name}. Another --dtype may hold the numbers this one does not."
        )


@contextmanager
def _out_of_memory_told(batch: int) -> Iterator[None]:
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise ModelError(f"out of memory at {batch:,} blocks a batch. Try --batch {max(1, batch // 2)}.") from error
