"""Trends: does a property develop with width, depth and training, and what does regularisation do to it?

Along one axis all other settings are fixed: models that differ in that axis alone form a group, in which the metric's
rank correlation with the axis says whether it rises or falls. Regularisation is compared in pairs, its strongest level
against its weakest in otherwise equal models. Seeds are averaged first. A sign test over groups or pairs says whether
one way prevails; it takes groups as independent, so only a run's last checkpoint is in them, but for the axis of
checkpoints.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import final

import numpy as np
import pandas as pd
from scipy.stats import binomtest, rankdata

from collapselab.analysis.attainable import LEVEL, signs_can_show
from collapselab.analysis.corrections import holm
from collapselab.analysis.models import ARCHITECTURE, NOT_TESTED, Floats, Models
from collapselab.core.metrics import METRICS

AXES = ("width", "depth", "epochs", "epoch")
"""Of training there are two: runs of different length, each at its end, and the checkpoints of one run."""
REGULARISERS = ("weight_decay", "dropout", "label_smoothing")


@final
@dataclass(frozen=True)
class Trend:
    """One metric along one axis; a row of `trends.csv`. The outcome is there too, as if it were a metric."""

    axis: str
    where: str
    metric: str
    outcome: str
    groups: int = 0
    """Groups that differ in the axis alone, or pairs."""
    levels: str = ""
    rises: int = 0
    falls: int = 0
    unchanged: int = 0
    toward: str | None = None
    """rises or falls: the way of collapse, or of a better outcome."""
    share_toward: float | None = None
    median_rho: float | None = None
    median_effect: float | None = None
    """Of pairs: the difference that the stronger level makes."""
    p_sign: float | None = None
    p_holm: float | None = None
    verdict: str | None = None
    family: str = "exploration"
    """paper: the outcome and the paper's seven metrics, which are corrected among themselves."""
    why: str | None = None


def trends(models: Models) -> list[Trend]:
    """Every metric and the outcome along every axis that varies, and under every regulariser that does."""
    rows = [row for axis in AXES for row in _along(models, axis)]
    varying = models.varying
    rows += [row for column in REGULARISERS if column in varying for row in _paired(models, column)]
    return _judged(rows)


def _along(models: Models, axis: str) -> Iterator[Trend]:
    table, keys = _table(models, axis)
    groups = [group for _, group in table.groupby(keys, dropna=False) if group[axis].nunique() > 1]
    if not groups:
        return
    levels = sorted(pd.concat(groups)[axis].dropna().unique())
    for metric in _measured(models):
        rhos = np.array([_rho(group[axis].to_numpy(), group[metric].to_numpy(dtype=float)) for group in groups])
        row = Trend(
            axis,
            "",
            metric,
            models.outcome,
            levels=_levels(levels),
            toward=_toward(models, metric),
            family=_family(models, metric),
        )
        yield _counted(row, rhos, median_rho=True)


def _table(models: Models, axis: str) -> tuple[pd.DataFrame, list[str]]:
    """The models that take part, seeds averaged, and the columns that are fixed."""
    fixed = [*ARCHITECTURE, *models.varying]
    frame = models.frame if axis == "epoch" else models.trained[models.trained["last"]]
    if axis == "epochs":
        frame = frame[np.isclose(frame["epoch"], frame["epochs"], rtol=0.01, atol=0)]
        fixed = [column for column in fixed if column != "epoch"]
    keys = list(dict.fromkeys([*fixed, axis]))
    averaged = frame.groupby(keys, dropna=False)[_measured(models)].mean().reset_index()
    return averaged, [column for column in keys if column != axis]


def _measured(models: Models) -> list[str]:
    return [*(metric for metric in models.metrics if metric not in NOT_TESTED), models.outcome]


def _family(models: Models, metric: str) -> str:
    return "paper" if metric == models.outcome or METRICS[metric].in_paper else "exploration"


def _toward(models: Models, metric: str) -> str | None:
    sign = models.better if metric == models.outcome else models.toward[metric].sign
    return {-1: "falls", 0: None, 1: "rises"}[sign]


def _rho(axis: Floats, values: Floats) -> float:
    """Spearman's; 0 where the values are all the same, NaN where fewer than two are known."""
    known = ~np.isnan(values)
    axis, values = axis[known], values[known]
    if len(np.unique(axis)) < 2:
        return np.nan
    if np.ptp(values) == 0:
        return 0.0
    return float(np.corrcoef(rankdata(axis), rankdata(values))[0, 1])


def _paired(models: Models, column: str) -> Iterator[Trend]:
    frame = models.trained.assign(**{column: pd.to_numeric(models.trained[column], errors="coerce")})
    levels = sorted(frame[column].dropna().unique())
    if len(levels) < 2:
        return
    others = [name for name in models.varying if name != column]
    keys = [*ARCHITECTURE, *others]
    measured = _measured(models)
    weak, strong = (
        frame[frame[column] == level].groupby(keys, dropna=False)[measured].mean() for level in (levels[0], levels[-1])
    )
    difference = (strong - weak.reindex(strong.index)).reset_index()
    for where, pairs in difference.groupby(others, dropna=False) if others else [((), difference)]:
        label = " ".join(f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"
                         for name, value in zip(others, where, strict=True))  # fmt: skip
        for metric in measured:
            row = Trend(
                column,
                label,
                metric,
                models.outcome,
                levels=_levels(levels),
                toward=_toward(models, metric),
                family=_family(models, metric),
            )
            yield _counted(row, pairs[metric].to_numpy(dtype=float), median_rho=False)


def _levels(levels: list[float]) -> str:
    return " ".join(f"{level:g}" for level in levels)


def _counted(row: Trend, changes: Floats, *, median_rho: bool) -> Trend:
    changes = changes[~np.isnan(changes)]
    if not len(changes):
        return replace(row, why="no two models differ in this alone.")
    rises, falls = int((changes > 0).sum()), int((changes < 0).sum())
    middle = float(np.median(changes))
    toward = None if row.toward is None else {"rises": rises, "falls": falls}[row.toward]
    return replace(
        row,
        groups=len(changes),
        rises=rises,
        falls=falls,
        unchanged=len(changes) - rises - falls,
        share_toward=None if toward is None else toward / len(changes),
        median_rho=middle if median_rho else None,
        median_effect=None if median_rho else middle,
        p_sign=float(binomtest(rises, rises + falls).pvalue) if rises + falls else 1.0,
    )


def _judged(rows: list[Trend]) -> list[Trend]:
    for key in dict.fromkeys((row.axis, row.where, row.family) for row in rows):
        family = [i for i, row in enumerate(rows) if (row.axis, row.where, row.family) == key and row.groups]
        tested: dict[int, float] = {}
        for i in family:
            p = rows[i].p_sign
            if p is not None and signs_can_show(rows[i].groups, tests=len(family)):
                tested[i] = p
            else:
                rows[i] = replace(rows[i], p_sign=None, why=_why_no_p(rows[i], tests=len(family)))
        for i, p in zip(tested, holm(list(tested.values())), strict=True):
            rows[i] = replace(rows[i], p_holm=p, verdict=_verdict(rows[i], p))
    return rows


def _why_no_p(row: Trend, *, tests: int) -> str:
    noun = ("group" if row.axis in AXES else "pair") + ("" if row.groups == 1 else "s")
    over = f"{tests} test{'' if tests == 1 else 's'}"
    share = f"{100 * LEVEL:g} %"
    return f"{row.groups} {noun}, even if all go one way, cannot be below {share} after the correction over {over}."


def _verdict(row: Trend, p_holm: float) -> str:
    if p_holm >= LEVEL:
        return "not shown"
    way = "rises" if row.rises > row.falls else "falls"
    if row.metric == row.outcome:
        return f"{way}: {'better' if way == row.toward else 'worse'}"
    if row.toward is None:
        return f"{way}; collapse predicts no direction"
    return f"{way}: {'toward' if way == row.toward else 'away from'} collapse"
