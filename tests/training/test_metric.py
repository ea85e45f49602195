"""CollapseMetric keeps the protocol of torchmetrics, and gives the numbers of the moments that it is made of."""

import math
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor

from collapselab.core.metrics import collapse_metrics
from collapselab.core.moments import ClassMoments

torchmetrics: Any = pytest.importorskip("torchmetrics", reason="returns where torchmetrics is installed")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")


STATES = ("counts", "sums", "scatter", "directions")


def stream(batches: int = 4) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    centres = 5 * torch.randn(7, 6, generator=generator)
    labels = torch.randint(0, 7, (batches, 50), generator=generator)
    return [(centres[one] + torch.randn(50, 6, generator=generator), one) for one in labels]


def metric(**settings: Any) -> Any:
    from collapselab.training.metric import CollapseMetric

    return CollapseMetric(7, 6, **settings)


def expected(batches: list[tuple[Tensor, Tensor]], **settings: Any) -> dict[str, float]:
    moments = ClassMoments.empty(7, 6)
    for features, labels in batches:
        moments.update(features, labels)
    measured = collapse_metrics(moments, **settings)
    return {name: math.nan if one.value is None else one.value for name, one in measured.items()}


def same(values: dict[str, Tensor], wanted: dict[str, float]) -> None:
    assert values.keys() == wanted.keys()
    known = 0
    for name, value in wanted.items():
        assert float(values[name]) == pytest.approx(value, rel=1e-9, abs=1e-12, nan_ok=True), name
        known += not math.isnan(value)
    assert known > 8


def test_it_gives_the_numbers_of_the_catalogue() -> None:
    ours = metric()
    for features, labels in stream():
        ours.update(features.reshape(5, 10, 6), labels.reshape(5, 10))
    same(ours.compute(), expected(stream()))
    head = torch.randn(7, 6, generator=torch.Generator().manual_seed(3)).double()
    with_head = metric(head=head)
    for features, labels in stream():
        with_head.update(features, labels)
    same(with_head.compute(), expected(stream(), weight=head))


def test_instances_that_are_merged_have_seen_what_both_have() -> None:
    first, second = metric(), metric()
    for number, (features, labels) in enumerate(stream()):
        (first, second)[number % 2].update(features, labels)
    before = first.compute()["cdnv"]
    first.merge_state(second)
    assert first.compute()["cdnv"] != before, "the value from before the merge was kept"
    same(first.compute(), expected(stream()))
    third = metric()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # such as that nothing was updated
        third.merge_state({name: getattr(first, name) for name in STATES})
        same(third.compute(), expected(stream()))


def test_processes_are_joined_when_they_synchronise() -> None:
    """With the gathering of torchmetrics replaced by one that hands over the states of two instances."""
    others: dict[Any, Tensor] = {}
    gathered = {"dist_sync_fn": lambda tensor, group=None: [tensor, others[tuple(tensor.shape), tensor.dtype]]}
    first, second = metric(**gathered, distributed_available_fn=lambda: True), metric()
    for number, (features, labels) in enumerate(stream()):
        (first, second)[number % 2].update(features, labels)
    for name in STATES:
        others[tuple(getattr(second, name).shape), getattr(second, name).dtype] = getattr(second, name)
    assert len(others) == len(STATES)
    same(first.compute(), expected(stream()))
    assert int(first.counts.sum()) == 100, "afterwards it is what this process has seen"


def test_forward_reset_and_collections_work() -> None:
    ours = torchmetrics.MetricCollection({"collapse": metric(only=("cdnv", "scatter_ratio"))})
    batches = stream()
    value = ours(*batches[0])
    assert float(value["cdnv"]) == pytest.approx(expected(batches[:1])["cdnv"])
    ours(*batches[1])
    assert float(ours.compute()["cdnv"]) == pytest.approx(expected(batches[:2])["cdnv"])
    assert set(ours.compute()) == {"cdnv", "scatter_ratio"}
    ours.reset()
    assert int(ours["collapse"].counts.sum()) == 0


def test_states_stay_in_double_precision() -> None:
    ours = metric().half()
    assert ours.sums.dtype == torch.float64
