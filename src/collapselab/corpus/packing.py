"""Token ids of documents to blocks of one length, counted on the way.

`stream` and `paper` packing cut a stream of all documents into blocks. `document` packing gives every document a block
of its own, filled up behind its end; how long each document is, is kept beside the blocks.
"""

import os
from dataclasses import dataclass, field
from typing import BinaryIO, Literal, Protocol, final

import numpy as np
from numpy.typing import NDArray

from collapselab.errors import CorpusError
from collapselab.records.corpus import SplitRecord

WRITTEN_TOKENS = 1 << 18
"""Tokens that are collected before blocks are written."""

IdType = Literal["uint16", "uint32"]


@final
@dataclass(frozen=True)
class Marks:
    """Tokens that are ours: before and after every document, and at the head of every block."""

    before: list[int]
    after: list[int]
    head: int | None = None

    @property
    def boundary(self) -> Literal["both", "begin", "end", "none"]:
        """How documents are marked, in one word."""
        if self.before:
            return "both" if self.after else "begin"
        return "end" if self.after else "none"

    @property
    def begin(self) -> Literal["block", "document", "none"]:
        """Where a begin token is, in one word."""
        return "block" if self.head is not None else "document" if self.before else "none"


@dataclass
class Counted:
    """What has been packed of one split: numbers, how often each token occurs, and how often each is a label."""

    token_counts: NDArray[np.int64]
    label_counts: NDArray[np.int64]
    documents: int = 0
    characters: int = 0
    tokens: int = 0
    blocks: int = 0
    dropped: int = 0
    cut: int = 0
    lengths: list[int] = field(default_factory=list)

    def record(self, id_type: IdType) -> SplitRecord:
        """The split's numbers, as corpus.json has them."""
        return SplitRecord(
            documents=self.documents,
            characters=self.characters,
            tokens=self.tokens,
            types=int((self.token_counts > 0).sum()),
            types_seen_once=int((self.token_counts == 1).sum()),
            blocks=self.blocks,
            tokens_dropped=self.dropped,
            classes=int((self.label_counts > 0).sum()),
            id_type=id_type,
            samples=int(self.label_counts.sum()),
            documents_cut=self.cut,
        )


class Packer(Protocol):
    """Documents of token ids in, whole blocks out."""

    counted: Counted

    def add(self, ids: list[int], *, characters: int) -> None:
        """Take one document."""

    def finish(self, split: str) -> None:
        """Write what is left; CorpusError if the split has no block."""


@final
class StreamPacker:
    """All documents one after the other, cut into blocks. `group` documents are cut by themselves, 0 for all at once.

    With a mark for the head of every block, a block that begins inside a document begins with that mark; one whose
    document begins there with the same mark has it once.
    """

    def __init__(
        self, file: BinaryIO, counts: NDArray[np.int64], *, block: int, marks: Marks, id_type: str, group: int = 0
    ) -> None:
        self.file, self.block, self.marks, self.id_type, self.group = file, block, marks, id_type, group
        self.counted = Counted(*counts)
        self._waiting: list[int] = []

    def add(self, ids: list[int], *, characters: int) -> None:
        counted = self.counted
        counted.documents += 1
        counted.characters += characters
        counted.tokens += len(ids)
        self._waiting += [*self.marks.before, *ids, *self.marks.after]
        if self.group and counted.documents % self.group == 0:
            self._cut(drop=True)
        if len(self._waiting) >= max(WRITTEN_TOKENS, self.block):
            self._cut(drop=False)

    def finish(self, split: str) -> None:
        self._cut(drop=True)
        _check_documents(split, self.counted)
        if not self.counted.blocks:
            raise CorpusError(
                f"{split}: {self.counted.tokens:,} tokens do not fill one block of {self.block:,}. "
                "Choose a shorter --block, or give more text."
            )
        for mark in (*self.marks.before, *self.marks.after):  # the counts are of the documents; the marks are ours
            self.counted.token_counts[mark] -= self.counted.documents
        _flush(self.file)

    def _cut(self, *, drop: bool) -> None:
        counted, ids = self.counted, np.array(self._waiting, dtype=np.int64)
        whole, used = self._blocks(ids)
        self.file.write(whole.astype(self.id_type).tobytes())
        first = 1 if self.marks.head is None else 2
        counted.blocks += len(whole)
        counted.label_counts += np.bincount(whole[:, first:].reshape(-1), minlength=len(counted.label_counts))
        counted.token_counts += np.bincount(ids if drop else ids[:used], minlength=len(counted.token_counts))
        counted.dropped += len(ids) - used if drop else 0
        self._waiting = [] if drop else ids[used:].tolist()

    def _blocks(self, ids: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
        """As many whole blocks as the ids give, and how many ids those take."""
        head = self.marks.head
        if head is None:
            used = len(ids) // self.block * self.block
            return ids[:used].reshape(-1, self.block), used
        rows, used = [], 0
        while True:
            has_head = used < len(ids) and ids[used] == head
            stop = used + self.block - (not has_head)
            if stop > len(ids):
                break
            rows.append(ids[used:stop] if has_head else np.concatenate([[head], ids[used:stop]]))
            used = stop
        return np.array(rows, dtype=np.int64).reshape(-1, self.block), used


@final
class DocumentPacker:
    """One document a block: what is longer is cut, what is shorter is filled up with `padding`, which is no sample.

    A document of one token has no next token to predict and gets no block.
    """

    def __init__(
        self, file: BinaryIO, counts: NDArray[np.int64], *, block: int, marks: Marks, id_type: str, padding: int
    ) -> None:
        self.file, self.block, self.marks, self.id_type, self.padding = file, block, marks, id_type, padding
        self.counted = Counted(*counts)
        self._rows: list[list[int]] = []
        self._seen: list[int] = []

    def add(self, ids: list[int], *, characters: int) -> None:
        counted, row = self.counted, [*self.marks.before, *ids, *self.marks.after]
        counted.documents += 1
        counted.characters += characters
        counted.tokens += len(ids)
        self._seen += ids
        if len(row) < 2:
            counted.dropped += len(row)
        else:
            counted.cut += len(row) > self.block
            counted.dropped += max(0, len(row) - self.block)
            counted.lengths.append(min(len(row), self.block))
            self._rows.append(row[: self.block])
        if len(self._seen) >= WRITTEN_TOKENS or len(self._rows) * self.block >= WRITTEN_TOKENS:
            self._write()

    def finish(self, split: str) -> None:
        self._write()
        _check_documents(split, self.counted)
        if not self.counted.blocks:
            raise CorpusError(f"{split}: no document has a token and its next. Give longer documents.")
        _flush(self.file)

    def _write(self) -> None:
        counted, rows = self.counted, self._rows
        filled = np.full((len(rows), self.block), self.padding, dtype=np.int64)
        for number, row in enumerate(rows):
            filled[number, : len(row)] = row
        self.file.write(filled.astype(self.id_type).tobytes())
        labels = [id for row in rows for id in row[1:]]
        counted.blocks += len(rows)
        counted.label_counts += np.bincount(np.array(labels, dtype=np.int64), minlength=len(counted.label_counts))
        counted.token_counts += np.bincount(np.array(self._seen, dtype=np.int64), minlength=len(counted.token_counts))
        self._rows, self._seen = [], []


def _check_documents(split: str, counted: Counted) -> None:
    if not counted.documents:
        raise CorpusError(
            f"{split}: no documents. Is the separator right, or the held-out share too small? Of few documents none "
            "may be drawn: give more, or files for validation alone (a folder with train.txt and validation.txt)."
        )


def _flush(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
