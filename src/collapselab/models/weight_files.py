"""The weights of a model as they are on disk: names, shapes and formats from the headers, without reading a number.

Two things are checked before a model is built and memory is allocated: that the files hold weights and not a pointer
to weights, and that there are as many as the configuration needs. Weights in fewer bits are stored so, by kinds that
need a package, or rounded while they are loaded (bitsandbytes).
"""

import importlib.util
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import nn

from collapselab.errors import ModelError
from collapselab.hub import LFS_POINTER, gguf_header

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

FORMATS = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "U8": "uint8", "I8": "int8",
    "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2"
}  # fmt: skip
"""The names of formats in safetensors and GGUF files, as PyTorch calls them; others keep their own."""

PLAIN = ("float64", "float32", "float16", "bfloat16")
"""Formats that a model computes in. Numbers in any other one are quantised."""

FLOATS = ("float", "bfloat")
"""Beginnings of formats that hold one weight a number."""

PACKING = ("int", "uint", "I", "U")
"""Beginnings of formats that weights are packed into; what is in them the configuration says."""

PACKED = 16
"""The most weights that quantised checkpoints pack into one number: 2 bits of 32 each."""

LoadIn = Literal["4bit", "8bit"]

GGUF_STATED = ("general.architecture", "split.count", ".embedding_length", ".block_count")
"""Endings of the metadata of a GGUF file that are compared with its tensors."""

SMALL = 1 << 26
"""Parameters below which a model may be built without looking: it takes less than 256 MB."""


@dataclass(frozen=True)
class StoredWeights:
    """Number of weights of each format on disk; an upper bound for packed formats."""

    formats: Counter[str]

    @property
    def weights(self) -> int:
        return self.formats.total()

    @property
    def format(self) -> str:
        """Format of most weights."""
        return self.formats.most_common(1)[0][0]


def stored_weights(path: Path, *, name: str) -> StoredWeights | None:
    """Return the weights of a folder or a .gguf file; None if there are none, or their format has no header."""
    if path.suffix == ".gguf":
        refuse_pointer(path, name=name)
        return _in_gguf(path, name)
    formats: Counter[str] = Counter()
    for file in _weight_files(path):
        refuse_pointer(file, name=name)
        for kind, shape in _in_safetensors(file) if file.suffix == ".safetensors" else _in_pickle(file):
            stored = FORMATS.get(kind, kind)
            formats[stored] += math.prod(shape) * (1 if stored.startswith(FLOATS) else PACKED)
    return StoredWeights(formats) if formats else None


def quantised_as(config: object, stored: StoredWeights | None) -> str | None:
    """Name the quantisation of a model; None if its weights are plain floats, or if that is not known."""
    if stored is not None and stored.format not in PLAIN and not stored.format.startswith(PACKING):
        return stored.format
    settings = getattr(config, "quantization_config", None)  # as the library stores it
    facts = settings if settings is None or isinstance(settings, dict) else dict(settings.to_dict())
    if facts is None:
        return None if stored is None or stored.format in PLAIN else stored.format
    method = str(getattr(facts.get("quant_method"), "value", facts.get("quant_method")))
    bits = 4 if facts.get("load_in_4bit") else 8 if facts.get("load_in_8bit") else facts.get("bits")
    return f"{method}, {bits} bits" if bits else method


def rounding(
    load_in: LoadIn, config: "PreTrainedConfig", stored: StoredWeights | None, dtype: torch.dtype, *, name: str
) -> dict[str, Any]:
    """Return the argument of `from_pretrained` that quantises weights; raise ModelError if that is impossible."""
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


def refuse_pointer(file: Path, *, name: str) -> None:
    """ModelError if a file is what git leaves in place of a large file that was not fetched."""
    with file.open("rb") as opened:
        if opened.read(len(LFS_POINTER)) == LFS_POINTER:
            raise ModelError(
                f"{name}: {file.name} is a git-LFS pointer of {file.stat().st_size:,} bytes; the weights themselves "
                "were not downloaded. Run git lfs pull in its folder."
            )


def check_enough(outline: Callable[[], nn.Module], stored: StoredWeights, *, name: str) -> None:
    """ModelError if the configuration asks for far more than is on disk: the rest would be initialised at random.

    `outline` builds the model without memory. A model that is small enough is built, so that missing weights are named.
    """
    needed = sum(parameter.numel() for parameter in outline().parameters())
    if needed > SMALL and needed > 2 * stored.weights:
        raise ModelError(
            f"{name}: its configuration asks for {needed:,} parameters ({needed * 4 / 1e9:,.1f} GB in float32), but "
            f"the disk holds {stored.weights:,}. The configuration belongs to another model."
        )


def first_of(names: Sequence[str]) -> str:
    """Return the first four names, and how many more there are."""
    more = f" and {len(names) - 4:,} more" if len(names) > 4 else ""
    return ", ".join(names[:4]) + more


def _weight_files(folder: Path) -> list[Path]:
    """Return the weight files that transformers reads, in its order of preference."""
    for whole, index in (
        ("model.safetensors", "model.safetensors.index.json"),
        ("pytorch_model.bin", "pytorch_model.bin.index.json"),
    ):
        if (folder / whole).is_file():
            return [folder / whole]
        if (folder / index).is_file():
            refuse_pointer(folder / index, name=str(folder))
            names = sorted(set(json.loads((folder / index).read_text())["weight_map"].values()))
            for name in names:  # a link is fine, as in the hub's cache; what is not directly inside is not hashed
                if Path(name).name != name or name.startswith("."):
                    raise ModelError(f"{folder}: {index} names weights that are not beside it: {name}.")
            return [folder / name for name in names if (folder / name).is_file()]
    return []


def _in_safetensors(file: Path) -> Iterator[tuple[str, list[int]]]:
    from safetensors import safe_open

    with safe_open(file, framework="pt") as opened:
        for key in opened.keys():  # noqa: SIM118  it is no dict
            part = opened.get_slice(key)
            yield part.get_dtype(), part.get_shape()


def _in_pickle(file: Path) -> Iterator[tuple[str, list[int]]]:
    try:
        weights = torch.load(file, map_location="meta", weights_only=True, mmap=True)
    except RuntimeError:  # written by a version of PyTorch before files could be mapped
        return
    for weight in weights.values():
        if isinstance(weight, torch.Tensor):
            yield str(weight.dtype).removeprefix("torch."), list(weight.shape)


def _in_gguf(file: Path, name: str) -> StoredWeights:
    """Return the weights of a GGUF file; ModelError where it is damaged or no language model.

    The metadata must state the architecture, the width and the depth. transformers uses its own defaults for missing
    values, and would build a model of seven billion parameters from three strings.
    """
    try:
        reader = gguf_header(file)
        metadata = {key: field.contents() for key, field in reader.fields.items() if key.endswith(GGUF_STATED)}
    except (ValueError, LookupError, ArithmeticError, RecursionError) as error:
        raise ModelError(f"{name}: not a GGUF file, cut off or damaged: {error}. Download it again.") from error
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    architecture = metadata.get("general.architecture")
    if "token_embd.weight" not in tensors:
        raise ModelError(f"{name}: {architecture} without token_embd.weight; it is not a language model.")
    if (parts := metadata.get("split.count", 0)) not in (0, 1):
        raise ModelError(f"{name}: one of {parts} parts. Merge them (llama-gguf-split --merge).")
    width, shape = metadata.get(f"{architecture}.embedding_length"), tensors["token_embd.weight"].shape.tolist()
    if shape[:1] != [width]:
        raise ModelError(f"{name}: embedding_length is {width}, but token_embd.weight has the shape {shape}.")
    depth = metadata.get(f"{architecture}.block_count")
    blocks = len({key.split(".")[1] for key in tensors if key.startswith("blk.")})
    if depth != blocks:
        raise ModelError(f"{name}: block_count is {depth}, but its tensors are those of {blocks:,} blocks.")
    formats: Counter[str] = Counter()
    for tensor in tensors.values():
        formats[FORMATS.get(tensor.tensor_type.name, tensor.tensor_type.name)] += int(tensor.n_elements)
    return StoredWeights(formats)
