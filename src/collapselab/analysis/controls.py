"""Controls: what a metric says about the outcome beyond scale and training, under one specification after another.

The models of a suite differ in size and training, which drive metric and outcome alike. Each specification takes more
of that away; the last holds all of it fixed and compares seeds alone. No single one is the truth, and none is a test:
on tables where a metric is nothing but a smooth function of scale, most of them find it significant, since the outcome
bends in scale as well. So each is a description, with its interval; verdicts have the joint test of all of them
(multiverse.py) and the comparison of seeds.
"""

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypedDict, final

import numpy as np
import pandas as pd
from scipy.linalg import orth
from scipy.stats import t as student

from collapselab.analysis.attainable import FEWEST_CLUSTERS, FEWEST_FREEDOM
from collapselab.analysis.intervals import clustered_interval, clustered_p, left_out
from collapselab.analysis.models import NOT_TESTED, Floats, Models, Variable, regime_columns
from collapselab.analysis.multiverse import MOST_PERMUTATIONS, Multiverse, cells_of, why_no_joint_test
from collapselab.analysis.relate import Relation
from collapselab.analysis.related import RELATED
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
    SHOWN,
    Sentence,
    by_metric,
    listed,
    many,
    metric_label,
    relation_column,
)

MIXED, SEEDS, JOINT = "mixed model", "seeds alone", "all specifications jointly"
BETWEEN = "between models"
DESCRIBED = "a description: one specification of several, none of which is a test by itself."


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
    """Lower end of the 95 % interval of `partial_r`, from architectures left out in turn."""
    high: float | None = None
    """Upper end."""
    p_clustered: float | None = None
    """Robust to models of one architecture being alike: each architecture is left out in turn (CR3); empty with fewer
    than ten."""
    p_holm: float | None = None
    """Of the joint test and of seeds alone, corrected over the family; empty for single specifications."""
    comparison: str = BETWEEN
    """`between models` or `within cells`."""
    transform: str = "raw"
    """`raw` or `log`."""
    family: str = "exploration"
    """`paper`, `exploration` or `contexts`."""
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


def controls(
    models: Models, relations: Iterable[Relation], *, permutations: int = MOST_PERMUTATIONS, seed: int = 0
) -> list[Control]:
    """The specification curve of every metric, its joint test, and from the relations the comparison of seeds alone."""
    rows = least_squares(models)
    rows += [_mixed(models, variable) for variable in models.variables]
    rows = [_described(models, row) for row in rows]
    rows += joint_tests(models, permutations=permutations, seed=seed)
    return rows + [_seeds_alone(models, row) for row in relations if row.subset_kind is SubsetKind.WITHIN]


def joint_tests(models: Models, *, permutations: int, seed: int) -> list[Control]:
    """The joint test of every metric on the scale of the catalogue, corrected within its family."""
    universes: dict[bytes, Multiverse | Reason] = {}
    chosen = [variable for variable in models.variables if variable.transform == RELATED[variable.metric].transform]
    return judged(
        [_joint(models, variable, universes, permutations=permutations, seed=seed) for variable in chosen],
        family=lambda row: row.family,
        p=lambda row: row.p,
        with_verdict=lambda row, corrected: _with_verdict(models, row, corrected),
    )


def _joint(
    models: Models, variable: Variable, universes: dict[bytes, Multiverse | Reason], *, permutations: int, seed: int
) -> Control:
    _, x, y, row = _start(models, variable, JOINT)
    if described := variable.why_description:
        return replace(row, **described.columns, verdict_code=Verdict.DESCRIPTION)
    try:
        _require_variation(variable, x, y)
    except _Unavailable as error:
        return replace(row, **error.reason.columns)
    cells = cells_of(models, variable.values)
    key = pd.util.hash_pandas_object(cells[["architecture", "regime"]]).to_numpy().tobytes()
    if key not in universes:
        reason = why_no_joint_test(cells)
        universes[key] = reason or Multiverse(cells, _joint_terms(cells), permutations=permutations, seed=seed)
    universe = universes[key]
    result = universe if isinstance(universe, Reason) else universe.test(cells["x"].to_numpy(), cells["y"].to_numpy())
    if isinstance(result, Reason):
        return replace(row, n=len(cells), **result.columns)
    goes = direction_of(result.partial_r, models.expected(row.metric))
    return replace(row, n=len(cells), partial_r=result.partial_r, p=result.p, goes=goes)


def _joint_terms(cells: pd.DataFrame) -> list[Callable[[pd.DataFrame], list[Floats]]]:
    """The specifications that can be fitted to these cells; those with less than the smooth function are part of it."""
    terms: list[Callable[[pd.DataFrame], list[Floats]]] = [_levels, _cells, _interactions]
    if cells["train_loss"].notna().all():
        terms.append(SPECIFICATIONS["training loss"])
    return terms


def _levels(frame: pd.DataFrame) -> list[Floats]:
    return [_dummies(frame[column]) for column in ("family", "width", "depth", "regime")]


def _with_verdict(models: Models, row: Control, corrected: Corrected) -> Control:
    tested = replace(row, p_holm=corrected.holm)
    code = verdict_of(row.goes, shown=is_shown(tested))
    words = relation_column(code, outcome=models.outcome, better=models.better)
    return replace(tested, verdict=words, verdict_code=code)


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
        family=variable.family,
        missing=int((~known).sum()),
    )
    return models.trained[known], variable.values[known], outcome[known], row


def _require_variation(variable: Variable, x: Floats, y: Floats) -> None:
    if variable.metric in NOT_TESTED:
        raise _Unavailable(Cause.NOT_A_TEST, NOT_TESTED[variable.metric])
    if len(y) < 4:
        raise _Unavailable(Cause.TOO_FEW, f"{many(len(y), 'model')}: too few for a regression.")
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
    return replace(row, p=_p_of(r, freedom), **_clustered(r, left_x, left_y, basis, clusters))


def _p_of(r: float, freedom: int) -> float:
    with np.errstate(divide="ignore"):
        t = np.sqrt(freedom) * np.divide(r, np.sqrt(1 - r**2))
    return float(2 * student.sf(abs(t), freedom))


def _why_no_p(models: int, freedom: int, clusters: int, unit: str) -> Reason | None:
    if clusters < min(models, FEWEST_CLUSTERS):
        needs = f"a p that lets those of one be alike needs {FEWEST_CLUSTERS}"
        return Reason(Cause.TOO_FEW, f"{models} models come from {clusters} {unit}; {needs}.")
    if freedom < FEWEST_FREEDOM:
        text = f"{models} models leave {freedom} degrees of freedom; a p needs {FEWEST_FREEDOM}."
        return Reason(Cause.TOO_FEW, text)
    return None


class _ClusteredColumns(TypedDict):
    low: float | None
    high: float | None
    p_clustered: float | None


def _clustered(r: float, left_x: Floats, left_y: Floats, basis: Floats, clusters: Codes) -> _ClusteredColumns:
    """p and interval that let models of one cluster be alike: each cluster is left out in turn."""
    without = left_out(left_x, left_y, basis, clusters)
    low, high = clustered_interval(r, without.correlations)
    p = clustered_p(float(left_x @ left_y / (left_x @ left_x)), without.slopes)
    ends = (None, None) if np.isnan(low) else (low, high)
    return {"low": ends[0], "high": ends[1], "p_clustered": p}


def _mixed(models: Models, variable: Variable) -> Control:
    """Metric, log parameters and regime as fixed effects; random intercepts for architecture and seed, crossed."""
    frame, x, y, row = _start(models, variable, MIXED)
    try:
        _require_variation(variable, x, y)
        architectures = frame["architecture"].nunique()
        if architectures < FEWEST_CLUSTERS:
            raise _Unavailable(
                Cause.TOO_FEW, f"{many(architectures, 'architecture')}; random intercepts need {FEWEST_CLUSTERS}."
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
    from statsmodels.regression.mixed_linear_model import MixedLM  # type: ignore[import-untyped]

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
    model = MixedLM.from_formula(fixed, table, groups=np.ones(len(table)), re_formula="0", vc_formula=intercepts)
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
        p_holm=relation.p_holm,
        goes=relation.goes,
        verdict=relation.verdict,
        verdict_code=relation.verdict_code,
        why=relation.why,
        why_code=relation.why_code,
    )


def _described(models: Models, row: Control) -> Control:
    """A specification has no verdict of its own: on tables without an effect too many of them would be significant."""
    if row.partial_r is None:
        return row
    goes = direction_of(row.partial_r, models.expected(row.metric))
    reason = Reason(Cause.NOT_A_TEST, DESCRIBED) if row.why is None else Reason(row.why_code or Cause.TOO_FEW, row.why)
    return replace(row, goes=goes, verdict_code=Verdict.DESCRIPTION, **reason.columns)


def sentences(models: Models, rows: Sequence[Control]) -> Iterable[Sentence]:
    """The specification curve of the paper's metrics: its values, what is shown, and what has no answer."""
    return (Sentence("controls", "controls", text) for text in _curve(models, rows))


def _curve(models: Models, rows: Sequence[Control]) -> Iterable[str]:
    paper = [row for row in rows if row.family == "paper" and row.transform == RELATED[row.metric].transform]
    known = [row for row in paper if row.partial_r is not None and row.comparison == BETWEEN and row.controls != JOINT]
    yield from _joint_words(models, [row for row in paper if row.controls == JOINT])
    if not known:
        yield f"Beyond scale and training: no answer; {next((row.why for row in paper), NOT_MEASURED)}"
        return
    for of_metric in by_metric(known):
        yield _metric_words(of_metric)
    names = {row.controls for row in known}
    for name, why in {row.controls: row.why for row in paper if row.controls not in {*names, SEEDS, JOINT}}.items():
        yield f"{'By the' if name == MIXED else 'Beyond'} {name}: no answer; {why}"


def _joint_words(models: Models, rows: Sequence[Control]) -> Iterable[str]:
    for row in rows:
        if row.verdict_code in SHOWN:
            yield (
                f"{metric_label(row)}: partial r {row.partial_r:+.2f} with {models.outcome} where weakest, beyond a "
                f"smooth function of scale in every specification, {SHOWN[row.verdict_code]} "
                f"(Holm p {row.p_holm:.2g})."
            )
    if rest := [row for row in rows if row.verdict_code is Verdict.NOT_SHOWN]:
        names = listed([f"{metric_label(row)} {row.partial_r:+.2f}" for row in rest], room=125)
        yield f"Not shown beyond a smooth function of scale (partial r where it is weakest): {names}."
    untold: dict[str, list[Control]] = {}
    for row in rows:
        if row.verdict_code is Verdict.CANNOT_TELL and row.why:
            untold.setdefault(row.why, []).append(row)
    for why, of_metrics in untold.items():
        names = "" if len(untold) == 1 and not rest else f" for {listed([*map(metric_label, of_metrics)], room=50)}"
        yield f"Beyond a smooth function of scale{names}: {CANNOT_TELL}; {why}"


def _metric_words(rows: Sequence[Control]) -> str:
    """The range of a metric over the specifications."""
    if len(rows) == 1:
        only = f"partial r {rows[0].partial_r:+.2f} (beyond {rows[0].controls}) in the only specification"
        return f"{metric_label(rows[0])}: {only}, which describes."
    least, most = (choose(rows, key=lambda row: row.partial_r or 0.0) for choose in (min, max))
    if f"{least.partial_r:+.2f}" == f"{most.partial_r:+.2f}":
        return (
            f"{metric_label(least)}: partial r is {least.partial_r:+.2f} in {len(rows)} specifications, which describe."
        )
    turns = "; its sign turns" if (least.partial_r or 0) * (most.partial_r or 0) < 0 else ""
    return (
        f"{metric_label(least)}: partial r is between {least.partial_r:+.2f} (beyond {least.controls}) and "
        f"{most.partial_r:+.2f} (beyond {most.controls}) in {len(rows)} specifications, which describe{turns}."
    )
