"""Numbers of any size: what float64 can hold is right, and what it cannot hold is refused with the reason."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import oracles
from collapselab import METRICS, ClassMoments, Decider, Measurement, collapse_metrics
from collapselab.core.pairs import pair_statistics
from core.test_metrics import OF_CURVATURE, World, drawn, measured

SCALES = [
    f"1e{power}" for power in (-300, -250, -200, -160, -150, -120, -77, -20, 20, 77, 120, 153, 160, 200, 250, 300)
]
OF_SCATTER = {
    "cdnv",
    "cdnv_k2",
    "cdnv_log",
    "scatter_ratio",
    "scatter_pinv",
    "etf_error",
    "effective_rank",
    "effective_rank_share",
    "within_share",
    "participation",
    "anisotropy",
    "curvature",
    "curvature_relative",
    "ncc_loss",
    "directional_cdnv",
    "directional_gain",
    "vci",
    "spectral_entropy",
    "rankme",
    "rankme_share",
    "rankme_covariance",
    "alpha_req",
}
"""Metrics that need Σ|h - μ|², which is held in the unit of the features; `etf_error` and `effective_rank` for the features' rounding."""

RESCALED = {
    "features": lambda s: (s, 1.0, s),
    "output layer": lambda s: (1.0, s, s),
    "both": lambda s: (s, s, 0.0),  # s² would be no number for a bias to have
    "against each other": lambda s: (s, 1 / s, 1.0),
}


def rescaled(world: World, features: float, weight: float, bias: float) -> World:
    return replace(
        world,
        features=world.features * features,
        validation=world.validation * features,
        weight=world.weight * weight,
        bias=world.bias * bias,
    )


def in_unit(id: str, value: float, world: World, scale: float) -> float:
    """What the metric is when features of this world are multiplied by the scale."""
    if id == "cdnv_k2":
        return value / scale / scale
    if id == "lognorm_mean":
        return value + math.log(scale)
    if id == "lognorm_cv":
        kept = [world.features[world.labels == c].mean(0) for c in world.labels.unique()]
        means = torch.stack(kept)
        norms = oracles.norms((means - means.mean(0)).numpy())
        return oracles.variation(np.log(norms) + math.log(scale))
    return value


def assert_value_or_reason(found: Measurement, value: float) -> None:
    if found.value is None:
        assert found.why is not None
        assert "range of float64" in found.why, found
        return
    assert found.why is None
    assert found.value == pytest.approx(value, rel=1e-9, abs=0), found


@pytest.mark.parametrize("which", RESCALED)
@pytest.mark.parametrize("scale", SCALES)
def test_every_metric_keeps_its_value_at_any_scale_or_says_why_not(scale: str, which: str) -> None:
    factors = RESCALED[which](float(scale))
    world = drawn(6, seed=4)
    plain = measured(world if factors[2] else replace(world, bias=torch.zeros_like(world.bias)))
    found = measured(rescaled(world, *factors))
    assert set(found) == set(METRICS)
    for id, metric in found.items():
        if id == "alpha_req":  # six dimensions are too few
            continue
        if id in OF_CURVATURE or (id == "ncc_loss" and which != "against each other"):  # other logits, or no numbers
            assert metric.value is None or math.isfinite(metric.value)
            continue
        before = plain[id].value
        assert before is not None
        expected = in_unit(id, before, world, factors[0])
        assert_value_or_reason(metric, expected)
        representable = 1e-300 < abs(expected) < math.inf
        if id not in OF_SCATTER or (1e-125 < factors[0] < 1e150 and representable):
            assert metric.value is not None, metric


@pytest.mark.parametrize("power", [-400, -3, 400])
def test_a_power_of_two_changes_no_bit_of_a_metric_that_has_no_unit(power: int) -> None:
    world = drawn(6, seed=4)
    plain, found = measured(world), measured(rescaled(world, 2.0**power, 1.0, 2.0**power))
    for id in set(METRICS) - {"cdnv_k2", "lognorm_cv", "lognorm_mean", "alpha_req", "ncc_loss"} - OF_CURVATURE:
        assert found[id].value == plain[id].value is not None, id


@pytest.mark.parametrize("scale", [1e-200, 1e-150, 1e160, 1e300])
def test_scatter_whose_squares_float64_cannot_hold_is_not_a_number(scale: float) -> None:
    generator = torch.Generator().manual_seed(0)
    features, labels = scale * torch.randn(60, 4, generator=generator, dtype=torch.float64), torch.arange(60) % 5
    whole = ClassMoments.empty(6, 4, covariance=True)
    shards = [ClassMoments.empty(6, 4, covariance=True) for _ in range(2)]
    for start in range(0, 60, 20):
        whole.update(features[start : start + 20], labels[start : start + 20])
        shards[start > 20].update(features[start : start + 20], labels[start : start + 20])
    merged = shards[0].merge(shards[1])
    for moments in (whole, merged):
        assert not torch.isfinite(moments.scatter[:5]).any()
        assert moments.scatter[5] == 0
        assert_close(
            moments.means[:5] / scale, torch.stack([(features / scale)[labels == c].mean(0) for c in range(5)])
        )


def test_a_class_out_of_range_leaves_the_others_their_scatter() -> None:
    rows = [[1.0, 0], [3, 0], [1e-200, 0], [3e-200, 0], [0, 1e200], [0, 3e200], [0, 0], [0, 0]]
    features = torch.tensor(rows, dtype=torch.float64)
    moments = ClassMoments.empty(4, 2)
    for feature, label in zip(features, torch.arange(8) // 2, strict=True):
        moments.update(feature[None], label[None])
    assert torch.isfinite(moments.scatter).tolist() == [True, False, False, True]
    assert moments.scatter[[0, 3]].tolist() == [2, 0]


def test_sums_beyond_float64_are_a_reason() -> None:
    moments = ClassMoments.empty(3, 2, covariance=True)
    moments.update(torch.full((6, 2), 1.5e308, dtype=torch.float64), torch.arange(6) % 3)
    reasons = {
        found.why
        for id, found in collapse_metrics(moments).items()
        if id in OF_SCATTER - OF_CURVATURE - {"ncc_loss"} | {"norm_cv"}
    }
    assert reasons == {"class 0: the sum of its features leaves the range of float64 (3 classes in all)."}
    with pytest.raises(ValueError, match="class 0: the sum of its features leaves the range of float64"):
        Decider(moments, weight=torch.ones(3, 2))


def test_means_that_differ_by_less_than_float64_can_square_have_no_direction() -> None:
    points = torch.eye(4, 6, dtype=torch.float64) * 1e-200
    points[:, -1] = 1
    moments = ClassMoments.empty(4, 6)
    moments.update(points, torch.arange(4))
    found = collapse_metrics(moments, weight=points)
    for id in ("norm_cv", "cosine_mean", "logdist_std", "lognorm_cv", "duality_cos_mean", "head_cosine_std"):
        assert found[id].value is None, id
        assert found[id].why is not None
        assert "range of float64" in found[id].why


def test_means_that_differ_by_no_more_than_the_features_rounding_have_no_spectrum() -> None:
    points = torch.full((4, 6), 1000.0, dtype=torch.bfloat16)
    moments = ClassMoments.empty(4, 6)
    moments.update(points, torch.arange(4))
    moments.sums.add_(torch.eye(4, 6))
    found = collapse_metrics(moments, only=["etf_error", "effective_rank"])
    for metric in found.values():
        assert metric.why == "the class means differ by no more than the rounding of the features."


@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1e160, 1e300])
def test_pair_statistics_are_those_of_the_points_at_scale_one(scale: float) -> None:
    points = torch.randn(30, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    near, far = pair_statistics(points, uncentred=True), pair_statistics(points * scale, uncentred=True)
    for family in ("cosine", "logdist", "logdist_uncentred"):
        one, other = getattr(near, family), getattr(far, family)
        assert (other.mean, other.std) == pytest.approx((one.mean, one.std), rel=1e-9)
        assert (other.pairs, other.left_out) == (one.pairs, one.left_out)


def test_pair_statistics_take_no_point_and_no_variance_that_is_not_a_number() -> None:
    points = torch.eye(4, dtype=torch.float64)
    with pytest.raises(ValueError, match="1 of 4 variances are nan, infinite or negative"):
        pair_statistics(points, torch.tensor([1.0, 1, torch.nan, 1]))
    with pytest.raises(ValueError, match="variances: some are too large or too small beside the points"):
        pair_statistics(points * 1e200, torch.ones(4))
    points[2, 2] = torch.inf
    with pytest.raises(ValueError, match="points: some are nan or infinite"):
        pair_statistics(points)


def decided(features: Tensor, labels: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    moments = ClassMoments.empty(len(weight), features.shape[1])
    moments.update(features, labels)
    return Decider(moments, weight=weight, bias=bias, tile=7).choices(features)


@pytest.mark.parametrize("scale", [1e-36, 1e-25, 1e20, 1e30])
def test_float32_decides_alike_at_any_scale_that_it_can_hold(scale: float) -> None:
    generator = torch.Generator().manual_seed(0)
    features, weight = torch.randn(200, 6, generator=generator), torch.randn(20, 6, generator=generator)
    labels, bias = torch.arange(200) % 20, torch.randn(20, generator=generator)
    features, weight, bias = features.double(), weight.double(), bias.double()
    head, nearest = decided((features * scale).float(), labels, (weight * scale).float(), (bias * scale).float() * 0)
    wide, rows = (features * scale).float().double() / scale, (weight * scale).float().double() / scale
    means = torch.stack([wide[labels == c].mean(0) for c in range(20)])
    assert torch.equal(head, (wide @ rows.T).argmax(1))
    assert torch.equal(nearest, torch.cdist(wide, means).argmin(1))


def test_one_batch_may_hold_features_of_very_different_size() -> None:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(60, 6, generator=generator, dtype=torch.float64)
    weight, labels = torch.randn(20, 6, generator=generator, dtype=torch.float64), torch.arange(60) % 20
    moments = ClassMoments.empty(20, 6)
    moments.update(features, labels)
    decider = Decider(moments, weight=weight)
    sizes = torch.tensor([1e-300, 1.0, 1e300], dtype=torch.float64)
    head, nearest = decider.choices(features * sizes.repeat(20)[:, None])
    assert torch.equal(head, decider.choices(features)[0])
    means = moments.means
    closest_to_origin = torch.linalg.vector_norm(means, dim=1).argmin()
    assert set(nearest[::3].tolist()) == {int(closest_to_origin)}
    assert torch.equal(nearest[2::3], (features[2::3] @ means.T).argmax(1))


@pytest.mark.parametrize("dim", [8, 12])  # an inverse, and a pseudo-inverse
@pytest.mark.parametrize("seed", range(5))
def test_a_ratio_of_scatters_is_never_negative_by_rounding(seed: int, dim: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    points = 1e3 * torch.randn(9, dim, generator=generator, dtype=torch.float64)
    labels = torch.arange(9).repeat(7)
    moments = ClassMoments.empty(9, dim, covariance=True)
    for start in range(0, 63, 10):
        moments.update(points[labels][start : start + 10], labels[start : start + 10])
    ratios = ["scatter_pinv", "scatter_ratio", "vci", "directional_cdnv", "within_share"]
    found = collapse_metrics(moments, only=ratios)
    assert set(found) == set(ratios)
    for metric in found.values():
        assert metric.value is not None
        assert 0 <= metric.value < 1e-12
