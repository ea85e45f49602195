from pathlib import Path

import pytest
import torch
from torch.testing import assert_close
from transformers import AutoModelForCausalLM
from transformers.activations import NewGELUActivation

from collapselab.models.build import build_config, build_model
from collapselab.models.fused_kernels import library_config, use_fused_kernels


@pytest.mark.parametrize("family", ["gpt-neo", "gpt2", "llama"])
def test_a_faster_model_is_the_librarys_in_outputs_and_gradients(family: str) -> None:
    config = build_config(family, width=32, depth=2, vocabulary=50, positions=16)
    ours = build_model(config, seed=0).double()
    theirs = AutoModelForCausalLM.from_config(library_config(config)).double()
    theirs.load_state_dict(ours.state_dict())
    ids = torch.randint(0, 50, (3, 16), generator=torch.Generator().manual_seed(0))
    found = [model(input_ids=ids, labels=ids).loss for model in (ours, theirs)]
    for loss in found:
        loss.backward()
    # The library's GPT-Neo makes its attention scores in float32 even here.
    exact = family != "gpt-neo"
    assert_close(found[0], found[1], rtol=1e-12 if exact else 1e-9, atol=0)
    for (name, a), b in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert_close(
            a.grad,
            b.grad,
            rtol=1e-9 if exact else 1e-5,
            atol=1e-14 if exact else 1e-9,
            msg=lambda text, name=name: f"{name}: {text}",
        )


@pytest.mark.parametrize("family", ["gpt-neo", "gpt2"])
def test_no_slow_spot_is_left_and_none_is_saved(family: str, tmp_path: Path) -> None:
    model = build_model(build_config(family, width=32, depth=2, vocabulary=50, positions=16), seed=0)
    assert not any(isinstance(module, NewGELUActivation) for module in model.modules())
    model.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert any(isinstance(module, NewGELUActivation) for module in loaded.modules())
    use_fused_kernels(loaded)
    assert not any(isinstance(module, NewGELUActivation) for module in loaded.modules())
