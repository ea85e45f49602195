"""One model on one corpus: a pass over training, a pass over validation, and the rows that come of them."""

import time
from collections.abc import Callable, Iterator
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
from collapselab.measurement.catalogue import Catalogue, Key, Measurements, class_sizes, frequency_bins, of_the_head
from collapselab.measurement.class_numbers import ClassNumbers
from collapselab.measurement.cost import Job
from collapselab.measurement.distributed import Processes
from collapselab.measurement.forward_pass import Walk
from collapselab.measurement.half_sample import Halfway, Part, compared, half_of
from collapselab.measurement.memory import check_memory
from collapselab.measurement.model import Subject
from collapselab.measurement.model_warnings import loss_warnings
from collapselab.measurement.nearest_centre import Judge
from collapselab.measurement.resume import Store
from collapselab.measurement.sample import GROUPS, ByLayer, Sample
from collapselab.measurement.shards import ClassShards
from collapselab.measurement.spread import Spread
from collapselab.measurement.sums import LAST, Gathered, LayerKey
from collapselab.models.scores import Scores
from collapselab.records.options import Options
from collapselab.records.result import Result
from collapselab.records.tables import Row

RULED_SHARE = 0.5
"""A handful of features that carries more of a layer's variance than this is worth a warning."""


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
    force: bool = False
    """Whether to measure although the memory that is free does not suffice."""
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
    spreads: dict[str, Spread] = field(default_factory=dict)
    left_out: int = 0
    part: Part | None = None


@final
class _Run:
    """A task at work. Everything is planned before the model runs; each pass adds to what is found."""

    def __init__(self, task: Task, store: Store | None, moments_to: Path | None) -> None:
        self.start = time.perf_counter()
        self.task, self.store, self.moments_to = task, store, moments_to
        self.options, self.processes, subject = task.options, task.processes, task.subject
        self.samples = {split: subject.samples(task.corpus, split, self.options) for split in ("train", "validation")}
        subject.check_logits(self.samples["train"].last)
        self.groups = {split: self._groups(sample.last) for split, sample in self.samples.items()}
        counts = self._class_counts(self.samples["train"])
        self.numbers = self._numbers(counts)
        rows, least = self.numbers["train"].rows, self.options.min_count
        self.counts = ByLayer(*(torch.where(rows(one) >= least, rows(one), 0) for one in (counts.last, counts.below)))
        self.kept = ByLayer(self.counts.last > 0, self.counts.below > 0)
        bins = {
            name: rows(mask) for name, mask in frequency_bins(counts.last, self.options.bins, min_count=least).items()
        }
        self.catalogues = {
            split: Catalogue(subject.applied, numbers, least, bins) for split, numbers in self.numbers.items()
        }
        self.batch = self._batch()
        self.walks = {split: self._walk(numbers) for split, numbers in self.numbers.items()}
        self.found = _Found()

    def result(self) -> Result | None:
        """Training, then validation, then what the two say together."""
        trained = self._combined("train", self._gathered("train"))
        train_seconds = time.perf_counter() - self.start
        head, min_count = self.task.subject.applied, self.options.min_count
        shards, numbers = self.walks["train"].shards, self.numbers["train"]
        judge = Judge(trained, head, self.kept, numbers, min_count=min_count, shards=shards)
        gathered = self._gathered("validation", judge)
        del judge  # its classifiers are as large as the moments
        decided = self._combined("validation", gathered).decisions
        if not self.processes.first:
            return None
        self.found.left_out = decided[LAST].left_out
        catalogue = self.catalogues["train"]
        self.found.values |= catalogue.of_decisions(decided, self.counts)
        if self.options.null:
            self.found.nulls |= catalogue.of_decisions(decided, self.counts, null=True)
        resamples = self._resampled() if self.options.bootstrap else None
        rows = self._rows(resamples)
        return Result(rows, self._facts(rows, resamples, train_seconds))

    def _gathered(self, split: str, judge: Judge | None = None) -> Gathered:
        with self.store.stoppable() if self.store is not None else nullcontext():
            halfway = self._halfway() if split == "train" else None
            return self.walks[split].over(self.samples[split], self.processes.mine(self.groups[split]), judge, halfway)

    def _combined(self, split: str, own: Gathered) -> Gathered:
        """What all processes gathered; the catalogue of each layer's moments is made as they are combined."""
        total = Gathered()
        shared = Gathered(decisions=own.decisions, scores=own.scores, spreads=own.spreads)
        for part in self.processes.everyone(shared):
            total.merge(part)
        self.found.spreads |= total.spreads
        if split == "train":
            self.found.part = own.part if self.processes.world == 1 else self._own_part(own)
        shards = self.walks[split].shards
        for key in list(own.moments):  # one at a time: no two layers are held twice
            moments = own.moments.pop(key)
            if shards is None:
                total.moments[key] = self.processes.merged(moments)
                self._measure(total.moments[key], split, key)
            else:
                self._measure(shards.whole(moments), split, key)
                total.moments[key] = moments
        self.found.scores[split] = total.scores
        return total

    def _halfway(self) -> Halfway | None:
        """Where one process takes the values of half the sample; with resamples there are halves anyway."""
        half = half_of(len(self.samples["train"].last), self.batch)
        if half is None or self.processes.world > 1 or self.options.bootstrap:
            return None
        return Halfway(half, self._part_values)

    def _own_part(self, own: Gathered) -> Part | None:
        """The values of the first process's own part of the sample; with sharded classes there is none."""
        if not self.processes.first or self.options.shard_classes or self.options.bootstrap:
            return None
        return Part(own.moments[LAST].tokens, self._part_values(own.moments[LAST]))

    def _part_values(self, moments: ClassMoments) -> dict[str, float]:
        without_bins = self.catalogues["train"]._replace(bins={})
        values = without_bins.of_moments(moments, "train", "last", with_head=False)
        return {key.metric: one.value for key, one in values.items() if one.value is not None}

    def _measure(self, moments: ClassMoments | None, split: str, key: LayerKey) -> None:
        if moments is None or not self.processes.first:
            return
        found = self.found
        with_head = (split, key) == ("train", LAST)
        values = self.catalogues[split].of_moments(moments, split, key.layer, with_head=with_head)
        if key.null:
            found.nulls |= values
            return
        found.values |= values
        if self.options.null:  # no label enters the output layer's own metrics: their null is their value
            found.nulls |= {name: one for name, one in values.items() if name.metric in of_the_head()}
        if with_head and self.moments_to is not None:
            self.numbers[split].save(moments, self.moments_to)

    def _groups(self, sample: Sample) -> list[range]:
        world = self.processes.world
        if len(sample) < world:
            raise ConfigError(f"the {sample.name} has {len(sample):,} blocks for {world:,} processes. Start fewer.")
        if self.options.bootstrap and len(sample) < 2:
            raise ConfigError(f"bootstrap: the {sample.name} has {len(sample)} block; at least 2 can be resampled.")
        return sample.groups(max(GROUPS, world) if self.options.bootstrap else world)

    def _class_counts(self, samples: ByLayer[Sample]) -> ByLayer[torch.Tensor]:
        """How often each class is a label of the training split's samples."""
        last = samples.last.counts(self.task.subject.classes)
        alike = samples.below is samples.last
        counts = ByLayer(last, last if alike else samples.below.counts(self.task.subject.classes))
        largest = int(min(counts.last.max(), counts.below.max()))
        if largest < self.options.min_count:
            raise ConfigError(
                f"min_count is {self.options.min_count:,}, but no class of the training split has as many samples; "
                f"the largest has {largest:,}."
            )
        return counts

    def _numbers(self, counts: ByLayer[torch.Tensor]) -> dict[str, ClassNumbers]:
        """The classes of each split that have rows; with a `min_count`, validation has none but those of training."""
        least = self.options.min_count
        kept = ByLayer(*(one >= least for one in (counts.last, counts.below)))
        later = self.samples["validation"].last.counts(self.task.subject.classes)
        among = ByLayer(torch.ones_like(kept.last), torch.ones_like(kept.last)) if least == 1 else kept
        later_kept = ByLayer(among.last & (later > 0), among.below & (later > 0))
        at_least = torch.where(later_kept.last & (later >= least), later, 0)
        self.split_counts = {"train": torch.where(kept.last, counts.last, 0), "validation": at_least}
        return {"train": ClassNumbers(kept), "validation": ClassNumbers(later_kept)}

    def _batch(self) -> int:
        """Blocks of a batch: those of the plan, if the measurement was begun before. First, whether it all fits."""
        largest = max(len(group) for parts in self.groups.values() for group in parts)
        batch = self.task.subject.batch(self.options, self.samples["train"].last.length, largest)
        if not self.task.force:
            check_memory(
                self.task.subject.model, self._job(batch), self.task.subject.device, name=self.task.subject.name
            )
        if self.store is not None and self.processes.first:  # it goes on with the batches it began with
            batch = self.store.plan({**self.task.identity, "batch": batch})["batch"]
        return self.processes.from_first(batch)

    def _walk(self, numbers: ClassNumbers) -> Walk:
        shards = ClassShards(self.processes, numbers.classes) if self.options.shard_classes else None
        quiet = self.task.quiet or not self.processes.first
        return Walk(self.task.subject, self.options, self.batch, numbers, self.store, shards, quiet)

    def _job(self, batch: int) -> Job:
        """The measurement as its cost sees it."""
        train, validation, subject = self.samples["train"].last, self.samples["validation"].last, self.task.subject
        return Job(
            train.tokens,
            validation.tokens,
            self.options,
            block=train.length,
            batch=batch,
            processes=self.processes.world,
            kept=self.numbers["train"].classes,
            kept_validation=self.numbers["validation"].classes,
            number_bytes=subject.head.weight.element_size(),
            device="cuda" if subject.device.type == "cuda" else "cpu",
            saved=self.store is not None,
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
        return resampled(self.catalogues, readers, self.counts, self.options.bootstrap, self.options.seed)

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
        subject, tokens = self.task.subject, int(self.counts.last.sum())
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
            "batch": self.batch,
            "processes": self.processes.world,
            "versions": {name: version(name) for name in ("collapselab", "torch", "transformers")},
            "warnings": [*self.task.warnings, *self._loss_warnings(), *_spread_warnings(self.found.spreads)],
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
        samples, scores = self.samples[split], self.found.scores[split]
        sample = samples.last
        facts: dict[str, Any] = {"blocks": len(sample), "tokens": sample.tokens, "blocks_cut_off": sample.cut_off}
        if samples.below is not sample:
            facts["tokens_below"] = samples.below.tokens
        facts |= asdict(class_sizes(self.split_counts[split]))
        if split == "validation":
            facts["left_out"] = self.found.left_out
        if scores.tokens:
            facts |= {"loss": scores.loss, "accuracy": scores.accuracy, "perplexity": scores.perplexity}
        return facts


def _spread_warnings(spreads: dict[str, Spread]) -> Iterator[dict[str, str]]:
    """A warning for each layer where a handful of features carries more than half of the variance."""
    for layer, spread in spreads.items():
        share = spread.share_of_handful()
        if share > RULED_SHARE:
            text = (
                f"layer {layer}: {spread.handful:,} of {spread.features:,} features carry {share:.0%} of the variance; "
                "its values say little about the others."
            )
            sinks = " If these are the first positions of blocks, leave out more with --skip-positions."
            yield {"code": "few_features_rule", "text": text + ("" if layer == "last" else sinks)}


def _place(key: Key) -> tuple[Any, ...]:
    """Rows in the order of splits, layers, bins and the catalogue."""
    layer = (1, 0) if key.layer == "last" else (0, int(key.layer))
    low = -1 if key.bin == "all" else int(key.bin.split("-")[0])
    return key.split, layer, low, list(METRICS).index(key.metric)
