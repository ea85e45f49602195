"""The callback in a Trainer that is not ours, with a model that was not built here."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from collapselab.core.catalogue import METRICS
from collapselab.corpus.blocks import Corpus
from collapselab.errors import ConfigError, CorpusError
from collapselab.measurement.measure import measure
from collapselab.records.profile import HEADLINE_METRICS
from collapselab.training.callback import CollapseCallback
from collapselab.training.monitor import SPECTRA


def model(kind: str = "gpt2", vocabulary: int = 300) -> Any:
    torch.manual_seed(0)
    sizes = {"vocab_size": vocabulary, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    if kind == "llama":
        return LlamaForCausalLM(LlamaConfig(**sizes, intermediate_size=32, num_key_value_heads=2))
    return GPT2LMHeadModel(GPT2Config(**sizes, n_positions=32))  # dropout of 0.1 in every place


def trainer(folder: Path, corpus: Corpus, kind: str = "gpt2", **arguments: Any) -> Trainer:
    blocks = [{"input_ids": corpus.train[i], "labels": corpus.train[i]} for i in range(24)]
    args = TrainingArguments(
        output_dir=str(folder), max_steps=6, per_device_train_batch_size=4, use_cpu=True, learning_rate=1e-3,
        save_strategy="no", report_to="none", disable_tqdm=True, logging_steps=2, **arguments,
    )  # fmt: skip
    return Trainer(model=model(kind), args=args, train_dataset=blocks)


@pytest.fixture
def corpus(corpus_folder: Path) -> Corpus:
    return Corpus(corpus_folder)


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_it_logs_what_measure_finds_at_every_interval(kind: str, corpus: Corpus, tmp_path: Path) -> None:
    watched = trainer(tmp_path, corpus, kind)
    watched.add_callback(CollapseCallback(corpus, every=2, tokens=600, null=True, metrics="all", max_share=math.inf))
    initial = measure(watched.model, corpus, tokens=600, quiet=True)
    watched.train()
    final = measure(watched.model, corpus, tokens=600, quiet=True)
    logs = [entry for entry in watched.state.log_history if "collapse/cdnv" in entry]
    assert [entry["step"] for entry in logs] == [0, 2, 4, 6]
    for result, entry in ((initial, logs[0]), (final, logs[-1])):
        values = {row.metric: row for row in result.rows if row.split == "train" and row.layer == "last"}
        assert set(values) == set(METRICS)
        for name, row in values.items():
            assert entry.get(f"collapse/{name}") == row.value, name
            assert entry.get(f"collapse/null/{name}") == (row.null if row.value is not None else None), name
        assert entry["collapse/val_loss"] == result.facts["splits"]["validation"]["loss"]
    assert logs[0]["collapse/cdnv"] != logs[-1]["collapse/cdnv"]
    assert 0 < logs[0]["collapse/seconds"] < logs[-1]["collapse/seconds"]


def test_the_training_is_bit_identical_with_it(corpus: Corpus, tmp_path: Path) -> None:
    def trained(callback: CollapseCallback | None) -> tuple[list[Tensor], list[float], Tensor]:
        one = trainer(tmp_path, corpus)
        if callback is not None:
            one.add_callback(callback)
        one.train()
        losses = [entry["loss"] for entry in one.state.log_history if "loss" in entry]
        assert one.model is not None
        return [p.detach().clone() for p in one.model.parameters()], losses, torch.rand(3)

    plain, watched = trained(None), trained(CollapseCallback(corpus, every=1, tokens=300, max_share=math.inf))
    assert all(torch.equal(a, b) for a, b in zip(plain[0], watched[0], strict=True))
    assert plain[1] == watched[1]
    assert torch.equal(plain[2], watched[2])


def test_mode_and_gradients_are_left_as_they_were(corpus: Corpus, tmp_path: Path) -> None:
    class Look(TrainerCallback):
        seen: list[bool]

        def on_step_end(self, args: Any, state: Any, control: Any, *, model: Any = None, **_: Any) -> None:
            self.seen.append(model.training and all(p.requires_grad for p in model.parameters()))

    watched, look = trainer(tmp_path, corpus), Look()
    look.seen = []
    watched.add_callback(CollapseCallback(corpus, every=1, tokens=300, metrics="all", max_share=math.inf))
    watched.add_callback(look)
    watched.train()
    assert look.seen == [True] * 6


def test_it_appears_in_tensorboard(corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "board"))
    blocks = [{"input_ids": corpus.train[i], "labels": corpus.train[i]} for i in range(8)]
    args = TrainingArguments(
        output_dir=str(tmp_path), max_steps=2, per_device_train_batch_size=4, use_cpu=True, save_strategy="no",
        report_to="tensorboard", disable_tqdm=True,
    )  # fmt: skip
    watched = Trainer(model=model(), args=args, train_dataset=blocks)
    watched.add_callback(CollapseCallback(corpus, every=1, tokens=300, metrics="all", max_share=math.inf))
    watched.train()
    found = EventAccumulator(str(tmp_path / "board")).Reload()
    assert [event.step for event in found.Scalars("train/collapse/duality_cos_mean")] == [0, 1, 2]


def test_texts_are_enough_for_the_headlines_and_the_spectrum_of_every_layer(corpus: Corpus, tmp_path: Path) -> None:
    texts = [f"Story {number}: Tom saw a big dog and ran home to his mother." for number in range(60)]
    watched = trainer(tmp_path, corpus, "gpt2")
    callback = CollapseCallback(data=texts, tokenizer=corpus.tokenizer(), every=100, tokens=300)
    watched.add_callback(callback)
    watched.train()
    logs = [entry for entry in watched.state.log_history if "collapse/agreement" in entry]
    assert len(logs) == len(callback.results) == 2
    curves = {name.removeprefix("collapse/") for name in logs[1] if name.startswith("collapse/")}
    spectra = {f"{layer}{metric}" for layer in ("", "layer1/", "layer2/") for metric in SPECTRA}
    others = {"val_loss", "val_accuracy", "seconds", "share"}
    assert spectra | others <= curves <= spectra | others | set(HEADLINE_METRICS)
    assert len(curves & set(HEADLINE_METRICS)) > 5
    assert len(spectra) == 18


def test_what_cannot_be_watched_is_refused(corpus: Corpus, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="every must be ≥ 1, got 0"):
        CollapseCallback(corpus, every=0)
    with pytest.raises(CorpusError, match="no such folder"):
        CollapseCallback(tmp_path / "nothing", every=1)
    small = trainer(tmp_path, corpus)
    small.model = model(vocabulary=200)
    small.add_callback(CollapseCallback(corpus, every=1, tokens=300, metrics="all", max_share=math.inf))
    with pytest.raises(CorpusError, match="knows only 200 tokens"):
        small.train()


class FullyShardedDataParallel(torch.nn.Module):
    """As torch calls what wraps a model whose weights are spread over processes."""


@pytest.mark.parametrize("kind", ["FSDP", "ZeRO-3", "DTensor"])
def test_weights_that_are_spread_over_processes_are_refused_by_name(kind: str, corpus: Corpus, tmp_path: Path) -> None:
    watched = trainer(tmp_path, corpus)
    assert watched.model is not None
    if kind == "FSDP":
        watched.model.add_module("wrapped", FullyShardedDataParallel())
    elif kind == "ZeRO-3":
        next(watched.model.parameters()).ds_id = 0  # type: ignore[attr-defined]
    else:
        head: Any = watched.model.get_output_embeddings()  # type: ignore[operator]
        head.register_parameter("part", type("DTensor", (torch.nn.Parameter,), {})(torch.ones(1)))
    watched.add_callback(CollapseCallback(corpus, every=3, tokens=300, metrics="all"))
    with pytest.raises(ConfigError, match=rf"CollapseCallback: the model is trained with .*{kind}.*over processes"):
        watched.train()


@pytest.mark.filterwarnings("ignore")  # of another library, about this machine
def test_a_trainer_of_lightning_logs_the_same(corpus: Corpus, tmp_path: Path) -> None:
    lightning = pytest.importorskip("pytorch_lightning", reason="returns where lightning is installed")
    from collapselab.training.lightning import CollapseLightningCallback

    class Module(lightning.LightningModule):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.model = model()

        def training_step(self, batch: Any, _: int) -> Tensor:
            loss: Tensor = self.model(input_ids=batch, labels=batch).loss
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.model.parameters(), lr=1e-3)

    logged: dict[int, dict[str, float]] = {}

    class Logger(lightning.loggers.Logger):  # type: ignore[misc,name-defined]
        name, version = "kept", 0

        def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
            if "collapse/cdnv" in metrics:
                logged[step or 0] = metrics

        def log_hyperparams(self, *_: Any, **__: Any) -> None:
            pass

    blocks = torch.stack([corpus.train[i] for i in range(24)])
    data = torch.utils.data.DataLoader(blocks, batch_size=4)  # type: ignore[arg-type]
    find: dict[str, Any] = {"model": lambda module: module.model, "max_share": math.inf}
    monitor = CollapseLightningCallback(corpus, every=3, tokens=300, metrics="all", **find)
    module = Module()
    initial = measure(module.model, corpus, tokens=300, null=False, quiet=True)
    fitted = lightning.Trainer(
        max_steps=6, callbacks=[monitor], logger=Logger(), accelerator="cpu", enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=tmp_path,
    )  # fmt: skip
    fitted.fit(module, data)
    final = measure(module.model, corpus, tokens=300, null=False, quiet=True)
    assert list(logged) == list(monitor.results) == [0, 3, 6]
    assert logged[0]["collapse/cdnv"] == initial.row("cdnv").value  # type: ignore[union-attr]
    assert logged[6]["collapse/cdnv"] == final.row("cdnv").value  # type: ignore[union-attr]
