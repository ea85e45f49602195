"""Controls: what a metric says about the outcome beyond scale and training, under one specification after another.

The models of a suite differ in size and training, which drive metric and outcome alike. Each specification takes more
of that away; the last holds all of it fixed and compares seeds alone. No single one is the truth, and none is a test:
on tables where a metric is nothing but a smooth function of scale, most of them find it significant, since the outcome
bends in scale as well. So each is a description, with its interval; verdicts have the joint test of all of them
(multiverse.py) and the comparison of seeds.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import final

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
from collapselab.analysis.subsets import WITHIN, SubsetKind, codes_of, count_of
from collapselab.analysis.verdict import (
    RELATION,
    Cause,
    Estimate,
    Goes,
    Reason,
    Verdict,
    direction_of,
    judge,
    judged,
    too_few,
)
from collapselab.analysis.words import (
    NOT_MEASURED,
    SHOWN,
    Sentence,
    by_metric,
    listed,
    metric_label,
)

SEEDS, JOINT = "seeds alone", "all specifications jointly"
BETWEEN = "between models"
MIN_MODELS = 4
"""Models of a regression."""
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
    verdict: Verdict = Verdict.TOO_FEW
    """As in `relate.csv`."""
    why: str | None = None
    """Why there are no numbers, or no p and no verdict."""
    why_code: Cause | None = None
    """As in `relate.csv`."""


def controls(
    models: Models, relations: Iterable[Relation], *, permutations: int = MOST_PERMUTATIONS, seed: int = 0
) -> list[Control]:
    """The specification curve of every metric, its joint test, and from the relations the comparison of seeds alone."""
    rows = [_described(models, row) for row in least_squares(models)]
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
        with_verdict=lambda row, corrected: replace(
            row,
            p_holm=corrected.holm,
            **judge(Estimate(row.partial_r or 0.0, corrected.holm, models.expected(row.metric)), RELATION),
        ),
    )


def _joint(
    models: Models, variable: Variable, universes: dict[bytes, Multiverse | Reason], *, permutations: int, seed: int
) -> Control:
    _, x, y, row = _start(models, variable, JOINT)
    if described := variable.why_description:
        return replace(row, **described.columns)
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


def least_squares(models: Models) -> list[Control]:
    """The specifications that are plain regressions, not yet corrected or judged."""
    rows = []
    for name, terms in SPECIFICATIONS.items():
        bases: dict[bytes, Floats] = {}
        rows += [_least_squares(models, variable, name, terms, bases) for variable in models.variables]
    return rows


class _Unavailable(Exception):
    """The table cannot answer this one, for this reason."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.text)
        self.reason = reason


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
        text = f"{column} is missing for {int(np.isnan(values).sum())} of {len(values)} models."
        raise _Unavailable(Reason(Cause.MISSING, text))
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
        raise _Unavailable(Reason(Cause.NOT_A_TEST, NOT_TESTED[variable.metric], Verdict.DESCRIPTION))
    if len(y) < MIN_MODELS:
        raise _Unavailable(too_few(len(y), "models", MIN_MODELS))
    for name, values in ((variable.metric, x), ("the outcome", y)):
        if np.ptp(values) <= 1e-12 * np.abs(values).max():
            raise _Unavailable(Reason(Cause.NO_VARIATION, f"{name} is the same in all {len(values)} models."))


def _with_partial(row: Control, x: Floats, y: Floats, basis: Floats, frame: pd.DataFrame) -> Control:
    """The regression of y on x and the controls, by what the controls leave of both (Frisch and Waugh)."""
    x, y = (x - x.mean()) / x.std(), (y - y.mean()) / y.std()
    freedom = len(y) - basis.shape[1] - 1
    if freedom < 2:
        raise _Unavailable(too_few(len(y), "models for these controls", basis.shape[1] + 3))
    left_x, left_y = (values - basis @ (basis.T @ values) for values in (x, y))
    for name, left in (("metric", left_x), ("outcome", left_y)):
        if left @ left <= 1e-9 * len(y):
            raise _Unavailable(Reason(Cause.NO_VARIATION, f"the controls determine the {name} entirely."))
    r = float(np.clip(left_x @ left_y / np.sqrt((left_x @ left_x) * (left_y @ left_y)), -1, 1))
    unexplained = float(left_y @ left_y) / len(y)
    row = replace(row, r2_controls=max(0.0, 1 - unexplained), r2_added=r**2 * unexplained, partial_r=r, freedom=freedom)
    independent = "architecture" if frame["architecture"].nunique() > 1 else "run"
    clusters = codes_of(frame[independent])
    if count_of(clusters) < min(len(y), FEWEST_CLUSTERS):
        return replace(row, **too_few(count_of(clusters), f"{independent}s", FEWEST_CLUSTERS).columns)
    if freedom < FEWEST_FREEDOM:
        return replace(row, **too_few(freedom, "degrees of freedom", FEWEST_FREEDOM).columns)
    with np.errstate(divide="ignore"):
        t = np.sqrt(freedom) * np.divide(r, np.sqrt(1 - r**2))
    # Models of one cluster may be alike: each cluster is left out in turn.
    without = left_out(left_x, left_y, basis, clusters)
    low, high = clustered_interval(r, without.correlations)
    return replace(
        row,
        p=float(2 * student.sf(abs(t), freedom)),
        low=None if np.isnan(low) else low,
        high=None if np.isnan(low) else high,
        p_clustered=clustered_p(float(left_x @ left_y / (left_x @ left_x)), without.slopes),
    )


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
        why=relation.why,
        why_code=relation.why_code,
    )


def _described(models: Models, row: Control) -> Control:
    """A specification has no verdict of its own: on tables without an effect too many of them would be significant."""
    if row.partial_r is None:
        return row
    goes = direction_of(row.partial_r, models.expected(row.metric))
    reason = Reason(row.why_code or Cause.NOT_A_TEST, row.why or DESCRIBED, Verdict.DESCRIPTION)
    return replace(row, goes=goes, **reason.columns)


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
        yield f"Beyond {name}: no answer; {why}"


def _joint_words(models: Models, rows: Sequence[Control]) -> Iterable[str]:
    for row in rows:
        if row.verdict in SHOWN:
            yield (
                f"{metric_label(row)}: partial r {row.partial_r:+.2f} with {models.outcome} where weakest, beyond a "
                f"smooth function of scale in every specification, {SHOWN[row.verdict]} "
                f"(Holm p {row.p_holm:.2g})."
            )
    if rest := [row for row in rows if row.verdict is Verdict.NOT_SHOWN]:
        names = listed([f"{metric_label(row)} {row.partial_r:+.2f}" for row in rest], room=125)
        yield f"Not shown beyond a smooth function of scale (partial r where it is weakest): {names}."
    untold: dict[str, list[Control]] = {}
    for row in rows:
        if row.verdict is Verdict.TOO_FEW and row.why:
            untold.setdefault(row.why, []).append(row)
    for why, of_metrics in untold.items():
        names = "" if len(untold) == 1 and not rest else f" for {listed([*map(metric_label, of_metrics)], room=50)}"
        yield f"Beyond a smooth function of scale{names}: no verdict; {why}"


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
