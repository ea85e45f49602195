"""Mixtures of experts from their configurations, measured against code that knows nothing of experts."""

from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from collapselab.corpus.blocks import Corpus
from collapselab.measurement.measure import measure
from collapselab.records.measurement import Result

SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2,
         "intermediate_size": 24, "vocab_size": 320, "max_position_embeddings": 64, "num_experts_per_tok": 2}  # fmt: skip
KINDS: dict[str, dict[str, Any]] = {
    "mixtral": {"num_local_experts": 5},
    "qwen2_moe": {"num_experts": 6, "moe_intermediate_size": 8, "shared_expert_intermediate_size": 8},
    "qwen3_moe": {"num_experts": 6, "moe_intermediate_size": 8, "head_dim": 8},
    "olmoe": {"num_experts": 4},
}


def model_of(kind: str) -> Any:
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **SIZES, **KINDS[kind])
    # The library's default kernel for experts has no float64 on a CPU.
    model = AutoModelForCausalLM.from_config(config, experts_implementation="eager").eval().double()
    for parameter in model.parameters():  # routers may begin at zero
        torch.nn.init.normal_(parameter, std=0.3)
    return model


def naive(features: Any, labels: Any, weight: Any) -> dict[str, float]:
    """Some metrics from their definitions; another share of them is compared in tests of the core."""
    classes = sorted(set(labels.tolist()))
    groups = [features[labels == label] for label in classes]
    means = np.stack([group.mean(0) for group in groups])
    variances = [((group - mean) ** 2).sum(1).mean() for group, mean in zip(groups, means, strict=True)]
    within = sum(variance * len(group) for variance, group in zip(variances, groups, strict=True))
    centred, rows = means - means.mean(0), weight[classes]
    norms = np.linalg.norm(centred, axis=1)
    pairs = [(i, j) for i in range(len(classes)) for j in range(i)]
    return {
        "within_share": within / ((features - features.mean(0)) ** 2).sum(),
        "norm_cv": norms.std() / norms.mean(),
        "cosine_mean": float(np.mean([centred[i] @ centred[j] / norms[i] / norms[j] for i, j in pairs])),
        "cdnv": float(
            np.mean([(variances[i] + variances[j]) / 2 / ((means[i] - means[j]) ** 2).sum() for i, j in pairs])
        ),
        "duality_cos_mean": float(np.mean((rows * centred).sum(1) / norms / np.linalg.norm(rows, axis=1))),
    }


def measured(model: Any, corpus: Corpus, **options: Any) -> Result:
    result = measure(model, corpus, quiet=True, **options)
    assert isinstance(result, Result)
    return result


def blocks_of(corpus: Corpus, split: str = "train") -> torch.Tensor:
    return torch.stack([corpus.splits[split][i] for i in range(len(corpus.splits[split]))])


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_mixture_of_experts_is_measured_as_naive_code_would(kind: str, few: Corpus) -> None:
    model = model_of(kind)
    result = measured(model, few)
    blocks = blocks_of(few)
    with torch.no_grad():
        hidden = model.model(input_ids=blocks).last_hidden_state[:, :-1].flatten(0, 1)
        loss = float(model(input_ids=blocks_of(few, "validation"), labels=blocks_of(few, "validation")).loss)
    assert result.facts["splits"]["validation"]["loss"] == pytest.approx(loss, rel=1e-6)
    weight = model.lm_head.weight.detach().numpy()
    for metric, value in naive(hidden.numpy(), blocks[:, 1:].flatten().numpy(), weight).items():
        assert result.row(metric).value == pytest.approx(value, rel=1e-6), metric
