"""Metrics and decisions do not depend on the scale of features and output layer."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

import oracles
from collapselab import METRICS, ClassMoments, NearestCentre, collapse_metrics
from collapselab.core.pairs import pair_statistics
from core.test_metrics import World, drawn, measured

SCALES = ["1e-15", "1e-6", "1e6", "1e15"]

RESCALED = {
    "features": lambda s: (s, 1.0, s),
    "output layer": lambda s: (1.0, s, s),
    "both": lambda s: (s, s, 0.0),
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


IN_UNIT = {"cdnv_k2", "lognorm_mean", "lognorm_cv"}
"""Metrics that vary with the unit of the features as `in_unit` says."""


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


@pytest.mark.parametrize("which", RESCALED)
@pytest.mark.parametrize("scale", SCALES)
def test_every_metric_keeps_its_value_at_any_scale(scale: str, which: str) -> None:
    factors = RESCALED[which](float(scale))
    world = drawn(6, seed=4)
    plain = measured(world if factors[2] else replace(world, bias=torch.zeros_like(world.bias)))
    found = measured(rescaled(world, *factors))
    assert set(found) == set(METRICS)
    for id, metric in found.items():
        if id == "alpha_req":  # six dimensions are too few
            continue
        same_logits = id == "ncc_loss" and which == "against each other"
        if "unit" in METRICS[id].varies_with and id not in IN_UNIT and not same_logits:
            assert metric.value is None or math.isfinite(metric.value)
            continue
        before = plain[id].value
        assert before is not None
        assert metric.value == pytest.approx(in_unit(id, before, world, factors[0]), rel=1e-9, abs=0), metric


def test_means_that_differ_by_no_more_than_the_features_rounding_have_no_spectrum() -> None:
    points = torch.full((4, 6), 1000.0, dtype=torch.bfloat16)
    moments = ClassMoments.empty(4, 6)
    moments.update(points, torch.arange(4))
    moments.sums.add_(torch.eye(4, 6))
    found = collapse_metrics(moments, only=["etf_error", "effective_rank"])
    for metric in found.values():
        assert metric.why == "the class means differ by no more than the rounding of the features."


@pytest.mark.parametrize("scale", [1e-15, 1e15])
def test_pair_statistics_are_those_of_the_points_at_scale_one(scale: float) -> None:
    points = torch.randn(30, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    near, far = pair_statistics(points, uncentred=True), pair_statistics(points * scale, uncentred=True)
    for family in ("cosine", "logdist", "logdist_uncentred"):
        one, other = getattr(near, family), getattr(far, family)
        assert (other.mean, other.std) == pytest.approx((one.mean, one.std), rel=1e-9)
        assert (other.pairs, other.left_out) == (one.pairs, one.left_out)


def test_pair_statistics_take_no_point_that_is_not_a_number() -> None:
    points = torch.eye(4, dtype=torch.float64)
    points[2, 2] = torch.inf
    with pytest.raises(ValueError, match="points: some are nan or infinite"):
        pair_statistics(points)


def decided(features: Tensor, labels: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    moments = ClassMoments.empty(len(weight), features.shape[1])
    moments.update(features, labels)
    return NearestCentre(moments, weight=weight, bias=bias, tile=7).choices(features)


@pytest.mark.parametrize("scale", [1e-15, 1e15])
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
