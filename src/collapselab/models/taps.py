"""Which vector, and which output layer: the one home of both, for any causal language model of the library.

The feature is whatever enters the model's output embedding, and the tap takes it right there: while it is open, the
output layer hands its input through instead of computing logits. No list of architectures, names or final norms is
needed, and gradients flow.

What the model does to the logits afterwards (scaling, soft-capping) is not read from the configuration, where every
architecture calls it by another name, but found by experiment: a ramp of known numbers is sent through in place of the
logits, and what comes out is explained as scale and cap, or refused.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from collapselab.errors import ModelError


@dataclass(frozen=True)
class OutputLayer:
    """The output layer as the model applies it: y = scale · (h Wᵀ + b), then cap · tanh(y / cap) if it has a cap."""

    weight: Tensor
    bias: Tensor | None = None
    scale: float = 1.0
    softcap: float | None = None

    def logits(self, features: Tensor) -> Tensor:
        """(…, vocab) logits of (…, dim) features: for checks and small batches."""
        logits = self.scale * nn.functional.linear(features, self.weight, self.bias)
        return logits if self.softcap is None else self.softcap * torch.tanh(logits / self.softcap)


def features(model: nn.Module, input_ids: Tensor, **inputs: Any) -> Tensor:
    """What enters the output layer for each token (batch, tokens, dim); the logits are not computed."""
    taken: list[Tensor] = []

    def take(entering: Tensor, *_: Any, **__: Any) -> Tensor:
        taken.append(entering)
        return entering

    with _instead_of_the_head(model, take):
        model(input_ids=input_ids, use_cache=False, **inputs)
    if len(taken) != 1 or taken[0].shape[:2] != input_ids.shape:
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in taken) or "nothing"
        raise ModelError(f"{name_of(model)}: its output layer got {shapes} for {tuple(input_ids.shape)} tokens.")
    return taken[0]


def output_layer(model: nn.Module) -> OutputLayer:
    """The layer that turns features into logits, with what the model does to the logits after it."""
    head = _head(model)
    scale, softcap = _found_by_experiment(model, len(head.weight))
    return OutputLayer(head.weight, getattr(head, "bias", None), scale, softcap)


def name_of(model: nn.Module) -> str:
    """The model's class and, where it has one, its path."""
    path = getattr(getattr(model, "config", None), "_name_or_path", "")
    return f"{type(model).__name__} {path}".strip()


def _head(model: Any) -> Any:
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        raise ModelError(f"{name_of(model)}: an encoder-decoder; a causal language model is needed.")
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    if head is None or getattr(head, "weight", None) is None:
        raise ModelError(f"{name_of(model)}: has no output layer over tokens; a causal language model is needed.")
    if "MaskedLM" in type(model).__name__:
        raise ModelError(f"{name_of(model)}: sees the whole text at once; a causal language model is needed.")
    return head


@contextmanager
def _instead_of_the_head(model: nn.Module, function: Callable[..., Tensor]) -> Iterator[None]:
    head = _head(model)
    shadowed = head.__dict__.get("forward")
    head.forward = function
    try:
        yield
    finally:
        del head.forward
        if shadowed is not None:
            head.forward = shadowed


def _found_by_experiment(model: nn.Module, vocabulary: int) -> tuple[float, float | None]:
    """Scale and cap from what becomes of known numbers: small ones show the scale, huge ones the cap."""
    device = next(model.parameters()).device
    ramp = torch.linspace(-60, 60, vocabulary, dtype=torch.float32, device=device)

    def sent(numbers: Tensor) -> Tensor:
        def hand_out(entering: Tensor, *_: Any, **__: Any) -> Tensor:
            return numbers.to(entering.dtype).expand(*entering.shape[:-1], -1)

        with torch.no_grad(), _instead_of_the_head(model, hand_out):
            out: Tensor = model(input_ids=torch.zeros(1, 1, dtype=torch.int64, device=device), use_cache=False).logits
        return out[0, -1].float()

    small, huge = 2.0**-10, 2.0**15  # exact in every format
    bottom = float(sent(torch.full_like(ramp, small)).median())
    top = float(sent(torch.full_like(ramp, huge)).median())
    softcap = top if top < 0.5 * huge * bottom / small else None
    scale = (bottom if softcap is None else softcap * math.atanh(bottom / softcap)) / small
    expected = scale * ramp if softcap is None else softcap * torch.tanh(scale * ramp / softcap)
    found = sent(ramp)
    tolerance = 0.05 if next(model.parameters()).dtype in (torch.float16, torch.bfloat16) else 1e-3
    if found.shape != expected.shape or not torch.allclose(found, expected, rtol=tolerance, atol=tolerance):
        raise ModelError(
            f"{name_of(model)}: does something to its logits that is neither a scale nor a soft cap. "
            "It cannot be measured."
        )
    return float(f"{scale:.7g}"), softcap  # float32 shows no more digits
