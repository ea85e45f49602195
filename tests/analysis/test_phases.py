"""Breaks that are planted are found where they are, in the order in which they come; where none is, few are found."""

import itertools
import re

import numpy as np
import pandas as pd
import pytest

from collapselab.analysis.models import Models, combine
from collapselab.analysis.phases import Order, Phase, phases, sentences
from collapselab.analysis.segments import FEWEST, fit_segments, resampled_main_breaks
from collapselab.records.tables import RESULTS, RUNS

T = np.log(np.geomspace(1e3, 1e6, 14))


def bent(breaks: dict[float, float], *, start: float = -1.0, noise: float = 0.0, seed: int = 0) -> np.ndarray:
    y = start * (T - T[0])
    for place, change in breaks.items():
        y = y + change * np.maximum(0, T - place)
    return y + noise * np.random.default_rng(seed).standard_normal(len(T))


def by_loops(y: np.ndarray, breaks: int) -> float:
    """The least residual of all places, by a regression for each."""
    halves = (T[1:-2] + T[2:-1]) / 2
    best = np.inf
    for places in itertools.combinations(sorted([*T[1:-1], *halves]), breaks):
        edges = [-np.inf, *places, np.inf]
        if any(((a < T) & (b > T)).sum() < 2 for a, b in itertools.pairwise(edges)):
            continue
        design = np.stack([np.ones_like(T), T, *(np.maximum(0, T - place) for place in places)], 1)
        best = min(best, float(((y - design @ np.linalg.lstsq(design, y, rcond=None)[0]) ** 2).sum()))
    return best


@pytest.mark.parametrize("breaks", [1, 2])
def test_the_fit_is_the_best_of_all_places(breaks: int) -> None:
    from collapselab.analysis.segments import grid_of

    y = bent({T[5]: 1.5}, noise=0.3, seed=breaks)
    residual, _ = grid_of(tuple(T)).best((y - y.mean())[None], breaks)
    assert residual[0] == pytest.approx(by_loops(y, breaks), rel=1e-9)


@pytest.mark.parametrize("place", [3, 6, 10])
def test_a_planted_break_is_found_where_it_is(place: int) -> None:
    fit = fit_segments(T, bent({T[place]: 0.8}, noise=0.05))
    assert len(fit.places) == 1
    assert fit.places[0] == pytest.approx(T[place], abs=0.5)
    assert fit.slopes == pytest.approx((-1.0, -0.2), abs=0.1)
    exact = fit_segments(T, bent({T[place]: 0.8}))
    assert exact.places == (T[place],)


def test_two_planted_breaks_are_found() -> None:
    fit = fit_segments(T, bent({T[4]: -2.0, T[9]: 2.5}, noise=0.1))
    assert len(fit.places) == 2
    assert np.abs(np.array(fit.places) - T[[4, 9]]).max() < 0.6
    assert fit.main == 1


def test_the_interval_covers_the_planted_break_most_of_the_time() -> None:
    covered, found = 0, 0
    for seed in range(60):
        y = bent({T[7]: 1.0}, noise=0.15, seed=seed)
        fit = fit_segments(T, y)
        if len(fit.places) == 1:
            found += 1
            drawn = resampled_main_breaks(T, y, fit, resamples=100, rng=np.random.default_rng(seed))
            low, high = np.quantile(drawn, [0.025, 0.975])
            covered += low <= T[7] <= high
    assert found >= 50
    assert covered / found > 0.85


@pytest.mark.parametrize(("points", "bound"), [(8, 0.05), (14, 0.07), (20, 0.07)])
def test_a_straight_line_with_noise_rarely_has_a_break(points: int, bound: float) -> None:
    t = np.log(np.geomspace(1e3, 1e6, points))
    rng = np.random.default_rng(0)
    rate = np.mean([len(fit_segments(t, 2 * t + rng.standard_normal(points)).places) > 0 for _ in range(400)])
    assert rate < bound


def test_by_the_plain_criterion_breaks_are_found_too_often(monkeypatch: pytest.MonkeyPatch) -> None:
    from collapselab.analysis import segments

    def plain(residual: float, points: int, breaks: int) -> float:
        return points * float(np.log(residual / points)) + (2 + 2 * breaks) * float(np.log(points))

    monkeypatch.setattr(segments, "_bic", plain)
    rng = np.random.default_rng(0)
    rate = np.mean([len(fit_segments(T, 2 * T + rng.standard_normal(14)).places) > 0 for _ in range(400)])
    assert rate > 0.12


def test_few_points_have_no_break() -> None:
    t = T[: FEWEST - 1]
    assert fit_segments(t, np.where(t > t[3], 100.0, 0.0)).places == ()


def table(places: dict[str, float | None], *, noise: float = 0.02, times: np.ndarray = T) -> list[Phase]:
    """The phases of three runs whose series break at these places; None for a straight line."""
    return phases(planted(places, noise=noise, times=times))


def planted(
    places: dict[str, float | None], *, noise: float = 0.02, times: np.ndarray = T, with_tokens: bool = True
) -> Models:
    rows, results = [], []
    for run, (step, t) in itertools.product(range(3), enumerate(times)):
        name, checkpoint = f"r{run}", str(step + 1)
        rng = np.random.default_rng([run, step])
        values = {
            metric: 5 - 0.1 * (t - T[0]) + (0 if at is None else 0.5 * max(0.0, t - at)) + noise * rng.standard_normal()
            for metric, at in places.items()
        }
        rows.append(RUNS.row(
            run=name, checkpoint=checkpoint, family="gpt-neo", width=32, depth=1, epochs=1.0, epoch=(step + 1) / 14,
            weight_decay=0.0, lr=1e-3, seed=run, parameters=1000, tokens=round(float(np.exp(t))) if with_tokens else None, train_loss=None,
            val_loss=values.pop("val_loss"), val_accuracy=None, perplexity=None, seconds=1.0, why=None,
        ))  # fmt: skip
        results += [
            RESULTS.row(
                run=name, checkpoint=checkpoint, split="train", layer="last", bin="all", metric=metric, value=value,
                null=None, low=None, high=None, classes=10, tokens=100, min_count=1, left_out=0, version=1, why=None,
            )
            for metric, value in values.items()
        ]  # fmt: skip
    return combine(rows, results, outcome="val_loss")


def test_the_order_of_events_is_that_of_the_planted_breaks() -> None:
    models = planted({"val_loss": T[6], "agreement": T[3], "duality_cos_mean": T[10], "lognorm_cv": None})
    rows = phases(models)
    orders = {(row.run, row.metric): row.order for row in rows if row.main or not row.breaks}
    for run in ("r0", "r1", "r2"):
        assert orders[run, "agreement"] is Order.BEFORE
        assert orders[run, "duality_cos_mean"] is Order.AFTER
        assert orders[run, "lognorm_cv"] is Order.NO_BREAK
    times = [row.time for row in rows if row.metric == "agreement" and row.main]
    assert np.log(times) == pytest.approx([T[3]] * 3, abs=0.5)
    frame = pd.DataFrame([row.text for row in sentences(models, rows)])
    assert frame[0].str.contains("agreement: a break in 3 of 3 runs").any()
    assert frame[0].str.contains("lognorm_cv: a break in 0 of 3 runs").any()


def test_the_time_of_a_break_has_its_unit() -> None:
    places: dict[str, float | None] = {"val_loss": T[6], "agreement": T[3]}
    in_tokens, in_epochs = planted(places), planted(places, with_tokens=False)
    (loss, *_) = sentences(in_tokens, phases(in_tokens))
    assert re.search(r"val_loss: a break in 3 of 3 runs, at a median of \d\d,\d00 tokens\.", loss.text)
    (loss, *_) = sentences(in_epochs, phases(in_epochs))
    assert re.search(r"at a median of 0\.\d+ epochs", loss.text)


def test_breaks_at_the_same_time_have_no_order() -> None:
    rows = table({"val_loss": T[6], "agreement": T[6]}, noise=0.1)
    assert [row.order for row in rows if row.metric == "agreement" and row.main].count(Order.UNCLEAR) >= 2


def test_runs_with_few_checkpoints_have_no_rows() -> None:
    assert len(table({"val_loss": None, "agreement": None})) >= 6
    assert table({"val_loss": None, "agreement": None}, times=T[: FEWEST - 1]) == []
