"""Clipping: were the gradients of an arm shortened in more, or in fewer, of its steps than those of its control?

A clipped step is shorter than the learning rate says. So an arm whose gradients are longer trains as if with a smaller
learning rate, whatever it does to its property: a way around the property. Shares of clipped steps are compared in the
same pairs as the outcome; a difference is named where it is shown and at least a tenth of all steps.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import final

import pandas as pd

from collapselab.analysis.arms import Comparison, comparisons
from collapselab.analysis.attainable import LEVEL
from collapselab.analysis.effect_words import TOPIC
from collapselab.analysis.models import Models
from collapselab.analysis.paired import FEWEST_PAIRS, mean_of, step_down_p
from collapselab.analysis.regime import Regime
from collapselab.analysis.verdict import Cause, Reason
from collapselab.analysis.words import Sentence, listed

COLUMN = "clipped"
NOTABLE = 0.1
"""Share of all steps: a smaller difference is not named, however well it is known."""
NAMED = 3
"""Arms that have a sentence each; more are named together."""


@final
class Clipped(StrEnum):
    """What may be said of the clipped steps of an arm beside those of its control."""

    MORE = "clipped more"
    LESS = "clipped less"
    NOT_SHOWN = "not shown"
    """The difference is not significant, or below a tenth of all steps."""
    CANNOT_TELL = "cannot tell"
    """Too few pairs for any result."""


@final
@dataclass(frozen=True)
class Clipping:
    """The clipped steps of one arm; a row of `clipping.csv`."""

    arm: str
    """As in `effects.csv`."""
    dose: float | None
    """As in `effects.csv`."""
    sham: bool
    """As in `effects.csv`."""
    n: int
    """Pairs: seeds in which the share is known of arm and control."""
    treated: float
    """Mean share of the arm's steps that were clipped."""
    control: float
    """The same of the control."""
    difference: float
    """Arm minus control."""
    low: float | None
    """Lower end of its 95 % interval (Student's t)."""
    high: float | None
    """Upper end."""
    p_corrected: float | None = None
    """By flipping signs, corrected over all arms and shams with the joint sign patterns of the seeds."""
    verdict: Clipped = Clipped.CANNOT_TELL
    """`clipped more` or `clipped less`: shown, and a tenth of all steps or more; `not shown` or `cannot tell`."""
    where: Regime | None = None
    """As in `effects.csv`."""
    label: str = ""
    """The arm as it is set, for people."""
    why: str | None = None
    """Why there is no p."""
    why_code: Cause | None = None
    """As in `relate.csv`."""


def clipping(models: Models, *, permutations: int, seed: int) -> list[Clipping]:
    """A row for every arm whose pairs know their share of clipped steps; none where runs.csv does not have it."""
    if COLUMN not in models.trained:
        return []
    pairs = [(comparison, _shares(models, comparison)) for comparison in comparisons(models)]
    known = [(comparison, shares) for comparison, shares in pairs if len(shares)]
    rows = [_row(comparison, shares) for comparison, shares in known]
    tested = [i for i, row in enumerate(rows) if row.n >= FEWEST_PAIRS]
    if tested:
        differences = pd.concat([known[i][1]["treated"] - known[i][1]["control"] for i in tested], axis=1)
        p = step_down_p(differences.to_numpy(dtype=float).T, permutations=permutations, seed=seed)
        for i, p_corrected in zip(tested, p, strict=True):
            rows[i] = _judged(replace(rows[i], p_corrected=float(p_corrected)))
    return rows


def _shares(models: Models, comparison: Comparison) -> pd.DataFrame:
    """The shares of arm and control, a row a seed; cells that share a seed are averaged."""
    column = pd.to_numeric(models.trained[COLUMN]).astype(float)
    sides = {side: column.loc[comparison.pairs[side]].to_numpy() for side in ("treated", "control")}
    known = pd.DataFrame({"unit": comparison.pairs["unit"].to_numpy(), **sides}).dropna()
    return known.groupby("unit", sort=True).mean()


def _row(comparison: Comparison, shares: pd.DataFrame) -> Clipping:
    arm = comparison.arm
    mean = mean_of((shares["treated"] - shares["control"]).to_numpy(dtype=float))
    treated, control = (float(shares[side].mean()) for side in ("treated", "control"))
    row = Clipping(arm.name, arm.dose, arm.sham, mean.n, treated, control, mean.mean, mean.low, mean.high,
                   where=arm.where, label=arm.label)  # fmt: skip
    if mean.n < FEWEST_PAIRS:
        return replace(row, **Reason(Cause.TOO_FEW, f"{mean.n} pairs; {FEWEST_PAIRS} are needed.").columns)
    return row


def _judged(row: Clipping) -> Clipping:
    if row.p_corrected is None or row.p_corrected >= LEVEL or abs(row.difference) < NOTABLE:
        return replace(row, verdict=Clipped.NOT_SHOWN)
    return replace(row, verdict=Clipped.MORE if row.difference > 0 else Clipped.LESS)


def sentences(models: Models, rows: Sequence[Clipping]) -> Iterable[Sentence]:
    """The arms that were clipped notably more or less than their controls, the largest difference first."""
    named = [row for row in rows if row.verdict in (Clipped.MORE, Clipped.LESS)]
    named.sort(key=lambda row: -abs(row.difference))
    for row in named[:NAMED]:
        yield Sentence(TOPIC, "clipping", _words(models, row))
    if more := named[NAMED:]:
        names = listed([f"{row.label} ({_points(row.difference)})" for row in more])
        yield Sentence(TOPIC, "clipping", f"Clipped steps differ from the control's too, in points, for {names}.")


def _words(models: Models, row: Clipping) -> str:
    sign = 1 if row.verdict is Clipped.MORE else -1
    ends = sorted(100 * sign * (end or 0.0) for end in (row.low, row.high))
    way = "more" if row.verdict is Clipped.MORE else "fewer"
    return (
        f"{row.label} has {100 * abs(row.difference):.0f} points [{ends[0]:.0f}, {ends[1]:.0f}] {way} of its steps "
        f"clipped than its control ({100 * row.treated:.0f} against {100 * row.control:.0f} %, {row.n} pairs, "
        f"p {row.p_corrected:.2g}): a way to {models.outcome} around the property."
    )


def _points(share: float) -> str:
    return f"{100 * share:+.0f}".replace("-", "\N{MINUS SIGN}")
