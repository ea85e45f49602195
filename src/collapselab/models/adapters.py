"""Adapters: a base model with what peft trained on top of it, every weight of the adapter in its place.

An adapter is merged into the weights of its base, where that gives the same model: not where the base is quantised, and
not where an adapted layer shares its weight with another, as a tied output layer does, which merging would change too.
There it is applied, as in training.
"""

import json
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

from pydantic import JsonValue
from torch import Tensor, nn

from collapselab.errors import ModelError
from collapselab.models.weight_files import first_of
from collapselab.records.table import shown

CONFIG = "adapter_config.json"
WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")


def adapter_settings(folder: Path) -> dict[str, JsonValue]:
    """What adapter_config.json says; nothing where it cannot be read."""
    try:
        settings = json.loads((folder / CONFIG).read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return settings if isinstance(settings, dict) else {}


def described(folder: Path) -> str:
    """An adapter in words: its kind, and the base that it names."""
    settings = adapter_settings(folder)
    kind, base = settings.get("peft_type"), settings.get("base_model_name_or_path")
    named = [shown(text)[1:-1] if isinstance(text, str) and text else None for text in (kind, base)]
    return f"an adapter ({named[0] or 'of an unknown kind'}) of {named[1] or 'an unnamed model'}"


def with_adapter(base: nn.Module, folder: Path, *, name: str, keep_apart: bool) -> nn.Module:
    """The base with the adapter, merged unless they are to be kept apart; ModelError if it does not fit."""
    try:
        from peft import PeftConfig, PeftModel
    except ImportError as error:
        raise ModelError(
            f"{name}: {described(folder)}, which needs the package peft. Install collapselab[peft]."
        ) from error
    library: Any = PeftModel
    config: Any = PeftConfig.from_pretrained(str(folder))
    if config.is_prompt_learning:
        kind = config.peft_type.value
        raise ModelError(f"{name}: {kind} puts tokens of its own before the text. Adapters of weights can be measured.")
    task = getattr(config.task_type, "value", config.task_type)
    if task not in (None, "CAUSAL_LM"):
        raise ModelError(f"{name}: an adapter for {task}. A causal language model is needed.")
    stored = _stored_weights(folder, name=name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # missing weights are refused below
        adapted = library.from_pretrained(base, str(folder), config=config, is_trainable=False)
    _check_weights(adapted, stored, name=name)
    if keep_apart or not _is_mergeable(adapted):
        return adapted.eval()  # type: ignore[no-any-return]
    return adapted.merge_and_unload(safe_merge=True)  # type: ignore[no-any-return]


def _stored_weights(folder: Path, *, name: str) -> dict[str, Tensor]:
    """The tensors in the adapter's folder. Where it has none, the library would ask the hub for a model of its name."""
    from peft.utils.save_and_load import load_peft_weights

    if not any((folder / file).is_file() for file in WEIGHTS):
        raise ModelError(f"{name}: {described(folder)} without weights; {folder} has no {WEIGHTS[0]}.")
    stored: dict[str, Tensor] = load_peft_weights(str(folder), device="cpu")  # a pickle: with weights_only
    return stored


def _check_weights(adapted: Any, stored: dict[str, Tensor], *, name: str) -> None:
    from peft import get_peft_model_state_dict

    own: dict[str, Tensor] = get_peft_model_state_dict(adapted, save_embedding_layers=False)
    missing = sorted(own.keys() - stored.keys())
    left = sorted(stored.keys() - own.keys() - adapted.state_dict().keys())
    for what, names in (("are missing in its folder", missing), ("have no place in the base", left)):
        if names:
            raise ModelError(
                f"{name}: {len(names):,} of {max(len(own), len(stored)):,} weights of the adapter {what}: "
                f"{first_of(names)}. The adapter belongs to another base, or is incomplete."
            )


def _is_mergeable(adapted: nn.Module) -> bool:
    """Whether no adapted layer shares its weight with another module, and the kind of adapter can be merged."""
    if not hasattr(adapted, "merge_and_unload"):
        return False
    layers = [
        module.base_layer for module in adapted.modules() if isinstance(getattr(module, "base_layer", None), nn.Module)
    ]
    users = Counter(id(getattr(module, "weight", None)) for module in set(adapted.modules()))
    inside = {id(layer) for layer in layers}
    for module in adapted.modules():  # an adapted layer hands its base's weight through
        if isinstance(getattr(module, "base_layer", None), nn.Module) and id(module) not in inside:
            users[id(getattr(module, "weight", None))] -= 1
    return all(users[id(getattr(layer, "weight", None))] <= 1 for layer in layers)
