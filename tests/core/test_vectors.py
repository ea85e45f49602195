"""Products of rows with themselves, and the matrices that are made of them."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from collapselab.core.geometry import Geometry
from collapselab.core.moments import ClassMoments
from collapselab.core.vectors import add_gram


@pytest.mark.parametrize("dim", [3, 511, 700])
def test_half_of_a_gram_matrix_is_enough(dim: int) -> None:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(50, dim, generator=generator, dtype=torch.float64)
    gram = 3 * torch.eye(dim, dtype=torch.float64)
    add_gram(gram, rows, alpha=-0.5)
    torch.testing.assert_close(gram, 3 * torch.eye(dim, dtype=torch.float64) - 0.5 * rows.T @ rows)


COUNTS = torch.tensor([1, 1, 1, 2, 2, 3, 4, 5, 5, 5, 5, 0, 7])
"""Samples of each class."""


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
def test_the_matrices_between_and_within_classes_are_as_defined(shift: float, min_count: int) -> None:
    features, labels = world(shift=shift)
    moments = collected(features, labels)
    geometry = Geometry(moments, min_count=min_count)
    between, within = by_definition(features, labels, min_count)
    assert_close(geometry.gram, between, rtol=1e-10, atol=1e-10)
    assert moments.pooled is not None
    assert_close(moments.pooled, within, rtol=1e-10, atol=1e-10)
