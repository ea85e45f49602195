import itertools
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from collapselab.core import moments as module
from collapselab.core.metrics import collapse_metrics
from collapselab.core.moments import ClassMoments
from collapselab.core.storage import Rows


def drawn(
    tokens: int, classes: int, dim: int, *, seed: int = 0, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, classes, (tokens,), generator=generator)
    features = torch.randn(tokens, dim, generator=generator, dtype=torch.float64)
    return (features + 3 * torch.randn(classes, dim, generator=generator, dtype=torch.float64)[labels]).to(
        dtype
    ), labels


def collected(
    features: Tensor, labels: Tensor, classes: int, *, cut: int | None = None, **options: object
) -> ClassMoments:
    moments = ClassMoments.empty(classes, features.shape[1], **options)  # type: ignore[arg-type]
    step = cut or max(1, len(features))
    for start in range(0, len(features), step):
        moments.update(features[start : start + step], labels[start : start + step])
    return moments


def by_definition(features: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor, Tensor]:
    features = features.double()
    counts, means, scatter = (
        torch.zeros(classes, dtype=torch.int64),
        torch.zeros(classes, features.shape[1]).double(),
        [],
    )
    for c in range(classes):
        group = features[labels == c]
        counts[c] = len(group)
        if len(group):
            means[c] = group.mean(0)
        scatter.append(((group - means[c]) ** 2).sum())
    return counts, means, torch.stack(scatter)


def assert_same(left: ClassMoments, right: ClassMoments, *, rtol: float = 1e-11) -> None:
    assert torch.equal(left.counts, right.counts)
    assert_close(left.means, right.means, rtol=rtol, atol=rtol)
    assert_close(left.scatter, right.scatter, rtol=rtol, atol=rtol)
    assert left.tokens == right.tokens


@given(
    tokens=st.integers(0, 300),
    classes=st.integers(1, 40),
    dim=st.integers(1, 9),
    cut=st.integers(1, 120),
    seed=st.integers(0, 99),
)
def test_moments_are_those_of_the_definition(tokens: int, classes: int, dim: int, cut: int, seed: int) -> None:
    features, labels = drawn(tokens, classes, dim, seed=seed)
    moments = collected(features, labels, classes, cut=cut)
    counts, means, scatter = by_definition(features, labels, classes)
    assert torch.equal(moments.counts, counts)
    assert_close(moments.means, means, rtol=1e-12, atol=1e-12)
    assert_close(moments.scatter, scatter, rtol=1e-12, atol=1e-12)
    assert_close(moments.variances, scatter / counts.clamp(min=1), rtol=1e-12, atol=1e-12)


def test_a_batch_larger_than_a_part_is_folded_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    features, labels = drawn(500, 7, 5)
    whole = collected(features, labels, 7)
    monkeypatch.setitem(module.PART_BYTES, "cpu", 8 * 5 * 16)
    assert_same(collected(features, labels, 7), whole)


@given(cuts=st.lists(st.integers(0, 200), min_size=1, max_size=4), seed=st.integers(0, 99))
def test_merging_shards_equals_one_pass(cuts: list[int], seed: int) -> None:
    features, labels = drawn(200, 12, 6, seed=seed)
    bounds = [0, *sorted(cuts), 200]
    merged = ClassMoments.empty(12, 6, covariance=True)
    for start, stop in itertools.pairwise(bounds):
        merged.merge(collected(features[start:stop], labels[start:stop], 12, covariance=True))
    whole = collected(features, labels, 12, covariance=True)
    assert_same(merged, whole)
    assert_close(merged.covariance, whole.covariance, rtol=1e-11, atol=1e-12)


def test_the_same_stream_gives_the_same_bits() -> None:
    features, labels = drawn(5000, 50, 33)
    first, second = (collected(features, labels, 50, cut=700, covariance=True) for _ in range(2))
    for name in ("counts", "sums", "scatter", "pooled"):
        assert torch.equal(getattr(first, name), getattr(second, name)), name


@pytest.mark.parametrize("per_class", [False, True], ids=["common offset", "offset of each class"])
def test_features_far_from_the_origin_keep_their_scatter_where_the_naive_formula_loses_it(per_class: bool) -> None:
    features, labels = drawn(4000, 20, 8)
    offset = (1e4 if per_class else 1e7) * torch.randn(
        20 if per_class else 1, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )
    far = features + (offset[labels] if per_class else offset)
    _, _, scatter = by_definition(features, labels, 20)
    assert_close(collected(far, labels, 20, cut=256).scatter, scatter, rtol=1e-6, atol=0)

    halves = [collected(far[half], labels[half], 20) for half in (slice(0, 2000), slice(2000, 4000))]
    assert_close(halves[0].merge(halves[1]).scatter, scatter, rtol=1e-6, atol=0)

    groups = [far[labels == c] for c in range(20)]
    naive = torch.stack([(g**2).sum() - len(g) * (g.mean(0) ** 2).sum() for g in groups])
    assert per_class or ((naive / scatter - 1).abs() > 1e-4).any()


def late_bloomer(tokens: int) -> tuple[Tensor, Tensor]:
    """Class 1 is one far point, but for noise; class 0 is wide; class 2 is wide at first and a far point later."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 3, (tokens,), generator=generator)
    noise = torch.randn(tokens, 6, generator=generator, dtype=torch.float64)
    tight = (labels == 1) | ((labels == 2) & (torch.arange(tokens) > tokens // 2))
    return torch.where(tight[:, None], 10 * labels[:, None] + 1e-3 * noise, noise), labels


def test_narrow_classes_keep_their_scatter_beside_wide_ones() -> None:
    features, labels = late_bloomer(900)
    _, means, scatter = by_definition(features, labels, 3)
    residuals = features - means[labels]
    for cut in (7, 100, 900):
        moments = collected(features, labels, 3, cut=cut, covariance=True)
        assert_close(moments.scatter, scatter, rtol=1e-6, atol=0)
        assert_close(moments.covariance, residuals.T @ residuals / 900, rtol=1e-6, atol=1e-5)


@pytest.mark.slow
@given(cut=st.integers(1, 60), stop=st.integers(1, 14))
def test_moments_with_tight_classes_go_on_after_loading_as_if_they_had_not_stopped(cut: int, stop: int) -> None:
    features, labels = late_bloomer(300)
    whole = collected(features, labels, 3, cut=cut, covariance=True)
    stopped = collected(features[: stop * cut], labels[: stop * cut], 3, cut=cut, covariance=True)
    with TemporaryDirectory() as folder:
        stopped.save(Path(folder) / "stopped")
        loaded = ClassMoments.load(Path(folder) / "stopped")
    for start in range(stop * cut, 300, cut):
        loaded.update(features[start : start + cut], labels[start : start + cut])
    for name in ("counts", "sums", "scatter", "pooled"):
        assert torch.equal(getattr(loaded, name), getattr(whole, name)), name


def test_moments_may_be_collected_on_after_merging() -> None:
    features, labels = late_bloomer(900)
    first = collected(features[:300], labels[:300], 3, covariance=True)
    first.merge(collected(features[300:600], labels[300:600], 3, covariance=True))
    first.update(features[600:], labels[600:])
    whole = collected(features, labels, 3, covariance=True)
    assert_same(first, whole, rtol=1e-7)
    assert_close(first.covariance, whole.covariance, rtol=1e-7, atol=1e-5)


def test_the_same_features_may_be_ignored_by_one_of_several_moments() -> None:
    features, labels = drawn(400, 9, 4)
    some = labels.clone()
    some[::3] = -100
    both, alone = [[ClassMoments.empty(9, 4) for _ in range(2)] for _ in range(2)]
    for start in (0, 200):
        now = slice(start, start + 200)
        squares, _ = module.update_all(features[now], [(both[0], labels[now]), (both[1], some[now])])
        point = both[0].reference
        assert point is not None
        assert_close(squares, (features[now].double() - point).square().sum(1), rtol=1e-13, atol=0)
        alone[0].update(features[now], labels[now])
        alone[1].update(features[now], some[now])
    for left, right in zip(both, alone, strict=True):
        assert_same(left, right, rtol=1e-13)


def test_collapsed_classes_have_no_scatter_even_far_from_the_origin() -> None:
    points = 1e7 * torch.randn(5, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(5).repeat(40)
    moments = collected(points[labels], labels, 5, cut=17)
    assert float((moments.scatter / moments.sums.square().sum(1)).max()) < 1e-30


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn])
def test_features_of_any_float_dtype_are_summed_in_float64(dtype: torch.dtype) -> None:
    features, labels = drawn(600, 9, 4, dtype=dtype)
    _, means, scatter = by_definition(features, labels, 9)
    moments = collected(features, labels, 9, cut=100)
    assert_close(moments.means, means, rtol=1e-12, atol=1e-12)
    assert_close(moments.scatter, scatter, rtol=1e-12, atol=0)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.uint16])
def test_labels_of_any_integer_dtype_are_taken(dtype: torch.dtype) -> None:
    features, labels = drawn(50, 9, 4)
    assert_same(collected(features, labels.to(dtype), 9), collected(features, labels, 9))


def test_label_minus_100_is_skipped() -> None:
    features, labels = drawn(50, 9, 4)
    labels[::3] = -100
    used = labels != -100
    features[~used] = torch.nan  # what is skipped is not looked at either
    assert_same(collected(features, labels, 9), collected(features[used], labels[used], 9))


def test_an_update_needs_no_gradient_and_keeps_none() -> None:
    features, labels = drawn(20, 3, 4)
    assert not collected(features.requires_grad_(), labels, 3).sums.requires_grad


def test_covariance_is_the_pooled_within_class_covariance() -> None:
    features, labels = drawn(700, 15, 6)
    _, means, _ = by_definition(features, labels, 15)
    residuals = features - means[labels]
    moments = collected(features, labels, 15, cut=64, covariance=True)
    assert_close(moments.covariance, residuals.T @ residuals / 700, rtol=1e-11, atol=1e-12)
    assert collected(features, labels, 15).covariance is None


@pytest.mark.parametrize("covariance", [False, True])
def test_saving_and_loading_is_exact(tmp_path: Path, covariance: bool) -> None:
    features, labels = drawn(300, 40, 6)
    labels[labels % 3 == 0] = 1  # some classes are never seen
    moments = collected(features, labels, 40, covariance=covariance)
    moments.save(tmp_path / "deep" / "m.safetensors")
    loaded = ClassMoments.load(tmp_path / "deep" / "m.safetensors")
    for name in ("counts", "sums", "scatter", "pooled"):
        left, right = getattr(moments, name), getattr(loaded, name)
        assert (left is None and right is None) or torch.equal(left, right), name
    assert loaded.tokens == moments.tokens
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["m.safetensors"]


REFUSED = {
    "lengths": (lambda f, y: (f, y[:-1]), r"^20 features but 19 labels; each feature needs its next token\.$"),
    "shape of labels": (lambda f, y: (f, y[None]), r"^labels of shape \(1, 20\)"),
    "dimension": (lambda f, y: (f[:, :3], y), r"^features of shape \(20, 3\); \(tokens, 4\) is needed\.$"),
    "three axes": (lambda f, y: (f[None], y), r"^features of shape \(1, 20, 4\)"),
    "label too large": (lambda f, y: (f, y.index_fill(0, torch.tensor([5, 9]), 8)), r"^2 of 20 labels are outside 0 … 4, the first 8;"),
    "negative label": (lambda f, y: (f, y.index_fill(0, torch.tensor([3]), -1)), r"^1 of 20 labels are outside 0 … 4, the first -1;"),
    "nan": (lambda f, y: (f.index_fill(0, torch.tensor([7, 8]), torch.nan), y), r"^8 features are nan or infinite, the first nan at token 7, dimension 0\.$"),
    "infinity": (lambda f, y: (f.index_fill(1, torch.tensor([2]), -torch.inf), y), r"^20 features .* the first -inf at token 0, dimension 2\.$"),
    "integer features": (lambda f, y: (f.long(), y), r"^features are torch.int64; floating-point numbers are needed\.$"),
    "float labels": (lambda f, y: (f, y.double()), r"^labels are torch.float64; integers are needed\.$"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_refused_update_says_why_and_changes_nothing(case: str) -> None:
    spoil, message = REFUSED[case]
    features, labels = drawn(20, 5, 4)
    moments = collected(features, labels, 5, covariance=True)
    before = {name: getattr(moments, name).clone() for name in ("counts", "sums", "scatter", "pooled")}
    with pytest.raises(ValueError, match=message):
        moments.update(*spoil(features.clone(), labels.clone()))
    assert all(torch.equal(getattr(moments, name), value) for name, value in before.items())
    assert moments.tokens == 20


def test_the_position_of_a_nan_counts_skipped_tokens_too() -> None:
    features, labels = drawn(20, 5, 4)
    labels[:6] = -100
    features[9, 1] = torch.nan
    with pytest.raises(ValueError, match="at token 9, dimension 1"):
        ClassMoments.empty(5, 4).update(features, labels)


def test_large_but_finite_half_precision_features_are_not_taken_for_infinite() -> None:
    features = torch.full((8, 4), 6e4, dtype=torch.float16)
    moments = collected(features, torch.zeros(8, dtype=torch.int64), 1)
    assert_close(moments.means, features[:1].double())


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (ClassMoments.empty(5, 3), r"5 classes × 3 cannot be merged into moments of 5 classes × 4"),
        (ClassMoments.empty(6, 4), r"6 classes × 4 cannot be merged"),
        (ClassMoments.empty(5, 4, covariance=True), "only one of the two moments collects the covariance"),
    ],
)
def test_moments_of_different_kind_do_not_merge(other: ClassMoments, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ClassMoments.empty(5, 4).merge(other)


def test_empty_moments_need_classes_and_dimensions() -> None:
    with pytest.raises(ValueError, match="0 classes × 4 dimensions; both must be at least 1"):
        ClassMoments.empty(0, 4)


def test_a_device_without_float64_is_refused() -> None:
    with pytest.raises(ValueError, match="mps has no float64"):
        ClassMoments.empty(5, 4, device="mps")


@given(times=st.integers(0, 5), seed=st.integers(0, 99))
def test_merging_a_shard_several_times_is_seeing_it_several_times(times: int, seed: int) -> None:
    features, labels = drawn(120, 9, 4, seed=seed)
    more, more_labels = drawn(60, 9, 4, seed=seed + 1)
    merged = collected(features, labels, 9, covariance=True)
    merged.merge(collected(more, more_labels, 9, covariance=True), times=times)
    repeated = torch.cat([features, *[more] * times]), torch.cat([labels, *[more_labels] * times])
    whole = collected(*repeated, 9, covariance=True)
    assert_same(merged, whole)
    assert_close(merged.covariance, whole.covariance, rtol=1e-11, atol=1e-12)


def test_moments_know_the_rounding_of_the_coarsest_features_they_saw(tmp_path: Path) -> None:
    features, labels = drawn(20, 5, 4)
    moments = collected(features, labels, 5)
    assert moments.unit == 2.0**-53
    moments.merge(collected(features.bfloat16(), labels, 5))
    moments.update(features.float(), labels)
    assert moments.unit == 2.0**-8
    moments.save(tmp_path / "m.safetensors")
    assert ClassMoments.load(tmp_path / "m.safetensors").unit == 2.0**-8


@pytest.mark.parametrize("threads", [1, 2])
def test_several_moments_take_the_same_features_side_by_side(threads: int) -> None:
    features, labels = drawn(3000, 20, 8)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        together = [ClassMoments.empty(20, 8, covariance=True) for _ in range(3)]
        alone = [ClassMoments.empty(20, 8, covariance=True) for _ in range(3)]
        for turn in range(3):
            shifted = [(labels + i) % (20 - turn) for i in range(3)]
            module.update_all(features, list(zip(together, shifted, strict=True)))
            for one, its in zip(alone, shifted, strict=True):
                one.update(features, its)
        for one, other in zip(together, alone, strict=True):
            assert_same(one, other, rtol=1e-13)
            assert one.unit == other.unit > 0
        assert torch.get_num_threads() == threads
        with pytest.raises(ValueError, match="outside 0 … 19"):
            module.update_all(features, [(together[0], labels), (together[1], labels + 20)])
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


def test_moments_may_be_collected_in_and_out_of_inference_mode() -> None:
    features, labels = drawn(600, 20, 7)
    moments = ClassMoments.empty(20, 7, covariance=True)
    with torch.inference_mode():
        moments.update(features[:200].float(), labels[:200])
        moments.merge(collected(features[200:400].float(), labels[200:400], 20, covariance=True))
    moments.update(features[400:].float(), labels[400:])
    collected(features[:200].float(), labels[:200], 20)  # the same room, outside
    assert_same(moments, collected(features.float(), labels, 20))


def test_the_sum_of_directions_is_that_of_the_definition_however_it_is_cut(tmp_path: Path) -> None:
    features, labels = torch.randn(90, 5, generator=torch.Generator().manual_seed(0)).double() + 2, torch.arange(90) % 7
    truth = sum(feature / feature.norm() for feature in features)
    whole = ClassMoments.empty(7, 5)
    whole.update(features, labels)
    assert whole.directions is not None
    assert_close(whole.directions, truth)
    one, other = ClassMoments.empty(7, 5), ClassMoments.empty(7, 5)
    one.update(features[:40], labels[:40])
    other.update(features[40:], labels[40:])
    one.save(tmp_path / "m.safetensors")
    merged = ClassMoments.load(tmp_path / "m.safetensors").merge(other).directions
    assert merged is not None
    assert_close(merged, truth)


def test_moments_of_an_earlier_version_open_and_go_on_without_the_sum_of_directions() -> None:
    features, labels = torch.randn(90, 5, generator=torch.Generator().manual_seed(0)), torch.arange(90) % 7
    now = ClassMoments.empty(7, 5)
    now.update(features[:40], labels[:40])
    stored = {name: part.table[part.chosen] if isinstance(part, Rows) else part for name, part in now.tensors().items()}
    earlier = ClassMoments.from_tensors({n: t for n, t in stored.items() if n != "directions"}, now.facts())
    assert earlier.directions is None
    for moments in (now, earlier):
        moments.update(features[40:], labels[40:])
    assert earlier.directions is None, "of some tokens alone it would be wrong"
    assert torch.equal(now.sums, earlier.sums)
    assert torch.equal(now.scatter, earlier.scatter)
    assert ClassMoments.empty(7, 5).merge(earlier).directions is None
    assert now.merge(earlier).directions is None
    found = collapse_metrics(earlier, only=["dispersion"])["dispersion"]
    assert found.why == "the sum of the features' directions was not collected."


def test_a_feature_of_zero_has_no_direction_and_is_named_as_the_reason() -> None:
    moments = ClassMoments.empty(2, 3)
    moments.update(torch.tensor([[0.0, 0, 0], [1, 0, 0], [0, 1, 0]]), torch.tensor([0, 0, 1]))
    assert collapse_metrics(moments)["dispersion"].why == "a feature is zero and has no direction."


def test_tokens_that_all_point_one_way_have_no_dispersion_and_opposite_ones_have_most() -> None:
    line = torch.linspace(1, 3, 6, dtype=torch.float64)[:, None] * torch.tensor([[0.6, 0.8]], dtype=torch.float64)
    for features, value in ((line, 0.0), (torch.cat([line, -line]), 12 / 11)):
        moments = ClassMoments.empty(2, 2)
        moments.update(features, torch.arange(len(features)) % 2)
        found = collapse_metrics(moments, only=["dispersion"])["dispersion"].value
        assert found == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("tokens", [10, 700], ids=["one part", "several parts"])
@pytest.mark.parametrize("seen", [0, 20])
def test_a_batch_with_a_number_that_is_none_leaves_no_trace(
    bad: float, tokens: int, seen: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(module.PART_BYTES, "cpu", 8 * 4 * 100)
    features, labels = drawn(tokens + seen, 5, 4)
    pair = [ClassMoments.empty(5, 4, covariance=True) for _ in range(2)]
    if seen:
        module.update_all(features[:seen], [(moments, labels[:seen]) for moments in pair])
    before = [stored(moments) for moments in pair]
    features[-1, 2] = bad
    ignoring = labels.clone()
    ignoring[-1] = -100  # one of the two would take the batch
    for second in (labels, ignoring):
        with pytest.raises(ValueError, match=f"1 features are nan or infinite, the first {bad} at token {tokens - 1}"):
            module.update_all(features[seen:], [(pair[0], second[seen:]), (pair[1], labels[seen:])])
        assert [stored(moments) for moments in pair] == before


def stored(moments: ClassMoments) -> list[object]:
    """Everything that moments hold, as lists."""
    fields = {name: value for name, value in vars(moments).items() if isinstance(value, Tensor | None)}
    return [moments.tokens, moments.unit, {name: None if t is None else t.tolist() for name, t in fields.items()}]
