"""One pass over a split: the model runs once on every block, and each collector gets the features of every layer."""

from functools import partial
from typing import final

import torch
from torch import Tensor

from collapselab.errors import ModelError
from collapselab.measurement.batch import Batch
from collapselab.measurement.collector import Collectors
from collapselab.measurement.plan import MeasurePlan, Split
from collapselab.measurement.resume import ResumeFolder
from collapselab.messages import progress
from collapselab.models.scores import mask_inputs
from collapselab.models.taps import features, layer_features


@final
class ForwardPass:
    """The pass of this process over a split: `ForwardPass(plan, "train", collectors).run()` has what was collected.

    `resume` is the folder to continue from.
    """

    def __init__(
        self, plan: MeasurePlan, split: Split, collectors: Collectors, resume: ResumeFolder | None = None
    ) -> None:
        self.plan, self.name, self.resume, self.collectors = plan, split, resume, collectors
        self.split = plan.splits[split]

    def run(self) -> Collectors:
        """Collect from the groups of this process; groups that were finished before are read from disk."""
        total = self.collectors.empty()
        sample, groups = self.split.samples.last, self.plan.processes.own_groups(self.split.groups)
        tokens = sum(sample.samples(group.start, group.stop) for group in groups.values())
        quiet = self.plan.request.running.quiet or not self.plan.processes.first
        with torch.no_grad(), progress(sample.name, total=tokens, unit="tokens", quiet=quiet) as self.advance:
            for number, group in groups.items():
                collected = self._group(number, group)
                total = collected if number == min(groups) else total.merge(collected)
        return total

    def _group(self, number: int, group: range) -> Collectors:
        sample, resume, batch = self.split.samples.last, self.resume, self.plan.batch
        collected = resume.read(self.name, number, self.collectors) if resume else self.collectors.empty()
        # With shards every process runs as many blocks as the process that has most.
        shards = self.split.shards
        steps = len(group) if shards is None else -(-len(sample) // shards.processes.world)
        done = min(collected.batches * batch, steps)
        self.advance(sample.samples(group.start, group.start + min(done, len(group))))
        for start in range(done, steps, batch):
            blocks = group[start : start + batch]
            self.run_batch(Batch(self.plan, self.name, blocks), collected)
            self.advance(sample.samples(blocks.start, blocks.stop))
            if resume and start + batch >= steps:
                resume.write(self.name, number, collected)
            elif resume:
                resume.save_if_due(self.name, number, collected)
        return collected

    def run_batch(self, batch: Batch, collected: Collectors) -> None:
        """Run the model on some blocks and collect from each of its layers."""
        model, add = self.plan.model, partial(self.add_layer, batch, collected)
        ids, mask = batch.ids.to(model.device), mask_inputs(model.model, batch.attention, model.device)
        try:
            if self.plan.options.layers == "all":
                layer_features(model.model, ids, take=add, **mask)
            else:
                add("last", features(model.model, ids, **mask))
        except torch.OutOfMemoryError as error:
            blocks = self.plan.batch
            message = f"out of memory at {blocks:,} blocks a batch. Try --batch {max(1, blocks // 2)}."
            raise ModelError(message) from error
        collected.batches += 1

    def add_layer(self, batch: Batch, collected: Collectors, layer: str, states: Tensor) -> None:
        """Give the features of one layer (batch, length, dim) to every collector."""
        own = batch.features(layer, states)
        for collector in collected:
            collector.update(layer, own, batch)
