"""The tapped layer applied to the tapped features gives the model's logits, whatever the architecture."""

from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn
from torch.testing import assert_close
from transformers import AutoConfig, AutoModelForCausalLM

from collapselab.errors import ModelError
from collapselab.models.taps import features, output_layer

VOCABULARY = 67
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
KEYS = {**SMALL, "num_key_value_heads": 2}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt-neo": ("gpt_neo", {"hidden_size": 32, "num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]]}),
    "gpt2": ("gpt2", {"n_embd": 32, "n_layer": 2, "n_head": 4}),
    "gpt-j (bias)": ("gptj", {"n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 4}),
    "pythia": ("gpt_neox", SMALL),
    "opt": ("opt", {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 48}),
    "opt (projection)": ("opt", {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 48, "word_embed_proj_dim": 16, "do_layer_norm_before": False}),
    "bloom": ("bloom", {"hidden_size": 32, "n_layer": 2, "n_head": 4}),
    "falcon": ("falcon", {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}),
    "mpt": ("mpt", {"d_model": 32, "n_layers": 2, "n_heads": 4}),
    "llama": ("llama", KEYS),
    "llama (tied)": ("llama", {**KEYS, "tie_word_embeddings": True}),
    "mistral": ("mistral", KEYS),
    "qwen2": ("qwen2", KEYS),
    "qwen3": ("qwen3", {**KEYS, "head_dim": 8}),
    "gemma": ("gemma", {**KEYS, "head_dim": 8}),
    "gemma2 (soft cap)": ("gemma2", {**KEYS, "head_dim": 8, "final_logit_softcapping": 3.0}),
    "gemma3": ("gemma3_text", {**KEYS, "head_dim": 8}),
    "phi (bias)": ("phi", KEYS),
    "stablelm": ("stablelm", KEYS),
    "olmo2": ("olmo2", KEYS),
    "cohere (scale)": ("cohere", {**KEYS, "logit_scale": 0.25}),
    "granite (scale)": ("granite", {**KEYS, "logits_scaling": 4.0}),
    "rwkv": ("rwkv", {"hidden_size": 32, "num_hidden_layers": 2, "attention_hidden_size": 32}),
    "granite (scale of a third)": ("granite", {**KEYS, "logits_scaling": 3.0}),
    "mamba": ("mamba", {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 4}),
}  # fmt: skip


def model_of(name: str) -> Any:
    kind, settings = FAMILIES[name]
    size = {"vocab_size": VOCABULARY, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    config = AutoConfig.for_model(kind, **settings, **size)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).eval()
    for parameter in model.parameters():  # initial biases are zero and initial weights small: make both matter
        nn.init.normal_(parameter, std=0.3)
    return model


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


def test_no_logits_are_computed(ids: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of("llama")
    widths: list[int] = []
    original = nn.functional.linear

    def recording(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        widths.append(len(weight))
        return original(x, weight, bias)

    monkeypatch.setattr(nn.functional, "linear", recording)
    features(model, ids)
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
