"""Optimiser steps of the small models that a laboratory trains by the hundred, on one thread.

The limit is the step's matrix products alone, attention's included, forward and backward. What is beside them does not
shrink with the width, so it rules at small widths.
"""

import statistics
import time
from collections.abc import Iterator
from typing import final

import torch

from benchmarks.timing import Line, at_most, in_a_process, in_this_process, shown
from benchmarks.training import BLOCKS, Shape, evaluation_seconds, step_seconds
from collapselab.training.checkpointing import SAMPLE_SHARE

SHAPES = {
    "2 × 64, heads of 16": (Shape(64, 2, 1024, 128, 8, head_size=16), 2.5),
    "2 × 32, heads of 16": (Shape(32, 2, 1024, 128, 8, head_size=16), None),
    "2 × 128, heads of 16": (Shape(128, 2, 4096, 256, 16, head_size=16), None),
}
"""Each with the bar of its ratio."""
WARM_UP = 3
"""Steps that are not counted."""


def laboratory(quick: bool) -> Iterator[Line]:
    """Steps of ours against their bare products."""
    for name in list(SHAPES)[:1] if quick else SHAPES:
        shape, bar = SHAPES[name]
        if quick:
            seconds = in_this_process(in_process, name, 12)
        else:
            seconds = in_a_process("benchmarks.laboratory", "in_process", name, 12 if shape.width > 64 else 24)
        ratio = seconds["ours"] / seconds["products"]
        times = {"ours": shown(seconds["ours"]), "limit": shown(seconds["products"])}
        what = f"laboratory step, {name}: × its matrix products"
        yield Line(what, ratio, "×", "–", None, **times) if bar is None else at_most(what, ratio, bar, **times)
        if bar is not None:
            share = SAMPLE_SHARE * (seconds["evaluation"] / BLOCKS) / (seconds["ours"] / shape.batch)
            yield at_most(f"evaluated training loss, {name}: % of the training", 100 * share, 3.0, unit="%")


def in_process(name: str, steps: int) -> dict[str, float]:
    """Median seconds of a step and of its products, one after the other in turns; the process's own, on one thread."""
    torch.set_num_threads(1)
    shape = SHAPES[name][0]
    products = _Products(shape)
    ours = step_seconds(shape, steps + WARM_UP, clock=time.process_time, between=products.run)
    return {
        "ours": statistics.median(ours[WARM_UP:]),
        "products": statistics.median(products.seconds[WARM_UP:]),
        "evaluation": statistics.median(evaluation_seconds(shape, 1 + WARM_UP)[1:]),
    }


@final
class _Products:
    """Every matrix product of a step: y = x Wᵀ, g W and gᵀ x of the layers, and six of each attention.

    All results go to memory that is there already: fresh memory costs as much as the products themselves.
    """

    def __init__(self, shape: Shape) -> None:
        tokens, width, heads = shape.batch * shape.block, shape.width, shape.heads
        layers = [(width, shape.vocabulary)] + shape.depth * [
            *4 * [(width, width)], (width, 4 * width), (4 * width, width)
        ]  # fmt: skip
        self.inputs = [(torch.randn(tokens, k), torch.randn(n, k)) for k, n in layers]
        self.space = torch.empty(tokens * max(shape.vocabulary, 4 * width))
        self.gradients = [(torch.empty(tokens, k), torch.empty(n, k)) for k, n in layers]
        self.query = torch.randn(shape.batch * heads, shape.block, width // heads)
        self.weights = torch.randn(shape.batch * heads, shape.block, shape.block)
        self.attended, self.scores = torch.empty_like(self.query), torch.empty_like(self.weights)
        self.depth = shape.depth
        self.seconds: list[float] = []

    def run(self) -> None:
        start = time.process_time()
        for (x, weight), (of_x, of_weight) in zip(self.inputs, self.gradients, strict=True):
            y = torch.mm(x, weight.T, out=self.space[: len(x) * len(weight)].view(len(x), len(weight)))
            torch.mm(y, weight, out=of_x)
            torch.mm(y.T, x, out=of_weight)
        for _ in range(2 * self.depth):  # scores and the gradient of the weights; the sum of values, and its gradients
            torch.bmm(self.query, self.query.transpose(1, 2), out=self.scores)
            torch.bmm(self.weights, self.query, out=self.attended)
            torch.bmm(self.weights.transpose(1, 2), self.query, out=self.attended)
        self.seconds.append(time.process_time() - start)


ALL = {"laboratory": laboratory}
