"""Planted arms whose effect on the loss goes through one metric, through two, around both, or is not there."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from analysis.planted_arms import Planted, arms_table
from collapselab.analysis.arms import Registered
from collapselab.analysis.attribution import (
    Attributed,
    Points,
    attribution,
    conditional_f,
    scatter,
    sentences,
    slope_p,
    slopes,
)
from collapselab.analysis.effects import effects
from collapselab.analysis.models import Models
from collapselab.analysis.verdict import Cause, Verdict
from collapselab.records.suite import Primary

ARMS = {
    "within:+0.1": (-0.4, 0.05),
    "within:-0.1": (0.35, -0.02),
    "uniform_means:+0.3": (0.1, -0.08),
    "uniform_means:-0.3": (-0.05, 0.1),
    "dual:+0.3": (-0.2, 0.02),
    "simreg:0.1": (-0.15, -0.03),
    "isotropy:0.1": (0.2, -0.05),
    "disperse:0.1": (0.12, 0.04),
}
"""Effects on cdnv_log and on logdist_std."""
REGISTERED = Registered(Primary(metrics=("cdnv_log", "logdist_std"), smallest_effect=0.01), beforehand=True)
Loss = Callable[[str, float, float], float]


def suite(loss: Loss, *, seeds: int = 8, arms: dict[str, tuple[float, float]] = ARMS, draw: int = 3) -> Models:
    planted = [
        Planted(arm, {"cdnv_log": x, "logdist_std": z, "val_loss": loss(arm, x, z)}) for arm, (x, z) in arms.items()
    ]
    return arms_table(planted, seeds=seeds, rng=np.random.default_rng(draw))


def judged(models: Models) -> dict[tuple[str, str], Attributed]:
    found = effects(models, REGISTERED, permutations=99, seed=0)
    rows = attribution(models, found, [], REGISTERED, permutations=999, seed=0)
    return {(row.metrics, row.metric): row for row in rows}


def verdicts(models: Models) -> list[Verdict]:
    return [row.verdict for row in judged(models).values()]


BOTH = "cdnv_log logdist_std"


def test_an_effect_through_one_metric_is_attributed_to_it_alone() -> None:
    models = suite(lambda arm, x, z: 0.6 * x)
    rows = judged(models)
    alone, other = rows["cdnv_log", "cdnv_log"], rows["logdist_std", "logdist_std"]
    assert (alone.verdict, other.verdict) == (Verdict.ATTRIBUTED, Verdict.NOT_ALONE)
    assert alone.low is not None
    assert alone.high is not None
    assert alone.low < 0.6 < alone.high
    assert rows[BOTH, "cdnv_log"].verdict is Verdict.ATTRIBUTED
    assert rows[BOTH, "logdist_std"].verdict is Verdict.UNDECIDED
    assert alone.slope == pytest.approx(0.6, abs=0.02)
    assert len(list(sentences(models, list(rows.values())))) == 1


def test_an_effect_through_two_metrics_is_attributed_to_both() -> None:
    rows = judged(suite(lambda arm, x, z: 0.5 * x + 2.0 * z))
    assert rows["cdnv_log", "cdnv_log"].verdict is Verdict.NOT_ALONE
    assert rows["logdist_std", "logdist_std"].verdict is Verdict.NOT_ALONE
    assert [rows[BOTH, metric].verdict for metric in BOTH.split()] == [Verdict.ATTRIBUTED] * 2
    assert rows[BOTH, "logdist_std"].slope == pytest.approx(2.0, abs=0.3)


def test_effects_around_both_metrics_are_attributed_to_neither() -> None:
    own = dict(zip(ARMS, np.random.default_rng(1).normal(0, 0.1, len(ARMS)), strict=True))
    models = suite(lambda arm, x, z: own[arm])
    assert set(verdicts(models)) == {Verdict.NOT_ALONE}


def test_without_an_effect_there_is_nothing_to_attribute() -> None:
    models = suite(lambda arm, x, z: 0.0)
    assert set(verdicts(models)) == {Verdict.TOO_FEW}
    assert {row.why_code for row in judged(models).values()} == {Cause.NO_VARIATION}


def test_one_intervention_that_acts_by_itself_is_not_a_property() -> None:
    """Three doses of one intervention move the metric and the loss; two others hardly move either."""
    arms = {f"within:{dose:+g}": (-4 * dose, 0.0) for dose in (0.05, 0.1, 0.15)}
    arms |= {"simreg:0.1": (-0.06, 0.0), "disperse:0.1": (0.05, 0.0)}
    models = suite(lambda arm, x, z: -0.3 * x if arm.startswith("within") else 0.0, arms=arms)
    row = judged(models)["cdnv_log", "cdnv_log"]
    assert (row.p or 1) < 0.001, "over all arms the slope is beyond doubt"
    assert row.leave_one == "within"
    assert (row.leave_one_p or 0) > 0.05
    assert row.verdict is not Verdict.ATTRIBUTED


@pytest.mark.parametrize(("seeds", "count"), [(5, 8), (8, 2)], ids=["seeds", "interventions"])
def test_too_few_seeds_or_interventions(seeds: int, count: int) -> None:
    arms = dict(list(ARMS.items())[:count])
    rows = judged(suite(lambda arm, x, z: 0.6 * x, seeds=seeds, arms=arms))
    assert {row.verdict for row in rows.values()} == {Verdict.TOO_FEW}
    assert all(row.why for row in rows.values())


def test_metrics_that_move_together_cannot_be_told_apart() -> None:
    arms = {arm: (x, -0.3 * x) for arm, (x, _) in ARMS.items()}
    models = suite(lambda arm, x, z: 0.6 * x, arms=arms)
    rows = judged(models)
    assert {rows[BOTH, metric].verdict for metric in BOTH.split()} == {Verdict.INSEPARABLE}
    assert rows[BOTH, "cdnv_log"].r == pytest.approx(-1.0, abs=0.01)
    assert (rows[BOTH, "cdnv_log"].conditional_f or 99) < 10


def drawn(
    rng: np.random.Generator, x: NDArray[np.float64], y: NDArray[np.float64], *, seeds: int = 8, luck: float = 0.01
) -> Points:
    """Arms with mean effects x (metrics, arms) and y (arms); all share the luck of their control."""
    shared = rng.normal(0, luck, (1, seeds))
    noise = rng.normal(0, luck, (len(y), seeds)) + shared
    moved = x[:, :, None] + rng.normal(0, 0.02, (*x.shape, seeds)) + 0.5 * rng.normal(0, 0.02, (len(x), 1, seeds))
    return Points(moved, y[:, None] + noise, [f"{i // 2}" for i in range(len(y))])


def test_slopes_and_conditional_f_are_those_of_their_definition() -> None:
    """Loops over arms, with the weights of each arm's distance from the plane."""
    points = drawn(np.random.default_rng(0), np.random.default_rng(1).normal(0, 0.3, (2, 6)), np.arange(6) / 10)
    b = np.zeros(2)
    for _ in range(2):
        gram, right = np.zeros((2, 2)), np.zeros(2)
        for arm in range(6):
            left = [points.y[arm, s] - b @ points.x[:, arm, s] for s in range(8)]
            weight = 8 / np.var(left, ddof=1)
            mean = points.x[:, arm].mean(1)
            gram += weight * np.outer(mean, mean)
            right += weight * mean * points.y[arm].mean()
        b = np.linalg.solve(gram, right)
    assert slopes(points) == pytest.approx(b)
    alone = points._replace(x=points.x[:1])
    f = np.mean([8 * points.x[0, arm].mean() ** 2 / np.var(points.x[0, arm], ddof=1) for arm in range(6)])
    assert conditional_f(alone) == pytest.approx([f])


def test_q_holds_its_level_where_arms_share_their_controls_and_finds_own_effects() -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(0, 0.3, (2, 10))
    plane = 0.4 * x[0] - 0.2 * x[1]
    rates = {}
    for name, own in (("plane", 0.0), ("own effects", 0.05)):
        rejected = []
        for _ in range(200):
            points = drawn(rng, x, plane + rng.normal(0, own, 10))
            rejected.append(scatter(points, slopes(points), permutations=99, seed=0)[1] < 0.05)
        rates[name] = np.mean(rejected)
    assert rates["plane"] <= 0.09
    assert rates["own effects"] >= 0.9


def test_the_p_of_a_slope_holds_its_level() -> None:
    rng = np.random.default_rng(4)
    x = rng.normal(0, 0.3, (1, 8))
    p = [slope_p(drawn(rng, x, np.zeros(8)))[1][0] for _ in range(300)]
    assert np.mean(np.array(p) < 0.05) <= 0.09
