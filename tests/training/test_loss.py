import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from collapselab.models.scores import BUFFER_BYTES, LogitSpace, Scorer, Scores, in_chunks
from collapselab.models.taps import OutputLayer
from collapselab.training import loss as module

EVERY_OPTION: dict[str, Any] = {"label_smoothing": 0.2, "softcap": 1.5, "scale": 0.7}


def batch(
    tokens: int = 13, dim: int = 5, vocab: int = 11, *, seed: int = 0, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Features, output layer, bias and labels; the inputs want gradients."""
    generator = torch.Generator().manual_seed(seed)
    sizes = ((tokens, dim), (vocab, dim), (vocab,))
    inputs = [torch.randn(size, generator=generator, dtype=torch.float64).to(dtype).requires_grad_() for size in sizes]
    return inputs[0], inputs[1], inputs[2], torch.randint(0, vocab, (tokens,), generator=generator)


def next_token_loss(
    features: Tensor,
    weight: Tensor,
    labels: Tensor,
    *,
    bias: Tensor | None = None,
    softcap: float | None = None,
    scale: float = 1.0,
    **options: Any,
) -> Tensor:
    return module.next_token_loss(features, OutputLayer(weight, bias, scale, softcap), labels, **options)


def plain_logits(
    features: Tensor, weight: Tensor, bias: Tensor | None = None, *, softcap: float | None = None, scale: float = 1.0
) -> Tensor:
    logits = scale * F.linear(features, weight, bias)
    return logits if softcap is None else softcap * torch.tanh(logits / softcap)


def plain_loss(
    features: Tensor,
    weight: Tensor,
    labels: Tensor,
    *,
    bias: Tensor | None = None,
    softcap: float | None = None,
    scale: float = 1.0,
    **options: Any,
) -> Tensor:
    return F.cross_entropy(plain_logits(features, weight, bias, softcap=softcap, scale=scale), labels, **options)


def gradients(loss: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(loss, inputs)


def test_a_head_of_zeros_costs_the_logarithm_of_the_vocabulary() -> None:
    features, weight, _, labels = batch(vocab=11)
    assert next_token_loss(features, torch.zeros_like(weight), labels).item() == pytest.approx(math.log(11))


@pytest.mark.parametrize("chunk", [1, 4, None])
@pytest.mark.parametrize("options", [{}, {"label_smoothing": 0.2}, {"softcap": 1.5}, {"scale": 0.7}, EVERY_OPTION])
def test_gradients_are_those_of_finite_differences(options: dict[str, Any], chunk: int | None) -> None:
    features, weight, bias, labels = batch(tokens=7)
    labels[2] = labels[5] = -100
    assert torch.autograd.gradcheck(
        lambda h, w, b: next_token_loss(h, w, labels, bias=b, chunk=chunk, **options), (features, weight, bias)
    )


def test_a_plain_value_is_without_smoothing_and_its_gradient_with_it() -> None:
    features, weight, bias, labels = batch(tokens=7)

    def loss_and_gradient(**options: Any) -> tuple[Tensor, Tensor]:
        loss = next_token_loss(features, weight, labels, bias=bias, **options)
        return loss, torch.autograd.grad(loss, features)[0]

    smoothed, of_smoothed = loss_and_gradient(label_smoothing=0.2)
    shown, of_shown = loss_and_gradient(label_smoothing=0.2, plain_value=True)
    plain, of_plain = loss_and_gradient()
    assert torch.equal(shown, plain)
    assert torch.equal(of_shown, of_smoothed)
    assert smoothed != plain
    assert not torch.equal(of_plain, of_smoothed)


@given(
    tokens=st.integers(1, 40),
    dim=st.integers(1, 9),
    vocab=st.integers(1, 70),
    chunk=st.none() | st.integers(1, 50),
    biased=st.booleans(),
    label_smoothing=st.sampled_from([0.0, 0.1, 1.0]),
    softcap=st.sampled_from([None, 0.5, 30.0]),
    scale=st.sampled_from([1.0, 0.25, -2.0]),
    ignored=st.sampled_from([0.0, 0.5]),
    seed=st.integers(0, 999),
)
def test_value_and_gradients_are_those_of_cross_entropy(
    tokens: int,
    dim: int,
    vocab: int,
    chunk: int | None,
    biased: bool,
    label_smoothing: float,
    softcap: float | None,
    scale: float,
    ignored: float,
    seed: int,
) -> None:
    features, weight, bias, labels = batch(tokens, dim, vocab, seed=seed)
    labels[1:][torch.rand(tokens - 1, generator=torch.Generator().manual_seed(seed)) < ignored] = -100
    inputs = (features, weight, bias) if biased else (features, weight)
    options: dict[str, Any] = {"label_smoothing": label_smoothing, "softcap": softcap, "scale": scale}
    options["bias"] = bias if biased else None
    ours = next_token_loss(features, weight, labels, chunk=chunk, **options)
    theirs = plain_loss(features, weight, labels, **options)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(gradients(ours, *inputs), gradients(theirs, *inputs), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("options", [{}, EVERY_OPTION])
def test_float32_is_within_its_rounding_of_float64(options: dict[str, Any]) -> None:
    features, weight, bias, labels = batch(300, 32, 500, dtype=torch.float32)
    wide = [one.detach().double().requires_grad_() for one in (features, weight, bias)]
    ours = next_token_loss(features, weight, labels, bias=bias, **options)
    exact = plain_loss(wide[0], wide[1], labels, bias=wide[2], **options)
    assert ours.item() == pytest.approx(exact.item(), rel=1e-6)
    for found, wanted in zip(gradients(ours, features, weight, bias), gradients(exact, *wide), strict=True):
        # The largest error against the largest entry: small entries are differences of large ones.
        assert float((found - wanted).abs().max()) < 3e-6 * float(wanted.abs().max())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_multiplied_in_float32_and_gets_gradients_of_its_own_dtype(dtype: torch.dtype) -> None:
    features, weight, bias, labels = batch(50, 16, 80, dtype=dtype)
    wide = [one.detach().double().requires_grad_() for one in (features, weight, bias)]
    ours = next_token_loss(features, weight, labels, bias=bias)
    exact = plain_loss(wide[0], wide[1], labels, bias=wide[2])
    assert ours.dtype == torch.float32
    assert ours.item() == pytest.approx(exact.item(), rel=1e-6)
    for found, wanted in zip(gradients(ours, features, weight, bias), gradients(exact, *wide), strict=True):
        assert found.dtype == dtype
        # One rounding to the input's dtype: half a unit in the last place, or half the smallest number there is.
        unit = torch.finfo(dtype)
        torch.testing.assert_close(found.double(), wanted, rtol=unit.eps * 0.51, atol=unit.smallest_normal * unit.eps)


def test_autocast_gives_the_same_loss_and_gradients_of_the_inputs_dtype() -> None:
    features, weight, bias, labels = batch(50, 16, 80, dtype=torch.float32)
    half = features.detach().bfloat16().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        ours = next_token_loss(features, weight, labels, bias=bias)
        mixed = next_token_loss(half, weight, labels, bias=bias)
    assert torch.equal(ours, next_token_loss(features, weight, labels, bias=bias))
    assert [one.dtype for one in gradients(ours, features, weight, bias)] == [torch.float32] * 3
    assert [one.dtype for one in gradients(mixed, half, weight)] == [torch.bfloat16, torch.float32]


def test_a_probability_too_small_for_a_float_still_has_its_loss() -> None:
    features = torch.tensor([[1.0], [0.0], [2.0]], requires_grad=True)
    weight, labels = torch.tensor([[300.0], [0.0]], requires_grad=True), torch.tensor([1, 0, 1])
    assert -torch.softmax(plain_logits(features, weight), 1)[0, 1].log() == torch.inf
    ours, theirs = next_token_loss(features, weight, labels), plain_loss(features, weight, labels)
    assert ours.item() == pytest.approx((300 + math.log(2) + 600) / 3)
    torch.testing.assert_close(gradients(ours, features, weight), gradients(theirs, features, weight))


def test_a_confident_token_keeps_the_digits_of_its_small_loss() -> None:
    features, weight, labels = torch.tensor([[1.0]]), torch.tensor([[1000.0], [990.0]]), torch.tensor([0])
    assert float(next_token_loss(features, weight, labels)) == pytest.approx(math.log1p(math.exp(-10)), rel=2e-3)
    naive = torch.logsumexp(features @ weight.T, 1) - (features @ weight.T)[:, 0]
    assert float(naive) != pytest.approx(math.log1p(math.exp(-10)), rel=2e-3)


def test_classes_may_be_masked_by_a_bias_of_minus_infinity() -> None:
    features, weight, bias, labels = batch()
    bias = bias.detach().clone()
    bias[3], labels[labels == 3] = -torch.inf, 4
    ours, theirs = next_token_loss(features, weight, labels, bias=bias), plain_loss(features, weight, labels, bias=bias)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(gradients(ours, features, weight), gradients(theirs, features, weight))


@pytest.mark.parametrize("factor", [1.0, 0.25, -3.0, 0.0])
def test_any_gradient_of_the_loss_is_passed_on(factor: float) -> None:
    features, weight, bias, labels = batch()
    ours = factor * next_token_loss(features, weight, labels, bias=bias)
    theirs = factor * plain_loss(features, weight, labels, bias=bias)
    torch.testing.assert_close(gradients(ours, features, weight, bias), gradients(theirs, features, weight, bias))


@pytest.mark.parametrize("wanted", [(0,), (1,), (2,), (0, 2)])
def test_only_the_gradients_asked_for_are_there(wanted: tuple[int, ...]) -> None:
    *inputs, labels = batch()
    for at, one in enumerate(inputs):
        one.requires_grad_(at in wanted)
    features, weight, bias = inputs
    next_token_loss(features, weight, labels, bias=bias).backward()
    assert [at for at, one in enumerate(inputs) if one.grad is not None] == list(wanted)
    exact = gradients(plain_loss(features, weight, labels, bias=bias), *(inputs[at] for at in wanted))
    torch.testing.assert_close(tuple(inputs[at].grad for at in wanted), exact)


def test_no_gradient_is_formed_where_none_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    features, weight, bias, labels = batch()
    wanted = next_token_loss(features, weight, labels, bias=bias, **EVERY_OPTION)

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("a gradient was formed")

    monkeypatch.setattr("collapselab.training.loss._to_gradient", fail)
    with torch.no_grad():
        loss = next_token_loss(features, weight, labels, bias=bias, **EVERY_OPTION)
    detached = next_token_loss(features.detach(), weight.detach(), labels, bias=bias.detach(), **EVERY_OPTION)
    assert not loss.requires_grad
    assert not detached.requires_grad
    assert torch.equal(loss, wanted)
    assert torch.equal(detached, wanted)
    with pytest.raises(AssertionError, match="formed"):
        next_token_loss(features, weight, labels)


def test_tied_weights_get_the_sum_of_both_gradients() -> None:
    _, table, _, labels = batch()
    ids = labels.roll(1)
    ours, theirs = next_token_loss(table[ids], table, labels), plain_loss(table[ids], table, labels)
    torch.testing.assert_close(gradients(ours, table), gradients(theirs, table))


def test_features_and_head_may_be_transposed_views() -> None:
    features, weight, _, labels = batch()
    turned, head = features.detach().T.contiguous().T, weight.detach().T.contiguous().T
    ours = next_token_loss(turned.requires_grad_(), head.requires_grad_(), labels, chunk=3)
    theirs = plain_loss(features, weight, labels)
    torch.testing.assert_close(gradients(ours, turned, head), gradients(theirs, features, weight))


def test_a_second_derivative_is_refused() -> None:
    features, weight, _, labels = batch()
    with pytest.raises(RuntimeError, match="next_token_loss has no second derivative. Call backward without"):
        torch.autograd.grad(next_token_loss(features, weight, labels), features, create_graph=True)


def test_backward_over_a_kept_graph_adds_up_whatever_became_of_the_first_gradients() -> None:
    features, weight, _, labels = batch()
    loss = next_token_loss(features, weight, labels)
    for _ in range(3):
        loss.backward(retain_graph=True)
    features.grad.mul_(10)
    loss.backward()
    (of_features, of_weight) = gradients(plain_loss(features, weight, labels), features, weight)
    torch.testing.assert_close((features.grad, weight.grad), (31 * of_features, 4 * of_weight))


def test_a_loss_that_is_not_finite_is_returned() -> None:
    features, weight, _, labels = batch()
    with torch.no_grad():
        features[2, 1] = torch.nan
    assert torch.isnan(next_token_loss(features, weight, labels))


@given(cut=st.integers(0, 40), chunk=st.none() | st.integers(1, 50), seed=st.integers(0, 99), capped=st.booleans())
def test_scores_are_those_of_the_whole_logits_and_add_up(cut: int, chunk: int | None, seed: int, capped: bool) -> None:
    features, weight, bias, labels = batch(40, 3, 6, seed=seed)
    labels[::7] = -100
    head = OutputLayer(weight, bias, scale=1.5, softcap=2.0 if capped else None)
    scorer = Scorer(head, chunk=chunk)
    scores = scorer.scores(features[:cut], labels[:cut]) + scorer.scores(features[cut:], labels[cut:])
    logits, used = plain_logits(features, weight, bias, softcap=head.softcap, scale=1.5), labels != -100
    assert scores.correct == int((logits.argmax(1) == labels)[used].sum())
    assert scores.tokens == int(used.sum())
    assert scores.loss == pytest.approx(F.cross_entropy(logits, labels).item(), rel=1e-12)
    assert scores.accuracy == scores.correct / scores.tokens


def test_equal_logits_are_right_only_for_the_first_class() -> None:
    scores = Scorer(OutputLayer(torch.zeros(5, 3))).scores(torch.zeros(4, 3), torch.tensor([0, 1, 2, 0]))
    assert scores == Scores(pytest.approx(4 * math.log(5)), correct=2, tokens=4)


def test_no_tokens_have_scores_of_nothing() -> None:
    features, weight, _, labels = batch()
    assert Scorer(OutputLayer(weight)).scores(features, torch.full_like(labels, -100)) == Scores()
    assert math.isnan(Scores().loss)
    assert math.isnan(Scores().accuracy)


def test_labels_outside_the_vocabulary_are_refused() -> None:
    features, weight, bias, _ = batch(dtype=torch.float32)
    labels = torch.tensor([3, 11, -1] + [-100] * 10)
    message = "2 of 13 labels are outside 0 … 10, the first 11"
    with pytest.raises(ValueError, match=message):
        next_token_loss(features, weight, labels, bias=bias)
    with pytest.raises(ValueError, match=message):
        Scorer(OutputLayer(weight, bias)).scores(features, labels)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_half_precision_layer_is_widened_once_for_all_batches(dtype: torch.dtype) -> None:
    features, weight, bias, labels = (one.detach() for one in batch(dtype=torch.float32))
    scorer = Scorer(OutputLayer(weight.to(dtype), bias.to(dtype)))
    first = scorer.scores(features.to(dtype), labels)
    widened = scorer._widened.weight
    assert scorer.scores(features.to(dtype), labels) == first
    assert scorer._widened.weight is widened
    logits = plain_logits(features.to(dtype).float(), weight.to(dtype).float(), bias.to(dtype).float())
    assert first.loss == pytest.approx(F.cross_entropy(logits, labels).item(), rel=1e-5)


def test_batches_that_share_their_logits_memory_have_the_losses_of_batches_that_do_not() -> None:
    space = LogitSpace()
    with torch.inference_mode():  # evaluation comes first in training, and must leave the memory usable
        space.of(4, 11, like=torch.zeros(1, dtype=torch.float64))
    for seed, tokens in enumerate((13, 40, 7)):
        features, weight, bias, labels = batch(tokens, 5, 11, seed=seed)
        kept = next_token_loss(features, weight, labels, bias=bias, space=space)
        alone = next_token_loss(features, weight, labels, bias=bias)
        assert torch.equal(kept, alone)
        for ours, theirs in zip(gradients(kept, features, weight), gradients(alone, features, weight), strict=True):
            assert torch.equal(ours, theirs)


def test_logits_memory_is_new_only_where_it_must_be() -> None:
    space, like = LogitSpace(), torch.zeros(1)
    first = space.of(6, 4, like=like)
    assert space.of(3, 8, like=like).data_ptr() == first.data_ptr()
    assert space.of(2, 5, like=like).shape == (2, 5)
    assert space.of(5, 5, like=like).data_ptr() != first.data_ptr()
    assert space.of(1, 1, like=like.double()).dtype == torch.float64


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("softcap", [None, 3.0])
def test_rows_of_logits_are_aligned_and_the_gaps_between_them_change_nothing(
    biased: bool, softcap: float | None
) -> None:
    tokens, vocab, space = 9, 1027, LogitSpace()
    features, weight, bias, labels = batch(tokens, 5, vocab)
    rows = space.of(tokens, vocab, like=features)
    assert rows.stride(0) * rows.element_size() % 64 == 0
    rows.as_strided((tokens, rows.stride(0)), (rows.stride(0), 1)).fill_(torch.nan)  # what another use may leave
    given = bias if biased else None
    ours = next_token_loss(features, weight, labels, bias=given, softcap=softcap, chunk=4, space=space)
    theirs = F.cross_entropy(plain_logits(features, weight, given, softcap=softcap), labels)
    assert ours.item() == pytest.approx(theirs.item(), rel=1e-12)
    for one, other in zip(gradients(ours, features, weight), gradients(theirs, features, weight), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)
    scores = Scorer(OutputLayer(weight.detach(), None if given is None else given.detach(), softcap=softcap)).scores(
        features.detach(), labels
    )
    assert scores.loss == pytest.approx(theirs.item(), rel=1e-12)


def test_no_chunk_is_a_mere_remainder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BUFFER_BYTES, "cpu", 4 * 11 * 200)
    features, weight, _, _ = batch(401, 5, 11, dtype=torch.float32)
    sizes = [
        rows.stop - rows.start for rows, _ in in_chunks(OutputLayer(weight.detach()), features.detach(), None, None)
    ]
    assert sizes == [134, 134, 133]


def test_a_loss_needs_a_label() -> None:
    features, weight, _, labels = batch()
    with pytest.raises(ValueError, match="no label is left that is not -100; a mean needs at least one"):
        next_token_loss(features, weight, torch.full_like(labels, -100))
    with pytest.raises(ValueError, match="no label is left"):
        next_token_loss(features[:0], weight, labels[:0])
