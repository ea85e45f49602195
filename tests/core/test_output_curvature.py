"""Curvature of the loss in the output layer: against a Hessian by finite differences, and what leaves it unchanged."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import oracles
from collapselab.core import output_curvature as module
from collapselab.core.output_curvature import OutputCurvature
from frames import rotation

TOKENS, ROWS, DIM = 9, 7, 4

HEADS = {
    "plain": (False, 1.0, None),
    "with bias": (True, 1.0, None),
    "scaled": (True, 0.5, None),
    "capped": (True, 0.5, 1.5),
}


def drawn(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    sizes = (TOKENS, DIM), (ROWS, DIM), (ROWS,)
    features, weight, bias = (torch.randn(*size, generator=generator, dtype=torch.float64) for size in sizes)
    return features, weight, bias


def logits(features: Tensor, weight: Tensor, bias: Tensor | None, scale: float, softcap: float | None) -> Tensor:
    values = scale * torch.nn.functional.linear(features, weight, bias)
    return values if softcap is None else softcap * torch.tanh(values / softcap)


@pytest.mark.parametrize("name", HEADS)
def test_curvature_is_that_of_a_finite_difference_hessian(name: str) -> None:
    """Σ_{s,t} ⟨w_s, w_t⟩ tr H_st is the sum of second derivatives along all e_d ⊗ w_{·i}; H expected over predictions."""
    with_bias, scale, softcap = HEADS[name]
    features, weight, bias = drawn()
    offset = bias if with_bias else None
    expected = logits(features, weight, offset, scale, softcap).softmax(1)

    def loss(weight: Tensor) -> float:
        return float(-(expected * logits(features, weight, offset, scale, softcap).log_softmax(1)).sum(1).mean())

    trace, size = 0.0, 1e-4
    for d in range(DIM):
        for i in range(DIM):
            direction = torch.zeros_like(weight)
            direction[:, d] = weight[:, i]
            trace += (loss(weight + size * direction) + loss(weight - size * direction) - 2 * loss(weight)) / size**2
    sums = OutputCurvature(weight, offset, scale=scale, softcap=softcap).sums(features)
    assert sums.total / sums.tokens == pytest.approx(trace, rel=1e-5)
    assert trace > 0.1


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_curvature_is_that_of_the_definition_in_loops(name: str, dtype: torch.dtype) -> None:
    with_bias, scale, softcap = HEADS[name]
    features, weight, bias = (one.to(dtype) for one in drawn(1))
    sums = OutputCurvature(weight, bias if with_bias else None, scale=scale, softcap=softcap).sums(features)
    offset = bias.double().numpy() if with_bias else 0 * bias.double().numpy()
    truth = oracles.curvature(features.double().numpy(), weight.double().numpy(), offset, scale=scale, softcap=softcap)
    rel = 1e-12 if dtype == torch.float64 else 1e-5
    assert sums.total / sums.tokens == pytest.approx(truth["curvature"], rel=rel)
    assert sums.total / sums.squares / sums.row_square == pytest.approx(truth["curvature_relative"], rel=rel)


def value(features: Tensor, weight: Tensor, bias: Tensor | None = None) -> float:
    sums = OutputCurvature(weight, bias).sums(features)
    return sums.total / sums.tokens


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1000), offset=st.floats(-100, 100))
def test_turning_both_or_moving_all_rows_alike_changes_nothing(seed: int, offset: float) -> None:
    features, weight, bias = drawn(seed)
    plain, turn = value(features, weight, bias), rotation(DIM, seed)
    assert value(features @ turn, weight @ turn, bias) == pytest.approx(plain, rel=1e-9)
    assert value(features, weight + offset * turn[0], bias) == pytest.approx(plain, rel=1e-6)
    assert value(4 * features, weight / 4, bias) == pytest.approx(plain, rel=1e-12)


@settings(max_examples=20, deadline=None)
@given(cut=st.integers(0, TOKENS), times=st.integers(0, 3))
def test_terms_of_parts_add_up_to_those_of_the_whole(cut: int, times: int) -> None:
    features, weight, bias = drawn()
    curvature = OutputCurvature(weight, bias)
    whole = curvature.terms(torch.cat([features[:cut], *[features[cut:]] * times]))
    added = curvature.terms(features[:cut]) + times * curvature.terms(features[cut:])
    torch.testing.assert_close(added, whole, rtol=1e-12, atol=0)


def test_no_more_than_a_chunk_of_logits_is_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    features, weight, bias = drawn()
    whole, seen = value(features, weight, bias), []
    original = OutputCurvature._chances

    def noted(self: OutputCurvature, some: Tensor) -> tuple[Tensor, Tensor | None]:
        seen.append(len(some))
        return original(self, some)

    monkeypatch.setattr(module, "TOKENS_AT_ONCE", 2)
    monkeypatch.setattr(OutputCurvature, "_chances", noted)
    assert value(features, weight, bias) == pytest.approx(whole, rel=1e-12)
    assert seen == [2, 2, 2, 2, 1]


def test_a_model_that_is_sure_is_flat_and_one_that_knows_nothing_is_known() -> None:
    features, weight, _ = drawn()
    sure = OutputCurvature(weight, torch.tensor([500.0] + 6 * [0.0], dtype=torch.float64)).sums(features)
    assert sure.total == pytest.approx(0, abs=1e-12)
    equal = OutputCurvature(weight, None, scale=1e-12).sums(features)
    spread = float((weight - weight.mean(0)).square().sum(1).mean()) * 1e-24
    assert equal.total == pytest.approx(float(features.square().sum()) * spread, rel=1e-9)


def test_half_precision_is_computed_in_float32() -> None:
    features, weight, bias = (one.bfloat16() for one in drawn())
    wide = value(features.double(), weight.double(), bias.double())
    assert value(features, weight, bias) == pytest.approx(wide, rel=1e-5)
