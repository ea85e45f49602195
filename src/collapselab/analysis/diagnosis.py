"""Diagnosis: which cells are over-fitted (`diagnosis.csv`).

Features are tighter around their classes than with shuffled labels, but validation loss has risen from half of the
training to its end, tested over the seeds of the cell and by more than the noise of single checkpoints explains. The
two checkpoints are fixed beforehand; a single run cannot be judged. What was not measured is said to be unknown, never
taken for health.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import pandas as pd
from scipy.stats import t

from collapselab.analysis.models import Floats, Models
from collapselab.analysis.paired import sign_flips
from collapselab.analysis.verdict import LEVEL
from collapselab.analysis.words import Sentence, many

SIGNATURE = "over-fitted"
TIGHTNESS = ("cdnv_log", "cdnv_k2", "directional_cdnv")
MIN_CHECKPOINTS = 4
RISE = 0.01
"""Relative: a validation loss that has risen by less is not called risen."""
MIN_SEEDS = 5
"""Seeds of a cell for over-fitting: with fewer no one-sided sign-flip test can be below the level."""
ROOM = 110
"""Characters of the names of runs in a sentence; where they are longer the table has them."""


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
    runs = models.trained.sort_values("epoch", kind="stable").groupby("run", sort=False)
    ordered = {str(run): checkpoints for run, checkpoints in runs}
    return [
        Finding(run, str(ordered[run]["checkpoint"].iloc[-1]), SIGNATURE, *_over_fitted(models, ordered[run]))
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
    if not findings:
        return
    known = [finding for finding in findings if finding.found is not None]
    over_fitted, unknown = [finding.run for finding in known if finding.found], len(findings) - len(known)
    names = ", ".join(over_fitted)
    text = f"{SIGNATURE}: {len(over_fitted)} of {many(len(known), 'run')}"
    text += f" ({names})" if names and len(names) <= ROOM else ""
    text += f"; {unknown} more cannot be judged" if unknown else ""
    yield Sentence("diagnosis", "diagnosis", f"{text if known else f'No run can be judged for: {SIGNATURE}'}.")
