"""The joint test of all specifications: does a metric say anything of the outcome beyond a smooth function of scale?

A specification alone finds the bend that it lacks. So a smooth function of scale, another one in every regime (a
polynomial of the fourth degree in log width and log depth), is added to each; and all of them are tested at once, by
one permutation: what that function leaves of the metric changes places between architectures, all regimes of an
architecture together, and every specification is computed again (Freedman & Lane 1983,
doi:10.1080/07350015.1983.10509354; jointly as in Simonsohn, Simmons & Nelson 2020, doi:10.1038/s41562-020-0912-z).

    T = |mean over specifications of r_s / (its standard deviation over permutations)|

The test holds its level where the metric is a function of scale that smooth and chance. A metric that is a rougher
function of scale may be found: then it says what a smooth law of scale does not, and no more.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, final

import numpy as np
import pandas as pd
from scipy.linalg import orth

from collapselab.analysis.attainable import FEWEST_FREEDOM, permutations_can_show, why_no_permutation
from collapselab.analysis.models import Floats, Models
from collapselab.analysis.resampling import TIE, jointly
from collapselab.analysis.subsets import codes_of, count_of, exchangeable
from collapselab.analysis.verdict import Cause, Reason

DEGREE = 4
MOST_PERMUTATIONS = 1999
"""Enough for a p of 0.0005; more would take the time of all other statements together."""

Terms = Callable[[pd.DataFrame], list[Floats]]


@final
class Joint(NamedTuple):
    """The joint test of one metric: the mean partial r over specifications, its p, and how many there were."""

    partial_r: float
    p: float
    specifications: int


@final
class Multiverse:
    """The specifications of one set of cells, each with the smooth function, and permutations of the architectures.

    `frame` has one row for every architecture in every regime. All metrics known there share bases and permutations.
    """

    def __init__(self, frame: pd.DataFrame, terms: Sequence[Terms], *, permutations: int, seed: int) -> None:
        self.smooth = orth(smooth_function(frame))
        bases = [orth(np.concatenate([self.smooth, *term(frame)], axis=1)) for term in terms]
        enough = [basis for basis in bases if len(frame) - basis.shape[1] >= FEWEST_FREEDOM]
        self.bases = _distinct([self.smooth, *enough])
        blocks = exchangeable(codes_of(frame["regime"]), codes_of(frame["architecture"]))
        rng = np.random.default_rng(seed)
        self.orders = jointly(blocks, len(frame), min(permutations, MOST_PERMUTATIONS), rng)

    def test(self, x: Floats, y: Floats) -> Joint | Reason:
        """Metric x against the outcome y; a reason where the smooth function determines one of them."""
        left = x - self.smooth @ (self.smooth.T @ x)
        if left @ left <= 1e-9 * ((x - x.mean()) ** 2).sum():
            return Reason(Cause.NO_VARIATION, "a smooth function of scale and regime determines the metric entirely.")
        shuffled = left[self.orders]
        observed, deviations = [], []
        total = np.zeros(len(shuffled))
        for basis in self.bases:
            left_y = y - basis @ (basis.T @ y)
            if left_y @ left_y <= 1e-9 * ((y - y.mean()) ** 2).sum():
                continue
            r, permuted = _partial(left, left_y, basis), _partial(shuffled, left_y, basis)
            deviation = float(np.sqrt((permuted**2).mean()))
            if deviation > 0:
                observed.append(float(r[0]))
                deviations.append(deviation)
                total += permuted / deviation
        if not observed:
            return Reason(Cause.NO_VARIATION, "a smooth function of scale and regime determines the outcome entirely.")
        found = abs(sum(r / deviation for r, deviation in zip(observed, deviations, strict=True)))
        as_large = int((np.abs(total) >= found * (1 - TIE)).sum())
        return Joint(float(np.mean(observed)), (1 + as_large) / (1 + len(shuffled)), len(observed))


def smooth_function(frame: pd.DataFrame) -> Floats:
    """The columns of a polynomial in log width and log depth, another in every regime, and a level for each family."""
    axes = [_standard_log(frame[name].to_numpy(dtype=float)) for name in ("width", "depth")]
    levels = [min(DEGREE, len(np.unique(axis)) - 1) for axis in axes]
    powers = [(i, j) for i in range(levels[0] + 1) for j in range(levels[1] + 1) if i + j <= DEGREE]
    polynomial = np.stack([axes[0] ** i * axes[1] ** j for i, j in powers], axis=1)
    regimes = np.eye(count_of(codes := codes_of(frame["regime"])))[codes]
    families = np.eye(count_of(codes := codes_of(frame["family"])))[codes]
    return np.concatenate([*(polynomial * regime[:, None] for regime in regimes.T), families], axis=1)


def why_no_joint_test(frame: pd.DataFrame) -> Reason | None:
    """Why there are too few architectures; None where there are enough in every regime."""
    if frame[["width", "depth"]].isna().any(axis=None):
        return Reason(Cause.MISSING, "width or depth of some model is not known.")
    smallest = min((group for _, group in frame.groupby("regime")), key=len)
    needed = np.linalg.matrix_rank(smooth_function(smallest)) + FEWEST_FREEDOM
    if len(smallest) < needed:
        text = f"{len(smallest)} architectures in one regime; beyond a smooth function of scale takes {needed}."
        return Reason(Cause.TOO_FEW, text)
    sizes = [block.shape[1] for block in exchangeable(codes_of(frame["regime"]), codes_of(frame["architecture"]))]
    if not permutations_can_show(sizes):
        return Reason(Cause.TOO_FEW, why_no_permutation(sizes, "architectures"))
    return None


def cells_of(models: Models, values: Floats) -> pd.DataFrame:
    """One row for every architecture and regime, seeds averaged, with the metric as `x` and the outcome as `y`."""
    columns = ["family", "architecture", "regime", "width", "depth", "parameters", "train_loss"]
    frame = models.trained[columns].assign(x=values, y=models.trained[models.outcome]).dropna(subset=["x", "y"])
    keys = ["family", "architecture", "regime"]
    return frame.groupby(keys, dropna=False, sort=False).mean().reset_index()


def _standard_log(values: Floats) -> Floats:
    logs = np.log(values)
    spread = logs.std() if np.ptp(logs) > 0 else 1.0
    standard: Floats = (logs - logs.mean()) / spread
    return standard


def _partial(x: Floats, left_y: Floats, basis: Floats) -> Floats:
    """Correlation of every row of x with y beyond the basis; 0 where the basis leaves nothing of it."""
    x = np.atleast_2d(x)
    squares = (x**2).sum(1) - ((x @ basis) ** 2).sum(1)
    whole = (x**2).sum(1)
    squares = np.where(squares > 1e-9 * whole, squares, np.inf)
    r: Floats = (x @ left_y) / np.sqrt(squares * (left_y @ left_y))
    return r


def _distinct(bases: Sequence[Floats]) -> list[Floats]:
    """Without those that span the same: they would count one specification twice."""
    kept: list[Floats] = []
    for basis in bases:
        spans = [other for other in kept if other.shape == basis.shape]
        if not any(np.allclose(((basis.T @ other) ** 2).sum(), basis.shape[1], rtol=1e-6) for other in spans):
            kept.append(basis)
    return kept
