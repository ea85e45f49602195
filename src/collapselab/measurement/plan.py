"""The request of a measurement, and its plan: everything that is decided before the first batch."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from collapselab.core.batch import IGNORED
from collapselab.corpus.blocks import Corpus
from collapselab.errors import ConfigError, did_you_mean
from collapselab.measurement.distributed import ClassShards, Processes
from collapselab.measurement.model import MeasuredModel
from collapselab.measurement.sample import (
    GROUPS,
    ByLayer,
    ClassNumbers,
    Contexts,
    PerClass,
    Sample,
    find_contexts,
    frequency_bins,
)
from collapselab.messages import logger
from collapselab.models.find import ModelSource
from collapselab.models.load import find_device, parsed_device_map
from collapselab.models.taps import check_logits, layer_names
from collapselab.records.facts import Identity
from collapselab.records.options import Options, Running
from collapselab.records.result_folder import out_folder

log = logger(__name__)

Split = Literal["train", "validation"]
SPLITS: tuple[Split, ...] = ("train", "validation")

CHECKED_BLOCKS, CHECKED_POSITIONS = 4, 32
"""Tokens on which the model's own logits are compared: few, since each has a logit for every class."""

CPU_TOKENS, ACCELERATOR_TOKENS = 200_000, 2_000_000
"""Tokens of each split that are measured unless `tokens` says otherwise."""


@dataclass(frozen=True)
class MeasureRequest:
    """The corpus, the options and the processes of one measurement."""

    corpus: Corpus
    options: Options
    running: Running = field(default_factory=Running)
    processes: Processes = field(default_factory=Processes)
    on: dict[str, Corpus] = field(default_factory=dict)
    """Further corpora, by the names of their folders."""
    against: dict[str, Corpus] = field(default_factory=dict)
    """Corpora for token scores, likewise."""

    @property
    def folder(self) -> Path | None:
        """Folder that gets one file per result, if `out` names a folder."""
        return out_folder(self.running.out)

    def say(self, text: str) -> None:
        """Log a line in the first process."""
        if self.processes.first and not self.running.quiet:
            log.info("%s", text)

    def identity(self, model: MeasuredModel) -> Identity:
        """Return what identifies the measurement, as in the facts of its result."""
        return {
            "model": model.name,
            "run": model.run or model.name,
            "checkpoint": model.checkpoint or "-",
            "in_a_run": bool(model.run),
            "model_hash": model.hash,
            "corpus": str(self.corpus.path),
            "corpus_hash": self.corpus.hash,
            "options": self.options.facts(),
        }


@dataclass(frozen=True)
class SplitPlan:
    """Blocks, classes and rows of one split."""

    samples: ByLayer[Sample]
    groups: list[range]
    """Parts of the sample whose sums are kept apart: one per process, more for a bootstrap."""
    counts: Tensor
    """Samples of each class of the vocabulary at the last layer; 0 for classes below `min_count`."""
    numbers: ClassNumbers
    """Which classes have rows in tables."""
    shards: ClassShards | None = None
    kept: ByLayer[PerClass] | None = None
    """Which samples are kept, where every class has the same number; None where all are."""

    @property
    def rows(self) -> int:
        """Number of rows in the tables of this process."""
        return self.numbers.classes if self.shards is None else self.shards.classes


@dataclass(frozen=True)
class MeasurePlan:
    """A measurement of one model, ready to run."""

    request: MeasureRequest
    model: MeasuredModel
    splits: dict[Split, SplitPlan]
    counts: ByLayer[Tensor]
    """Samples of each class that has a row for the training split; 0 for classes below `min_count`."""
    bins: dict[str, Tensor]
    """Masks of the same classes, by range of their counts."""
    batch: int
    """Blocks of a batch."""
    contexts: dict[int, Contexts] = field(default_factory=dict)
    """Contexts of the training split by their length."""
    moments_file: Path | None = None
    """The file for the moments of the last layer."""
    first_features: dict[int, Tensor] = field(default_factory=dict)
    """Features (positions, dim) of the first blocks of the training sample, kept by the training pass."""

    @property
    def options(self) -> Options:
        return self.request.options

    @property
    def processes(self) -> Processes:
        return self.request.processes

    @property
    def names(self) -> dict[str, str]:
        """Values of the first columns of every table."""
        return {"run": self.model.run or self.model.name, "checkpoint": self.model.checkpoint or "-"}

    @property
    def width(self) -> int:
        """Dimension of the features."""
        return self.model.head.weight.shape[1]

    @property
    def layers(self) -> list[str]:
        """Names of the measured layers."""
        return layer_names(self.model.model) if self.options.layers == "all" else ["last"]

    @property
    def tables(self) -> int:
        """Number of tables of class moments: one per layer, two with the null."""
        return len(self.layers) * (2 if self.options.null else 1)

    @property
    def batch_tokens(self) -> int:
        """Features of a batch that a process receives: with sharded classes those of all processes."""
        shards = self.processes.world if self.options.shard_classes else 1
        return self.batch * self.splits["train"].samples.last.length * shards

    def training_batches(self) -> Iterator[tuple[Tensor, Tensor, range]]:
        """Features, next tokens and blocks of the training sample from its beginning, a batch at a time.

        The model runs only where `first_features` ends. It then gets batches of the shape that it had in the training
        pass, so that a measurement continued in another process has the same bits.
        """
        sample = self.splits["train"].samples.last
        for start in range(0, len(sample), self.batch):
            blocks = range(start, min(start + self.batch, len(sample)))
            if all(block in self.first_features for block in blocks):
                states = torch.cat([self.first_features[block] for block in blocks])
                labels = sample.labels(blocks.start, blocks.stop).reshape(-1)
                used = (labels != IGNORED).nonzero().squeeze(1)
                yield states.index_select(0, used.to(states.device)), labels[used], blocks
            else:
                yield *self.model.sampled_features(sample, blocks.start, blocks.stop, batch=self.batch), blocks


def make_plan(request: MeasureRequest, model: MeasuredModel, moments_file: Path | None = None) -> MeasurePlan:
    """Return the plan; raise ConfigError, CorpusError or ModelError if the measurement is impossible."""
    options, train = request.options, model.samples(request.corpus, "train", request.options)
    validation = model.samples(request.corpus, "validation", options)
    # Adapters, hooks and replaced methods can change the logits without an error; find out before hours of work.
    ids = train.last.read(0, CHECKED_BLOCKS).ids[:, :CHECKED_POSITIONS].to(model.device)
    check_logits(model.model, model.own_head, ids, name=model.name)
    counts = train.map(lambda sample: sample.counts(model.classes))
    largest = int(min(counts.last.max(), counts.below.max()))
    if largest < options.min_count:
        raise ConfigError(
            f"min_count is {options.min_count:,}, but no class of the training split has that many samples; "
            f"the largest has {largest:,}."
        )
    kept = counts.map(lambda of_layer: of_layer >= options.min_count)
    later = validation.last.counts(model.classes)
    # With a min_count, validation has rows only for classes that training has.
    seen = kept.map(lambda mask: (mask | (options.min_count == 1)) & (later > 0))
    frequent = torch.where(seen.last & (later >= options.min_count), later, 0)
    splits: dict[Split, SplitPlan] = {
        "train": _split_plan(request, train, ClassNumbers(kept), torch.where(kept.last, counts.last, 0)),
        "validation": _split_plan(request, validation, ClassNumbers(seen), frequent),
    }
    rows = splits["train"].numbers.rows
    bins = frequency_bins(counts.last, options.bins, min_count=options.min_count)
    # A batch larger than the largest group would consist of filler.
    largest_group = max(len(group) for split in splits.values() for group in split.groups)
    return MeasurePlan(
        request,
        model,
        splits,
        ByLayer(rows(splits["train"].counts), rows(torch.where(kept.below, counts.below, 0))),
        {name: rows(mask) for name, mask in bins.items()},
        model.batch(options, train.last.length, largest_group),
        find_contexts(train, options, model.classes) if options.contexts else {},
        moments_file,
    )


def _split_plan(request: MeasureRequest, samples: ByLayer[Sample], numbers: ClassNumbers, counts: Tensor) -> SplitPlan:
    sample, options, processes = samples.last, request.options, request.processes
    if len(sample) < processes.world:
        raise ConfigError(
            f"the {sample.name} has {len(sample):,} blocks for {processes.world:,} processes. Start fewer."
        )
    if options.bootstrap and len(sample) < 2:
        raise ConfigError(f"bootstrap: the {sample.name} has {len(sample)} block; at least 2 can be resampled.")
    groups = sample.groups(max(GROUPS, processes.world) if options.bootstrap else processes.world)
    shards = ClassShards(processes, numbers.classes) if options.shard_classes else None
    per_class = options.per_class
    kept = None if per_class is None else samples.map(lambda one: PerClass(one, per_class, options.seed, options.null))
    return SplitPlan(samples, groups, counts, numbers, shards, kept)


def parsed_settings(options: Options | None, settings: dict[str, Any]) -> tuple[Options, Running, bool]:
    """Split keyword arguments into Options and Running; also return whether the number of tokens is the default."""
    names = {field.name for field in fields(Running)}
    running = Running(**{name: value for name, value in settings.items() if name in names})
    if running.device_map is not None:
        running = replace(running, device_map=parsed_device_map(running.device_map))
    rest = {name: value for name, value in settings.items() if name not in names}
    if unknown := [name for name in rest if name not in {field.name for field in fields(Options)}]:
        hint = did_you_mean(unknown[0], [*names, *(field.name for field in fields(Options))])
        raise ConfigError(f"measure: {unknown[0]} is not an option. {hint}".rstrip())
    if options is not None and rest:
        raise ConfigError(f"measure: options and {next(iter(rest))} are both given. Set it in options.")
    return options or Options(**rest), running, options is None and rest.get("tokens") is None


def default_tokens(sources: Sequence[ModelSource | nn.Module], device: str) -> int:
    """Return the default number of tokens, which is smaller on a CPU."""
    loaded = next((source for source in sources if isinstance(source, nn.Module)), None)
    first = None if loaded is None else next(loaded.parameters(), None)
    kind = find_device(device).type if first is None else first.device.type
    return CPU_TOKENS if kind == "cpu" else ACCELERATOR_TOKENS
