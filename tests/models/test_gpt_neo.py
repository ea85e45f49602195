import copy
import io
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from transformers import AutoModelForCausalLM, GPTNeoConfig, GPTNeoForCausalLM, LlamaConfig, LlamaForCausalLM
from transformers.models.gpt_neo.modeling_gpt_neo import GPTNeoSelfAttention

from collapselab.models import fused_kernels
from collapselab.models.fused_kernels import FusedSelfAttention, library_config, use_fused_kernels

WINDOW = 4
LAYERS = {1: ["global"], 2: ["global", "local"], 3: ["global", "local", "global"], 4: ["global", "local"] * 2}
PADDINGS = {
    "none": [],
    "left": [(0, slice(0, 3))],
    "right": [(0, slice(-6, None))],
    "both": [(0, slice(0, 2)), (1, slice(-6, None))],
}


def library_model(depth: int = 2, dtype: torch.dtype = torch.float32, **settings: object) -> GPTNeoForCausalLM:
    config = GPTNeoConfig(
        vocab_size=23, max_position_embeddings=24, hidden_size=16, num_layers=depth, num_heads=4, window_size=WINDOW,
        attention_types=[[[kind], 1] for kind in LAYERS[depth]], bos_token_id=0, eos_token_id=0,
        initializer_range=0.4, **settings,  # wide weights make uneven attention
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(depth)
        return GPTNeoForCausalLM(config).to(dtype)


def fused(model: GPTNeoForCausalLM) -> GPTNeoForCausalLM:
    model = copy.deepcopy(model)
    use_fused_kernels(model)
    assert all(type(block.attn.attention) is FusedSelfAttention for block in model.transformer.h)
    return model


def tokens(batch: int, length: int) -> Tensor:
    return torch.randint(1, 23, (batch, length), generator=torch.Generator().manual_seed(length))


def padding(name: str, batch: int, length: int) -> Tensor | None:
    mask = torch.ones(batch, length, dtype=torch.long)
    for row, part in PADDINGS[name]:
        mask[row, part] = 0
    return None if name == "none" else mask


def outputs_and_gradients(model: GPTNeoForCausalLM, ids: Tensor, mask: Tensor | None) -> list[Tensor]:
    model.zero_grad()
    logits = model(ids, attention_mask=mask).logits
    real = logits[torch.ones_like(ids, dtype=torch.bool) if mask is None else mask.bool()]
    weights = torch.linspace(-1, 1, real.numel(), dtype=real.dtype).view_as(real)
    (torch.sin(real) * weights).sum().backward()
    assert torch.isfinite(logits).all()
    return [real.detach(), *(parameter.grad for parameter in model.parameters() if parameter.grad is not None)]


def by_definition(
    self: GPTNeoSelfAttention, query: Tensor, key: Tensor, value: Tensor, mask: Tensor
) -> tuple[Tensor, None]:
    """Each query over the keys it may see, one at a time, in the precision it comes in."""
    out = torch.zeros_like(query)
    window = WINDOW if self.attention_type == "local" else key.shape[2]
    for i in range(query.shape[2]):
        seen = slice(max(0, i - window + 1), i + 1)
        scores = (query[:, :, i, None] * key[:, :, seen]).sum(-1) + mask[:, :, i, seen]
        out[:, :, i] = (torch.softmax(scores, -1)[..., None] * value[:, :, seen]).sum(2)
    return out, None


@pytest.mark.parametrize(
    ("length", "pads"),
    [(length, "none") for length in (1, 3, WINDOW, WINDOW + 1)]
    + [(length, pads) for length in (13, 24) for pads in PADDINGS],
)
@pytest.mark.parametrize("depth", LAYERS)
def test_outputs_and_gradients_are_those_of_the_library(depth: int, length: int, pads: str) -> None:
    slow = library_model(depth)
    expected = outputs_and_gradients(slow, tokens(2, length), padding(pads, 2, length))
    found = outputs_and_gradients(fused(slow), tokens(2, length), padding(pads, 2, length))
    assert len(expected) == len(found) > depth
    for ours, theirs in zip(found, expected, strict=True):
        # Sums of up to a thousand float32 terms of order 1 to 100; seen: 1e-5.
        assert_close(ours, theirs, rtol=1e-4, atol=1e-4 * max(1.0, float(theirs.abs().max())))


@pytest.mark.parametrize("pads", PADDINGS)
@pytest.mark.parametrize("length", [13, 24])
def test_in_float64_it_is_the_definition(length: int, pads: str, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = library_model(4, torch.float64)
    found = outputs_and_gradients(fused(slow), tokens(2, length), padding(pads, 2, length))
    rounded = outputs_and_gradients(slow, tokens(2, length), padding(pads, 2, length))
    monkeypatch.setattr(GPTNeoSelfAttention, "_attn", by_definition)
    expected = outputs_and_gradients(slow, tokens(2, length), padding(pads, 2, length))
    for ours, exact in zip(found, expected, strict=True):
        assert_close(ours, exact, rtol=1e-9, atol=1e-10 * max(1.0, float(exact.abs().max())))
    # The control: the library goes through float32 on the way.
    assert float((rounded[0] - expected[0]).abs().max()) > 1e-9


def test_the_window_matters() -> None:
    slow = library_model()
    wide = fused(slow)
    wide.config.window_size = 24
    ids = tokens(1, 13)
    assert float((wide(ids).logits - slow(ids).logits).detach().abs().max()) > 1e-3


@pytest.mark.parametrize("training", [True, False])
def test_training_and_evaluation_mode_agree_with_the_library(training: bool) -> None:
    slow = library_model(3).train(training)
    quick = fused(slow)
    assert quick.training is training
    assert_close(quick(tokens(2, 13)).logits, slow(tokens(2, 13)).logits, rtol=1e-4, atol=1e-4)


def test_attention_dropout_acts_in_training_alone() -> None:
    quick = fused(library_model(2, attention_dropout=0.5))
    ids = tokens(2, 13)
    assert_close(quick.eval()(ids).logits, quick(ids).logits)
    quick.train()
    assert float((quick(ids).logits - quick(ids).logits).detach().abs().max()) > 1e-3


@torch.no_grad()
def test_bfloat16_is_as_near_to_the_truth_as_the_library() -> None:
    slow = library_model(4).to(torch.bfloat16)
    truth = fused(slow).double()(tokens(4, 24)).logits
    ours, theirs = ((model(tokens(4, 24)).logits - truth).abs().mean() for model in (fused(slow), slow))
    # Both round the weights of attention to bfloat16, in another order.
    assert float(ours) < 1.1 * float(theirs)


def test_autocast_runs_forward_and_backward() -> None:
    quick = fused(library_model(2))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = quick(tokens(2, 13), labels=tokens(2, 13)).loss
    loss.backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in quick.parameters())


@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize("pads", ["none", "left"])
def test_greedy_generation_gives_the_tokens_of_the_library(pads: str, use_cache: bool) -> None:
    slow = library_model(4).eval()
    mask = padding(pads, 2, 6)
    mask = torch.ones(2, 6, dtype=torch.long) if mask is None else mask
    settings = {
        "attention_mask": mask,
        "max_new_tokens": 15,
        "do_sample": False,
        "use_cache": use_cache,
        "pad_token_id": 0,
        "eos_token_id": None,
    }
    expected = slow.generate(tokens(2, 6), **settings)
    assert expected.shape == (2, 21)
    assert_close(fused(slow).generate(tokens(2, 6), **settings), expected)


def test_a_text_in_two_parts_through_the_cache_is_the_whole_text() -> None:
    quick = fused(library_model(4)).eval()
    ids = tokens(2, 17)
    first = quick(ids[:, :9], use_cache=True)
    second = quick(ids[:, 9:], past_key_values=first.past_key_values)
    assert_close(torch.cat([first.logits, second.logits], 1), quick(ids).logits, rtol=1e-4, atol=1e-4)


def test_a_ready_made_mask_is_added_to_the_scores() -> None:
    slow = library_model(2)
    hidden = torch.zeros(1, 1, 13, 13).masked_fill(torch.ones(13, 13).triu(1).bool(), torch.finfo(torch.float32).min)
    hidden[..., 8, 6] = -1.5
    ids = tokens(1, 13)
    assert_close(
        fused(slow)(ids, attention_mask=hidden).logits, slow(ids, attention_mask=hidden).logits, rtol=1e-4, atol=1e-4
    )


def test_later_tokens_change_nothing_and_far_ones_not_past_the_window() -> None:
    quick = fused(library_model(2))
    hidden: list[Tensor] = []
    quick.transformer.h[1].attn.register_forward_hook(lambda module, args, output: hidden.append(output[0]))
    states = torch.randn(1, 13, 16, generator=torch.Generator().manual_seed(0))
    changed = states.clone()
    changed[:, 5] += 1
    for values in (states, changed):
        quick.transformer.h[1].attn(values)
    moved = (hidden[0] - hidden[1]).detach().abs().amax((0, 2)) > 1e-6
    assert moved.nonzero().flatten().tolist() == list(range(5, 5 + WINDOW))


def test_a_saved_model_is_a_standard_checkpoint(tmp_path: Path) -> None:
    slow = library_model(3)
    quick = fused(slow)
    slow.save_pretrained(tmp_path / "slow")
    quick.save_pretrained(tmp_path / "quick")
    assert sorted(path.name for path in (tmp_path / "quick").iterdir()) == sorted(
        path.name for path in (tmp_path / "slow").iterdir()
    )
    for path in (tmp_path / "slow").iterdir():
        assert (tmp_path / "quick" / path.name).read_bytes() == path.read_bytes()
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "quick")
    assert type(loaded.transformer.h[0].attn.attention) is GPTNeoSelfAttention
    use_fused_kernels(loaded)
    assert type(loaded.transformer.h[0].attn.attention) is FusedSelfAttention
    assert_close(loaded(tokens(2, 13)).logits, quick(tokens(2, 13)).logits)
    assert list(loaded.state_dict()) == list(slow.state_dict())


def test_a_model_made_faster_can_be_copied_and_pickled() -> None:
    quick = fused(library_model(2))
    file = io.BytesIO()
    torch.save(quick, file)
    file.seek(0)
    for other in (copy.deepcopy(quick), torch.load(file, weights_only=False)):
        assert type(other.transformer.h[1].attn.attention) is FusedSelfAttention
        assert_close(other(tokens(2, 13)).logits, quick(tokens(2, 13)).logits)


def test_making_it_faster_twice_changes_nothing_more() -> None:
    quick = fused(library_model(2))
    expected = quick(tokens(2, 13)).logits
    use_fused_kernels(quick)
    assert_close(quick(tokens(2, 13)).logits, expected, rtol=0, atol=0)


def test_the_body_alone_can_be_made_faster() -> None:
    slow = library_model(2).transformer
    quick = copy.deepcopy(slow)
    use_fused_kernels(quick)
    assert type(quick.h[0].attn.attention) is FusedSelfAttention
    assert_close(quick(tokens(2, 13)).last_hidden_state, slow(tokens(2, 13)).last_hidden_state, rtol=1e-4, atol=1e-4)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Tensor | None, bool]]:
    """The mask and the causal flag of every fused attention."""
    seen: list[tuple[Tensor | None, bool]] = []

    def spy(*tensors: Tensor, attn_mask: Tensor | None, is_causal: bool, **rest: float) -> Tensor:
        seen.append((attn_mask, is_causal))
        return nn.functional.scaled_dot_product_attention(*tensors, attn_mask=attn_mask, is_causal=is_causal, **rest)

    monkeypatch.setattr("collapselab.models.fused_kernels.scaled_dot_product_attention", spy)
    return seen


def test_without_padding_only_the_window_needs_a_mask(calls: list[tuple[Tensor | None, bool]]) -> None:
    quick = fused(library_model(2))
    quick(tokens(2, WINDOW))
    quick(tokens(2, 13), attention_mask=torch.ones(2, 13, dtype=torch.long))
    shapes = [(None if mask is None else tuple(mask.shape), causal) for mask, causal in calls]
    in_windows = [(None, True), *2 * [((1, 1, WINDOW, 2 * WINDOW), False)], ((1, 1, 1, WINDOW + 1), False)]
    assert shapes == [(None, True), (None, True), (None, True), *in_windows]


@pytest.mark.parametrize("size", [1, 4, 8, 15])
@pytest.mark.parametrize("masked", [False, True])
def test_padding_a_head_with_zeros_changes_neither_values_nor_gradients(size: int, masked: bool) -> None:
    band = torch.ones(70, 70, dtype=torch.bool).tril().triu(-20) if masked else None
    generator = torch.Generator().manual_seed(1)
    query, key, value, upstream = torch.randn(4, 2, 3, 70, size, generator=generator, dtype=torch.float64)

    def with_gradients(attention: Callable[..., Tensor], dtype: torch.dtype) -> list[Tensor]:
        inputs = [one.to(dtype).requires_grad_() for one in (query, key, value)]
        attended = attention(*inputs)
        return [attended, *torch.autograd.grad(attended, inputs, upstream.to(dtype))]

    def padded(*inputs: Tensor) -> Tensor:
        return fused_kernels._attend(*inputs, band, dropout=0.0, causal=band is None)

    def plain(*inputs: Tensor) -> Tensor:
        return nn.functional.scaled_dot_product_attention(*inputs, attn_mask=band, is_causal=band is None, scale=1.0)

    pairs = list(zip(with_gradients(padded, torch.float32), with_gradients(plain, torch.float64), strict=True))
    assert len(pairs) == 4
    for ours, exact in pairs:
        assert_close(ours.double(), exact, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("pads", ["left", "right", "both"])
def test_no_query_is_left_without_a_key(pads: str, calls: list[tuple[Tensor | None, bool]]) -> None:
    fused(library_model(2))(tokens(2, 13), attention_mask=padding(pads, 2, 13))
    assert all(mask is not None and mask.any(-1).all() for mask, _ in calls)


def test_other_families_are_left_alone() -> None:
    config = LlamaConfig(
        vocab_size=23, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=4
    )
    model = LlamaForCausalLM(config)
    kinds = [type(module) for module in model.modules()]
    implementation = model.config._attn_implementation
    use_fused_kernels(model)
    assert [type(module) for module in model.modules()] == kinds
    assert model.config._attn_implementation == implementation


def test_the_library_builds_again_from_the_config_of_a_fast_model() -> None:
    quick = fused(library_model(2))
    again = AutoModelForCausalLM.from_config(library_config(quick.config))
    assert type(again.transformer.h[0].attn.attention) is GPTNeoSelfAttention
    assert quick.config._attn_implementation == "sdpa"
