"""corpus.json: what a corpus is, where it comes from, and the size and checksum of its files.

Format 2 has a checksum of its own contents. Format 1, of earlier versions, has none: there the hash is computed again.
"""

import hashlib
import json
from pathlib import Path
from typing import Literal

from pydantic import ConfigDict, Field, JsonValue

from collapselab.disk import Part, Record
from collapselab.errors import CorpusError

CORPUS = "corpus.json"
LENGTHS, MARKOV = "lengths.npy", "markov.safetensors"
HASHED = ("train.bin", "validation.bin", "counts.npy", "tokenizer/tokenizer.json", LENGTHS, MARKOV)
"""The files that decide what a corpus is, the last two where they are there; its hash is over these."""
SplitName = Literal["train", "validation"]
SPLITS: tuple[SplitName, SplitName] = ("train", "validation")


class FileRecord(Part):
    """Size and checksum of one file."""

    bytes: int = Field(ge=0)
    sha256: str


class SplitRecord(Part):
    """Numbers of one split."""

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


class SplitRecords(Part):
    """Both splits."""

    train: SplitRecord
    validation: SplitRecord


class RequestRecord(Part):
    """What was asked for: the source, and every field of the recipe that its version had."""

    model_config = ConfigDict(extra="allow")

    source: dict[str, JsonValue]
    tokenizer: str
    packing: Literal["stream", "paper", "document"]


class CorpusRecord(Record):
    """All of corpus.json."""

    hash: str
    """Identity of the contents: block length and checksums of ids, counts, lengths, chain and `tokenizer.json`."""
    request: RequestRecord
    """Source and every option that it was built with; the same request opens it, another is refused."""
    block: int = Field(ge=2)
    """Tokens in a block."""
    vocabulary: int = Field(ge=1)
    """Tokens of the tokenizer."""
    end_of_text: int | None = None
    """Id of the end-of-text token."""
    boundary: Literal["begin", "end", "both", "none"] = "end"
    """How documents are marked: `end`, `begin`, `both`, or `none` with paper packing."""
    begin: Literal["block", "document", "none"] | None = None
    """Where a begin token is: at the head of every `block`, of every `document`, or `none`."""
    tokenizer_hash: str | None = None
    """Of what the tokenizer does, to compare with a model's."""
    splits: SplitRecords
    """Of each split: documents, characters, tokens, types, blocks, tokens dropped, classes, samples, documents cut."""
    files: dict[str, FileRecord]
    """Bytes and SHA-256 of each file."""
    versions: dict[str, str] = Field(default_factory=dict)
    """Of collapselab, tokenizers, transformers."""
    folder: str | None = None
    """Name of the folder that the text came from, which names the text; None if it was no single folder."""

    @property
    def first(self) -> int:
        """Positions at the head of every block that are no sample: that of a begin token put there."""
        return 1 if self.begin == "block" else 0

    def numbers(self, split: SplitName) -> SplitRecord:
        """The numbers of a split."""
        return self.splits.train if split == "train" else self.splits.validation

    def samples(self, split: SplitName) -> int:
        """Positions of a split that have a label."""
        numbers = self.numbers(split)
        return numbers.blocks * (self.block - 1) if numbers.samples is None else numbers.samples

    @property
    def text_hash(self) -> str:
        """Of where the text comes from and how it is split: the same for corpora of several tokenizers."""
        asked = self.request.model_dump(mode="json", include={"source", "validation_share", "seed"})
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def text_name(self) -> str:
        """What the text is called: the data set, the folder or the first of its files; else the kind of its source."""
        if self.folder:
            return self.folder
        source = self.request.source
        files = source.get("files")
        first = files[0] if isinstance(files, list) and files else None
        name = first.get("name") if isinstance(first, dict) else source.get("name")
        more = f" and {len(files) - 1:,} more" if isinstance(files, list) and len(files) > 1 else ""
        return f"{name or source.get('kind') or 'text'}{more}"

    def contents_hash(self) -> str:
        """The identity of the contents: over block length and checksums, and that begin tokens are in every block."""
        hashed = {name: file.model_dump() for name, file in self.files.items() if name in HASHED}
        contents: list[object] = [self.block, hashed]
        if self.begin == "block":
            contents.append({"begin": "block"})
        return hashlib.sha256(json.dumps(contents, sort_keys=True).encode()).hexdigest()[:16]

    def is_consistent(self) -> bool:
        """Whether the hash and the numbers of blocks are those of the files, which no checksum says in format 1."""
        sizes = {
            f"{name}.bin": self.block
            * self.numbers(name).blocks
            * {"uint16": 2, "uint32": 4}[self.numbers(name).id_type]
            for name in SPLITS
        }
        files = {name: file.bytes for name, file in self.files.items()}
        return sizes.items() <= files.items() and self.contents_hash() == self.hash


def read_corpus_record(folder: Path) -> CorpusRecord:
    """corpus.json, verified as far as possible without the other files; CorpusError if the folder is no corpus."""
    if not folder.is_dir():
        raise CorpusError(f"{folder}: no such folder. Build a corpus with `collapselab corpus build`.")
    record = CorpusRecord.find(folder / CORPUS, remedy="Build the corpus again.")
    if record is None:
        raise CorpusError(f"{folder}: not a corpus; it has no {CORPUS}.")
    if not record.is_consistent():
        raise CorpusError(
            f"{folder / CORPUS}: damaged or edited; its hash, blocks and files contradict each other. Build the corpus "
            "again."
        )
    return record
