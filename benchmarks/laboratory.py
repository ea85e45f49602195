"""Optimiser steps of the small models that a laboratory trains by the hundred, on one thread.

The limit is the step's matrix products alone, attention's included, forward and backward. What is beside them does not
shrink with the width, so it rules at small widths.
"""

import time

import torch

from benchmarks.timing import Line, at_most, in_a_process, shown
from benchmarks.training import Shape, step_seconds

SHAPES = {
    "2 × 64, heads of 16": (Shape(64, 2, 1024, 128, 8, head_size=16), 2.5),
    "2 × 32, heads of 16": (Shape(32, 2, 1024, 128, 8, head_size=16), None),
    "2 × 128, heads of 16": (Shape(128, 2, 4096, 256, 16, head_size=16), None),
    "2 × 64, 16 heads as in the paper": (Shape(64, 2, 1024, 128, 8), None),
}
"""Each with the bar of its ratio."""


def laboratory(quick: bool) -> list[Line]:
    """Steps of ours against their bare products."""
    lines = []
    for name in list(SHAPES)[:1] if quick else SHAPES:
        seconds = in_a_process("benchmarks.laboratory", "in_process", name, 40 if quick else 100)
        ratio, bar = seconds["ours"] / seconds["products"], SHAPES[name][1]
        times = {"ours": shown(seconds["ours"]), "limit": shown(seconds["products"])}
        what = f"laboratory step, {name}: × its matrix products"
        lines.append(Line(what, ratio, "×", "–", None, **times) if bar is None else at_most(what, ratio, bar, **times))
    return lines


def in_process(name: str, steps: int) -> dict[str, float]:
    """Median seconds of a step and of its products, in turns of a few steps each, on one thread."""
    torch.set_num_threads(1)
    shape = SHAPES[name][0]
    ours, products = [], []
    for _ in range(4):
        ours += step_seconds(shape, steps // 4 + 3)[3:]
        products += [product_seconds(shape) for _ in range(steps // 4)]
    return {"ours": float(torch.tensor(ours).median()), "products": float(torch.tensor(products).median())}


def product_seconds(shape: Shape) -> float:
    """Seconds of every matrix product of a step: y = x Wᵀ, g W and gᵀ x of the layers, and six of each attention."""
    tokens, width = shape.batch * shape.block, shape.width
    layers = [(width, shape.vocabulary)] + shape.depth * [
        *4 * [(width, width)], (width, 4 * width), (4 * width, width)
    ]  # fmt: skip
    heads = shape.heads
    inputs = [(torch.randn(tokens, k), torch.randn(n, k)) for k, n in layers]
    query = torch.randn(shape.batch * heads, shape.block, width // heads)
    weights = torch.randn(shape.batch * heads, shape.block, shape.block)
    start = time.perf_counter()
    for x, weight in inputs:
        y = x @ weight.T
        torch.mm(y, weight)
        torch.mm(y.T, x)
    for _ in range(shape.depth):
        for _ in range(2):  # scores and the gradient of the weights; the sum of values, and its three gradients
            torch.bmm(query, query.transpose(1, 2))
            torch.bmm(weights, query)
            torch.bmm(weights.transpose(1, 2), query)
    return time.perf_counter() - start


ALL = {"laboratory": laboratory}
