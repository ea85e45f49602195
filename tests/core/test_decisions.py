import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.neighbors import NearestCentroid
from torch import Tensor

from collapselab.core.decisions import Decisions, LinearClassifier, NearestCentre
from collapselab.core.moments import ClassMoments


def world(
    classes: int, dim: int, *, seed: int = 0, dtype: torch.dtype = torch.float32
) -> tuple[ClassMoments, Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(classes, dim, generator=generator)
    labels = torch.arange(classes).repeat(5)
    features = (centres[labels] + torch.randn(len(labels), dim, generator=generator)).to(dtype)
    moments = ClassMoments.empty(classes, dim)
    moments.update(features, labels)
    weight, bias = torch.randn(classes, dim, generator=generator) + centres, torch.randn(classes, generator=generator)
    return moments, features, labels, weight, bias


def test_the_nearest_centre_is_that_of_scikit_learn() -> None:
    moments, features, labels, weight, _ = world(30, 6)
    _, nearest = NearestCentre(moments, weight=weight, tile=7).choices(features)
    reference = NearestCentroid().fit(features.numpy(), labels.numpy())
    assert torch.equal(nearest, torch.from_numpy(reference.predict(features.numpy())))


@given(classes=st.integers(1, 60), tile=st.integers(1, 70), seed=st.integers(0, 99), biased=st.booleans())
def test_choices_are_those_of_the_definition_for_any_tile(classes: int, tile: int, seed: int, biased: bool) -> None:
    moments, features, _, weight, bias = world(classes, 5, seed=seed)
    head, nearest = NearestCentre(moments, weight=weight, bias=bias if biased else None, tile=tile).choices(features)
    wide = features.double()
    scores = wide @ weight.double().T + (bias.double() if biased else 0)
    assert torch.equal(head, scores.argmax(1))
    distances = (wide[:, None] - moments.means[None]).square().sum(2)
    assert torch.equal(nearest, distances.argmin(1))


def test_near_ties_are_decided_in_float64_where_float32_alone_is_wrong() -> None:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(1, 64, generator=generator, dtype=torch.float64).repeat(400, 1)
    rows += 1e-7 * torch.randn(400, 64, generator=generator, dtype=torch.float64)
    features = torch.randn(500, 64, generator=generator)
    exact = (features.double() @ rows.T).argmax(1)
    assert torch.equal(LinearClassifier(rows, tile=50).choices(features), exact)
    assert not torch.equal((features @ rows.float().T).argmax(1), exact)


def test_a_large_common_offset_does_not_move_the_nearest_centre() -> None:
    moments, features, labels, weight, _ = world(30, 6, dtype=torch.float64)
    far = ClassMoments.empty(30, 6)
    far.update(features + 1e7, labels)
    near = NearestCentre(moments, weight=weight).choices(features)[1]
    assert torch.equal(NearestCentre(far, weight=weight).choices(features + 1e7)[1], near)


def test_only_kept_classes_are_candidates_and_other_labels_are_left_out() -> None:
    moments, features, labels, weight, bias = world(10, 4)
    moments.update(features[:3], torch.zeros(3, dtype=torch.int64))  # class 0 now has 8 samples, the others 5
    decider = NearestCentre(moments, weight=weight, bias=bias, min_count=6)
    head, nearest = decider.choices(features)
    assert set(head.tolist()) == set(nearest.tolist()) == {0}
    decisions = decider.decide(features, labels)
    assert int(decisions.tokens.sum()) == 5
    assert decisions.left_out == 45
    assert int(decisions.head_right.sum()) == 5


def test_tallies_are_by_class_and_merge_to_those_of_one_pass() -> None:
    moments, features, labels, weight, bias = world(12, 4)
    decider = NearestCentre(moments, weight=weight, bias=bias)
    whole = decider.decide(features, labels)
    merged = decider.decide(features[:17], labels[:17]).merge(decider.decide(features[17:], labels[17:]))
    head, nearest = decider.choices(features)
    for name in ("tokens", "agreed", "nearest_right", "head_right"):
        assert torch.equal(getattr(merged, name), getattr(whole, name)), name
    for c in range(12):
        own = labels == c
        assert int(whole.tokens[c]) == int(own.sum())
        assert int(whole.agreed[c]) == int((head[own] == nearest[own]).sum())
        assert int(whole.head_right[c]) == int((head[own] == c).sum())
        assert int(whole.nearest_right[c]) == int((nearest[own] == c).sum())


def test_an_empty_batch_and_skipped_labels_count_nothing() -> None:
    moments, features, labels, weight, _ = world(12, 4)
    decider = NearestCentre(moments, weight=weight)
    assert int(decider.decide(features[:0], labels[:0]).tokens.sum()) == 0
    skipped = decider.decide(features[:5], torch.full((5,), -100))
    assert (int(skipped.tokens.sum()), skipped.left_out) == (0, 0)


def test_half_precision_features_are_decided_as_the_numbers_they_are() -> None:
    moments, features, _, weight, _ = world(30, 6)
    half = features.bfloat16()
    decider = NearestCentre(moments, weight=weight)
    assert torch.equal(decider.choices(half)[0], decider.choices(half.double())[0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w, b: (w[:, :3], b), r"output layer of shape \(10, 3\); \(10, 4\), classes × dim, is needed"),
        (lambda w, b: (w.T, b), r"output layer of shape \(4, 10\)"),
        (lambda w, b: (w, b[:9]), r"output bias of shape \(9,\); \(10,\), one a class, is needed"),
        (lambda w, b: (w * torch.nan, b), r"output layer: 40 of 40 numbers are nan or infinite"),
    ],
)
def test_an_output_layer_of_the_wrong_form_is_refused(change: object, message: str) -> None:
    moments, _, _, weight, bias = world(10, 4)
    weight, bias = change(weight, bias)  # type: ignore[operator]
    with pytest.raises(ValueError, match=message):
        NearestCentre(moments, weight=weight, bias=bias)


def test_no_kept_class_is_refused() -> None:
    moments, _, _, weight, _ = world(10, 4)
    with pytest.raises(ValueError, match="no class has 99 samples or more"):
        NearestCentre(moments, weight=weight, min_count=99)


def test_decisions_of_different_kept_classes_do_not_merge() -> None:
    moments, features, labels, weight, _ = world(10, 4)
    one, two = (NearestCentre(moments, weight=weight, min_count=n).decide(features, labels) for n in (1, 2))
    with pytest.raises(
        ValueError, match="min_count 2 cannot be merged into decisions over 10 classes with min_count 1"
    ):
        one.merge(two)


def test_decisions_of_some_classes_are_those_about_tokens_labelled_with_them() -> None:
    moments, features, labels, weight, _ = world(12, 4)
    decider = NearestCentre(moments, weight=weight)
    chosen = torch.arange(12) % 3 == 0
    some = chosen[labels]
    part, expected = decider.decide(features, labels).of(chosen), decider.decide(features[some], labels[some])
    for name in ("tokens", "agreed", "nearest_right", "head_right"):
        assert torch.equal(getattr(part, name), getattr(expected, name)), name


def test_decisions_merge_into_none_as_often_as_asked() -> None:
    moments, features, labels, weight, _ = world(12, 4)
    once = NearestCentre(moments, weight=weight).decide(features, labels)
    thrice = Decisions(*torch.zeros(4, 12, dtype=torch.int64), left_out=0, min_count=1).merge(once, times=3)
    assert torch.equal(thrice.agreed, 3 * once.agreed)
    assert torch.equal(thrice.tokens, 3 * once.tokens)
