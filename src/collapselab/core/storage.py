"""Tensors on disk, whole or not at all, with a checksum over all that a reader relies on.

safetensors checks that the file is long enough, not that its bytes are the ones written. The digest here covers names,
types, shapes, bytes and metadata, so a flipped bit anywhere is an error and never a slightly different number.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from collapselab.disk import written_whole

WRITTEN_BYTES = 16 << 20
"""Size of the rows of a table that are selected and written at once."""

TYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
    torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip
"""Names of the types in safetensors."""


@dataclass(frozen=True)
class Rows:
    """Some rows of a table, selected only as they are written, so that they take no memory of their own."""

    table: Tensor
    chosen: Tensor

    @property
    def dtype(self) -> torch.dtype:
        return self.table.dtype

    @property
    def shape(self) -> torch.Size:
        return torch.Size([len(self.chosen), *self.table.shape[1:]])

    def parts(self) -> Iterator[Tensor]:
        row_bytes = max(1, self.table[:1].numel() * self.table.element_size())
        for some in torch.split(self.chosen, max(1, WRITTEN_BYTES // row_bytes)):
            yield self.table.index_select(0, some)


def save_tensors(
    path: str | Path, tensors: Mapping[str, Tensor | Rows], *, kind: str, facts: dict[str, object]
) -> None:
    """Write tensors and a few facts about them as one safetensors file that `load_tensors` can verify."""
    text = json.dumps(facts, sort_keys=True)
    metadata = {"kind": kind, "facts": text, "digest": _digest(tensors, kind, text)}
    order = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))  # so that each is aligned
    with written_whole(path) as temporary, temporary.open("wb") as file:
        file.write(_header({name: tensors[name] for name in order}, metadata))
        for name in order:
            for part in _bytes(tensors[name]):
                file.write(part)


def load_tensors(path: str | Path, *, kind: str) -> tuple[dict[str, Tensor], dict[str, object]]:
    """The tensors and facts that `save_tensors` wrote; ValueError where the file is foreign or damaged.

    Tensors are memory mapped: copy one to keep it.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file.")
    try:
        file: Any = safe_open(path, framework="pt")
    except SafetensorError as error:
        raise ValueError(f"{path}: damaged, or not a safetensors file ({error}).") from error
    metadata, tensors = file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    stored_kind = metadata.get("kind")
    if stored_kind != kind:
        raise ValueError(f"{path}: holds {stored_kind or 'unknown tensors'}, not {kind}.")
    text = metadata.get("facts", "")
    if metadata.get("digest") != _digest(tensors, kind, text):
        raise ValueError(f"{path}: damaged; its contents do not match their checksum. Delete it and make it again.")
    return tensors, json.loads(text)


def _header(tensors: Mapping[str, Tensor | Rows], metadata: dict[str, str]) -> bytes:
    """The beginning of a safetensors file: a length, and in JSON the type, shape and place of every tensor."""
    entries: dict[str, object] = {"__metadata__": metadata}
    end = 0
    for name, tensor in tensors.items():
        start, end = end, end + tensor.shape.numel() * tensor.dtype.itemsize
        entries[name] = {"dtype": TYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _bytes(tensor: Tensor | Rows) -> Iterator[memoryview]:
    for part in [tensor] if isinstance(tensor, Tensor) else tensor.parts():
        if part.numel():
            yield part.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data


def _digest(tensors: Mapping[str, Tensor | Rows], kind: str, text: str) -> str:
    digest = hashlib.sha256(f"{kind}\n{text}\n".encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        for part in _bytes(tensor):
            digest.update(part)
    return digest.hexdigest()
