"""Trends: does a property develop with width, depth and training, and what is the effect of regularisation on it?

Along one axis all other settings are fixed: models that differ in that axis alone form a group, in which the metric's
rank correlation with the axis says whether it rises or falls. Regularisation is compared in pairs, its strongest level
against its weakest in otherwise equal models. Seeds are averaged first. Groups and pairs that share architectures, or
whose effects may be alike, are one unit, and so are runs that saw the training data in one order, along their
checkpoints; units are counted and tested.

Two tests. Where the levels of the axis are exchangeable if the axis does nothing, they are permuted in one order for
all units: a level may be odd in every unit. Where they are not (checkpoints of a run follow from each other; a pair has
two levels), the signs of the units are flipped. All metrics see the same permutations, so that the largest of them has
a distribution too: the corrected p is Westfall and Young's (1993), step-down.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations as all_orders
from math import factorial
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import binomtest, rankdata

from collapselab.analysis.models import ARCHITECTURE, NOT_TESTED, RELATED, Floats, Models, Regime, better
from collapselab.analysis.resampling import LEVEL, sign_patterns, step_down
from collapselab.analysis.verdict import FALLS, RELATION, RISES, Cause, Estimate, Reason, Verdict, judge
from collapselab.analysis.words import ALONG, LONGEST, Sentence, listed, many, regime_words, unit_of

Places = NDArray[np.intp]
MAX_ORDERS = 5_040
"""Orders of the levels that are enumerated (seven levels); of more levels they are drawn."""
MIN_LEVELS = next(levels for levels in range(2, 10) if 2 / factorial(levels) <= LEVEL)
"""Levels with enough orders for a p below the level. The correction does not raise this number: it compares with the
largest statistic of the family, and none is larger than that of a metric that follows the levels in every unit."""
MIN_UNITS = next(units for units in range(2, 10) if 2 / 2**units <= LEVEL)
"""Units with enough sign patterns."""
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
    toward: str | None = None
    """`rises` or `falls`: the way of collapse, or of a better outcome."""
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


class Group(NamedTuple):
    """Models that differ in the axis alone: the places of their levels among all of the axis, and their values."""

    places: Places
    values: Floats
    """(levels, metrics); NaN where a metric is missing."""


class Tested(NamedTuple):
    """What a test says of every metric."""

    changes: Floats
    """(units, metrics): the mean rank correlation of a unit's groups, or its difference; NaN where it has none."""
    smallest: Floats
    """The smallest p that units like these could have."""
    p: Floats
    corrected: Floats


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
    # Effects are differences between the last level at which a metric is known and the first.
    ordered = [[group.sort_values(axis)[measured] for group in unit] for unit in units.values()]
    ends = [[values.ffill().iloc[-1] - values.bfill().iloc[0] for values in unit] for unit in ordered]
    effects = np.array([pd.DataFrame(of_unit).mean() for of_unit in ends])
    ranked = [
        [Group(np.searchsorted(levels, group[axis]), group[measured].to_numpy(dtype=float)) for group in unit]
        for unit in units.values()
    ]
    families = _families(blanks)
    if axis in PERMUTED:
        test = permute_levels(ranked, families=families, permutations=permutations, seed=seed)
    else:
        changes = mean_correlations(ranked, len(levels))
        test = flip_signs(changes, families=families, permutations=permutations, seed=seed)
    yield from (_counted(blank, test, i, effects[:, i], median_rho=True) for i, blank in enumerate(blanks))


def _families(rows: list[Trend]) -> Places:
    names = list(dict.fromkeys(row.family for row in rows))
    return np.array([names.index(row.family) for row in rows], dtype=np.intp)


def _blank(models: Models, axis: str, where: Regime | None, metric: str, levels: list[float]) -> Trend:
    of_outcome = metric == models.outcome
    sign = better(models.outcome) if of_outcome else models.toward[metric]
    family = "paper" if of_outcome else RELATED[metric].family
    toward, listed_levels = {-1: FALLS, 0: None, 1: RISES}[sign], " ".join(f"{level:g}" for level in levels)
    return Trend(axis, where, metric, models.outcome, levels=listed_levels, toward=toward, family=family)


def _table(models: Models, axis: str) -> tuple[pd.DataFrame, list[str]]:
    """The models that take part, seeds averaged, and the columns that are fixed."""
    fixed = [*ARCHITECTURE, *models.varying]
    frame = models.frame if axis == "epoch" else models.trained[models.trained["last"]]
    if axis == "epochs":
        frame = frame[np.isclose(frame["epoch"], frame["epochs"], rtol=0.01, atol=0)]
        fixed = [column for column in fixed if column != "epoch"]
    if axis == "epoch":
        # Without a data seed the order follows from the seed.
        known = frame.reindex(columns=["corpus", "data_seed", "seed"]).itertuples(index=False, name=None)
        orders = [f"{corpus} {seed if pd.isna(data_seed) else data_seed}" for corpus, data_seed, seed in known]
        fixed, frame = [*fixed, DATA_ORDER], frame.assign(**{DATA_ORDER: orders})
    keys = list(dict.fromkeys([*fixed, axis]))
    averaged = frame.groupby(keys, dropna=False)[_measured(models)].mean().reset_index()
    return averaged, [column for column in keys if column != axis]


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
            yield from (_counted(blank, test, i, changes[:, i], median_rho=False) for i, blank in enumerate(blanks))


def _counted(row: Trend, test: Tested, place: int, effects: Floats, *, median_rho: bool) -> Trend:
    changes = test.changes[:, place]
    changes = changes[~np.isnan(changes)]
    if not len(changes):
        return replace(row, **Reason(Cause.TOO_FEW, "no two models differ in this alone.").columns)
    rises, falls, groups = int((changes > 0).sum()), int((changes < 0).sum()), len(changes)
    row = replace(
        row, groups=groups, rises=rises, falls=falls,
        median_rho=float(np.median(changes)) if median_rho else None, median_effect=float(np.nanmedian(effects)),
    )  # fmt: skip
    reason, p = None, float(test.corrected[place])
    if row.axis == "epoch" and groups == 1:
        why = "all runs saw the training data in one order, which cannot be tested."
        reason = Reason(Cause.TOO_FEW, why, Verdict.DESCRIPTION)
    elif test.smallest[place] <= LEVEL:
        row = replace(row, p=float(test.p[place]), p_corrected=p)
    elif row.axis in PERMUTED:
        reason = Reason(Cause.TOO_FEW, f"too few levels: {MIN_LEVELS} that units share are needed.")
    else:
        reason = Reason.too_few(groups, f"{UNIT_NAMES.get(row.axis, 'width')}s", MIN_UNITS)
    sign = {None: 0, RISES: 1, FALLS: -1}[row.toward]
    # A few of many units may rule a sum, so units must agree: all of them, or as many as a sign test needs.
    agree = min(rises, falls) == 0 or float(binomtest(rises, rises + falls).pvalue) < LEVEL
    estimate = Estimate(rises - falls, p if agree else 1.0, sign, reason=reason)
    return replace(row, **judge(estimate, RELATION))


def sentences(models: Models, rows: Sequence[Trend]) -> Iterable[Sentence]:
    """What is shown for every axis and regulariser."""
    for axis, where in dict.fromkeys((row.axis, row.where) for row in rows):
        if along := [row for row in rows if (row.axis, row.where) == (axis, where) and row.groups]:
            yield from (Sentence("trends", "trends", text) for text in _words(along))


def _words(rows: Sequence[Trend]) -> Iterable[str]:
    """A sentence for the outcome where it is shown to change, and one for each direction in which metrics are shown to;
    where nothing is shown, why."""
    start, again = _axis_words(rows)
    better = {Verdict.AS_PREDICTED: "better", Verdict.OPPOSITE: "worse"}
    for row in rows:
        if row.of_outcome and row.verdict in better:
            effect = f"{row.metric}{_effect(row)}{unit_of(row.metric)}"
            yield f"{start}: {effect} ({better[row.verdict]}, p {row.p_corrected:.2g})."
            start = again
    for code, words in ALONG.items():
        if chosen := [row for row in rows if row.verdict is code and not row.of_outcome]:
            begin = f"{start}: {words}: "
            p = f" (p {'≤ ' if len(chosen) > 1 else ''}{max(row.p_corrected or 0.0 for row in chosen):.2g})"
            yield f"{begin}{_names(chosen, rows, len(begin) + len(p))}{p}."
            start = again
    if start != again:
        why = next((row.why for row in rows if row.why), None)
        yield f"{start}: no verdict; {why}" if why else f"{start}: nothing is shown."


def _names(chosen: Sequence[Trend], rows: Sequence[Trend], used: int) -> str:
    """The paper's metrics and the outcome by name, the others counted; where the paper has none here, all by name."""
    metrics = [row for row in rows if not row.of_outcome]
    named = [row for row in metrics if RELATED[row.metric].in_paper] or metrics
    others = [row for row in metrics if row not in named]
    names = [f"{row.metric}{_effect(row)}" for row in chosen if row in named or row.of_outcome]
    count = sum(row in others for row in chosen)
    further = [f"{count} of {len(others)} further metrics"] if count else []
    return listed([*names, *further], room=LONGEST - used - 13)


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
    """What was shown in the metric's own unit, first level to last."""
    return "" if row.median_effect is None else f" {row.median_effect:+.2g}"


def permute_levels(units: Sequence[Sequence[Group]], *, families: Places, permutations: int, seed: int) -> Tested:
    """Test the sum over units of the mean rank correlation, with the levels permuted in one order for all units.

    A level that is odd in every unit is one observation, which separate orders would count once for each unit.
    """
    levels = 1 + max(int(group.places.max()) for unit in units for group in unit)
    complete = factorial(levels) <= MAX_ORDERS
    if complete:
        orders = np.array(list(all_orders(range(levels))))
    else:
        orders = np.argsort(np.random.default_rng(seed).random((permutations, levels)), axis=1)
    in_order, changes = np.arange(levels)[None], mean_correlations(units, levels)
    # No metric can have a smaller p than one that follows the levels in every group; it is missing where this one is.
    ideal = [[Group(g.places, np.where(np.isnan(g.values), np.nan, g.places[:, None])) for g in unit] for unit in units]
    smallest, _ = _p_values(_total(ideal, in_order)[0], _total(ideal, orders), families, exact=complete)
    p, corrected = _p_values(np.nan_to_num(changes).sum(0), _total(units, orders), families, exact=complete)
    return Tested(changes, smallest, p, corrected)


def flip_signs(changes: Floats, *, families: Places, permutations: int, seed: int) -> Tested:
    """Test the number of units that rise less those that fall, each unit's sign flipped or not in all metrics."""
    signs, (flips, exact) = np.nan_to_num(np.sign(changes)), sign_patterns(len(changes), permutations, seed)
    p, corrected = _p_values(signs.sum(0), flips @ signs, families, exact=exact)
    return Tested(changes, np.minimum(1.0, 2 * 0.5 ** (~np.isnan(changes)).sum(0)), p, corrected)


def mean_correlations(units: Sequence[Sequence[Group]], levels: int) -> Floats:
    """(units, metrics): the mean rank correlation of a unit's groups with the axis; NaN where it has none."""
    return np.round(np.array([_rhos(unit, np.arange(levels)[None])[0] for unit in units]), 12)


def _total(units: Sequence[Sequence[Group]], orders: Places) -> Floats:
    """The sum over units of their mean rank correlations: (orders, metrics)."""
    return np.asarray(np.sum([np.nan_to_num(_rhos(unit, orders)) for unit in units], axis=0))


def _rhos(unit: Sequence[Group], orders: Places) -> Floats:
    """The mean rank correlation of a unit's groups under each order of its levels: (orders, metrics)."""
    total, count = np.zeros((len(orders), unit[0].values.shape[1])), np.zeros(unit[0].values.shape[1])
    for group in unit:
        masks, which = np.unique(~np.isnan(group.values), axis=1, return_inverse=True)
        for place, known in enumerate(masks.T):  # metrics together that are known at the same levels
            metrics = np.flatnonzero(which.ravel() == place)
            if known.sum() < 2:
                continue
            axis = _standardised(rankdata(orders[:, group.places[known]], axis=1).T)
            values = _standardised(rankdata(group.values[np.ix_(known, metrics)], axis=0))
            total[:, metrics] += axis.T @ values
            count[metrics] += 1
    with np.errstate(invalid="ignore"):
        return np.asarray(total / np.where(count > 0, count, np.nan))


def _standardised(columns: Floats) -> Floats:
    """Columns with mean 0 and length 1; a constant one is 0."""
    left = columns - columns.mean(0)
    length = np.sqrt((left**2).sum(0))
    return np.asarray(left / np.where(length > 0, length, 1.0))


def _p_values(observed: Floats, null: Floats, families: Places, *, exact: bool) -> tuple[Floats, Floats]:
    """Two-sided p of statistics in units of their spread, alone and corrected within its family."""
    spread = np.sqrt((null**2).mean(0))
    scale = np.where(spread > 0, spread, 1.0)
    p, corrected = np.empty_like(scale), np.empty_like(scale)
    for family in np.unique(families):
        of_it = families == family
        p[of_it], corrected[of_it] = step_down((observed / scale)[of_it], (null / scale)[:, of_it], exact=exact)
    return p, corrected
