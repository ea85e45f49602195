"""Phases: the time at which half of a metric's change during training was done.

The change is that from the first checkpoint after initialisation to the last, on the metric's own scale. The half time
is interpolated linearly in the logarithm of training tokens between neighbouring checkpoints, so checkpoints should be
spaced in the logarithm (`checkpoints: log:12`). It describes a curve; no test says which of two metrics came first.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import pandas as pd

from collapselab.analysis.models import Floats, Models
from collapselab.analysis.paired import mean_of
from collapselab.analysis.regime import Regime
from collapselab.analysis.related import RELATED
from collapselab.analysis.words import Sentence, many, regime_words
from collapselab.records.outcomes import context_columns

MIN_CHECKPOINTS = 4
LOSSES = ("val_loss", "train_loss")
OF_CONTEXTS = ("context_within", "context_cka", "support_cka")
"""Metrics of contexts that have phases: how far back the model looks, and which structure of what follows it has."""
IN_WORDS = ("val_loss", "agreement")


@final
@dataclass(frozen=True)
class Phase:
    """The half time of one metric in one cell (runs that differ in their seed alone); a row of `phases.csv`."""

    architecture: str
    """Family, depth and width."""
    regime: Regime
    """Settings of the runs at their last checkpoint, as in `relate.csv`."""
    metric: str
    """Id of the metric; `val_loss` or `train_loss`."""
    transform: str
    """`raw`, or `log` where the change is that of the logarithm."""
    unit: str
    """Of the times: `tokens`, or `epochs` where tokens are not known."""
    half_time: float
    """When half of the change was done: mean over seeds of the logarithm of the time, as a time."""
    low: float | None
    """Lower end of its 95 % interval by Student's t over seeds; empty for a single seed."""
    high: float | None
    """Upper end."""
    seeds: int
    """Runs with at least four checkpoints after initialisation."""


def phases(models: Models) -> list[Phase]:
    """The half times of every cell: of the losses, the paper's metrics and contexts."""
    trained, metrics = models.trained, (*LOSSES, *_chosen(models))
    ends = trained[trained["last"] & ~models.repeats].drop_duplicates("run")
    rows = []
    for _, cell in ends.groupby("cell", sort=False):
        checkpoints = trained[trained["run"].isin(cell["run"])]
        time = "tokens" if checkpoints["tokens"].gt(0).all() else "epoch"
        ordered = checkpoints[checkpoints[time] > 0].sort_values(time)
        runs = [run for _, run in ordered.groupby("run", sort=False)]
        rows += [row for metric in metrics if (row := _phase(cell.iloc[0], runs, time, metric)) is not None]
    return rows


def _chosen(models: Models) -> list[str]:
    """The paper's metrics, or all others where none was measured; with them, when contexts come apart and align."""
    of_tokens = [metric for metric in models.metrics if RELATED[metric].family != "contexts"]
    keys = context_columns()
    aligned = [name for name in models.metrics if name in keys and keys[name].metric in OF_CONTEXTS]
    return ([metric for metric in of_tokens if RELATED[metric].in_paper] or of_tokens) + aligned


def _phase(end: pd.Series, runs: Sequence[pd.DataFrame], time: str, metric: str) -> Phase | None:
    measured = [run.dropna(subset=[metric]).drop_duplicates(time) for run in runs]
    measured = [run for run in measured if len(run) >= MIN_CHECKPOINTS]
    transform = RELATED[metric].transform if metric in RELATED else "raw"
    if any((run[metric] <= 0).any() for run in measured):
        transform = "raw"
    scaled = np.log if transform == "log" else np.asarray
    series = ((run[time].to_numpy(dtype=float), scaled(run[metric].to_numpy(dtype=float))) for run in measured)
    times = [half for t, y in series if (half := half_time(t, y)) is not None]
    if not times:
        return None
    mean = mean_of(np.log(times))
    low, high = (None if bound is None else float(np.exp(bound)) for bound in (mean.low, mean.high))
    unit = {"tokens": "tokens", "epoch": "epochs"}[time]
    regime = Regime.read(end["regime"])
    return Phase(end["architecture"], regime, metric, transform, unit, float(np.exp(mean.mean)), low, high, mean.n)


def half_time(times: Floats, values: Floats) -> float | None:
    """When the series first crosses the middle between its first and last value; None where those are the same."""
    from_half = values - (values[0] + values[-1]) / 2
    if values[0] == values[-1]:
        return None
    after = int(np.argmax(from_half * from_half[0] <= 0))
    before = after - 1
    share = from_half[before] / (from_half[before] - from_half[after])
    return float(times[before] * (times[after] / times[before]) ** share)


def sentences(models: Models, rows: Sequence[Phase]) -> Iterable[Sentence]:
    """The half times of the loss and of agreement, one sentence a cell."""
    cells: dict[tuple[str, Regime], list[Phase]] = {}
    for row in rows:
        if row.metric in IN_WORDS:
            cells.setdefault((row.architecture, row.regime), []).append(row)
    for (architecture, regime), of_cell in cells.items():
        name = f"{architecture} ({regime_words(regime)})" if regime.settings else architecture
        times = " and ".join(f"{row.metric} by {_time_words(row)}" for row in of_cell)
        text = f"{name}: half of the change in {times} ({many(max(row.seeds for row in of_cell), 'seed')})."
        yield Sentence("phases", "phases", text)


def _time_words(row: Phase) -> str:
    middle, low, high = (
        None if time is None else f"{float(f'{time:.3g}'):,.0f}" if time >= 1000 else f"{time:.3g}"
        for time in (row.half_time, row.low, row.high)
    )
    return f"{middle} {row.unit}" + ("" if low is None else f" [{low}, {high}]")
