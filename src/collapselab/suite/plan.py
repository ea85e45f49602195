"""The plan of a suite before anything is trained: its corpora, every run with its name, size and cost, and its power.

The name of a run's folder follows from its settings and its corpus alone, so the same run has the same name in every
recipe. The last 8 digits are its identity; the words before them are for people.

`pace` predicts how long the runs take on this machine, from timing a few steps of one of the models.

`comparison` says how many pairs an effect needs. A pair is a run of an arm and the run of its control with the same
seed. With n pairs whose differences have standard deviation σ and are found to have s, √n d̄/s has a noncentral t
distribution with n - 1 degrees of freedom.
"""

import hashlib
import itertools
import json
import math
import re
import statistics
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from collapselab.errors import ConfigError, CorpusError, ModelError
from collapselab.records.corpus import read_corpus_record
from collapselab.records.options import Options
from collapselab.records.run import identity
from collapselab.suite.recipe import THE_CORPUS, Suite
from collapselab.suite.sections import ADDED_FIELDS, CorpusSpec, listed
from collapselab.training.interventions import parse_doses, sham_notes
from collapselab.training.settings import Plan, Settings, model_config, paper_batch, plan, resolved

if TYPE_CHECKING:
    import numpy as np

    from collapselab.corpus.sources import Source
    from collapselab.models.families import Architecture

NAME_MARKS = {
    "head_size": "h", "tied": "untied", "head": "", "dropout": "do", "context": "c", "batch": "b", "batch_tokens": "bt",
    "optimizer": "", "coupling": "r", "lr": "lr", "schedule": "", "warmup": "w", "weight_decay": "wd", "clip": "clip",
    "label_smoothing": "ls", "precision": "", "intervene": "", "seed": "s", "data_seed": "ds",
}  # fmt: skip
"""What is written before a setting's value in the name of a run, where it is not the default."""

SHAPE = ("family", "width", "depth", "head_size", "tied", "dropout", "context", "lr")
NO_SHAPE = {name: field.default for name, field in Settings.model_fields.items() if name not in SHAPE} | {"lr": 1.0}
"""Settings that do not decide the size of a model, at their defaults."""

MAX_MARK = 100
"""Characters of a name that interventions take; file systems allow 255 in all, and the identity tells runs apart."""

GUESS_DOCUMENTS = 200
"""Documents that are read to estimate the size of a corpus."""


class CorpusFacts(NamedTuple):
    """What planning needs to know of a corpus. Without a `hash` it is not built yet, and its size is an estimate."""

    name: str
    path: Path
    hash: str | None
    block: int
    blocks: int
    validation_blocks: int
    vocabulary: int
    samples: int | None = None
    """Positions of the training split that have a label; None where all but the last of a block have."""
    validation_samples: int | None = None

    @property
    def key(self) -> str:
        """The corpus in a run's identity: its hash, or its path until it is built."""
        return self.hash or f"not built: {self.path}"


def corpus_facts(suite: Suite, folder: Path) -> dict[str, CorpusFacts]:
    """Return what is known of the suite's corpora, without building any."""
    return {name: _facts(name, spec, corpus_path(name, spec, folder)) for name, spec in suite.corpora.items()}


def build_corpora(suite: Suite, folder: Path) -> dict[str, CorpusFacts]:
    """Build the corpora that do not exist yet; one that is given as a folder must exist."""
    from collapselab.corpus.blocks import Corpus
    from collapselab.corpus.build import build_corpus

    for name, spec in suite.corpora.items():
        path = corpus_path(name, spec, folder)
        if spec.folder is None and not (path / "corpus.json").exists():
            build_corpus(_source(spec), path, spec.recipe)
        Corpus(path)  # whole and undamaged, before anything is trained on it
    return corpus_facts(suite, folder)


def corpus_path(name: str, spec: CorpusSpec, folder: Path) -> Path:
    """The folder of a corpus: the one in the recipe, or one inside the suite's, named by what it is built from."""
    if spec.folder is not None:
        return Path(spec.folder)
    later = {name for name in ADDED_FIELDS if getattr(spec, name) == CorpusSpec.model_fields[name].default}
    text = json.dumps(spec.model_dump(exclude={"blocks"} | later), sort_keys=True)
    label = re.split(r"[^\w-]", Path(spec.sources[0]).name)[0] if name == THE_CORPUS else name
    return folder / "corpora" / f"{label}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _facts(name: str, spec: CorpusSpec, path: Path) -> CorpusFacts:
    if spec.folder is None and not (path / "corpus.json").exists():
        return _estimated(name, spec, path)
    record = read_corpus_record(path)
    blocks = (record.splits.train.blocks, record.splits.validation.blocks)
    samples = (record.samples("train"), record.samples("validation"))
    return CorpusFacts(name, path, record.hash, record.block, *blocks, record.vocabulary, *samples)


def _estimated(name: str, spec: CorpusSpec, path: Path) -> CorpusFacts:
    """What to expect of a corpus that is not built: from its recipe's `blocks`, or from the beginning of its text."""
    from collapselab.corpus.tokenizer import CHARACTERS, WORDS, bpe_size, load_tokenizer

    recipe, kind, vocabulary = spec.recipe, spec.recipe.tokenizer.partition(":")[0], 50257
    if kind == "bpe":
        vocabulary = bpe_size(recipe.tokenizer)
    elif Path(recipe.tokenizer).exists():
        vocabulary = len(load_tokenizer(recipe.tokenizer))
    if spec.blocks is not None:
        return CorpusFacts(name, path, None, recipe.block, spec.blocks, max(1, spec.blocks // 100), vocabulary)
    source = _source(spec)
    first = list(itertools.islice(source.train.open(), GUESS_DOCUMENTS))
    if source.train.total is None or not first:
        raise CorpusError(
            f"{', '.join(spec.sources)}: its size is not known before it is read. To plan before that, write about "
            "how many blocks it makes: `blocks: 10000` in the recipe's corpus."
        )
    characters, units = sum(map(len, first)), sum(map(source.train.size, first))
    per_token = min(4.2, 1.3 + 0.72 * (math.log2(max(vocabulary, 300)) - 8))  # characters, as seen on storyworld
    if kind == CHARACTERS:
        per_token, vocabulary = 1.0, len(set().union(*first)) + 2  # the end of text and the unknown one
    elif kind == WORDS:
        per_token, vocabulary = characters / units, len(source.words or ()) + 1
    tokens, share = source.train.total * characters / units / per_token, spec.validation_share
    parts = (tokens * (1 - share), tokens * share)
    if source.validation is not None:
        parts = (tokens, (source.validation.total or 0) / source.train.total * tokens)
    per_block = max(1.0, characters / len(first) / per_token) if recipe.packing == "document" else recipe.block
    blocks, held_out = (max(1, round(part / per_block)) for part in parts)
    return CorpusFacts(name, path, None, recipe.block, blocks, held_out, vocabulary)


def _source(spec: CorpusSpec) -> "Source":
    from collapselab.corpus.sources import Reading, open_source

    reading = Reading(spec.text_column, spec.separator)
    validation = listed(spec.validation) or None
    return open_source(spec.sources, validation=validation, reading=reading, validation_share=spec.validation_share)


@dataclass(frozen=True)
class Entry:
    """One run of a suite."""

    name: str
    settings: Settings
    corpus: CorpusFacts
    planned: Plan

    @cached_property
    def architecture(self) -> "Architecture":
        shape = self.settings.model_copy(update=NO_SHAPE)  # runs that differ in other settings share it
        return _architecture(shape, self.corpus.vocabulary, self.corpus.block)

    @property
    def parameters(self) -> int:
        return self.architecture.parameters

    @property
    def checkpoints(self) -> list[str]:
        return list(self.planned.checkpoints.values())

    @property
    def flops(self) -> float:
        """Of the training, padding among it."""
        return self.planned.steps * self.step_flops(self.planned.batch)

    def step_flops(self, sequences: int) -> float:
        block = self.planned.block
        return self.architecture.training_flops(sequences * (block - 1), block)

    def measure_flops(self, options: Options) -> float:
        """Of the forward passes of measuring one checkpoint, on all positions: the model runs on padding too."""
        corpus, block = self.corpus, self.planned.block
        splits = ((corpus.samples, corpus.blocks), (corpus.validation_samples, corpus.validation_blocks))
        blocks = sum(
            options.blocks_for(block - 1 if known is None else known / count, count) for known, count in splits
        )
        return blocks * (block - 1) * self.architecture.forward_flops(block, output_layer=True)

    def seconds(self, pace: float, options: Options) -> float:
        """About how long it takes to train and to measure every checkpoint, with `pace` operations per second."""
        return self.flops / pace + len(self.checkpoints) * (self.measure_flops(options) / pace + CHECKPOINT_SECONDS)

    @property
    def disk(self) -> int:
        """Bytes when the run is finished: weights and class moments of every checkpoint."""
        width = self.settings.width
        moments = self.corpus.vocabulary * (8 * width + 24) + 8 * width * (width + 2)
        return len(self.checkpoints) * (4 * self.parameters + moments)


@dataclass(frozen=True)
class SuitePlan:
    """All runs of a suite, each once, with warnings to read before they start."""

    entries: list[Entry]
    warnings: list[str] = field(default_factory=list)
    impossible: list[str] = field(default_factory=list)
    """Runs that cannot be made, with the reason."""
    compared: "PlannedComparison | None" = None
    """The pairs that its arms make; None where it has none."""


def plan_suite(suite: Suite, corpora: dict[str, CorpusFacts], *, check: bool = True) -> SuitePlan:
    """Name and plan every run.

    `check` also makes sure that each model can be built, which imports torch, and adds warnings and what arms can show.
    """
    from collapselab.training.heads import check_head

    entries: dict[str, Entry] = {}
    repeated, impossible = [], []
    for number, (settings, name) in enumerate(suite.runs):
        corpus = corpora[name]
        try:
            planned = plan(settings, blocks=corpus.blocks, block=corpus.block, samples=corpus.samples)
            entry = Entry(run_name(settings, corpus.key), settings, corpus, planned)
            if check:
                check_head(settings, vocabulary=entry.architecture.vocabulary)
        except (ConfigError, ModelError) as error:
            impossible.append(f"run {number + 1} ({described(settings)}): {error}")
            continue
        if entry.name in entries:
            repeated.append(f"{number + 1} ({described(settings)})")
        entries.setdefault(entry.name, entry)
    if not check:
        return SuitePlan([*entries.values()], impossible=impossible)
    compared = comparison(suite)
    shams = sorted({note for entry in entries.values() for note in sham_notes(entry.settings.intervene)})
    warnings = [*comparison_warnings(suite, compared), *shams]
    if repeated:
        warnings.insert(
            0, f"{len(repeated):,} runs are the same as others and done once, the first: run {repeated[0]}."
        )
    return SuitePlan([*entries.values()], warnings, impossible, compared)


def run_name(settings: Settings, corpus_key: str) -> str:
    """The name of the run's folder, as 02x0128-e3-lr0.002-s1-5f0c1d2e."""
    values = resolved(settings)
    family = "" if settings.family == "gpt-neo" else f"{Path(settings.family).stem}-"
    length = f"n{settings.steps}" if settings.steps else f"e{settings.epochs or 1:g}"
    parts = [f"{family}{settings.depth:02}x{settings.width:04}", length]
    for name, mark in NAME_MARKS.items():
        value = values.get(name, _usual(name, settings))
        if value == _usual(name, settings):
            continue
        if name == "intervene":
            mark = "-".join(dose.mark for dose in parse_doses(settings.intervene))[:MAX_MARK].rstrip("-.")
        elif name != "tied":
            mark += f"{value:g}" if isinstance(value, float) else str(value)
        parts.append(mark)
    return "-".join([*parts, identity(values, corpus_key)])


def described(settings: Settings) -> str:
    """The settings that someone chose."""
    values = settings.model_dump() | {"intervene": " ".join(settings.intervene)}
    chosen = ((name, value) for name, value in values.items() if name in settings.model_fields_set)
    return ", ".join(f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}" for name, value in chosen)


def _usual(name: str, settings: Settings) -> object:
    if name == "batch":
        return None if settings.batch_tokens else paper_batch(settings.width, settings.depth)
    return settings.seed if name == "data_seed" else Settings.model_fields[name].default


@cache
def _architecture(shape: Settings, vocabulary: int, block: int) -> "Architecture":
    from collapselab.models.build import architecture

    return architecture(model_config(shape, vocabulary=vocabulary, block=block))


STEPS = 5
STEP_TOKENS = 4096
"""Most tokens of a timed step: enough to be typical, few enough to be fast."""

MAX_TIMED_FLOPS = 1e11
"""Of a timed step: a few seconds on a laptop."""

CHECKPOINT_SECONDS = 1.5
"""Loading, counting and writing at each measured checkpoint."""


def pace(entries: list[Entry], *, device: str = "auto") -> float:
    """Operations per second in training here: the median of a few plain steps on random tokens.

    They are those of the largest model that does not take long, or else of the smallest.
    """
    import torch

    from collapselab.models.build import build_model
    from collapselab.models.load import find_device

    def sequences(entry: Entry) -> int:
        return max(1, min(entry.planned.batch, STEP_TOKENS // entry.planned.block))

    by_flops = {entry.step_flops(sequences(entry)): entry for entry in entries}
    flops = max((flops for flops in by_flops if flops <= MAX_TIMED_FLOPS), default=min(by_flops))
    entry = by_flops[flops]
    vocabulary, block, where = entry.corpus.vocabulary, entry.planned.block, find_device(device)
    model = build_model(model_config(entry.settings, vocabulary=vocabulary, block=block), seed=0)
    torch.nn.Module.to(model, where)
    optimizer = torch.optim.AdamW(model.parameters())
    ids, times = torch.randint(vocabulary, (sequences(entry), block), device=where), []
    for _ in range(STEPS):
        start = time.perf_counter()
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss.item()  # waits for the device
        times.append(time.perf_counter() - start)
    return flops / statistics.median(times[1:])  # the first step warms up


POWER = 0.8
EFFECTS = (0.5, 0.75, 1.0, 1.5, 2.0, 3.0)
"""Sizes of effects that a plan shows: mean difference over standard deviation of the differences."""

SEEDS = {"seed": 0, "data_seed": None}
MAX_PAIRS = 10_000
ALPHA = 0.05


@dataclass(frozen=True)
class Planned:
    """What one size of effect needs, and the power that a suite's pairs have for it."""

    effect: float
    """d/s; for equivalence, the margin over s."""
    pairs_at_5_percent: int
    pairs_for_equivalence: int
    power: float | None
    """Of the suite's pairs at 0.05; None where there are fewer than two."""
    power_of_equivalence: float | None


@dataclass(frozen=True)
class PlannedComparison:
    """The pairs of a suite of arms, and what they can show."""

    arms: list[str]
    control: str | None
    """None where no arm is the control."""
    pairs: int
    """Seeds of each arm; of the fewest where cells differ."""
    cells: int
    """Combinations of settings other than arm and seed, each compared by itself."""
    properties: int
    """Primary metrics, over which p values are adjusted."""
    smallest_p: float
    fewest_pairs: int
    """Those whose smallest p is significant as the first of these properties in Holm's adjustment."""
    power: list[Planned]


def comparison(suite: Suite) -> PlannedComparison | None:
    """Return what the arms of a suite can show; None where it has none."""
    if not suite.arms or suite.primary is None:
        return None
    runs = suite.runs[:: len(suite.arms)]  # those of the first arm: the others have the same seeds
    seeds = Counter((corpus, settings.model_copy(update=SEEDS)) for settings, corpus in set(runs))
    pairs, properties = min(seeds.values()), len(suite.primary.metrics)
    return PlannedComparison(
        [arm.name for arm in suite.arms],
        next((arm.name for arm in suite.arms if arm.is_control), None),
        pairs,
        len(seeds),
        properties,
        smallest_p(pairs),
        fewest_pairs(properties),
        planned_power(pairs),
    )


def comparison_warnings(suite: Suite, compared: PlannedComparison | None) -> list[str]:
    """Return what to know of the arms before they are trained."""
    if compared is None or suite.primary is None:
        return []
    warnings = []
    if compared.control is None:
        warnings.append("no arm is the control: effects are differences from `none`. Add it to arms.")
    if compared.pairs < 2:
        warnings.append("each arm has one seed: differences of one pair have no spread. Add seeds to the grid.")
    if suite.primary.seeds not in (None, compared.pairs):
        warnings.append(f"primary says {suite.primary.seeds} seeds, but each arm has {compared.pairs}.")
    return warnings


def planned_power(pairs: int) -> list[Planned]:
    """Return what a suite of this number of pairs can show, for each size of effect."""
    return [
        Planned(
            effect,
            pairs_needed(paired_power, effect),
            pairs_needed(equivalence_power, effect),
            paired_power(pairs, effect) if pairs > 1 else None,
            equivalence_power(pairs, effect) if pairs > 1 else None,
        )
        for effect in EFFECTS
    ]


def pairs_needed(power: Callable[[int, float], float], effect: float) -> int:
    """The fewest pairs with a power of 0.8 or more; it grows with their number."""
    return 2 + bisect_left(range(2, MAX_PAIRS), POWER, key=lambda pairs: power(pairs, effect))


def paired_power(pairs: int, effect: float) -> float:
    """The probability that a paired t test in both directions finds a difference of `effect` standard deviations.

        P = E[Φ(√n effect - t u) + Φ(-√n effect - t u)],    u = s/σ

    It is the noncentral t distribution, whose implementation in scipy gives nan where the centre is large.
    """
    from scipy.stats import norm, t

    limit, centre = t.ppf(1 - ALPHA / 2, pairs - 1), math.sqrt(pairs) * effect
    return _expected(lambda u: norm.cdf(centre - limit * u) + norm.cdf(-centre - limit * u), pairs - 1)


def equivalence_power(pairs: int, margin: float) -> float:
    """The probability that two one-sided tests find no difference as large as `margin`, where there is none at all.

        P = E[max(0, 2Φ(√n margin - t u) - 1)],    since both reject where |d̄| < margin - t s/√n

    Schuirmann (1987), doi:10.1007/BF01068419.
    """
    from scipy.stats import norm, t

    limit, centre = t.ppf(1 - ALPHA, pairs - 1), math.sqrt(pairs) * margin
    return _expected(lambda u: (2 * norm.cdf(centre - limit * u) - 1).clip(min=0), pairs - 1)


def _expected(function: "Callable[[np.ndarray], np.ndarray]", freedom: int) -> float:
    """The mean of a function of u = s/σ, the root of χ² over its degrees of freedom: over 10,000 equal shares of u."""
    import numpy as np
    from scipy.stats import chi

    shares = (np.arange(10_000) + 0.5) / 10_000
    return float(function(chi.ppf(shares, freedom) / math.sqrt(freedom)).mean())


def smallest_p(pairs: int) -> float:
    """The smallest p of a test that flips the signs of all differences: 2 of the 2ⁿ choices are as extreme."""
    return min(1.0, 2.0 ** (1 - pairs))


def fewest_pairs(properties: int) -> int:
    """The fewest pairs whose smallest p survives Holm's adjustment over this number of properties."""
    return math.ceil(1 + math.log2(properties / ALPHA))
