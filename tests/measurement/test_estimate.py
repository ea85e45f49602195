"""Sizes of models and the operations of their passes, against PyTorch's counter; memory and operations of measuring."""

import runpy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from collapselab.core.moments import ClassMoments
from collapselab.corpus.blocks import Corpus
from collapselab.corpus.sources import open_source
from collapselab.errors import ConfigError
from collapselab.measurement import estimate as module
from collapselab.measurement.collector import Sizes
from collapselab.measurement.collectors.moments import Moments, table_bytes
from collapselab.measurement.estimate import estimate, memory, operations, products_per_second, sizes_of
from collapselab.measurement.model_corpus import Data
from collapselab.models.build import build_config, build_model
from collapselab.models.find import find_models
from collapselab.models.sizes import architecture_of, transformer
from collapselab.models.taps import features
from collapselab.records.options import Options
from collapselab.suite.corpora import CorpusFacts
from collapselab.suite.plan import plan_suite
from collapselab.suite.recipe import parse_suite

DOCS = Path(__file__).parents[2] / "docs"
LLAMA_8B = transformer(
    width=4096, depth=32, vocabulary=128256, feed_forward=14336, heads=32, key_value_heads=8, gated=True, tied=False,
    block_vectors=2 * 4096, last_vectors=4096,
)  # fmt: skip


def counted(run: Callable[[], object]) -> float:
    """Operations of every matrix product; attention written out, as the fused kernel of a CPU is not counted."""
    added = {torch.ops.aten.addmm_: lambda _, left, right, *__, **___: 2 * left[0] * left[1] * right[1]}
    counting = FlopCounterMode(display=False, custom_mapping=added)  # in place they would not be counted
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), counting as counter:
        run()
    return counter.get_total_flops()


NEO = {"feed_forward": 256, "heads": 16, "window": 256, "block_vectors": 640, "last_vectors": 128}


@pytest.mark.parametrize(
    ("family", "width", "depth", "block", "sizes"),
    [
        ("gpt-neo", 64, 3, 64, NEO | {"local": 1, "positions": 64}),
        ("gpt-neo", 64, 4, 600, NEO | {"local": 2, "positions": 600}),
        ("llama", 96, 2, 128, {"feed_forward": 256, "heads": 16, "gated": True, "block_vectors": 192, "last_vectors": 96}),
        ("gpt2", 48, 4, 32, {"feed_forward": 192, "heads": 16, "positions": 32, "block_vectors": 13 * 48, "last_vectors": 96}),
        ("pythia", 64, 2, 64, {"feed_forward": 256, "heads": 16, "block_vectors": 13 * 64, "last_vectors": 128}),
        ("qwen3", 64, 2, 64, {"feed_forward": 192, "heads": 16, "key_value_heads": 8, "gated": True, "block_vectors": 136, "last_vectors": 64}),
    ],
)  # fmt: skip
def test_the_operations_of_a_forward_pass_are_those_counted(
    family: str, width: int, depth: int, block: int, sizes: dict[str, Any]
) -> None:
    """Exactly: products are all that is counted, on both sides; in float64, where small heads are not padded."""
    model = build_model(build_config(family, width=width, depth=depth, vocabulary=300, positions=block), seed=0).eval()
    model = model.double()
    architecture = transformer(width=width, depth=depth, vocabulary=300, **sizes)
    assert architecture == architecture_of(model)
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


def test_the_sizes_of_the_documented_models_are_those_of_the_library() -> None:
    """Parameters to the last one, and what runs; models of the library without memory."""
    ladder = runpy.run_path(str(DOCS / "generate.py"))["LADDER"]
    assert len(ladder) >= 9
    for name, (architecture, config) in ladder.items():
        assert architecture == architecture_of(outline(config)), name


def outline(config: dict[str, Any]) -> Any:
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM

    library: Any = AutoModelForCausalLM
    with torch.device("meta"):
        return library.from_config(CONFIG_MAPPING[config["model_type"]].from_dict(config))


@pytest.mark.parametrize("covariance", [False, True])
def test_the_memory_of_moments_is_that_of_their_tensors(covariance: bool) -> None:
    tally = ClassMoments.empty(200, 24, covariance=covariance)._state
    tensors = (tally.counts, tally.sums, tally.squares, tally.direct)
    assert sum(tensor.numel() * tensor.element_size() for tensor in tensors) == table_bytes(200, 24)


def llama(options: Options | None = None, **changes: Any) -> tuple[float, float]:
    """Memory beside the weights, and operations."""
    sizes = sizes_of(LLAMA_8B, options or Options(), (10**7, 10**6), **changes)
    return memory(LLAMA_8B, sizes), sum(operations(LLAMA_8B, sizes).values())


@pytest.mark.parametrize(
    ("less", "more"),
    [
        (llama(Options(null=False)), llama()),
        (llama(), llama(Options(layers="all"))),
        (llama(classes=(50_000, 50_000)), llama()),
        (llama(), llama(Options(bins=8))),
        (llama(), llama(Options(train_loss=True))),
        (llama(), llama(Options(bootstrap=84))),
        (llama(), llama(Options(classes=True, outcomes="ece"))),
        (llama(), llama(Options(push="default"))),
        (llama(), llama(batch=8)),
        (llama(Options(layers="all", shard_classes=True), processes=8), llama(Options(layers="all"))),
    ],
    ids=["null", "layers", "kept", "bins", "train_loss", "bootstrap", "tables", "push", "batch", "shards"],
)
def test_who_asks_for_more_pays_more(less: tuple[float, float], more: tuple[float, float]) -> None:
    assert all(cheap <= dear for cheap, dear in zip(less, more, strict=True))
    assert less != more


def test_cells_of_contexts_take_memory() -> None:
    plain = sizes_of(LLAMA_8B, Options(contexts="1,2"), (10**7, 10**6), (50_000, 50_000))
    tables = table_bytes(5_000_000, 4096) + table_bytes(20_000_000, 4096)
    assert memory(LLAMA_8B, replace(plain, cells=(5_000_000, 20_000_000))) - memory(LLAMA_8B, plain) > tables / 2


def test_a_new_collector_s_memory_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = sizes_of(LLAMA_8B, Options(), (10**7, 10**6))
    before = memory(LLAMA_8B, sizes)
    monkeypatch.setattr(module, "COLLECTORS", [*module.COLLECTORS, Moments])
    assert memory(LLAMA_8B, sizes) - before >= Moments.bytes(sizes, "validation") > 0


@pytest.fixture
def source(tmp_path: Path) -> Any:
    """A model whose weights are gone: only its configuration is there."""
    build_model(build_config("gpt-neo", width=16, depth=2, vocabulary=320, positions=32), seed=0).save_pretrained(
        tmp_path / "model"
    )  # type: ignore[operator]
    (tmp_path / "model" / "model.safetensors").unlink()
    (found,) = find_models([str(tmp_path / "model")])
    return found


def estimated(source: Any, text: Corpus | Data, options: Options) -> module.Estimate:
    return estimate(source, text, options, device="cpu", rate=1e9)


def test_it_is_that_of_the_model_itself(source: Any, corpus: Corpus) -> None:
    model = build_model(build_config("gpt-neo", width=16, depth=2, vocabulary=320, positions=32), seed=0)
    options, architecture = Options(layers="all"), architecture_of(model)
    made = estimated(source, corpus, options)
    splits = (corpus.train, corpus.validation)
    tokens, classes = zip(*((int(s.counts.sum()), int((s.counts > 0).sum())) for s in splits), strict=True)
    expected: Sizes = sizes_of(architecture, options, tokens, classes, block=32, batch=4096 // 32, number_bytes=4)
    assert made.sizes == expected
    assert made.operations == operations(architecture, expected)
    assert made.architecture.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert made.weights == 4 * made.architecture.parameters
    assert made.memory == made.weights + memory(architecture, expected)
    assert made.seconds == {part: count / 1e9 for part, count in made.operations.items()}


def test_fewer_tokens_and_fewer_bits_take_less(source: Any, corpus: Corpus) -> None:
    whole, few, small = (
        estimated(source, corpus, options) for options in (Options(), Options(tokens=200), Options(load_in="4bit"))
    )
    assert sum(few.operations.values()) < sum(whole.operations.values())
    assert few.sizes.classes["train"] < whole.sizes.classes["train"]
    assert small.weights == whole.weights - 3.5 * whole.architecture.matrices


def test_the_classes_of_a_sample_are_those_to_be_expected(source: Any, corpus: Corpus) -> None:
    few, ids = estimated(source, corpus, Options(tokens=200)), corpus.train.ids
    seen = [len(np.unique(ids[np.random.default_rng(seed).permutation(len(ids))[:7], 1:])) for seed in range(40)]
    assert few.sizes.classes["train"] == pytest.approx(np.mean(seen), rel=0.2)


def test_text_that_is_not_built_yet_needs_a_number_of_tokens(source: Any) -> None:
    data = Data(open_source(["storyworld:stories=12,validation=4"]))
    with pytest.raises(ConfigError, match="Say --tokens N"):
        estimated(source, data, Options())
    sizes = estimated(source, data, Options(tokens=10_000)).sizes
    assert (sizes.tokens["train"], sizes.classes["train"], sizes.block) == (10_000, 320, 32)


def test_products_are_timed() -> None:
    assert products_per_second(torch.device("cpu")) > 1e7
