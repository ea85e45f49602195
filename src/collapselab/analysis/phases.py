"""Phases: when a property appears during training, and whether that is before or after the loss falls.

The series of each metric along the checkpoints of a run, on the metric's own scale, is fitted by a segmented line in
the logarithm of training tokens (`segments.py`). Checkpoints should be spaced in the logarithm (`checkpoints: log:12`).
The time of a break has an interval from resampled residuals; the order of a metric's main break and the loss's is that
of their resamples. It describes runs one by one: models that share seeds or data are not independent.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import final

import numpy as np
import pandas as pd

from collapselab.analysis.models import Models
from collapselab.analysis.related import RELATED
from collapselab.analysis.segments import FEWEST, Floats, Segments, fit_segments, resampled_main_breaks
from collapselab.analysis.words import Sentence, many
from collapselab.records.outcomes import context_columns

RESAMPLES = 200
CLEAR = 0.975
"""Share of resamples in which one break is earlier than the other, from which on their order is reported."""
LOSSES = ("val_loss", "train_loss")
OF_CONTEXTS = ("context_within", "context_cka", "support_cka")
"""Metrics of contexts that have phases: how far back the model looks, and which structure of what follows it has."""


@final
class Order(StrEnum):
    """A metric's main break beside that of the validation loss."""

    BEFORE = "before the loss"
    AFTER = "after the loss"
    UNCLEAR = "unclear"
    """Their intervals overlap."""
    NO_BREAK = "no break"
    """Of the metric, or of the loss."""


@final
@dataclass(frozen=True)
class Phase:
    """One break of one series; a row of `phases.csv`. A series without a break has one row, without a time."""

    run: str
    """Name of the run."""
    metric: str
    """Id of the metric; `val_loss` or `train_loss`."""
    transform: str
    """`raw`, or `log` where the series is that of the logarithm."""
    checkpoints: int
    """After initialisation, with a value."""
    breaks: int
    """How many BIC chooses."""
    number: int | None
    """Which of them this row is about, from 1 on."""
    time: float | None
    """Where it is: training tokens, or epochs where tokens are not known."""
    low: float | None
    """Lower end of the 95 % interval of the main break; empty for others."""
    high: float | None
    """Upper end."""
    main: bool
    """Whether it is the break with the largest change of slope."""
    slope_before: float
    """Per factor of e in time."""
    slope_after: float | None
    """The same after the break."""
    gain: float
    """BIC of a straight line minus that of this fit."""
    order: Order
    """Of the main break: beside that of the validation loss."""
    share_before: float | None
    """Share of resamples in which it is earlier than the loss's."""


@final
@dataclass(frozen=True)
class _Series:
    metric: str
    transform: str
    points: int
    fit: Segments
    resampled: Floats | None


def phases(models: Models, *, seed: int = 0) -> list[Phase]:
    """The breaks of every run with enough checkpoints: of the losses, the paper's metrics and contexts."""
    chosen = _chosen(models)
    rows: list[Phase] = []
    for run, checkpoints in models.trained.groupby("run", sort=False):
        if len(checkpoints) < FEWEST:
            continue
        time = _time_of(checkpoints)
        ordered = checkpoints[checkpoints[time] > 0].sort_values(time)
        if ordered[time].nunique() < FEWEST:
            continue
        all_series = [_series(ordered, time, name, seed) for name in (*LOSSES, *chosen)]
        known = [series for series in all_series if series is not None]
        loss = next((series for series in known if series.metric == "val_loss"), None)
        rows += [row for series in known for row in _rows(str(run), series, loss)]
    return rows


def _time_of(checkpoints: pd.DataFrame) -> str:
    """The column that is the time of a run: tokens where they are known of all its checkpoints."""
    return "tokens" if checkpoints["tokens"].gt(0).all() else "epoch"


def _chosen(models: Models) -> list[str]:
    """The paper's metrics, or all others where none was measured; with them, when contexts come apart and align."""
    of_tokens = [metric for metric in models.metrics if RELATED[metric].family != "contexts"]
    keys = context_columns()
    aligned = [name for name in models.metrics if name in keys and keys[name].metric in OF_CONTEXTS]
    return ([metric for metric in of_tokens if RELATED[metric].in_paper] or of_tokens) + aligned


def _series(ordered: pd.DataFrame, time: str, name: str, seed: int) -> _Series | None:
    transform = RELATED[name].transform if name in RELATED else "raw"
    known = ordered.dropna(subset=[name]).drop_duplicates(time)
    values = known[name].to_numpy(dtype=float)
    if transform == "log" and (values <= 0).any():
        transform = "raw"
    y = np.log(values) if transform == "log" else values
    if len(y) < FEWEST or np.ptp(y) == 0:
        return None
    t = np.log(known[time].to_numpy(dtype=float))
    fit = fit_segments(t, y)
    rng = np.random.default_rng([seed, *map(ord, name)])
    resampled = resampled_main_breaks(t, y, fit, resamples=RESAMPLES, rng=rng) if fit.places else None
    return _Series(name, transform, len(y), fit, resampled)


def _rows(run: str, series: _Series, loss: _Series | None) -> Iterable[Phase]:
    fit, shared = series.fit, (run, series.metric, series.transform, series.points, len(series.fit.places))
    if series.resampled is None:
        yield Phase(*shared, None, None, None, None, False, fit.slopes[0], None, fit.gain, Order.NO_BREAK, None)
        return
    low, high = np.exp(np.quantile(series.resampled, [0.025, 0.975])).tolist()
    for number, place in enumerate(fit.places):
        is_main = number == fit.main
        order, share = _order(series, loss) if is_main and series.metric not in LOSSES else (Order.NO_BREAK, None)
        ends = (low, high) if is_main else (None, None)
        before, after = fit.slopes[number], fit.slopes[number + 1]
        time = float(np.exp(place))
        yield Phase(*shared, number + 1, time, ends[0], ends[1], is_main, before, after, fit.gain, order, share)


def _order(series: _Series, loss: _Series | None) -> tuple[Order, float | None]:
    if loss is None or loss.resampled is None or series.resampled is None:
        return Order.NO_BREAK, None
    earlier = (series.resampled[:, None] < loss.resampled).mean()
    same = (series.resampled[:, None] == loss.resampled).mean()
    share = float(earlier + same / 2)
    order = Order.BEFORE if share >= CLEAR else Order.AFTER if share <= 1 - CLEAR else Order.UNCLEAR
    return order, share


def sentences(models: Models, rows: Sequence[Phase]) -> Iterable[Sentence]:
    """How many runs have a break in each series, when, and in which order with the loss."""
    times = {str(run): _time_of(checkpoints) for run, checkpoints in models.trained.groupby("run", sort=False)}
    units = {"tokens": "tokens", "epoch": "epochs"}
    for metric in dict.fromkeys(row.metric for row in rows):
        own = [row for row in rows if row.metric == metric]
        runs, broken = len({row.run for row in own}), [row for row in own if row.main]
        text = f"{metric}: a break in {len(broken)} of {many(runs, 'run')}"
        if broken:
            median = float(f"{np.median([row.time for row in broken]):.3g}")
            unit = " or ".join(sorted({units[times[row.run]] for row in broken}))
            text += (
                f", at a median of {median:,.0f} {unit}" if median >= 1000 else f", at a median of {median:g} {unit}"
            )
        orders = Counter(row.order for row in broken if row.share_before is not None)
        if orders:
            said = {Order.UNCLEAR: "unclear whether before or after the loss"}
            text += f"; {', '.join(f'{count} {said.get(order, order)}' for order, count in orders.most_common())}"
        yield Sentence("phases", "phases", f"{text}.")
