"""A model spread over devices by accelerate: several GPUs, the memory of the host, the disk.

Weights that are offloaded are no tensors of the model while it does not run; each module's hook brings them when the
module is called, and knows where they are. What enters the model is sent where it is needed, too.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from collapselab.errors import ConfigError, ModelError

STRATEGIES = ("auto", "balanced", "balanced_low_0", "sequential")

Place = str | int | torch.device
DeviceMap = str | dict[str, Place]
"""One of `STRATEGIES`, or a device for each module by its name: a GPU's number, "cpu" or "disk"."""


def parsed_device_map(given: DeviceMap | None) -> DeviceMap | None:
    """The map that a strategy, a JSON file or a dict means; ConfigError if it is none of them."""
    if given is None or isinstance(given, dict) or given in STRATEGIES:
        return given
    path = Path(given)
    try:
        places = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        known = ", ".join(STRATEGIES)
        raise ConfigError(
            f"device_map: {given!r} is none of {known}, and no JSON file with devices by module."
        ) from error
    if not isinstance(places, dict) or not all(isinstance(place, str | int) for place in places.values()):
        raise ConfigError(f"device_map: {given}: a device (a number, cpu or disk) for each name of a module is needed.")
    return places


def device_of(model: nn.Module) -> torch.device:
    """Where a model takes its input: the device of its first weight that is in memory, or of the first that runs."""
    for parameter in model.parameters():
        if parameter.device.type != "meta":
            return parameter.device
    for module in model.modules():
        for hook in _hooks(module):
            if getattr(hook, "execution_device", None) is not None:
                return torch.device(hook.execution_device)
    return next(model.parameters()).device


def stored_tensor(model: nn.Module, name: str, tensor: Tensor) -> Tensor:
    """A tensor of the model's state that is in memory; one that is offloaded is read. ModelError if it is nowhere."""
    if not tensor.is_meta:
        return tensor
    path, _, leaf = name.rpartition(".")
    for hook in _hooks(model.get_submodule(path)):
        weights = getattr(hook, "weights_map", None)
        if weights is not None:
            kept: Tensor = weights[leaf]
            return kept
    raise ModelError(f"the model's {name} is not in memory, and nothing says where it is. Load the model again.")


def check_whole(weight: Tensor, *, name: str) -> None:
    """ModelError if the output layer is split over devices, as tensor parallelism does it."""
    if type(weight).__name__ == "DTensor":
        raise ModelError(
            f"{name}: its output layer is split over devices (DTensor), and is needed as one tensor. Load the model "
            "with --device-map auto, or leave the output layer out of the tensor-parallel plan."
        )


def check_tied(model: Any, *, name: str) -> None:
    """ModelError if an output layer that shares its weight with the input embedding is in another place than that."""
    places: dict[str, Place] = getattr(model, "hf_device_map", {})
    if not getattr(model.config.get_text_config(), "tie_word_embeddings", False) or len(places) < 2:
        return
    modules = {id(module): path for path, module in model.named_modules()}
    first, last = (
        modules.get(id(module), "") for module in (model.get_input_embeddings(), model.get_output_embeddings())
    )
    devices = [_place(places, path) for path in (first, last)]
    if devices[0] != devices[1]:
        raise ModelError(
            f"{name}: its output layer {last} shares its weight with {first}, but device_map puts it on {devices[1]} "
            f"and the embedding on {devices[0]}. Give both one place."
        )


def _place(places: dict[str, Place], path: str) -> Place | None:
    """The place of a module: that of the longest name in the map that it is, or is in."""
    inside = [name for name in places if not name or path == name or path.startswith(f"{name}.")]
    return places[max(inside, key=len)] if inside else None


def _hooks(module: nn.Module) -> Iterator[Any]:
    """The hooks of accelerate on a module."""
    hook = getattr(module, "_hf_hook", None)
    if hook is not None:
        yield from getattr(hook, "hooks", (hook,))
