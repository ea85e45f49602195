"""Corpus: blocks of token ids on disk, memory-mapped, with class counts, hashes and provenance beside them.

    <corpus>/train.bin  validation.bin    token ids, block after block, uint16 or uint32
             counts.npy                   how often each token occurs: in the documents, and as a label in the blocks
             lengths.npy                  tokens of every block before its padding; only with `document` packing
             corpus.json                  what it is, where it comes from, and the hashes of the files above
             tokenizer/                   a standard Hugging Face folder

`Split.read` is the one place that decides which positions are samples: those whose next token is a label. The order of
batches is the sort order of a mixing function of (seed, epoch, index): the same on every machine and version, with
nothing to save for resuming.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from collapselab.core.batch import IGNORED
from collapselab.corpus.hashing import mixed
from collapselab.disk import disk_errors, sha256
from collapselab.errors import CorpusError
from collapselab.records.corpus import LENGTHS, SPLITS, CorpusRecord, SplitName, check_counts, read_corpus_record

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

    from collapselab.corpus.tokenizer import FastTokenizer

VERIFIED_BYTES = 256 << 20
"""Token ids of corpora up to this size are verified by their hashes at every opening; other files always are."""


class Blocks(NamedTuple):
    """Some blocks as a model reads them, and what each position should predict."""

    ids: Tensor
    """(blocks, length) token ids."""
    labels: Tensor
    """(blocks, length - 1) next tokens; IGNORED where a position is no sample."""
    attention: Tensor | None
    """(blocks, length): 1 for a token, 0 for padding; None where no block is ever padded."""


@final
class Split:
    """The blocks of one split: `split[i]` is a tensor of token ids, `split.counts` how often each class is a label.

    `lengths` are the tokens of each block before its padding, None where every block is full. The first `first`
    positions of a block are no samples.
    """

    def __init__(
        self,
        path: Path,
        *,
        blocks: int,
        block: int,
        id_type: str,
        counts: NDArray[np.int64],
        lengths: NDArray[np.int64] | None = None,
        first: int = 0,
    ) -> None:
        self.path, self.blocks, self.block, self.id_type = path, blocks, block, id_type
        self.lengths, self.first = lengths, first
        self.token_counts, self.counts = torch.from_numpy(counts.copy())
        self._ids: NDArray[np.integer] | None = None

    def __len__(self) -> int:
        return self.blocks

    def __getitem__(self, index: int) -> Tensor:
        if not -self.blocks <= index < self.blocks:
            raise IndexError(f"{self.path.stem} has {self.blocks:,} blocks; {index} is not one of them.")
        return torch.from_numpy(self.ids[index].astype(np.int64))

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_ids": None}  # a worker maps the file itself

    @property
    def ids(self) -> NDArray[np.integer]:
        """All token ids (blocks, block), memory-mapped and read-only."""
        if self._ids is None:
            self._ids = np.memmap(self.path, dtype=self.id_type, mode="r", shape=(self.blocks, self.block))
        return self._ids

    def read(self, blocks: NDArray[np.int64], *, length: int | None = None) -> Blocks:
        """The blocks of these numbers, cut to `length` tokens."""
        length = length or self.block
        ids = torch.from_numpy(self.ids[blocks, :length].astype(np.int64))
        labels = ids[:, 1:].clone()
        labels[:, : self.first] = IGNORED
        if self.lengths is None:
            return Blocks(ids, labels, None)
        is_token = torch.arange(length) < torch.from_numpy(self.lengths[blocks])[:, None]
        labels[~is_token[:, 1:]] = IGNORED
        return Blocks(ids, labels, is_token.long())

    def samples(self, *, length: int | None = None, first: int = 0) -> NDArray[np.int64]:
        """How many samples each block has when it is cut to `length` and its first `first` positions are left out."""
        ends = np.full(self.blocks, self.block) if self.lengths is None else self.lengths
        counts: NDArray[np.int64] = np.minimum(ends, length or self.block) - 1 - max(first, self.first)
        return np.maximum(counts, 0)

    def order(self, *, seed: int, epoch: int = 0) -> NDArray[np.int64]:
        """A permutation of the blocks that depends on nothing but seed and epoch."""
        start = mixed(np.array([seed], dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(epoch))
        keys = mixed(np.arange(self.blocks, dtype=np.uint64) ^ start)
        return np.argsort(keys, kind="stable").astype(np.int64)

    def batches(
        self, size: int, *, seed: int | None = None, epoch: int = 0, start: int = 0, rank: int = 0, world: int = 1
    ) -> Iterator[Tensor]:
        """Batches (blocks, block) in a seeded order, or in the order on disk.

        `size` counts the blocks of all processes; this process gets every `world`-th of each batch, from `rank` on.
        `start` skips that many batches, so a reader that has seen n continues with start=n. The last batch may be
        smaller.
        """
        for numbers in self.numbers(size, seed=seed, epoch=epoch, start=start, rank=rank, world=world):
            yield torch.from_numpy(self.ids[numbers].astype(np.int64))

    def numbers(
        self, size: int, *, seed: int | None = None, epoch: int = 0, start: int = 0, rank: int = 0, world: int = 1
    ) -> Iterator[NDArray[np.int64]]:
        """The numbers of the blocks in each of these batches, for `read`."""
        if size < 1 or not 0 <= rank < world:
            raise ValueError(f"batches of {size} blocks for process {rank} of {world}.")
        order = np.arange(self.blocks) if seed is None else self.order(seed=seed, epoch=epoch)
        for at in range(start * size, self.blocks, size):
            yield order[at : at + size][rank::world]


@final
class Corpus:
    """An opened corpus: `corpus.train`, `corpus.validation`, `corpus.tokenizer()`, `corpus.record`.

    >>> from collapselab import Corpus
    >>> corpus = Corpus("corpora/stories")
    >>> corpus
    Corpus('corpora/stories': 173 + 31 blocks of 64 tokens; vocabulary 300)
    >>> corpus.train[0].shape
    torch.Size([64])
    >>> corpus.frames["tokens"].columns.tolist()
    ['token', 'text', 'train', 'validation']

    In a notebook it is a table of its splits, and `corpus.plot()` a chart of how often its tokens occur.

    Opening checks corpus.json, the sizes of all files and the hashes of all but the token ids; of a small corpus, or
    with `verify=True`, of the token ids too.
    """

    def __init__(self, path: str | Path, *, verify: bool | None = None) -> None:
        self.path = Path(path)
        self.record: CorpusRecord = read_corpus_record(self.path)
        self.block, self.vocabulary, self.hash = self.record.block, self.record.vocabulary, self.record.hash
        size = sum(file.bytes for file in self.record.files.values())
        self._check_files(ids_too=size <= VERIFIED_BYTES if verify is None else verify)
        counts = self._array("counts.npy")
        lengths = self._array(LENGTHS) if LENGTHS in self.record.files else None
        check_counts(self.path, self.record, counts, lengths)
        blocks = self.record.splits.train.blocks
        parts = (None, None) if lengths is None else (lengths[:blocks], lengths[blocks:])
        self.train, self.validation = (self._split(name, counts[i], parts[i]) for i, name in enumerate(SPLITS))

    @property
    def facts(self) -> dict[str, object]:
        """The record as JSON has it."""
        return self.record.model_dump()

    @property
    def splits(self) -> dict[str, Split]:
        return {"train": self.train, "validation": self.validation}

    @property
    def frames(self) -> "dict[str, pd.DataFrame]":
        """`splits`, the numbers of each split, and `tokens`, how often each token occurs in their documents."""
        from collapselab.corpus.corpus_views import splits_frame, tokens_frame

        counts = {name: split.token_counts.numpy() for name, split in self.splits.items()}
        return {"splits": splits_frame(self.record), "tokens": tokens_frame(self.token_texts(), counts)}

    def plot(self) -> "alt.Chart":
        """How often tokens occur against their rank, as an Altair chart."""
        from collapselab.corpus.corpus_views import frequency_chart

        return frequency_chart(str(self.path), self.frames["tokens"])

    def __repr__(self) -> str:
        blocks = f"{len(self.train):,} + {len(self.validation):,} blocks of {self.block:,} tokens"
        return f"Corpus({str(self.path)!r}: {blocks}; vocabulary {self.vocabulary:,})"

    def _repr_html_(self) -> str:
        """In a notebook: the numbers of its splits; the path is escaped."""
        from collapselab.corpus.corpus_views import corpus_html

        return corpus_html(str(self.path), self.record)

    def tokenizer(self) -> "FastTokenizer":
        """The tokenizer the corpus was built with."""
        from collapselab.corpus.tokenizer import load_tokenizer

        return load_tokenizer(self.path / "tokenizer")

    def token_texts(self) -> list[str]:
        """Every token of the vocabulary as text."""
        tokens = [[token] for token in range(self.vocabulary)]
        texts: list[str] = self.tokenizer().backend_tokenizer.decode_batch(tokens, skip_special_tokens=False)
        return texts

    def _split(self, name: SplitName, counts: NDArray[np.int64], lengths: NDArray[np.int32] | None) -> Split:
        numbers = self.record.numbers(name)
        return Split(
            self.path / f"{name}.bin",
            blocks=numbers.blocks,
            block=self.block,
            id_type=numbers.id_type,
            counts=counts,
            lengths=None if lengths is None else lengths.astype(np.int64),
            first=self.record.first,
        )

    def _array(self, name: str) -> NDArray[Any]:
        try:
            with disk_errors(self.path / name, reading=True):
                array: NDArray[Any] = np.load(self.path / name, allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise CorpusError(f"{self.path / name}: not an array of numbers. Build the corpus again.") from error
        return array

    def _check_files(self, *, ids_too: bool) -> None:
        for name, expected in self.record.files.items():
            file = self.path / name
            if not file.is_file():
                raise CorpusError(f"{self.path}: {name} is missing. Build the corpus again.")
            with disk_errors(file, reading=True):
                size = file.stat().st_size
                if size != expected.bytes:
                    raise CorpusError(
                        f"{file}: {size:,} bytes, not the {expected.bytes:,} that were written. Build it again."
                    )
                if (ids_too or not name.endswith(".bin")) and sha256(file) != expected.sha256:
                    raise CorpusError(f"{file}: damaged; its contents do not match their checksum. Build it again.")
