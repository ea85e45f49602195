"""The plan of a measurement: sizes, memory and operations before anything is loaded."""

from pathlib import Path
from typing import Any

import pytest
import torch

from collapselab.corpus.blocks import Corpus
from collapselab.corpus.sources import open_source
from collapselab.errors import ConfigError
from collapselab.measurement.cost import Job, Machine, measuring
from collapselab.measurement.estimate import estimate, this_machine
from collapselab.measurement.model_corpus import Data
from collapselab.models.build import build_config, build_model
from collapselab.models.find import find_models
from collapselab.models.sizes import architecture_of
from collapselab.records.options import Options

MACHINE = Machine(
    flops=1e9, single=1e9, double=5e8, bandwidth=1e9, network=float("inf"), host_single=1e9, host_double=5e8
)


@pytest.fixture
def source(tmp_path: Path) -> Any:
    """A model whose weights are gone: only its configuration is there."""
    build_model(build_config("gpt-neo", width=16, depth=2, vocabulary=320, positions=32), seed=0).save_pretrained(
        tmp_path / "model"
    )  # type: ignore[operator]
    (tmp_path / "model" / "model.safetensors").unlink()
    (found,) = find_models([str(tmp_path / "model")])
    return found


def test_it_is_what_the_cost_model_says_of_the_model_itself(source: Any, corpus: Corpus) -> None:
    model = build_model(build_config("gpt-neo", width=16, depth=2, vocabulary=320, positions=32), seed=0)
    options = Options(layers="all")
    made = estimate(source, corpus, options, device="cpu", machine=MACHINE)
    tokens = [int(split.counts.sum()) for split in (corpus.train, corpus.validation)]
    classes = [int((split.counts > 0).sum()) for split in (corpus.train, corpus.validation)]
    job = Job(*tokens, options, block=32, batch=4096 // 32, kept=classes[0], kept_validation=classes[1], number_bytes=4)
    expected = measuring(architecture_of(model), job)
    assert made.cost == expected
    assert made.architecture.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert made.weights == 4 * made.architecture.parameters
    assert made.memory > made.weights
    assert made.seconds == expected.seconds(MACHINE)


def test_a_soft_cap_is_read_off_the_configuration(tmp_path: Path, corpus: Corpus) -> None:
    from transformers import Gemma2Config

    sizes: dict[str, Any] = {"hidden_size": 16, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8}
    for name, cap in {"capped": 30.0, "plain": None}.items():
        config = Gemma2Config(
            vocab_size=320, num_hidden_layers=1, intermediate_size=16, final_logit_softcapping=cap, **sizes
        )
        config.save_pretrained(tmp_path / name)
        (found,) = find_models([str(tmp_path / name)])
        assert estimate(found, corpus, Options(), device="cpu", machine=MACHINE).cost.job.capped == (cap is not None)


def test_fewer_tokens_and_fewer_bits_take_less(source: Any, corpus: Corpus) -> None:
    whole = estimate(source, corpus, Options(), device="cpu", machine=MACHINE)
    few = estimate(source, corpus, Options(tokens=200), device="cpu", machine=MACHINE)
    small = estimate(source, corpus, Options(load_in="4bit"), device="cpu", machine=MACHINE)
    assert few.cost.operations.total < whole.cost.operations.total
    assert few.cost.job.kept < whole.cost.job.kept  # type: ignore[operator]
    assert small.weights == whole.weights - 3.5 * whole.architecture.matrices


def test_the_classes_of_a_sample_are_those_to_be_expected(source: Any, corpus: Corpus) -> None:
    import numpy as np

    few = estimate(source, corpus, Options(tokens=200), device="cpu", machine=MACHINE)
    ids = corpus.train.ids
    seen = [len(np.unique(ids[np.random.default_rng(seed).permutation(len(ids))[:7], 1:])) for seed in range(40)]
    assert few.cost.job.kept == pytest.approx(np.mean(seen), rel=0.2)


def test_text_that_is_not_built_yet_needs_a_number_of_tokens(source: Any) -> None:
    data = Data(open_source(["storyworld:stories=12,validation=4"]))
    with pytest.raises(ConfigError, match="Say --tokens N"):
        estimate(source, data, Options(), device="cpu", machine=MACHINE)
    made = estimate(source, data, Options(tokens=10_000), device="cpu", machine=MACHINE)
    assert (made.cost.job.train_tokens, made.cost.job.kept, made.cost.job.block) == (10_000, 320, 32)


def test_the_machine_is_timed_in_a_second() -> None:
    import time

    start = time.process_time()
    machine = this_machine(torch.device("cpu"))
    assert time.process_time() - start < 5
    assert machine.flops > 1e7
    assert machine.bandwidth > 1e7
