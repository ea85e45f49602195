"""CKA of class means: against the definition with centred Gram matrices of classes, known answers, invariances."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from collapselab.core.geometry import class_mean_similarity
from collapselab.core.moments import ClassMoments
from frames import rotation


def moments_of(means: Tensor, *, skip: int | None = None) -> ClassMoments:
    moments = ClassMoments.empty(len(means), means.shape[1])
    labels = torch.tensor([c for c in range(len(means)) if c != skip])
    moments.update(means[labels], labels)
    return moments


def drawn(classes: int, dim: int, seed: int) -> Tensor:
    return torch.randn(classes, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def by_definition(one: Tensor, other: Tensor) -> float:
    """HSIC(K, L) / √(HSIC(K, K) HSIC(L, L)), from the classes × classes matrices that the package never holds."""
    size = len(one)
    centring = np.eye(size) - np.ones((size, size)) / size
    k, other_k = (centring @ (rows.numpy() @ rows.numpy().T) @ centring for rows in (one, other))
    return float((k * other_k).sum() / np.sqrt((k * k).sum() * (other_k * other_k).sum()))


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), classes=st.integers(3, 12), dims=st.tuples(st.integers(1, 8), st.integers(1, 8)))
def test_it_is_that_of_the_definition(seed: int, classes: int, dims: tuple[int, int]) -> None:
    one, other = drawn(classes, dims[0], seed), drawn(classes, dims[1], seed + 1) + 3
    found = class_mean_similarity(moments_of(one), moments_of(other))
    assert found.value == pytest.approx(by_definition(one, other), rel=1e-9)
    assert class_mean_similarity(moments_of(other), moments_of(one)).value == pytest.approx(found.value, rel=1e-12)


@pytest.mark.parametrize("scale", [1e-15, 1e-3, 1.0, 1e15])
def test_a_rotation_a_scale_and_a_shift_leave_it_at_one(scale: float) -> None:
    means = drawn(20, 6, 0)
    found = class_mean_similarity(moments_of(means), moments_of(scale * ((means + 5) @ rotation(6))))
    assert found.value == pytest.approx(1, abs=1e-12)
    assert found.value is not None
    assert found.value <= 1


def test_unrelated_means_of_many_classes_are_not_alike_and_orthogonal_ones_not_at_all() -> None:
    found = class_mean_similarity(moments_of(drawn(5000, 6, 0)), moments_of(drawn(5000, 6, 1)))
    assert found.value is not None
    assert found.value < 0.01
    lines = torch.tensor([[1.0, 0], [-1, 0], [0, 1], [0, -1]], dtype=torch.float64)
    assert class_mean_similarity(moments_of(lines[:, :1]), moments_of(lines[:, 1:])).value == 0


def test_only_classes_that_both_have_are_compared() -> None:
    means, other = drawn(10, 4, 0), drawn(10, 4, 1)
    found = class_mean_similarity(moments_of(means, skip=2), moments_of(other, skip=7))
    rest = [c for c in range(10) if c not in (2, 7)]
    assert found.classes == 8
    assert found.value == pytest.approx(by_definition(means[rest], other[rest]), rel=1e-9)


def test_what_cannot_be_compared_has_a_reason() -> None:
    means = drawn(10, 4, 0)
    assert class_mean_similarity(moments_of(means), moments_of(means[:1].expand(10, 4))).why is not None
    rare = class_mean_similarity(moments_of(means), moments_of(means), min_count=2)
    assert (rare.value, rare.why) == (None, "0 classes in common; at least 3 are needed.")
    with pytest.raises(ValueError, match="moments of 10 and of 9 classes"):
        class_mean_similarity(moments_of(means), moments_of(means[:9]))
    with pytest.raises(ValueError, match="min_count must be"):
        class_mean_similarity(moments_of(means), moments_of(means), min_count=0)
