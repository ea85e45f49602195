"""Simulations of instruments.csv: five arms of three interventions, whose effect a property carries, or does not."""

import numpy as np

from collapselab.analysis.instruments import NEAR, Carried, Instrument, instruments
from collapselab.analysis.models import Models
from simulations.arms import ARMS, MARGIN, MOVES, REGISTERED, suite
from simulations.entry import Interval, Verdict, answers
from simulations.tables import Floats


def _judged(models: Models) -> Instrument:
    return instruments(models, REGISTERED, permutations=99, seed=0)[0]


def _drawn(rng: np.random.Generator, losses: Floats) -> Instrument:
    return _judged(suite(rng, ARMS, MOVES, losses))


def _around(rng: np.random.Generator, planted: bool) -> bool:
    """Every arm has an effect of its own, of the same size as if the property carried it."""
    losses = 0.5 * MOVES if planted else rng.permutation(0.5 * MOVES) * rng.choice([-1, 1], len(MOVES))
    return _drawn(rng, losses).verdict is Carried.CARRIED


def _but_one(rng: np.random.Generator, planted: bool) -> bool:
    """All are on the line but one, which is off by a quarter of the largest effect of the others."""
    losses = 0.5 * MOVES
    if not planted:
        off = rng.integers(len(losses))
        losses[off] += NEAR * np.abs(np.delete(losses, off)).max() * rng.choice([-1, 1])
    return _drawn(rng, losses).verdict is Carried.CARRIED


def _nothing(rng: np.random.Generator, planted: bool) -> bool:
    return _drawn(rng, 0.5 * MOVES * planted).verdict is Carried.CARRIED


def _off_the_line(rng: np.random.Generator, planted: bool) -> bool:
    own = planted * rng.normal(0, 0.05, len(MOVES))
    return _drawn(rng, 0.3 * MOVES + own).verdict is Carried.INTERVENTIONS


def _not_needed(rng: np.random.Generator, planted: bool) -> bool:
    losses = np.zeros(len(MOVES))
    losses[0] = 0.0 if planted else MARGIN
    return _drawn(rng, losses).verdict is Carried.NOT_NEEDED


def _slope_covers(rng: np.random.Generator) -> bool:
    row = _drawn(rng, 0.3 * MOVES)
    assert row.low is not None
    assert row.high is not None
    return row.low <= 0.3 <= row.high


CARRIED = answers("instruments", Carried.CARRIED)
LINE = "one line through 0"
VERDICTS = {
    "carried, around": Verdict(
        "a property carries the effects", "every arm has an effect of its own", LINE, _around, CARRIED, tables=300
    ),
    "carried, but one": Verdict(
        "…", "one of five arms is off the line, by what is no longer near", LINE, _but_one, CARRIED, tables=600
    ),
    "carried, nothing": Verdict("…", "no arm has an effect", LINE, _nothing, CARRIED, tables=300),
    "off the line": Verdict(
        "it is the interventions, not the property", LINE, "each arm has an effect of its own beside it",
        _off_the_line, answers("instruments", Carried.INTERVENTIONS), tables=400,
    ),
    "not needed": Verdict(
        "a property is not needed", "one arm has the smallest effect of interest", "no arm has an effect", _not_needed,
        answers("instruments", Carried.NOT_NEEDED), tables=300,
    ),
}  # fmt: skip

INTERVALS = {
    "slope of carriers": Interval("slope of the carried effect", f"8 seeds, five arms, {LINE}", _slope_covers, 400),
}
