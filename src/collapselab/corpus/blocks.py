"""An opened corpus: memory-mapped blocks of token ids, with class counts, hashes and provenance.

    <corpus>/train.bin  validation.bin    token ids, block after block, uint16 or uint32
             counts.npy                   how often each token occurs: in the documents, and as a label in the blocks
             lengths.npy                  tokens of every block without its padding; only with `document` packing
             corpus.json                  the recipe, the source, and the hashes of the files above
             tokenizer/                   a standard Hugging Face folder

`Split.read` alone decides which positions are samples: those whose next token is a label. The order of batches is the
sort order of a hash of (seed, epoch, index). It is the same on every machine and version, and resuming needs no state.
"""

from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from collapselab.core.batch import IGNORED
from collapselab.corpus.hashing import mixed
from collapselab.disk import disk_errors, sha256
from collapselab.errors import CorpusError
from collapselab.records.corpus import LENGTHS, SPLITS, CorpusRecord, SplitName, read_corpus_record

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

    from collapselab.corpus.tokenizer import FastTokenizer

VERIFIED_BYTES = 256 << 20
"""Opening a corpus verifies the hashes of its token ids up to this size, and those of all other files always."""

CHART_POINTS = 400
"""Ranks that a chart shows for each split."""


class Blocks(NamedTuple):
    """Inputs of a model and their labels."""

    ids: Tensor
    """(blocks, length) token ids."""
    labels: Tensor
    """(blocks, length - 1) next tokens; IGNORED at positions that are not samples."""
    attention: Tensor | None
    """(blocks, length): 1 for a token, 0 for padding; None if blocks are never padded."""


class Split:
    """The blocks of one split: `split[i]` is a tensor of token ids, `split.counts` how often each class is a label.

    `lengths` are the tokens of each block without its padding, None if every block is full. The first `first`
    positions of a block are not samples.
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
            raise IndexError(f"{self.path.stem} has {self.blocks:,} blocks, got index {index}.")
        return torch.from_numpy(self.ids[index].astype(np.int64))

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_ids": None}  # a worker process maps the file again

    @property
    def ids(self) -> NDArray[np.integer]:
        """All token ids (blocks, block), memory-mapped and read-only."""
        if self._ids is None:
            self._ids = np.memmap(self.path, dtype=self.id_type, mode="r", shape=(self.blocks, self.block))
        return self._ids

    def read(self, blocks: NDArray[np.int64], *, length: int | None = None) -> Blocks:
        """Return the blocks with these numbers, cut to `length` tokens."""
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
        """Return the number of samples of each block if it is cut to `length` without its first `first` positions."""
        ends = np.full(self.blocks, self.block) if self.lengths is None else self.lengths
        counts: NDArray[np.int64] = np.minimum(ends, length or self.block) - 1 - max(first, self.first)
        return np.maximum(counts, 0)

    def order(self, *, seed: int, epoch: int = 0) -> NDArray[np.int64]:
        """Return a permutation of the blocks that depends only on seed and epoch."""
        start = mixed(np.array([seed], dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(epoch))
        keys = mixed(np.arange(self.blocks, dtype=np.uint64) ^ start)
        return np.argsort(keys, kind="stable").astype(np.int64)

    def batches(
        self, size: int, *, seed: int | None = None, epoch: int = 0, start: int = 0, rank: int = 0, world: int = 1
    ) -> Iterator[Tensor]:
        """Iterate over batches (blocks, block) in a seeded order, or in the order on disk.

        `size` counts the blocks of all processes; this process gets every `world`-th block of a batch, starting at
        `rank`. `start` skips that many batches: a reader that has seen n batches resumes with start=n. The last batch
        may be smaller.
        """
        for numbers in self.numbers(size, seed=seed, epoch=epoch, start=start, rank=rank, world=world):
            yield torch.from_numpy(self.ids[numbers].astype(np.int64))

    def numbers(
        self, size: int, *, seed: int | None = None, epoch: int = 0, start: int = 0, rank: int = 0, world: int = 1
    ) -> Iterator[NDArray[np.int64]]:
        """Iterate over the numbers of the blocks in each of these batches, for `read`."""
        if size < 1 or not 0 <= rank < world:
            raise ValueError(f"size must be ≥ 1 and 0 ≤ rank < world, got {size=}, {rank=}, {world=}")
        order = np.arange(self.blocks) if seed is None else self.order(seed=seed, epoch=epoch)
        for at in range(start * size, self.blocks, size):
            yield order[at : at + size][rank::world]


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

    A notebook shows it as a table of its splits, and `corpus.plot()` is a chart of its token frequencies.

    Opening verifies corpus.json, the sizes of all files, and the hashes of all files but the token ids. The token ids
    are verified too if the corpus is small, or with `verify=True`.
    """

    def __init__(self, path: str | Path, *, verify: bool | None = None) -> None:
        self.path = Path(path)
        self.record: CorpusRecord = read_corpus_record(self.path)
        self.block, self.vocabulary, self.hash = self.record.block, self.record.vocabulary, self.record.hash
        size = sum(file.bytes for file in self.record.files.values())
        self._check_files(ids_too=size <= VERIFIED_BYTES if verify is None else verify)
        counts = self._array("counts.npy")
        lengths = self._array(LENGTHS) if LENGTHS in self.record.files else None
        if counts.shape != (2, 2, self.vocabulary):
            raise CorpusError(f"{self.path / 'counts.npy'}: not of {self.vocabulary:,} tokens. Build the corpus again.")
        blocks = self.record.splits.train.blocks
        parts = (None, None) if lengths is None else (lengths[:blocks], lengths[blocks:])
        self.train, self.validation = (self._split(name, counts[i], parts[i]) for i, name in enumerate(SPLITS))
        self.splits: dict[str, Split] = {"train": self.train, "validation": self.validation}

    @property
    def facts(self) -> dict[str, object]:
        """The contents of corpus.json."""
        return self.record.model_dump()

    @property
    def frames(self) -> "dict[str, pd.DataFrame]":
        """Table `splits` with the numbers of each split, and `tokens` with the occurrences of each token."""
        import pandas as pd

        texts = self.token_texts()
        counts = {name: split.token_counts.numpy() for name, split in self.splits.items()}
        tokens = pd.DataFrame({"token": range(len(texts)), "text": texts, **counts})
        return {"splits": self._splits_frame(), "tokens": tokens}

    def _splits_frame(self) -> "pd.DataFrame":
        import pandas as pd

        numbers = {
            name: self.record.numbers(name).model_dump(exclude={"id_type"}, exclude_none=True) for name in SPLITS
        }
        return pd.DataFrame([{"split": name, **numbers[name]} for name in SPLITS])

    def plot(self) -> "alt.Chart":
        """Return an Altair chart of token frequency against rank, with a line for each split."""
        import altair as alt
        import pandas as pd

        tokens, parts = self.frames["tokens"], []
        for split in SPLITS:
            frequent = tokens[tokens[split] > 0].sort_values([split, "token"], ascending=[False, True])
            ranks = log_spaced_ranks(len(frequent), CHART_POINTS)
            chosen = frequent.iloc[[rank - 1 for rank in ranks]]
            chosen = chosen.assign(rank=ranks, count=chosen[split], split=split)
            parts.append(chosen[["rank", "count", "split", "text"]])
        chart: alt.Chart = alt.Chart(pd.concat(parts, ignore_index=True), title=str(self.path)).mark_line(point=True)
        return chart.encode(
            x=alt.X("rank:Q", scale=alt.Scale(type="log", nice=False), title="rank of the token"),
            y=alt.Y("count:Q", scale=alt.Scale(type="log"), title="occurrences"),
            color=alt.Color("split:N", sort=list(SPLITS)),
            tooltip=["text:N", "count:Q", "rank:Q"],
        ).properties(width=420, height=260)

    def __repr__(self) -> str:
        blocks = f"{len(self.train):,} + {len(self.validation):,} blocks of {self.block:,} tokens"
        return f"Corpus({str(self.path)!r}: {blocks}; vocabulary {self.vocabulary:,})"

    def _repr_html_(self) -> str:
        """Return a table of the splits for a notebook."""
        numbers = self._splits_frame().set_index("split").T.rename_axis(None, axis=1)
        table = numbers.to_html(float_format="{:,.0f}".format, na_rep="–", border=0)
        about = f"{self.vocabulary:,} tokens in the vocabulary, blocks of {self.block:,}; hash {self.hash}"
        return f"<p><b>{escape(str(self.path))}</b>: {escape(about)}</p>{table}"

    def tokenizer(self) -> "FastTokenizer":
        """Load the tokenizer of the corpus."""
        from collapselab.corpus.tokenizer import load_tokenizer

        return load_tokenizer(self.path / "tokenizer")

    def token_texts(self) -> list[str]:
        """Decode every token of the vocabulary."""
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
            raise CorpusError(f"{self.path / name}: damaged; not a NumPy array. Build the corpus again.") from error
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
                        f"{file}: damaged; its size is {size:,} bytes instead of {expected.bytes:,}. Build it again."
                    )
                if (ids_too or not name.endswith(".bin")) and sha256(file) != expected.sha256:
                    raise CorpusError(f"{file}: damaged; its contents do not match the checksum. Build it again.")


def log_spaced_ranks(count: int, points: int) -> list[int]:
    """Return at most `points` ranks from 1 to `count`, evenly spaced on a logarithmic axis."""
    return sorted({round(count ** (step / (points - 1))) for step in range(points)}) if count else []
