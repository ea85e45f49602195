"""Measure one model on one corpus: plan, training pass, validation pass, rows.

In a pass the model runs once on every block, and each collector gets the features of every layer (`ForwardPass`).
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import torch
from torch import Tensor

from collapselab.core.devices import WITH_MEMORY
from collapselab.errors import ConfigError, ModelError
from collapselab.measurement.batch import Batch
from collapselab.measurement.bootstrap import resample
from collapselab.measurement.collector import Collectors, Values
from collapselab.measurement.collectors import COLLECTORS
from collapselab.measurement.open_model import OpenedModel
from collapselab.measurement.plan import SPLITS, MeasurePlan, MeasureRequest, Split, make_plan
from collapselab.measurement.result import class_chunks, further_scores, outcome_facts, result_facts, value_rows
from collapselab.measurement.resume import ResumeFolder
from collapselab.messages import logger, progress
from collapselab.models.scores import mask_inputs
from collapselab.models.taps import features, layer_features
from collapselab.records.facts import Seconds
from collapselab.records.measurement import Result

log = logger(__name__)
OVERHEAD_BYTES = 36 << 20
"""Threads, libraries imported during a pass, and memory that the allocator retains."""
CGROUP = Path("/sys/fs/cgroup")


def measure_model(opened: OpenedModel, request: MeasureRequest) -> Result:
    """Measure the model, write the result where the same call finds it, and return it in every process."""
    start = time.perf_counter()
    with _resume_folder(opened, request) as resume:
        plan = make_plan(request, opened.model, opened.finished.moments_file)
        if not request.running.force:
            check_memory(plan)
        # Other batch sizes round differently, so a continued measurement keeps the size that it began with, and all
        # processes take that of the first.
        batch = plan.batch
        if resume is not None and plan.processes.first:
            batch = resume.batch(request.identity(plan.model), batch)
        plan = replace(plan, batch=plan.processes.broadcast(batch))
        values, seconds = Values(), list[float]()
        collected: dict[Split, Collectors] = {}
        for split in SPLITS:
            collectors = Collectors.wanted(COLLECTORS, plan, split, collected.get("train"))
            with nullcontext() if resume is None else resume.stoppable():
                collected[split] = ForwardPass(plan, split, collectors, resume).run()
            # NC4 needs the centres of all processes before the validation pass.
            collected[split].finish(plan.processes)
            values.add(collected[split].values())
            seconds.append(time.perf_counter() - start)
        further = further_scores(plan)  # passes of their own, in which every process takes part
        result = None
        if plan.processes.first:
            if plan.options.classes:
                values.add_rows("classes", list(class_chunks(plan, collected)))
            resamples = resample(plan, resume, collected) if plan.options.bootstrap and resume else None
            rows = value_rows(plan, values, None if resamples is None else resamples.interval)
            outcomes = outcome_facts(plan, collected, further)
            times: Seconds = {"train": seconds[0], "all": time.perf_counter() - start}
            result = Result(rows, result_facts(plan, rows, collected, resamples, outcomes, times), values.tables)
    result = plan.processes.broadcast(result)
    assert result is not None, "the first process has made it"
    if plan.processes.first:
        opened.finished.write(result)
        if opened.resume is not None:
            opened.resume.remove()
    return result


@contextmanager
def _resume_folder(opened: OpenedModel, request: MeasureRequest) -> Iterator[ResumeFolder | None]:
    """Open the folder for the state of finished groups, to continue or to resample from; None if neither is asked."""
    processes = request.processes
    if opened.resume is not None:
        with opened.resume.lock(rank=processes.rank):
            yield opened.resume
    elif request.options.bootstrap:
        with TemporaryDirectory() if processes.first else nullcontext("") as folder:  # for the groups of all processes
            yield ResumeFolder(processes.broadcast(folder), temporary=True)
    else:
        yield None


def needed_bytes(plan: MeasurePlan) -> float:
    """Return the peak memory of a process beside the weights: a batch, and the collectors of the larger pass."""
    activations = 16 * plan.batch_tokens * plan.width * plan.model.head.weight.element_size()
    passes = (sum(kind.bytes(plan, split) for kind in COLLECTORS if kind.wanted(plan, split)) for split in SPLITS)
    return activations + max(passes) + OVERHEAD_BYTES


def free_bytes(device: torch.device) -> int:
    """Return the memory that this process can still get: of its GPU, or of the machine and its container."""
    if device.type in WITH_MEMORY:
        of_type = getattr(torch, device.type)
        unused = of_type.memory_reserved(device) - of_type.memory_allocated(device)
        return int(of_type.mem_get_info(device)[0] + unused)
    free = int(psutil.virtual_memory().available)
    try:
        limit, used = (int((CGROUP / name).read_text()) for name in ("memory.max", "memory.current"))
        fields = dict(line.split() for line in (CGROUP / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):  # no container, or one without a limit, whose memory.max is "max"
        return free
    # The kernel drops pages of files that nobody uses before it refuses memory.
    return max(0, min(free, limit - used + int(fields.get("inactive_file", 0))))


def check_memory(plan: MeasurePlan) -> None:
    """Raise ConfigError if the measurement needs more memory than is free."""
    options, needed, free = plan.options, needed_bytes(plan), free_bytes(plan.model.device)
    if plan.model.device.type not in WITH_MEMORY:
        needed *= int(os.environ.get("LOCAL_WORLD_SIZE", plan.processes.world))  # processes of this machine
    if needed <= free:
        return
    changes = {
        "--layers last": options.layers == "all",
        "--no-null": options.null,
        "no --bootstrap": options.bootstrap > 0,
        "--tokens N for fewer tokens, which have fewer classes": True,
        "--min-count N": True,
        "fewer --contexts or a larger --min-uses": bool(plan.contexts),
        "--shard-classes with torchrun on several machines": not options.shard_classes,
    }
    layers = "all layers" if options.layers == "all" else "the last layer"
    raise ConfigError(
        f"{plan.model.name}: needs about {needed / 1e9:,.1f} GB of memory beside the model, but {free / 1e9:,.1f} GB "
        f"are free. Most of it is tables of {plan.splits['train'].numbers.classes:,} classes at {layers}. Change one "
        f"of these: {', '.join(change for change, helps in changes.items() if helps)}. Or measure anyway with --force."
    )


class ForwardPass:
    """A pass of this process over its groups of a split; `run` returns the filled collectors.

    `resume` is the folder to continue from.
    """

    def __init__(
        self, plan: MeasurePlan, split: Split, collectors: Collectors, resume: ResumeFolder | None = None
    ) -> None:
        self.plan, self.name, self.resume, self.collectors = plan, split, resume, collectors
        self.split = plan.splits[split]

    def run(self) -> Collectors:
        """Collect from the groups of this process; read those that an earlier run finished."""
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
        # With sharded classes every batch is exchanged, so all processes need the same number of batches.
        shards = self.split.shards
        steps = len(group) if shards is None else -(-len(sample) // shards.processes.world)
        done = min(collected.batches * batch, steps)
        self.advance(sample.samples(group.start, group.start + min(done, len(group))))
        for start in range(done, steps, batch):
            blocks, began = group[start : start + batch], time.perf_counter()
            self.run_batch(Batch(self.plan, self.name, blocks), collected)
            if self.name == "train" and group.start == start == 0:
                self._say_how_long(sample.samples(blocks.start, blocks.stop), time.perf_counter() - began)
            self.advance(sample.samples(blocks.start, blocks.stop))
            if resume and start + batch >= steps:
                resume.write(self.name, number, collected)
            elif resume:
                resume.save_if_due(self.name, number, collected)
        return collected

    def _say_how_long(self, tokens: int, seconds: float) -> None:
        """Log the expected minutes after the first batch, if they are more than one."""
        everything = sum(split.samples.last.tokens for split in self.plan.splits.values())
        minutes = seconds / max(tokens, 1) * everything / self.plan.processes.world / 60
        if minutes > 1 and self.plan.processes.first and not self.plan.request.running.quiet:
            log.info("About %.0f minutes for %s tokens (--tokens N for fewer).", minutes, f"{everything:,}")

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
