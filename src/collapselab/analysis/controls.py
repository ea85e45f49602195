"""Controls: what a metric says about the outcome beyond scale and training, under one specification after another.

The models of a suite differ in size and training, which drive metric and outcome alike. Each specification takes more
of that away; the last holds all of it fixed and compares seeds alone. No single one is the truth: the curve of all is
the answer, with the between-model and the within-cell one side by side.

Two p-values are beside each partial correlation: of ordinary least squares, and robust to models of one architecture
being alike. The larger of the two is corrected and judged. Where several models share an architecture and there are too
few architectures for the second, or where too few degrees of freedom are left, there is no p, interval or verdict.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import pandas as pd
import statsmodels.api as sm  # type: ignore[import-untyped]
from scipy.linalg import orth
from scipy.stats import t as student

from collapselab.analysis.attainable import FEWEST_CLUSTERS, FEWEST_FREEDOM
from collapselab.analysis.corrections import holm
from collapselab.analysis.models import NOT_TESTED, Floats, Models, Variable, regime_columns
from collapselab.analysis.relate import WITHIN, Relation, is_shown, verdict
from collapselab.analysis.resampling import Codes

MIXED, SEEDS = "mixed model", "seeds alone"
BETWEEN = "between models"


@final
@dataclass(frozen=True)
class Control:
    """One metric beyond one set of controls; a row of `controls.csv`."""

    controls: str
    metric: str
    n: int
    r2_controls: float | None = None
    partial_r: float | None = None
    p: float | None = None
    r2_added: float | None = None
    low: float | None = None
    high: float | None = None
    p_clustered: float | None = None
    p_holm: float | None = None
    comparison: str = BETWEEN
    transform: str = "raw"
    family: str = "exploration"
    freedom: int | None = None
    missing: int = 0
    goes: str | None = None
    verdict: str | None = None
    why: str | None = None


def controls(models: Models, relations: Iterable[Relation]) -> list[Control]:
    """The specification curve of every metric, and from the relations the comparison of seeds alone."""
    rows = least_squares(models)
    rows += [_mixed(models, variable) for variable in models.variables]
    rows += [_seeds_alone(models, relation) for relation in relations if relation.subset == WITHIN]
    return list(_judged(models, rows))


def least_squares(models: Models) -> list[Control]:
    """The specifications that are plain regressions, not yet corrected or judged."""
    rows = []
    for name, terms in SPECIFICATIONS.items():
        bases: dict[bytes, Floats] = {}
        rows += [_least_squares(models, variable, name, terms, bases) for variable in models.variables]
    return rows


class _Unavailable(Exception):
    """The table cannot answer this one; the message says why."""


def _nothing(frame: pd.DataFrame) -> list[Floats]:
    return []


def _parameters(frame: pd.DataFrame) -> list[Floats]:
    return [np.log(_complete(frame, "parameters"))[:, None]]


def _factors(frame: pd.DataFrame) -> list[Floats]:
    return [_dummies(frame[column]) for column in ("family", "width", "depth", *regime_columns(frame))]


def _cells(frame: pd.DataFrame) -> list[Floats]:
    return [_dummies(frame["architecture"]), _dummies(frame["regime"])]


def _interactions(frame: pd.DataFrame) -> list[Floats]:
    pairs = (frame[column].astype(str) + " " + frame["regime"] for column in ("width", "depth"))
    return [_dummies(frame["architecture"]), *map(_dummies, pairs)]


def _training_loss(frame: pd.DataFrame) -> list[Floats]:
    return [_complete(frame, "train_loss")[:, None]]


SPECIFICATIONS: dict[str, Callable[[pd.DataFrame], list[Floats]]] = {
    "nothing": _nothing,
    "log parameters": _parameters,
    "width, depth and regime as factors": _factors,
    "architecture and regime": _cells,
    "architecture, regime and their interactions": _interactions,
    "training loss": _training_loss,
}
"""From name to columns. The interactions are of width and of depth with the regime: that of the whole architecture with
it leaves seeds alone, which is a row of its own."""


def _complete(frame: pd.DataFrame, column: str) -> Floats:
    values = frame[column].to_numpy(dtype=float)
    if np.isnan(values).any():
        raise _Unavailable(f"{column} is missing for {int(np.isnan(values).sum())} of {len(values)} models.")
    return values


def _dummies(labels: "pd.Series[Any]") -> Floats:
    return pd.get_dummies(labels, dtype=float, dummy_na=bool(labels.isna().any())).to_numpy()


def _least_squares(
    models: Models,
    variable: Variable,
    name: str,
    terms: Callable[[pd.DataFrame], list[Floats]],
    bases: dict[bytes, Floats],
) -> Control:
    """One row; `bases` keeps what the controls span, for the next metric that is known for the same models."""
    frame, x, y, row = _start(models, variable, name)
    try:
        _require_variation(variable, x, y)
        key = frame.index.to_numpy().tobytes()
        if key not in bases:
            bases[key] = orth(np.concatenate([np.ones((len(y), 1)), *terms(frame)], axis=1))
        return replace(row, **_partial(x, y, bases[key], *_clusters(frame)))
    except _Unavailable as reason:
        return replace(row, why=str(reason))


def _start(models: Models, variable: Variable, name: str) -> tuple[pd.DataFrame, Floats, Floats, Control]:
    outcome = models.trained[models.outcome].to_numpy(dtype=float)
    known = ~np.isnan(variable.values) & ~np.isnan(outcome)
    row = Control(
        name,
        variable.metric,
        int(known.sum()),
        transform=variable.transform,
        family="paper" if variable.in_paper else "exploration",
        missing=int((~known).sum()),
    )
    return models.trained[known], variable.values[known], outcome[known], row


def _require_variation(variable: Variable, x: Floats, y: Floats) -> None:
    if variable.metric in NOT_TESTED:
        raise _Unavailable(NOT_TESTED[variable.metric])
    if len(y) < 4:
        raise _Unavailable(f"{len(y)} models: too few for a regression.")
    for name, values in ((variable.metric, x), ("the outcome", y)):
        if np.ptp(values) <= 1e-12 * np.abs(values).max():
            raise _Unavailable(f"{name} is the same in all {len(values)} models.")


def _clusters(frame: pd.DataFrame) -> tuple[Codes, str]:
    """What is independent, and its name: architectures; runs where all are of one architecture."""
    name = "architecture" if frame["architecture"].nunique() > 1 else "run"
    return np.asarray(pd.factorize(frame[name])[0], dtype=np.intp), f"{name}s"


def _partial(x: Floats, y: Floats, basis: Floats, clusters: Codes, unit: str) -> dict[str, Any]:
    """The regression of y on x and the controls, by what the controls leave of both (Frisch and Waugh)."""
    x, y = (x - x.mean()) / x.std(), (y - y.mean()) / y.std()
    freedom = len(y) - basis.shape[1] - 1
    if freedom < 2:
        raise _Unavailable(f"{len(y)} models and as many controls: nothing is left to compare.")
    left_x, left_y = (values - basis @ (basis.T @ values) for values in (x, y))
    for name, left in (("metric", left_x), ("outcome", left_y)):
        if left @ left <= 1e-9 * len(y):
            raise _Unavailable(f"the controls determine the {name} entirely.")
    r = float(np.clip(left_x @ left_y / np.sqrt((left_x @ left_x) * (left_y @ left_y)), -1, 1))
    unexplained = float(left_y @ left_y) / len(y)
    found = {"r2_controls": max(0.0, 1 - unexplained), "r2_added": r**2 * unexplained, "partial_r": r}
    if why := _why_no_p(len(y), freedom, clusters, unit):
        return {**found, "freedom": freedom, "why": why}
    with np.errstate(divide="ignore"):
        at_r = np.sqrt(freedom) * np.divide(r, np.sqrt(1 - r**2))
        low, high = np.tanh(np.arctanh(r) + np.array([-1.96, 1.96]) / np.sqrt(freedom - 1))
    return {
        **found,
        "low": float(low),
        "high": float(high),
        "p": float(2 * student.sf(abs(at_r), freedom)),
        "p_clustered": _clustered(left_x, left_y, freedom, clusters),
        "freedom": freedom,
    }


def _why_no_p(models: int, freedom: int, clusters: Codes, unit: str) -> str | None:
    count = int(clusters.max()) + 1
    if count < min(models, FEWEST_CLUSTERS):
        return f"{models} models come from {count} {unit}; a p that lets those of one be alike needs {FEWEST_CLUSTERS}."
    if freedom < FEWEST_FREEDOM:
        return f"{models} models leave {freedom} degrees of freedom; a p needs {FEWEST_FREEDOM}."
    return None


def _clustered(left_x: Floats, left_y: Floats, freedom: int, clusters: Codes) -> float | None:
    """p that lets models of one cluster be alike, with the usual correction for few clusters and many controls."""
    if clusters.max() + 1 < FEWEST_CLUSTERS:
        return None
    fit = sm.OLS(left_y, left_x).fit(cov_type="cluster", cov_kwds={"groups": clusters})
    t = float(fit.tvalues[0]) * np.sqrt(freedom / (len(left_y) - 1))
    return float(2 * student.sf(abs(t), clusters.max()))


def _mixed(models: Models, variable: Variable) -> Control:
    """Metric, log parameters and regime as fixed effects; random intercepts for architecture and seed, crossed."""
    frame, x, y, row = _start(models, variable, MIXED)
    try:
        _require_variation(variable, x, y)
        architectures = frame["architecture"].nunique()
        if architectures < FEWEST_CLUSTERS:
            raise _Unavailable(f"{architectures} architectures; random intercepts need {FEWEST_CLUSTERS}.")
        if len(y) - architectures < FEWEST_FREEDOM:
            raise _Unavailable(
                f"{len(y)} models of {architectures} architectures; random intercepts need {FEWEST_FREEDOM} models "
                "more than architectures, or they cannot be told from noise."
            )
        return replace(row, **_mixed_numbers(frame, x, y))
    except _Unavailable as reason:
        return replace(row, why=str(reason))


def _mixed_numbers(frame: pd.DataFrame, x: Floats, y: Floats) -> dict[str, Any]:
    parameters = np.log(_complete(frame, "parameters"))
    table = pd.DataFrame({
        "x": (x - x.mean()) / x.std(),
        "y": (y - y.mean()) / y.std(),
        "size": (parameters - parameters.mean()) / (parameters.std() if np.ptp(parameters) > 0 else 1.0),
        "regime": frame["regime"].to_numpy(),
        "architecture": frame["architecture"].to_numpy(),
        "seed": frame["seed"].astype(object).where(frame["seed"].notna(), "unnamed").astype(str).to_numpy(),
    })  # fmt: skip
    fixed = "y ~ x + size" + (" + C(regime)" if table["regime"].nunique() > 1 else "")
    intercepts = {"architecture": "0 + C(architecture)", "seed": "0 + C(seed)"}
    if table["seed"].nunique() < 2:
        del intercepts["seed"]
    model = sm.MixedLM.from_formula(fixed, table, groups=np.ones(len(table)), re_formula="0", vc_formula=intercepts)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a variance at 0 is an answer; what did not converge is refused below
        try:
            fit = model.fit(method=["powell"], disp=0)
        except np.linalg.LinAlgError as error:
            raise _Unavailable(f"the mixed model cannot be fitted ({error}).") from error
        error_of_x, p = float(fit.bse["x"]), float(fit.pvalues["x"])
    if not fit.converged or not np.isfinite([error_of_x, p]).all():
        raise _Unavailable("the mixed model does not converge.")
    z = float(fit.params["x"]) / error_of_x
    freedom = len(table) - model.exog.shape[1]
    r = z / np.sqrt(z**2 + freedom)
    low, high = (bound / np.sqrt(bound**2 + freedom) for bound in (z - 1.96, z + 1.96))
    return {"partial_r": r, "low": low, "high": high, "p": p, "freedom": freedom}


def _seeds_alone(models: Models, relation: Relation) -> Control:
    """The relation within cells as a row of the curve: its controls are the cells themselves."""
    frame = models.trained
    share = None
    if relation.r is not None and relation.cells > 1:
        twins = frame[frame["last"] & (frame.groupby("cell")["run"].transform("size") > 1)]
        outcome = twins[models.outcome]
        centred = outcome - outcome.groupby(twins["cell"]).transform("mean")
        share = float(1 - (centred**2).sum() / ((outcome - outcome.mean()) ** 2).sum())
    elif relation.r is not None:
        share = 0.0
    return Control(
        SEEDS,
        relation.metric,
        relation.n,
        r2_controls=share,
        partial_r=relation.r,
        p=relation.p_permutation,
        r2_added=None if relation.r is None or share is None else relation.r**2 * (1 - share),
        low=relation.low,
        high=relation.high,
        comparison=WITHIN,
        transform=relation.transform,
        family=relation.family,
        freedom=None if relation.r is None else relation.n - relation.cells - 1,
        missing=relation.missing,
        why=relation.why,
    )


def _judged(models: Models, rows: list[Control]) -> Iterator[Control]:
    corrected: dict[int, float] = {}
    for key in {(row.controls, row.family) for row in rows}:
        tested = {i: _larger(row) for i, row in enumerate(rows)
                  if (row.controls, row.family) == key and row.p is not None}  # fmt: skip
        corrected.update(zip(tested, holm(list(tested.values())), strict=True))
    for i, row in enumerate(rows):
        if row.partial_r is None or i not in corrected:
            yield row
            continue
        expected = models.expected(row.metric)
        goes = None if expected == 0 or row.partial_r == 0 else "with" if row.partial_r * expected > 0 else "against"
        judged = replace(row, p_holm=corrected[i], goes=goes)
        yield replace(judged, verdict=verdict(goes, models, shown=is_shown(judged)))


def _larger(row: Control) -> float:
    """The p that is judged."""
    return max(p for p in (row.p, row.p_clustered) if p is not None)
