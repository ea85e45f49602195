"""Weights in fewer bits: rounded while they are loaded (bitsandbytes), or stored so, by kinds that need a package."""

import importlib.util
from typing import TYPE_CHECKING, Any, Literal

import torch

from collapselab.errors import ModelError
from collapselab.models.weight_files import StoredWeights, quantised_as, rounding_facts

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

LoadIn = Literal["4bit", "8bit"]

PACKAGES = {
    "gptq": ("optimum", "gptqmodel"),
    "awq": ("gptqmodel",),
    "bitsandbytes": ("bitsandbytes",),
    "compressed-tensors": ("compressed_tensors",),
    "aqlm": ("aqlm",),
    "hqq": ("hqq",),
    "torchao": ("torchao",),
    "quanto": ("optimum",),
}
"""What the library needs to load each kind of quantised weights."""


def check_packages(config: "PreTrainedConfig", *, name: str) -> None:
    """ModelError that names what is not installed, if the model is stored in a kind that needs it."""
    facts = rounding_facts(config) or {}
    method = str(getattr(facts.get("quant_method"), "value", facts.get("quant_method") or ""))
    missing = [package for package in PACKAGES.get(method, ()) if importlib.util.find_spec(package) is None]
    if missing:
        raise ModelError(
            f"{name}: its weights are {quantised_as(config, None)}, which transformers loads with "
            f"{' and '.join(missing)}. Install {' '.join(missing)}, or name the model in plain weights."
        )


def rounding(
    load_in: LoadIn, config: "PreTrainedConfig", stored: StoredWeights | None, dtype: torch.dtype, *, name: str
) -> dict[str, Any]:
    """The library's argument that rounds weights while they are loaded; ModelError where that cannot be."""
    if (already := quantised_as(config, stored)) is not None:
        raise ModelError(f"{name}: its weights are {already} already. Leave out --load-in {load_in}.")
    if importlib.util.find_spec("bitsandbytes") is None:
        raise ModelError(
            f"{name}: --load-in {load_in} needs the package bitsandbytes. Install collapselab[bitsandbytes]."
        )
    from transformers import BitsAndBytesConfig

    settings: Any = BitsAndBytesConfig
    if load_in == "8bit":
        return {"quantization_config": settings(load_in_8bit=True)}
    return {"quantization_config": settings(load_in_4bit=True, bnb_4bit_compute_dtype=dtype)}
