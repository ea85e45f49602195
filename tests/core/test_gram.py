"""Products of rows with themselves, and those that the scatter between classes and within them share."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from collapselab.core import gram as module
from collapselab.core.geometry import Geometry
from collapselab.core.gram import add_gram
from collapselab.core.metrics import collapse_metrics
from collapselab.core.moments import ClassMoments, pooled_from


@pytest.mark.parametrize("dim", [3, 511, 700])
def test_half_of_a_gram_matrix_is_enough(dim: int) -> None:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(50, dim, generator=generator, dtype=torch.float64)
    gram = 3 * torch.eye(dim, dtype=torch.float64)
    add_gram(gram, rows, alpha=-0.5)
    torch.testing.assert_close(gram, 3 * torch.eye(dim, dtype=torch.float64) - 0.5 * rows.T @ rows)


COUNTS = torch.tensor([1, 1, 1, 2, 2, 3, 4, 5, 5, 5, 5, 0, 7])
"""Samples of each class: those that one or two classes have, and those that three or four have."""


def world(*, shift: float, seed: int = 0, dim: int = 6) -> tuple[Tensor, Tensor]:
    """Features and labels, in an order of their own."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.repeat_interleave(torch.arange(len(COUNTS)), COUNTS)
    labels = labels[torch.randperm(len(labels), generator=generator)]
    means = 2 * torch.randn(len(COUNTS), dim, generator=generator, dtype=torch.float64) + shift
    return means[labels] + torch.randn(len(labels), dim, generator=generator, dtype=torch.float64), labels


def collected(features: Tensor, labels: Tensor, step: int = 10) -> ClassMoments:
    moments = ClassMoments.empty(int(labels.max()) + 1, features.shape[1], covariance=True)
    for some, own in zip(torch.split(features, step), torch.split(labels, step), strict=True):
        moments.update(some, own)
    return moments


def by_definition(features: Tensor, labels: Tensor, min_count: int) -> tuple[Tensor, Tensor]:
    """Mᵀ M of the centred means of the kept classes, and the scatter matrix within all classes."""
    of_classes = [features[labels == label] for label in labels.unique()]
    means = torch.stack([some.mean(0) for some in of_classes if len(some) >= min_count])
    centred = means - means.mean(0)
    within = sum((some - some.mean(0)).T @ (some - some.mean(0)) for some in of_classes)
    assert isinstance(within, Tensor)
    return centred.T @ centred, within


@pytest.mark.parametrize("min_count", [1, 2, 4])
@pytest.mark.parametrize("shift", [0.0, 30.0], ids=["about the origin", "about another point"])
def test_classes_of_one_count_share_a_product_and_the_matrices_are_as_defined(
    shift: float, min_count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TOGETHER", 3)
    features, labels = world(shift=shift)
    geometry = Geometry(moments := collected(features, labels), min_count=min_count)
    gram, within = by_definition(features, labels, min_count)
    unit = 4.0**geometry.exponent
    assert_close(geometry.gram * unit, gram, rtol=1e-11, atol=1e-11)
    pooled = pooled_from(moments, geometry._shared)
    assert pooled is not None
    assert_close(pooled, within, rtol=1e-11, atol=1e-10)
    assert geometry._shared is not None
    assert geometry._shared.reference.any() == bool(shift)
    often = [5] if min_count > 1 else [1, 5]
    assert torch.equal(geometry._shared.classes, torch.isin(COUNTS, torch.tensor(often)))


def test_sharing_changes_metrics_by_rounding_alone_and_the_order_of_asking_by_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    moments = collected(*world(shift=1.0, seed=3))
    ids = ["scatter_pinv", "etf_error", "vci", "participation"]
    alone = collapse_metrics(moments, only=ids)
    monkeypatch.setattr(module, "TOGETHER", 1)
    shared = collapse_metrics(moments, only=ids)
    one_by_one = {id: collapse_metrics(moments, only=[id])[id] for id in reversed(ids)}
    for id in ids:
        assert shared[id].value == pytest.approx(alone[id].value, rel=1e-10), id
        assert one_by_one[id].value == shared[id].value, id


def test_means_that_lie_close_together_and_far_from_the_reference_point_share_nothing_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "TOGETHER", 2)
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(4).repeat(500)
    features = torch.randn(2000, 3, generator=generator, dtype=torch.float64)
    features[10:] += 9  # the reference point is chosen with the first batch
    geometry, again = (Geometry(collected(features, labels)) for _ in range(2))
    shared = again._shared
    assert shared is not None
    assert shared.classes.all()
    assert shared.gram_about(again.moments.means.mean(0)) is None
    gram, _ = by_definition(features, labels, 1)
    assert_close(geometry.gram * 4.0**geometry.exponent, gram, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("power", [-400, 400])
def test_a_power_of_two_changes_no_bit_of_what_is_shared(power: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TOGETHER", 1)
    assert _variability(power) == _variability(0)
    assert _variability(power)[0] is not None


@pytest.mark.parametrize("power", [-500, 500])
def test_numbers_whose_squares_may_leave_the_range_share_nothing(power: int, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = _variability(power)
    monkeypatch.setattr(module, "TOGETHER", 1)
    assert _variability(power) == alone


def _variability(power: int) -> tuple[float | None, str | None]:
    features, labels = world(shift=0.0, seed=1, dim=3)
    found = collapse_metrics(collected(features * 2.0**power, labels), only=["vci"])["vci"]
    return found.value, found.why


def test_classes_that_are_held_directly_share_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TOGETHER", 2)
    points = torch.randn(5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    labels = torch.arange(5).repeat(6)
    features = points[labels]  # every class is a point
    features[labels < 2] += torch.randn(12, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    geometry = Geometry(collected(features, labels, step=5))
    gram, within = by_definition(features, labels, 1)
    assert geometry._shared is not None
    assert geometry._shared.classes.tolist() == [True, True, False, False, False]
    assert_close(geometry.gram * 4.0**geometry.exponent, gram, rtol=1e-11, atol=1e-12)
    assert_close(geometry.within_covariance * 4.0**geometry.exponent * 30, within, rtol=1e-10, atol=1e-12)
