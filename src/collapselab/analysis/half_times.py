"""Half times: when half of the change of a metric over training was done, over the seeds of a cell (`phases.csv`).

The change is that from the first checkpoint after initialisation to the last, on the metric's own scale. The time is
interpolated linearly in the logarithm of training tokens between neighbouring checkpoints, so checkpoints should be
spaced in the logarithm (`checkpoints: log:12`). Half times describe; no test says which of two metrics came first.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import pandas as pd

from collapselab.analysis.models import RELATED, Floats, Models, Regime
from collapselab.analysis.paired import mean_of
from collapselab.analysis.words import Sentence, many, regime_words

MIN_CHECKPOINTS = 4
LOSSES = ("val_loss", "train_loss")
IN_WORDS = ("val_loss", "agreement")


@final
@dataclass(frozen=True)
class Phase:
    """The half time of one metric in one cell: runs that differ in their seed alone."""

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
    """When half of the change was done: the geometric mean over seeds."""
    low: float | None
    """Lower end of its 95 % interval by Student's t over seeds; empty for a single seed."""
    high: float | None
    """Upper end."""
    seeds: int
    """Runs with at least four checkpoints after initialisation."""


def half_times(models: Models) -> list[Phase]:
    """The half times of the losses and of the paper's metrics in every cell."""
    trained = models.trained
    metrics = [*LOSSES, *(metric for metric in models.metrics if RELATED[metric].in_paper)]
    ends = trained[trained["last"] & ~models.repeats].drop_duplicates("run")
    rows = []
    for _, cell in ends.groupby("cell", sort=False):
        checkpoints = trained[trained["run"].isin(cell["run"])]
        time = "tokens" if checkpoints["tokens"].gt(0).all() else "epoch"
        ordered = checkpoints[checkpoints[time] > 0].sort_values(time)
        runs = [run for _, run in ordered.groupby("run", sort=False)]
        rows += [row for metric in metrics for row in _half_time_of(cell.iloc[0], runs, time, metric)]
    return rows


def _half_time_of(end: pd.Series, runs: Sequence[pd.DataFrame], time: str, metric: str) -> Iterator[Phase]:
    measured = [run.dropna(subset=[metric]).drop_duplicates(time) for run in runs]
    measured = [run for run in measured if len(run) >= MIN_CHECKPOINTS]
    transform = RELATED[metric].transform if metric in RELATED else "raw"
    if transform != "log" or any((run[metric] <= 0).any() for run in measured):
        transform = "raw"
    scaled = np.log if transform == "log" else np.asarray
    times = [half_time(run[time].to_numpy(dtype=float), scaled(run[metric].to_numpy(dtype=float))) for run in measured]
    if known := [one for one in times if one is not None]:
        mean = mean_of(np.log(known))
        low, high = (None if bound is None else float(np.exp(bound)) for bound in (mean.low, mean.high))
        unit = "tokens" if time == "tokens" else "epochs"
        regime = Regime.read(end["regime"])
        yield Phase(end["architecture"], regime, metric, transform, unit, float(np.exp(mean.mean)), low, high, mean.n)


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
    """One sentence for each cell without interventions, about the loss and agreement."""
    cells: dict[tuple[str, Regime], list[str]] = {}
    for row in rows:
        if row.metric in IN_WORDS and dict(row.regime.settings).get("intervene") is None:
            times = [f"{row.half_time:,.3g}", *(f"{bound:,.3g}" for bound in (row.low, row.high) if bound is not None)]
            interval = f" [{times[1]}, {times[2]}]" if len(times) == 3 else ""
            words = f"{row.metric} by {times[0]}{interval} {row.unit} ({many(row.seeds, 'seed')})"
            cells.setdefault((row.architecture, row.regime), []).append(words)
    for (architecture, regime), times in cells.items():
        name = f"{architecture} ({regime_words(regime)})" if regime.settings else architecture
        yield Sentence("phases", "phases", f"{name}: half of the change in {' and '.join(times)}.")
