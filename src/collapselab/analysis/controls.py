"""Beyond scale: does a metric say anything about the outcome that size and training do not?

The models of a suite differ in size and training, which move metric and outcome alike. One specification after another
takes more of that away, and no single one is a test: where a metric is nothing but a smooth function of scale, most of
them find it significant, since the outcome bends in scale as well. So all of them are tested jointly, each beyond a
smooth function of scale (multiverse.py). A row of `controls.csv` is the joint test of one metric.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np
import pandas as pd

from collapselab.analysis.models import NOT_TESTED, Floats, Models, Variable
from collapselab.analysis.multiverse import MOST_PERMUTATIONS, Multiverse, Terms, cells_of, why_no_joint_test
from collapselab.analysis.related import RELATED
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
from collapselab.analysis.words import NOT_MEASURED, SHOWN, Sentence, listed, metric_label

MIN_MODELS = 4


@final
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
    goes: Goes | None = None
    """As in `relate.csv`."""
    verdict: Verdict = Verdict.TOO_FEW
    """As in `relate.csv`."""
    why: str | None = None
    """Why there are no numbers, or no p and no verdict."""
    why_code: Cause | None = None
    """As in `relate.csv`."""


def controls(models: Models, *, permutations: int = MOST_PERMUTATIONS, seed: int = 0) -> list[Control]:
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
    """The test of one metric; metrics known for the same cells share bases and permutations in `universes`."""
    outcome = models.trained[models.outcome].to_numpy(dtype=float)
    known = ~np.isnan(variable.values) & ~np.isnan(outcome)
    missing = int((~known).sum())
    row = Control(
        variable.metric, int(known.sum()), transform=variable.transform, family=variable.family, missing=missing
    )
    if reason := variable.why_description or _why_no_test(variable, variable.values[known], outcome[known]):
        return replace(row, **reason.columns)
    cells = cells_of(models, variable.values)
    key = pd.util.hash_pandas_object(cells[["architecture", "regime"]]).to_numpy().tobytes()
    if key not in universes:
        reason = why_no_joint_test(cells)
        universes[key] = reason or Multiverse(cells, _terms(cells), permutations=permutations, seed=seed)
    universe = universes[key]
    result = universe if isinstance(universe, Reason) else universe.test(cells["x"].to_numpy(), cells["y"].to_numpy())
    if isinstance(result, Reason):
        return replace(row, n=len(cells), **result.columns)
    goes = direction_of(result.partial_r, models.expected(row.metric))
    return replace(
        row, n=len(cells), partial_r=result.partial_r, p=result.p, specifications=result.specifications, goes=goes
    )


def _why_no_test(variable: Variable, x: Floats, y: Floats) -> Reason | None:
    if variable.metric in NOT_TESTED:
        return Reason(Cause.NOT_A_TEST, NOT_TESTED[variable.metric], Verdict.DESCRIPTION)
    if len(y) < MIN_MODELS:
        return too_few(len(y), "models", MIN_MODELS)
    for name, values in ((variable.metric, x), ("the outcome", y)):
        if np.ptp(values) <= 1e-12 * np.abs(values).max():
            return Reason(Cause.NO_VARIATION, f"{name} is the same in all {len(values)} models.")
    return None


def _terms(cells: pd.DataFrame) -> list[Terms]:
    """The specifications that can be fitted to these cells; those with less than the smooth function are part of it."""
    return [_levels, _cells, _interactions, *([_training_loss] if cells["train_loss"].notna().all() else [])]


def _levels(frame: pd.DataFrame) -> list[Floats]:
    return [_dummies(frame[column]) for column in ("family", "width", "depth", "regime")]


def _cells(frame: pd.DataFrame) -> list[Floats]:
    return [_dummies(frame["architecture"]), _dummies(frame["regime"])]


def _interactions(frame: pd.DataFrame) -> list[Floats]:
    """Of width and of depth with the regime: that of the whole architecture with it would leave seeds alone."""
    pairs = (frame[column].astype(str) + " " + frame["regime"] for column in ("width", "depth"))
    return [_dummies(frame["architecture"]), *map(_dummies, pairs)]


def _training_loss(frame: pd.DataFrame) -> list[Floats]:
    return [frame["train_loss"].to_numpy(dtype=float)[:, None]]


def _dummies(labels: pd.Series) -> Floats:
    return pd.get_dummies(labels, dtype=float, dummy_na=bool(labels.isna().any())).to_numpy()


def sentences(models: Models, rows: Sequence[Control]) -> Iterable[Sentence]:
    """What the joint test shows of the paper's metrics, and what has no answer."""
    paper = [row for row in rows if row.family == "paper"]
    return (Sentence("controls", "controls", text) for text in _words(models, paper))


def _words(models: Models, rows: Sequence[Control]) -> Iterable[str]:
    if not rows:
        yield f"Beyond scale and training: no answer; {NOT_MEASURED}"
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
