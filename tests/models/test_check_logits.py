"""What is measured is the model: its own logits are those of the tapped features and layer, or it is refused."""

import warnings
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from torch.testing import assert_close

from collapselab.errors import ModelError
from collapselab.models.load import model_hash
from collapselab.models.taps import check_logits, features, layer_features, logit_difference, output_layer
from models.families import DEPTH, FAMILIES, VOCABULARY, model_of


@pytest.fixture
def ids() -> Tensor:
    return torch.randint(3, VOCABULARY, (4, 16), generator=torch.Generator().manual_seed(1))


def adapted(family: str, **settings: Any) -> Any:
    """A tiny model with an adapter that is not at its initial zero."""
    torch.manual_seed(3)
    with warnings.catch_warnings():  # the library's advice about tied weights and merging
        warnings.simplefilter("ignore")
        config = LoraConfig(r=4, init_lora_weights=False, task_type="CAUSAL_LM", **settings)
        model = get_peft_model(model_of(family), config).eval()
    for name, parameter in model.named_parameters():
        if "modules_to_save" in name:
            nn.init.normal_(parameter, std=0.5)
    return model


ADAPTERS: dict[str, tuple[str, dict[str, Any]]] = {
    "every linear layer": ("llama", {"target_modules": "all-linear"}),
    "the output layer": ("llama", {"target_modules": ["lm_head", "q_proj"], "lora_alpha": 24}),
    "the output layer, with its bias": ("phi (bias)", {"target_modules": ["lm_head"]}),
    "the output layer, with a bias of the adapter": ("llama", {"target_modules": ["lm_head"], "lora_bias": True}),
    "the output layer, with dropout": ("llama", {"target_modules": ["lm_head"], "lora_dropout": 0.5}),
    "the output layer, magnitudes too": ("llama", {"target_modules": ["lm_head"], "use_dora": True}),
    "the output layer under a scale": ("granite (scale)", {"target_modules": ["lm_head"]}),
    "the output layer under a cap": ("gemma2 (soft cap)", {"target_modules": ["lm_head"]}),
    "a copy of the output layer": ("llama", {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]}),
    "a tied output layer": ("llama (tied)", {"target_modules": ["lm_head", "q_proj"]}),
    "a copy of a tied output layer": ("llama (tied)", {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]}),
    "the input of a tied output layer": ("llama (tied)", {"target_modules": ["embed_tokens"]}),
}


@pytest.mark.parametrize("case", ADAPTERS)
def test_an_adapter_is_part_of_the_output_layer_that_is_measured(case: str, ids: Tensor) -> None:
    family, settings = ADAPTERS[case]
    model = adapted(family, **settings)
    with torch.no_grad():
        expected = model(input_ids=ids, use_cache=False).logits
        layer = output_layer(model)
        found = layer.logits(features(model, ids))
    assert_close(found, expected, rtol=1e-4, atol=1e-4)
    difference = logit_difference(model, layer, ids)
    assert difference is not None
    assert difference.largest <= difference.allowed < 1e-3 * difference.spread
    assert list(layer_features(model, ids)) == [*(str(number + 1) for number in range(DEPTH)), "last"]
    with model.disable_adapter(), torch.no_grad():
        assert (model(input_ids=ids, use_cache=False).logits - expected).abs().max() > 0.1  # it was worth folding in


def test_an_adapter_in_training_is_read_without_its_dropout_and_left_training(ids: Tensor) -> None:
    model = adapted("llama", target_modules=["lm_head"], lora_dropout=0.5)
    expected = output_layer(model).weight
    model.train()
    assert_close(output_layer(model).weight, expected, rtol=0, atol=0)
    assert all(module.training for module in model.modules())


def test_the_strength_of_an_adapter_is_part_of_a_models_hash() -> None:
    weak, strong = (adapted("llama", target_modules=["lm_head"], lora_alpha=alpha) for alpha in (4, 8))
    assert model_hash(weak) != model_hash(strong)
    merged = model_hash(strong)
    with strong.disable_adapter():
        assert model_hash(strong) != merged


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_passes_in_every_precision(family: str, dtype: torch.dtype, ids: Tensor) -> None:
    model = model_of(family).to(dtype)
    difference = logit_difference(model, output_layer(model), ids)
    assert difference is not None
    assert difference.largest <= difference.allowed / 2


def patched(model: Any, change: Any) -> Any:
    original = model.lm_head.forward
    model.lm_head.forward = lambda hidden: change(hidden, original(hidden))
    return model


def test_an_output_layer_that_adds_a_constant_is_measured_with_it(ids: Tensor) -> None:
    model = patched(model_of("llama"), lambda hidden, logits: logits + torch.arange(VOCABULARY) / 7)
    layer = output_layer(model)
    check_logits(model, layer, ids, name="patched")
    assert layer.bias is not None
    assert_close(layer.bias, torch.arange(VOCABULARY) / 7)


NOT_LINEAR = {
    "its norm": lambda hidden, logits: logits + hidden.norm(dim=-1, keepdim=True),
    "a square": lambda hidden, logits: logits + logits.square(),
    "a bend": lambda hidden, logits: logits.relu(),
}


@pytest.mark.parametrize("case", NOT_LINEAR)
def test_an_output_layer_that_is_not_linear_is_refused_with_the_size_of_the_difference(case: str, ids: Tensor) -> None:
    model = patched(model_of("llama"), NOT_LINEAR[case])
    message = r"^mine: its own logits differ .* by up to [\d.]+, which is [\d.]+ times the standard deviation"
    with pytest.raises(ModelError, match=message):
        check_logits(model, output_layer(model), ids, name="mine")


def test_logits_changed_by_what_the_text_says_are_refused(ids: Tensor) -> None:
    model = model_of("llama")
    original = model.forward

    def copying(input_ids: Tensor, **inputs: Any) -> Any:
        output = original(input_ids=input_ids, **inputs)
        if input_ids.shape[1] > 1 and output.logits.shape[-1] == VOCABULARY:  # hidden from how scale and cap are found
            output.logits = output.logits.scatter_add(-1, input_ids[..., None], torch.ones(*input_ids.shape, 1))
        return output

    model.forward = copying
    layer = output_layer(model)
    with pytest.raises(ModelError, match="by up to 1, which is"):
        check_logits(model, layer, ids, name="copying")
