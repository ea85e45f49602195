"""What a metric needs is what it takes to compute it, no more and no less; why it has no value is a code."""

import pytest
import torch

from collapselab.core.centre_loss import CentreLoss
from collapselab.core.decisions import Decider
from collapselab.core.flatness import OutputCurvature
from collapselab.core.metrics import METRICS, Metric, collapse_metrics
from collapselab.core.moments import ClassMoments
from collapselab.core.needs import Missing, Need, ReasonCode

FEATURES, LABELS = torch.randn(400, 14, generator=torch.Generator().manual_seed(0)), (torch.arange(400) ** 2) % 31 % 20
WEIGHT = torch.randn(20, 14, generator=torch.Generator().manual_seed(1))


def moments(*, covariance: bool) -> ClassMoments:
    collected = ClassMoments.empty(classes=20, dim=14, covariance=covariance)
    collected.update(FEATURES, LABELS)
    return collected


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_a_metric_needs_what_it_says(metric: Metric) -> None:
    whole = moments(covariance=True)
    decisions = Decider(whole, weight=WEIGHT).decide(FEATURES, LABELS)
    flatness = OutputCurvature(WEIGHT).flatness(FEATURES)
    loss = CentreLoss(centres=3.0, model=2.0, tokens=2)
    given = {"weight": WEIGHT, "decisions": decisions, "flatness": flatness, "centre_loss": loss}
    undirected = ClassMoments(whole.counts, whole.sums, whole.scatter, pooled=whole.pooled)
    assert collapse_metrics(whole, only=[metric.id], **given)[metric.id].code is None
    for need, code, without in (
        (Need.HEAD, ReasonCode.NO_HEAD, collapse_metrics(whole, only=[metric.id], **given | {"weight": None})),
        (
            Need.DECISIONS,
            ReasonCode.NO_DECISIONS,
            collapse_metrics(whole, only=[metric.id], **given | {"decisions": None}),
        ),
        (
            Need.CURVATURE,
            ReasonCode.NO_CURVATURE,
            collapse_metrics(whole, only=[metric.id], **given | {"flatness": None}),
        ),
        (
            Need.CENTRE_LOSS,
            ReasonCode.NO_CENTRE_LOSS,
            collapse_metrics(whole, only=[metric.id], **given | {"centre_loss": None}),
        ),
        (Need.DIRECTIONS, ReasonCode.NO_DIRECTIONS, collapse_metrics(undirected, only=[metric.id], **given)),
        (
            Need.COVARIANCE,
            ReasonCode.NO_COVARIANCE,
            collapse_metrics(moments(covariance=False), only=[metric.id], **given),
        ),
    ):
        assert without[metric.id].code == (code if need in metric.needs else None), need


def test_every_metric_needs_something() -> None:
    assert all(metric.needs for metric in METRICS.values())
    assert {need for metric in METRICS.values() for need in metric.needs} == set(Need)


def test_a_metric_added_from_outside_is_computed_and_its_reason_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def toy(geometry: object) -> float:
        raise Missing(ReasonCode.ZERO, "nothing to see.")

    entry = Metric("toy", "NC1", "0", "falls", toy, "here", frozenset({Need.MEANS}))
    monkeypatch.setitem(METRICS, "toy", entry)
    found = collapse_metrics(moments(covariance=False))["toy"]
    assert (found.value, found.why, found.code) == (None, "nothing to see.", ReasonCode.ZERO)
