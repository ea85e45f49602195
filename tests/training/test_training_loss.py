"""The training loss of a checkpoint: evaluated on a fixed sample of training blocks, beside the running mean."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM

from collapselab.corpus.blocks import Corpus
from collapselab.corpus.build import Recipe, build_corpus
from collapselab.corpus.sources import open_source
from collapselab.records.run import CheckpointRecord, RunFolder
from collapselab.suite.collect import run_row
from collapselab.training.checkpointing import MAX_SAMPLE, MIN_SAMPLE, SAMPLE_SHARE, training_sample
from collapselab.training.settings import plan, settings_from
from training.runs import run


def loop_loss(checkpoint: Path, blocks: torch.Tensor) -> float:
    """Mean next-token loss by the library's own forward pass, one block at a time."""
    model = AutoModelForCausalLM.from_pretrained(checkpoint).eval()
    losses = []
    with torch.no_grad():
        for block in blocks:
            logits = model(block[None]).logits[0, :-1].double()
            losses.append(cross_entropy(logits, block[1:], reduction="none"))
    return float(torch.cat(losses).mean())


@pytest.fixture(scope="module")
def small_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus whose training split has fewer labels than the smallest sample."""
    folder = tmp_path_factory.mktemp("corpus") / "storyworld"
    build_corpus(
        open_source(["storyworld:stories=6,validation=4,seed=1"]), folder, Recipe(tokenizer="bpe:300", block=32)
    )
    assert Corpus(folder).train.samples().sum() < MIN_SAMPLE
    return folder


@pytest.mark.parametrize("extra", [{}, {"dropout": 0.3, "label_smoothing": 0.2}, {"intervene": "within:+0.1"}])
def test_a_small_split_is_evaluated_whole_and_equals_a_loop(
    extra: dict[str, object], small_corpus: Path, tmp_path: Path
) -> None:
    records = run(small_corpus, tmp_path, checkpoints="0,0.3", steps=24, **extra)
    corpus = Corpus(small_corpus)
    blocks = torch.from_numpy(np.array(corpus.train.ids, dtype=np.int64))
    assert len(records) == 3
    for record in records:
        expected = loop_loss(tmp_path / "checkpoints" / record.checkpoint, blocks)
        assert record.train_loss == pytest.approx(expected, abs=1e-6)
        assert record.train_tokens == int(corpus.train.samples().sum())
    assert records[0].train_loss_running is None
    assert records[-1].train_loss_running != pytest.approx(records[-1].train_loss, abs=1e-3)


def test_the_sample_depends_on_the_corpus_and_not_on_the_seed(corpus_folder: Path, tmp_path: Path) -> None:
    split = Corpus(corpus_folder).train
    made = [run(corpus_folder, tmp_path / str(seed), seed=seed, steps=2) for seed in (0, 1)]
    assert made[0][-1].train_tokens == made[1][-1].train_tokens
    settings = settings_from({"width": 16, "depth": 1, "batch": 4, "steps": 6})
    sample = training_sample(split, plan(settings, blocks=len(split), block=split.block))
    blocks = torch.stack([split[int(number)] for number in sample])
    for seed, records in enumerate(made):
        expected = loop_loss(tmp_path / str(seed) / "checkpoints" / records[-1].checkpoint, blocks)
        assert records[-1].train_loss == pytest.approx(expected, abs=1e-6)
    assert sample[: len(sample)].tolist() != list(split.order(seed=0)[: len(sample)])


@pytest.mark.parametrize("steps", [50, 20_000, 10**6])
def test_samples_are_nested_and_cost_at_most_three_percent(steps: int, corpus_folder: Path) -> None:
    corpus = Corpus(corpus_folder).train
    settings = settings_from({"width": 16, "depth": 1, "batch": 8, "steps": steps})
    planned = plan(settings, blocks=len(corpus), block=corpus.block)
    sample = training_sample(corpus, planned)
    tokens = int(corpus.samples()[sample].sum())
    allowed = min(max(SAMPLE_SHARE * planned.tokens / len(planned.checkpoints), MIN_SAMPLE), MAX_SAMPLE)
    assert tokens < allowed + corpus.block or len(sample) == len(corpus)
    smallest = training_sample(corpus, plan(settings.model_copy(update={"steps": 1}), blocks=len(corpus), block=32))
    assert sample[: len(smallest)].tolist() == smallest.tolist()


def test_the_gap_and_both_losses_are_columns_of_a_run(small_corpus: Path, tmp_path: Path) -> None:
    record = run(small_corpus, tmp_path, steps=2)[-1]
    run_record = RunFolder(tmp_path).record()
    assert run_record is not None
    row = run_row("name", run_record, record)
    assert row["train_loss"] == record.train_loss
    assert row["train_loss_running"] == record.train_loss_running
    assert record.val_loss is not None
    assert record.train_loss is not None
    assert row["gap"] == record.val_loss - record.train_loss  # type: ignore[typeddict-item]
    assert row["clipped"] is not None
    assert math.isfinite(row["train_loss"] or math.nan)


def test_a_record_of_version_0_1_has_a_running_mean_alone() -> None:
    document = {
        "checkpoint": "1", "step": 5, "epoch": 1.0, "tokens": 7, "train_loss": 3.5, "val_loss": 3.6,
        "val_accuracy": 0.1, "perplexity": 36.0, "seconds": 1.0,
    }  # fmt: skip
    record = CheckpointRecord.parsed(document, "training.json")
    assert (record.train_loss, record.train_loss_running, record.train_tokens) == (None, 3.5, None)
