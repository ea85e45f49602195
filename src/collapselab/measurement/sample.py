"""Which positions of which blocks are measured, in which order, and which labels take their places for the null.

The null gives every sample the label of another, by one permutation of all samples: class counts are kept exactly, and
neither the batches nor the number of processes matter. Where all blocks have as many samples, position j of the i-th
block gets the label of position τ(j) of the (i + s_j)-th, with τ a permutation and s_j shifts drawn once. Where they
differ, a permutation of the samples' numbers is computed as it is needed.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Generic, TypeVar, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from collapselab.core.batch import IGNORED
from collapselab.corpus.blocks import Blocks, Split
from collapselab.measurement.permutation import Permutation

GROUPS = 32
"""Parts that a bootstrap resamples: enough for an interval, few enough to keep the moments of each on disk."""

T = TypeVar("T")


@final
@dataclass(frozen=True)
class ByLayer(Generic[T]):
    """Something of the last layer, and the same of the layers below it, which leave out the first positions."""

    last: T
    below: T

    def of(self, layer: str) -> T:
        return self.last if layer == "last" else self.below


@final
class Sample:
    """The measured blocks of one split, cut to `length` tokens: `sample.ids(0, 16)` are the first sixteen.

    `skip` positions at the head of every block are no samples, or as many as the split leaves out itself. Labels have
    a column for each position from `first` on that has a next token.
    """

    def __init__(self, split: Split, *, name: str, length: int, blocks: int, seed: int, skip: int = 0) -> None:
        self.split, self.name, self.length = split, name, length
        self.first = max(split.first, skip)
        everything = blocks == len(split)
        self.blocks: NDArray[np.int64] = (
            np.arange(blocks) if everything else np.sort(split.order(seed=seed)[:blocks])  # in the order on disk
        )
        self.labels_per_block = max(0, length - 1 - self.first)
        samples = split.samples(length=length, first=self.first)[self.blocks]
        self._ends: NDArray[np.int64] = np.concatenate([[0], np.cumsum(samples)])
        generator = torch.Generator().manual_seed(seed)
        self._columns = torch.randperm(self.labels_per_block, generator=generator).numpy() + 1 + self.first
        self._shifts = torch.randint(len(self.blocks), (self.labels_per_block,), generator=generator).numpy()
        self._permutation = None if split.lengths is None else Permutation(self.tokens, seed=seed)

    def __len__(self) -> int:
        return len(self.blocks)

    @property
    def tokens(self) -> int:
        """Samples of all blocks: the features that are measured."""
        return int(self._ends[-1])

    @property
    def cut_off(self) -> int:
        """Blocks longer than the context, of which only the beginning is measured."""
        if self.split.lengths is not None:
            return int((self.split.lengths[self.blocks] > self.length).sum())
        return len(self) if self.length < self.split.block else 0

    def samples(self, start: int, stop: int) -> int:
        """Samples of these blocks."""
        return int(self._ends[min(stop, len(self))] - self._ends[min(start, len(self))])

    def read(self, start: int, stop: int) -> Blocks:
        """These blocks as the model reads them, (blocks, length) ids."""
        return self.split.read(self.blocks[start:stop], length=self.length)

    def ids(self, start: int, stop: int) -> Tensor:
        """Token ids (blocks, length)."""
        return self.read(start, stop).ids

    def labels(self, start: int, stop: int) -> Tensor:
        """The next token at each position from `first` on (blocks, labels_per_block); IGNORED where it is no sample."""
        return self.read(start, stop).labels[:, self.first :]

    def null_labels(self, start: int, stop: int) -> Tensor:
        """For each sample of these blocks a label from somewhere else, in the places of `labels`."""
        if self._permutation is not None:
            return self._permuted(start, stop, self._permutation)
        rows = (np.arange(start, stop)[:, None] + self._shifts) % len(self)
        drawn: NDArray[Any] = self.split.ids[self.blocks[rows], self._columns]
        return torch.from_numpy(drawn.astype(np.int64))

    def counts(self, classes: int) -> Tensor:
        """How often each class is a label in the sample (classes,)."""
        whole = len(self) == len(self.split) and self.length == self.split.block and self.first == self.split.first
        if whole:
            return torch.nn.functional.pad(self.split.counts, (0, classes))[:classes]
        counts = np.zeros(classes, dtype=np.int64)
        for start in range(0, len(self), 1024):
            labels = self.labels(start, start + 1024).numpy()
            counts += np.bincount(labels[labels != IGNORED], minlength=classes)
        return torch.from_numpy(counts)

    def groups(self, wanted: int) -> list[range]:
        """The sample in contiguous parts of nearly equal size; fewer where there are fewer blocks."""
        count = max(1, min(wanted, len(self)))
        bounds = [i * len(self) // count for i in range(count + 1)]
        return [range(start, stop) for start, stop in pairwise(bounds)]

    def _permuted(self, start: int, stop: int, permutation: Permutation) -> Tensor:
        labels = self.labels(start, stop)
        numbers = np.arange(self._ends[start], self._ends[min(stop, len(self))])
        images = permutation(numbers)
        rows = np.searchsorted(self._ends, images, side="right") - 1
        columns = images - self._ends[rows] + self.first + 1
        drawn: NDArray[Any] = self.split.ids[self.blocks[rows], columns]
        labels[labels != IGNORED] = torch.from_numpy(drawn.astype(np.int64))
        return labels
