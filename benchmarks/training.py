"""Whole optimiser steps of GPT-Neo 2 × 128: ours, the plain Trainer with the library's model and loss, the limit.

The limit is the step's matrix products alone, forward and backward: nothing that trains this model can be faster.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from operator import truediv
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PrinterCallback, Trainer, TrainerCallback, TrainingArguments

from benchmarks.timing import Line, at_least, at_most, in_two_processes, peak_bytes, shown
from collapselab.corpus.blocks import Split
from collapselab.models.build import build_config, build_model
from collapselab.models.scores import LogitSpace, split_scores
from collapselab.models.taps import output_layer
from collapselab.training.settings import Plan, Settings
from collapselab.training.trainer import LanguageTrainer, training_arguments

WIDTH, DEPTH, BLOCK, BATCH, BLOCKS = 128, 2, 512, 8, 64
BARS = {50257: (2.5, 6.0, 1.5), 4096: (1.5, None, None)}
"""Vocabulary → how many times as fast, in how many times less memory as the plain Trainer, and × its products."""


@dataclass(frozen=True)
class Shape:
    """What decides the time of a step."""

    width: int
    depth: int
    vocabulary: int
    block: int
    batch: int
    head_size: int | None = None

    @property
    def config(self) -> Any:
        return build_config(
            "gpt-neo",
            width=self.width,
            depth=self.depth,
            vocabulary=self.vocabulary,
            positions=self.block,
            head_size=self.head_size,
        )

    @property
    def heads(self) -> int:
        return int(self.config.num_heads)


def training(quick: bool) -> list[Line]:
    """Both vocabularies, or the small one where it should be quick; memory where the bar asks for it."""
    some = {4096: BARS[4096]} if quick else BARS
    return [line for vocabulary, bars in some.items() for line in _lines(vocabulary, *bars, quick=quick)]


def memory_in_process(name: str, vocabulary: int) -> dict[str, float]:
    """The peak of a process that trains for three steps, over what it held before it made the model."""
    torch.mm(torch.ones(64, 64), torch.ones(64, 64))
    before = peak_bytes()
    STEPS[name](vocabulary, 3)
    return {"bytes": peak_bytes() - before}


def _lines(vocabulary: int, speed: float, memory: float | None, products: float | None, *, quick: bool) -> list[Line]:
    seconds: dict[str, list[float]] = {name: [] for name in STEPS}
    products_beside: dict[str, list[float]] = {name: [] for name in STEPS}
    for _ in range(1 if quick else 2):
        for name, run in STEPS.items():
            bare = _Products(vocabulary)
            seconds[name] += run(vocabulary, 3 if quick else 4, bare)[1:]  # the first step warms up
            products_beside[name] += bare.seconds[1:]
    # Each step over the products right after it: in a slow spell both are slow, whoever's turn it is.
    ratios = {name: statistics.median(map(truediv, seconds[name], products_beside[name])) for name in STEPS}
    ours, plain = (shown(statistics.median(seconds[name])) for name in ("ours", "plain"))
    times = {
        "ours": ours,
        "baseline": plain,
        "limit": shown(statistics.median(products_beside["ours"] + products_beside["plain"])),
    }
    name = f"training step, {vocabulary:,} tokens"
    lines = [
        at_least(f"{name}: × the plain Trainer", ratios["plain"] / ratios["ours"], speed, **times),
        Line(f"{name}: × its matrix products", ratios["ours"], "×", "–", None, **times)
        if products is None
        else at_most(f"{name}: × its matrix products", ratios["ours"], products, **times),
    ]
    return lines if memory is None else [*lines, _memory(name, vocabulary, memory)]


def _memory(name: str, vocabulary: int, bar: float) -> Line:
    found = in_two_processes("benchmarks.training", "memory_in_process", [(one, vocabulary) for one in STEPS])
    ours, plain = (figures["bytes"] for figures in found)
    sizes = {"ours": f"{ours / 1e6:,.0f} MB", "baseline": f"{plain / 1e6:,.0f} MB"}
    return at_least(f"{name}: × less memory", plain / ours, bar, **sizes)


class _Clock(TrainerCallback):
    """Seconds from the end of one step to the end of the next, without those of what is run between them."""

    def __init__(self, clock: Callable[[], float], between: Callable[[], object]) -> None:
        self.clock, self.between = clock, between
        self.seconds: list[float] = []
        self.last = 0.0

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self.last = self.clock()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.seconds.append(self.clock() - self.last)
        self.between()
        self.last = self.clock()


class _Steps(TrainerCallback):
    """Tells the objective where steps begin and end, as a run's checkpointing does."""

    def __init__(self, trainer: LanguageTrainer) -> None:
        self.trainer = trainer

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.trainer.step_objective.begin_step(state.global_step)

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        self.trainer.step_objective.end_step()


def _ours(vocabulary: int, steps: int, between: Callable[[], object] = lambda: None) -> list[float]:
    return step_seconds(Shape(WIDTH, DEPTH, vocabulary, BLOCK, BATCH), steps, between=between)


def step_seconds(
    shape: Shape,
    steps: int,
    *,
    natural: bool = False,
    clock: Callable[[], float] = time.perf_counter,
    between: Callable[[], object] = lambda: None,
    **more: Any,
) -> list[float]:
    """Seconds of each step of our trainer on random tokens; `more` are further settings.

    Tokens are uniform, or where `natural` as frequent as in a text: the n-th with a chance of 1/n. `between` is run
    after every step.
    """
    settings = Settings(
        width=shape.width, depth=shape.depth, head_size=shape.head_size, batch=shape.batch, steps=steps, **more
    )
    plan = Plan(shape.block, BLOCKS, shape.batch, steps, 0, {})
    model = build_model(shape.config, seed=0)
    with tempfile.TemporaryDirectory() as folder:
        split = _split(Path(folder) / "train.bin", shape, natural=natural)
        device = torch.device("cpu")
        args = training_arguments(settings, plan, folder=folder, device=device, bf16=False, parts=1)
        trainer = LanguageTrainer(model, split, settings, plan, args)
        trainer.add_callback(_Steps(trainer))
        return _timed(trainer, clock, between)


def evaluation_seconds(shape: Shape, times: int) -> list[float]:
    """Seconds, on this process's clock, in which the loss of the 64 blocks of a split is evaluated."""
    model, seconds = build_model(shape.config, seed=0), []
    with tempfile.TemporaryDirectory() as folder:
        split = _split(Path(folder) / "train.bin", shape)
        for _ in range(times):
            start = time.process_time()
            split_scores(model, split, head=output_layer(model), device=torch.device("cpu"))
            seconds.append(time.process_time() - start)
    return seconds


def _split(path: Path, shape: Shape, *, natural: bool = False) -> Split:
    ids = _natural_ids(shape.vocabulary, shape.block) if natural else _ids(shape.vocabulary, shape.block)
    ids.numpy().astype("uint16").tofile(path)
    counts = np.zeros((2, shape.vocabulary), dtype=np.int64)
    return Split(path, blocks=BLOCKS, block=shape.block, id_type="uint16", counts=counts)


def _plain(vocabulary: int, steps: int, between: Callable[[], object] = lambda: None) -> list[float]:
    library: Any = AutoModelForCausalLM
    blocks = [{"input_ids": ids, "labels": ids} for ids in _ids(vocabulary)]
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(
            output_dir=folder,
            max_steps=steps,
            per_device_train_batch_size=BATCH,
            use_cpu=True,
            logging_strategy="no",
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        config = Shape(WIDTH, DEPTH, vocabulary, BLOCK, BATCH).config
        trainer = Trainer(model=library.from_config(config), args=args, train_dataset=blocks)
        trainer.remove_callback(PrinterCallback)
        return _timed(trainer, between=between)


class _Products:
    """Every matrix product of a step: y = x Wᵀ, and for the gradients g W and gᵀ x; attention's own left out."""

    def __init__(self, vocabulary: int) -> None:
        self.tokens = BATCH * BLOCK
        shapes = [(WIDTH, vocabulary)] + DEPTH * [*4 * [(WIDTH, WIDTH)], (WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH)]
        self.inputs = [(torch.randn(self.tokens, k), torch.randn(n, k)) for k, n in shapes]
        self.space = LogitSpace()  # aligned rows: without, the product with the output layer is slower
        self.seconds: list[float] = []

    @torch.no_grad()
    def __call__(self) -> None:
        start = time.perf_counter()
        for x, weight in self.inputs:
            y = torch.mm(x, weight.T, out=self.space.of(self.tokens, len(weight), like=x))
            torch.mm(y, weight)
            torch.mm(y.T, x)
        self.seconds.append(time.perf_counter() - start)


STEPS: dict[str, Callable[..., list[float]]] = {"ours": _ours, "plain": _plain}


def _ids(vocabulary: int, block: int = BLOCK) -> Tensor:
    return torch.randint(0, vocabulary, (BLOCKS, block), generator=torch.Generator().manual_seed(0))


def _natural_ids(vocabulary: int, block: int) -> Tensor:
    chances = 1 / torch.arange(1, vocabulary + 1)
    drawn = torch.multinomial(chances, BLOCKS * block, replacement=True, generator=torch.Generator().manual_seed(0))
    return drawn.view(BLOCKS, block)


def _timed(
    trainer: Trainer,
    clock: Callable[[], float] = time.perf_counter,
    between: Callable[[], object] = lambda: None,
) -> list[float]:
    timed = _Clock(clock, between)
    trainer.add_callback(timed)
    trainer.train()
    return timed.seconds


ALL = {"training": training}
