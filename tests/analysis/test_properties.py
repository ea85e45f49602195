"""Planted arms whose metrics of one property agree, disagree, or do not move."""

from collections.abc import Mapping

import numpy as np
import pytest

from analysis.planted import run_of, table
from collapselab.analysis.models import Models
from collapselab.analysis.properties import PropertyRow, properties, sentences
from collapselab.analysis.verdict import Verdict

METRICS = ("cdnv", "cdnv_k2", "cdnv_log", "within_share", "vci")
ARM = "within:+0.1"


def suite(
    arms: Mapping[str, Mapping[str, float]], *, seeds: int = 8, spread: float = 0.01, rng_seed: int = 0
) -> Models:
    """A control and these arms; an arm multiplies each metric by exp of what it adds."""
    rng = np.random.default_rng(rng_seed)
    runs, metrics = [], {metric: [] for metric in METRICS}
    for seed in range(seeds):
        for arm, adds in {"": {}, **arms}.items():
            runs.append(run_of(f"{seed}-{arm}", seed=seed, val_loss=3 + 0.01 * rng.random(), intervene=arm or None))
            for metric, values in metrics.items():
                start = -0.5 if metric == "cdnv_log" else 0.5
                value = start * np.exp(adds.get(metric, 0.0) * np.sign(start) + rng.normal(0, spread))
                values.append(float(value))
    return table(runs, metrics)


def judged(models: Models) -> dict[str, PropertyRow]:
    return {row.place: row for row in properties(models, [], [], permutations=999, seed=0) if row.property == "NC1"}


def test_metrics_that_agree_are_toward_or_away() -> None:
    down, up = (dict.fromkeys(METRICS, sign * 0.2) for sign in (-1, 1))
    rows = judged(suite({ARM: down, "within:-0.1": up}))
    assert rows[ARM].verdict is Verdict.TOWARD
    assert (rows[ARM].toward, rows[ARM].away, rows[ARM].not_shown) == (5, 0, 0)
    assert rows["within:-0.1"].verdict is Verdict.AWAY


def test_one_metric_that_moves_the_other_way_is_a_conflict_and_is_named() -> None:
    models = suite({ARM: {metric: 0.2 if metric == "cdnv_k2" else -0.2 for metric in METRICS}})
    row = judged(models)[ARM]
    assert (row.verdict, row.toward, row.away) == (Verdict.IN_CONFLICT, 4, 1)
    assert row.odd_metrics == "cdnv_k2"
    assert (row.toward_metrics.split(), row.away_metrics) == ([m for m in METRICS if m != "cdnv_k2"], "cdnv_k2")
    assert len(list(sentences(models, [row]))) == 1


def test_nothing_moves_and_too_few_pairs() -> None:
    assert judged(suite({ARM: {}}))[ARM].verdict is Verdict.NOT_SHOWN
    few = judged(suite({ARM: dict.fromkeys(METRICS, -0.2)}, seeds=5))[ARM]
    assert (few.verdict, few.n) == (Verdict.TOO_FEW, 5)
    assert list(sentences(suite({ARM: {}}), [few])) == []


def test_metrics_that_move_alike_over_the_arms_count_once() -> None:
    """`vci` moves as `cdnv` does in every arm; the others move by amounts of their own."""
    rng = np.random.default_rng(5)
    arms = {}
    for number in range(7):
        adds = dict(zip(METRICS, rng.normal(0, 0.3, len(METRICS)), strict=True))
        arms[f"within:+0.{number + 1}"] = adds | {"vci": adds["cdnv"]}
    rows = judged(suite(arms, spread=0.001))
    assert {row.duplicates for row in rows.values()} == {"vci=cdnv"}
    assert {row.metrics for row in rows.values()} == {4}


@pytest.mark.slow
@pytest.mark.parametrize(("moved", "limit"), [(0.0, 0.10), (-0.03, 0.05)], ids=["nothing moves", "six of eight move"])
def test_false_conflicts_are_rare(moved: float, limit: float) -> None:
    """Conflicts where nothing moves, or where most metrics move one way and the others do not move."""
    adds = dict.fromkeys(METRICS[:3], moved)
    conflicts = [judged(suite({ARM: adds}, rng_seed=seed))[ARM].verdict is Verdict.IN_CONFLICT for seed in range(60)]
    assert np.mean(conflicts) <= limit


def test_two_metrics_that_are_opposite_by_three_deviations_are_found() -> None:
    """The differences have a deviation of 0.014; two of five metrics move by three of them the other way."""
    adds = {metric: 0.042 if metric in ("cdnv_k2", "vci") else -0.042 for metric in METRICS}
    found = [judged(suite({ARM: adds}, rng_seed=seed))[ARM].verdict is Verdict.IN_CONFLICT for seed in range(40)]
    assert np.mean(found) >= 0.9
