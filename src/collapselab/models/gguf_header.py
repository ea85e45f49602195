"""What a GGUF file says it holds, read and checked before a model is built of it.

The library uses its own defaults for what a file does not state: from three strings it builds a model of seven billion
parameters. Here a file names its architecture, width and depth, has a tensor for each block, and is as long as its
tensors are. Every length is compared with what is left of the file before it is used, so that reading always ends.
"""

import math
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, final

from collapselab.errors import ModelError

MAGIC, VERSIONS, ALIGNMENT = b"GGUF", (2, 3), 32
STRING, ARRAY = 8, 9
SCALARS = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"
}  # fmt: skip
"""Kinds of values by their number in a file, as `struct` calls them; strings and arrays are read apart."""

DIMENSIONS = 4
Value = str | int | float | bool


@final
@dataclass(frozen=True)
class GgufTensor:
    """One entry of the list of tensors. `shape` has the fastest axis first, as the file has it."""

    shape: tuple[int, ...]
    kind: int
    offset: int

    @property
    def numbers(self) -> int:
        return math.prod(self.shape)


@final
@dataclass(frozen=True)
class GgufHeader:
    """Metadata (of arrays only the lengths) and the list of tensors."""

    metadata: dict[str, Value]
    tensors: dict[str, GgufTensor]
    data_start: int
    size: int

    @property
    def architecture(self) -> Value | None:
        return self.metadata.get("general.architecture")

    def setting(self, name: str) -> Value | None:
        """A setting of the architecture, such as block_count."""
        return self.metadata.get(f"{self.architecture}.{name}")


def read_header(path: Path, *, name: str) -> GgufHeader:
    """The header of a whole GGUF file of a language model, or what is wrong with it."""
    with path.open("rb") as file:
        reader = _Reader(file, name)
        if file.read(4) != MAGIC:
            raise ModelError(f"{name}: not a GGUF file; its first four bytes are not GGUF. Download it again.")
        if (version := reader.number("<I")) not in VERSIONS:
            raise ModelError(f"{name}: GGUF of version {version}; versions 2 and 3 can be read. Convert it again.")
        tensors, values = reader.number("<Q"), reader.number("<Q")
        metadata = {reader.text(): reader.value(reader.number("<I")) for _ in range(values)}
        entries = dict(reader.tensor() for _ in range(tensors))
        alignment = metadata.get("general.alignment", ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 1:
            raise ModelError(f"{name}: general.alignment is {alignment!r}; a positive number is needed.")
        start = -(-file.tell() // alignment) * alignment
    header = GgufHeader(metadata, entries, start, reader.size)
    _check_content(header, name)
    _check_size(header, name)
    return header


@final
class _Reader:
    """Reads a file from its beginning and never past its end."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self.file, self.name = file, name
        self.size = os.fstat(file.fileno()).st_size

    def number(self, kind: str) -> int:
        return int(self._unpacked(kind))

    def text(self) -> str:
        length = self.number("<Q")
        self._need(length)
        return self.file.read(length).decode(errors="replace")

    def value(self, kind: int) -> Value:
        if kind == STRING:
            return self.text()
        if kind == ARRAY:
            return self._skip_array()
        return self._unpacked(self._scalar(kind))

    def tensor(self) -> tuple[str, GgufTensor]:
        name, dimensions = self.text(), self.number("<I")
        if not 1 <= dimensions <= DIMENSIONS:
            raise ModelError(f"{self.name}: {name} has {dimensions:,} dimensions; 1 to {DIMENSIONS} are possible.")
        shape = tuple(self.number("<Q") for _ in range(dimensions))
        return name, GgufTensor(shape, self.number("<I"), self.number("<Q"))

    def _unpacked(self, kind: str) -> int | float | bool:
        size = struct.calcsize(kind)
        self._need(size)
        value: int | float | bool = struct.unpack(kind, self.file.read(size))[0]
        return value

    def _skip_array(self) -> int:
        """The length of an array whose values are not kept."""
        kind, length = self.number("<I"), self.number("<Q")
        if kind == STRING:
            for _ in range(length):
                self._skip(self.number("<Q"))
        else:
            self._skip(length * struct.calcsize(self._scalar(kind)))
        return length

    def _scalar(self, kind: int) -> str:
        if kind not in SCALARS:
            raise ModelError(f"{self.name}: damaged; a value of kind {kind:,}, which GGUF does not have.")
        return SCALARS[kind]

    def _skip(self, size: int) -> None:
        self._need(size)
        self.file.seek(size, os.SEEK_CUR)

    def _need(self, size: int) -> None:
        left = self.size - self.file.tell()
        if size > left:
            raise ModelError(
                f"{self.name}: cut off or damaged; {size:,} bytes are needed at byte {self.file.tell():,} of its "
                f"header, and {left:,} are left. Download it again."
            )


def _check_content(header: GgufHeader, name: str) -> None:
    """Refuse a file that leaves to the library's defaults what kind of model it is, how wide and how deep."""
    if not isinstance(header.architecture, str):
        raise ModelError(f"{name}: names no general.architecture; its metadata has {len(header.metadata):,} values.")
    if "token_embd.weight" not in header.tensors:
        raise ModelError(
            f"{name}: {header.architecture} without token_embd.weight; its {len(header.tensors):,} tensors are not "
            "those of a language model."
        )
    if header.metadata.get("split.count", 0) not in (0, 1):
        raise ModelError(
            f"{name}: one of {header.metadata['split.count']} parts. Merge them (llama-gguf-split --merge)."
        )
    width, depth = header.setting("embedding_length"), header.setting("block_count")
    actual = header.tensors["token_embd.weight"].shape[0]
    if width != actual:
        raise ModelError(f"{name}: embedding_length is {width}, but token_embd.weight is {actual:,} wide.")
    blocks = {key.split(".")[1] for key in header.tensors if key.startswith("blk.")}
    if depth != len(blocks):
        raise ModelError(f"{name}: block_count is {depth}, but its tensors are those of {len(blocks):,} blocks.")


def _check_size(header: GgufHeader, name: str) -> None:
    """Refuse a file that ends before its tensors do."""
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    for key, tensor in header.tensors.items():
        try:
            numbers, size = GGML_QUANT_SIZES[GGMLQuantizationType(tensor.kind)]
        except (ValueError, KeyError) as error:
            raise ModelError(f"{name}: {key} is of kind {tensor.kind:,}, which the package gguf lacks.") from error
        end = header.data_start + tensor.offset + -(-tensor.numbers // numbers) * size
        if end > header.size:
            raise ModelError(
                f"{name}: cut off; {key} of shape {tensor.shape} ends at byte {end:,}, and the file has "
                f"{header.size:,}. Download it again."
            )
