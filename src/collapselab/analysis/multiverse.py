"""The joint test of all specifications: does a metric say anything of the outcome beyond a smooth function of scale?

A specification alone finds the bend that it lacks. So a smooth function of scale, another one in every regime (a
polynomial of the fourth degree in log width and log depth), is added to each. Permutations are the same for all: what
that function leaves of the metric changes places between architectures, all regimes of an architecture together
(Freedman & Lane 1983, doi:10.1080/07350015.1983.10509354). Only what every specification shows, with one sign, is
shown: p is the largest of theirs. That holds its level as long as one of the specifications has all that it needs (an
intersection-union test; Berger 1982, doi:10.1080/00401706.1982.10487790), and the mean over them does not.

What is left must be exchangeable between architectures, of the metric or of the outcome. Where neighbours in width and
depth are still alike in both (Moran's I), a function of scale rougher than the polynomial would be found too: then no
test is made.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, final

import numpy as np
import pandas as pd
from scipy.linalg import orth

from collapselab.analysis.attainable import FAMILY_SIZES, FEWEST_FREEDOM, LEVEL, why_no_permutation
from collapselab.analysis.models import Floats, Models
from collapselab.analysis.resampling import TIE, jointly
from collapselab.analysis.subsets import codes_of, count_of, exchangeable
from collapselab.analysis.verdict import Cause, Reason, too_few

DEGREE = 4
MOST_PERMUTATIONS = 1999
"""Enough for a p of 0.0005; more would take the time of all other statements together."""

MOST_FOR_LIKENESS = 499
ROUGH = "what a smooth function leaves of metric and outcome still follows scale: the test would find scale itself."

Terms = Callable[[pd.DataFrame], list[Floats]]


@final
class Joint(NamedTuple):
    """The joint test of one metric: p and partial r of the specification that shows it least, and their number."""

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
        self.neighbours = _neighbours(frame)
        blocks = exchangeable(codes_of(frame["regime"]), codes_of(frame["architecture"]))
        rng = np.random.default_rng(seed)
        self.orders = jointly(blocks, len(frame), min(permutations, MOST_PERMUTATIONS), rng)

    def test(self, x: Floats, y: Floats) -> Joint | Reason:
        """Metric x against the outcome y; a reason where the smooth function determines one, or describes neither."""
        left, left_y = (values - self.smooth @ (self.smooth.T @ values) for values in (x, y))
        for name, rest, values in (("metric", left, x), ("outcome", left_y, y)):
            if rest @ rest <= 1e-9 * ((values - values.mean()) ** 2).sum():
                text = f"a smooth function of scale and regime determines the {name} entirely."
                return Reason(Cause.NO_VARIATION, text)
        if max(self.likeness_p(left), self.likeness_p(left_y)) < LEVEL:
            return Reason(Cause.NO_FIT, ROUGH)
        shuffled, tests = left[self.orders], []
        for basis in self.bases:
            rest = y - basis @ (basis.T @ y)
            if rest @ rest <= 1e-9 * ((y - y.mean()) ** 2).sum():
                continue
            r, permuted = float(_partial(left, rest, basis)[0]), np.abs(_partial(shuffled, rest, basis))
            tests.append((_p_of(int((permuted >= abs(r) * (1 - TIE)).sum()), len(shuffled)), r))
        p, weakest = max(tests, key=lambda pair: (pair[0], -abs(pair[1])))
        one_sign = len({r > 0 for _, r in tests}) == 1
        return Joint(weakest, p if one_sign else 1.0, len(tests))

    def likeness_p(self, left: Floats) -> float:
        """p of Moran's I: that neighbours in scale are no more alike in these residuals than shuffled architectures.

        Residuals of a fit are never quite independent, so what is shuffled is fitted again.
        """
        shuffled = left[self.orders[:MOST_FOR_LIKENESS]]
        shuffled = shuffled - (shuffled @ self.smooth) @ self.smooth.T
        observed = left @ self.neighbours @ left / (left @ left)
        drawn = ((shuffled @ self.neighbours) * shuffled).sum(1) / (shuffled**2).sum(1)
        return _p_of(int((drawn >= observed - TIE).sum()), len(drawn))


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
        return too_few(len(smallest), "architectures in one regime", int(needed))
    sizes = [block.shape[1] for block in exchangeable(codes_of(frame["regime"]), codes_of(frame["architecture"]))]
    why = why_no_permutation(sizes, "architectures", tests=FAMILY_SIZES["paper"])
    return Reason(Cause.TOO_FEW, why) if why else None


def cells_of(models: Models, values: Floats) -> pd.DataFrame:
    """One row for every architecture and regime, seeds averaged, with the metric as `x` and the outcome as `y`."""
    columns = ["family", "architecture", "regime", "width", "depth", "parameters", "train_loss"]
    frame = models.trained[columns].assign(x=values, y=models.trained[models.outcome]).dropna(subset=["x", "y"])
    keys = ["family", "architecture", "regime"]
    return frame.groupby(keys, dropna=False, sort=False).mean().reset_index()


def _neighbours(frame: pd.DataFrame) -> Floats:
    """1 for cells of one family and regime that are nearest in the order of widths and depths; 0 for all others."""
    ranks = [np.unique(frame[name], return_inverse=True)[1] for name in ("width", "depth")]
    together = codes_of(frame["family"].astype(str) + " " + frame["regime"].astype(str))
    distance = sum(np.abs(rank[:, None] - rank) for rank in ranks).astype(float)
    distance[(together[:, None] != together) | (distance == 0)] = np.inf
    nearest = (distance == distance.min(1, keepdims=True)) & np.isfinite(distance)
    return np.asarray(nearest | nearest.T, dtype=float)


def _p_of(as_large: int, permutations: int) -> float:
    return (1 + as_large) / (1 + permutations)


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
