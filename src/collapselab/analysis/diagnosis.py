"""Diagnosis of single runs: signatures that a person looks for, each with its evidence.

- *under-fitted*: after training the features are no tighter around their classes than with shuffled labels.
- *over-fitted*: they are tighter, but the validation loss has risen from half of the training to its end, tested over
  the seeds of the cell. The two checkpoints are fixed beforehand; a single run cannot be judged.
- *over-regularised*: with strong decay the class means span far fewer directions, or vary far less in norm, than in the
  twin with weak decay, and validation is worse.
- *dimension collapse*: features vary in fewer than half the directions of the run's control (of other runs of its cell
  where it has none), and validation is worse, tested over the pairs of its arm. Runs of other arms are never the
  reference.
- *frequency-ruled head*: the norms of output rows follow how often their token occurs, and rare tokens pay for it.

Outcomes that were measured (`measure --outcomes all`) are part of the evidence: the gap between both losses, the loss
of rare tokens, calibration. What was not measured is said to be unknown, never taken for health.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import final

import numpy as np
import pandas as pd

from collapselab.analysis.arms import comparisons
from collapselab.analysis.attainable import LEVEL
from collapselab.analysis.models import ARCHITECTURE, Models
from collapselab.analysis.paired import Floats, sign_flip_p
from collapselab.analysis.words import Sentence, many

TIGHTNESS = ("cdnv_log", "cdnv_k2", "directional_cdnv")
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
"""A spectrum or spread under this share of the reference's has collapsed."""
RISE = 0.01
"""Relative: a validation loss that has risen by less is not called risen."""
MIN_SEEDS = 5
"""Seeds of a cell for over-fitting: with fewer no one-sided sign-flip test can be below the level."""
MIN_OTHERS = 3
"""Other runs of a cell whose median is a reference."""
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
        answers = {
            "under-fitted": (None if tight is None else not tight, evidence),
            "over-fitted": _over_fitted(models, ordered, tight, evidence),
            "over-regularised": _over_regularised(models, last),
            "dimension collapse": _dimension_collapse(models, last, controls.get(last.name)),
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


def _dimension_collapse(
    models: Models, last: pd.Series, paired: tuple[int, pd.DataFrame] | None
) -> tuple[bool | None, str]:
    """Against the run's control; `paired` has its place and the pairs of the arm, over which the loss is tested: one
    run of many is always worse than its control by chance."""
    trained = models.trained
    if paired is not None:
        control, pairs = paired
        answer, text = _collapsed(models, last, DIRECTIONS, trained.iloc[control], "the control's")
        losses = trained["val_loss"].to_numpy(dtype=float)
        relative = losses[pairs["treated"]] / losses[pairs["control"]] - 1
        relative = relative[~np.isnan(relative)]
        if answer and len(relative) < MIN_SEEDS:
            return None, f"{text} {many(len(relative), 'pair')} of its arm; {MIN_SEEDS} are needed."
        return answer and _rises(relative), text
    others = trained[(trained["cell"] == last["cell"]) & ~models.repeats & (trained["run"] != last["run"])]
    if others["run"].nunique() < MIN_OTHERS:
        return None, f"no control, and fewer than {MIN_OTHERS} other runs of its cell."
    median = others[[*models.metrics, "val_loss"]].median()
    return _collapsed(models, last, DIRECTIONS, median, f"the median of {others['run'].nunique()} other seeds")


def _collapsed(
    models: Models, last: pd.Series, metrics: Sequence[str], reference: pd.Series, name: str
) -> tuple[bool | None, str]:
    """Whether a metric is far below that of the reference, and the validation loss worse."""
    measured = [metric for metric in metrics if metric in models.metrics and not pd.isna(last[metric])]
    ratios = {metric: last[metric] / reference[metric] for metric in measured if reference[metric] > 0}
    if not ratios or pd.isna([last["val_loss"], reference["val_loss"]]).any():
        return None, f"none of {', '.join(metrics)} was measured here and in the reference, or no val_loss."
    worse = bool(last["val_loss"] > reference["val_loss"] * (1 + RISE))
    text = ", ".join(f"{metric} {last[metric]:.3g}, {ratio:.2f} times {name}" for metric, ratio in ratios.items())
    text += f"; val_loss {last['val_loss']:.4g} against {reference['val_loss']:.4g}."
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


def _over_regularised(models: Models, last: pd.Series) -> tuple[bool | None, str]:
    twin = _weak_twin(models, last)
    if twin is None:
        return None, "no twin with weaker decay and all else equal."
    return _collapsed(models, last, COLLAPSING, twin, f"the twin's at decay {twin['weight_decay']:g}")


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
