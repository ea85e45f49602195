"""Corpus: blocks of token ids on disk, memory-mapped, with class counts, hashes and provenance beside them.

    <corpus>/train.bin  validation.bin    token ids, block after block, uint16 or uint32
             counts.npy                   how often each token occurs: in the documents, and as a label in the blocks
             corpus.json                  what it is, where it comes from, and the hashes of the files above
             tokenizer/                   a standard Hugging Face folder

The order of batches is the sort order of a mixing function of (seed, epoch, index): the same on every machine and
version, with nothing to save for resuming.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from collapselab.disk import sha256
from collapselab.errors import CorpusError

FORMAT = 1
VERIFIED_BYTES = 256 << 20
"""Corpora up to this size are verified by their hashes at every opening."""


@final
class Split:
    """The blocks of one split: `split[i]` is a tensor of token ids, `split.counts` how often each class is a label."""

    def __init__(self, path: Path, facts: dict[str, Any], block: int, counts: NDArray[np.int64]) -> None:
        self.path, self.facts, self.block = path, facts, block
        self.blocks: int = facts["blocks"]
        self.token_counts, self.counts = torch.from_numpy(counts.copy())
        self._ids: NDArray[Any] | None = None

    def __len__(self) -> int:
        return self.blocks

    def __getitem__(self, index: int) -> Tensor:
        if not -self.blocks <= index < self.blocks:
            raise IndexError(f"{self.path.stem} has {self.blocks:,} blocks; {index} is not one of them.")
        return torch.from_numpy(self.ids[index].astype(np.int64))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_ids": None}  # a worker maps the file itself

    @property
    def ids(self) -> NDArray[Any]:
        """All token ids (blocks, block), memory-mapped and read-only."""
        if self._ids is None:
            self._ids = np.memmap(self.path, dtype=self.facts["id_type"], mode="r", shape=(self.blocks, self.block))
        return self._ids

    def order(self, *, seed: int, epoch: int = 0) -> NDArray[np.int64]:
        """A permutation of the blocks that depends on nothing but seed and epoch."""
        start = _mixed(np.array([seed], dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(epoch))
        keys = _mixed(np.arange(self.blocks, dtype=np.uint64) ^ start)
        return np.argsort(keys, kind="stable").astype(np.int64)

    def batches(
        self, size: int, *, seed: int | None = None, epoch: int = 0, start: int = 0, rank: int = 0, world: int = 1
    ) -> Iterator[Tensor]:
        """Batches (blocks, block) in a seeded order, or in the order on disk.

        `size` counts the blocks of all processes; this one gets every `world`-th of each batch, from `rank` on. `start`
        skips that many batches, so a reader that has seen n goes on with start=n. The last batch may be smaller.
        """
        if size < 1 or not 0 <= rank < world:
            raise ValueError(f"batches of {size} blocks for process {rank} of {world}.")
        order = np.arange(self.blocks) if seed is None else self.order(seed=seed, epoch=epoch)
        for first in range(start * size, self.blocks, size):
            mine = order[first : first + size][rank::world]
            yield torch.from_numpy(self.ids[mine].astype(np.int64))


@final
class Corpus:
    """An opened corpus: `corpus.train`, `corpus.validation`, `corpus.tokenizer()`, `corpus.facts`.

    Opening checks the files' sizes, and their hashes too for a small corpus or with `verify=True`.
    """

    def __init__(self, path: str | Path, *, verify: bool | None = None) -> None:
        self.path = Path(path)
        self.facts = read_facts(self.path)
        self.block: int = self.facts["block"]
        self.vocabulary: int = self.facts["vocabulary"]
        self.hash: str = self.facts["hash"]
        size = sum(facts["bytes"] for facts in self.facts["files"].values())
        self._check_files(hashes=size <= VERIFIED_BYTES if verify is None else verify)
        counts = np.load(self.path / "counts.npy")
        self.train, self.validation = (
            Split(self.path / f"{name}.bin", self.facts["splits"][name], self.block, counts[i])
            for i, name in enumerate(("train", "validation"))
        )

    @property
    def splits(self) -> dict[str, Split]:
        return {"train": self.train, "validation": self.validation}

    def tokenizer(self) -> Any:
        """The tokenizer the corpus was built with."""
        from collapselab.corpus.vocabulary import load_tokenizer

        return load_tokenizer(self.path / "tokenizer")

    def _check_files(self, *, hashes: bool) -> None:
        for name, expected in self.facts["files"].items():
            file = self.path / name
            if not file.is_file():
                raise CorpusError(f"{self.path}: {name} is missing. Build the corpus again.")
            size = file.stat().st_size
            if size != expected["bytes"]:
                raise CorpusError(
                    f"{file}: {size:,} bytes, not the {expected['bytes']:,} that were written. Build it again."
                )
            if hashes and sha256(file) != expected["sha256"]:
                raise CorpusError(f"{file}: damaged; its contents do not match their checksum. Build it again.")


def read_facts(path: Path) -> dict[str, Any]:
    """corpus.json, or what is wrong with the folder."""
    if not path.is_dir():
        raise CorpusError(f"{path}: no such folder. Build a corpus with `collapselab corpus build`.")
    try:
        facts = json.loads((path / "corpus.json").read_text())
    except FileNotFoundError as error:
        raise CorpusError(f"{path}: not a corpus; it has no corpus.json.") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise CorpusError(f"{path / 'corpus.json'}: damaged ({error}).") from error
    if not isinstance(facts, dict) or "format" not in facts:
        raise CorpusError(f"{path / 'corpus.json'}: not one of ours.")
    if facts["format"] != FORMAT:
        raise CorpusError(f"{path}: format {facts['format']}; this version reads {FORMAT}. Build the corpus again.")
    return facts


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of splitmix64: every bit of the input moves every bit of the output."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
