"""One model on one corpus: a pass over training, a pass over validation, and the rows that come of them."""

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, final

import torch

from collapselab.core.metrics import METRICS
from collapselab.core.moments import ClassMoments
from collapselab.corpus.blocks import Corpus
from collapselab.errors import ConfigError
from collapselab.measurement.bootstrap import Resamples, difference, resampled
from collapselab.measurement.catalogue import OF_THE_HEAD, Catalogue, Key, Measurements, class_sizes, frequency_bins
from collapselab.measurement.distributed import Processes
from collapselab.measurement.forward_pass import Walk
from collapselab.measurement.half_sample import Halfway, Part, compared, half_of
from collapselab.measurement.model import Subject
from collapselab.measurement.model_warnings import loss_warnings
from collapselab.measurement.nearest_centre import Judge
from collapselab.measurement.resume import Store
from collapselab.measurement.sample import GROUPS, Sample
from collapselab.measurement.shards import ClassShards
from collapselab.measurement.sums import Gathered, is_null, layer_of
from collapselab.models.scores import Scores
from collapselab.records.options import Options
from collapselab.records.result import Result
from collapselab.records.tables import Row


@final
@dataclass(frozen=True)
class Task:
    """A measurement to be made. `identity` names it: model, corpus, options."""

    subject: Subject
    corpus: Corpus
    options: Options
    processes: Processes
    identity: dict[str, Any]
    quiet: bool = False
    model_facts: dict[str, Any] = field(default_factory=dict)
    """What else is known of the model: its format on disk, its tokenizer."""
    warnings: list[dict[str, str]] = field(default_factory=list)
    """What a reader of the result must know of the model."""

    def result(self, store: Store | None, *, moments_to: Path | None = None) -> Result | None:
        """The rows and facts; None in a process that is not the first. `moments_to` is a file for the last layer's."""
        if store is not None:
            with store.opened(rank=self.processes.rank):
                return _Run(self, store, moments_to).result()
        if not self.options.bootstrap:
            return _Run(self, None, moments_to).result()
        place = TemporaryDirectory() if self.processes.first else nullcontext("")
        with place as folder:  # for the groups of all processes, until the first has resampled them
            return _Run(self, Store(self.processes.from_first(folder), temporary=True), moments_to).result()


@dataclass
class _Found:
    values: Measurements = field(default_factory=dict)
    nulls: Measurements = field(default_factory=dict)
    scores: dict[str, Scores] = field(default_factory=dict)
    left_out: int = 0
    part: Part | None = None


@final
class _Run:
    """A task at work. Everything is planned before the model runs; each pass adds to what is found."""

    def __init__(self, task: Task, store: Store | None, moments_to: Path | None) -> None:
        self.start = time.perf_counter()
        self.task, self.store, self.moments_to = task, store, moments_to
        self.options, self.processes, subject = task.options, task.processes, task.subject
        self.samples = {split: subject.sample(task.corpus, split, self.options) for split in ("train", "validation")}
        subject.check_logits(self.samples["train"])
        self.groups = {split: self._groups(sample) for split, sample in self.samples.items()}
        counts = self.samples["train"].counts(subject.classes)
        self._check_counts(int(counts.max()))
        self.kept = counts >= self.options.min_count
        self.counts = torch.where(self.kept, counts, 0)
        later = self.samples["validation"].counts(subject.classes)
        of_kept = later if self.options.min_count == 1 else torch.where(self.kept, later, 0)
        self.split_counts = {
            "train": self.counts,
            "validation": torch.where(of_kept >= self.options.min_count, of_kept, 0),
        }
        bins = frequency_bins(counts, self.options.bins, min_count=self.options.min_count)
        self.catalogue = Catalogue(subject.applied, self.options.min_count, bins)
        self.shards = ClassShards(self.processes, subject.classes) if self.options.shard_classes else None
        self.walk = self._walk()
        self.found = _Found()

    def result(self) -> Result | None:
        """Training, then validation, then what the two say together."""
        trained = self._combined("train", self._gathered("train"))
        train_seconds = time.perf_counter() - self.start
        head, min_count = self.task.subject.applied, self.options.min_count
        judge = Judge(trained, head, self.kept, min_count=min_count, shards=self.shards)
        gathered = self._gathered("validation", judge)
        del judge  # its classifiers are as large as the moments
        decided = self._combined("validation", gathered).decisions
        if not self.processes.first:
            return None
        self.found.left_out = decided["last"].left_out
        self.found.values |= self.catalogue.of_decisions(decided, self.counts)
        if self.options.null:
            self.found.nulls |= self.catalogue.of_decisions(decided, self.counts, null=True)
        resamples = self._resampled() if self.options.bootstrap else None
        rows = self._rows(resamples)
        return Result(rows, self._facts(rows, resamples, train_seconds))

    def _gathered(self, split: str, judge: Judge | None = None) -> Gathered:
        with self.store.stoppable() if self.store is not None else nullcontext():
            halfway = self._halfway() if split == "train" else None
            return self.walk.over(self.samples[split], self.processes.mine(self.groups[split]), judge, halfway)

    def _combined(self, split: str, own: Gathered) -> Gathered:
        """What all processes gathered; the catalogue of each layer's moments is made as they are combined."""
        total = Gathered()
        for part in self.processes.everyone(Gathered(decisions=own.decisions, scores=own.scores)):
            total.merge(part)
        if split == "train":
            self.found.part = own.part if self.processes.world == 1 else self._own_part(own)
        for key in list(own.moments):  # one at a time: no two layers are held twice
            moments = own.moments.pop(key)
            if self.shards is None:
                total.moments[key] = self.processes.merged(moments)
                self._measure(total.moments[key], split, key)
            else:
                self._measure(self.shards.whole(moments), split, key)
                total.moments[key] = moments
        self.found.scores[split] = total.scores
        return total

    def _halfway(self) -> Halfway | None:
        """Where one process takes the values of half the sample; with resamples there are halves anyway."""
        half = half_of(len(self.samples["train"]), self.walk.batch)
        if half is None or self.processes.world > 1 or self.options.bootstrap:
            return None
        return Halfway(half, self._part_values)

    def _own_part(self, own: Gathered) -> Part | None:
        """The values of the first process's own part of the sample; with sharded classes there is none."""
        if not self.processes.first or self.shards is not None or self.options.bootstrap:
            return None
        return Part(own.moments["last"].tokens, self._part_values(own.moments["last"]))

    def _part_values(self, moments: ClassMoments) -> dict[str, float]:
        without_bins = self.catalogue._replace(bins={})
        values = without_bins.of_moments(moments, "train", "last", with_head=False)
        return {key.metric: one.value for key, one in values.items() if one.value is not None}

    def _measure(self, moments: ClassMoments | None, split: str, key: str) -> None:
        if moments is None or not self.processes.first:
            return
        layer, found = layer_of(key), self.found
        with_head = (split, key) == ("train", "last")
        values = self.catalogue.of_moments(moments, split, layer, with_head=with_head)
        if is_null(key):
            found.nulls |= values
            return
        found.values |= values
        if self.options.null:  # no label enters the output layer's own metrics: their null is their value
            found.nulls |= {name: one for name, one in values.items() if name.metric in OF_THE_HEAD}
        if with_head and self.moments_to is not None:
            moments.save(self.moments_to)

    def _groups(self, sample: Sample) -> list[range]:
        world = self.processes.world
        if len(sample) < world:
            raise ConfigError(f"the {sample.name} has {len(sample):,} blocks for {world:,} processes. Start fewer.")
        if self.options.bootstrap and len(sample) < 2:
            raise ConfigError(f"bootstrap: the {sample.name} has {len(sample)} block; at least 2 can be resampled.")
        return sample.groups(max(GROUPS, world) if self.options.bootstrap else world)

    def _check_counts(self, largest: int) -> None:
        if largest < self.options.min_count:
            raise ConfigError(
                f"min_count is {self.options.min_count:,}, but no class of the training split has as many samples; "
                f"the largest has {largest:,}."
            )

    def _walk(self) -> Walk:
        largest = max(len(group) for parts in self.groups.values() for group in parts)
        batch = self.task.subject.batch(self.options, self.samples["train"].length, largest)
        if self.store is not None and self.processes.first:  # it goes on with the batches it began with
            batch = self.store.plan({**self.task.identity, "batch": batch})["batch"]
        return Walk(
            self.task.subject,
            self.options,
            self.processes.from_first(batch),
            self.store,
            None if self.options.min_count == 1 else self.kept,
            self.shards,
            self.task.quiet or not self.processes.first,
        )

    def _resampled(self) -> Resamples:
        assert self.store is not None

        def read(split: str, number: int) -> Gathered:
            gathered = self.store.kept(split, number) if self.store else None
            assert gathered is not None, f"group {number} of {split} was kept and is gone"
            return gathered

        readers: dict[str, list[Callable[[], Gathered]]] = {
            split: [partial(read, split, number) for number in range(len(parts))]
            for split, parts in self.groups.items()
        }
        return resampled(self.catalogue, readers, self.counts, self.options.bootstrap, self.options.seed)

    def _rows(self, resamples: Resamples | None) -> list[Row]:
        rows = []
        for key in sorted(self.found.values, key=_place):
            one, null = self.found.values[key], self.found.nulls.get(key)
            low, high = (None, None) if resamples is None else resamples.interval(key, one.value)
            rows.append(
                Row(
                    run=self.task.identity["run"],
                    checkpoint=self.task.identity["checkpoint"],
                    split="train" if key.split == "train" else "validation",
                    layer=key.layer,
                    bin=key.bin,
                    metric=key.metric,
                    value=one.value,
                    null=None if null is None else null.value,
                    low=low,
                    high=high,
                    classes=one.classes,
                    tokens=one.tokens,
                    min_count=one.min_count,
                    left_out=one.left_out,
                    version=one.version,
                    why=one.why,
                )
            )
        return rows

    def _facts(self, rows: list[Row], resamples: Resamples | None, train_seconds: float) -> dict[str, Any]:
        subject, tokens = self.task.subject, int(self.counts.sum())
        part = self.found.part if resamples is None else Part(tokens // 2, resamples.half_values("train", "last"))
        half = compared(part, rows, tokens)
        facts: dict[str, Any] = {
            **self.task.identity,
            **self.task.model_facts,
            "splits": {split: self._split_facts(split) for split in self.samples},
            "half_sample": None if half is None else half.facts(),
            "classes": subject.classes,
            "context": subject.context,
            "dtype": subject.dtype,
            "device": str(subject.device),
            "batch": self.walk.batch,
            "processes": self.processes.world,
            "versions": {name: version(name) for name in ("collapselab", "torch", "transformers")},
            "warnings": [*self.task.warnings, *self._loss_warnings()],
            "seconds": {"train": train_seconds, "all": time.perf_counter() - self.start},
        }
        if resamples is not None:
            facts["halves"] = {"/".join(key): resamples.halves(key) for key in self.found.values}
            facts["half_difference"] = {name: difference(pairs) for name, pairs in facts["halves"].items()}
        return facts

    def _loss_warnings(self) -> list[dict[str, str]]:
        """None for a run's initialisation, which has learned nothing yet."""
        identity = self.task.identity
        if identity["in_a_run"] and identity["checkpoint"] == "0":
            return []
        return loss_warnings(self.found.scores["validation"].loss, self.task.subject.classes)

    def _split_facts(self, split: str) -> dict[str, Any]:
        sample, scores = self.samples[split], self.found.scores[split]
        facts: dict[str, Any] = {"blocks": len(sample), "tokens": sample.tokens, "blocks_cut_off": sample.cut_off}
        facts |= asdict(class_sizes(self.split_counts[split]))
        if split == "validation":
            facts["left_out"] = self.found.left_out
        if scores.tokens:
            facts |= {"loss": scores.loss, "accuracy": scores.accuracy, "perplexity": scores.perplexity}
        return facts


def _place(key: Key) -> tuple[Any, ...]:
    """Rows in the order of splits, layers, bins and the catalogue."""
    layer = (1, 0) if key.layer == "last" else (0, int(key.layer))
    low = -1 if key.bin == "all" else int(key.bin.split("-")[0])
    return key.split, layer, low, list(METRICS).index(key.metric)
