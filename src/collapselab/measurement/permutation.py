"""A permutation of 0 … size - 1 that is computed where it is asked for, without a table of all of them.

A Feistel network shuffles the numbers of the next even power of two; a number that falls outside the range is shuffled
again until it falls inside (cycle walking). Both steps can be undone, so every number has exactly one image.
"""

from typing import final

import numpy as np
from numpy.typing import NDArray

from collapselab.corpus.blocks import mixed

ROUNDS = 6


@final
class Permutation:
    """`Permutation(10, seed=0)(np.arange(10))` are the numbers below 10 in another order, the same everywhere."""

    def __init__(self, size: int, *, seed: int) -> None:
        self.size = size
        self._half_bits = np.uint64(max(1, (max(size - 1, 1).bit_length() + 1) // 2))
        self._mask = (np.uint64(1) << self._half_bits) - np.uint64(1)
        start = mixed(np.array([seed], dtype=np.uint64))
        self._keys: NDArray[np.uint64] = mixed(np.arange(ROUNDS, dtype=np.uint64) + start)

    def __call__(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """The image of each number."""
        found = numbers.astype(np.uint64)
        outside = np.ones(found.shape, dtype=bool)
        while outside.any():
            found[outside] = self._shuffled(found[outside])
            outside = found >= self.size
        return found.astype(np.int64)

    def _shuffled(self, numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
        left, right = numbers >> self._half_bits, numbers & self._mask
        for key in self._keys:
            left, right = right, left ^ (mixed(right ^ key) & self._mask)
        return (left << self._half_bits) | right
