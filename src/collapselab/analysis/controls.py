"""Beyond scale: does a metric say anything about the outcome that size and training do not?

The models of a suite differ in size and training, which move metric and outcome alike. One specification after another
takes more of that away, and no single one is a test: where a metric is nothing but a smooth function of scale, most of
them find it significant, since the outcome bends in scale as well. So a smooth function of scale, another one in every
regime (a polynomial of the fourth degree in log width and log depth), is added to each.

Permutations are the same for all: what that function leaves of the metric changes places between architectures, all
regimes of an architecture together (Freedman & Lane 1983, doi:10.1080/07350015.1983.10509354). Only what every
specification shows, with one sign, is shown: p is the largest of theirs. That holds its level as long as one of the
specifications has all that it needs (an intersection-union test; Berger 1982, doi:10.1080/00401706.1982.10487790), and
the mean over them does not.

What is left must be exchangeable between architectures, of the metric or of the outcome. Where neighbours in width and
depth are still alike in both (Moran's I), a function of scale rougher than the polynomial would be found too: then no
test is made. A row of `controls.csv` is the joint test of one metric.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.linalg import orth

from collapselab.analysis.families import FAMILY_SIZES, why_no_permutation
from collapselab.analysis.models import NOT_TESTED, RELATED, Floats, Models, Variable
from collapselab.analysis.relate import NOT_MEASURED
from collapselab.analysis.resampling import LEVEL, TIE, corrections, jointly
from collapselab.analysis.subsets import codes_of, count_of, exchangeable
from collapselab.analysis.verdict import RELATION, Cause, Direction, Estimate, Reason, Verdict, direction_of, judge
from collapselab.analysis.words import SHOWN, Sentence, by_reason, label_of, listed

MIN_MODELS = 4
MIN_FREEDOM = 6
"""Degrees of freedom that a regression must leave."""
DEGREE = 4
MAX_PERMUTATIONS = 1999
"""Enough for a p of 0.0005; more would take the time of all other statements together."""
MAX_FOR_LIKENESS = 499
ROUGH = "what a smooth function leaves of metric and outcome still follows scale: the test would find scale itself."


@dataclass(frozen=True)
class Control:
    """One metric beyond scale and training; a row of `controls.csv`."""

    metric: str
    """Id in the catalogue."""
    n: int
    """Cells: architectures by regimes, seeds averaged."""
    partial_r: float | None = None
    """Partial correlation with the outcome in the specification where it is weakest."""
    p: float | None = None
    """The largest permutation p of all specifications; 1 where their signs differ."""
    p_holm: float | None = None
    """Corrected over the family."""
    specifications: int | None = None
    """Specifications that could be fitted."""
    transform: str = "raw"
    """`raw` or `log`."""
    family: str = "exploration"
    """`paper`, `exploration` or `contexts`."""
    missing: int = 0
    """Models left out for a missing value."""
    goes: Direction | None = None
    """As in `relate.csv`."""
    verdict: Verdict = Verdict.TOO_FEW
    """As in `relate.csv`."""
    why: str | None = None
    """Why there are no numbers, or no p and no verdict."""
    why_code: Cause | None = None
    """As in `relate.csv`."""

    @property
    def label(self) -> str:
        """`cdnv`, or `log cdnv`."""
        return label_of(self.metric, self.transform)


def controls(models: Models, *, permutations: int = MAX_PERMUTATIONS, seed: int = 0) -> list[Control]:
    """The joint test of every metric on the scale of the catalogue, corrected within its family."""
    universes: dict[bytes, Multiverse | Reason] = {}
    chosen = [variable for variable in models.variables if variable.transform == RELATED[variable.metric].transform]
    rows = [_joint(models, variable, universes, permutations=permutations, seed=seed) for variable in chosen]
    for place, corrected in corrections((row.family, row.p) for row in rows).items():
        row = rows[place]
        estimate = Estimate(row.partial_r or 0.0, corrected.holm, models.expected(row.metric))
        rows[place] = replace(row, p_holm=corrected.holm, **judge(estimate, RELATION))
    return rows


def _joint(
    models: Models, variable: Variable, universes: dict[bytes, "Multiverse | Reason"], *, permutations: int, seed: int
) -> Control:
    """The test of one metric; metrics known for the same cells share bases and permutations in `universes`."""
    known = ~np.isnan(variable.values) & ~np.isnan(outcome := models.trained[models.outcome].to_numpy(dtype=float))
    row = Control(
        variable.metric, int(known.sum()), transform=variable.transform, family=RELATED[variable.metric].family,
        missing=int((~known).sum()),
    )  # fmt: skip
    if reason := variable.why_description or _why_no_test(variable, variable.values[known], outcome[known]):
        return replace(row, **reason.columns)
    # One row for every architecture and regime, seeds averaged.
    columns = ["family", "architecture", "regime", "width", "depth", "parameters", "train_loss"]
    frame = models.trained[columns].assign(x=variable.values, y=outcome).dropna(subset=["x", "y"])
    cells = frame.groupby(columns[:3], dropna=False, sort=False).mean().reset_index()
    key = pd.util.hash_pandas_object(cells[["architecture", "regime"]]).to_numpy().tobytes()
    if key not in universes:
        universes[key] = why_no_joint_test(cells) or Multiverse(cells, permutations=permutations, seed=seed)
    universe = universes[key]
    result = universe if isinstance(universe, Reason) else universe.test(cells["x"].to_numpy(), cells["y"].to_numpy())
    if isinstance(result, Reason):
        return replace(row, n=len(cells), **result.columns)
    goes = direction_of(result["partial_r"], models.expected(row.metric))
    return replace(row, n=len(cells), **result, goes=goes)


def _why_no_test(variable: Variable, x: Floats, y: Floats) -> Reason | None:
    if variable.metric in NOT_TESTED:
        return Reason(Cause.NOT_A_TEST, NOT_TESTED[variable.metric], Verdict.DESCRIPTION)
    if len(y) < MIN_MODELS:
        return Reason.too_few(len(y), "models", MIN_MODELS)
    for name, values in ((variable.metric, x), ("the outcome", y)):
        if np.ptp(values) <= 1e-12 * np.abs(values).max():
            return Reason(Cause.NO_VARIATION, f"{name} is the same in all {len(values)} models.")
    return None


def why_no_joint_test(frame: pd.DataFrame) -> Reason | None:
    """Why there are too few architectures; None where there are enough in every regime."""
    if frame[["width", "depth"]].isna().any(axis=None):
        return Reason(Cause.MISSING, "width or depth of some model is not known.")
    smallest = min((group for _, group in frame.groupby("regime")), key=len)
    needed = np.linalg.matrix_rank(smooth_function(smallest)) + MIN_FREEDOM
    if len(smallest) < needed:
        return Reason.too_few(len(smallest), "architectures in one regime", int(needed))
    sizes = [block.shape[1] for block in exchangeable(codes_of(frame["regime"]), codes_of(frame["architecture"]))]
    why = why_no_permutation(sizes, "architectures", tests=FAMILY_SIZES["paper"])
    return Reason(Cause.TOO_FEW, why) if why else None


class Multiverse:
    """The specifications of one set of cells, each with the smooth function, and permutations of the architectures.

    `frame` has one row for every architecture in every regime. All metrics known there share bases and permutations.
    """

    def __init__(self, frame: pd.DataFrame, *, permutations: int, seed: int) -> None:
        self.smooth = orth(smooth_function(frame))
        bases = [orth(np.concatenate([self.smooth, *columns], axis=1)) for columns in _specifications(frame)]
        self.bases = [self.smooth]
        for basis in (basis for basis in bases if len(frame) - basis.shape[1] >= MIN_FREEDOM):
            spans = [other for other in self.bases if other.shape == basis.shape]  # the same would count twice
            if not any(np.allclose(((basis.T @ other) ** 2).sum(), basis.shape[1], rtol=1e-6) for other in spans):
                self.bases.append(basis)
        self.neighbours = _neighbours(frame)
        blocks = exchangeable(codes_of(frame["regime"]), codes_of(frame["architecture"]))
        rng = np.random.default_rng(seed)
        self.orders = jointly(blocks, len(frame), min(permutations, MAX_PERMUTATIONS), rng)

    def test(self, x: Floats, y: Floats) -> dict[str, Any] | Reason:
        """Metric x against the outcome y; a reason where the smooth function determines one, or describes neither."""
        left, left_y = (values - self.smooth @ (self.smooth.T @ values) for values in (x, y))
        for name, rest, values in (("metric", left, x), ("outcome", left_y, y)):
            if _vanishes(rest, values):
                text = f"a smooth function of scale and regime determines the {name} entirely."
                return Reason(Cause.NO_VARIATION, text)
        if max(self.likeness_p(left), self.likeness_p(left_y)) < LEVEL:
            return Reason(Cause.NO_FIT, ROUGH)
        shuffled, tests = left[self.orders], []
        for basis in self.bases:
            rest = y - basis @ (basis.T @ y)
            if not _vanishes(rest, y):
                r, permuted = float(_partial(left, rest, basis)[0]), np.abs(_partial(shuffled, rest, basis))
                tests.append((_p_of(int((permuted >= abs(r) * (1 - TIE)).sum()), len(shuffled)), r))
        p, weakest = max(tests, key=lambda pair: (pair[0], -abs(pair[1])))
        one_sign = len({r > 0 for _, r in tests}) == 1
        return {"partial_r": weakest, "p": p if one_sign else 1.0, "specifications": len(tests)}

    def likeness_p(self, left: Floats) -> float:
        """p of Moran's I: that neighbours in scale are no more alike in these residuals than shuffled architectures.

        Residuals of a fit are never quite independent, so what is shuffled is fitted again.
        """
        shuffled = left[self.orders[:MAX_FOR_LIKENESS]]
        shuffled = shuffled - (shuffled @ self.smooth) @ self.smooth.T
        observed = left @ self.neighbours @ left / (left @ left)
        drawn = ((shuffled @ self.neighbours) * shuffled).sum(1) / (shuffled**2).sum(1)
        return _p_of(int((drawn >= observed - TIE).sum()), len(drawn))


def smooth_function(frame: pd.DataFrame) -> Floats:
    """The columns of a polynomial in log width and log depth, another in every regime, and a level for each family."""
    logs = np.log(frame[["width", "depth"]].to_numpy(dtype=float))
    axes = ((logs - logs.mean(0)) / np.where(np.ptp(logs, axis=0) > 0, logs.std(0), 1.0)).T
    levels = [min(DEGREE, len(np.unique(axis)) - 1) for axis in axes]
    powers = [(i, j) for i in range(levels[0] + 1) for j in range(levels[1] + 1) if i + j <= DEGREE]
    polynomial = np.stack([axes[0] ** i * axes[1] ** j for i, j in powers], axis=1)
    regimes, families = (np.eye(count_of(codes))[codes] for codes in map(codes_of, (frame["regime"], frame["family"])))
    return np.concatenate([*(polynomial * regime[:, None] for regime in regimes.T), families], axis=1)


def _specifications(frame: pd.DataFrame) -> list[list[Floats]]:
    """The columns that each specification adds to the smooth function.

    Interactions are of width and of depth with the regime: that of the whole architecture would leave seeds alone.
    """
    levels = {name: _dummies(frame[name]) for name in ("family", "width", "depth", "regime", "architecture")}
    interactions = [_dummies(frame[name].astype(str) + " " + frame["regime"]) for name in ("width", "depth")]
    loss = frame["train_loss"].to_numpy(dtype=float)
    return [
        [levels[name] for name in ("family", "width", "depth", "regime")],
        [levels["architecture"], levels["regime"]],
        [levels["architecture"], *interactions],
        *([] if np.isnan(loss).any() else [[loss[:, None]]]),
    ]


def _dummies(labels: pd.Series) -> Floats:
    return pd.get_dummies(labels, dtype=float, dummy_na=bool(labels.isna().any())).to_numpy()


def _neighbours(frame: pd.DataFrame) -> Floats:
    """1 for cells of one family and regime that are nearest in the order of widths and depths; 0 for all others."""
    ranks = [np.unique(frame[name], return_inverse=True)[1] for name in ("width", "depth")]
    together = codes_of(frame["family"].astype(str) + " " + frame["regime"].astype(str))
    distance = sum(np.abs(rank[:, None] - rank) for rank in ranks).astype(float)
    distance[(together[:, None] != together) | (distance == 0)] = np.inf
    nearest = (distance == distance.min(1, keepdims=True)) & np.isfinite(distance)
    return np.asarray(nearest | nearest.T, dtype=float)


def _vanishes(rest: Floats, values: Floats) -> bool:
    return bool(rest @ rest <= 1e-9 * ((values - values.mean()) ** 2).sum())


def _p_of(as_large: int, permutations: int) -> float:
    return (1 + as_large) / (1 + permutations)


def _partial(x: Floats, left_y: Floats, basis: Floats) -> Floats:
    """Correlation of every row of x with y beyond the basis; 0 where the basis leaves nothing of it."""
    x = np.atleast_2d(x)
    whole = (x**2).sum(1)
    squares = whole - ((x @ basis) ** 2).sum(1)
    squares = np.where(squares > 1e-9 * whole, squares, np.inf)
    return np.asarray((x @ left_y) / np.sqrt(squares * (left_y @ left_y)))


def sentences(models: Models, rows: Sequence[Control]) -> Iterable[Sentence]:
    """What the joint test shows of the paper's metrics, and what has no answer."""
    paper = [row for row in rows if row.family == "paper"]
    beyond = "Beyond a smooth function of scale"
    texts = [
        f"{beyond}, {row.label} is related to {models.outcome} in every specification, {SHOWN[row.verdict]} "
        f"(partial r {row.partial_r:+.2f} where weakest, Holm p {row.p_holm:.2g})."
        for row in paper
        if row.verdict in SHOWN
    ]
    if rest := [f"{row.label} {row.partial_r:+.2f}" for row in paper if row.verdict is Verdict.NOT_SHOWN]:
        texts.append(f"{beyond}, nothing is shown for {listed(rest, room=125)} (partial r where weakest).")
    untold = by_reason((row.why, row.label) for row in paper if row.verdict is Verdict.TOO_FEW)
    texts += [f"{beyond}: no verdict on {listed(names, room=50)}; {why}" for why, names in untold.items()]
    if not paper:
        texts.append(f"{beyond}: no verdict; {NOT_MEASURED}")
    return [Sentence("controls", "controls", text) for text in texts]
