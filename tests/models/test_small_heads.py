"""Attention of small heads against its definition, the fused kernel, and finite differences."""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from torch.testing import assert_close

from collapselab.core.threads import threads
from collapselab.models import fused_kernels, small_heads
from collapselab.models.build import build_config, build_model
from collapselab.models.fused_kernels import FusedSelfAttention
from collapselab.models.small_heads import causal_attention, suits_small_heads

SHAPES = [(2, 3, 1, 4), (1, 2, 7, 1), (2, 4, 64, 2), (3, 2, 65, 8), (1, 16, 200, 4), (0, 2, 3, 4)]


def _inputs(shape: tuple[int, ...], dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Query, key and value as a model has them: heads beside each other in the features of a token."""
    batch, heads, tokens, size = shape
    generator = torch.Generator().manual_seed(1)
    return [
        torch.randn(batch, tokens, heads, size, generator=generator, dtype=dtype).transpose(1, 2).requires_grad_()
        for _ in range(3)
    ]


@pytest.mark.parametrize("shape", SHAPES)
def test_every_query_is_the_mean_of_the_values_up_to_it_weighted_by_softmax(shape: tuple[int, ...]) -> None:
    query, key, value = (one.detach() for one in _inputs(shape))
    attended = causal_attention(query, key, value)
    assert attended.shape == shape
    for batch in range(shape[0]):
        for head in range(shape[1]):
            for token in range(shape[2]):
                scores = [float(query[batch, head, token] @ key[batch, head, one]) for one in range(token + 1)]
                weights = [math.exp(score - max(scores)) for score in scores]
                mean = sum(w * value[batch, head, one] for one, w in enumerate(weights)) / sum(weights)
                assert_close(attended[batch, head, token], mean, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("group", [1, 64 * 65 * 4, 1 << 18])
@pytest.mark.parametrize("shape", SHAPES)
def test_values_and_gradients_are_the_fused_kernels(
    shape: tuple[int, ...], group: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_heads, "GROUP", group)
    ours, kernel = _gradients(causal_attention, shape), _gradients(_kernel, shape)
    assert len(ours) == 4
    for one, other in zip(ours, kernel, strict=True):
        assert_close(one, other, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("number", [1, 2], ids=["one thread", "two threads"])
@pytest.mark.parametrize("kept", [0, 1000], ids=["computed again", "kept"])
@pytest.mark.parametrize("window", [None, 1, 20, 64, 100, 500])
def test_a_window_and_weights_that_are_not_kept_give_the_fused_kernels_values_and_gradients(
    window: int | None, kept: int, number: int, monkeypatch: pytest.MonkeyPatch, one_thread: None
) -> None:
    torch.set_num_threads(number)
    monkeypatch.setattr(small_heads, "KEPT_TOKENS", kept)
    monkeypatch.setattr(small_heads, "GROUP", 64 * 64 * 2)
    shape = (2, 5, 210, 3)
    band = torch.ones(210, 210, dtype=torch.bool).tril().triu(-210 if window is None else 1 - window)

    def masked(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return scaled_dot_product_attention(query, key, value, attn_mask=band, scale=1.0)

    ours, kernel = _gradients(partial(causal_attention, window=window), shape), _gradients(masked, shape)
    for one, other in zip(ours, kernel, strict=True):
        assert_close(one, other, rtol=1e-11, atol=1e-12)
    again = _gradients(partial(causal_attention, window=window), shape)
    assert all(torch.equal(one, other) for one, other in zip(ours, again, strict=True))
    assert torch.get_num_threads() == number


@pytest.mark.parametrize("tokens", [100, 300], ids=["whose weights are kept for gradients", "computed again"])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_threads_run_in_the_mode_of_the_caller(mode: Callable[[], Any], tokens: int, one_thread: None) -> None:
    torch.set_num_threads(2)
    query, key, value = (one.detach() for one in _inputs((8, 16, tokens, 4), torch.float32))
    with mode():
        inputs = [one * 1 for one in (query, key, value)]
        attended = causal_attention(*inputs)
        assert attended.is_inference() == torch.is_inference_mode_enabled()
        assert_close(attended, _kernel(*inputs), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("tokens", [200, 300], ids=["short", "long"])
@pytest.mark.parametrize("wanted", [False, True])
def test_weights_are_kept_for_gradients_alone_and_only_of_short_blocks(wanted: bool, tokens: int) -> None:
    query, key, value = (one.detach().requires_grad_(wanted) for one in _inputs((1, 2, tokens, 4)))
    saved: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: saved.append(tensor.numel()), lambda _: None):
        causal_attention(query, key, value)
    of_weights = sum(numel for numel in saved if numel != query.numel())
    assert bool(saved) == wanted
    assert (of_weights > 2 * tokens**2 / 2) == (wanted and tokens == 200)


def test_gradients_are_those_of_finite_differences() -> None:
    inputs = [one.detach().contiguous().requires_grad_() for one in _inputs((1, 2, 5, 2))]
    assert torch.autograd.gradcheck(causal_attention, inputs)


def test_a_later_token_changes_nothing_before_it() -> None:
    query, key, value = (one.detach() for one in _inputs((1, 2, 130, 4), torch.float32))
    before = causal_attention(query, key, value)
    key[:, :, 70], value[:, :, 70] = 5.0, math.nan
    after = causal_attention(query, key, value)
    assert torch.equal(after[:, :, :64], before[:, :, :64])
    assert after[:, :, 70:].isnan().all()


@pytest.mark.parametrize("size", [1, 4, 8, 15])
@pytest.mark.parametrize("masked", [False, True])
def test_zeros_that_fill_a_head_change_neither_values_nor_gradients(size: int, masked: bool) -> None:
    shape = (2, 3, 70, size)
    band = torch.ones(70, 70, dtype=torch.bool).tril().triu(-20) if masked else None

    def filled(*inputs: Tensor) -> Tensor:
        return fused_kernels._attend(*inputs, band, dropout=0.0, causal=band is None)

    def plain(*inputs: Tensor) -> Tensor:
        return scaled_dot_product_attention(*inputs, attn_mask=band, is_causal=band is None, scale=1.0)

    ours, exact = _gradients(filled, shape, torch.float32), _gradients(plain, shape)
    assert ours[0].shape == shape
    for one, other in zip(ours, exact, strict=True):
        assert_close(one.double(), other, rtol=1e-4, atol=1e-5)


@pytest.fixture
def one_thread() -> Iterator[None]:
    with threads(1):
        yield


@pytest.mark.usefixtures("one_thread")
def test_it_is_for_small_heads_in_full_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    def suits(tokens: int, size: int, dtype: torch.dtype = torch.float32) -> bool:
        return suits_small_heads(torch.zeros(1, 1, tokens, size, dtype=dtype))

    assert suits(256, 8)
    assert suits(2, 1, torch.float64)
    assert suits(2048, 8)
    assert not suits(2049, 8)
    assert not suits(256, 16)
    assert not suits(256, 8, torch.bfloat16)
    torch.set_num_threads(2)
    assert suits(256, 8)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert not suits(256, 8)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(("head_size", "used"), [(None, True), (16, False)])
def test_a_model_uses_it_where_its_heads_are_small(
    head_size: int | None, used: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[int, int | None]] = []

    def noted(query: Tensor, key: Tensor, value: Tensor, *, window: int | None) -> Tensor:
        calls.append((query.shape[-1], window))
        return causal_attention(query, key, value, window=window)

    monkeypatch.setattr("collapselab.models.fused_kernels.causal_attention", noted)
    config = build_config("gpt-neo", width=64, depth=2, vocabulary=50, positions=32, head_size=head_size)
    config.window_size = 20
    model = build_model(config, seed=0)
    assert any(isinstance(module, FusedSelfAttention) for module in model.modules())
    model(torch.zeros(2, 32, dtype=torch.int64))
    assert calls == ([(4, None), (4, 20)] if used else [])  # the second layer is local
    calls.clear()
    model(torch.zeros(2, 19, dtype=torch.int64))
    assert calls == ([(4, None), (4, None)] if used else [])


def _gradients(
    attention: Callable[..., Tensor], shape: tuple[int, ...], dtype: torch.dtype = torch.float64
) -> list[Tensor]:
    inputs = [one.detach().to(dtype).requires_grad_() for one in _inputs(shape)]
    attended = attention(*inputs)
    upstream = torch.randn(attended.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    return [attended, *torch.autograd.grad(attended, inputs, upstream.to(dtype))]


def _kernel(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return scaled_dot_product_attention(query, key, value, is_causal=True, scale=1.0)
