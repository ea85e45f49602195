"""Intervals of correlations and slopes: from independent models, or from clusters of models that are alike.

Independent models have Fisher's z and the t of least squares. Clusters (architectures, runs, seeds that several cells
share) are left out in turn: the spread of what is then found is the error, which needs no assumption about how alike
the models of a cluster are and stays honest with few clusters (the jackknife, CR3 of MacKinnon, Nielsen & Webb 2023,
doi:10.1002/jae.2969).
"""

from typing import NamedTuple, final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm
from scipy.stats import t as student

from collapselab.analysis.attainable import LEVEL

Floats = NDArray[np.float64]
Codes = NDArray[np.intp]

FEWEST_UNITS = 5
"""Models or clusters that an interval needs."""
LARGEST = 1 - 1e-12
"""An |r| above this is taken as this: Fisher's z of 1 is infinite."""


@final
class Interval(NamedTuple):
    """The ends of a 95 % interval; NaN where there is none."""

    low: float
    high: float


NONE = Interval(np.nan, np.nan)


@final
class LeftOut(NamedTuple):
    """Slope and correlation with each cluster left out in turn, the controls fitted again each time."""

    slopes: Floats
    correlations: Floats


def fisher_interval(r: float, freedom: int) -> Interval:
    """Of r among independent models; `freedom` is models - cells - 2, which is n - 3 in one cell."""
    if freedom + 3 < FEWEST_UNITS:
        return NONE
    z, half = np.arctanh(np.clip(r, -LARGEST, LARGEST)), norm.isf(LEVEL / 2) / np.sqrt(freedom)
    return Interval(float(np.tanh(z - half)), float(np.tanh(z + half)))


def slope_interval(slope: float, r: float, freedom: int) -> Interval:
    """Of the slope of least squares among independent models, with these degrees of freedom."""
    if freedom + 2 < FEWEST_UNITS or r == 0:
        return NONE
    error = abs(slope / r) * np.sqrt(max(0.0, 1 - r**2) / freedom)
    half = float(student.isf(LEVEL / 2, freedom) * error)
    return Interval(slope - half, slope + half)


def left_out(x: Floats, y: Floats, basis: Floats, clusters: Codes) -> LeftOut:
    """What the clusters leave when each is left out; x and y are what the controls leave of metric and outcome.

        x_(g) · y_(g) = x · y - x_g · (I - H_gg)⁺ y_g      with H = basis basisᵀ, an orthonormal basis of the controls

    so that no regression is fitted twice. The pseudo-inverse is for controls that a cluster alone determines.
    """
    total = int(clusters.max()) + 1
    pairs = ((x, y), (x, x), (y, y))
    products = np.tile([first @ second for first, second in pairs], (total, 1))
    for cluster in range(total):
        members = np.flatnonzero(clusters == cluster)
        block = basis[members]
        inverse = np.linalg.pinv(np.eye(len(members)) - block @ block.T, rcond=1e-9, hermitian=True)
        products[cluster] -= [first[members] @ inverse @ second[members] for first, second in pairs]
    xy, xx, yy = products.T
    xx, yy = np.maximum(xx, 0), np.maximum(yy, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return LeftOut(xy / xx, np.clip(xy / np.sqrt(xx * yy), -LARGEST, LARGEST))


def jackknife_error(estimate: float, without: Floats) -> float:
    """The standard error from estimates that leave out one cluster each; NaN where one of them does not exist."""
    total = len(without)
    return float(np.sqrt((total - 1) / total * ((without - estimate) ** 2).sum()))


def clustered_interval(r: float, without: Floats) -> Interval:
    """Of r, from the r with each cluster left out, on the scale of Fisher's z."""
    if len(without) < FEWEST_UNITS or not np.isfinite(without).all():
        return NONE
    z = float(np.arctanh(np.clip(r, -LARGEST, LARGEST)))
    half = student.isf(LEVEL / 2, len(without) - 1) * jackknife_error(z, np.arctanh(without))
    return Interval(float(np.tanh(z - half)), float(np.tanh(z + half)))


def clustered_slope_interval(slope: float, without: Floats) -> Interval:
    """Of a slope, from the slopes with each cluster left out."""
    if len(without) < FEWEST_UNITS or not np.isfinite(without).all():
        return NONE
    half = float(student.isf(LEVEL / 2, len(without) - 1) * jackknife_error(slope, without))
    return Interval(slope - half, slope + half)
