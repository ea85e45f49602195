"""Features and output layer of any causal language model of transformers: the one place that defines both.

The feature is whatever enters the model's output embedding, and the tap takes it right there: while it is open, the
output layer returns its input instead of computing logits. No list of architectures, names or final norms is
needed, and gradients flow. The features of the layers below are the outputs of its blocks, before any final norm.

An output layer that is not a plain linear one (a LoRA adapter on it, a wrapper that keeps a copy, packed weights) is
read by experiment as well: unit vectors are sent through it, and what they become are the columns of its weight.

What the model does to the logits afterwards (scaling, soft-capping) is not read from the configuration, where every
architecture calls it by another name, but found by experiment: a ramp of known numbers is sent through in place of the
logits, and what comes out is explained as scale and cap, or refused. Adapters, hooks and replaced methods can still
make the logits something else without an error, so `check_logits` compares them on tokens of the corpus before
anything is measured.
"""

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from collapselab.errors import ModelError

UNITS_AT_ONCE = 64
"""Unit vectors sent through an output layer at once: each becomes as many numbers as there are classes."""

ROUNDINGS = 4
"""Roundings of a logit, in units of eps: product, bias, scale and cap round by half a unit each, on both sides."""

SUM_ROUNDINGS = 16
"""How far two orders of summing one product may differ, in units of float32, which all kernels sum in at least."""

TENSOR_PARALLEL = "tensor parallelism (DTensor)"


@dataclass(frozen=True)
class OutputLayer:
    """The output layer as the model applies it: y = scale · (h Wᵀ + b), then cap · tanh(y / cap) if it has a cap."""

    weight: Tensor
    bias: Tensor | None = None
    scale: float = 1.0
    softcap: float | None = None

    def to(self, how: torch.device | torch.dtype) -> "OutputLayer":
        """The layer on another device, or of another type."""
        bias = None if self.bias is None else self.bias.to(how)
        return replace(self, weight=self.weight.to(how), bias=bias)

    def logits(self, features: Tensor) -> Tensor:
        """(…, vocab) logits of (…, dim) features: for checks and small batches."""
        logits = self.scale * nn.functional.linear(features, self.weight, self.bias)
        return logits if self.softcap is None else self.softcap * torch.tanh(logits / self.softcap)


def features(model: nn.Module, input_ids: Tensor, **inputs: Tensor) -> Tensor:
    """Return the input of the output layer for each token (batch, tokens, dim), without computing logits.

    The model may be wrapped, by DistributedDataParallel or torch.compile: then the wrapper is what runs.
    """
    taken: list[Tensor] = []

    def take(entering: Tensor, *_: object, **__: object) -> Tensor:
        taken.append(entering)
        return entering

    with _instead_of_the_head(model, take):
        model(input_ids=input_ids, use_cache=False, **inputs)
    if len(taken) != 1 or taken[0].shape[:2] != input_ids.shape:
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in taken) or "nothing"
        raise ModelError(f"{name_of(model)}: its output layer got {shapes} for {tuple(input_ids.shape)} tokens.")
    return taken[0]


def layer_features(
    model: nn.Module, input_ids: Tensor, *, take: Callable[[str, Tensor], object] | None = None, **inputs: Tensor
) -> dict[str, Tensor]:
    """Return the output of every block, "1" … "L", and the features, "last", in one forward pass without logits.

    With `take`, it is called with each of them while the model runs, and the dict stays empty: what `take` does not
    keep is freed when the next block is done. A compiled model runs uncompiled, so that `take` runs in time.
    """
    kept: dict[str, Tensor] = {}
    blocks = _blocks(model)
    taken = _Turns(model, tuple(input_ids.shape), _names(blocks), take or kept.__setitem__)
    with ExitStack() as taps:
        for name, block in zip(taken.names, blocks, strict=False):
            taps.callback(block.register_forward_hook(partial(taken.block_is_done, name)).remove)
        taps.enter_context(_instead_of_the_head(model, taken.head_is_reached))
        if "torch._dynamo" in sys.modules:  # nothing was compiled without it, and to load it takes seconds
            taps.enter_context(torch.compiler.set_stance("force_eager"))
        model(input_ids=input_ids, use_cache=False, **inputs)
    taken.check_complete()
    return kept


def layer_names(model: nn.Module) -> list[str]:
    """Return the names of the layers of `layer_features`, in order."""
    return _names(_blocks(model))


def output_layer(model: nn.Module) -> OutputLayer:
    """Return the layer that turns features into logits, with the scale and cap that the model applies after it.

    The weight of a plain linear layer is the model's own tensor; that of any other is a copy, without a gradient.
    """
    model = bare_model(model)
    head = _head(model)
    if type(head.weight).__name__ == "DTensor":
        raise ModelError(
            f"{name_of(model)}: its output layer is split over devices (DTensor), and is needed as one tensor. Load "
            "the model with --device-map auto, or leave the output layer out of the tensor-parallel plan."
        )
    # Weight and bias say all about a layer whose forward nothing replaces and whose weights are not packed.
    is_plain = type(head).forward is nn.Linear.forward and "forward" not in head.__dict__
    is_plain &= type(head.weight) in (nn.Parameter, Tensor) and head.weight.is_floating_point()
    weight, bias = (head.weight, head.bias) if is_plain else _linear_map(model, head)
    scale, softcap = _found_by_experiment(model, len(weight))
    return OutputLayer(weight, bias, scale, softcap)


@torch.no_grad()
def last_norm(model: nn.Module) -> nn.Module | None:
    """Return the norm whose output is the features, found by running the model; None if there is no such norm."""
    model = bare_model(model)
    outputs: list[tuple[nn.Module, Tensor]] = []

    def note(module: nn.Module, _: object, output: object) -> None:
        if isinstance(output, Tensor):
            outputs.append((module, output))

    ids = torch.zeros(1, 2, dtype=torch.int64, device=device_of(model))
    with ExitStack() as hooks:
        for module in model.modules():
            if getattr(getattr(module, "weight", None), "ndim", 0) == 1:
                hooks.callback(module.register_forward_hook(note).remove)
        entering = features(model, ids)
    same = [module for module, output in outputs if output.data_ptr() == entering.data_ptr()]
    return same[-1] if same else None


def bare_model(model: nn.Module) -> nn.Module:
    """Return the model inside the wrappers of torch.compile, DistributedDataParallel and DataParallel."""
    while True:
        if isinstance(model, nn.parallel.DistributedDataParallel | nn.DataParallel):
            model = model.module
        elif isinstance(inner := getattr(model, "_orig_mod", None), nn.Module):
            model = inner
        else:
            return model


def sharded_by(model: nn.Module) -> str | None:
    """Name what spreads the weights over processes, such as "FSDP2"; None if each process has all of them."""
    kinds = {kind.__name__ for module in model.modules() for kind in type(module).__mro__}
    kinds |= {type(part).__name__ for p in model.parameters() for part in (p, p.data)}
    kinds |= {"ds_id"} if any(hasattr(p, "ds_id") for p in model.parameters()) else set()
    names = {"FullyShardedDataParallel": "FSDP", "FSDPModule": "FSDP2", "ds_id": "DeepSpeed ZeRO-3"}
    return next((name for kind, name in {**names, "DTensor": TENSOR_PARALLEL}.items() if kind in kinds), None)


def device_of(model: nn.Module) -> torch.device:
    """Return the device of the input: that of the first weight in memory, or of the first module that runs."""
    for parameter in model.parameters():
        if parameter.device.type != "meta":
            return parameter.device
    for module in model.modules():
        for hook in hooks_of(module):
            if getattr(hook, "execution_device", None) is not None:
                return torch.device(hook.execution_device)
    return next(model.parameters()).device


def hooks_of(module: nn.Module) -> Iterator[Any]:
    """Yield the hooks of accelerate on a module."""
    hook = getattr(module, "_hf_hook", None)
    if hook is not None:
        yield from getattr(hook, "hooks", (hook,))


def name_of(model: nn.Module) -> str:
    """Return the model's class and path, if it has one."""
    model = bare_model(model)
    path = getattr(getattr(model, "config", None), "_name_or_path", "")
    return f"{type(model).__name__} {path}".strip()


@dataclass
class _Turns:
    """Checks the order of one pass: every block and then the output layer, each with one vector per token."""

    model: nn.Module
    shape: tuple[int, ...]
    names: list[str]
    take: Callable[[str, Tensor], object]
    done: int = 0

    def block_is_done(self, name: str, _: nn.Module, __: object, output: Tensor | tuple[Tensor, ...]) -> None:
        self._hand_over(name, output if isinstance(output, Tensor) else output[0])

    def head_is_reached(self, entering: Tensor, *_: object, **__: object) -> Tensor:
        self._hand_over("last", entering)
        return entering

    def check_complete(self) -> None:
        if self.done < len(self.names):
            raise self._refusal(f"layer {self.names[self.done]} was not run")

    def _hand_over(self, name: str, hidden: object) -> None:
        if self.done == len(self.names) or name != self.names[self.done]:
            raise self._refusal(f"layer {name} was run out of turn")
        if not isinstance(hidden, Tensor) or hidden.ndim != 3 or tuple(hidden.shape[:2]) != self.shape:
            given = tuple(hidden.shape) if isinstance(hidden, Tensor) else type(hidden).__name__
            raise self._refusal(f"layer {name} gives {given} for {self.shape} tokens")
        self.done += 1
        self.take(name, hidden)

    def _refusal(self, reason: str) -> ModelError:
        return ModelError(f"{name_of(self.model)}: {reason}. Its blocks cannot be measured; its last layer can.")


def _blocks(model: nn.Module) -> list[nn.Module]:
    """Return the blocks of the body: the outermost list of modules as long as the model is deep, or else the longest.

    `_Turns` checks that they run as blocks.
    """
    bare: Any = bare_model(model)
    body = bare.get_decoder() if hasattr(bare, "get_decoder") else bare
    lists = list(_outermost_lists(body)) or list(_outermost_lists(bare))  # some call their output layer a decoder
    depth = getattr(getattr(body, "config", None), "num_hidden_layers", None)
    blocks = max(lists, key=lambda modules: (len(modules) == depth, len(modules)), default=())
    if not len(blocks):
        raise ModelError(f"{name_of(model)}: its blocks are not found. Its last layer can be measured.")
    return list(blocks)


def _names(blocks: list[nn.Module]) -> list[str]:
    return [*(str(number + 1) for number in range(len(blocks))), "last"]


def _outermost_lists(module: nn.Module) -> Iterator[nn.ModuleList]:
    for child in module.children():
        if isinstance(child, nn.ModuleList):
            yield child
        else:
            yield from _outermost_lists(child)


def _head(model: nn.Module) -> Any:
    bare: Any = bare_model(model)
    if getattr(getattr(bare, "config", None), "is_encoder_decoder", False):
        raise ModelError(f"{name_of(bare)}: an encoder-decoder; a causal language model is needed.")
    head = bare.get_output_embeddings() if hasattr(bare, "get_output_embeddings") else None
    if head is None or getattr(head, "weight", None) is None:
        raise ModelError(f"{name_of(model)}: has no output layer over tokens; a causal language model is needed.")
    if "MaskedLM" in type(bare).__name__:
        raise ModelError(f"{name_of(model)}: sees the whole text at once; a causal language model is needed.")
    return head


@torch.no_grad()
def _linear_map(model: nn.Module, head: nn.Module) -> tuple[Tensor, Tensor | None]:
    """Weight and bias of an output layer of any kind, from its outputs for unit vectors and for zero.

    For a layer that is not linear these numbers are wrong; `check_logits` finds that when it compares logits.
    """
    entering = features(model, torch.zeros(1, 1, dtype=torch.int64, device=device_of(model)))
    units = torch.eye(entering.shape[-1], dtype=entering.dtype, device=entering.device)
    modes = [(module, module.training) for module in head.modules()]
    head.eval()  # an adapter's dropout would be part of the weight
    try:
        bias: Tensor = head.forward(torch.zeros_like(entering))[0, 0]
        columns = [head.forward(part[None])[0] - bias for part in torch.split(units, UNITS_AT_ONCE)]
    finally:
        for module, mode in modes:
            module.training = mode
    return torch.cat(columns).T.contiguous(), bias if bias.any() else None


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
    """Scale and cap, from the outputs for known numbers: small ones show the scale, huge ones the cap."""
    device = device_of(model)
    ramp = torch.linspace(-60, 60, vocabulary, dtype=torch.float32, device=device)

    def sent(numbers: Tensor) -> Tensor:
        def hand_out(entering: Tensor, *_: object, **__: object) -> Tensor:
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
    actual = sent(ramp)
    tolerance = 0.05 if next(model.parameters()).dtype in (torch.float16, torch.bfloat16) else 1e-3
    if actual.shape != expected.shape or not torch.allclose(actual, expected, rtol=tolerance, atol=tolerance):
        raise ModelError(
            f"{name_of(model)}: does something to its logits that is neither a scale nor a soft cap. "
            "It cannot be measured."
        )
    return float(f"{scale:.7g}"), softcap  # float32 shows no more digits


@dataclass(frozen=True)
class LogitDifference:
    """Largest difference between the model's logits and those of its features, and what rounding allows."""

    largest: float
    allowed: float
    spread: float
    """Standard deviation of the model's logits."""


def check_logits(model: nn.Module, head: OutputLayer, input_ids: Tensor, *, name: str) -> None:
    """ModelError if the layer and the tapped features do not give the model's own logits for these tokens."""
    difference = logit_difference(model, head, input_ids)
    if difference is None or difference.largest <= difference.allowed:
        return
    relative = difference.largest / difference.spread if difference.spread else math.inf
    raise ModelError(
        f"{name}: its own logits differ from those of its features and output layer by up to {difference.largest:.4g}, "
        f"which is {relative:.3g} times the standard deviation of its logits; rounding explains "
        f"{difference.allowed:.2g}. Something beside a linear layer, a scale and a soft cap makes its logits. Merge "
        "its adapter, or remove the hook or replaced method."
    )


@torch.no_grad()
def logit_difference(model: nn.Module, head: OutputLayer, input_ids: Tensor) -> LogitDifference | None:
    """Return the largest difference over all given tokens; None where no token has finite features."""
    bare = bare_model(model)
    hidden, own = features(bare, input_ids), bare(input_ids=input_ids, use_cache=False).logits
    usable = hidden.isfinite().all(-1)
    if not usable.any():
        return None
    expected, hidden, own = head.logits(hidden.to(head.weight.dtype))[usable], hidden[usable], own[usable]
    if own.shape != expected.shape:
        raise ModelError(
            f"{name_of(bare)}: gives {own.shape[-1]:,} logits a token, but its output layer has {expected.shape[-1]:,} "
            "classes. It cannot be measured."
        )
    wide = torch.promote_types(own.dtype, torch.float32)
    apart = (own.to(wide) - expected.to(wide)).abs()
    apart[own == expected] = 0  # infinities that are equal
    largest = float(apart.nan_to_num(nan=math.inf, posinf=math.inf).max())
    return LogitDifference(largest, _allowed(head, hidden, own), float(own[own.isfinite()].to(wide).std()))


def _allowed(head: OutputLayer, hidden: Tensor, own: Tensor) -> float:
    """Return what rounding explains, with eps that of the least precise format of features, weight and logits.

        4 eps · max |logit|  +  16 eps(float32) · scale · max |h| · max |w|

    The first term is the rounding of results. The second is that of sums: no product exceeds |h| |w|, and kernels add
    in float32 at least. Scale and cap are determined in float32, so float64 is not held to more.
    """
    single = torch.finfo(torch.float32).eps
    eps = max(single, *(torch.finfo(tensor.dtype).eps for tensor in (hidden, head.weight, own)))
    largest = float(own[own.isfinite()].abs().max()) if own.isfinite().any() else 0.0
    reach = float(hidden.float().norm(dim=1).max() * head.weight.float().norm(dim=1).max())
    return ROUNDINGS * eps * largest + SUM_ROUNDINGS * single * abs(head.scale) * reach
