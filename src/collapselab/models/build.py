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
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
    AutoModelForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
)

from collapselab.errors import ModelError
from collapselab.models.families import FAMILIES, Sizes
from collapselab.models.fused_kernels import library_config, use_fused_kernels
from collapselab.models.sizes import Architecture, architecture_of, check_sizes

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


def build_config(
    family: str,
    *,
    width: int,
    depth: int,
    vocabulary: int,
    positions: int,
    tied: bool = True,
    dropout: float = 0.0,
    end_of_text: int | None = None,
    head_size: int | None = None,
) -> PreTrainedConfig:
    """The configuration of a family by name (`FAMILIES`), or of the model whose config.json `family` is the path of.

    With `head_size` there are width / head_size heads, one where the width is smaller: small models train two to three
    times as fast with heads of 16 as with 16 heads. `dropout` is for every dropout of the family; `end_of_text` both
    begins and ends a text.
    """
    _check_sizes(width=width, depth=depth, vocabulary=vocabulary, positions=positions)
    _check_ranges(dropout, end_of_text, vocabulary)
    sizes = Sizes(width, depth, vocabulary, positions, tied, dropout, end_of_text, head_size)
    if family in FAMILIES:
        return FAMILIES[family](sizes)
    if head_size is not None:
        raise ModelError(f"head_size: {family} has heads of its own. Leave it out, or choose a family of ours.")
    return _resized(_config_file(family), sizes)


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
    if path.is_dir():
        raise ModelError(f"{family}: a folder. Give the path of the config.json in it.")
    if path.suffix == ".json" or len(path.parts) > 1:
        raise ModelError(f"{family}: no such file. Give the path of a config.json, or one of {', '.join(FAMILIES)}.")
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
        check_sizes(original)
        settings |= _wide_sizes(path, original, sizes.width) | _dropouts(path, old, sizes.dropout)
        settings |= _layer_lists(old, original.num_hidden_layers, sizes.depth)
        settings |= {
            kind.attribute_map.get(name, name): size for name, size in sizes.lengths.items() if hasattr(original, name)
        }
        config: PreTrainedConfig = kind.from_dict(settings)
        _check_rotary(path, config)
        _check_outline(path, _outline(config), (sizes.vocabulary, sizes.width))
    except REFUSALS as error:
        raise ModelError(f"{path}: {kind.model_type} cannot be built with these sizes: {_reason(error)}") from error
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
        raise ModelError(f"{path}: not a configuration of {name}: {_reason(error)}") from error
    if getattr(config, "is_encoder_decoder", False):
        raise ModelError(f"{path}: {name} is an encoder-decoder. A causal language model is needed.")
    encoder = kind in MODEL_FOR_MASKED_LM_MAPPING or name == "bert-generation"
    if (encoder and not getattr(config, "is_decoder", False)) or kind not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise ModelError(f"{path}: {name} is not a causal language model. Its tokens would see those after them.")
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


def _check_sizes(**sizes: int) -> None:
    for name, size in sizes.items():
        least = 1 if name == "depth" else 2
        if size < least:
            raise ModelError(f"{name}: {size:,} is too small. It is at least {least}.")


def _check_ranges(dropout: float, end_of_text: int | None, vocabulary: int) -> None:
    if not 0 <= dropout < 1:
        raise ModelError(f"dropout: {dropout} is not a probability below 1.")
    if end_of_text is not None and not 0 <= end_of_text < vocabulary:
        raise ModelError(f"end_of_text: {end_of_text:,} is outside the vocabulary of {vocabulary:,} tokens.")


def _check_rotary(path: Path, config: PreTrainedConfig) -> None:
    width = config.hidden_size
    head_size = getattr(config, "head_dim", None) or width // getattr(config, "num_attention_heads", 1)
    rope = getattr(config, "rope_parameters", None) or {}
    share = rope.get("partial_rotary_factor", 1.0)
    if rope and (int(head_size * share) % 2 or int(head_size * share) < 2):
        fit = next((size for size in range(2, 4096, 2) if int(size * share) >= 2 and int(size * share) % 2 == 0), 4096)
        raise ModelError(
            f"{path}: width {width:,} makes heads of {head_size} numbers, and positions turn {share:.0%} of them in "
            f"pairs. Width {width * fit // math.gcd(fit, head_size):,} would do."
        )


def _check_outline(path: Path, model: PreTrainedModel, shape: tuple[int, int]) -> None:
    """Refuse a model that did not take the sizes where they are measured: at its embeddings and its output layer."""
    for layer in _embeddings(model):
        actual = None if layer is None else tuple(layer.weight.shape)
        if actual != shape:
            raise ModelError(f"{path}: {model.config.model_type} has embeddings of {actual}, not {shape}.")
    _check_tied(model)


def _check_tied(model: PreTrainedModel) -> None:
    first, last = _embeddings(model)
    shared = first.weight is last.weight
    if shared != model.config.tie_word_embeddings:
        raise ModelError(f"{model.config.model_type}: its embeddings are {'always' if shared else 'never'} tied.")


def _embeddings(model: Any) -> tuple[Any, Any]:
    return model.get_input_embeddings(), model.get_output_embeddings()


def _reason(error: Exception) -> str:
    return str(error).strip().splitlines()[-1].strip() if str(error).strip() else type(error).__name__
