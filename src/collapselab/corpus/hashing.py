"""Hash of integers (splitmix64) for orders, samples and random draws that must be the same in every version."""

import numpy as np
from numpy.typing import NDArray


def mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Apply the finaliser of splitmix64, in which every input bit affects every output bit."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def uniform(seed: int, what: str, count: int, *, start: int = 0) -> NDArray[np.float64]:
    """Return uniform numbers in [0, 1) that depend only on the seed, the purpose `what` and the index (count,)."""
    key = np.array([seed], dtype=np.uint64)
    for letter in what.encode():
        key = mixed(key ^ np.uint64(letter))
    numbers = mixed(np.arange(start, start + count, dtype=np.uint64) ^ mixed(key))
    return (numbers >> np.uint64(11)).astype(np.float64) * 2.0**-53
