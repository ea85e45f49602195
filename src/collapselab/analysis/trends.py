"""Trends: does a property develop with width, depth and training, and what is the effect of regularisation on it?

Along one axis all other settings are fixed: models that differ in that axis alone form a group, in which the metric's
rank correlation with the axis says whether it rises or falls. Regularisation is compared in pairs, its strongest level
against its weakest in otherwise equal models. Seeds are averaged first. Groups and pairs that share architectures, or
whose effects may be alike, are one unit, and so are runs that saw the training data in one order, along their
checkpoints; units are counted and tested (trend_test.py).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np
import pandas as pd

from collapselab.analysis.models import ARCHITECTURE, NOT_TESTED, Floats, Models
from collapselab.analysis.regime import Regime
from collapselab.analysis.related import RELATED
from collapselab.analysis.trend_test import (
    MIN_LEVELS,
    MIN_UNITS,
    Group,
    Places,
    Tested,
    flip_signs,
    mean_correlations,
    one_way,
    permute_levels,
)
from collapselab.analysis.verdict import (
    FALLS,
    LEVEL,
    RELATION,
    RISES,
    Cause,
    Estimate,
    Reason,
    Verdict,
    judge,
    too_few,
)
from collapselab.analysis.words import (
    ALONG,
    LONGEST,
    Sentence,
    listed,
    many,
    regime_words,
    unit_of,
)

AXES = ("width", "depth", "epochs", "epoch")
"""Of training there are two: runs of different length, each at its end, and the checkpoints of one run."""
REGULARISERS = ("weight_decay", "dropout", "label_smoothing")
AXIS_NAMES = {
    "width": "With width",
    "depth": "With depth",
    "epochs": "With longer training",
    "epoch": "From checkpoint to checkpoint of a run",
}
DATA_ORDER = "data order"
UNITS = {"width": ("family", "depth"), "depth": ("family", "width"), "epochs": ARCHITECTURE, "epoch": (DATA_ORDER,)}
"""What makes groups along an axis one unit: those of one depth hold the same architectures in every regime, and runs
that see the same batches go up and down together."""
PAIR_UNITS = ("family", "width")
"""Effects of a regulariser may be alike in models of one width: together they are one unit."""
UNIT_NAMES = {"width": "depth", "depth": "width", "epochs": "architecture", "epoch": DATA_ORDER}
PERMUTED = ("width", "depth", "epochs")
"""Axes whose levels are models that were trained apart: exchangeable, in one order for all units, where the axis does
nothing."""
LEVELS = 3
"""Levels of an axis that are listed; of more the first and the last."""


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
    """Units: depths for width, widths for depth and regularisers, architectures for epochs, data orders for epoch."""
    levels: str = ""
    """Of the axis."""
    rises: int = 0
    """Units in which it rises."""
    falls: int = 0
    """Units in which it falls."""
    unchanged: int = 0
    """Units in which it does neither."""
    toward: str | None = None
    """`rises` or `falls`: the way of collapse, or of a better outcome."""
    share_toward: float | None = None
    """Share of the units that go that way."""
    median_rho: float | None = None
    """Of an axis: the middle rank correlation of the units."""
    median_effect: float | None = None
    """The middle difference between the last level and the first, over units."""
    p: float | None = None
    """Of permuting levels in one order for all units, or of flipping the signs of units."""
    p_corrected: float | None = None
    """By Westfall and Young, along the axis, within the family."""
    verdict: Verdict = Verdict.TOO_FEW
    """As in `relate.csv`; of the outcome: better is `as predicted`."""
    family: str = "exploration"
    """`paper`: the outcome and the paper's seven metrics; `contexts`: those of contexts; `exploration`: all others."""
    why: str | None = None
    """Why there are no numbers, or no p and no verdict."""
    why_code: Cause | None = None
    """As in `relate.csv`."""

    @property
    def of_outcome(self) -> bool:
        """Whether the row is about the outcome itself."""
        return self.metric == self.outcome

    @property
    def change(self) -> str:
        """The direction of most units."""
        return RISES if self.rises > self.falls else FALLS

    @property
    def groups_toward(self) -> int:
        """Units that change toward collapse, or toward a better outcome; where neither is known, those that rise."""
        return self.falls if self.toward == FALLS else self.rises


def trends(
    models: Models, *, axes: Sequence[str] = (*AXES, *REGULARISERS), permutations: int = 9_999, seed: int = 0
) -> list[Trend]:
    """Every metric and the outcome along every axis that varies, and under every regulariser that does."""
    along = [axis for axis in AXES if axis in axes]
    rows = [row for axis in along for row in _along(models, axis, permutations=permutations, seed=seed)]
    regularisers = [column for column in REGULARISERS if column in axes and column in models.varying]
    rows += [row for name in regularisers for row in _paired(models, name, permutations=permutations, seed=seed)]
    return rows


def _along(models: Models, axis: str, *, permutations: int, seed: int) -> Iterator[Trend]:
    table, keys = _table(models, axis)
    groups = [group for _, group in table.dropna(subset=[axis]).groupby(keys, dropna=False) if len(group) > 1]
    if not groups:
        return
    levels = sorted(pd.concat(groups)[axis].unique())
    measured = _measured(models)
    blanks = [_blank(models, axis, None, metric, levels) for metric in measured]
    units: dict[tuple[object, ...], list[pd.DataFrame]] = {}
    for group in groups:
        units.setdefault(tuple(str(group[column].iloc[0]) for column in UNITS[axis]), []).append(group)
    ends = [pd.DataFrame([_ends(group.sort_values(axis)[measured]) for group in unit]) for unit in units.values()]
    effects = np.array([of_unit.mean() for of_unit in ends])
    ranked = [
        [Group(np.searchsorted(levels, group[axis]), group[measured].to_numpy(dtype=float)) for group in unit]
        for unit in units.values()
    ]
    if axis in PERMUTED:
        test = permute_levels(ranked, families=_families(blanks), permutations=permutations, seed=seed)
    else:
        changes = mean_correlations(ranked, len(levels))
        test = flip_signs(changes, families=_families(blanks), permutations=permutations, seed=seed)
    for place, blank in enumerate(blanks):
        yield _counted(blank, test, place, effects[:, place], median_rho=True)


def _ends(values: pd.DataFrame) -> "pd.Series[float]":
    """The difference of every metric between the last level at which it is known and the first."""
    return values.ffill().iloc[-1] - values.bfill().iloc[0]


def _families(rows: list[Trend]) -> Places:
    names = list(dict.fromkeys(row.family for row in rows))
    return np.array([names.index(row.family) for row in rows], dtype=np.intp)


def _blank(models: Models, axis: str, where: Regime | None, metric: str, levels: list[float]) -> Trend:
    of_outcome = metric == models.outcome
    sign = models.better if of_outcome else models.toward[metric].sign
    return Trend(
        axis,
        where,
        metric,
        models.outcome,
        levels=" ".join(f"{level:g}" for level in levels),
        toward={-1: FALLS, 0: None, 1: RISES}[sign],
        family="paper" if of_outcome else RELATED[metric].family,
    )


def _table(models: Models, axis: str) -> tuple[pd.DataFrame, list[str]]:
    """The models that take part, seeds averaged, and the columns that are fixed."""
    fixed = [*ARCHITECTURE, *models.varying]
    frame = models.frame if axis == "epoch" else models.trained[models.trained["last"]]
    if axis == "epochs":
        frame = frame[np.isclose(frame["epoch"], frame["epochs"], rtol=0.01, atol=0)]
        fixed = [column for column in fixed if column != "epoch"]
    if axis == "epoch":
        fixed, frame = [*fixed, DATA_ORDER], frame.assign(**{DATA_ORDER: _data_orders(frame)})
    keys = list(dict.fromkeys([*fixed, axis]))
    averaged = frame.groupby(keys, dropna=False)[_measured(models)].mean().reset_index()
    return averaged, [column for column in keys if column != axis]


def _data_orders(frame: pd.DataFrame) -> list[str]:
    """Corpus and data seed of every model, as far as known. Without a data seed the order follows from the seed."""
    columns = frame.reindex(columns=["corpus", "data_seed", "seed"]).itertuples(index=False, name=None)
    return [f"{corpus} {seed if pd.isna(data_seed) else data_seed}" for corpus, data_seed, seed in columns]


def _measured(models: Models) -> list[str]:
    return [*(metric for metric in models.metrics if metric not in NOT_TESTED), models.outcome]


def _paired(models: Models, column: str, *, permutations: int, seed: int) -> Iterator[Trend]:
    """What the strongest level makes of the weakest in each architecture, at the end of a run; checkpoints before it
    are the same runs again."""
    finished = models.trained[models.trained["last"]]
    frame = finished.assign(**{column: pd.to_numeric(finished[column], errors="coerce")})
    levels = sorted(frame[column].dropna().unique())
    if len(levels) < 2:
        return
    others, measured = [name for name in models.varying if name != column], _measured(models)
    weak, strong = (
        frame[frame[column] == level].groupby([*ARCHITECTURE, *others], dropna=False)[measured].mean()
        for level in (levels[0], levels[-1])
    )
    difference = (strong - weak.reindex(strong.index)).reset_index()
    for _, pairs in difference.groupby(others, dropna=False) if others else [((), difference)]:
        regime = Regime.of(others, pairs.iloc[0][others].tolist()) if others else None
        blanks = [_blank(models, column, regime, metric, levels) for metric in measured]
        changes = pairs.groupby(list(PAIR_UNITS), dropna=False)[measured].median().to_numpy(dtype=float)
        if len(changes):
            test = flip_signs(changes, families=_families(blanks), permutations=permutations, seed=seed)
            for place, blank in enumerate(blanks):
                yield _counted(blank, test, place, changes[:, place], median_rho=False)


def _counted(row: Trend, test: Tested, place: int, effects: Floats, *, median_rho: bool) -> Trend:
    changes = test.changes[:, place]
    changes = changes[~np.isnan(changes)]
    if not len(changes):
        return replace(row, **Reason(Cause.TOO_FEW, "no two models differ in this alone.").columns)
    rises, falls = int((changes > 0).sum()), int((changes < 0).sum())
    toward = None if row.toward is None else {RISES: rises, FALLS: falls}[row.toward]
    counted = replace(
        row,
        groups=len(changes),
        rises=rises,
        falls=falls,
        unchanged=len(changes) - rises - falls,
        share_toward=None if toward is None else toward / len(changes),
        median_rho=float(np.median(changes)) if median_rho else None,
        median_effect=float(np.nanmedian(effects)),
    )
    reason, p = None, float(test.corrected[place])
    if row.axis == "epoch" and len(changes) == 1:
        why = "all runs saw the training data in one order, which cannot be tested."
        reason = Reason(Cause.TOO_FEW, why, Verdict.DESCRIPTION)
    elif test.smallest[place] > LEVEL and row.axis in PERMUTED:
        reason = Reason(Cause.TOO_FEW, f"too few levels: {MIN_LEVELS} that units share are needed.")
    elif test.smallest[place] > LEVEL:
        reason = too_few(len(changes), f"{UNIT_NAMES.get(row.axis, 'width')}s", MIN_UNITS)
    else:
        counted = replace(counted, p=float(test.p[place]), p_corrected=p)
    sign = {None: 0, RISES: 1, FALLS: -1}[row.toward]
    estimate = Estimate(rises - falls, p if one_way(rises, falls) else 1.0, sign, reason=reason)
    return replace(counted, **judge(estimate, RELATION))


def sentences(models: Models, rows: Sequence[Trend]) -> Iterable[Sentence]:
    """For every axis and regulariser what is shown, then what is not, then what has no verdict."""
    for axis, where in dict.fromkeys((row.axis, row.where) for row in rows):
        along = [row for row in rows if (row.axis, row.where) == (axis, where) and row.groups]
        yield from (Sentence("trends", "trends", text) for text in _words(along))


def _words(rows: Sequence[Trend]) -> Iterable[str]:
    """A sentence for the outcome where it is shown to change, and one for each other answer."""
    start, again = _axis_words(rows) if rows else ("", "")
    better = {Verdict.AS_PREDICTED: "better", Verdict.OPPOSITE: "worse"}
    for row in rows:
        if row.of_outcome and row.verdict in better:
            effect = f"{row.metric}{_effect(row)}{unit_of(row.metric)}"
            yield f"{start}: {effect} ({better[row.verdict]}, {_largest_p([row])})."
            start = again
    for code, words in ALONG.items():
        if chosen := [row for row in rows if row.verdict is code and not row.of_outcome]:
            begin, p = f"{start}: {words}: ", f" ({_largest_p(chosen)})"
            yield f"{begin}{_names(chosen, rows, len(begin) + len(p))}{p}."
            start = again
    if rest := [row for row in rows if row.verdict is Verdict.NOT_SHOWN]:
        begin = f"{start}: not shown for "
        yield f"{start}: nothing is shown." if rest == rows else f"{begin}{_names(rest, rows, len(begin))}."
        start = again
    for code, words in ((Verdict.TOO_FEW, "no verdict"), (Verdict.DESCRIPTION, "descriptive only")):
        if untold := [row for row in rows if row.verdict is code]:
            why = untold[0].why or ""
            named = code is Verdict.DESCRIPTION or len(untold) < len(rows)
            names = f" for {_names(untold, rows, len(start) + len(why) + 20)}" if named else ""
            yield f"{start}: {words}{names}; {why}"


def _names(chosen: Sequence[Trend], rows: Sequence[Trend], used: int) -> str:
    """The paper's metrics and the outcome by name, the others counted; where the paper has none here, all by name."""
    metrics = [row for row in rows if not row.of_outcome]
    named = [row for row in metrics if RELATED[row.metric].in_paper] or metrics
    others = [row for row in metrics if row not in named]
    names = [f"{row.metric}{_effect(row)}" for row in chosen if row in named or row.of_outcome]
    count = sum(row in others for row in chosen)
    further = [f"{count} of {len(others)} further metrics"] if count else []
    return listed([*names, *further], room=LONGEST - used - 13)


def _largest_p(rows: Sequence[Trend]) -> str:
    return f"p {'≤ ' if len(rows) > 1 else ''}{max(row.p_corrected or 0.0 for row in rows):.2g}"


def _axis_words(rows: Sequence[Trend]) -> tuple[str, str]:
    """The axis with its levels and units, and in fewer words where it is named again."""
    row = max(rows, key=lambda row: row.groups)
    units = many(row.groups, UNIT_NAMES.get(row.axis, "width"))
    levels = [f"{level:.3g}" if level < 100 else f"{level:g}" for level in map(float, row.levels.split())]
    if row.axis not in AXES:
        where = f" ({regime_words(row.where)})" if row.where else ""
        again = f"{row.axis} {levels[-1]} against {levels[0]}{where}"
        return f"{again}, in {units}", again
    span = ", ".join(levels) if len(levels) <= LEVELS else f"{levels[0]} to {levels[-1]}"
    return f"{AXIS_NAMES[row.axis]} ({span}; {units})", AXIS_NAMES[row.axis]


def _effect(row: Trend) -> str:
    """What was shown in the metric's own unit, first level to last; nothing of what was not."""
    if row.verdict in (Verdict.TOO_FEW, Verdict.NOT_SHOWN) or row.median_effect is None:
        return ""
    return f" {row.median_effect:+.2g}"
