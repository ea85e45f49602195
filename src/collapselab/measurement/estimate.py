"""What a measurement takes: memory within about 30 %, operations, and a rough time; and whether it fits.

Memory is the sum of what the collectors of a pass say (`Collector.bytes`), of the weights and of one batch. Operations
are those of the matrix products; times follow from products that are timed on this machine, in a second.
"""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import torch

from collapselab.corpus.blocks import Corpus
from collapselab.corpus.blocks import Split as CorpusSplit
from collapselab.errors import ConfigError
from collapselab.measurement.collector import Sizes
from collapselab.measurement.collectors import COLLECTORS
from collapselab.measurement.model import TOKENS_AT_ONCE, context_of
from collapselab.measurement.model_corpus import LONGEST_BLOCK, Data, Text, opened_texts
from collapselab.measurement.plan import SPLITS, MeasurePlan, default_tokens, parsed_settings
from collapselab.measurement.sample import HALVES
from collapselab.models.find import ModelSource, find_models, place_of
from collapselab.models.load import causal_config, find_device, outline
from collapselab.models.sizes import Architecture, architecture_of
from collapselab.records.options import Options

OVERHEAD_BYTES = 36 << 20
"""Threads, libraries loaded on the way, and what the allocator keeps."""
PAIR_OPERATIONS, FOLD_OPERATIONS = 450, 600
"""Work beside the products, as operations that take as long: for a pair of classes; for a number that is added to a
table of class moments. Measured on a CPU."""
SIDE, REPEATS = 512, 3
"""Products that are timed: their side, how often."""
BITS = {"4bit": 4, "8bit": 8}
MEMINFO = Path("/proc/meminfo")
CGROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory.stat"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        "/sys/fs/cgroup/memory/memory.stat",
    ),
)
"""Files with what a container may use, uses, and could give back; for both versions of control groups."""


def memory(architecture: Architecture, sizes: Sizes) -> float:
    """Peak bytes of a process beside the weights: a batch, and the collectors of the larger of both passes."""
    batch = sizes.batch * sizes.block * (4 * architecture.width + 3 * architecture.feed_forward) * sizes.number_bytes
    passes = (
        sum(kind.bytes(sizes, split) for kind in COLLECTORS if kind.wanted(sizes.options, split)) for split in SPLITS
    )
    return batch + max(passes) + OVERHEAD_BYTES


def operations(architecture: Architecture, sizes: Sizes) -> dict[str, float]:
    """Floating-point operations of all processes, by what they are for."""
    options, width = sizes.options, sizes.width
    tables = sizes.layers * sizes.labellings
    train, validation = (sizes.tokens[split] for split in SPLITS)
    scored = validation + (train if options.train_loss else 0)
    kept, kept_validation = (sizes.classes[split] for split in SPLITS)
    ranges = 2 if options.bins else 1  # at most once more: pairs within a bin
    pairs = (2 * width + PAIR_OPERATIONS) * (ranges * kept**2 + kept_validation**2) / 2
    squares = 2 * (train + validation) * width**2 * sizes.layers
    return {
        "forward": (train + validation) * architecture.forward_flops(sizes.block),
        "collecting": squares + FOLD_OPERATIONS * (train + validation) * width * tables,
        "decisions": 2 * width * (scored * sizes.vocabulary + validation * tables * kept),
        "catalogue": pairs * (tables + 1),
        "resampling": pairs * sizes.layers * (options.bootstrap + 2 * HALVES) if options.bootstrap else 0,
    }


@final
@dataclass(frozen=True)
class Estimate:
    """What one model takes: its sizes, memory, operations and seconds on this machine."""

    model: str
    architecture: Architecture
    sizes: Sizes
    weights: float
    """Bytes of its weights in memory."""
    memory: float
    """The most bytes at once, weights included."""
    operations: dict[str, float]
    seconds: dict[str, float]
    """By part, as `operations`."""


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
    rate = products_per_second(find_device(device))
    return [
        estimate(source, text, options, device=device, trust_code=trust_code, rate=rate)
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
    rate: float = 1e11,
) -> Estimate:
    """The estimate for a model; nothing but its configuration is read. `rate`: operations of products a second."""
    config, where = causal_config(source, place_of(source), trust_code=trust_code), find_device(device)
    architecture = architecture_of(outline(config, trust_code=trust_code))
    dtype = options.torch_dtype
    if dtype is None:  # as `load_model` chooses
        stored = getattr(config, "dtype", None)
        dtype = torch.float32 if where.type == "cpu" or not isinstance(stored, torch.dtype) else stored
    sizes = _sizes(text, options, architecture, context_of(config), where.type, dtype.itemsize)
    bits = BITS.get(options.load_in or "", 8 * dtype.itemsize)
    weights = architecture.matrices * bits / 8 + (architecture.parameters - architecture.matrices) * dtype.itemsize
    counted = operations(architecture, sizes)
    seconds = {part: count / rate for part, count in counted.items()}
    return Estimate(source.name, architecture, sizes, weights, weights + memory(architecture, sizes), counted, seconds)


def sizes_of(
    architecture: Architecture,
    options: Options,
    tokens: tuple[float, float],
    classes: tuple[int, int] | None = None,
    *,
    block: int = 2048,
    batch: int = 4,
    processes: int = 1,
    number_bytes: int = 2,
) -> Sizes:
    """Sizes of a measurement of this many tokens of both splits; with all classes, if these are not known."""
    return Sizes(
        options,
        architecture.width,
        architecture.depth + 1 if options.layers == "all" else 1,
        architecture.vocabulary,
        dict(zip(SPLITS, classes or (architecture.vocabulary, architecture.vocabulary), strict=True)),
        dict(zip(SPLITS, map(int, tokens), strict=True)),
        block,
        batch,
        processes,
        number_bytes,
    )


def products_per_second(device: torch.device) -> float:
    """Operations a second of float32 products, timed now; the best of a few."""
    matrix, seconds = torch.randn(SIDE, SIDE, device=device), []
    for _ in range(REPEATS + 1):
        start = time.perf_counter()
        float((matrix @ matrix)[0, 0])  # waits for the device
        seconds.append(time.perf_counter() - start)
    return 2 * SIDE**3 / max(min(seconds), 1e-9)


def check_memory(plan: MeasurePlan) -> None:
    """ConfigError if the measurement needs more memory than is free, with what takes it and what to change."""
    model = plan.model
    try:
        architecture = architecture_of(model.model)
    except (AttributeError, TypeError):  # not built like the models of the library
        return
    train, validation = (plan.splits[split] for split in SPLITS)
    sizes = replace(
        sizes_of(
            architecture,
            plan.options,
            (train.samples.last.tokens, validation.samples.last.tokens),
            (train.numbers.classes, validation.numbers.classes),
            block=train.samples.last.length,
            batch=plan.batch,
            processes=plan.processes.world,
            number_bytes=model.head.weight.element_size(),
        ),
        cells=tuple(some.rows for some in plan.contexts.values()),
    )
    needed = memory(architecture, sizes)
    if model.device.type == "cuda":
        free: int | None = free_device_bytes(model.device)
    else:
        needed *= int(os.environ.get("LOCAL_WORLD_SIZE", plan.processes.world))  # processes of this machine
        free = free_host_bytes()
    if free is not None and needed > free:
        raise ConfigError(_refusal(model.name, architecture, sizes, needed, free))


def free_host_bytes() -> int | None:
    """Memory that the system can still give to this process, None where that is not known."""
    limits = [_available(), *(_left_in_cgroup(*map(Path, files)) for files in CGROUPS)]
    return min((free for free in limits if free is not None), default=None)


def free_device_bytes(device: torch.device) -> int:
    """Memory of a CUDA device that is free, or that this process has taken and does not use."""
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(torch.cuda.mem_get_info(device)[0]) + unused


def _sizes(
    text: Corpus | Data,
    options: Options,
    architecture: Architecture,
    context: int | None,
    device: str,
    number_bytes: int,
) -> Sizes:
    if isinstance(text, Corpus):
        block = min(text.block, context or text.block)
        train, validation = (_sampled(split, block, options) for split in (text.train, text.validation))
    else:
        block = text.block or min(LONGEST_BLOCK, context or LONGEST_BLOCK)
        tokens = options.tokens or text.max_tokens
        if tokens is None:
            raise ConfigError("plan: how much text there is is not known before the corpus is built. Say --tokens N.")
        train = validation = (tokens, min(tokens, architecture.vocabulary))
    at_once = TOKENS_AT_ONCE.get(device, TOKENS_AT_ONCE["cpu"])
    batch = max(1, at_once // block) if options.batch == "auto" else int(options.batch)
    tokens_of, classes = zip(train, validation, strict=True)
    return sizes_of(architecture, options, tokens_of, classes, block=block, batch=batch, number_bytes=number_bytes)


def _sampled(split: CorpusSplit, block: int, options: Options) -> tuple[int, int]:
    """Tokens of the sample of a split, and the classes to be expected in it: each with the chance of its count."""
    samples = split.samples(length=block)
    tokens = round(float(samples.mean()) * options.blocks_for(float(samples.mean()), len(split)))
    counts = split.counts.double()
    share = min(1.0, tokens / max(float(counts.sum()), 1.0))
    seen = counts >= options.min_count if share == 1 else 1 - (1 - share) ** counts
    return tokens, int(seen.double().sum().round())


def _refusal(name: str, architecture: Architecture, sizes: Sizes, needed: float, free: float) -> str:
    """What is missing, what takes it, and what each change would leave."""
    options = sizes.options
    fewer = {
        "--layers last": (options.layers == "all", replace(sizes, layers=1, options=replace(options, layers="last"))),
        "--no-null": (options.null, replace(sizes, options=replace(options, null=False))),
        "no --bootstrap": (options.bootstrap > 0, replace(sizes, options=replace(options, bootstrap=0))),
    }
    changes = [f"{words} ({_gb(memory(architecture, less))})" for words, (helps, less) in fewer.items() if helps]
    changes += ["--tokens N for fewer tokens, which have fewer classes", "--min-count N"]
    if sizes.cells:
        changes.append("fewer --contexts or a larger --min-uses")
    if sizes.shards == 1:
        changes.append("--shard-classes with torchrun on several machines")
    layers = "all layers" if options.layers == "all" else "the last layer"
    null = ", each twice for the null" if options.null else ""
    cells = f", and {sum(sizes.cells):,} cells of contexts" if sizes.cells else ""
    return (
        f"{name}: needs about {_gb(needed)} of memory beside the model, but {_gb(free)} are free. Most of it is tables "
        f"of {sizes.classes['train']:,} classes at {layers}{null}{cells}. Change one of these: {', '.join(changes)}. "
        "Or measure anyway with --force."
    )


def _available() -> int | None:
    try:
        lines = MEMINFO.read_text().splitlines()
    except OSError:
        return None
    fields = [line.split() for line in lines if line.startswith("MemAvailable:")]
    return int(fields[0][1]) * 1024 if fields else None


def _left_in_cgroup(limit: Path, usage: Path, stat: Path) -> int | None:
    """What a container's limit leaves; pages of files that it could drop count as free."""
    try:
        bound, used, lines = limit.read_text().strip(), int(usage.read_text()), stat.read_text().splitlines()
    except (OSError, ValueError):
        return None
    if not bound.isdigit():  # "max": no limit
        return None
    droppable = [int(line.split()[1]) for line in lines if line.startswith(("inactive_file ", "total_inactive_file "))]
    return max(0, int(bound) - used + max(droppable, default=0))


def _gb(size: float) -> str:
    return f"{size / 1e9:,.1f} GB" if size >= 1e9 else f"{size / 1e6:,.1f} MB"
