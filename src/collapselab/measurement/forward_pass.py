"""One pass over a split: the model runs once on every block, and its features are summed up layer by layer."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import final

import torch
from torch import Tensor

from collapselab.core.accumulator import Arrivals
from collapselab.core.batch import IGNORED
from collapselab.core.moments import ClassMoments, update_all
from collapselab.core.score_matrix import TopTwo
from collapselab.errors import ModelError
from collapselab.measurement.centre_loss import CentreLosses
from collapselab.measurement.context_gap import ContextGaps
from collapselab.measurement.curvature import Curvature
from collapselab.measurement.half_sample import Halfway
from collapselab.measurement.nearest_centre import NearestCentres, Scored
from collapselab.measurement.plan import MeasurePlan, Split
from collapselab.measurement.push import Push
from collapselab.measurement.resume import ResumeFolder
from collapselab.measurement.sample import ByLayer, Sample
from collapselab.measurement.sums import LAST, ContextKey, LayerKey, Sums
from collapselab.measurement.token_scores import Observe
from collapselab.models.scores import Observer, ScoredChunk, Scorer, mask_inputs
from collapselab.models.taps import features, layer_features
from collapselab.progress import progress


@final
class ForwardPass:
    """The pass of this process over a split: `ForwardPass(plan, "train").run()` are its sums.

    With `centres` every token is also decided by the nearest centre, with `centre_losses` the centres of the last layer
    score it too, with `push` its moved features are scored, with
    `observe` losses are also added up by class, and whatever else options ask of single tokens.
    `halfway` says when the values of half the sample are computed; `resume` is the folder to continue from.
    """

    def __init__(
        self,
        plan: MeasurePlan,
        split: Split,
        *,
        resume: ResumeFolder | None = None,
        centres: NearestCentres | None = None,
        push: Push | None = None,
        centre_losses: CentreLosses | None = None,
        observe: Observe | None = None,
        halfway: Halfway | None = None,
    ) -> None:
        self.push, self.centre_losses, self.observe = push, centre_losses, observe
        self.plan, self.name, self.resume, self.centres, self.halfway = plan, split, resume, centres, halfway
        self.split, self.shards = plan.splits[split], plan.splits[split].shards
        scored = centres is not None or plan.options.train_loss or plan.options.asks("gap")
        self.scorer = Scorer(plan.model.head) if scored else None
        self.curvature = Curvature(plan, split)
        self.contexts = plan.contexts if split == "train" else {}
        self.gaps = ContextGaps(plan) if self.contexts else None

    def run(self) -> Sums:
        """Sums over the groups of this process; groups that were finished before are read from disk."""
        total: Sums | None = None
        sample, groups = self.split.samples.last, self.plan.processes.own_groups(self.split.groups)
        tokens = sum(sample.samples(group.start, group.stop) for group in groups.values())
        quiet = self.plan.request.running.quiet or not self.plan.processes.first
        with torch.no_grad(), progress(sample.name, total=tokens, unit="tokens", quiet=quiet) as self.advance:
            for number, group in groups.items():
                sums = self._group(number, group)
                total = sums if total is None else total.merge(sums)
        return total or Sums()

    def _group(self, number: int, group: range) -> Sums:
        device, sample, resume = self.plan.model.moments_device, self.split.samples.last, self.resume
        finished = resume.read_group(self.name, number, device) if resume else None
        if finished is not None:
            self.advance(sample.samples(group.start, group.stop))
            return finished
        sums = resume.read_unfinished(self.name, number, device) if resume else Sums()
        steps = self._steps(sample, group)
        done = min(sums.batches * self.plan.batch, steps)
        self.advance(sample.samples(group.start, group.start + min(done, len(group))))
        for start in range(done, steps, self.plan.batch):
            blocks = group[start : start + self.plan.batch]
            Batch(self, blocks, sums).run()
            sums.batches += 1
            self.advance(sample.samples(blocks.start, blocks.stop))
            if resume:
                resume.save_if_due(self.name, number, sums)
        if resume:
            resume.write_group(self.name, number, sums)
        return sums

    def _steps(self, sample: Sample, group: range) -> int:
        """Blocks to run: with shards every process runs the number of the process that has most."""
        return len(group) if self.shards is None else -(-len(sample) // self.shards.processes.world)


@final
class Batch:
    """Some blocks that go through the model together; what they give is added to `sums`."""

    def __init__(self, forward: ForwardPass, blocks: range, sums: Sums) -> None:
        self.forward, self.blocks, self.sums = forward, blocks, sums
        self.samples, size = forward.split.samples, forward.plan.batch
        # Every batch has the same shape, the last one too: the same block gives the same features in any batch.
        own, filler = (self.samples.last.read(*bounds) for bounds in ((blocks.start, blocks.stop), (0, 1)))
        self.ids = _filled(own.ids, filler.ids, size)
        self.attention = None
        if own.attention is not None and filler.attention is not None:
            self.attention = _filled(own.attention, filler.attention, size)
        last, below = self.samples.last, self.samples.below  # of the same blocks; below they may skip positions
        of_last = _Labels(forward, last, blocks, own.labels, layer="last")
        of_below = of_last if below is last else _Labels(forward, below, blocks, own.labels, layer="below")
        self.labels = ByLayer(of_last, of_below)
        self.cells = {n: some.cells(own.ids, own.labels) for n, some in forward.contexts.items()}

    def run(self) -> None:
        """Run the model and add the features of each layer."""
        plan, centres = self.forward.plan, self.forward.centres
        with _out_of_memory_explained(plan.batch):
            ids = self.ids.to(plan.model.device)
            mask = mask_inputs(plan.model.model, self.attention, plan.model.device)
            if plan.options.layers == "all":
                layer_features(plan.model.model, ids, take=self.add_layer, **mask)
            else:
                self.add_layer("last", features(plan.model.model, ids, **mask))
            if centres is not None:
                centres.tally(self.sums, ByLayer(self.labels.last.own, self.labels.below.own))

    def add_layer(self, layer: str, states: Tensor) -> None:
        """Add the features of one layer (batch, length, dim)."""
        labels, shards, centres = self.labels.of(layer), self.forward.shards, self.forward.centres
        blocks = len(self.blocks) if shards is None else self.forward.plan.batch
        states = states.to(self.forward.plan.model.device)  # a block may be on another device than the output layer
        own = states[:blocks, labels.first : -1].reshape(-1, states.shape[-1])
        everyones = own if shards is None else shards.features(own)
        labellings = [(LayerKey(layer), labels.counted)]
        labellings += [] if labels.null is None else [(LayerKey(layer, null=True), labels.null)]
        tables = [(self._moments(key, own.shape[1]), counted) for key, counted in labellings]
        for n, cells in self.cells.items():
            tables.append((self._context_moments(ContextKey(layer, n), own.shape[1]), labels.placed(cells)))
        try:
            squares = update_all(labels.added(everyones), tables, labels.arrivals)
        except ValueError as error:
            raise self._refused(layer, own, error) from error
        chunks = self._add_last(labels, own) if layer == "last" else []
        if centres is None:
            self.sums.spread(layer).add(squares)
        elif chunks:
            by_centres, losses = self.forward.centre_losses, torch.cat([chunk.losses for chunk in chunks])
            watches = {} if by_centres is None else by_centres.watches(labels.own.reshape(-1))
            top = TopTwo(torch.cat([chunk.best for chunk in chunks]), torch.cat([chunk.gap for chunk in chunks]))
            centres.choose(layer, own, everyones, Scored(top, labels.used, watches))
            CentreLosses.add(self.sums, watches, losses, labels.used)
        else:
            centres.choose(layer, own, everyones)

    def _add_last(self, labels: "_Labels", own: Tensor) -> list[ScoredChunk]:
        """What the features that enter the output layer give beside their moments; scored tokens, where observed."""
        chunks: list[ScoredChunk] = []
        self._add_half(labels, own)
        self.forward.curvature.add(self.sums, own, labels.own, self.blocks)
        if self.forward.gaps is not None:
            cells = {n: some[:, labels.first :] for n, some in self.cells.items()}
            self.forward.gaps.add(self.sums, own, cells, self.blocks)
        if self.forward.scorer is not None:
            scored = labels.own[labels.own != IGNORED]
            observer = self._observer(chunks)
            self.sums.scores += self.forward.scorer.scores(labels.sampled(own), scored, observe=observer)
            if self.forward.push is not None:
                self.forward.push.add(self.sums, labels.sampled(own), scored)
        return chunks

    def _observer(self, chunks: list[ScoredChunk]) -> Observer | None:
        """What is done with each chunk of scored tokens; it is appended to the list, probabilities overwritten."""
        observe, sums = self.forward.observe, self.sums
        if observe is None:
            return None
        sums.scored = sums.scored or (observe.none() if observe.wanted else None)

        def add(chunk: ScoredChunk) -> None:
            chunks.append(chunk)
            if sums.scored is not None:
                observe.add(sums.scored, chunk)

        return add

    def _moments(self, key: LayerKey, dim: int) -> ClassMoments:
        tables, forward = self.sums.moments, self.forward
        if key not in tables:
            classes = forward.split.numbers.classes if forward.shards is None else forward.shards.classes
            last, device = key.layer == LAST.layer, forward.plan.model.moments_device
            spectrum = not (last or key.null)  # which labels do not change; of the last layer the covariance has it
            tables[key] = ClassMoments.empty(classes, dim, device, covariance=last, spectrum=spectrum)
        return tables[key]

    def _context_moments(self, key: ContextKey, dim: int) -> ClassMoments:
        tables, device = self.sums.contexts, self.forward.plan.model.moments_device
        if key not in tables:
            tables[key] = ClassMoments.empty(self.forward.contexts[key.n].rows, dim, device)
        return tables[key]

    def _add_half(self, labels: "_Labels", own: Tensor) -> None:
        """The values of half the sample, if this batch reaches it; of its first blocks where it holds more."""
        halfway, moments = self.forward.halfway, self.sums.moments[LAST]
        if halfway is None or not self.blocks.start < halfway.blocks <= self.blocks.stop:
            return
        if halfway.blocks < self.blocks.stop:  # only where the first batch holds more than half
            rows = self.samples.last.samples(self.blocks.start, halfway.blocks)
            moments = moments.empty_like()
            moments.update(labels.added(own)[:rows], labels.counted[:rows])
        self.sums.part = halfway.part(moments)

    def _refused(self, layer: str, own: Tensor, error: ValueError) -> ModelError:
        labels, sample = self.labels.of(layer), self.samples.of(layer)
        is_bad = (~torch.isfinite(own)).any(1).cpu()
        is_sample = labels.own.reshape(-1) != IGNORED
        is_bad[: len(is_sample)] &= is_sample  # padding may be anything
        bad = is_bad.nonzero().squeeze(1)
        where = f"{self.forward.plan.model.name}: layer {layer}"
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

    Positions that are not samples, such as padding, are dropped before features are added; with shards they are
    ignored instead, since all processes need features of one shape.
    """

    def __init__(self, forward: ForwardPass, sample: Sample, blocks: range, labels: Tensor, *, layer: str) -> None:
        """`labels` are those of whole blocks (blocks, length - 1)."""
        self.forward, self.first, self.width, self.layer = forward, sample.first, sample.labels_per_block, layer
        self.own = labels[:, sample.first :]
        flat = self.own.reshape(-1)
        all_sampled = sample.split.lengths is None
        self.used = None if all_sampled else (flat != IGNORED).nonzero().squeeze(1)
        kept = None if forward.split.kept is None else forward.split.kept.of(layer)
        self.counted = self._counted(flat if kept is None else kept.labels(blocks.start, blocks.stop, flat))
        null = sample.null_labels(blocks.start, blocks.stop).reshape(-1) if forward.plan.options.null else None
        if null is not None and kept is not None:
            null = kept.labels(blocks.start, blocks.stop, null, null=True)
        self.null = None if null is None else self._counted(null)
        self.arrivals = Arrivals()

    def sampled(self, features: Tensor) -> Tensor:
        """The features that are samples; `features` are those of these blocks, and possibly more after them."""
        if self.used is None:
            return features[: self.own.numel()]
        return features.index_select(0, self.used.to(features.device))

    def added(self, features: Tensor) -> Tensor:
        """The features that `counted` and `null` label."""
        return features if self.forward.shards is not None else self.sampled(features)

    def placed(self, cells: Tensor) -> Tensor:
        """Numbers of whole blocks (blocks, length - 1) at the places of these labels, as `added` has features."""
        flat = cells[:, self.first :].reshape(-1)
        return flat if self.used is None else flat[self.used]

    def _counted(self, labels: Tensor) -> Tensor:
        """Labels as the moments take them: rows of kept classes; with shards those of this process's classes."""
        labels = self.forward.split.numbers.of(labels, layer=self.layer)
        if self.forward.shards is None:
            return labels if self.used is None else labels[self.used]
        padded = torch.full((self.forward.plan.batch * self.width,), IGNORED)
        padded[: len(labels)] = labels
        return self.forward.shards.labels(padded)


def _filled(blocks: Tensor, filler: Tensor, rows: int) -> Tensor:
    return torch.cat([blocks, filler.expand(rows - len(blocks), -1)])


@contextmanager
def _out_of_memory_explained(batch: int) -> Iterator[None]:
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise ModelError(f"out of memory at {batch:,} blocks a batch. Try --batch {max(1, batch // 2)}.") from error
