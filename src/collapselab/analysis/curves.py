"""Curves of training: when half of a change was done (`phases.csv`), and which runs are over-fitted (`diagnosis.csv`).

Half times. The change of a metric is that from the first checkpoint after initialisation to the last, on the metric's
own scale. The time is interpolated linearly in the logarithm of training tokens between neighbouring checkpoints, so
checkpoints should be spaced in the logarithm (`checkpoints: log:12`). Half times describe; no test says which of two
metrics came first.

Over-fitted. Features are tighter around their classes than with shuffled labels, but the validation loss has risen from
half of the training to its end, tested over the seeds of the cell and by more than the noise of single checkpoints
explains. The two checkpoints are fixed beforehand; a single run cannot be judged. What was not measured is called
unknown, never healthy.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.stats import t

from collapselab.analysis.models import RELATED, Floats, Models, Regime
from collapselab.analysis.paired import mean_of, sign_flips
from collapselab.analysis.resampling import LEVEL
from collapselab.analysis.words import Sentence, listed, many, regime_words

MIN_CHECKPOINTS = 4
LOSSES = ("val_loss", "train_loss")
IN_WORDS = ("val_loss", "agreement")


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


def of_half_times(models: Models, rows: Sequence[Phase]) -> Iterable[Sentence]:
    """One sentence for each cell without interventions: when half of the change of loss and agreement was done."""
    cells: dict[str, list[str]] = {}
    for row in rows:
        if row.metric in IN_WORDS and dict(row.regime.settings).get("intervene") is None:
            interval = "" if row.low is None or row.high is None else f" [{row.low:,.3g}, {row.high:,.3g}]"
            words = f"{row.metric} by {row.half_time:,.3g}{interval} {row.unit} ({many(row.seeds, 'seed')})"
            where = f" ({regime_words(row.regime)})" if row.regime.settings else ""
            cells.setdefault(f"{row.architecture}{where}", []).append(words)
    for name, times in cells.items():
        yield Sentence("phases", "phases", f"{name}: half of the change in {' and '.join(times)}.")


TIGHTNESS = ("cdnv_log", "cdnv_k2", "directional_cdnv")
RISE = 0.01
"""Relative: a validation loss that has risen by less is not called risen."""
MIN_SEEDS = 5
"""Seeds of a cell for over-fitting: with fewer no one-sided sign-flip test can be below the level."""


@dataclass(frozen=True)
class Finding:
    """Whether one run is over-fitted at its last checkpoint; a row of `diagnosis.csv`."""

    run: str
    """Name of the run."""
    checkpoint: str
    """Its last one."""
    found: bool | None
    """Whether the run is over-fitted: `True` or `False`; empty where that cannot be judged."""
    evidence: str
    """The numbers behind it, or what is missing."""


def diagnose(models: Models) -> list[Finding]:
    """A finding for every run that was trained."""
    runs = models.trained.sort_values("epoch", kind="stable").groupby("run", sort=False)
    ordered = {str(run): checkpoints for run, checkpoints in runs}
    return [
        Finding(run, str(ordered[run]["checkpoint"].iloc[-1]), *_over_fitted(models, ordered[run]))
        for run in models.trained["run"].unique()
    ]


def _over_fitted(models: Models, ordered: pd.DataFrame) -> tuple[bool | None, str]:
    """Whether the loss rises over the seeds of a cell, from the checkpoint nearest to half of the training to the last.

    Both checkpoints follow from the schedule alone: the best of several noisy losses is below the last one by chance.
    """
    last = ordered.iloc[-1]
    earlier = ordered[ordered["epoch"] < last["epoch"]]
    if earlier.empty:
        return None, "fewer than two checkpoints with a known epoch."
    half = earlier.loc[(earlier["epoch"] - last["epoch"] / 2).abs().idxmin()]
    curve = ordered[ordered["epoch"] >= min(half["epoch"], last["epoch"] / 4)]
    of_cell = models.trained[~models.repeats & models.trained["cell"].isin(curve["cell"])]
    losses = of_cell.pivot_table(index="run", columns="cell", values="val_loss").reindex(columns=curve["cell"])
    rises: Floats = (losses[last["cell"]] / losses[half["cell"]] - 1).dropna().to_numpy()
    if len(rises) < MIN_SEEDS:
        return None, f"{many(len(rises), 'seed')} with a validation loss at both checkpoints; {MIN_SEEDS} are needed."
    mean_curve = losses.mean().dropna().to_numpy()
    if len(mean_curve) < MIN_CHECKPOINTS:
        return None, f"fewer than {MIN_CHECKPOINTS} checkpoints after the first quarter of the training."
    p = float(sign_flips(rises[None], permutations=9999, seed=0)[0][0]) / 2
    risen = rises.mean() > max(RISE, _shared_noise(mean_curve)) and p < LEVEL
    tight, evidence = _tight(models, last)
    text = f"val_loss {rises.mean():+.1%} from epoch {half['epoch']:g} to {last['epoch']:g} ({len(rises)} seeds)"
    return tight if risen else False, f"{text}; {evidence}"


def _shared_noise(curve: Floats) -> float:
    """Return the relative rise that noise which all seeds share explains in 95 % of flat curves.

    Seeds that share the order of data share the noise of a checkpoint, so a test over seeds cannot see it. Its size
    comes from the second differences of the mean curve, whose variance is six times that of the noise if the curve is
    smooth. Neighbours overlap; each counts for 0.6 degrees of freedom.
    """
    differences = np.diff(curve, 2)
    noise = np.sqrt((differences**2).mean() / 6) / curve.mean()
    return float(t.ppf(1 - LEVEL, max(1.0, 0.6 * len(differences))) * np.sqrt(2) * noise)


def _tight(models: Models, last: pd.Series) -> tuple[bool | None, str]:
    """Whether most NC1 metrics with a null are below it."""
    pairs = {
        metric: (last[metric], last[f"{metric} null"])
        for metric in TIGHTNESS
        if metric in models.metrics and not np.isnan([last[metric], last[f"{metric} null"]]).any()
    }
    if not pairs:
        return None, "no NC1 metric with a null beside it."
    below = sum(value < null for value, null in pairs.values())
    text = ", ".join(f"{metric} {value:.3g} (null {null:.3g})" for metric, (value, null) in pairs.items())
    return bool(below > len(pairs) / 2), f"{below} of {len(pairs)} NC1 metrics below their null: {text}."


def of_findings(models: Models, findings: Sequence[Finding]) -> Iterable[Sentence]:
    """How many runs are over-fitted, and which; or that none can be judged."""
    known = [finding for finding in findings if finding.found is not None]
    over_fitted = [finding.run for finding in known if finding.found]
    names = f" ({listed(over_fitted)})" if over_fitted else ""
    text = f"{len(over_fitted)} of {many(len(known), 'run')} over-fitted{names}" if known else ""
    if unknown := len(findings) - len(known):
        text += f"{'; ' if known else ''}{many(unknown, 'run')} cannot be judged for over-fitting"
    if findings:
        yield Sentence("diagnosis", "diagnosis", f"{text}.")
