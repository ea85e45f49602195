"""The plan of a suite: every run with its name, its size and its cost, before anything is trained.

The name of a run's folder follows from its settings and its corpus alone, so the same run has the same name in every
recipe. The last 8 digits are its identity; the words before them are for people.

`pace` predicts how long the runs take on this machine, from timing a few steps of a small and of a large model. A step
takes a fixed time and one that grows with its operations: two points give both. The steps are those of `train`: same
model, same loss, same optimiser, on tokens drawn at random.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, final

from pydantic import JsonValue

from collapselab.errors import ConfigError, ModelError
from collapselab.records.options import Options
from collapselab.records.run import identity
from collapselab.suite.corpora import CorpusFacts
from collapselab.suite.model_entries import ModelEntry, model_entries
from collapselab.suite.power import PlannedComparison, comparison, comparison_warnings
from collapselab.suite.recipe import Suite
from collapselab.training.heads import check_head
from collapselab.training.interventions.dose import parse_doses, sham_notes
from collapselab.training.settings import Plan, Settings, model_config, paper_batch, plan, resolved

if TYPE_CHECKING:
    from collapselab.models.sizes import Architecture

NAME_MARKS = {
    "head_size": "h", "tied": "", "head": "", "dropout": "do", "context": "c", "batch": "b", "batch_tokens": "bt",
    "optimizer": "", "coupling": "r", "lr": "lr", "schedule": "", "warmup": "w", "weight_decay": "wd", "clip": "clip",
    "label_smoothing": "ls", "precision": "", "intervene": "", "seed": "s", "data_seed": "ds",
}  # fmt: skip
"""What is written before a setting's value in the name of a run, where it is not the default."""

LONGEST_MARK = 100
"""Characters of a name that interventions take; file systems allow 255 in all, and the identity tells runs apart."""


@final
@dataclass(frozen=True)
class Entry:
    """One run of a suite."""

    name: str
    settings: Settings
    corpus: CorpusFacts
    planned: Plan

    @cached_property
    def architecture(self) -> "Architecture":
        return _architecture(self.settings, self.corpus)

    @property
    def parameters(self) -> int:
        return self.architecture.parameters

    @property
    def checkpoints(self) -> list[str]:
        return list(self.planned.checkpoints.values())

    @property
    def step_flops(self) -> float:
        return self.architecture.training_flops(self.planned.step_positions, self.planned.block)

    @property
    def flops(self) -> float:
        """Of the training."""
        return self.planned.steps * self.step_flops

    def measure_flops(self, options: Options) -> float:
        """Of measuring one checkpoint."""
        from collapselab.measurement.cost import Job, measuring

        block, corpus = self.planned.block, self.corpus
        train, validation = (
            options.blocks_for(block - 1 if samples is None else samples / blocks, blocks) * (block - 1)
            for samples, blocks in (
                (corpus.samples, corpus.blocks),
                (corpus.validation_samples, corpus.validation_blocks),
            )
        )  # of all positions: the model runs on padding too
        return measuring(self.architecture, Job(train, validation, options, block=block)).operations.total

    @property
    def disk(self) -> int:
        """Bytes when the run is finished: weights and class moments of every checkpoint."""
        from collapselab.measurement.cost import stored_bytes

        moments = stored_bytes(self.corpus.vocabulary, self.settings.width, covariance=True)
        return len(self.checkpoints) * (4 * self.parameters + int(moments))


AnyEntry = Entry | ModelEntry
"""A run that is trained and measured, or a model that is measured."""


@final
@dataclass(frozen=True)
class SuitePlan:
    """All runs of a suite, each once, with warnings to read before they start."""

    entries: list[AnyEntry]
    warnings: list[str] = field(default_factory=list)
    impossible: list[str] = field(default_factory=list)
    """Runs that cannot be made, with the reason."""
    compared: PlannedComparison | None = None
    """The pairs that its arms make; None where it has none."""


def plan_suite(
    suite: Suite, corpora: dict[str, CorpusFacts], *, advance: Callable[[int], object] = lambda _: None
) -> SuitePlan:
    """Name, plan and check every run; of a recipe with models, every model."""
    if suite.models:
        return SuitePlan([*model_entries(suite, corpora)])
    entries: dict[str, Entry] = {}
    warnings, impossible, same = [], [], 0
    for number, (settings, name) in enumerate(suite.runs):
        corpus = corpora[name]
        try:
            planned = plan(settings, blocks=corpus.blocks, block=corpus.block, samples=corpus.samples)
            entry = Entry(run_name(settings, corpus.key), settings, corpus, planned)
            _ = entry.architecture
            check_head(settings, vocabulary=corpus.vocabulary)
        except (ConfigError, ModelError) as error:
            impossible.append(f"run {number + 1} ({described(settings)}): {error}")
            continue
        if entry.name in entries:
            same += 1
            if same <= 3:
                warnings.append(f"run {number + 1} ({described(settings)}) is the same as one before; it is done once.")
        entries.setdefault(entry.name, entry)
        advance(1)
    if same > 3:
        warnings.append(f"{same - 3:,} more runs are the same as one before.")
    runs = list(entries.values())
    compared = comparison(suite)
    shams = sorted({note for entry in runs for note in sham_notes(entry.settings.intervene)})
    warnings += [*comparison_warnings(suite, compared), *shams, *_short_trainings(runs), *_uneven_shares(runs, suite)]
    return SuitePlan([*runs], warnings, impossible, compared)


def run_name(settings: Settings, corpus_key: str) -> str:
    """The name of the run's folder, as 02x0128-e3-lr0.002-s1-5f0c1d2e."""
    values = resolved(settings)
    family = "" if settings.family == "gpt-neo" else f"{Path(settings.family).stem}-"
    length = f"n{settings.steps}" if settings.steps else f"e{settings.epochs or 1:g}"
    parts = [f"{family}{settings.depth:02}x{settings.width:04}", length]
    parts += [
        _marked(name, values[name], settings)
        for name in NAME_MARKS
        if name in values and values[name] != _usual(name, settings)
    ]
    return "-".join([*parts, identity(values, corpus_key)])


def described(settings: Settings) -> str:
    """The settings that someone chose."""
    values = settings.model_dump() | {"intervene": " ".join(settings.intervene)}
    chosen = ((name, value) for name, value in values.items() if name in settings.model_fields_set)
    return ", ".join(f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}" for name, value in chosen)


def _usual(name: str, settings: Settings) -> object:
    if name == "batch":
        return None if settings.batch_tokens else paper_batch(settings.width, settings.depth)
    return settings.seed if name == "data_seed" else _DEFAULTS[name]


_DEFAULTS = {name: field.default for name, field in Settings.model_fields.items()}


def _marked(name: str, value: JsonValue, settings: Settings) -> str:
    if name == "tied":
        return "untied"
    if name == "intervene":
        return "-".join(dose.mark for dose in parse_doses(settings.intervene))[:LONGEST_MARK].rstrip("-.")
    return f"{NAME_MARKS[name]}{value:g}" if isinstance(value, float) else f"{NAME_MARKS[name]}{value}"


_known_architectures: dict[tuple[object, ...], "Architecture"] = {}


def _architecture(settings: Settings, corpus: CorpusFacts) -> "Architecture":
    from collapselab.models.build import architecture

    context = settings.context or corpus.block
    sizes = (settings.family, settings.width, settings.depth, settings.head_size, settings.tied)
    key = (*sizes, context, corpus.vocabulary)
    if key not in _known_architectures:
        config = model_config(settings, vocabulary=corpus.vocabulary, block=corpus.block)
        _known_architectures[key] = architecture(config)
    return _known_architectures[key]


def _short_trainings(entries: list[Entry]) -> list[str]:
    """Warnings where a batch is larger than an epoch, or an epoch is a few batches and not a whole number of them."""
    warnings = []
    for entry in entries:
        planned = entry.planned
        if planned.batch > planned.blocks:
            warnings.append(
                f"{entry.name}: a batch of {planned.batch} is more than the {planned.blocks:,} blocks of an epoch."
            )
        elif planned.blocks % planned.batch and planned.blocks < 10 * planned.batch:
            warnings.append(
                f"{entry.name}: {planned.blocks:,} blocks are not a whole number of batches of {planned.batch}; "
                f"an epoch ends inside its last one."
            )
    return warnings if len(warnings) <= 3 else [*warnings[:3], f"{len(warnings) - 3:,} more runs have such batches."]


def _uneven_shares(entries: list[Entry], suite: Suite) -> list[str]:
    processes = suite.resources.gpus
    if processes < 2:
        return []
    uneven = [entry for entry in entries if entry.planned.batch % processes]
    return [
        f"{entry.name}: its batch of {entry.planned.batch} cannot be shared by {processes} GPUs."
        for entry in uneven[:3]
    ]


STEPS = 5
STEP_TOKENS = 4096
"""Most tokens of a timed step: enough to be typical, few enough to be fast."""

LARGE_STEP_SECONDS = 3.0
"""Most seconds for the timed step of the large model, as predicted from the small one."""

CHECKPOINT_SECONDS = 1.5
"""Loading, counting and writing at each measured checkpoint."""


@final
@dataclass(frozen=True)
class Pace:
    """The speed of this machine: a fixed time for each step, and floating-point operations per second."""

    step_seconds: float
    flops_per_second: float

    def seconds(self, entry: Entry, options: Options) -> float:
        """About how long it takes to train a run and to measure every checkpoint."""
        training = entry.planned.steps * self.step_seconds + entry.flops / self.flops_per_second
        measuring = CHECKPOINT_SECONDS + entry.measure_flops(options) / self.flops_per_second
        return training + len(entry.checkpoints) * measuring


def pace(entries: list[Entry], *, device: str = "auto") -> Pace:
    """Time the smallest model of a plan, and the largest that does not take long."""
    ordered = sorted(entries, key=_timed_flops)
    small = ordered[0]
    small_flops, small_seconds = _timed_flops(small), _step_seconds(small, device)
    within = [entry for entry in ordered if _timed_flops(entry) / small_flops * small_seconds <= LARGE_STEP_SECONDS]
    large = within[-1] if within else small
    if _timed_flops(large) < 1.5 * small_flops:
        return Pace(0.0, small_flops / small_seconds)
    more_flops, more_seconds = _timed_flops(large) - small_flops, _step_seconds(large, device) - small_seconds
    if more_seconds <= 0:
        return Pace(small_seconds, float("inf"))
    return Pace(max(0.0, small_seconds - small_flops * more_seconds / more_flops), more_flops / more_seconds)


def _sequences(entry: Entry) -> int:
    return max(1, min(entry.planned.batch, STEP_TOKENS // entry.planned.block))


def _timed_flops(entry: Entry) -> float:
    return entry.step_flops * _sequences(entry) / entry.planned.batch


def _step_seconds(entry: Entry, device: str) -> float:
    """The median time of a step, the first left out: it warms up."""
    import numpy as np
    from transformers import TrainerCallback

    from collapselab.corpus.blocks import Split
    from collapselab.models.build import build_model
    from collapselab.models.load import find_device
    from collapselab.training.settings import Plan, model_config
    from collapselab.training.trainer import LanguageTrainer, training_arguments

    class Clock(TrainerCallback):
        def __init__(self) -> None:
            self.ends: list[float] = []

        def on_step_end(self, *_: object, **__: object) -> None:
            self.ends.append(time.perf_counter())

    settings, corpus, block = entry.settings, entry.corpus, entry.planned.block
    plan = Plan(block, 64, _sequences(entry), STEPS, 0, {})
    config = model_config(settings, vocabulary=corpus.vocabulary, block=block)
    where, clock = find_device(device), Clock()
    with tempfile.TemporaryDirectory() as folder:
        ids = np.random.default_rng(0).integers(0, corpus.vocabulary, (plan.blocks, block), dtype=np.uint32)
        ids.tofile(Path(folder) / "train.bin")
        counts = np.zeros((2, corpus.vocabulary), dtype=np.int64)
        split = Split(Path(folder) / "train.bin", blocks=plan.blocks, block=block, id_type="uint32", counts=counts)
        args = training_arguments(settings, plan, folder=folder, device=where, bf16=False, parts=1)
        trainer = LanguageTrainer(build_model(config, seed=0), split, settings, plan, args)
        trainer.add_callback(clock)
        trainer.train()
    return statistics.median(after - before for before, after in zip(clock.ends, clock.ends[1:], strict=False))
