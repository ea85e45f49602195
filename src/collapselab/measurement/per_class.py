"""The same number of samples of every class: which samples of a split are kept, drawn once from the seed.

Many metrics depend on how many samples a class has. Where classes or models are compared, each can be given the same
number: classes with fewer are left out (`min_count`), of the others that number is kept. A sample is drawn by a
hash of its block and position, so that neither batches nor processes matter. The null is drawn in the same way from
its own labels, of which every class has as many.
"""

from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from collapselab.core.batch import IGNORED
from collapselab.corpus.hashing import mixed
from collapselab.measurement.sample import Sample

AT_ONCE = 1024
"""Blocks whose labels are read at once."""


@final
class PerClass:
    """The samples that are kept, as masks over blocks and positions, for the labels and for those of the null."""

    def __init__(self, sample: Sample, number: int, *, seed: int, null: bool) -> None:
        starts = range(0, len(sample), AT_ONCE)
        labels = [sample.labels(start, min(start + AT_ONCE, len(sample))).numpy() for start in starts]
        self._kept = _drawn(np.concatenate(labels), sample.blocks, number, seed)
        self._null = None
        if null:
            shuffled = [sample.null_labels(start, min(start + AT_ONCE, len(sample))).numpy() for start in starts]
            self._null = _drawn(np.concatenate(shuffled), sample.blocks, number, seed)

    def labels(self, start: int, stop: int, labels: Tensor, *, null: bool = False) -> Tensor:
        """The labels of these blocks (samples in a row), IGNORED where a sample is not kept."""
        mask = self._null if null else self._kept
        assert mask is not None
        return labels.masked_fill(~torch.from_numpy(mask[start:stop].reshape(-1)), IGNORED)


def _drawn(labels: NDArray[np.int64], blocks: NDArray[np.int64], number: int, seed: int) -> NDArray[np.bool_]:
    """Of every class the samples with the smallest hashes, `number` of them; none of a class that has fewer."""
    width = labels.shape[1]
    places = (blocks[:, None] * width + np.arange(width)).astype(np.uint64)
    hashes = mixed(mixed(places ^ mixed(np.array([seed], dtype=np.uint64)))).reshape(-1)
    flat = labels.reshape(-1)
    order = np.lexsort((hashes, flat))
    ordered = flat[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    sizes = np.diff(np.r_[starts, len(ordered)])
    ranks = np.arange(len(ordered)) - np.repeat(starts, sizes)
    enough = np.repeat(sizes >= number, sizes)
    kept = np.zeros(len(flat), dtype=bool)
    kept[order] = (ranks < number) & enough & (ordered != IGNORED)
    return kept.reshape(labels.shape)
