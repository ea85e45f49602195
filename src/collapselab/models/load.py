"""Models, loaded strictly.

The library is lenient: it initialises missing weights at random, drops weights that the model has no place for, loads
an encoder as a decoder and a classifier as a language model. Here every weight that the model needs is in the
checkpoint, every weight of its modules in the checkpoint is in the model, or it is refused. Code that comes with a
model does not run unless the user asks for it, and pickles are read for their tensors only.
"""

import hashlib
import json
import pickle
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import torch
from torch import Tensor, nn

from collapselab.errors import ConfigError, ModelError
from collapselab.hub import Pretrained
from collapselab.messages import logger
from collapselab.models.adapters import with_adapter
from collapselab.models.find import ModelSource, check_no_adapter, place_of, weights_on_disk
from collapselab.models.taps import hooks_of
from collapselab.models.weight_files import LoadIn, check_enough, first_of, quantised_as, rounding
from collapselab.records.run import verify_copy

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

BUFFERS = ("attn.bias", "attention.bias", "masked_bias", "inv_freq", "position_ids")
"""Ends of the names of causal masks and positions that older checkpoints carry and newer models make themselves."""

HASHED_AT_ONCE = 1 << 24
NOT_HASHED = {
    "_name_or_path", "architectures", "dtype", "torch_dtype", "quantization_config", "transformers_version", "use_cache"
}  # fmt: skip
"""Settings that say where the model comes from and how it is kept, not what it computes."""


STRATEGIES = ("auto", "balanced", "balanced_low_0", "sequential")

Place = str | int | torch.device
DeviceMap = str | dict[str, Place]
"""One of `STRATEGIES`, or a device for each module by its name: a GPU's number, "cpu" or "disk"."""


class LoadingInfo(TypedDict):
    """The report of transformers on the weights that it loaded."""

    missing_keys: set[str]
    unexpected_keys: set[str]
    mismatched_keys: set[tuple[str, torch.Size, torch.Size]]


def load_model(
    source: ModelSource,
    *,
    device: str | torch.device = "cpu",
    dtype: torch.dtype | None = None,
    trust_code: bool = False,
    place: Pretrained | None = None,
    load_in: LoadIn | None = None,
    device_map: DeviceMap | None = None,
    offload: Path | None = None,
) -> "PreTrainedModel":
    """Load a model for measuring: in evaluation mode, without gradients, on the device, with every weight in its place.

    Without a `dtype` the weights stay as stored, but for a CPU, where half precision is very slow: float32 there.
    `place` is that of `place_of(source)`, where it is known. `load_in` rounds the weights to that many bits.
    `device_map` spreads the model over devices; what goes to the disk is written to the folder `offload`.
    """
    target = find_device(str(device))
    place = place or place_of(source)  # first: refusing an unknown name needs no library
    if place.is_local and source.checkpoint is None:
        verify_copy(Path(place.path))

    import transformers
    from transformers import AutoModelForCausalLM, PreTrainedModel

    from collapselab.models.fused_kernels import use_fused_kernels

    library: Any = AutoModelForCausalLM
    with _in_one_message(source), _silence(), place.parsed_once():
        check_no_adapter(source, place)
        weights = weights_on_disk(source, place) if place.is_local else None
        config = causal_config(source, place, trust_code=trust_code)
        kept: torch.dtype | str = dtype or (torch.float32 if target.type == "cpu" else "auto")
        fewer_bits: dict[str, Any] = {}
        if load_in is not None:
            computed = kept if isinstance(kept, torch.dtype) else torch.bfloat16
            fewer_bits = rounding(load_in, config, weights, computed, name=source.name)
            fewer_bits["device_map"] = {"": target}  # rounded weights do not move afterwards
        packed: dict[str, Any] = {}
        if place.gguf_file is not None and hasattr(transformers, "GgufConfig"):
            # The library would leave the weights packed, and fetch kernels for them.
            packed = {"quantization_config": transformers.GgufConfig(dequantize=True)}
        spread: dict[str, Any] = {}
        if device_map is not None:
            spread = {"device_map": device_map, **({} if offload is None else {"offload_folder": str(offload)})}
        if weights is not None:
            check_enough(partial(outline, config, trust_code=trust_code), weights, name=source.name)
        model, facts = library.from_pretrained(
            config=config,
            dtype=kept,
            trust_remote_code=trust_code,
            weights_only=True,
            ignore_mismatched_sizes=True,  # ours to refuse, with the names
            output_loading_info=True,
            **place.arguments,
            **packed | fewer_bits | spread,
        )
        _check_weights(source, model, facts)
        if place.adapter is not None:
            keep_apart = device_map is not None or quantised_as(model.config, weights) is not None
            model = with_adapter(model, place.adapter, name=source.name, keep_apart=keep_apart)
    if isinstance(model, PreTrainedModel) and not spread:
        use_fused_kernels(model)
    placed = model if fewer_bits or spread else model.to(target)
    return placed.eval().requires_grad_(False)  # type: ignore[no-any-return]


def find_device(name: str) -> torch.device:
    """Return the device of a name; `auto` is the accelerator of this machine (CUDA, XPU, MPS), else the CPU."""
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if name == "auto":
        if accelerator is not None:
            _name_device(accelerator.type)
        return accelerator or torch.device("cpu")
    kind, _, index = name.partition(":")
    if kind not in ("cpu", "cuda", "xpu", "mps") and (accelerator is None or kind != accelerator.type):
        raise ConfigError(f"device: {name!r} is not one. Choose auto, cpu, cuda, cuda:0 …, xpu or mps.")
    if kind == "cpu" and not index:
        return torch.device("cpu")
    here = torch.accelerator.device_count() if accelerator is not None and kind == accelerator.type else 0
    if (index and not index.isdecimal()) or int(index or 0) >= here:
        raise ConfigError(f"device: {name} was asked for, but is not here. Choose auto or cpu.")
    return torch.device(name)


@cache
def _name_device(kind: str) -> None:
    """Say once which accelerator `auto` found."""
    logger(__name__).info("Using the device %s (--device cpu for the CPU).", kind)


def parsed_device_map(given: DeviceMap | None) -> DeviceMap | None:
    """Return the device map of a strategy, a JSON file or a dict; raise ConfigError for anything else."""
    if given is None or isinstance(given, dict) or given in STRATEGIES:
        return given
    try:
        places = json.loads(Path(given).read_text("utf-8"))
    except (OSError, ValueError) as error:
        known = ", ".join(STRATEGIES)
        raise ConfigError(
            f"device_map: {given!r} is none of {known}, and no JSON file with devices by module."
        ) from error
    return dict(places)


def model_hash(model: "PreTrainedModel") -> str:
    """Hash what the model computes (16 hex digits): its configuration and the numbers in its weights.

    The same wherever the model was loaded from and whichever device it is on. Half-precision weights are the float32
    numbers they are equal to, so that loading them as float32 changes nothing; rounding to half precision does.
    """
    settings = _hashed(model.config.to_diff_dict()) | _adapters(model)
    digest = hashlib.blake2b(json.dumps(settings, sort_keys=True, default=str).encode(), digest_size=8)
    seen: set[int] = set()
    for name, tensor in sorted(model.state_dict(keep_vars=True).items()):
        if id(tensor) not in seen:  # tied tensors once
            seen.add(id(tensor))
            digest.update(f"\n{name} {tuple(tensor.shape)}\n".encode())
            stored = _offloaded(model, name) if tensor.is_meta else tensor
            for part in torch.split(stored.detach().reshape(-1), HASHED_AT_ONCE):
                wide = part.float() if part.dtype in (torch.float16, torch.bfloat16) else part
                digest.update(wide.cpu().contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _hashed(settings: Mapping[str, object]) -> dict[str, object]:
    return {
        str(name): _hashed(value) if isinstance(value, dict) else value
        for name, value in settings.items()
        if name not in NOT_HASHED
    }


def _adapters(model: nn.Module) -> dict[str, object]:
    """Strength and state of each adapter layer, which no weight shows; nothing for a model without one."""
    layers = {
        name: [module.scaling, list(module.active_adapters), module.disable_adapters, module.merged]
        for name, module in model.named_modules()
        if isinstance(getattr(module, "scaling", None), dict) and hasattr(module, "active_adapters")
    }
    return {"adapters": layers} if layers else {}


def _offloaded(model: nn.Module, name: str) -> Tensor:
    """Read a tensor of the model's state that is on the disk; ModelError if it is nowhere."""
    path, _, leaf = name.rpartition(".")
    for hook in hooks_of(model.get_submodule(path)):
        weights = getattr(hook, "weights_map", None)
        if weights is not None:
            kept: Tensor = weights[leaf]
            return kept
    raise ModelError(f"the model's {name} is not in memory, and nothing says where it is. Load the model again.")


def outline(config: "PreTrainedConfig", *, trust_code: bool) -> nn.Module:
    """Build the model of a configuration without weights in memory."""
    from transformers import AutoModelForCausalLM

    library: Any = AutoModelForCausalLM
    with torch.device("meta"):
        return library.from_config(config, trust_remote_code=trust_code)  # type: ignore[no-any-return]


def causal_config(source: ModelSource, place: Pretrained, *, trust_code: bool) -> "PreTrainedConfig":
    """Return the configuration of a model; raise ModelError unless it is a causal language model."""
    from transformers import CONFIG_MAPPING, AutoConfig, PreTrainedConfig

    with place.parsed_once():
        settings, _ = PreTrainedConfig.get_config_dict(**place.arguments)
    kind, own_code = settings.get("model_type"), settings.get("auto_map", {})
    if kind not in CONFIG_MAPPING and not (own_code and trust_code):
        raise ModelError(
            f"{source.name}: {kind or 'a model'} that comes with its own code, which runs only if you trust it. "
            "Read it, then use --trust-code."
            if own_code
            else f"{source.name}: its config.json names the model_type {kind!r}, which transformers does not know."
        )
    config: PreTrainedConfig
    if place.gguf_file is not None:  # AutoConfig would parse the whole file again
        config = CONFIG_MAPPING[str(kind)].from_dict(settings)
    else:
        config = AutoConfig.from_pretrained(trust_remote_code=trust_code, **place.arguments)
    if getattr(config, "transformers_weights", None) is not None:  # would take the place of the files that we verify
        raise ModelError(f"{source.name}: its config.json names a file of weights (transformers_weights). Remove that.")
    config.return_dict = True  # features and logits are read by name
    if not (trust_code and "AutoModelForCausalLM" in own_code):
        check_causal(config, name=source.name)
    return config


def check_causal(config: "PreTrainedConfig", *, name: str) -> None:
    """Refuse what was not trained to predict the next token from those before it, though the library would load it."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_MASKED_LM_MAPPING

    kind, type_name = type(config), config.model_type
    needed = "A causal language model is needed."
    if getattr(config, "is_encoder_decoder", False):
        raise ModelError(f"{name}: {type_name} is an encoder-decoder (sequence to sequence). {needed}")
    encoder = kind in MODEL_FOR_MASKED_LM_MAPPING or type_name in ("bert-generation", "xlnet")
    both_ways = (
        getattr(config, "use_bidirectional_attention", False) is True or getattr(config, "is_causal", True) is False
    )
    if (encoder and not getattr(config, "is_decoder", False)) or both_ways:
        raise ModelError(f"{name}: {type_name} is an encoder; its tokens see those after them. {needed}")
    if kind not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise ModelError(f"{name}: {type_name} is not a language model. {needed}")
    classes = MODEL_FOR_CAUSAL_LM_MAPPING[kind]
    causal = {one.__name__ for one in (classes if isinstance(classes, tuple) else (classes,)) if one is not None}
    others = [saved for saved in config.architectures or () if "For" in saved and saved not in causal]
    if others and not any(saved.endswith("ForCausalLM") for saved in others):
        raise ModelError(f"{name}: was saved as {others[0]}, without an output layer over tokens. {needed}")


def _check_weights(source: ModelSource, model: nn.Module, facts: "LoadingInfo") -> None:
    left = {name for name in facts["unexpected_keys"] if _belongs(name, model)}
    shapes = {f"{name} ({tuple(stored)}, not {tuple(needed)})" for name, stored, needed in facts["mismatched_keys"]}
    for names, problem in (
        (facts["missing_keys"], "are missing"),
        (shapes, "have another shape than config.json says"),
        (left, "have no place in the model"),
    ):
        if names:
            raise ModelError(
                f"{source.name}: {len(names):,} of {len(model.state_dict()):,} weights {problem}: "
                f"{first_of(sorted(names))}. The checkpoint is incomplete, or its config.json belongs to another."
            )


def _belongs(name: str, model: nn.Module) -> bool:
    """Whether a weight left over would change what the model computes: it is of a module, or of a block, of the body.

    A value head, a vision tower, a second output layer beside the body belong to other models.
    """
    if name.endswith(BUFFERS):
        return False
    modules = dict(model.named_modules())
    for start in (name, f"{getattr(model, 'base_model_prefix', '')}.{name}"):
        parents = start.split(".")[:-1]
        known = [".".join(parents[: n + 1]) for n in range(len(parents)) if ".".join(parents[: n + 1]) in modules]
        if known and (len(known) == len(parents) or any(isinstance(modules[path], nn.ModuleList) for path in known)):
            return True
    return False


@contextmanager
def _in_one_message(source: ModelSource) -> Iterator[None]:
    """Turn whatever the library raises for files that it cannot read into one error that names the model."""
    from huggingface_hub.errors import StrictDataclassError
    from safetensors import SafetensorError

    refusals = (
        OSError, ValueError, TypeError, LookupError, AttributeError, RuntimeError, ImportError, EOFError,
        AssertionError, ArithmeticError, MemoryError, pickle.UnpicklingError, re.error, SafetensorError,
        StrictDataclassError,
    )  # fmt: skip
    try:
        yield
    except refusals as error:
        raise ModelError(f"{source.name}: cannot be loaded: {reason(error)}") from error


@contextmanager
def _silence() -> Iterator[None]:
    """Let the library print nothing about the loading: what matters is in the errors here."""
    import transformers

    logging: Any = transformers.utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def reason(error: BaseException) -> str:
    """Return the message of an error of the library in one line, with its type where that says more."""
    text = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {text}" if isinstance(error, LookupError | ArithmeticError) or not text else text
