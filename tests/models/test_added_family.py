"""A further family of models is a function and an entry."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, OPTConfig

from collapselab.errors import ModelError
from collapselab.models.build import architecture, build_config, build_model
from collapselab.models.families import FAMILIES, Sizes

TINY = {"width": 32, "depth": 2, "vocabulary": 41, "positions": 24}


def opt(sizes: Sizes) -> OPTConfig:
    return OPTConfig(word_embed_proj_dim=sizes.width, ffn_dim=4 * sizes.width, dropout=sizes.dropout, **sizes.common)


def test_a_further_family_is_a_function_and_an_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FAMILIES, "opt", opt)
    config = build_config("opt", **TINY, dropout=0.25, end_of_text=40)
    assert (config.model_type, config.num_attention_heads, config.dropout) == ("opt", 16, 0.25)
    model = build_model(config, seed=3).eval()
    assert architecture(config).parameters == sum(parameter.numel() for parameter in model.parameters())
    model.save_pretrained(tmp_path)
    ids = torch.arange(12)[None]
    assert torch.equal(AutoModelForCausalLM.from_pretrained(tmp_path)(ids).logits, model(ids).logits)
    with pytest.raises(ModelError, match="Did you mean opt"):
        build_config("opt2", **TINY)
