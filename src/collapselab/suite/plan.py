"""The plan of a suite: every run with its name, its size and its cost, before anything is trained.

The name of a run's folder follows from its settings and its corpus alone, so the same run has the same name in every
recipe. The last 8 digits are its identity; the words before them are for people.

A recipe with `models:` trains nothing. Each of its models is an entry with the name, lock, log and failure of a run, so
that every launcher performs it; its result is a file in the suite's folder `models`, as `measure --out` writes it.

`pace` predicts how long the runs take on this machine, from timing a few steps of one of the models.
"""

import hashlib
import re
import statistics
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
from collapselab.suite.power import PlannedComparison, comparison, comparison_warnings
from collapselab.suite.recipe import Suite
from collapselab.suite.sections import DataSpec
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

MAX_MARK = 100
"""Characters of a name that interventions take; file systems allow 255 in all, and the identity tells runs apart."""

MODELS_FOLDER = "models"
"""Of the results of models, inside the suite's folder."""


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
        """Of the forward passes of measuring one checkpoint, on all positions: the model runs on padding too."""
        corpus, block = self.corpus, self.planned.block
        splits = ((corpus.samples, corpus.blocks), (corpus.validation_samples, corpus.validation_blocks))
        blocks = sum(options.blocks_for(block - 1 if some is None else some / count, count) for some, count in splits)
        return blocks * (block - 1) * self.architecture.forward_flops(block, output_layer=True)

    @property
    def disk(self) -> int:
        """Bytes when the run is finished: weights and class moments of every checkpoint."""
        width = self.settings.width
        moments = self.corpus.vocabulary * (8 * width + 25) + 8 * width * (width + 2)
        return len(self.checkpoints) * (4 * self.parameters + moments)


@final
@dataclass(frozen=True)
class ModelEntry:
    """One model on one text. What a run has and a model has not (steps, disk) is empty."""

    name: str
    model: str
    text: DataSpec | CorpusFacts
    planned: Plan = field(default_factory=lambda: Plan(0, 1, 1, 0, 0, {}))
    parameters: int = 0
    flops: float = 0.0
    disk: int = 0
    checkpoints: tuple[str, ...] = ("-",)

    def is_measured(self, folder: Path, options: Options) -> bool:
        """Whether its result is in the suite's folder; no model is loaded to know it."""
        from collapselab.records.measurement import Result
        from collapselab.records.result_folder import result_files

        for path in result_files(folder / MODELS_FOLDER):
            facts = Result.load(path).facts
            same_text = isinstance(self.text, DataSpec) or facts["corpus_hash"] == self.text.hash
            if facts["model"] == self.model and facts["options"] == options.facts() and same_text:
                return True
        return False

    def measure(self, folder: Path, options: Options, *, device: str) -> None:
        """Measure the model; its result is written when it is finished, and continued where it was interrupted."""
        from collapselab.corpus.sources import Reading, open_source
        from collapselab.measurement.measure import measure

        out, text = f"{folder / MODELS_FOLDER}/", self.text
        if isinstance(text, CorpusFacts):
            measure(self.model, text.path, options=options, device=device, out=out)
            return
        reading = Reading(text_column=text.text_column, split=text.split, revision=text.revision)
        measure(
            self.model,
            data=open_source(text.sources, reading=reading),
            block=text.block,
            max_tokens=text.max_tokens,
            options=options,
            device=device,
            out=out,
        )


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
    suite: Suite,
    corpora: dict[str, CorpusFacts],
    *,
    check: bool = True,
    advance: Callable[[int], object] = lambda _: None,
) -> SuitePlan:
    """Name and plan every run; of a recipe with models, every model.

    `check` also makes sure that each model can be built, which imports torch, and adds warnings and what arms can show.
    """
    if suite.models:
        return SuitePlan([*_model_entries(suite, corpora)])
    entries: dict[str, Entry] = {}
    warnings, impossible, same = [], [], 0
    for number, (settings, name) in enumerate(suite.runs):
        corpus = corpora[name]
        try:
            planned = plan(settings, blocks=corpus.blocks, block=corpus.block, samples=corpus.samples)
            entry = Entry(run_name(settings, corpus.key), settings, corpus, planned)
            if check:
                _check_model(entry)
        except (ConfigError, ModelError) as error:
            impossible.append(f"run {number + 1} ({described(settings)}): {error}")
            continue
        if entry.name in entries:
            same += 1
            if same <= 3:
                warnings.append(f"run {number + 1} ({described(settings)}) is the same as one before; it is done once.")
        entries.setdefault(entry.name, entry)
        advance(1)
    if not check:
        return SuitePlan([*entries.values()], impossible=impossible)
    if same > 3:
        warnings.append(f"{same - 3:,} more runs are the same as one before.")
    runs = list(entries.values())
    compared = comparison(suite)
    shams = sorted({note for entry in runs for note in sham_notes(entry.settings.intervene)})
    warnings += [*comparison_warnings(suite, compared), *shams, *_batch_warnings(runs, suite.resources.gpus)]
    return SuitePlan([*runs], warnings, impossible, compared)


def _check_model(entry: Entry) -> None:
    from collapselab.training.heads import check_head

    _ = entry.architecture
    check_head(entry.settings, vocabulary=entry.corpus.vocabulary)


def _model_entries(suite: Suite, corpora: dict[str, CorpusFacts]) -> list[ModelEntry]:
    """Every model that the recipe's names and patterns mean, on every text of it; each once."""
    from collapselab.models.find import find_models

    names = dict.fromkeys(source.name for source in find_models(suite.models))
    texts: list[DataSpec | CorpusFacts] = [suite.data] if suite.data is not None else list(corpora.values())
    return [ModelEntry(_model_name(model, text), model, text) for text in texts for model in names]


def _model_name(model: str, text: DataSpec | CorpusFacts) -> str:
    label = re.sub(r"[^\w.@+-]", "_", "--".join(Path(model).parts[-2:]))[-80:].lstrip("._-")
    on = text.model_dump_json() if isinstance(text, DataSpec) else str(text.path)
    return f"{label}-{hashlib.sha256(f'{model} {on}'.encode()).hexdigest()[:8]}"


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
        return "-".join(dose.mark for dose in parse_doses(settings.intervene))[:MAX_MARK].rstrip("-.")
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


def _batch_warnings(entries: list[Entry], gpus: int) -> list[str]:
    """Warnings of batches larger than an epoch, of epochs that are a few batches and a bit, and of uneven shares."""
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
        if gpus > 1 and planned.batch % gpus:
            warnings.append(f"{entry.name}: its batch of {planned.batch} cannot be shared by {gpus} GPUs.")
    return warnings if len(warnings) <= 3 else [*warnings[:3], f"{len(warnings) - 3:,} more runs have such batches."]


STEPS = 5
STEP_TOKENS = 4096
"""Most tokens of a timed step: enough to be typical, few enough to be fast."""

MAX_TIMED_FLOPS = 1e11
"""Of a timed step: a few seconds on a laptop."""

CHECKPOINT_SECONDS = 1.5
"""Loading, counting and writing at each measured checkpoint."""


@final
@dataclass(frozen=True)
class Pace:
    """The speed of this machine in training, in floating-point operations per second."""

    flops_per_second: float

    def seconds(self, entry: Entry, options: Options) -> float:
        """About how long it takes to train a run and to measure every checkpoint."""
        checkpoints = len(entry.checkpoints)
        flops = entry.flops + checkpoints * entry.measure_flops(options)
        return flops / self.flops_per_second + checkpoints * CHECKPOINT_SECONDS


def pace(entries: list[Entry], *, device: str = "auto") -> Pace:
    """Time the largest model of a plan that does not take long, or else the smallest."""
    ordered = sorted(entries, key=_timed_flops)
    timed = next((entry for entry in reversed(ordered) if _timed_flops(entry) <= MAX_TIMED_FLOPS), ordered[0])
    return Pace(_timed_flops(timed) / _step_seconds(timed, device))


def _sequences(entry: Entry) -> int:
    return max(1, min(entry.planned.batch, STEP_TOKENS // entry.planned.block))


def _timed_flops(entry: Entry) -> float:
    return entry.step_flops * _sequences(entry) / entry.planned.batch


def _step_seconds(entry: Entry, device: str) -> float:
    """The median time of a plain training step on random tokens, without the first, which warms up."""
    import torch

    from collapselab.models.build import build_model
    from collapselab.models.load import find_device

    vocabulary, block, where = entry.corpus.vocabulary, entry.planned.block, find_device(device)
    model = build_model(model_config(entry.settings, vocabulary=vocabulary, block=block), seed=0)
    torch.nn.Module.to(model, where)
    optimizer = torch.optim.AdamW(model.parameters())
    ids, times = torch.randint(vocabulary, (_sequences(entry), block), device=where), []
    for _ in range(STEPS):
        start = time.perf_counter()
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss.item()  # waits for the device
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])
