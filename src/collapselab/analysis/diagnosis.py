"""Descriptions of training: when half of a metric's change was done, and signatures of single runs with their evidence.

*Half times* (`phases.csv`): the change is that from the first checkpoint after initialisation to the last, on the
metric's own scale. The time is interpolated linearly in the logarithm of training tokens between neighbouring
checkpoints, so checkpoints should be spaced in the logarithm (`checkpoints: log:12`). No test says which of two metrics
came first.

*Signatures* (`diagnosis.csv`) are described against the run's own control or cell, never against other arms:

- *under-fitted*: after training the features are no tighter around their classes than with shuffled labels.
- *over-fitted*: they are tighter, but the validation loss has risen from half of the training to its end, tested over
  the seeds of the cell. The two checkpoints are fixed beforehand; a single run cannot be judged.
- *dimension collapse*: features vary in fewer than half the directions of the run's control (of other runs of its cell
  where it has none), and validation is worse, tested over the pairs of its arm.

What was not measured is said to be unknown, never taken for health.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import pandas as pd

from collapselab.analysis.arms import comparisons
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

SIGNATURES = ("under-fitted", "over-fitted", "dimension collapse")
TIGHTNESS = ("cdnv_log", "cdnv_k2", "directional_cdnv")
DIRECTIONS = ("participation", "rankme")
LARGE = 0.5
"""A number of directions under this share of the reference's has collapsed."""
RISE = 0.01
"""Relative: a validation loss that has risen by less is not called risen."""
MIN_SEEDS = 5
"""Seeds of a cell for over-fitting: with fewer no one-sided sign-flip test can be below the level."""
MIN_OTHERS = 3
"""Other runs of a cell whose median is a reference."""
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
    """One signature of one run at its last checkpoint; a row of `diagnosis.csv`."""

    run: str
    """Name of the run."""
    checkpoint: str
    """Its last one."""
    signature: str
    """`under-fitted`, `over-fitted` or `dimension collapse`."""
    found: bool | None
    """Whether the run has it: `True` or `False`; empty where that cannot be judged."""
    evidence: str
    """The numbers behind it, or what is missing."""


Answer = tuple[bool | None, str]
"""Whether a run has a signature, and the evidence."""


def diagnose(models: Models) -> list[Finding]:
    """A finding for every signature of every run that was trained."""
    controls: dict[Hashable, tuple[int, pd.DataFrame]] = {
        treated: (control, comparison.pairs)
        for comparison in comparisons(models)
        for treated, control in comparison.pairs[["treated", "control"]].itertuples(index=False)
    }
    findings = []
    for run, checkpoints in models.trained.groupby("run", sort=False):
        ordered = checkpoints.sort_values("epoch")
        last = ordered.iloc[-1]
        tight, evidence = _tight(models, last)
        answers: list[Answer] = [
            (None if tight is None else not tight, evidence),
            _over_fitted(models, ordered, tight, evidence),
            _dimension_collapse(models, last, controls.get(last.name)),
        ]
        findings += [
            Finding(str(run), str(last["checkpoint"]), signature, *answer)
            for signature, answer in zip(SIGNATURES, answers, strict=True)
        ]
    return findings


def _tight(models: Models, last: pd.Series) -> Answer:
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


def _over_fitted(models: Models, ordered: pd.DataFrame, tight: bool | None, evidence: str) -> Answer:
    """Whether the loss rises over the seeds of a cell, from the checkpoint nearest to half of the training to the last.

    Both checkpoints follow from the schedule alone: the best of several noisy losses is below the last one by chance.
    """
    last = ordered.iloc[-1]
    earlier = ordered[ordered["epoch"] < last["epoch"]]
    if earlier.empty:
        return None, "fewer than two checkpoints with a known epoch."
    half = earlier.loc[(earlier["epoch"] - last["epoch"] / 2).abs().idxmin()]
    of_cell = models.trained[~models.repeats & models.trained["cell"].isin([half["cell"], last["cell"]])]
    losses = of_cell.pivot_table(index="run", columns="cell", values="val_loss")
    before, after = (losses.get(checkpoint["cell"], pd.Series(dtype=float)) for checkpoint in (half, last))
    rises = (after / before - 1).dropna().to_numpy()
    if len(rises) < MIN_SEEDS:
        return None, f"{many(len(rises), 'seed')} with a validation loss at both checkpoints; {MIN_SEEDS} are needed."
    text = f"val_loss {rises.mean():+.1%} from epoch {half['epoch']:g} to {last['epoch']:g} ({len(rises)} seeds)"
    return tight if _rises(rises) else False, f"{text}; {evidence}"


def _rises(relative: Floats) -> bool:
    """Whether losses of several seeds rise: by more than `RISE` on average, and by a one-sided sign-flip test."""
    return bool(relative.mean() > RISE) and float(sign_flip_p(relative[None], permutations=9999, seed=0)[0]) / 2 < LEVEL


def _dimension_collapse(models: Models, last: pd.Series, paired: tuple[int, pd.DataFrame] | None) -> Answer:
    """Against the run's control; `paired` has its place and the pairs of the arm, over which the loss is tested: one
    run of many is always worse than its control by chance."""
    trained = models.trained
    if paired is not None:
        control, pairs = paired
        collapsed, text = _collapsed(models, last, trained.iloc[control], "the control's")
        losses = trained["val_loss"].to_numpy(dtype=float)
        relative = losses[pairs["treated"]] / losses[pairs["control"]] - 1
        relative = relative[~np.isnan(relative)]
        if collapsed and len(relative) < MIN_SEEDS:
            return None, f"{text} {many(len(relative), 'pair')} of its arm; {MIN_SEEDS} are needed."
        return collapsed and _rises(relative), text
    others = trained[(trained["cell"] == last["cell"]) & ~models.repeats & (trained["run"] != last["run"])]
    if others["run"].nunique() < MIN_OTHERS:
        return None, f"no control, and fewer than {MIN_OTHERS} other runs of its cell."
    median = others[[*models.metrics, "val_loss"]].median()
    return _collapsed(models, last, median, f"the median of {others['run'].nunique()} other seeds")


def _collapsed(models: Models, last: pd.Series, reference: pd.Series, name: str) -> Answer:
    """Whether a number of directions is far below that of the reference, and the validation loss worse."""
    measured = [metric for metric in DIRECTIONS if metric in models.metrics and not pd.isna(last[metric])]
    ratios = {metric: last[metric] / reference[metric] for metric in measured if reference[metric] > 0}
    if not ratios or pd.isna([last["val_loss"], reference["val_loss"]]).any():
        return None, f"none of {', '.join(DIRECTIONS)} was measured here and in the reference, or no val_loss."
    worse = bool(last["val_loss"] > reference["val_loss"] * (1 + RISE))
    text = ", ".join(f"{metric} {last[metric]:.3g}, {ratio:.2f} times {name}" for metric, ratio in ratios.items())
    text += f"; val_loss {last['val_loss']:.4g} against {reference['val_loss']:.4g}."
    return worse and bool(min(ratios.values()) < LARGE), text


def of_findings(models: Models, findings: Sequence[Finding]) -> Iterable[Sentence]:
    """How many runs have each signature, and which; then those of which no run says anything."""
    silent = []
    for signature in dict.fromkeys(finding.signature for finding in findings):
        answers = [finding for finding in findings if finding.signature == signature]
        known = [finding for finding in answers if finding.found is not None]
        runs = [finding.run for finding in known if finding.found]
        if not known:
            silent.append(signature)
            continue
        names = f" ({', '.join(runs)})" if runs and len(", ".join(runs)) <= ROOM else ""
        unknown = f"; {len(answers) - len(known)} more cannot be judged" if len(answers) > len(known) else ""
        text = f"{signature}: {len(runs)} of {many(len(known), 'run')}{names}{unknown}."
        yield Sentence("diagnosis", "diagnosis", text)
    if silent:
        yield Sentence("diagnosis", "diagnosis", f"No run can be judged for: {', '.join(silent)}.")
