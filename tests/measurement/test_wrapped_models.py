"""Models as training leaves them: compiled, wrapped for data parallelism, prepared by accelerate, sharded."""

import os
import traceback
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from torch import nn
from torch.distributed.fsdp import fully_shard
from transformers import Trainer, TrainingArguments

from collapselab.corpus.blocks import Corpus
from collapselab.errors import ConfigError
from collapselab.measurement.measure import measure
from collapselab.models.build import build_config, build_model
from collapselab.records.measurement import Result
from collapselab.training.callback import CollapseCallback


def small_model() -> Any:
    """A model in training mode, with a context shorter than the blocks of the corpus."""
    return build_model(build_config("gpt-neo", width=16, depth=2, vocabulary=320, positions=24, head_size=16), seed=0)


def measured(model: Any, corpus: Corpus) -> Result:
    result = measure(model, corpus, tokens=600, layers="all", quiet=True)
    assert isinstance(result, Result)
    return result


def wrapped_in(kind: str, model: Any) -> Any:
    if kind == "torch.compile":
        return torch.compile(model, backend="eager")
    if kind == "model.compile":
        model.compile(backend="eager")
        return model
    if kind == "DataParallel":
        return nn.DataParallel(model)
    AcceleratorState._reset_state(reset_partial_state=True)
    return Accelerator(mixed_precision="bf16" if "bf16" in kind else "no", cpu=True).prepare(model)


@pytest.mark.parametrize("kind", ["torch.compile", "model.compile", "DataParallel", "accelerate", "accelerate, bf16"])
def test_a_wrapped_model_has_the_values_of_the_plain_one_and_stays_wrapped(kind: str, corpus: Corpus) -> None:
    plain = measured(small_model(), corpus)
    assert plain.facts["context"] == 24
    wrapped = wrapped_in(kind, small_model())
    forward, result = wrapped.__dict__.get("forward"), measured(wrapped, corpus)
    assert (result.rows, result.facts["model_hash"]) == (plain.rows, plain.facts["model_hash"])
    assert (result.facts["context"], result.name) == (24, plain.name)
    assert wrapped.training
    assert wrapped.__dict__.get("forward") is forward
    torch.compiler.reset()


def test_a_trainer_in_bfloat16_is_watched(corpus: Corpus, tmp_path: Path) -> None:
    blocks = [{"input_ids": ids[:24], "labels": ids[:24]} for ids in map(corpus.train.__getitem__, range(8))]
    arguments = TrainingArguments(
        str(tmp_path),
        max_steps=2,
        per_device_train_batch_size=2,
        bf16=True,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
    )
    trainer = Trainer(small_model(), arguments, train_dataset=blocks)  # type: ignore[arg-type]
    callback = CollapseCallback(corpus, every=1, tokens=300, max_share=float("inf"))
    trainer.add_callback(callback)
    trainer.train()
    assert sorted(callback.results) == [0, 1, 2]


def in_two_processes(folder: Path, what: Any) -> list[str]:
    """What a function says in each of two processes that share a model."""
    for rank in range(2):
        if os.fork() == 0:
            try:
                torch.set_num_threads(1)
                dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
                (folder / str(rank)).write_text(what())
            except BaseException:  # noqa: BLE001  a forked child must not run the parent's code
                (folder / str(rank)).write_text(traceback.format_exc())
            finally:
                os._exit(0)
    for _ in range(2):
        os.wait()
    return [(folder / str(rank)).read_text() for rank in range(2)]


def test_a_model_sharded_by_fsdp2_is_refused_in_every_process(corpus: Corpus, tmp_path: Path) -> None:
    def refusal() -> str:
        model = small_model()
        for block in model.transformer.h:
            fully_shard(block)
        with pytest.raises(ConfigError) as refused:
            measured(model, corpus)
        return str(refused.value)

    first, second = in_two_processes(tmp_path, refusal)
    assert first == second
    assert "FSDP2" in first
    assert "over processes" in first


def test_a_model_in_distributed_data_parallel_is_measured_by_one_process_alone(corpus: Corpus, tmp_path: Path) -> None:
    def values() -> str:
        model = nn.parallel.DistributedDataParallel(small_model())
        return str(measured(model, corpus).rows) if dist.get_rank() == 0 else ""

    assert in_two_processes(tmp_path, values) == [str(measured(small_model(), corpus).rows), ""]
