"""Where a metric moves as models collapse: what makes a correlation agree with the theory or go against it.

The catalogue says so for most metrics. Two kinds need the values. One that *approaches* its ideal falls if all models
stand above it and rises if all stand below. A coefficient of variation that the catalogue leaves without a direction,
since its denominator may be near 0, is read as the paper reads it: its magnitude shrinks.
"""

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from collapselab.core.metrics import Metric


@final
@dataclass(frozen=True)
class Toward:
    """-1: the value falls toward collapse; 1: it rises; 0: nobody says, for the reason given."""

    sign: int
    why: str


def toward(metric: Metric, values: NDArray[np.float64], ideals: NDArray[np.float64]) -> Toward:
    """The direction of a metric for models with these values and ideals."""
    if metric.direction == "falls":
        return Toward(-1, "falls, by the catalogue")
    if metric.direction == "rises":
        return Toward(1, "rises, by the catalogue")
    if metric.direction == "approaches":
        return _side(values - ideals, "approaches its ideal", "the ideal")
    if metric.id.endswith("_cv"):
        return _side(values, "variation shrinks, by the paper", "0")
    return Toward(0, "no direction in the catalogue")


def _side(above: NDArray[np.float64], what: str, point: str) -> Toward:
    above = above[~np.isnan(above)]
    if not len(above):
        return Toward(0, f"{what}, which is not known here")
    if (above > 0).all():
        return Toward(-1, f"{what}, from above")
    if (above < 0).all():
        return Toward(1, f"{what}, from below")
    return Toward(0, f"{what}, and values stand on both sides of {point}")
