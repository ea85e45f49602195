"""What a measurement says about the model beside its numbers: that they are its own, and what to beware of."""

from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model

from collapselab.corpus.blocks import Corpus
from collapselab.errors import ModelError
from collapselab.measurement.measure import measure
from collapselab.models.build import build_config, build_model
from collapselab.records.result import Result


def llama(**changes: Any) -> Any:
    sizes: dict[str, Any] = {"width": 32, "depth": 1, "vocabulary": 320, "positions": 32}
    return build_model(build_config("llama", **sizes | changes), seed=0)


# The logits are the model's own


def test_the_loss_of_an_adapted_model_is_its_own(corpus: Corpus) -> None:
    model = llama(tied=False)
    torch.manual_seed(0)
    config = LoraConfig(r=4, init_lora_weights=False, task_type="CAUSAL_LM", target_modules=["lm_head"], lora_alpha=64)
    adapted = get_peft_model(model, config).eval()
    blocks = torch.stack([corpus.validation[i] for i in range(len(corpus.validation))])
    with torch.no_grad():
        own = float(adapted(input_ids=blocks, labels=blocks).loss)
        with adapted.disable_adapter():
            base = float(adapted(input_ids=blocks, labels=blocks).loss)
    result = measure(adapted, corpus, null=False, quiet=True)
    assert isinstance(result, Result)
    assert abs(own - base) > 1
    assert result.facts["splits"]["validation"]["loss"] == pytest.approx(own, rel=1e-5)


def test_a_model_whose_logits_are_not_those_measured_is_refused_before_it_is_measured(corpus: Corpus) -> None:
    model = llama()
    original = model.lm_head.forward
    model.lm_head.forward = lambda hidden: original(hidden) + hidden.norm(dim=-1, keepdim=True)
    with pytest.raises(ModelError, match="its own logits differ from those of its features and output layer"):
        measure(model, corpus, quiet=True)


def test_the_check_makes_logits_once_and_for_a_few_tokens(corpus: Corpus) -> None:
    model = llama()
    shapes: list[tuple[int, ...]] = []
    model.lm_head.register_forward_hook(lambda _, __, logits: shapes.append(tuple(logits.shape)))
    measure(model, corpus, null=False, quiet=True)
    logits = [shape for shape in shapes if shape[-1] == 320 and shape[:2] != (1, 1)]
    assert logits == [(4, 32, 320)]
