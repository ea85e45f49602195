"""corpus.json: what a corpus is, typed, and everything about it that can be verified.

Format 2 carries a checksum of its own contents. Format 1, of earlier versions, has none: there the hash is computed
again, and every number that follows from the files is compared with them.
"""

import hashlib
import json
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from collapselab.disk import read_document
from collapselab.errors import CorpusError

FORMAT = 2
HASHED = ("train.bin", "validation.bin", "counts.npy", "tokenizer/tokenizer.json")
"""The files that decide what a corpus is; its hash is over these, and over LENGTHS where there are any."""
LENGTHS = "lengths.npy"
SPLITS = ("train", "validation")

_TYPED = ConfigDict(frozen=True, strict=True, extra="allow")


class FileRecord(BaseModel):
    """Size and checksum of one file."""

    model_config = _TYPED

    bytes: int = Field(ge=0)
    sha256: str


class SplitRecord(BaseModel):
    """Numbers of one split."""

    model_config = _TYPED

    documents: int = Field(ge=0)
    characters: int = Field(ge=0)
    tokens: int = Field(ge=0)
    """Of the documents, without the marks."""
    types: int = Field(ge=0)
    types_seen_once: int = Field(ge=0)
    blocks: int = Field(ge=1)
    tokens_dropped: int = Field(ge=0)
    classes: int = Field(ge=0)
    id_type: Literal["uint16", "uint32"]
    samples: int | None = Field(None, ge=0)
    """Positions that have a label; None in format 1, where all positions but the last of a block have one."""
    documents_cut: int = Field(0, ge=0)
    """Documents longer than a block, whose rest was dropped: `document` packing."""


class SplitRecords(BaseModel):
    """Both splits."""

    model_config = _TYPED

    train: SplitRecord
    validation: SplitRecord


class RequestRecord(BaseModel):
    """What was asked for: the source, and every field of the recipe that its version had."""

    model_config = _TYPED

    source: dict[str, Any]
    tokenizer: str
    packing: Literal["stream", "paper", "document"]


class CorpusRecord(BaseModel):
    """All of corpus.json."""

    model_config = _TYPED

    format: Literal[1, 2]
    hash: str
    request: RequestRecord
    block: int = Field(ge=2)
    vocabulary: int = Field(ge=1)
    end_of_text: int | None = None
    boundary: Literal["begin", "end", "both", "none"] = "end"
    begin: Literal["block", "document", "none"] | None = None
    """Where a begin token is: at the head of every block, of every document, or nowhere. None in format 1."""
    tokenizer_hash: str | None = None
    """By what the tokenizer does; None in format 1."""
    splits: SplitRecords
    files: dict[str, FileRecord]
    versions: dict[str, str] = {}

    @property
    def first(self) -> int:
        """Positions at the head of every block that are no sample: that of a begin token put there."""
        return 1 if self.begin == "block" else 0

    def samples(self, split: str) -> int:
        """Positions of a split that have a label."""
        numbers: SplitRecord = getattr(self.splits, split)
        return numbers.blocks * (self.block - 1) if numbers.samples is None else numbers.samples

    def contents_hash(self) -> str:
        """The identity of the contents: over block length and checksums, and that begin tokens are in every block."""
        names = [*HASHED, *([LENGTHS] if LENGTHS in self.files else [])]
        files = {name: {"bytes": self.files[name].bytes, "sha256": self.files[name].sha256} for name in names}
        said: list[Any] = [self.block, files]
        if self.begin == "block":
            said.append({"begin": "block"})
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]


def read_record(folder: Path) -> CorpusRecord:
    """corpus.json, verified as far as it goes without the other files; or what is wrong with the folder."""
    if not folder.is_dir():
        raise CorpusError(f"{folder}: no such folder. Build a corpus with `collapselab corpus build`.")
    path = folder / "corpus.json"
    try:
        document = read_document(path, unchecked=True)
    except FileNotFoundError as error:
        raise CorpusError(f"{folder}: not a corpus; it has no corpus.json.") from error
    if "format" not in document:
        raise CorpusError(f"{path}: not one of ours; it has no format.")
    if document["format"] not in (1, FORMAT):
        raise CorpusError(f"{folder}: format {document['format']}; this version reads 1 and 2. Build the corpus again.")
    try:
        record = CorpusRecord(**document)
    except (ValidationError, TypeError) as error:
        raise CorpusError(f"{path}: damaged or edited; {_first_error(error)}. Build the corpus again.") from error
    _check_record(path, record)
    return record


def check_counts(path: Path, record: CorpusRecord, counts: NDArray[Any], lengths: NDArray[Any] | None) -> None:
    """CorpusError where the numbers of corpus.json are not those of counts.npy and lengths.npy."""
    if counts.shape != (2, 2, record.vocabulary) or counts.dtype != np.int64:
        raise CorpusError(
            f"{path / 'counts.npy'}: {counts.dtype} numbers of shape {counts.shape}, not int64 of (2, 2, "
            f"{record.vocabulary}). Build the corpus again."
        )
    for name, (tokens, labels) in zip(SPLITS, counts, strict=True):
        numbers: SplitRecord = getattr(record.splits, name)
        expected = {
            "tokens": (numbers.tokens, int(tokens.sum())),
            "types": (numbers.types, int((tokens > 0).sum())),
            "types_seen_once": (numbers.types_seen_once, int((tokens == 1).sum())),
            "classes": (numbers.classes, int((labels > 0).sum())),
            "samples": (record.samples(name), int(labels.sum())),
        }
        for key, (said, counted) in expected.items():
            if said != counted:
                raise CorpusError(
                    f"{path / 'corpus.json'}: {name} has {said:,} {key.replace('_', ' ')}, but counts.npy {counted:,}; "
                    "damaged or edited. Build the corpus again."
                )
    if lengths is not None:
        _check_lengths(path, record, lengths)


def _check_record(path: Path, record: CorpusRecord) -> None:
    missing = [name for name in HASHED if name not in record.files]
    if missing:
        raise CorpusError(f"{path}: damaged or edited; files has no {missing[0]}. Build the corpus again.")
    if record.contents_hash() != record.hash:
        raise CorpusError(
            f"{path}: damaged or edited; its hash is {record.hash}, that of what it lists {record.contents_hash()}. "
            "Build the corpus again."
        )
    for name in SPLITS:
        numbers: SplitRecord = getattr(record.splits, name)
        size, found = np.dtype(numbers.id_type).itemsize, record.files[f"{name}.bin"].bytes
        if numbers.blocks * record.block * size != found:
            raise CorpusError(
                f"{path}: damaged or edited; {name} has {numbers.blocks:,} blocks of {record.block:,} ids of {size} "
                f"bytes, but {name}.bin has {found:,} bytes. Build the corpus again."
            )


def _check_lengths(path: Path, record: CorpusRecord, lengths: NDArray[Any]) -> None:
    blocks = record.splits.train.blocks + record.splits.validation.blocks
    good = lengths.shape == (blocks,) and lengths.dtype == np.int32
    if not good or bool((lengths < 2).any() or (lengths > record.block).any()):
        raise CorpusError(
            f"{path / LENGTHS}: {lengths.dtype} numbers of shape {lengths.shape}; {blocks:,} int32 from 2 to "
            f"{record.block:,} are needed. Build the corpus again."
        )


def _first_error(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors()[0]
    what = first["msg"][0].lower() + first["msg"][1:]
    return f"{'.'.join(str(part) for part in first['loc'])}: {what}"
