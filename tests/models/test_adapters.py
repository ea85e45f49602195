"""An adapter on its base: every weight in its place, the logits those of peft, or one message."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import constants
from peft import LoraConfig, PeftModel, PromptTuningConfig, get_peft_model
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.testing import assert_close
from transformers import AutoModelForCausalLM

from collapselab.errors import ModelError
from collapselab.models.find import AdaptedModel, LocalModel, find_models
from collapselab.models.load import load_model, model_hash
from collapselab.models.taps import check_logits, features, output_layer
from models.families import FAMILIES, VOCABULARY, model_of

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*tie_word_embeddings.*", "ignore:.*tied.*", "ignore:fan_in_fan_out", "ignore:.*_pattern keys.*"
)

KINDS: dict[str, dict[str, Any]] = {
    "every linear layer": {"target_modules": "all-linear"},
    "the output layer": {"target_modules": ["lm_head"], "lora_alpha": 64},
    "modules_to_save": {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]},
    "the embedding too": {"target_modules": ["q_proj"], "modules_to_save": ["lm_head", "embed_tokens"]},
}


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")


@pytest.fixture
def ids() -> Tensor:
    return torch.randint(3, VOCABULARY, (2, 9), generator=torch.Generator().manual_seed(1))


def adapted(folder: Path, base: Path, **settings: Any) -> Path:
    """An adapter of a base on disk, with weights that do something."""
    torch.manual_seed(7)
    config = LoraConfig(r=4, init_lora_weights=False, task_type="CAUSAL_LM", **settings)
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(base), config)
    for name, parameter in model.named_parameters():
        if "modules_to_save.default" in name:
            parameter.data += 0.1 * torch.randn_like(parameter)
    model.save_pretrained(folder, save_embedding_layers=False)
    return folder


def base_of(folder: Path, family: str = "llama") -> Path:
    model_of(family).save_pretrained(folder)
    return folder


def loaded(name: str) -> Any:
    (source,) = find_models([name])
    return load_model(source)


@pytest.mark.parametrize("kind", KINDS)
def test_its_logits_are_those_that_peft_gives(kind: str, tmp_path: Path, ids: Tensor) -> None:
    base = base_of(tmp_path / "base")
    adapter = adapted(tmp_path / "adapter", base, **KINDS[kind])
    plain = AutoModelForCausalLM.from_pretrained(base).eval()
    expected = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), adapter).eval()
    model = loaded(f"{base}+{adapter}")
    with torch.no_grad():
        assert_close(model(ids).logits, expected(ids).logits, rtol=1e-4, atol=1e-5)
        assert (model(ids).logits - plain(ids).logits).abs().max() > 1e-2, "the adapter does something"
        head = output_layer(model)
        assert_close(head.logits(features(model, ids)), expected(ids).logits, rtol=1e-4, atol=1e-5)
    check_logits(model, head, ids, name="adapted")


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_with_an_adapter_on_every_linear_layer(family: str, tmp_path: Path, ids: Tensor) -> None:
    base = base_of(tmp_path / "base", family)
    targets = ["in_proj", "x_proj"] if family == "mamba" else "all-linear"  # peft refuses its other layers
    adapter = adapted(tmp_path / "adapter", base, target_modules=targets)
    expected = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), adapter).eval()
    model = loaded(f"{base}+{adapter}")
    with torch.no_grad():
        assert_close(model(ids).logits, expected(ids).logits, rtol=2e-4, atol=2e-5)
    check_logits(model, output_layer(model), ids, name=family)


def test_an_adapted_output_layer_that_is_tied_leaves_the_embedding_alone(tmp_path: Path, ids: Tensor) -> None:
    """Merged into the shared weight it would change what the model reads too."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        tie_word_embeddings=True,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(tmp_path / "base")
    adapter = adapted(tmp_path / "adapter", tmp_path / "base", target_modules=["lm_head"], lora_alpha=64)
    expected = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(tmp_path / "base"), adapter).eval()
    model = loaded(f"{tmp_path / 'base'}+{adapter}")
    with torch.no_grad():
        assert_close(model(ids).logits, expected(ids).logits, rtol=1e-4, atol=1e-5)
    check_logits(model, output_layer(model), ids, name="tied")


def test_an_adapter_finds_the_base_that_it_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = base_of(tmp_path / "base")
    adapter = adapted(tmp_path / "adapter", base, target_modules=["q_proj"])
    (source,) = find_models([str(adapter)])
    assert source.model == AdaptedModel(LocalModel(base), adapter)
    assert model_hash(loaded(str(adapter))) == model_hash(loaded(f"{base}+{adapter}"))
    settings = json.loads((adapter / "adapter_config.json").read_text())
    (adapter / "adapter_config.json").write_text(json.dumps(settings | {"base_model_name_or_path": "../base"}))
    monkeypatch.chdir("/")
    (source,) = find_models([str(adapter)])
    assert source.model.base.path.resolve() == base.resolve()  # type: ignore[union-attr]


def named(folder: Path, base: object, **settings: Any) -> Path:
    folder.mkdir()
    known = {"peft_type": "LORA", "base_model_name_or_path": base, **settings}
    (folder / "adapter_config.json").write_text(json.dumps(known))
    return folder


def test_an_adapter_without_its_base_says_which_it_names(tmp_path: Path) -> None:
    cases = {
        "owner/base": r"an adapter \(LORA\) of owner/base, which is not at hand: .*the hub cannot be reached.*BASE\+",
        "/gone/away": r"an adapter \(LORA\) of /gone/away, which is no folder here and no id on the hub. Name its base",
        None: r"an adapter \(LORA\) of an unnamed model. Name its base",
    }
    for number, (base, message) in enumerate(cases.items()):
        folder = named(tmp_path / str(number), base)
        with pytest.raises(ModelError, match=message):
            loaded(str(folder))


def test_what_is_no_base_and_adapter_is_refused(tmp_path: Path) -> None:
    base, folder = base_of(tmp_path / "base"), named(tmp_path / "adapter", "x/y")
    with pytest.raises(ModelError, match="not base.adapter: nowhere is no folder with an adapter_config.json"):
        find_models([f"{base}+nowhere"])
    with pytest.raises(ModelError, match="an adapter goes on one base"):
        find_models([f"{folder}+{folder}"])


def test_weights_of_the_adapter_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    base = base_of(tmp_path / "base")
    adapter = adapted(tmp_path / "adapter", base, target_modules=["q_proj", "v_proj"])
    weights = load_file(adapter / "adapter_model.safetensors")
    kept = dict(list(weights.items())[2:])
    save_file(kept, adapter / "adapter_model.safetensors")
    with pytest.raises(ModelError, match=r"2 of \d+ weights of the adapter are missing in its folder: base_model"):
        loaded(f"{base}+{adapter}")
    save_file(weights | {"base_model.model.other.lora_A.weight": torch.ones(2)}, adapter / "adapter_model.safetensors")
    with pytest.raises(ModelError, match=r"1 of \d+ weights of the adapter have no place in the base"):
        loaded(f"{base}+{adapter}")


def test_kinds_that_are_no_change_of_weights_are_refused(tmp_path: Path) -> None:
    base = base_of(tmp_path / "base")
    config = PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4)
    get_peft_model(AutoModelForCausalLM.from_pretrained(base), config).save_pretrained(tmp_path / "prompt")
    with pytest.raises(ModelError, match="PROMPT_TUNING puts tokens of its own before the text"):
        loaded(f"{base}+{tmp_path / 'prompt'}")
    adapter = adapted(tmp_path / "adapter", base, target_modules=["q_proj"])
    settings = json.loads((adapter / "adapter_config.json").read_text())
    (adapter / "adapter_config.json").write_text(json.dumps(settings | {"task_type": "SEQ_CLS"}))
    with pytest.raises(ModelError, match="an adapter for SEQ_CLS. A causal language model is needed"):
        loaded(f"{base}+{adapter}")


def test_an_adapter_without_peft_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    base = base_of(tmp_path / "base")
    adapter = adapted(tmp_path / "adapter", base, target_modules=["q_proj"])
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ModelError, match=r"needs the package peft. Install collapselab\[peft\]"):
        loaded(f"{base}+{adapter}")


class Payload:
    """A pickle that makes a file, if it is ever read as one."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_a_pickled_adapter_never_runs(tmp_path: Path) -> None:
    base = base_of(tmp_path / "base")
    adapter = adapted(tmp_path / "adapter", base, target_modules=["q_proj"])
    weights = load_file(adapter / "adapter_model.safetensors")
    (adapter / "adapter_model.safetensors").unlink()
    torch.save(weights | {"x": Payload(tmp_path / "ran")}, adapter / "adapter_model.bin")
    with pytest.raises(ModelError, match="cannot be loaded"):
        loaded(f"{base}+{adapter}")
    assert not (tmp_path / "ran").exists()
    torch.save(weights, adapter / "adapter_model.bin")
    loaded(f"{base}+{adapter}")


def test_an_adapter_without_weights_is_not_looked_for_on_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base_of(tmp_path / "base")
    adapter = adapted(tmp_path / "owner" / "adapter", tmp_path / "base", target_modules=["q_proj"])
    (adapter / "adapter_model.safetensors").unlink()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("peft.utils.save_and_load.file_exists", lambda **_: pytest.fail("the hub was asked"))
    with pytest.raises(
        ModelError, match=r"an adapter \(LORA\) of .* without weights; owner/adapter has no adapter_model"
    ):
        loaded("base+owner/adapter")


ODD: dict[str, tuple[Any, str]] = {
    "no kind": ({"peft_type": "NOTHING"}, "cannot be loaded"),
    "a kind that is a list": ({"peft_type": ["LORA"]}, "cannot be loaded"),
    "targets that are no names": ({"target_modules": 3}, "cannot be loaded"),
    "a pattern that is none": ({"target_modules": "(((("}, "cannot be loaded"),
    "targets that are not there": ({"target_modules": ["nothing"]}, "cannot be loaded"),
    "a scale that is text": ({"lora_alpha": "much"}, "cannot be loaded"),
}


@pytest.mark.parametrize("case", ODD)
def test_an_odd_configuration_of_an_adapter_is_one_message(case: str, tmp_path: Path) -> None:
    changes, message = ODD[case]
    base = base_of(tmp_path / "base")
    adapter = adapted(tmp_path / "adapter", base, target_modules=["q_proj"])
    settings = json.loads((adapter / "adapter_config.json").read_text())
    (adapter / "adapter_config.json").write_text(json.dumps(settings | changes))
    with pytest.raises(ModelError, match=message):
        loaded(f"{base}+{adapter}")


@pytest.mark.parametrize("text", ["[" * 100_000, "[]", "{", '{"base_model_name_or_path": "' + "a" * 5000 + '"}', ""])
def test_a_configuration_that_is_none_is_one_message(text: str, tmp_path: Path) -> None:
    folder = tmp_path / "adapter"
    folder.mkdir()
    (folder / "adapter_config.json").write_text(text)
    with pytest.raises(ModelError, match="Name its base"):
        find_models([str(folder)])
