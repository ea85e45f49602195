"""Simulations of phases.csv: series of one run along checkpoints that are even in the logarithm of tokens."""

import math
from dataclasses import replace
from functools import cache, partial

import numpy as np

from collapselab.analysis.models import Models
from collapselab.analysis.phases import Order, Phase, phases
from simulations.entry import Interval, Verdict, answers
from simulations.tables import Floats, run_of, table_of

NOISE = 0.3


@cache
def _run(points: int) -> Models:
    tokens = np.geomspace(1e4, 1e7, points).round().astype(int)
    return table_of(
        [run_of("one", epoch=float(i + 1), epochs=float(points), tokens=int(count)) for i, count in enumerate(tokens)],
        ("agreement",),
    )


def _rows(rng: np.random.Generator, points: int, at: tuple[float, float] | None) -> list[Phase]:
    """Metric and loss fall by 1 a factor of e until a break of each, at a share of the way; None: no break."""
    models = _run(points)
    t = np.log(models.frame["tokens"].to_numpy(dtype=float))

    def series(share: float) -> Floats:
        place = t[0] + share * np.ptp(t)
        return np.asarray(-np.minimum(t, place) + NOISE * rng.standard_normal(points), dtype=float)

    ends = (1.0, 1.0) if at is None else at
    columns = {"agreement": 20 + series(ends[0]), "val_loss": 20 + series(ends[1])}
    return phases(replace(models, frame=models.frame.assign(**columns)), seed=int(rng.integers(2**31)))


def _breaks(rng: np.random.Generator, planted: bool, *, points: int) -> bool:
    rows = _rows(rng, points, (0.5, 0.5) if planted else None)
    return any(row.breaks > 0 for row in rows if row.metric == "agreement")


def _ordered(rng: np.random.Generator, planted: bool) -> bool:
    rows = _rows(rng, 14, (0.35, 0.65) if planted else (0.5, 0.5))
    found = [row.order for row in rows if row.metric == "agreement" and row.main]
    return bool(found) and (found[0] is Order.BEFORE or (not planted and found[0] is Order.AFTER))


def _covers(rng: np.random.Generator) -> bool:
    while True:
        main = [row for row in _rows(rng, 14, (0.5, 0.5)) if row.metric == "agreement" and row.main]
        if main:
            assert main[0].low is not None
            assert main[0].high is not None
            return main[0].low <= math.sqrt(1e4 * 1e7) <= main[0].high


STRAIGHT, BENT = f"a straight line and noise of {NOISE}", "its slope changes by 1 half-way"
VERDICTS = {
    **{
        f"break, {points} checkpoints": Verdict(
            "a metric has a break in training" if points == 8 else "…", f"{points} checkpoints, {STRAIGHT}", BENT,
            partial(_breaks, points=points), answers("phases", "a break"), tables=600,
        )
        for points in (8, 14)
    },
    "order of breaks": Verdict(
        "a break is before or after that of the loss", "14 checkpoints, both break half-way",
        "the metric breaks 0.3 of the way earlier", _ordered, answers("phases", Order.BEFORE, Order.AFTER), tables=600,
    ),
}  # fmt: skip

INTERVALS = {
    "time of a break": Interval("time of a break", f"14 checkpoints, {BENT}, noise of {NOISE}", _covers, tables=600),
}
