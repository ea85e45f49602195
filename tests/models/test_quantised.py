"""Weights in fewer bits: the head stays the model's own, and what is missing is named."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM  # here: their import asks `find_spec`, which tests replace

from collapselab.errors import ConfigError, ModelError
from collapselab.models import weight_files
from collapselab.models.find import find_models
from collapselab.models.load import load_model
from collapselab.models.taps import check_logits, features, output_layer
from collapselab.records.options import Options
from models.families import VOCABULARY

HAS_BITSANDBYTES = importlib.util.find_spec("bitsandbytes") is not None
with_bitsandbytes = pytest.mark.skipif(not HAS_BITSANDBYTES, reason="returns where bitsandbytes is installed")


@pytest.fixture
def ids() -> Tensor:
    return torch.randint(3, VOCABULARY, (2, 9), generator=torch.Generator().manual_seed(1))


def llama() -> Any:
    """Wide enough for blocks of 64 weights, which are rounded together."""

    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    return LlamaForCausalLM(LlamaConfig(vocab_size=VOCABULARY, **sizes)).eval()


def saved(folder: Path, **settings: Any) -> Path:
    llama().save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text()) | settings
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def loaded(folder: Path, **options: Any) -> Any:
    (source,) = find_models([str(folder)])
    return load_model(source, **options)


@with_bitsandbytes
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("load_in", ["8bit", "4bit"])
def test_the_head_of_rounded_weights_gives_the_models_own_logits(load_in: Any, tmp_path: Path, ids: Tensor) -> None:
    folder = saved(tmp_path / "model")
    plain, model = loaded(folder), loaded(folder, load_in=load_in)
    head = output_layer(model)
    check_logits(model, head, ids, name=load_in)
    with torch.no_grad():
        difference = (model(ids).logits - plain(ids).logits).abs().max() / plain(ids).logits.std()
        torch.testing.assert_close(head.logits(features(model, ids)), model(ids).logits, rtol=1e-3, atol=1e-3)
    assert 1e-5 < difference < 2, "rounded, and still the same model"


@with_bitsandbytes
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
def test_an_adapter_on_rounded_weights_is_applied(tmp_path: Path, ids: Tensor) -> None:
    from peft import LoraConfig, get_peft_model

    base = saved(tmp_path / "base")
    config = LoraConfig(r=4, init_lora_weights=False, task_type="CAUSAL_LM", target_modules=["q_proj", "lm_head"])
    get_peft_model(llama(), config).save_pretrained(tmp_path / "adapter")
    (source,) = find_models([f"{base}+{tmp_path / 'adapter'}"])
    model: Any = load_model(source, load_in="4bit")
    check_logits(model, output_layer(model), ids, name="adapted")
    assert any("lora" in name for name, _ in model.named_modules())


def test_rounding_without_its_package_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight_files.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        ModelError, match=r"--load-in 4bit needs the package bitsandbytes. Install collapselab\[bitsandb"
    ):
        loaded(saved(tmp_path / "model"), load_in="4bit")


def test_what_is_rounded_already_is_not_rounded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight_files.importlib.util, "find_spec", lambda name: object())
    folder = saved(tmp_path / "model", quantization_config={"quant_method": "gptq", "bits": 4})
    with pytest.raises(ModelError, match=r"its weights are gptq, 4 bits already. Leave out --load-in 8bit"):
        loaded(folder, load_in="8bit")


def test_other_numbers_of_bits_are_refused() -> None:
    with pytest.raises(ConfigError, match="load_in"):
        Options(load_in="2bit")  # type: ignore[arg-type]
    assert "load_in" not in Options().facts(), "measurements of earlier versions stay valid"
    assert Options(load_in="4bit").facts()["load_in"] == "4bit"
