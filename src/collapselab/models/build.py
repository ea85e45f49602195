"""A causal language model of a given width and depth, with weights that follow from a seed.

Width and depth set the rest: the number of heads, the feed-forward size, the pattern of layers. `families.py` has the
families that are known by name; any other causal language model of the library comes as its config.json, resized.
"""

import difflib
import json
import math
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import (
    CONFIG_MAPPING,
    AutoModelForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
)

from collapselab.errors import ModelError
from collapselab.models.families import FAMILIES, Architecture, Sizes, architecture_of
from collapselab.models.fused_kernels import library_config, use_fused_kernels
from collapselab.models.load import check_causal, reason

# Sizes of a config.json that grow with the width, by the end of their names. Those of heads must stay whole and even.
HEAD_SIZES = ("head_dim", "rotary_dim", "kv_channels")
FEED_FORWARD_SIZES = ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", "dff")
WIDE_SIZES = (*HEAD_SIZES, *FEED_FORWARD_SIZES, "attention_hidden_size", "embed_proj_dim")
# Settings about another vocabulary, code that comes with a checkpoint, or weights that are not there.
LEFT_OUT = ("_token_id", "auto_map", "quantization_config")
# What the library raises for an impossible configuration.
REFUSALS = (
    StrictDataclassError, ValueError, TypeError, KeyError, AttributeError, RuntimeError, ImportError, ZeroDivisionError
)  # fmt: skip


def build_config(family: str, **sizes: Any) -> PreTrainedConfig:
    """The configuration of a family by name (`FAMILIES`), or of the model whose config.json `family` is the path of.

    `sizes` are the fields of `Sizes`.
    """
    chosen = Sizes(**sizes)
    if family in FAMILIES:
        return FAMILIES[family](chosen)
    if chosen.head_size is not None:
        raise ModelError(f"head_size: {family} has heads of its own. Leave it out, or choose a family of ours.")
    return _resized(_config_file(family), chosen)


def build_model(config: PreTrainedConfig, *, seed: int) -> PreTrainedModel:
    """The model with float32 weights on the CPU that follow from the seed alone; the random state is left as it was."""
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(seed)
        model = _from_config(config)
    _check_tied(model)
    use_fused_kernels(model)
    return model


def architecture(config: PreTrainedConfig) -> Architecture:
    """How large the model is, and what it computes; nothing is allocated."""
    return architecture_of(_outline(config))


def _outline(config: PreTrainedConfig) -> PreTrainedModel:
    with torch.device("meta"):
        return _from_config(config)


def _from_config(config: PreTrainedConfig) -> PreTrainedModel:
    library: Any = AutoModelForCausalLM
    model: PreTrainedModel = library.from_config(library_config(config), dtype=torch.float32, trust_remote_code=False)
    return model


def _config_file(family: str) -> Path:
    path = Path(family)
    if path.is_file():
        return path
    near = difflib.get_close_matches(family.lower(), FAMILIES, n=1, cutoff=0.4)
    raise ModelError(
        f"{family}: not a family of models. {f'Did you mean {near[0]}? ' if near else ''}"
        f"Choose from {', '.join(FAMILIES)}, or give the path of a config.json."
    )


def _resized(path: Path, sizes: Sizes) -> PreTrainedConfig:
    """The config of the file with other sizes. Ratios to the width stay; layers repeat their pattern, or are cut."""
    original = _causal_config(path)
    kind, old = type(original), original.to_dict()
    settings = {name: value for name, value in old.items() if not name.endswith(LEFT_OUT)} | sizes.tokens
    try:
        settings |= _wide_sizes(path, original, sizes.width) | _dropouts(path, old, sizes.dropout)
        settings |= _layer_lists(old, original.num_hidden_layers, sizes.depth)
        settings |= {
            kind.attribute_map.get(name, name): size for name, size in sizes.lengths.items() if hasattr(original, name)
        }
        config: PreTrainedConfig = kind.from_dict(settings)
        _check_rotary(path, config)
        _check_outline(path, _outline(config), (sizes.vocabulary, sizes.width))
    except REFUSALS as error:
        raise ModelError(f"{path}: {kind.model_type} cannot be built with these sizes: {reason(error)}") from error
    return config


def _causal_config(path: Path) -> PreTrainedConfig:
    try:
        name = json.loads(path.read_text(encoding="utf-8"))["model_type"]
        kind = CONFIG_MAPPING[name]
    except (ValueError, OSError) as error:
        raise ModelError(f"{path}: not readable as JSON: {error}.") from error
    except (KeyError, TypeError) as error:
        raise ModelError(f"{path}: names no model_type that the transformers library knows ({error}).") from error
    try:
        config: PreTrainedConfig = kind.from_json_file(str(path))
    except REFUSALS as error:
        raise ModelError(f"{path}: not a configuration of {name}: {reason(error)}") from error
    check_causal(config, name=str(path))
    parts = set(kind.sub_configs) - {"attn_config", "ffn_config"}
    if parts or not (hasattr(config, "hidden_size") and hasattr(config, "num_hidden_layers")):
        raise ModelError(f"{path}: {name} has no single width and depth. Give the config.json of its text model.")
    return config


def _wide_sizes(path: Path, original: PreTrainedConfig, width: int) -> dict[str, int]:
    old_width, heads = original.hidden_size, getattr(original, "num_attention_heads", 1)
    old = {name: size for name, size in original.to_dict().items() if name.endswith(WIDE_SIZES)}
    old = {name: size for name, size in old.items() if isinstance(size, int)}
    steps = [2 * old_width // math.gcd(old[name], 2 * old_width) for name in old if name.endswith(HEAD_SIZES)]
    step = math.lcm(*steps, 1 if old_width % heads else heads)
    if width % step:
        raise ModelError(f"{path}: width {width:,} does not fit its {heads} heads. Choose a multiple of {step:,}.")
    return {name: round(size * width / old_width) for name, size in old.items()}


def _dropouts(path: Path, settings: dict[str, object], dropout: float) -> dict[str, float]:
    others = ("classifier", "summary", "layerdrop")
    names = [name for name in settings if "drop" in name and not any(other in name for other in others)]
    if dropout and not names:
        raise ModelError(f"{path}: {settings['model_type']} has no dropout, but {dropout} was asked. Leave it at 0.")
    return dict.fromkeys(names, dropout)


def _layer_lists(settings: dict[str, object], old_depth: int, depth: int) -> dict[str, list[object]]:
    lists = {
        name: [values[layer % old_depth] for layer in range(depth)]
        for name, values in settings.items()
        if "layer" in name and isinstance(values, list) and len(values) == old_depth
    }
    if "attention_types" in settings:  # GPT-Neo writes its list of layers in a shorthand
        lists["attention_types"] = [[[kind], 1] for kind in lists["attention_layers"]]
    return lists


def _check_rotary(path: Path, config: PreTrainedConfig) -> None:
    width = config.hidden_size
    head_size = getattr(config, "head_dim", None) or width // getattr(config, "num_attention_heads", 1)
    rope = getattr(config, "rope_parameters", None) or {}
    share = rope.get("partial_rotary_factor", 1.0)
    if rope and (int(head_size * share) % 2 or int(head_size * share) < 2):
        raise ModelError(
            f"{path}: width {width:,} makes heads of {head_size} numbers, and positions turn {share:.0%} of them in "
            "pairs. Choose a larger multiple."
        )


def _check_outline(path: Path, model: Any, shape: tuple[int, int]) -> None:
    """Refuse a model that did not take the sizes where they are measured: at its embeddings and its output layer."""
    for layer in (model.get_input_embeddings(), model.get_output_embeddings()):
        actual = None if layer is None else tuple(layer.weight.shape)
        if actual != shape:
            raise ModelError(f"{path}: {model.config.model_type} has embeddings of {actual}, not {shape}.")
    _check_tied(model)


def _check_tied(model: PreTrainedModel) -> None:
    bare: Any = model
    shared = bare.get_input_embeddings().weight is bare.get_output_embeddings().weight
    if shared != model.config.tie_word_embeddings:
        raise ModelError(f"{model.config.model_type}: its embeddings are {'always' if shared else 'never'} tied.")
