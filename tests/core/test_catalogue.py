"""What a metric needs is what it takes to compute it, no more and no less; why it has no value is a code."""

import pytest
import torch

from collapselab.core.catalogue import METRICS, Metric, Missing, Need, ReasonCode
from collapselab.core.centre_loss import CentreLoss
from collapselab.core.decisions import NearestCentre
from collapselab.core.metrics import FUNCTIONS, collapse_metrics
from collapselab.core.moments import ClassMoments
from collapselab.core.output_curvature import OutputCurvature

FEATURES, LABELS = torch.randn(400, 14, generator=torch.Generator().manual_seed(0)), (torch.arange(400) ** 2) % 31 % 20
WEIGHT = torch.randn(20, 14, generator=torch.Generator().manual_seed(1))


def moments(**collected: bool) -> ClassMoments:
    some = ClassMoments.empty(classes=20, dim=14, **collected)
    some.update(FEATURES, LABELS)
    return some


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_a_metric_needs_what_it_says(metric: Metric) -> None:
    whole = moments(covariance=True)
    decisions = NearestCentre(whole, weight=WEIGHT).decide(FEATURES, LABELS)
    curvature = OutputCurvature(WEIGHT).sums(FEATURES)
    loss = CentreLoss(centres=3.0, model=2.0, tokens=2)
    given = {"weight": WEIGHT, "decisions": decisions, "curvature": curvature, "centre_loss": loss}
    undirected = ClassMoments(whole.counts, whole.sums, whole.scatter, pooled=whole.pooled)
    assert collapse_metrics(whole, only=[metric.id], **given)[metric.id].code is None
    for needs, code, without in (
        (
            {Need.HEAD, Need.OUTPUT_LAYER},
            ReasonCode.NO_HEAD,
            collapse_metrics(whole, only=[metric.id], **given | {"weight": None}),
        ),
        (
            {Need.DECISIONS},
            ReasonCode.NO_DECISIONS,
            collapse_metrics(whole, only=[metric.id], **given | {"decisions": None}),
        ),
        (
            {Need.CURVATURE},
            ReasonCode.NO_CURVATURE,
            collapse_metrics(whole, only=[metric.id], **given | {"curvature": None}),
        ),
        (
            {Need.CENTRE_LOSS},
            ReasonCode.NO_CENTRE_LOSS,
            collapse_metrics(whole, only=[metric.id], **given | {"centre_loss": None}),
        ),
        ({Need.DIRECTIONS}, ReasonCode.NO_DIRECTIONS, collapse_metrics(undirected, only=[metric.id], **given)),
        (
            {Need.COVARIANCE, Need.SPECTRUM},
            ReasonCode.NO_COVARIANCE,
            collapse_metrics(moments(), only=[metric.id], **given),
        ),
        (
            {Need.COVARIANCE},
            ReasonCode.NO_COVARIANCE,
            collapse_metrics(moments(spectrum=True), only=[metric.id], **given),
        ),
    ):
        assert without[metric.id].code == (code if metric.needs & needs else None), needs


def test_every_metric_needs_something() -> None:
    assert all(metric.needs for metric in METRICS.values())
    assert {need for metric in METRICS.values() for need in metric.needs} == set(Need)


def test_a_metric_added_from_outside_is_computed_and_its_reason_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def toy(geometry: object) -> float:
        raise Missing(ReasonCode.ZERO, "nothing to see.")

    needs = frozenset({Need.MEANS})
    entry = Metric(id="toy", name="Toy", property="NC1", formula="0", reference="here", needs=needs)
    monkeypatch.setitem(METRICS, "toy", entry)
    monkeypatch.setitem(FUNCTIONS, "toy", toy)
    found = collapse_metrics(moments())["toy"]
    assert (found.value, found.why, found.code) == (None, "nothing to see.", ReasonCode.ZERO)
