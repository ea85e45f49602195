"""The direction in which a metric changes as models collapse: a correlation agrees with the theory, or contradicts it.

The catalogue says so for most metrics. Two kinds need the values. One that *approaches* its ideal falls if all models
are above it and rises if all are below. One that falls to 0 and yet has negative values is a ratio whose denominator
changed its sign: it has no direction here. A ratio of which the catalogue says that this may happen never has one.
"""

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from collapselab.analysis.related import Related


@final
@dataclass(frozen=True)
class Toward:
    """-1: the value falls toward collapse; 1: it rises; 0: unknown, for the reason given."""

    sign: int
    why: str


def toward(metric: Related, values: NDArray[np.float64], ideals: NDArray[np.float64]) -> Toward:
    """The direction of a metric for models with these values and ideals."""
    known = values[~np.isnan(values)]
    if metric.direction == "falls" and metric.ideal == 0 and (known < 0).any():
        return Toward(0, "falls to 0, and some values are below it: the denominator of the ratio changed its sign")
    if metric.direction == "falls":
        return Toward(-1, "falls, by the catalogue")
    if metric.direction == "rises":
        return Toward(1, "rises, by the catalogue")
    if metric.direction == "approaches":
        return _side(values - ideals)
    return Toward(0, "no direction in the catalogue")


def _side(above: NDArray[np.float64]) -> Toward:
    above, what = above[~np.isnan(above)], "approaches its ideal"
    if not len(above):
        return Toward(0, f"{what}, which is not known here")
    if (above > 0).all():
        return Toward(-1, f"{what}, from above")
    if (above < 0).all():
        return Toward(1, f"{what}, from below")
    return Toward(0, f"{what}, and values are on both sides of it")
