"""The estimate of docs/scale.md beside what a measurement takes: bytes and seconds.

The speed of bare products is taken just before. One thread, and its own time: what others do is hardly counted.
"""

import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from benchmarks.measure import _Text
from benchmarks.timing import STEADY, Line, at_most, in_two_processes, peak_bytes, shown
from collapselab.measurement.estimate import memory, operations, products_per_second, sizes_of
from collapselab.measurement.measure_model import measure_model
from collapselab.measurement.model import MeasuredModel
from collapselab.measurement.open_model import FinishedResult, OpenedModel
from collapselab.measurement.plan import MeasureRequest
from collapselab.measurement.resume import ResumeFolder
from collapselab.models.build import build_config, build_model
from collapselab.models.sizes import architecture_of
from collapselab.models.taps import features
from collapselab.records.options import Options, Running

SIZES = {"2 × 128": (128, 2, 8000), "4 × 256": (256, 4, 6000), "2 × 768": (768, 2, 4000)}
"""Width, depth and vocabulary."""
LAYERS = {"2 × 128": ("last", "all"), "4 × 256": ("all",), "2 × 768": ("last",)}
BLOCK, BATCH = 128, 16
BLOCKS = {"train": 256, "validation": 64}


def cost(quick: bool) -> list[Line]:
    """Peak of memory and time of whole measurements, over what the formulas say."""
    names = ["2 × 128"] if quick else ["2 × 768", "4 × 256", "2 × 128"]  # the longest first
    calls = [(name, layers) for name in names for layers in LAYERS[name]]
    found = in_two_processes("benchmarks.cost", "in_process", calls, environment=STEADY)
    return [
        line
        for (name, layers), figures in zip(calls, found, strict=True)
        for line in _lines(f"GPT-Neo {name}, {SIZES[name][2]:,} classes, layers {layers}", figures)
    ]


def _lines(name: str, found: dict[str, float]) -> list[Line]:
    off = 100 * abs(found["peak"] / found["foretold peak"] - 1)
    sizes = {"ours": f"{found['peak'] / 1e6:,.0f} MB", "limit": f"foretold {found['foretold peak'] / 1e6:,.0f} MB"}
    times = {"ours": shown(found["seconds"]), "limit": f"foretold {shown(found['foretold seconds'])}"}
    slower = found["seconds"] / found["foretold seconds"]
    return [
        at_most(f"memory, {name}: off the formula", off, 30, "%", **sizes),
        Line(f"time, {name}: × the formula", slower, "×", "–", None, **times),
    ]


def in_process(name: str, layers: Any) -> dict[str, float]:
    """A measurement of random tokens, nearly all classes among them, beside its cost."""
    torch.set_num_threads(1)
    width, depth, vocabulary = SIZES[name]
    config = build_config("gpt-neo", width=width, depth=depth, vocabulary=vocabulary, positions=BLOCK)
    model: nn.Module = build_model(config, seed=0)
    measured, options = (
        MeasuredModel(model.eval().requires_grad_(False), name="gpt-neo"),
        Options(layers=layers, batch=BATCH),
    )
    record = SimpleNamespace(text_name="text", text_hash="")
    corpus: Any = SimpleNamespace(splits={}, block=BLOCK, path=Path("text"), hash="", record=record)
    for split, blocks in BLOCKS.items():
        corpus.splits[split] = _even_text(blocks, vocabulary, split)
    with torch.no_grad():
        features(model, torch.zeros(BATCH, BLOCK, dtype=torch.int64))
    request = MeasureRequest(corpus, options, Running(quiet=True))
    request.identity(measured)  # hashing the weights is not part of the formula
    before = peak_bytes()
    start = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        result = measure_model(OpenedModel(measured, FinishedResult(None, request), ResumeFolder(folder)), request)
    seconds, peak = time.process_time() - start, peak_bytes()
    assert result is not None
    architecture = architecture_of(model)
    tokens = (BLOCKS["train"] * (BLOCK - 1), BLOCKS["validation"] * (BLOCK - 1))
    classes = (result.row("cdnv").classes or 0, result.row("cdnv", split="validation").classes or 0)
    sizes = sizes_of(architecture, options, tokens, classes, block=BLOCK, batch=BATCH, number_bytes=4)
    forward = BATCH * BLOCK * (4 * width + 3 * architecture.feed_forward) * 4  # its memory was there before
    rate = products_per_second(torch.device("cpu"))
    return {
        "peak": peak - before,
        "foretold peak": memory(architecture, sizes) - forward,
        "seconds": seconds,
        "foretold seconds": sum(operations(architecture, sizes).values()) / rate,
    }


def _even_text(blocks: int, vocabulary: int, name: str) -> _Text:
    """Every class is as frequent as another: the most pairs that so many tokens can give."""
    text = _Text(blocks, block=BLOCK, vocabulary=vocabulary, name=name)
    generator = torch.Generator().manual_seed(len(name))
    text.ids = torch.randint(0, vocabulary, (blocks, BLOCK), generator=generator).numpy()
    text.counts = torch.from_numpy(text.ids[:, 1:].reshape(-1)).bincount(minlength=vocabulary)
    return text


ALL = {"cost": cost}
