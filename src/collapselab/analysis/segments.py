"""Segmented lines: a continuous line whose slope changes at few places, and how many such places the data support.

    y = a + b t + Σ_k c_k max(0, t − s_k) + noise          t: log of the training tokens

All places s are tried, at points and half-way between neighbours, with at least two points on either side of each. The
number of breaks is that of the smallest BIC, for few points as in McQuarrie (1999),

    n log(RSS/n) + p log n · n / (n − p − 1)               p = 2 + 2 breaks: a slope and a place each

Of 8 to 20 points on a straight line with noise, 1 to 4 % then have a break; by the plain BIC, with three parameters a
break, 4 to 21 % would (`tests/analysis/test_phases.py` counts them).
"""

import itertools
from dataclasses import dataclass
from functools import lru_cache
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm
from scipy.stats import t as student

Floats = NDArray[np.float64]

FEWEST = 8
"""Points below which no break is looked for."""
MOST_BREAKS = 2
PARAMETERS = 2
"""Of a break, in BIC."""
EXACT = 1e-10
"""A residual sum of squares that is a smaller share of the variation is rounding."""


@final
@dataclass(frozen=True)
class Segments:
    """The fit with the number of breaks that BIC chooses: where slopes change, slopes, and the fitted values."""

    places: tuple[float, ...]
    slopes: tuple[float, ...]
    """One more than places."""
    fitted: Floats
    gain: float
    """By how much BIC is below that of a straight line."""

    @property
    def main(self) -> int | None:
        """The number of the break with the largest change of slope; None without breaks."""
        changes = np.abs(np.diff(self.slopes))
        return int(changes.argmax()) if len(changes) else None


@final
class Grid:
    """The places that are tried for some points t, ascending, and an orthonormal basis of the fit for each choice."""

    def __init__(self, t: Floats) -> None:
        self.t = t
        inner = t[1:-1]
        halves = (t[1:-2] + t[2:-1]) / 2
        self.candidates = np.sort(np.concatenate([inner, halves]))
        self.choices: dict[int, list[tuple[float, ...]]] = {0: [()]}
        for breaks in range(1, MOST_BREAKS + 1):
            self.choices[breaks] = [
                places for places in itertools.combinations(self.candidates, breaks) if self._spaced(places)
            ]
        self.bases = {
            breaks: np.stack([np.linalg.qr(_design(t, places))[0] for places in choices])
            for breaks, choices in self.choices.items()
            if choices
        }

    def best(self, y: Floats, breaks: int) -> tuple[Floats, NDArray[np.int64]]:
        """The least residual sum of squares for each row of y (rows, points), and the number of its choice."""
        overlap = np.einsum("cnp,rn->crp", self.bases[breaks], y)
        residual = (y**2).sum(1) - (overlap**2).sum(2)
        return residual.min(0), residual.argmin(0)

    def _spaced(self, places: tuple[float, ...]) -> bool:
        """At least two points before the first, after the last, and between two breaks."""
        edges = [-np.inf, *places, np.inf]
        return all(((self.t > low) & (self.t < high)).sum() >= 2 for low, high in itertools.pairwise(edges))


def fit_segments(t: Floats, y: Floats) -> Segments:
    """The segmented line of points with t ascending; of fewer than `FEWEST` a straight one."""
    grid = grid_of(tuple(t))
    centred = (y - y.mean())[None]
    spread = float((centred**2).sum())
    floor = EXACT * spread + np.finfo(float).tiny
    scores = {}
    for breaks in grid.bases if len(t) >= FEWEST else (0,):
        residual, choice = grid.best(centred, breaks)
        scores[breaks] = (_bic(max(float(residual[0]), floor), len(t), breaks), int(choice[0]))
    chosen = min(scores, key=lambda breaks: scores[breaks][0])
    places = grid.choices[chosen][scores[chosen][1]]
    coefficients, *_ = np.linalg.lstsq(_design(t, places), y, rcond=None)
    slopes = tuple(np.cumsum(coefficients[1:]).tolist())
    return Segments(places, slopes, _design(t, places) @ coefficients, scores[0][0] - scores[chosen][0])


def resampled_main_breaks(t: Floats, y: Floats, fit: Segments, *, resamples: int, rng: np.random.Generator) -> Floats:
    """The place of the main break in fits to resampled residuals, the number of breaks kept (resamples,).

    The noise is known from few points, so distances from the place that was found are widened as Student's t is wider
    than the normal distribution.
    """
    grid, breaks = grid_of(tuple(t)), len(fit.places)
    residuals = (y - fit.fitted) * np.sqrt(len(t) / max(1, len(t) - 2 - 2 * breaks))
    drawn = fit.fitted + rng.choice(residuals, (resamples, len(t)))
    _, choices = grid.best(drawn - drawn.mean(1, keepdims=True), breaks)
    main_breaks = np.empty(resamples)
    for row, choice in enumerate(choices):
        places = grid.choices[breaks][choice]
        coefficients, *_ = np.linalg.lstsq(_design(t, places), drawn[row], rcond=None)
        main_breaks[row] = places[int(np.abs(coefficients[2:]).argmax())]
    main = fit.main
    assert main is not None
    wider = student.isf(0.025, max(1, len(t) - 2 - 2 * breaks)) / norm.isf(0.025)
    widened: Floats = np.clip(fit.places[main] + wider * (main_breaks - fit.places[main]), t[0], t[-1])
    return widened


@lru_cache(maxsize=64)
def grid_of(t: tuple[float, ...]) -> Grid:
    """The grid of some points, which many series share."""
    return Grid(np.array(t))


def _design(t: Floats, places: tuple[float, ...]) -> Floats:
    return np.stack([np.ones_like(t), t, *(np.maximum(0, t - place) for place in places)], 1)


def _bic(residual: float, points: int, breaks: int) -> float:
    parameters = 2 + PARAMETERS * breaks
    penalty = parameters * np.log(points) * points / max(points - parameters - 1, 1)
    return float(points * np.log(residual / points) + penalty)
