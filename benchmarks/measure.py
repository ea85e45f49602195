"""What collecting costs on top of the forward pass, and whether the documented formula gives the peak of memory.

Forward pass and collecting are timed inside the same pass over the same batches, so that a slow spell hits both.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.timing import STEADY, Line, at_most, in_turns, in_two_processes, peak_bytes, shown
from collapselab.core.threads import threads
from collapselab.corpus.blocks import Split
from collapselab.measurement.batch import Batch
from collapselab.measurement.collector import Collectors
from collapselab.measurement.collectors import COLLECTORS
from collapselab.measurement.measure_model import ForwardPass, measure_model, needed_bytes
from collapselab.measurement.model import TOKENS_AT_ONCE, MeasuredModel
from collapselab.measurement.open_model import FinishedResult, OpenedModel
from collapselab.measurement.plan import MeasurePlan, MeasureRequest, SplitPlan, make_plan
from collapselab.measurement.sample import ByLayer, ClassNumbers, Sample
from collapselab.records.options import Options, Running

VOCABULARY, WIDTH, DEPTH, BLOCK = 50257, 256, 4, 512
BATCH = TOKENS_AT_ONCE["cpu"] // BLOCK
"""As many blocks as a measurement on a CPU takes."""
TOKENS = 2_000_000
BEFORE, BATCHES = 75, 25
FEW_BEFORE, FEW_BATCHES = 25, 6


def collecting(quick: bool) -> Iterator[Line]:
    """GPT-Neo 4 × 256 with a vocabulary of 50,257; tokens as frequent as words in a text (Zipf).

    The sample has two million tokens, 488 batches, of which 25 are run: one of its runs of tokens for the curvature is
    among them, as in all, but for two hundredths. Classes are new in the first batches, which takes longer: 11.3 % in
    the first 25, 10.4 % after 50, 10.3 % over a whole pass. So 75 batches come before, with features of the first;
    25 where it should be quick, which says too much.
    """
    model = MeasuredModel(model_of(VOCABULARY), name="gpt-neo")
    text: Any = _Text(TOKENS // BLOCK)
    sample = Sample(text, name="", length=BLOCK, blocks=len(text), seed=0)
    for name, options, bar in (
        ("moments and counts", Options(null=False), 0.05),
        ("with the null", Options(), None),
        ("with the null, all layers", Options(layers="all"), 0.12),
    ):
        if quick and options.layers != "all":
            continue
        forward, more = _times(model, sample, options, quick=quick)
        times = {"ours": shown(more), "limit": f"forward {shown(forward)}"}
        figure = 100 * more / forward
        if bar is None:
            yield Line(f"collecting, {name}: on top of the forward pass", figure, "%", "–", None, **times)
        else:
            yield at_most(f"collecting, {name}: on top of the forward pass", figure, 100 * bar, "%", **times)


def memory(quick: bool) -> list[Line]:
    """The peak of a whole measurement against the formulas of docs/scale.md."""
    calls = [(4000, 24, "last")] if quick else [(VOCABULARY, 128, layers) for layers in ("all", "last")]
    lines = []
    every = in_two_processes("benchmarks.measure", "memory_in_process", calls, environment=STEADY)
    for (*_, layers), found in zip(calls, every, strict=True):
        figure = abs(found["peak"] / found["formula"] - 1) * 100
        sizes = {"ours": f"{found['peak'] / 1e6:,.0f} MB", "limit": f"formula {found['formula'] / 1e6:,.0f} MB"}
        lines.append(at_most(f"memory of measuring, layers {layers}: off the formula", figure, 30, "%", **sizes))
    return lines


def tables(quick: bool) -> list[Line]:
    """The tables `classes` and `deciders` on top of measuring all layers: ten training tokens to one of validation."""
    vocabulary, blocks = (2_000, 20) if quick else (4_000, 40)
    model = MeasuredModel(model_of(vocabulary), name="gpt-neo")
    corpus = _corpus(vocabulary, train=blocks, validation=blocks // 10)
    plain = Options(layers="all", batch=8)
    asked = {
        "all layers": plain,
        "classes": replace(plain, classes=True),
        "deciders": replace(plain, deciders=True),
        "both": replace(plain, classes=True, deciders=True),
    }

    def measured(options: Options) -> None:
        request = MeasureRequest(corpus, options, Running(quiet=True))
        assert measure_model(OpenedModel(model, FinishedResult(None, request)), request) is not None

    runs: dict[str, Callable[[], object]] = {name: partial(measured, options) for name, options in asked.items()}
    # on one thread: what two take together depends on how long they wait for each other
    with threads(1):
        seconds = in_turns(runs, turns=2 if quick else 3, warm_up=1, clock=time.process_time)
    base = seconds.pop("all layers")
    times = {name: {"ours": shown(more), "limit": f"without {shown(base)}"} for name, more in seconds.items()}
    return [
        at_most(f"measuring all layers, with {name}: on top", 100 * (more / base - 1), 10, "%", **times[name])
        for name, more in seconds.items()
    ]


def _corpus(vocabulary: int, **blocks: int) -> Any:
    """Random tokens as a corpus, with a tokenizer that has a text for each."""
    backend = SimpleNamespace(
        get_added_tokens_decoder=dict,
        decode_batch=lambda rows, **_: [f" {row[0]}" for row in rows],
        id_to_token=str,
    )
    splits = {name: _Text(count, block=128, vocabulary=vocabulary, name=name) for name, count in blocks.items()}
    return SimpleNamespace(
        splits=splits,
        train=splits["train"],
        block=128,
        path=Path("text"),
        hash="",
        vocabulary=vocabulary,
        record=SimpleNamespace(text_name="text", text_hash=""),
        tokenizer=lambda: SimpleNamespace(backend_tokenizer=backend),
    )


def memory_in_process(vocabulary: int, blocks: int, layers: str) -> dict[str, float]:
    """Bytes that a measurement adds to the peak of a process that has run the model once."""
    from collapselab.models.taps import features

    model = MeasuredModel(model_of(vocabulary), name="gpt-neo")
    record = SimpleNamespace(text_name="text", text_hash="")
    corpus: Any = SimpleNamespace(splits={}, block=128, path=Path("text"), hash="", record=record)
    for name in ("train", "validation"):
        corpus.splits[name] = _Text(blocks, block=128, vocabulary=vocabulary, name=name)
    options = Options(layers=layers, batch=16)  # type: ignore[arg-type]
    with torch.no_grad():
        features(model.model, torch.zeros(16, 128, dtype=torch.int64))
    request = MeasureRequest(corpus, options, Running(quiet=True))
    request.identity(model)  # hashing the weights is not part of the formula
    plan, before = make_plan(request, model), peak_bytes()
    measure_model(OpenedModel(model, FinishedResult(None, request)), request)
    forward = 16 * plan.batch_tokens * WIDTH * 4  # its memory was there before
    return {"peak": peak_bytes() - before, "formula": needed_bytes(plan) - forward}


@final
class _Clock:
    """Seconds in the forward pass alone, without what is done to features while it runs."""

    def __init__(self, model: nn.Module) -> None:
        self.forward, self._nested, self._inside = 0.0, 0.0, False
        self.states: dict[str, Tensor] = {}
        self._model, self._real, self._add_layer = model, model.forward, ForwardPass.add_layer

    def __enter__(self) -> "_Clock":
        def forward(*args: Any, **inputs: Any) -> Any:
            self._nested, self._inside, start = 0.0, True, time.perf_counter()
            try:
                return self._real(*args, **inputs)
            finally:
                self.forward += time.perf_counter() - start - self._nested
                self._inside = False

        def add_layer(forward: ForwardPass, batch: Batch, collected: Collectors, layer: str, states: Tensor) -> None:
            self.states.setdefault(layer, states)
            start = time.perf_counter()
            self._add_layer(forward, batch, collected, layer, states)
            if self._inside:
                self._nested += time.perf_counter() - start

        self._model.forward = forward
        setattr(ForwardPass, "add_layer", add_layer)  # noqa: B010  mypy knows the method
        return self

    def __exit__(self, *_: object) -> None:
        self._model.forward = self._real
        setattr(ForwardPass, "add_layer", self._add_layer)  # noqa: B010


def _times(model: MeasuredModel, sample: Sample, options: Options, *, quick: bool) -> tuple[float, float]:
    """Mean seconds a batch of the forward pass, and of all else: only some batches have tokens of the curvature."""
    nowhere: Any = None  # a plan that is made by hand needs no corpus
    counts = sample.counts(model.classes)
    split = SplitPlan(
        ByLayer(sample, sample), [], counts, ClassNumbers(ByLayer(*[torch.ones(model.classes, dtype=torch.bool)] * 2))
    )
    request = MeasureRequest(nowhere, options, Running(quiet=True))
    plan = MeasurePlan(request, model, {"train": split}, ByLayer(counts, counts), {}, BATCH)
    collected = Collectors.wanted(COLLECTORS, plan, "train")
    forward = ForwardPass(plan, "train", collected)
    earlier, batches = (FEW_BEFORE, FEW_BATCHES) if quick else (BEFORE, BATCHES)
    forwards, others = [], []
    with torch.no_grad(), _Clock(model.model) as clock:
        for number in range(earlier + batches + 2):
            batch = Batch(plan, "train", range(number * BATCH, (number + 1) * BATCH))
            if 0 < number <= earlier:
                for layer, states in list(clock.states.items()):
                    forward.add_layer(batch, collected, layer, states)
                continue
            clock.forward, begun = 0.0, time.perf_counter()
            forward.run_batch(batch, collected)
            forwards.append(clock.forward)
            others.append(time.perf_counter() - begun - clock.forward)
    return statistics.mean(forwards[2:]), statistics.mean(others[2:])  # the first, and the first after the others


def model_of(vocabulary: int) -> nn.Module:
    from collapselab.models.build import build_config, build_model

    config = build_config("gpt-neo", width=WIDTH, depth=DEPTH, vocabulary=vocabulary, positions=BLOCK)
    model: nn.Module = build_model(config, seed=0)
    return model.eval()


@final
class _Text:
    """A split of random tokens, as frequent as words in a text."""

    def __init__(self, blocks: int, *, block: int = BLOCK, vocabulary: int = VOCABULARY, name: str = "train") -> None:
        generator = torch.Generator().manual_seed(len(name))
        rank = 1 / torch.arange(1, vocabulary + 1, dtype=torch.float64)
        drawn = torch.multinomial(rank, blocks * block, True, generator=generator)
        self.ids = drawn.view(blocks, block).numpy()
        self.block, self.blocks, self.path = block, blocks, Path(f"{name}.bin")
        self.lengths, self.first = None, 0
        self.counts = torch.from_numpy(np.bincount(self.ids[:, 1:].reshape(-1), minlength=vocabulary))

    def __len__(self) -> int:
        return len(self.ids)

    read, samples = Split.read, Split.samples


ALL = {"collecting": collecting, "measuring tables": tables, "measuring memory": memory}
