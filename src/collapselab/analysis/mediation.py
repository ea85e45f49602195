"""Mediation: how much of a dose's effect on the outcome runs through the metric, if nothing else moves both.

    ΔM = a·dose + e,   ΔY = c·dose + b·ΔM + u       a·b is mediated, c is direct

over all pairs of the arms that are made for the metric. The assumption cannot be tested: anything that moves metric and
outcome of a run alike makes b what it is. So the correlation of the residuals of ΔM and ΔY that would make a·b zero is
given beside it, and a·b is a description, never called shown.

Imai, Keele & Yamamoto (2010), Statistical Science 25(1).
"""

from collections.abc import Sequence
from typing import NamedTuple, final

import numpy as np

from collapselab.analysis.arms import Comparison

FEWEST_ROWS = 6


@final
class Mediation(NamedTuple):
    """Outcome per unit of dose, through the metric and past it, and the correlation that would explain it away."""

    mediated: float | None
    direct: float | None
    explained_away: float | None


def mediation(compared: Sequence[Comparison], metric: str, outcome: str) -> Mediation:
    """From the pairs of the arms with a dose that must move this metric; None where they are too few."""
    dose, moved, gained = [], [], []
    for comparison in compared:
        if comparison.arm.dose is None or metric not in {target.metric for target in comparison.arm.targets}:
            continue
        known = comparison.differences[[metric, outcome]].dropna()
        dose += [comparison.arm.dose] * len(known)
        moved += list(known[metric])
        gained += list(known[outcome])
    d, m, y = np.array(dose), np.array(moved), np.array(gained)
    if len(d) < FEWEST_ROWS:
        return Mediation(None, None, None)
    a, total = (d @ m) / (d @ d), (d @ y) / (d @ d)
    left_m, left_y = m - a * d, y - total * d
    if left_m @ left_m == 0 or left_y @ left_y == 0:
        return Mediation(None, None, None)
    b = (left_m @ left_y) / (left_m @ left_m)
    correlation = (left_m @ left_y) / np.sqrt((left_m @ left_m) * (left_y @ left_y))
    return Mediation(float(a * b), float(total - a * b), float(correlation))
