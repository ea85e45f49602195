"""Diagnosis of single runs: signatures that a person looks for, each with its evidence.

- *under-fitted*: after training the features are no tighter around their classes than with shuffled labels.
- *over-fitted*: they are tighter, but the validation loss has risen since an earlier checkpoint, by more than the noise
  of evaluations: in most seeds of the cell alike, or steadily over the checkpoints after the best.
- *over-regularised*: with strong decay the class means span far fewer directions, or vary far less in norm, than in the
  twin with weak decay, and validation is worse.
- *dimension collapse*: features vary in fewer than half the directions of other models of the architecture, and
  validation is worse than theirs.
- *frequency-ruled head*: the norms of output rows follow how often their token occurs, and rare tokens pay for it.

Outcomes that were measured (`measure --outcomes all`) are part of the evidence: the gap between both losses, the loss
of rare tokens, calibration. What was not measured is said to be unknown, never taken for health.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import final

import numpy as np
import pandas as pd
from scipy.stats import kendalltau, ttest_1samp

from collapselab.analysis.attainable import LEVEL
from collapselab.analysis.models import ARCHITECTURE, Floats, Models
from collapselab.analysis.words import Sentence, many
from collapselab.core.metrics import METRICS

TIGHTNESS = tuple(metric.id for metric in METRICS.values() if (metric.property, metric.direction) == ("NC1", "falls"))
COLLAPSING = ("effective_rank", "norm_cv", "head_norm_cv")
DIRECTIONS = ("participation", "rankme")
RARE = ("rare_loss", "macro_loss")
EVIDENCE = {
    "under-fitted": ("gap",),
    "over-fitted": ("gap", "ece", "loss_after_temperature"),
    "over-regularised": ("gap", "rare_loss"),
    "dimension collapse": ("rare_loss", "corruption_slope"),
    "frequency-ruled head": ("rare_loss", "macro_loss", "ece"),
}
"""Outcomes that are named with a signature where they were measured."""
RULED = 0.7
"""Correlation from which on frequency is about half of the variance."""
LARGE = 0.5
"""A spectrum or spread under this share of the twin's has collapsed."""
RISE = 0.01
"""Relative: a validation loss that has risen by less is not called risen."""
FEWEST_SEEDS = 3
"""Runs of a cell whose differences say how noisy a difference is; fewer say nothing of it."""
FEWEST_AFTER = 4
"""Checkpoints after the best: of fewer even a steady rise is one of 6 orders, and no sign of more than noise."""
ROOM = 110
"""Characters of the names of runs in a sentence; where they are longer the table has them."""


@final
class Found(StrEnum):
    """Whether a run has a signature."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


ANSWERS = {True: Found.YES, False: Found.NO, None: Found.UNKNOWN}


@final
@dataclass(frozen=True)
class Finding:
    """One signature of one run at its last checkpoint; a row of `diagnosis.csv`."""

    run: str
    """Name of the run."""
    checkpoint: str
    """Its last one."""
    signature: str
    """`under-fitted`, `over-fitted`, `over-regularised`, `dimension collapse` or `frequency-ruled head`."""
    found: Found
    """`yes`, `no` or `unknown`."""
    evidence: str
    """The numbers behind it."""


def diagnose(models: Models) -> list[Finding]:
    """Five findings for every run that was trained."""
    frame = models.frame
    findings = []
    for run, checkpoints in frame.groupby("run", sort=False):
        ordered = checkpoints.sort_values("epoch")
        last = ordered.iloc[-1]
        if last["epoch"] == 0:
            continue
        tight, evidence = _tight(models, last)
        answers = {
            "under-fitted": (None if tight is None else not tight, evidence),
            "over-fitted": _over_fitted(models, ordered, tight, evidence),
            "over-regularised": _over_regularised(models, last),
            "dimension collapse": _dimension_collapse(models, last),
            "frequency-ruled head": _frequency_ruled(models, last),
        }
        for signature, (answer, text) in answers.items():
            text += _outcomes(last, EVIDENCE[signature])
            findings.append(Finding(str(run), str(last["checkpoint"]), signature, ANSWERS[answer], text))
    return findings


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
    return below > len(pairs) / 2, f"{below} of {len(pairs)} NC1 metrics below their null: {text}."


def _over_fitted(models: Models, ordered: pd.DataFrame, tight: bool | None, evidence: str) -> tuple[bool | None, str]:
    """The lowest of noisy losses is below the last one by chance alone, so a rise must be more than noise."""
    losses = ordered[(ordered["epoch"] != 0) & ordered["val_loss"].notna()]
    if len(losses) < 2 or pd.isna(ordered.iloc[-1]["val_loss"]):
        return None, "fewer than two checkpoints with a validation loss."
    values = losses["val_loss"].to_numpy(dtype=float)
    best, last = losses.iloc[values.argmin()], losses.iloc[-1]
    text = ", best ".join(f"{row['val_loss']:.4g} at epoch {row['epoch']:g}" for row in (last, best))
    text = f"val_loss {text}"
    if last["val_loss"] <= best["val_loss"] * (1 + RISE):
        return False, f"{text}."
    if tight is not None and not tight:
        return False, f"{text}; {evidence}"
    p, how = _p_of_rise(values, _same_cell(models, ordered))
    if p is None:
        return None, f"{text}; {how}"
    if p >= LEVEL:
        return False, f"{text}; no more than noise, {how} (p {p:.2g})."
    return tight, f"{text}; more than noise, {how} (p {p:.2g}); {evidence}"


def _p_of_rise(values: Floats, cell: pd.DataFrame) -> tuple[float | None, str]:
    """One-sided: of the seeds of a cell against each earlier checkpoint, or of the order after the best one."""
    if len(cell) >= FEWEST_SEEDS:
        rises = cell.iloc[:, [-1]].to_numpy() - cell.iloc[:, :-1].to_numpy()
        steady = np.ptp(rises, axis=0) == 0  # the same in every seed: no noise at all
        noisy = [float(ttest_1samp(column, 0, alternative="greater").pvalue) for column in rises.T[~steady]]
        exact = [0.0 if rise > 0 else 1.0 for rise in rises[0, steady]]
        smallest = min([*noisy, *exact])
        return min(1.0, smallest * rises.shape[1]), f"over {len(cell)} seeds"
    after = values[values.argmin() + 1 :]
    if len(after) < FEWEST_AFTER:
        few = f"{FEWEST_SEEDS} seeds, or {FEWEST_AFTER} checkpoints after the best,"
        return None, f"one run with few checkpoints cannot tell a rise from noise. {few} could."
    p = float(kendalltau(np.arange(len(after)), after, alternative="greater").pvalue)
    return p, f"over {len(after)} checkpoints after the best"


def _dimension_collapse(models: Models, last: pd.Series) -> tuple[bool | None, str]:
    """Against the median of the other trained models of the architecture, at the end of their runs."""
    measured = [metric for metric in DIRECTIONS if metric in models.metrics and not pd.isna(last[metric])]
    if not measured:
        return None, f"none of {', '.join(DIRECTIONS)} was measured."
    frame = models.trained
    others = frame[(frame["architecture"] == last["architecture"]) & frame["last"] & (frame["run"] != last["run"])]
    others = others.dropna(subset=[*measured, "val_loss"])
    if others["run"].nunique() < FEWEST_SEEDS or pd.isna(last["val_loss"]):
        return None, f"fewer than {FEWEST_SEEDS} other runs of the architecture to compare with."
    median = others[[*measured, "val_loss"]].median()
    ratios = {metric: float(last[metric] / median[metric]) for metric in measured if median[metric] > 0}
    if not ratios:
        return None, "the other runs of the architecture have no directions to compare with."
    worse = bool(last["val_loss"] > median["val_loss"] * (1 + RISE))
    text = ", ".join(f"{metric} {last[metric]:.3g}, {ratio:.2f} times the median" for metric, ratio in ratios.items())
    text += (
        f" of {others['run'].nunique()} other runs; val_loss {last['val_loss']:.4g} against {median['val_loss']:.4g}."
    )
    return worse and min(ratios.values()) < LARGE, text


def _frequency_ruled(models: Models, last: pd.Series) -> tuple[bool | None, str]:
    """Whether most of the variance of row norms is that of log frequency, and rare tokens cost a factor of e more."""
    name = "head_norm_frequency_r"
    if name not in models.metrics or pd.isna(last[name]):
        return None, f"{name} was not measured."
    text = f"{name} {last[name]:+.2f}: {last[name] ** 2:.0%} of the variance of row norms follows log frequency."
    if abs(last[name]) < RULED:
        return False, text
    rare = next((last[column] for column in RARE if column in last and not pd.isna(last[column])), None)
    if rare is None or pd.isna(last["val_loss"]):
        return None, f"{text} Whether rare tokens pay for it was not measured (`--outcomes rare_loss`)."
    return bool(rare - last["val_loss"] > 1), text


def _outcomes(last: pd.Series, names: Sequence[str]) -> str:
    """Outcomes of the checkpoint that belong to a signature, in words; nothing where none was measured."""
    known = [f"{name} {last[name]:.4g}" for name in names if name in last and not pd.isna(last[name])]
    return f" Measured too: {', '.join(known)}." if known else ""


def _same_cell(models: Models, ordered: pd.DataFrame) -> pd.DataFrame:
    """Losses of the runs that differ from this one in their seed alone: a row for each, a column for each epoch."""
    trained = models.trained[~models.repeats]
    cells = ordered.loc[ordered["epoch"] != 0, "cell"]
    same = trained[trained["cell"].isin(cells)]
    return same.pivot_table(index="run", columns="epoch", values="val_loss").dropna()


def _over_regularised(models: Models, last: pd.Series) -> tuple[bool | None, str]:
    measured = [metric for metric in COLLAPSING if metric in models.metrics and not pd.isna(last[metric])]
    if not measured:
        return None, "neither effective_rank nor a spread of norms was measured."
    twin = _weak_twin(models, last)
    if twin is None:
        return None, "no twin with weaker decay and all else equal."
    ratios = {metric: last[metric] / twin[metric] for metric in measured if twin[metric] > 0}
    if not ratios or pd.isna([last["val_loss"], twin["val_loss"]]).any():
        return None, "the twin with weaker decay, or this run, was not measured."
    worse = bool(last["val_loss"] > twin["val_loss"] * (1 + RISE))
    text = ", ".join(f"{metric} {ratio:.2f} times the twin's" for metric, ratio in ratios.items())
    text += f"; val_loss {last['val_loss']:.4g} against {twin['val_loss']:.4g} at decay {twin['weight_decay']:g}."
    return worse and min(ratios.values()) < LARGE, text


def _weak_twin(models: Models, last: pd.Series) -> pd.Series | None:
    """The mean of models that differ in nothing but a weaker decay and the seed."""
    others = [*ARCHITECTURE, *(name for name in models.varying if name != "weight_decay")]
    same = (models.frame[others].eq(last[others]) | (models.frame[others].isna() & last[others].isna())).all(axis=1)
    weaker = models.frame[same & (models.frame["weight_decay"] < last["weight_decay"])]
    if weaker.empty:
        return None
    weakest = weaker[weaker["weight_decay"] == weaker["weight_decay"].min()]
    mean: pd.Series = weakest[[*models.metrics, "val_loss", "weight_decay"]].mean()
    return mean


def sentences(models: Models, findings: Sequence[Finding]) -> Iterable[Sentence]:
    """How many runs have each signature, and which; then those of which no run says anything."""
    silent = []
    for signature in dict.fromkeys(finding.signature for finding in findings):
        answers = [finding for finding in findings if finding.signature == signature]
        known = [finding for finding in answers if finding.found is not Found.UNKNOWN]
        runs = [finding.run for finding in known if finding.found is Found.YES]
        if not known:
            silent.append(signature)
            continue
        names = f" ({', '.join(runs)})" if runs and len(", ".join(runs)) <= ROOM else ""
        unknown = f"; {len(answers) - len(known)} more cannot be judged" if len(answers) > len(known) else ""
        text = f"{signature}: {len(runs)} of {many(len(known), 'run')}{names}{unknown}."
        yield Sentence("diagnosis", "diagnosis", text)
    if silent:
        yield Sentence("diagnosis", "diagnosis", f"No run can be judged for: {', '.join(silent)}.")
