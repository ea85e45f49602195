"""Controls: what a metric says about the outcome beyond scale and training, under one specification after another.

The models of a suite differ in size and training, which drive metric and outcome alike. Each specification takes more
of that away; the last holds all of it fixed and compares seeds alone. No single one is the truth: the curve of all is
the answer, with the between-model and the within-cell one side by side.

Two p-values are beside each partial correlation: of ordinary least squares, and robust to models of one architecture
being alike. The larger of the two is corrected and judged. Where several models share an architecture and there are too
few architectures for the second, or where too few degrees of freedom are left, there is no p, interval or verdict.
"""

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np
import pandas as pd
import statsmodels.api as sm  # type: ignore[import-untyped]
from scipy.linalg import orth
from scipy.stats import t as student

from collapselab.analysis.attainable import FEWEST_CLUSTERS, FEWEST_FREEDOM
from collapselab.analysis.models import NOT_TESTED, Floats, Models, Variable, regime_columns
from collapselab.analysis.relate import Relation
from collapselab.analysis.resampling import Codes
from collapselab.analysis.subsets import WITHIN, SubsetKind, codes_of, count_of
from collapselab.analysis.verdict import (
    Cause,
    Corrected,
    Goes,
    Reason,
    Verdict,
    direction_of,
    is_shown,
    judged,
    verdict_of,
)
from collapselab.analysis.words import (
    CANNOT_TELL,
    NOT_MEASURED,
    Sentence,
    by_metric,
    count_shown,
    relation_column,
    relation_words,
)

MIXED, SEEDS = "mixed model", "seeds alone"
BETWEEN = "between models"


@final
@dataclass(frozen=True)
class Control:
    """One metric beyond one set of controls; a row of `controls.csv`."""

    controls: str
    """The specification, in words."""
    metric: str
    """Id in the catalogue."""
    n: int
    """Models."""
    r2_controls: float | None = None
    """R² of the outcome on the controls alone."""
    partial_r: float | None = None
    """Correlation of what they leave."""
    p: float | None = None
    """Of least squares; of the permutation test for seeds alone."""
    r2_added: float | None = None
    """R² that the metric adds."""
    low: float | None = None
    """Lower end of the 95 % interval of `partial_r`."""
    high: float | None = None
    """Upper end."""
    p_clustered: float | None = None
    """Robust to models of one architecture being alike; empty with fewer than ten architectures."""
    p_holm: float | None = None
    """The larger of the two, corrected within specification and family."""
    comparison: str = BETWEEN
    """`between models` or `within cells`."""
    transform: str = "raw"
    """`raw` or `log`."""
    family: str = "exploration"
    """`paper` or `exploration`."""
    freedom: int | None = None
    """Degrees of freedom."""
    missing: int = 0
    """Models left out for a missing value."""
    goes: Goes | None = None
    """As in `relate.csv`."""
    verdict: str | None = None
    """As in `relate.csv`."""
    why: str | None = None
    """Why there are no numbers, or no p and no verdict."""
    verdict_code: Verdict = Verdict.CANNOT_TELL
    """As in `relate.csv`."""
    why_code: Cause | None = None
    """As in `relate.csv`."""


def controls(models: Models, relations: Iterable[Relation]) -> list[Control]:
    """The specification curve of every metric, and from the relations the comparison of seeds alone."""
    rows = least_squares(models)
    rows += [_mixed(models, variable) for variable in models.variables]
    rows += [_seeds_alone(models, relation) for relation in relations if relation.subset_kind is SubsetKind.WITHIN]
    return judged(
        rows,
        family=lambda row: (row.controls, row.family),
        p=_larger,
        with_verdict=lambda row, corrected: _with_verdict(models, row, corrected),
    )


def least_squares(models: Models) -> list[Control]:
    """The specifications that are plain regressions, not yet corrected or judged."""
    rows = []
    for name, terms in SPECIFICATIONS.items():
        bases: dict[bytes, Floats] = {}
        rows += [_least_squares(models, variable, name, terms, bases) for variable in models.variables]
    return rows


class _Unavailable(Exception):
    """The table cannot answer this one, for this reason."""

    def __init__(self, code: Cause, text: str) -> None:
        super().__init__(text)
        self.reason = Reason(code, text)


def _factors(frame: pd.DataFrame) -> list[Floats]:
    return [_dummies(frame[column]) for column in ("family", "width", "depth", *regime_columns(frame))]


def _cells(frame: pd.DataFrame) -> list[Floats]:
    return [_dummies(frame["architecture"]), _dummies(frame["regime"])]


def _interactions(frame: pd.DataFrame) -> list[Floats]:
    pairs = (frame[column].astype(str) + " " + frame["regime"] for column in ("width", "depth"))
    return [_dummies(frame["architecture"]), *map(_dummies, pairs)]


SPECIFICATIONS: dict[str, Callable[[pd.DataFrame], list[Floats]]] = {
    "nothing": lambda frame: [],
    "log parameters": lambda frame: [np.log(_complete(frame, "parameters"))[:, None]],
    "width, depth and regime as factors": _factors,
    "architecture and regime": _cells,
    "architecture, regime and their interactions": _interactions,
    "training loss": lambda frame: [_complete(frame, "train_loss")[:, None]],
}
"""From name to columns. The interactions are of width and of depth with the regime: that of the whole architecture with
it leaves seeds alone, which is a row of its own."""


def _complete(frame: pd.DataFrame, column: str) -> Floats:
    values = frame[column].to_numpy(dtype=float)
    if np.isnan(values).any():
        raise _Unavailable(
            Cause.MISSING, f"{column} is missing for {int(np.isnan(values).sum())} of {len(values)} models."
        )
    return values


def _dummies(labels: pd.Series) -> Floats:
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
        return _with_partial(row, x, y, bases[key], frame)
    except _Unavailable as error:
        return replace(row, **error.reason.columns)


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
        raise _Unavailable(Cause.NOT_A_TEST, NOT_TESTED[variable.metric])
    if len(y) < 4:
        raise _Unavailable(Cause.TOO_FEW, f"{len(y)} models: too few for a regression.")
    for name, values in ((variable.metric, x), ("the outcome", y)):
        if np.ptp(values) <= 1e-12 * np.abs(values).max():
            raise _Unavailable(Cause.NO_VARIATION, f"{name} is the same in all {len(values)} models.")


def _with_partial(row: Control, x: Floats, y: Floats, basis: Floats, frame: pd.DataFrame) -> Control:
    """The regression of y on x and the controls, by what the controls leave of both (Frisch and Waugh)."""
    x, y = (x - x.mean()) / x.std(), (y - y.mean()) / y.std()
    freedom = len(y) - basis.shape[1] - 1
    if freedom < 2:
        raise _Unavailable(Cause.TOO_FEW, f"{len(y)} models and as many controls: nothing is left to compare.")
    left_x, left_y = (values - basis @ (basis.T @ values) for values in (x, y))
    for name, left in (("metric", left_x), ("outcome", left_y)):
        if left @ left <= 1e-9 * len(y):
            raise _Unavailable(Cause.NO_VARIATION, f"the controls determine the {name} entirely.")
    r = float(np.clip(left_x @ left_y / np.sqrt((left_x @ left_x) * (left_y @ left_y)), -1, 1))
    unexplained = float(left_y @ left_y) / len(y)
    row = replace(row, r2_controls=max(0.0, 1 - unexplained), r2_added=r**2 * unexplained, partial_r=r, freedom=freedom)
    independent = "architecture" if frame["architecture"].nunique() > 1 else "run"
    clusters = codes_of(frame[independent])
    if reason := _why_no_p(len(y), freedom, count_of(clusters), f"{independent}s"):
        return replace(row, **reason.columns)
    with np.errstate(divide="ignore"):
        at_r = np.sqrt(freedom) * np.divide(r, np.sqrt(1 - r**2))
        low, high = np.tanh(np.arctanh(r) + np.array([-1.96, 1.96]) / np.sqrt(freedom - 1))
    p, p_clustered = float(2 * student.sf(abs(at_r), freedom)), _clustered(left_x, left_y, freedom, clusters)
    return replace(row, low=float(low), high=float(high), p=p, p_clustered=p_clustered)


def _why_no_p(models: int, freedom: int, clusters: int, unit: str) -> Reason | None:
    if clusters < min(models, FEWEST_CLUSTERS):
        needs = f"a p that lets those of one be alike needs {FEWEST_CLUSTERS}"
        return Reason(Cause.TOO_FEW, f"{models} models come from {clusters} {unit}; {needs}.")
    if freedom < FEWEST_FREEDOM:
        text = f"{models} models leave {freedom} degrees of freedom; a p needs {FEWEST_FREEDOM}."
        return Reason(Cause.TOO_FEW, text)
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
            raise _Unavailable(
                Cause.TOO_FEW, f"{architectures} architectures; random intercepts need {FEWEST_CLUSTERS}."
            )
        if len(y) - architectures < FEWEST_FREEDOM:
            raise _Unavailable(
                Cause.TOO_FEW,
                f"{len(y)} models of {architectures} architectures; random intercepts need {FEWEST_FREEDOM} models "
                "more than architectures, or they cannot be separated from noise.",
            )
        return _with_mixed(row, frame, x, y)
    except _Unavailable as error:
        return replace(row, **error.reason.columns)


def _with_mixed(row: Control, frame: pd.DataFrame, x: Floats, y: Floats) -> Control:
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
            raise _Unavailable(Cause.NO_FIT, f"the mixed model cannot be fitted ({error}).") from error
        error_of_x, p = float(fit.bse["x"]), float(fit.pvalues["x"])
    if not fit.converged or not np.isfinite([error_of_x, p]).all():
        raise _Unavailable(Cause.NO_FIT, "the mixed model does not converge.")
    z = float(fit.params["x"]) / error_of_x
    freedom = len(table) - model.exog.shape[1]
    r = z / np.sqrt(z**2 + freedom)
    low, high = (bound / np.sqrt(bound**2 + freedom) for bound in (z - 1.96, z + 1.96))
    return replace(row, partial_r=r, low=low, high=high, p=p, freedom=freedom)


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
        why_code=relation.why_code,
    )


def _larger(row: Control) -> float | None:
    """The p that is judged; None where there is none."""
    known = [p for p in (row.p, row.p_clustered) if p is not None]
    return None if row.p is None or row.partial_r is None else max(known)


def _with_verdict(models: Models, row: Control, corrected: Corrected) -> Control:
    assert row.partial_r is not None
    tested = replace(row, p_holm=corrected.holm, goes=direction_of(row.partial_r, models.expected(row.metric)))
    code = verdict_of(tested.goes, shown=is_shown(tested))
    words = relation_column(code, outcome=models.outcome, better=models.better)
    return replace(tested, verdict=words, verdict_code=code)


def sentences(models: Models, rows: Sequence[Control]) -> Iterable[Sentence]:
    """The specification curve of the paper's metrics: its values, what is shown, and what has no answer."""
    return (Sentence("controls", "controls", text) for text in _curve(models, rows))


def _curve(models: Models, rows: Sequence[Control]) -> Iterable[str]:
    paper = [row for row in rows if row.family == "paper"]
    known = [row for row in paper if row.partial_r is not None]
    names = list(dict.fromkeys(row.controls for row in known))
    if not [name for name in names if name != SEEDS]:
        yield f"Beyond scale and training: no answer; {next((row.why for row in paper), NOT_MEASURED)}"
        return
    values = "; ".join(f"{of_metric[0].metric} {_values(of_metric, names)}" for of_metric in by_metric(known))
    yield f"Partial correlations beyond {' | '.join(names)}: {values}."
    for of_metric in by_metric(known):
        yield _metric_words(models, of_metric)
    for name, why in {row.controls: row.why for row in paper if row.controls not in names}.items():
        yield f"Beyond {name}: no answer; {why}"
    tested = {row.controls for row in known if row.verdict_code is not Verdict.CANNOT_TELL}
    for name, why in {row.controls: row.why for row in known if row.controls not in {*tested, SEEDS}}.items():
        yield f"Beyond {name}: {CANNOT_TELL}; {why}"


def _values(rows: Sequence[Control], names: Sequence[str]) -> str:
    values = {row.controls: row.partial_r for row in rows}
    return " | ".join(f"{values[name]:+.2f}" if name in values else "–" for name in names)


def _metric_words(models: Models, rows: Sequence[Control]) -> str:
    between = [row for row in rows if row.comparison == BETWEEN and row.verdict_code is not Verdict.CANNOT_TELL]
    seeds = [row.verdict_code for row in rows if row.controls == SEEDS]
    alone = "no seeds to compare"
    if seeds:
        alone = f"among seeds alone {relation_words(seeds[0], outcome=models.outcome, better=models.better)}"
    if not between:
        return f"{rows[0].metric}: between models {CANNOT_TELL}; {alone}."
    shown, directions = count_shown(between)
    turns = ", but its sign differs from one to another" if len({row.goes for row in between}) > 1 else ""
    counts = f"{shown} of {len(between)} specifications{directions}"
    return f"{rows[0].metric}: between models shown in {counts}{turns}; {alone}."
