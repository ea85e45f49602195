"""What measuring a model would take: memory, operations and time by the cost model, before any weight is loaded.

Sizes come from the configuration; classes from the counts of the corpus, or where there is none yet from the number of
tokens. Times follow from a few products that are timed on this machine, in a second.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import torch

from collapselab.corpus.blocks import Corpus, Split
from collapselab.errors import ConfigError
from collapselab.measurement.cost import Cost, Job, Machine, measuring
from collapselab.measurement.measure import default_tokens, parsed_settings
from collapselab.measurement.model import TOKENS_AT_ONCE, context_of
from collapselab.measurement.model_corpus import LONGEST_BLOCK, Data, Text, opened_texts
from collapselab.models.find import ModelSource, find_models, place_of
from collapselab.models.load import causal_config, find_device, outline
from collapselab.models.sizes import Architecture, architecture_of
from collapselab.records.options import Options

REPEATS, SIDE, COPIED = 3, 512, 1 << 22
"""Products and copies that are timed: how often, their side, their numbers."""
BITS = {"4bit": 4, "8bit": 8}


@final
@dataclass(frozen=True)
class Estimate:
    """What one model takes: its sizes, its cost, and the seconds of each part on this machine."""

    model: str
    architecture: Architecture
    weights: float
    """Bytes of its weights in memory."""
    cost: Cost
    seconds: dict[str, float]

    @property
    def memory(self) -> float:
        """The most bytes at once."""
        return self.weights + max(self.cost.memory.peak - self.cost.memory.model, self.cost.memory.host)


def measure_plan(
    model: str | Path | Sequence[str | Path],
    corpus: str | Path | Corpus | Sequence[str | Path | Corpus] | None = None,
    *,
    data: Text | None = None,
    tokenizer: object = None,
    options: Options | None = None,
    **settings: Any,
) -> list[Estimate]:
    """What `measure` would take with the same arguments, for each model on each corpus; no weight is read.

    >>> from collapselab import measure_plan
    >>> first, last = measure_plan("runs/small", "corpora/stories")
    >>> first.architecture.width, last.memory < 1e9
    (16, True)
    """
    options, running, by_default = parsed_settings(options, settings)
    names = [str(name) for name in ([model] if isinstance(model, str | Path) else model)]
    if by_default:
        options = replace(options, tokens=default_tokens([], running.device))
    texts = opened_texts(corpus, data, options, running, tokenizer=tokenizer)
    device, trust_code = running.device, running.trust_code
    machine = this_machine(find_device(device))
    return [
        estimate(source, text, options, device=device, trust_code=trust_code, machine=machine)
        for text in texts
        for source in find_models(names)
    ]


def estimate(
    source: ModelSource,
    text: Corpus | Data,
    options: Options,
    *,
    device: str = "auto",
    trust_code: bool = False,
    machine: Machine | None = None,
) -> Estimate:
    """The estimate for a model; nothing but its configuration is read."""
    place = place_of(source)
    config = causal_config(source, place, trust_code=trust_code)
    architecture = architecture_of(outline(config, trust_code=trust_code))
    where = find_device(device)
    number_bytes = _number_bytes(options, config, where)
    job = _job(text, options, architecture, context_of(config), where, number_bytes)
    job = replace(job, capped=getattr(config, "final_logit_softcapping", None) is not None)
    cost = measuring(architecture, job)
    bits = BITS.get(options.load_in or "", 8 * number_bytes)
    weights = architecture.matrices * bits / 8 + (architecture.parameters - architecture.matrices) * number_bytes
    return Estimate(source.name, architecture, weights, cost, cost.seconds(machine or this_machine(where)))


def _number_bytes(options: Options, config: object, device: torch.device) -> int:
    dtype = options.torch_dtype
    if dtype is None:  # as `load_model` chooses
        stored = getattr(config, "dtype", None)
        dtype = torch.float32 if device.type == "cpu" or not isinstance(stored, torch.dtype) else stored
    return dtype.itemsize


def _job(
    text: Corpus | Data,
    options: Options,
    architecture: Architecture,
    context: int | None,
    device: torch.device,
    number_bytes: int,
) -> Job:
    if isinstance(text, Corpus):
        block = min(text.block, context or text.block)
        train, validation = (_sampled(split, block, options) for split in (text.train, text.validation))
    else:
        block = text.block or min(LONGEST_BLOCK, context or LONGEST_BLOCK)
        tokens = options.tokens or text.max_tokens
        if tokens is None:
            raise ConfigError("plan: how much text there is is not known before the corpus is built. Say --tokens N.")
        train = validation = (tokens, min(tokens, architecture.vocabulary))
    at_once = TOKENS_AT_ONCE["cuda" if device.type == "cuda" else "cpu"]
    batch = max(1, at_once // block) if options.batch == "auto" else int(options.batch)
    return Job(
        train[0],
        validation[0],
        options,
        block=block,
        batch=batch,
        kept=train[1],
        kept_validation=validation[1],
        number_bytes=number_bytes,
        device="cuda" if device.type == "cuda" else "cpu",
    )


def _sampled(split: Split, block: int, options: Options) -> tuple[int, int]:
    """Tokens of the sample of a split, and the classes to be expected in it: each with the chance of its count."""
    samples = split.samples(length=block)
    tokens = round(float(samples.mean()) * options.blocks_for(float(samples.mean()), len(split)))
    counts = split.counts.double()
    share = min(1.0, tokens / max(float(counts.sum()), 1.0))
    seen = counts >= options.min_count if share == 1 else 1 - (1 - share) ** counts
    return tokens, int(seen.double().sum().round())


def this_machine(device: torch.device) -> Machine:
    """Operations and bytes a second, from products and a copy that are timed now."""
    single = torch.randn(SIDE, SIDE, device=device)
    source, target = (torch.zeros(COPIED, device=device) for _ in range(2))
    products = 2 * SIDE**3
    f32 = products / _seconds(lambda: single @ single, device)
    if device.type == "mps":  # has no float64: the host does that
        device, single = torch.device("cpu"), single.cpu()
    double = single.double()
    f64 = products / _seconds(lambda: double @ double, device)
    moved = 2 * 4 * COPIED / _seconds(lambda: target.copy_(source), target.device)
    return Machine(f32, f32, f64, moved, float("inf"), f32, f64)


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    """The shortest of a few times, after one that warms up."""
    times = []
    for _ in range(REPEATS + 1):
        start = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - start)
    return max(min(times[1:]), 1e-9)
