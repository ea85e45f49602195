"""Simulations of properties.csv: one arm, eight seeds, and eight metrics of one property that correlate by 0.5."""

from dataclasses import replace
from functools import cache

import numpy as np

from collapselab.analysis.models import Models
from collapselab.analysis.properties import properties
from collapselab.analysis.verdict import Verdict
from simulations.entry import Claim, answers
from simulations.tables import Floats, run_of, table_of

SEEDS, LUCK = 8, 0.05
METRICS = ("cdnv", "cdnv_k2", "cdnv_log", "scatter_ratio", "scatter_pinv", "within_share", "vci", "directional_cdnv")
LOGS = ("cdnv", "cdnv_k2", "scatter_ratio", "scatter_pinv", "directional_cdnv")


@cache
def _template() -> Models:
    runs = [
        run_of(f"{seed}-{arm}", seed=seed, intervene=arm or None)
        for seed in range(SEEDS)
        for arm in ("", "within:+0.1")
    ]
    return table_of(runs, METRICS)


def _judged(rng: np.random.Generator, moves: Floats) -> Verdict:
    """Moves are in standard deviations of the paired differences."""
    shared, own = rng.standard_normal((2 * SEEDS, 1)), rng.standard_normal((2 * SEEDS, len(METRICS)))
    values = LUCK * (shared + own) / np.sqrt(2)
    values[1::2] += np.sqrt(2) * LUCK * moves
    columns = {metric: np.exp(values[:, i]) if metric in LOGS else values[:, i] for i, metric in enumerate(METRICS)}
    models = _template()
    rows = properties(replace(models, frame=models.frame.assign(**columns)), [], [], permutations=99, seed=0)
    (row,) = [row for row in rows if row.property == "NC1"]
    return row.verdict


def _any_claim(rng: np.random.Generator, planted: bool) -> bool:
    return _judged(rng, np.full(8, -1.5 * planted)) is not Verdict.NOT_SHOWN


def _away(rng: np.random.Generator, planted: bool) -> bool:
    return _judged(rng, np.full(8, 1.5 if planted else -1.5)) is Verdict.AWAY


def _conflict(rng: np.random.Generator, planted: bool) -> bool:
    """Six metrics move by three standard deviations; the other two do not move, or move as far the other way."""
    return _judged(rng, np.array([-3.0] * 6 + [3.0 * planted] * 2)) is Verdict.IN_CONFLICT


VERDICTS = {
    "property moved": Claim(
        "the metrics of a property move", "no metric moves", "all move by 1.5 standard deviations", _any_claim,
        answers("properties", Verdict.TOWARD), tables=600,
    ),
    "property moved away": Claim(
        "a property moves away from collapse", "all metrics move toward it", "all move away from it", _away,
        answers("properties", Verdict.AWAY), tables=600,
    ),
    "property in conflict": Claim(
        "metrics of one property disagree", "six of eight metrics move, two do not",
        "six move by 3 sd, two the other way", _conflict,
        answers("properties", Verdict.IN_CONFLICT), tables=600,
    ),
}  # fmt: skip
