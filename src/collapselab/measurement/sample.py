"""Which blocks of a split are measured, in which order, and which labels stand in their places for the null.

The null gives every token the label of another: position j of the i-th block gets that of position τ(j) of the
(i + s_j)-th, with τ a permutation and s_j shifts drawn once. That is one permutation of all labels, so class counts are
kept exactly; labels that stood close together are strewn over all blocks; and it depends neither on the batches nor on
the number of processes.
"""

from itertools import pairwise
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from collapselab.corpus.blocks import Split

GROUPS = 32
"""Parts that a bootstrap resamples: enough for an interval, few enough to keep the moments of each on disk."""


@final
class Sample:
    """The measured blocks of one split, cut to `length` tokens: `sample.ids(0, 16)` are the first sixteen."""

    def __init__(self, split: Split, *, name: str, length: int, blocks: int, seed: int) -> None:
        self.split, self.name, self.length = split, name, length
        everything = blocks == len(split)
        self.blocks: NDArray[np.int64] = (
            np.arange(blocks) if everything else np.sort(split.order(seed=seed)[:blocks])  # in the order on disk
        )
        self.labels_per_block = length - 1
        generator = torch.Generator().manual_seed(seed)
        self._columns = torch.randperm(length - 1, generator=generator).numpy() + 1
        self._shifts = torch.randint(len(self.blocks), (length - 1,), generator=generator).numpy()

    def __len__(self) -> int:
        return len(self.blocks)

    @property
    def tokens(self) -> int:
        """Tokens that have a next token: the features that are measured."""
        return len(self) * self.labels_per_block

    @property
    def cut_off(self) -> int:
        """Blocks longer than the context, of which only the beginning is measured."""
        return len(self) if self.length < self.split.block else 0

    def ids(self, start: int, stop: int) -> Tensor:
        """Token ids (blocks, length)."""
        return torch.from_numpy(self.split.ids[self.blocks[start:stop], : self.length].astype(np.int64))

    def null_labels(self, start: int, stop: int) -> Tensor:
        """For each feature of these blocks a label from somewhere else (blocks, length - 1)."""
        rows = (np.arange(start, stop)[:, None] + self._shifts) % len(self)
        drawn: NDArray[Any] = self.split.ids[self.blocks[rows], self._columns]
        return torch.from_numpy(drawn.astype(np.int64))

    def counts(self, classes: int) -> Tensor:
        """How often each class is a label in the sample (classes,)."""
        if len(self) == len(self.split) and not self.cut_off:
            return torch.nn.functional.pad(self.split.counts, (0, classes))[:classes]
        counts = np.zeros(classes, dtype=np.int64)
        for start in range(0, len(self), 1024):
            labels = self.ids(start, start + 1024)[:, 1:].numpy()
            counts += np.bincount(labels.reshape(-1), minlength=classes)
        return torch.from_numpy(counts)

    def groups(self, wanted: int) -> list[range]:
        """The sample in contiguous parts of nearly equal size; fewer where there are fewer blocks."""
        count = max(1, min(wanted, len(self)))
        bounds = [i * len(self) // count for i in range(count + 1)]
        return [range(start, stop) for start, stop in pairwise(bounds)]
