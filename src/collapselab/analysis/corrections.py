"""Corrections for many tests at once.

Holm's is written out because statsmodels' function collects the whole program's garbage at every call, a good part
of an analysis; a test holds it to that function.
"""

from collections.abc import Sequence

import numpy as np
from scipy.stats import false_discovery_control


def holm(p: Sequence[float]) -> list[float]:
    """Holm's adjusted p: the i-th smallest of n times n - i, never smaller than the one before, at most 1."""
    values = np.asarray(p, dtype=float)
    order = np.argsort(values)
    stepped = np.maximum.accumulate(values[order] * np.arange(len(values), 0, -1))
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(stepped, 1.0)
    return [float(value) for value in adjusted]


def benjamini_hochberg(p: Sequence[float]) -> list[float]:
    """Benjamini and Hochberg's adjusted p, for the share of false discoveries."""
    return [float(value) for value in false_discovery_control(np.asarray(p, dtype=float))]
