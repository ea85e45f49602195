"""Training curves: when half of a metric's change was done, and which cells are over-fitted.

*Half times* (`phases.csv`): the change is that from the first checkpoint after initialisation to the last, on the
metric's own scale. The time is interpolated linearly in the logarithm of training tokens between neighbouring
checkpoints, so checkpoints should be spaced in the logarithm (`checkpoints: log:12`). No test says which of two metrics
came first.

*Over-fitting* (`diagnosis.csv`): features are tighter around their classes than with shuffled labels, but validation
loss has risen from half of the training to its end, tested over the seeds of the cell and by more than the noise of
single checkpoints explains. The two checkpoints are fixed beforehand; a single run cannot be judged. What was not
measured is said to be unknown, never taken for health.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import pandas as pd
from scipy.stats import t

from collapselab.analysis.models import Floats, Models
from collapselab.analysis.paired import mean_of, sign_flip_p
from collapselab.analysis.regime import Regime
from collapselab.analysis.related import RELATED
from collapselab.analysis.verdict import LEVEL
from collapselab.analysis.words import Sentence, many, regime_words
from collapselab.records.outcomes import context_columns

MIN_CHECKPOINTS = 4
LOSSES = ("val_loss", "train_loss")
OF_CONTEXTS = ("context_within", "context_cka", "support_cka")
"""Metrics of contexts that have half times: how far back the model looks, and the structure of what follows it."""
IN_WORDS = ("val_loss", "agreement")

SIGNATURES = ("over-fitted",)
TIGHTNESS = ("cdnv_log", "cdnv_k2", "directional_cdnv")
RISE = 0.01
"""Relative: a validation loss that has risen by less is not called risen."""
MIN_SEEDS = 5
"""Seeds of a cell for over-fitting: with fewer no one-sided sign-flip test can be below the level."""
ROOM = 110
"""Characters of the names of runs in a sentence; where they are longer the table has them."""


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
    """When half of the change was done: geometric mean over seeds."""
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


def of_phases(models: Models, rows: Sequence[Phase]) -> Iterable[Sentence]:
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


@final
@dataclass(frozen=True)
class Finding:
    """Whether one run is over-fitted at its last checkpoint; a row of `diagnosis.csv`."""

    run: str
    """Name of the run."""
    checkpoint: str
    """Its last one."""
    signature: str
    """`over-fitted`."""
    found: bool | None
    """Whether the run has it: `True` or `False`; empty where that cannot be judged."""
    evidence: str
    """The numbers behind it, or what is missing."""


def diagnose(models: Models) -> list[Finding]:
    """A finding for every run that was trained."""
    findings = []
    for run, checkpoints in models.trained.groupby("run", sort=False):
        ordered = checkpoints.sort_values("epoch")
        last = str(ordered["checkpoint"].iloc[-1])
        findings += [Finding(str(run), last, signature, *_over_fitted(models, ordered)) for signature in SIGNATURES]
    return findings


def _over_fitted(models: Models, ordered: pd.DataFrame) -> tuple[bool | None, str]:
    """Whether the loss rises over the seeds of a cell, from the checkpoint nearest to half of the training to the last.

    Both checkpoints follow from the schedule alone: the best of several noisy losses is below the last one by chance.
    """
    last = ordered.iloc[-1]
    earlier = ordered[ordered["epoch"] < last["epoch"]]
    if earlier.empty:
        return None, "fewer than two checkpoints with a known epoch."
    half = earlier.loc[(earlier["epoch"] - last["epoch"] / 2).abs().idxmin()]
    curve = ordered[ordered["epoch"] >= last["epoch"] / 4]
    of_cell = models.trained[~models.repeats & models.trained["cell"].isin(curve["cell"])]
    losses = of_cell.pivot_table(index="run", columns="cell", values="val_loss").reindex(columns=curve["cell"])
    rises: Floats = (losses[last["cell"]] / losses[half["cell"]] - 1).dropna().to_numpy()
    if len(rises) < MIN_SEEDS:
        return None, f"{many(len(rises), 'seed')} with a validation loss at both checkpoints; {MIN_SEEDS} are needed."
    mean_curve = losses.mean().dropna().to_numpy()
    if len(mean_curve) < MIN_CHECKPOINTS:
        return None, f"fewer than {MIN_CHECKPOINTS} checkpoints after the first quarter of the training."
    p = float(sign_flip_p(rises[None], permutations=9999, seed=0)[0]) / 2
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
    for signature in dict.fromkeys(finding.signature for finding in findings):
        known = [finding for finding in findings if finding.signature == signature and finding.found is not None]
        runs = ", ".join(finding.run for finding in known if finding.found)
        unknown = sum(finding.signature == signature for finding in findings) - len(known)
        text = f"{signature}: {sum(bool(finding.found) for finding in known)} of {many(len(known), 'run')}"
        text += f" ({runs})" if runs and len(runs) <= ROOM else ""
        text += f"; {unknown} more cannot be judged" if unknown else ""
        yield Sentence("diagnosis", "diagnosis", f"{text if known else f'No run can be judged for: {signature}'}.")
