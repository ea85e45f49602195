"""Padding after a text changes nothing before it, whatever family the model is of."""

import pytest
import torch
from torch.testing import assert_close

from collapselab.models.fused_kernels import use_fused_kernels
from collapselab.models.scores import mask_inputs
from collapselab.models.taps import features, layer_features
from models.families import VOCABULARY, model_of


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("family", ["gpt-neo", "llama", "mistral", "gemma3", "opt", "bloom", "rwkv", "mamba"])
@torch.no_grad()
def test_features_of_a_padded_text_are_those_of_the_text_alone(family: str, fast: bool) -> None:
    if fast and family != "gpt-neo":
        return
    model = model_of(family)
    if fast:
        use_fused_kernels(model)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(3, VOCABULARY, (3, 20), generator=generator)
    lengths = [20, 13, 2]
    attention = (torch.arange(20) < torch.tensor(lengths)[:, None]).long()
    mask = mask_inputs(model, attention, ids.device)
    assert "attention_mask" in mask or family == "rwkv"
    padded, layers = features(model, ids, **mask), layer_features(model, ids, **mask)
    for row, length in enumerate(lengths):
        alone = layer_features(model, ids[row : row + 1, :length])
        scale = float(alone["last"].abs().max())
        assert_close(padded[row, :length], alone["last"][0], rtol=1e-4, atol=1e-5 * scale)
        for name, states in alone.items():
            assert_close(layers[name][row, :length], states[0], rtol=1e-4, atol=1e-5 * float(states.abs().max()))


def test_without_padding_a_model_gets_no_mask() -> None:
    assert mask_inputs(model_of("llama"), None, torch.device("cpu")) == {}
