"""Sizes of models and the operations of their passes, against PyTorch's counter."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from collapselab.models.build import build_config, build_model
from collapselab.models.families import architecture_of
from collapselab.models.taps import features
from collapselab.records.options import Options
from collapselab.suite.plan import CorpusFacts, plan_suite
from collapselab.suite.recipe import parse_suite


def counted(run: Callable[[], object]) -> float:
    """Operations of every matrix product; attention written out, as the fused kernel of a CPU is not counted."""
    added = {torch.ops.aten.addmm_: lambda _, left, right, *__, **___: 2 * left[0] * left[1] * right[1]}
    counting = FlopCounterMode(display=False, custom_mapping=added)  # in place they would not be counted
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), counting as counter:
        run()
    return counter.get_total_flops()


@pytest.mark.parametrize(
    ("family", "width", "depth", "block"),
    [("gpt-neo", 64, 3, 64), ("gpt-neo", 64, 4, 600), ("llama", 96, 2, 128), ("gpt2", 48, 4, 32), ("pythia", 64, 2, 64), ("qwen3", 64, 2, 64)],
)  # fmt: skip
def test_the_operations_of_a_forward_pass_are_those_counted(family: str, width: int, depth: int, block: int) -> None:
    """Exactly: products are all that is counted, on both sides; in float64, where small heads are not padded."""
    model = build_model(build_config(family, width=width, depth=depth, vocabulary=300, positions=block), seed=0).eval()
    model = model.double()
    architecture = architecture_of(model)
    ids = torch.zeros(3, block, dtype=torch.int64)
    assert counted(lambda: features(model, ids)) == 3 * block * architecture.forward_flops(block)
    with_logits = counted(lambda: model(ids))
    assert with_logits == 3 * block * architecture.forward_flops(block, output_layer=True)


def test_training_takes_three_forward_passes() -> None:
    """Backward is counted, but for the one product it spares: the first matrix's input needs a gradient, too."""
    block = 64
    model = build_model(build_config("llama", width=96, depth=2, vocabulary=300, positions=block), seed=0)
    ids = torch.zeros(3, block, dtype=torch.int64)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(ids, labels=ids).loss.backward()
    assert counter.get_total_flops() == architecture_of(model).training_flops(3 * block, block)


def test_a_suite_plans_with_the_operations_of_forward_passes() -> None:
    corpus = CorpusFacts("corpus", Path("nowhere"), "0" * 16, 256, 10_000, 100, 4096)
    text = "question: Why?\ncorpus: {source: storyworld}\nbase: {width: 512, depth: 4, batch: 8, steps: 10}"
    entry = plan_suite(parse_suite(text, name="mine"), {"corpus": corpus}).entries[0]
    config = build_config("gpt-neo", width=512, depth=4, vocabulary=4096, positions=256)
    architecture = architecture_of(build_model(config, seed=0))
    assert entry.parameters == architecture.parameters
    assert entry.flops == architecture.training_flops(10 * 8 * 255, 256)
    assert entry.measure_flops(Options(tokens=1000)) == 2040 * architecture.forward_flops(256, output_layer=True)
