"""Trends: does a property develop with width, depth and training, and what is the effect of regularisation on it?

Along one axis all other settings are fixed: models that differ in that axis alone form a group, in which the metric's
rank correlation with the axis says whether it rises or falls. Regularisation is compared in pairs, its strongest level
against its weakest in otherwise equal models. Seeds are averaged first. A sign test over groups or pairs says whether
one direction prevails; it takes groups as independent, so only a run's last checkpoint is in them, except along the
axis of checkpoints.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import final

import numpy as np
import pandas as pd
from scipy.stats import binomtest, rankdata

from collapselab.analysis.attainable import LEVEL, signs_can_show
from collapselab.analysis.models import ARCHITECTURE, NOT_TESTED, Floats, Models
from collapselab.analysis.regime import Regime
from collapselab.analysis.verdict import Cause, Corrected, Reason, Verdict, direction_of, judged, verdict_of
from collapselab.analysis.words import ALONG, CANNOT_TELL, Sentence, trend_column
from collapselab.core.metrics import METRICS

AXES = ("width", "depth", "epochs", "epoch")
"""Of training there are two: runs of different length, each at its end, and the checkpoints of one run."""
REGULARISERS = ("weight_decay", "dropout", "label_smoothing")
AXIS_NAMES = {
    "width": "With width",
    "depth": "With depth",
    "epochs": "With longer training",
    "epoch": "From checkpoint to checkpoint of a run",
}
LEVELS = 6
"""Levels of an axis that are listed; more are counted."""


@final
class Trending(StrEnum):
    """The direction in which a value changes."""

    RISES = "rises"
    FALLS = "falls"


@final
@dataclass(frozen=True)
class Trend:
    """One metric along one axis; a row of `trends.csv`. The outcome is there too, as if it were a metric."""

    axis: str
    """`width`, `depth`, `epochs`, `epoch`, or a regulariser."""
    where: Regime | None
    """Of a regulariser: the settings of the pairs; a space, `=` or `%` in a name or value is written as `%20`, `%3D` or
    `%25`."""
    metric: str
    """Id in the catalogue, or the outcome."""
    outcome: str
    """Of the analysis."""
    groups: int = 0
    """Groups that differ in the axis alone, or pairs."""
    levels: str = ""
    """Of the axis."""
    rises: int = 0
    """Groups in which it rises."""
    falls: int = 0
    """Groups in which it falls."""
    unchanged: int = 0
    """Groups in which it does neither."""
    toward: Trending | None = None
    """`rises` or `falls`: the way of collapse, or of a better outcome."""
    share_toward: float | None = None
    """Share of the groups that go that way."""
    median_rho: float | None = None
    """Of an axis: the middle rank correlation."""
    median_effect: float | None = None
    """Of pairs: the middle difference that the stronger level makes."""
    p_sign: float | None = None
    """Of the sign test."""
    p_holm: float | None = None
    """Corrected along the axis, within the family."""
    verdict: str | None = None
    """`verdict_code` in words; empty for `cannot tell`."""
    family: str = "exploration"
    """`paper`: the outcome and the paper's seven metrics; `exploration`: all others."""
    why: str | None = None
    """Why there are no numbers, or no p and no verdict."""
    verdict_code: Verdict = Verdict.CANNOT_TELL
    """As in `relate.csv`; of the outcome: better is `as predicted`."""
    why_code: Cause | None = None
    """As in `relate.csv`."""

    @property
    def of_outcome(self) -> bool:
        """Whether the row is about the outcome itself."""
        return self.metric == self.outcome

    @property
    def change(self) -> Trending:
        """The direction of most groups."""
        return Trending.RISES if self.rises > self.falls else Trending.FALLS

    @property
    def groups_toward(self) -> int:
        """Groups that change toward collapse, or toward a better outcome; where neither is known, those that rise."""
        return self.falls if self.toward is Trending.FALLS else self.rises


def trends(models: Models) -> list[Trend]:
    """Every metric and the outcome along every axis that varies, and under every regulariser that does."""
    rows = [row for axis in AXES for row in _along(models, axis)]
    varying = models.varying
    rows += [row for column in REGULARISERS if column in varying for row in _paired(models, column)]
    return judged(
        _testable(rows),
        family=_family_of,
        p=lambda row: row.p_sign,
        with_verdict=_with_verdict,
    )


def _along(models: Models, axis: str) -> Iterator[Trend]:
    table, keys = _table(models, axis)
    groups = [group for _, group in table.groupby(keys, dropna=False) if group[axis].nunique() > 1]
    if not groups:
        return
    levels = sorted(pd.concat(groups)[axis].dropna().unique())
    for metric in _measured(models):
        rhos = np.array([_rho(group[axis].to_numpy(), group[metric].to_numpy(dtype=float)) for group in groups])
        yield _counted(_blank(models, axis, None, metric, levels), rhos, median_rho=True)


def _blank(models: Models, axis: str, where: Regime | None, metric: str, levels: list[float]) -> Trend:
    of_outcome = metric == models.outcome
    sign = models.better if of_outcome else models.toward[metric].sign
    return Trend(
        axis,
        where,
        metric,
        models.outcome,
        levels=" ".join(f"{level:g}" for level in levels),
        toward={-1: Trending.FALLS, 0: None, 1: Trending.RISES}[sign],
        family="paper" if of_outcome or METRICS[metric].in_paper else "exploration",
    )


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
        regime = Regime.of(others, where) if others else None
        for metric in measured:
            row = _blank(models, column, regime, metric, levels)
            yield _counted(row, pairs[metric].to_numpy(dtype=float), median_rho=False)


def _counted(row: Trend, changes: Floats, *, median_rho: bool) -> Trend:
    changes = changes[~np.isnan(changes)]
    if not len(changes):
        return replace(row, **Reason(Cause.TOO_FEW, "no two models differ in this alone.").columns)
    rises, falls = int((changes > 0).sum()), int((changes < 0).sum())
    middle = float(np.median(changes))
    toward = None if row.toward is None else {Trending.RISES: rises, Trending.FALLS: falls}[row.toward]
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


def _family_of(row: Trend) -> Hashable:
    return (row.axis, row.where, row.family)


def _testable(rows: Sequence[Trend]) -> Iterator[Trend]:
    """The rows, without their p where even groups that all go one way could not be significant."""
    sizes = Counter(_family_of(row) for row in rows if row.groups)
    for row in rows:
        tests = sizes[_family_of(row)]
        if row.groups and not signs_can_show(row.groups, tests=tests):
            yield replace(row, p_sign=None, **_why_no_p(row, tests=tests).columns)
        else:
            yield row


def _why_no_p(row: Trend, *, tests: int) -> Reason:
    noun = ("group" if row.axis in AXES else "pair") + ("" if row.groups == 1 else "s")
    over = f"{tests} test{'' if tests == 1 else 's'}"
    share = f"{100 * LEVEL:g} %"
    text = f"{row.groups} {noun}, even if all go one way, cannot be below {share} after the correction over {over}."
    return Reason(Cause.TOO_FEW, text)


def _with_verdict(row: Trend, corrected: Corrected) -> Trend:
    expected = {None: 0, Trending.RISES: 1, Trending.FALLS: -1}[row.toward]
    goes = direction_of(1 if row.change is Trending.RISES else -1, expected)
    code = verdict_of(goes, shown=corrected.holm < LEVEL)
    words = trend_column(code, row.change, of_outcome=row.of_outcome)
    return replace(row, p_holm=corrected.holm, verdict=words, verdict_code=code)


def sentences(models: Models, rows: Sequence[Trend]) -> Iterable[Sentence]:
    """One sentence for every axis and regulariser."""
    for axis, where in dict.fromkeys((row.axis, row.where) for row in rows):
        along = [row for row in rows if (row.axis, row.where) == (axis, where) and row.groups]
        if along:
            untested = (row.why for row in along if row.verdict_code is Verdict.CANNOT_TELL)
            why = next((f" Cannot tell: {why}" for why in untested), "")
            yield Sentence("trends", "trends", f"{_axis_words(along[0])}: {_by_verdict(along)}.{why}")


def _axis_words(row: Trend) -> str:
    levels = [f"{level:.3g}" if level < 100 else f"{level:g}" for level in map(float, row.levels.split())]
    if row.axis not in AXES:
        where = f" ({row.where})" if row.where else ""
        return f"{row.axis} {levels[-1]} against {levels[0]}{where}, in pairs"
    listed = ", ".join(levels) if len(levels) <= LEVELS else f"{levels[0]} to {levels[-1]} in {len(levels)} levels"
    return f"{AXIS_NAMES[row.axis]} ({listed}), all else fixed"


def _by_verdict(rows: Sequence[Trend]) -> str:
    """The paper's metrics by name, the others counted; where none of the paper's was measured, all by name."""
    metrics = [row for row in rows if not row.of_outcome]
    named = [row for row in metrics if METRICS[row.metric].in_paper] or metrics
    others = [row for row in metrics if row not in named]
    parts = []
    for code, words in ALONG.items():
        listed = [", ".join(f"{row.metric} ({_counts(row)})" for row in named if row.verdict_code is code)]
        if count := sum(row.verdict_code is code for row in others):
            listed.append(f"{count} of {len(others)} others")
        if any(listed):
            parts.append(f"{words} {' and '.join(filter(None, listed))}")
    return "; ".join([*parts, *(_outcome_words(row) for row in rows if row.of_outcome)])


def _counts(row: Trend) -> str:
    """How many groups change in the direction that was shown; where none was, how many change toward collapse."""
    if row.verdict_code not in (Verdict.CANNOT_TELL, Verdict.NOT_SHOWN):
        return f"{max(row.rises, row.falls)} of {row.groups}"
    return f"{row.groups_toward} of {row.groups} {'rise' if row.toward is None else 'toward'}"


def _outcome_words(row: Trend) -> str:
    better = f"{row.groups_toward} of {row.groups}"
    worse = f"{row.groups - row.unchanged - row.groups_toward} of {row.groups}"
    return {
        Verdict.AS_PREDICTED: f"{row.metric} gets better ({better})",
        Verdict.OPPOSITE: f"{row.metric} gets worse ({worse})",
        Verdict.NO_DIRECTION: f"{row.metric} changes ({row.change} in {max(row.rises, row.falls)} of {row.groups})",
        Verdict.NOT_SHOWN: f"{row.metric} not shown to change ({better} better)",
        Verdict.CANNOT_TELL: f"{CANNOT_TELL} for {row.metric} ({better} better)",
    }[row.verdict_code]
