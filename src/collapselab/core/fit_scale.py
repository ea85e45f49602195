"""The scale of scores at which a loss is least, by Newton's method."""

import math
from collections.abc import Callable

MOST_STEPS, LARGEST_STEP, PRECISION = 30, 4.0, 1e-6
"""At most a factor of 4 at once, until the relative change is this small."""


def fit_scale(derivatives: Callable[[float], tuple[float, float]], start: float) -> float:
    """The scale at which a function, convex in it, is least: by its first and second derivative, from `start` on."""
    scale = start
    for _ in range(MOST_STEPS):
        slope, curvature = derivatives(scale)
        step = scale - slope / curvature if curvature > 0 else (math.inf if slope < 0 else 0.0)
        before, scale = scale, min(max(step, scale / LARGEST_STEP), scale * LARGEST_STEP)
        if abs(scale - before) <= PRECISION * scale or not 1e-9 * start < scale < 1e9 * start:
            break
    return scale
