"""Norms and squares without overflow or underflow: right up to rounding, or nan.

float64 holds numbers from about 1e-308 to 1e308, but their squares only from 1e-154 to 1e154. Two rules follow.

1. What has no unit (angles, ratios) is computed from numbers divided by a power of two near the largest of them. Such a
   division is exact, so it changes no bit of a result that was right without it.
2. What has a unit (scatter) is computed as it is. A square that overflows is infinite, as everywhere; one that is too
   small to keep its digits becomes nan here. Whatever is made of either is not finite, and is reported as missing.
"""

import math

import torch
from torch import Tensor

LARGEST_EXPONENT = 1000
"""So that both 2^k and 2^-k are ordinary numbers."""

SHORTEST = 2.0**-480
"""Vectors shorter than this lose digits when they are squared: 2^-960 is 2^-114 above the smallest number there is."""

SMALLEST = torch.finfo(torch.float64).tiny
"""The smallest float64 that has all its digits."""

SLICES = 4
"""Slices of rows that are added up beside each other: as many for any number of threads, which then changes no bit."""


def binary_exponent(values: Tensor) -> int:
    """The k with the largest |value| in [2^(k-1), 2^k), at most 1000 in size; 0 where all are 0 or there are none."""
    if not values.numel():
        return 0
    low, high = torch.aminmax(values)
    _, exponent = math.frexp(max(abs(float(low)), abs(float(high))))
    return max(-LARGEST_EXPONENT, min(exponent, LARGEST_EXPONENT))


def times_power_of_two(value: float, exponent: int) -> float:
    """value · 2^exponent; nan where float64 cannot hold it with all its digits."""
    try:
        product = math.ldexp(value, exponent)
    except OverflowError:
        return math.nan
    return product if value == 0 or abs(product) >= SMALLEST else math.nan


def scaled(values: Tensor, exponent: int) -> Tensor:
    """values · 2^exponent, exactly where float64 can hold it; infinite or short of digits elsewhere."""
    while exponent:
        step = max(-LARGEST_EXPONENT, min(exponent, LARGEST_EXPONENT))  # 2^step is a number, 2^exponent need not be
        values, exponent = values * 2.0**step, exponent - step
    return values


def lengths(rows: Tensor) -> Tensor:
    """Euclidean length of each row; infinite or nan where the squares leave the range of float64."""
    norms: Tensor = torch.linalg.vector_norm(rows, dim=1)
    if len(norms) and norms.amin() < SHORTEST:  # a row of zeros has the length 0 exactly, any other has lost digits
        short = (norms < SHORTEST).nonzero().squeeze(1)
        norms[short] = torch.where(rows.index_select(0, short).any(1), torch.nan, 0.0).to(norms)
    return norms


def direction_sum(rows: Tensor, norms: Tensor) -> Tensor:
    """Σ h/|h| over rows of these `lengths` (dim,), whatever their size; nan where a row is zero."""
    if len(norms):
        low, high = torch.aminmax(norms)
        if not (low >= SHORTEST and high < torch.inf):  # comparisons with nan are false
            _, exponents = torch.frexp(rows.abs().amax(1, keepdim=True))
            halves = exponents // 2
            rows = torch.ldexp(torch.ldexp(rows, -halves), halves - exponents)  # 2^exponent may be no number
            norms = torch.linalg.vector_norm(rows, dim=1)
    return _weighted_sum(rows, norms.reciprocal())


def _weighted_sum(rows: Tensor, weights: Tensor) -> Tensor:
    """Σ weight · row (dim,), some rows beside each other: PyTorch leaves a product with one vector to one thread."""
    each = len(rows) // SLICES
    whole = each * SLICES
    total = torch.mv(rows[whole:].T, weights[whole:])
    if each:
        sums = torch.bmm(weights[:whole].view(SLICES, 1, each), rows[:whole].reshape(SLICES, each, -1))
        total += sums.sum((0, 1))
    return total


def squared_lengths(rows: Tensor) -> Tensor:
    """Squared length of each row; infinite or nan where it leaves the range of float64."""
    return lengths(rows).square_()
