"""The chunked next-token loss against plain cross-entropy, and against the three matrix products it cannot avoid."""

import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.timing import Line, at_least, at_most, in_turns, in_two_processes, peak_bytes, shown
from collapselab.models.scores import LogitSpace
from collapselab.models.taps import OutputLayer
from collapselab.training.loss import next_token_loss

DIM, VOCAB = 128, 50257


def loss(quick: bool) -> list[Line]:
    """Forward and backward of one batch through an output layer of 50,257 × 128."""
    tokens = 512 if quick else 4096
    features, weight, labels = _batch(tokens)
    with torch.no_grad():
        of_weight, of_features = weight.clone(), features.clone()
        logits = LogitSpace().of(tokens, VOCAB, like=features)  # aligned rows: without, the first product is slower

    @torch.no_grad()
    def products() -> None:
        torch.mm(features, weight.T, out=logits)
        torch.mm(logits, weight, out=of_features)
        torch.mm(logits.T, features, out=of_weight)

    contestants = {
        "ours": _step(_ours, features, weight, labels),
        "plain": _step(_plain, features, weight, labels),
        "products": products,
    }
    # the process's own seconds, of all its threads: what others do on the machine is not counted
    found = in_turns(contestants, turns=2 if quick else 3, warm_up=1, clock=time.process_time)
    times = {"ours": shown(found["ours"]), "baseline": shown(found["plain"]), "limit": shown(found["products"])}
    name = f"loss, {tokens:,} tokens"
    lines = [
        at_least(f"{name}: × plain cross-entropy", found["plain"] / found["ours"], 2.5, **times),
        at_most(f"{name}: × its three products", found["ours"] / found["products"], 1.7, **times),
    ]
    return lines if quick else [*lines, _memory(name, tokens)]


def memory_in_process(name: str, tokens: int) -> dict[str, float]:
    """Bytes that one step adds to the peak of a process that holds the batch already."""
    step = _step({"ours": _ours, "plain": _plain}[name], *_batch(tokens))
    before = peak_bytes()
    step()
    return {"bytes": peak_bytes() - before}


def _memory(name: str, tokens: int) -> Line:
    found = in_two_processes("benchmarks.loss", "memory_in_process", [("ours", tokens), ("plain", tokens)])
    ours, plain = (figures["bytes"] for figures in found)
    sizes = {"ours": f"{ours / 1e6:,.0f} MB", "baseline": f"{plain / 1e6:,.0f} MB"}
    return at_least(f"{name}: × less memory than plain", plain / ours, 15, **sizes)


def _batch(tokens: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(tokens, DIM, generator=generator).requires_grad_()
    weight = torch.randn(VOCAB, DIM, generator=generator).mul_(0.1).requires_grad_()
    return features, weight, torch.randint(0, VOCAB, (tokens,), generator=generator)


def _step(
    lost: Callable[[Tensor, Tensor, Tensor], Tensor], features: Tensor, weight: Tensor, labels: Tensor
) -> Callable[[], object]:
    def step() -> None:
        features.grad = weight.grad = None
        torch.autograd.backward(lost(features, weight, labels))

    return step


SPACE = LogitSpace()
"""Kept from step to step, as training keeps it."""


def _ours(features: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
    return next_token_loss(features, OutputLayer(weight), labels, space=SPACE)


def _plain(features: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(F.linear(features, weight), labels)


ALL = {"loss": loss}
