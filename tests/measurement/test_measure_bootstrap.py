"""Intervals and reliability, from groups that were kept: known spreads, and no further forward pass."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from collapselab.core.catalogue import METRICS, Need
from collapselab.corpus.blocks import Corpus
from collapselab.measurement import bootstrap
from collapselab.measurement import measure_model as walk
from collapselab.measurement.bootstrap import Resamples, difference, reliability
from collapselab.measurement.collector import Collectors
from collapselab.measurement.measure import measure
from collapselab.records.measurement import Key, Result
from collapselab.records.tables import TABLES
from measurement.toy_collector import TABLE, MeanLength

CDNV, MEAN = (Key("train", "last", "all", metric) for metric in ("cdnv", "mean_length"))


def groups_of(values: list[float]) -> list[Any]:
    """Groups of one token each, with these lengths."""
    model = SimpleNamespace(moments_device=torch.device("cpu"))
    plan: Any = SimpleNamespace(splits={"train": None}, model=model, names={"run": "m", "checkpoint": "-"})

    def group(value: float) -> Collectors:
        collector = MeanLength(plan, "train", Collectors())
        collector.add("last", torch.tensor([value, 1.0], dtype=torch.float64))
        return Collectors([collector])

    return [lambda value=value: group(value) for value in values]


@pytest.fixture(autouse=True)
def toy_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TABLES, "lengths", TABLE)


def test_the_interval_of_a_mean_is_that_of_the_normal_distribution() -> None:
    generator = torch.Generator().manual_seed(1)
    values = torch.randn(32, generator=generator, dtype=torch.float64)
    resamples = Resamples(500, 32, seed=0)
    resamples.add(groups_of(values.tolist()))
    low, high = resamples.interval(MEAN, float(values.mean()))
    error = float(values.std(correction=0)) / 32**0.5  # of a mean of 32, by the central limit theorem
    assert low is not None
    assert high is not None
    # 500 resamples place a 2.5 % quantile to about 6 % of its distance (one standard error).
    assert high - float(values.mean()) == pytest.approx(1.96 * error, rel=0.15)
    assert float(values.mean()) - low == pytest.approx(1.96 * error, rel=0.15)


def test_a_shift_of_all_resamples_moves_the_interval_of_decisions_only() -> None:
    agreement = Key("train", "last", "all", "agreement")
    resamples = Resamples(3, 4, seed=0)
    resamples.values = [{CDNV: v, agreement: v} for v in (2.0, 3.0, 4.0)] + resamples.values[3:]
    low, high = resamples.interval(CDNV, 1.0)
    assert (low, high) == pytest.approx((0.05, 1.95))
    assert resamples.interval(agreement, 1.0) == pytest.approx((2.05, 3.95))
    assert resamples.interval(CDNV, None) == (None, None)


def test_there_is_no_interval_where_resamples_lack_the_value() -> None:
    resamples = Resamples(10, 4, seed=0)
    resamples.values = [{CDNV: 1.0}] * 9 + [{}] + resamples.values[10:]
    assert resamples.interval(CDNV, 1.0) == (None, None)


def test_every_resample_draws_as_many_groups_as_there_are_and_halves_part_them() -> None:
    resamples = Resamples(50, 7, seed=0)
    assert all(sum(weights) == 7 for weights in resamples.weights[:50])
    assert len({tuple(weights) for weights in resamples.weights[:50]}) > 40
    halves = resamples.weights[50:]
    for one, other in zip(halves[::2], halves[1::2], strict=True):
        assert [a + b for a, b in zip(one, other, strict=True)] == [1] * 7
        assert sum(one) == 3


def test_memory_bounds_how_many_resamples_are_merged_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, bounded = (Resamples(9, 5, seed=0) for _ in range(2))
    whole.add(groups_of([1, 2, 3, 4, 5]))
    monkeypatch.setattr(bootstrap, "HELD_BYTES", 3 * 8)
    bounded.add(groups_of([1, 2, 3, 4, 5]))
    assert bounded.values == whole.values


def test_reliability_is_one_where_halves_agree_and_low_where_they_are_noise() -> None:
    generator = torch.Generator().manual_seed(0)
    models = torch.arange(40, dtype=torch.float64)
    exact = [[(float(m), float(m))] * 3 for m in models]
    assert reliability(exact) == pytest.approx(1)
    noise = torch.randn(40, 8, 2, generator=generator, dtype=torch.float64)
    noisy = reliability([[(float(a), float(b)) for a, b in pairs] for pairs in noise])
    assert noisy is not None
    assert abs(noisy) < 0.4
    # Spearman and Brown: true variance 1, error variance 1 a half → r = 1/2 → 2/3 for the whole.
    truth = torch.randn(4000, generator=generator, dtype=torch.float64)
    halves = truth[:, None, None] + torch.randn(4000, 4, 2, generator=generator, dtype=torch.float64)
    found = reliability([[(float(a), float(b)) for a, b in pairs] for pairs in halves])
    assert found == pytest.approx(2 / 3, abs=0.03)
    assert reliability(exact[:2]) is None


def test_the_difference_of_halves_is_a_share_of_their_size() -> None:
    assert difference([(1.0, 1.0), (0.9, 1.1), (0.5, 1.5)]) == pytest.approx(0.2)
    assert difference([(0.0, 0.0)]) is None


@pytest.mark.slow
def test_a_measurement_with_intervals_runs_the_model_no_more_often(
    model: nn.Module, corpus: Corpus, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real, blocks = walk.features, 0

    def features(model: nn.Module, ids: Tensor) -> Tensor:
        nonlocal blocks
        blocks += len(ids)
        return real(model, ids)

    monkeypatch.setattr(walk, "features", features)
    options: dict[str, Any] = {"tokens": 32 * 31, "batch": 1, "quiet": True}
    plain = measure(model, corpus, **options)
    before, blocks = blocks, 0
    result = measure(model, corpus, bootstrap=20, bins=2, state=tmp_path, **options)
    assert blocks == before
    assert isinstance(result, Result)
    for row in plain.rows:
        other = next(one for one in result.rows if one.key == row.key)
        if row.metric == "alpha_req":  # which 12 dimensions are too few for
            assert row.value is None
            continue
        assert other.value == pytest.approx(row.value, rel=1e-9), row.metric
        if Need.OUTPUT_LAYER in METRICS[row.metric].needs:  # which no sample of text changes
            continue
        assert other.low is not None, row.metric
        assert other.high is not None, row.metric
        if row.metric not in ("agreement", "ncc_accuracy", "model_accuracy"):
            assert other.low <= other.value <= other.high, row.metric  # type: ignore[operator]
    assert result.facts["half_difference"]["train/last/all/cdnv"] > 0
    assert set(result.facts["halves"]) == {"/".join(row.key[2:]) for row in result.rows}
    assert [path.name for path in tmp_path.iterdir()] == ["finished"]
