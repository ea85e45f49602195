"""Simulations of attribution.csv: ten arms of five interventions and eight seeds; arms share their controls' luck."""

import numpy as np

from collapselab.analysis.attribution import Attributed, Points, judge_set
from collapselab.analysis.verdict import Verdict
from simulations.entry import Claim, Interval, answers
from simulations.tables import Floats

SEEDS, ARMS = 8, 10
LUCK_X, LUCK_Y = 0.02, 0.01
ALIKE = -0.945
"""Correlation of the effects on two metrics over the arms, as in the suite `cause`."""


def _drawn(rng: np.random.Generator, x: Floats, y: Floats, names: list[str] | None = None) -> Points:
    """Arms with these mean effects on the metrics (metrics, arms) and on the outcome."""
    arms = len(y)
    own_x, own_y = rng.standard_normal((len(x), arms, SEEDS)), rng.standard_normal((arms, SEEDS))
    shared_x, shared_y = rng.standard_normal((len(x), 1, SEEDS)), rng.standard_normal((1, SEEDS))
    return Points(
        x[:, :, None] + LUCK_X * (own_x - shared_x),
        y[:, None] + LUCK_Y * (own_y - shared_y),
        names or [f"{arm // 2}" for arm in range(arms)],
    )


def _judged(points: Points) -> list[Attributed]:
    names = [f"{i}" for i in range(len(points.x))]
    return judge_set([Attributed(" ".join(names), name) for name in names], points, permutations=99, seed=0)


def _two_metrics(rng: np.random.Generator) -> Floats:
    spread = np.array([[1, ALIKE], [ALIKE, 1]])
    return 0.3 * np.linalg.cholesky(spread) @ rng.standard_normal((2, ARMS))


def _to_the_other(rng: np.random.Generator, planted: bool) -> bool:
    """The effect goes through the first of two metrics that move alike; asked is the second, or the first."""
    x = _two_metrics(rng)
    rows = _judged(_drawn(rng, x, 0.5 * x[0]))
    return rows[0 if planted else 1].verdict is Verdict.ATTRIBUTED


def _own_effects(rng: np.random.Generator, planted: bool) -> bool:
    """Every arm has an effect of its own, as large as the one through the metric."""
    x = 0.3 * rng.standard_normal((1, ARMS))
    y = 0.3 * x[0] if planted else 0.1 * rng.standard_normal(ARMS)
    return _judged(_drawn(rng, x, y))[0].verdict is Verdict.ATTRIBUTED


def _one_intervention(rng: np.random.Generator, planted: bool) -> bool:
    """Three doses of one intervention; two others move the metric by a tenth, and change the outcome as planted."""
    x = np.array([[0.1, 0.2, 0.3, 0.03, -0.03, 0.02] if not planted else [0.1, 0.2, 0.3, 0.25, -0.3, 0.2]])
    y = 0.3 * x[0] if planted else np.array([0.03, 0.06, 0.09, 0.0, 0.0, 0.0])
    names = ["a", "a", "a", "b", "c", "d"]
    return _judged(_drawn(rng, x, y, names))[0].verdict is Verdict.ATTRIBUTED


def _nothing(rng: np.random.Generator, planted: bool) -> bool:
    x = 0.3 * rng.standard_normal((1, ARMS))
    return _judged(_drawn(rng, x, 0.3 * planted * x[0]))[0].verdict is Verdict.ATTRIBUTED


def _off_the_plane(rng: np.random.Generator, planted: bool) -> bool:
    x = _two_metrics(rng)
    y = 0.4 * x[0] - 0.3 * x[1] + 0.05 * planted * rng.standard_normal(ARMS)
    return _judged(_drawn(rng, x, y))[0].verdict is Verdict.NOT_ALONE


def _slope_covers(rng: np.random.Generator) -> bool:
    """Interventions have effects of their own, with a standard deviation of 0.03."""
    x = 0.3 * rng.standard_normal((1, ARMS))
    y = 0.3 * x[0] + 0.03 * np.repeat(rng.standard_normal(ARMS // 2), 2)
    (row,) = _judged(_drawn(rng, x, y))
    return row.low is not None and row.high is not None and row.low <= 0.3 <= row.high


ATTRIBUTED = answers("attribution", Verdict.ATTRIBUTED)
VERDICTS = {
    "attributed, other metric": Claim(
        "effects follow a metric", "they follow another one, r −0.945 between both", "they follow this one",
        _to_the_other, ATTRIBUTED, tables=600,
    ),
    "attributed, own effects": Claim(
        "…", "every arm has an effect of its own", "one line through 0", _own_effects, ATTRIBUTED, tables=600
    ),
    "attributed, one intervention": Claim(
        "…", "one intervention in three doses acts by itself", "one line through 0, equal strengths",
        _one_intervention, ATTRIBUTED, tables=600,
    ),
    "attributed, nothing": Claim("…", "no arm has an effect", "one line through 0", _nothing, ATTRIBUTED, tables=600),
    "not alone": Claim(
        "not these properties alone", "all arms on one plane", "each arm also has its own effect",
        _off_the_plane, answers("attribution", Verdict.NOT_ALONE), tables=600,
    ),
}  # fmt: skip
INTERVALS = {
    "attributed slope": Interval(
        "slope of an attributed effect", "5 interventions with effects of their own", _slope_covers, 600
    ),
}
