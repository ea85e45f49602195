"""The tapped layer applied to the tapped features gives the model's logits, whatever the architecture."""

import gc
import weakref
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
import transformers
from torch import Tensor, nn
from torch.testing import assert_close

from collapselab.errors import ModelError
from collapselab.models.taps import bare_model, features, layer_features, layer_names, output_layer
from models.families import DEPTH, FAMILIES, VOCABULARY, after_the_blocks, model_of

LAYERS = [*(str(number + 1) for number in range(DEPTH)), "last"]


@pytest.fixture
def ids() -> Tensor:
    return torch.randint(3, VOCABULARY, (2, 9), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", FAMILIES)
def test_layer_and_features_give_the_models_logits(name: str, ids: Tensor) -> None:
    model = model_of(name)
    with torch.no_grad():
        expected = model(input_ids=ids, use_cache=False).logits
        layer = output_layer(model)
        found = layer.logits(features(model, ids))
        again = model(input_ids=ids, use_cache=False).logits
    assert expected.std() > 1e-3
    assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert_close(again, expected, rtol=0, atol=0)


def test_cap_scale_and_bias_are_found() -> None:
    capped = output_layer(model_of("gemma2 (soft cap)"))
    assert (capped.scale, capped.softcap) == (1.0, pytest.approx(3.0, rel=1e-6))
    assert output_layer(model_of("cohere (scale)")).scale == pytest.approx(0.25, rel=1e-5)
    assert output_layer(model_of("granite (scale)")).scale == pytest.approx(0.25, rel=1e-5)
    assert output_layer(model_of("granite (scale of a third)")).scale == pytest.approx(1 / 3, rel=2e-7)
    assert output_layer(model_of("gpt-j (bias)")).bias is not None
    plain = output_layer(model_of("gpt2"))
    assert (plain.scale, plain.softcap, plain.bias) == (1.0, None, None)


def test_the_projection_of_opt_is_before_the_feature(ids: Tensor) -> None:
    assert features(model_of("opt (projection)"), ids).shape == (2, 9, 16)


def test_a_padded_vocabulary_is_kept_whole(ids: Tensor) -> None:
    model = model_of("llama (padded vocabulary)")
    assert output_layer(model).logits(features(model, ids)).shape == (2, 9, 96)


@pytest.mark.parametrize("name", FAMILIES)
def test_layers_are_the_outputs_of_the_blocks_before_the_final_norm(name: str, ids: Tensor) -> None:
    model = model_of(name)
    with torch.no_grad():
        expected = model(input_ids=ids, use_cache=False, output_hidden_states=True).hidden_states
        layers = layer_features(model, ids)
        last = after_the_blocks(name, model)(layers[str(DEPTH)])
        entering = features(model, ids)
    assert list(layers) == layer_names(model) == LAYERS
    inputs = 0 if name in ("rwkv", "mamba") else 1  # these two do not list the input of the first block
    for number in range(1, DEPTH):
        assert_close(layers[str(number)], expected[number - 1 + inputs], rtol=0, atol=0)
        assert (layers[str(number)] - layers[str(number + 1)]).abs().max() > 1e-3
    assert_close(last, layers["last"], rtol=0, atol=0)
    assert_close(entering, layers["last"], rtol=0, atol=0)


@pytest.mark.parametrize("name", FAMILIES)
def test_all_layers_come_from_one_pass_and_nothing_changes_them_later(name: str, ids: Tensor) -> None:
    model = model_of(name)
    calls: Counter[str] = Counter()
    for part in (model, model.base_model):
        part.register_forward_pre_hook(lambda module, _: calls.update([type(module).__name__]))
    at_once: dict[str, Tensor] = {}
    with torch.no_grad():
        nothing = layer_features(model, ids, take=lambda layer, hidden: at_once.update({layer: hidden.clone()}))
        assert set(calls.values()) == {1}
        kept = layer_features(model, ids)
    assert nothing == {}
    assert list(at_once) == list(kept) == LAYERS
    assert_close(kept, at_once, rtol=0, atol=0)


def test_layers_that_are_not_kept_are_freed_while_the_model_runs(ids: Tensor) -> None:
    model = model_of("llama")
    alive: dict[str, weakref.ref[Tensor]] = {}
    most: list[int] = []

    def look(layer: str, hidden: Tensor) -> None:
        alive[layer] = weakref.ref(hidden)
        most.append(sum(one() is not None for one in alive.values()))

    gc.disable()  # freed by the last reference, not by a collection
    try:
        with torch.no_grad():
            layer_features(model, ids, take=look)
        assert most == [1, 2, 2, 1]  # a block's input lives as long as the block runs, no longer
        assert [one() for one in alive.values()] == [None] * len(LAYERS)
    finally:
        gc.enable()


def test_a_taker_that_fails_leaves_the_model_as_it_was(ids: Tensor) -> None:
    model = model_of("gpt2")
    expected = model(input_ids=ids).logits

    def fail(layer: str, _: Tensor) -> None:
        raise ArithmeticError(layer)

    with pytest.raises(ArithmeticError, match="1"):
        layer_features(model, ids, take=fail)
    assert_close(model(input_ids=ids).logits, expected, rtol=0, atol=0)
    assert not any(module._forward_hooks for module in model.modules())


@pytest.mark.parametrize("call", [features, layer_features])
def test_no_logits_are_computed(call: Any, ids: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of("llama")
    widths: list[int] = []
    original = nn.functional.linear

    def recording(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        widths.append(len(weight))
        return original(x, weight, bias)

    monkeypatch.setattr(nn.functional, "linear", recording)
    call(model, ids)
    assert widths
    assert VOCABULARY not in widths
    model(input_ids=ids)
    assert VOCABULARY in widths


def test_gradients_flow_to_the_whole_body(ids: Tensor) -> None:
    model = model_of("gpt2")
    features(model, ids).square().sum().backward()
    missing = [name for name, parameter in model.named_parameters() if parameter.grad is None]
    assert missing == []  # the output layer is tied to the input embedding


def test_padding_is_handed_on(ids: Tensor) -> None:
    model = model_of("gpt-neo")
    mask = torch.ones_like(ids)
    mask[0, :4] = 0
    with torch.no_grad():
        expected = model(input_ids=ids, attention_mask=mask, use_cache=False).logits
        found = output_layer(model).logits(features(model, ids, attention_mask=mask))
    assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_layers_have_gradients_where_they_are_asked_for(ids: Tensor) -> None:
    model = model_of("gpt2")
    layer_features(model, ids)["2"].sum().backward()
    assert [block.ln_1.weight.grad is not None for block in model.transformer.h] == [True, True, False]


@pytest.fixture
def process_group() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("process_group")
def test_a_model_in_a_wrapper_is_tapped_through_the_wrapper(ids: Tensor) -> None:
    model = model_of("granite (scale)")
    expected, layer = layer_features(model, ids), output_layer(model)
    wrapped = nn.parallel.DistributedDataParallel(model)
    calls: list[str] = []
    wrapped.register_forward_pre_hook(lambda *_: calls.append("forward"))
    assert bare_model(wrapped) is model
    assert_close(features(wrapped, ids), expected["last"], rtol=0, atol=0)
    assert_close(layer_features(wrapped, ids), expected, rtol=0, atol=0)
    assert calls == ["forward", "forward"]
    assert output_layer(wrapped).weight is layer.weight
    assert output_layer(wrapped).scale == layer.scale
    with pytest.raises(ModelError, match="^Linear: has no output layer"):
        output_layer(nn.parallel.DistributedDataParallel(nn.Linear(2, 2)))


def test_a_compiled_model_stays_compiled_and_is_compiled_once(ids: Tensor) -> None:
    model = model_of("granite (scale)")
    expected, layer = layer_features(model, ids), output_layer(model)
    graphs: list[str] = []

    def record(graph: Any, _: Any) -> Any:
        graphs.append("compiled")
        return graph.forward

    compiled: Any = torch.compile(model, backend=record)
    assert bare_model(compiled) is model
    for _ in range(3):
        assert_close(features(compiled, ids), expected["last"], rtol=1e-5, atol=1e-6)
    once = len(graphs)
    assert once >= 1
    taken: list[str] = []
    for _ in range(3):
        layer_features(compiled, ids, take=lambda name, _: taken.append(name))
        assert_close(layer_features(compiled, ids), expected, rtol=1e-5, atol=1e-6)
    assert taken == LAYERS * 3
    assert output_layer(compiled).scale == layer.scale
    features(compiled, ids)
    assert len(graphs) == once
    torch.compiler.reset()


def test_half_precision_models_can_be_tapped(ids: Tensor) -> None:
    model = model_of("gemma2 (soft cap)").to(torch.bfloat16)
    layer = output_layer(model)
    assert (layer.scale, layer.softcap) == (1.0, pytest.approx(3.0, rel=1e-2))
    assert features(model, ids).dtype == torch.bfloat16


REFUSED = {
    "encoder-decoder": (lambda: transformers.T5ForConditionalGeneration(transformers.T5Config(vocab_size=60, d_model=16, d_kv=4, d_ff=16, num_layers=1, num_heads=2, decoder_start_token_id=0)), "T5ForConditionalGeneration: an encoder-decoder"),
    "encoder": (lambda: transformers.BertModel(transformers.BertConfig(vocab_size=60, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)), "BertModel: has no output layer over tokens"),
    "masked": (lambda: transformers.BertForMaskedLM(transformers.BertConfig(vocab_size=60, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)), "BertForMaskedLM: sees the whole text at once"),
    "not of the library": (lambda: nn.Linear(2, 2), "Linear: has no output layer over tokens"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_a_causal_language_model_is_refused_by_name(case: str) -> None:
    make, message = REFUSED[case]
    with pytest.raises(ModelError, match=message):
        output_layer(make())


def test_blocks_that_are_not_found_are_refused_and_the_last_layer_is_still_there(ids: Tensor) -> None:
    class Hidden(nn.Module):
        def __init__(self, blocks: Any) -> None:
            super().__init__()
            self.blocks = nn.Sequential(*blocks)

        def __iter__(self) -> Iterator[nn.Module]:
            return iter(self.blocks)

        def __getitem__(self, _: slice) -> Any:
            return self.blocks

    model = model_of("llama")
    expected = features(model, ids)
    model.model.layers = Hidden(model.model.layers)
    with pytest.raises(ModelError, match="^LlamaForCausalLM: its blocks are not found"):
        layer_features(model, ids)
    assert_close(features(model, ids), expected, rtol=0, atol=0)


def with_the_first_block_twice(layers: nn.ModuleList) -> None:
    layers[1] = layers[0]


def with_a_block_that_hands_on(change: Any) -> Any:
    return lambda layers: layers[0].register_forward_hook(lambda *call: change(call[-1]))


ODD_BLOCKS = {
    "a block that is shared": (with_the_first_block_twice, "layer 1 was run out of turn"),
    "blocks that are left out": (lambda layers: setattr(layers[0].self_attn.config, "num_hidden_layers", 2), "layer last was run out of turn"),
    "another shape": (with_a_block_that_hands_on(lambda hidden: hidden[:, :1]), r"layer 1 gives \(2, 1, 32\) for \(2, 9\) tokens"),
    "no tensor": (with_a_block_that_hands_on(lambda hidden: ["text"]), "layer 1 gives str for"),
}  # fmt: skip


@pytest.mark.parametrize("case", ODD_BLOCKS)
def test_blocks_that_do_not_give_one_vector_a_token_in_their_turn_are_refused(case: str, ids: Tensor) -> None:
    change, message = ODD_BLOCKS[case]
    model = model_of("llama")
    change(model.model.layers)
    with pytest.raises(ModelError, match=f"^LlamaForCausalLM: {message}.*its last layer can"):
        layer_features(model, ids)


def test_an_unknown_change_of_the_logits_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of("gpt2")
    original = model.forward

    def squared(*args: Any, **kwargs: Any) -> Any:
        output = original(*args, **kwargs)
        output.logits = output.logits * output.logits.abs()
        return output

    monkeypatch.setattr(model, "forward", squared)
    with pytest.raises(ModelError, match="neither a scale nor a soft cap"):
        output_layer(model)
