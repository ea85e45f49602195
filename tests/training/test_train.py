"""One model, trained: against a loop written by hand, against itself interrupted, and against what users get wrong."""

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from collapselab import disk as storage
from collapselab.corpus.blocks import Corpus
from collapselab.corpus.build import Recipe, build_corpus
from collapselab.corpus.sources import open_source
from collapselab.errors import ConfigError, CorpusError, DiskError, Interrupted, ModelError, RunError
from collapselab.models import scores
from collapselab.models.build import build_config, build_model
from collapselab.records.run import RunFolder
from collapselab.training import checkpointing
from collapselab.training.checkpointing import Checkpointing
from collapselab.training.settings import settings_from
from collapselab.training.train import _one_message_for_a_lost_process as one_message_for_a_lost_process
from collapselab.training.train import train
from training.runs import logged

SMALL: dict[str, Any] = {"width": 16, "depth": 2, "batch": 4, "steps": 6, "lr": 3e-3}


def run(corpus: Path, out: Path, *, options: dict[str, Any] | None = None, **values: Any) -> list[dict[str, Any]]:
    return train(settings_from({**SMALL, **values}), corpus, out, **{"device": "cpu", **(options or {})})


def losses(out: Path) -> list[float]:
    return [entry["loss"] for entry in RunFolder(out).read_log() if "loss" in entry]


def weights(out: Path, checkpoint: str | None = None) -> dict[str, Tensor]:
    names = sorted((path.name for path in (out / "checkpoints").iterdir()), key=float)
    found = load_file(out / "checkpoints" / (checkpoint or names[-1]) / "model.safetensors")
    return {name: tensor.clone() for name, tensor in found.items()}  # not a view of a file that tests change


def assert_same_bits(a: dict[str, Tensor], b: dict[str, Tensor]) -> None:
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name


def by_hand(corpus: Path, *, optimizer: str = "adamw", decay: float = 5e-4, clip: float = 1.0, smoothing: float = 0.0,
            warmup: int = 0, steps: int = 6, batch: int = 4, lr: float = 3e-3) -> list[float]:  # fmt: skip
    """The same training with the library's model, plain cross-entropy and a loop that anyone can check."""
    data = Corpus(corpus)
    config = build_config("gpt-neo", width=16, depth=2, vocabulary=300, positions=32)
    model = AutoModelForCausalLM.from_config(config)
    model.load_state_dict(build_model(config, seed=0).state_dict())
    matrices = [p for p in model.parameters() if p.ndim > 1]
    rest = [p for p in model.parameters() if p.ndim == 1]
    groups = [{"params": matrices, "weight_decay": decay}, {"params": rest, "weight_decay": 0.0}]
    kinds: dict[str, Any] = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam, "sgd": torch.optim.SGD}
    chosen = kinds[optimizer](groups, lr=lr, **({"momentum": 0.9} if optimizer == "sgd" else {}))
    order = [int(i) for epoch in range(99) for i in data.train.order(seed=0, epoch=epoch)]
    found = []
    for step in range(steps):
        ids = torch.stack([data.train[i] for i in order[step * batch : (step + 1) * batch]])
        logits = model(input_ids=ids).logits[:, :-1].reshape(-1, 300)
        plain = F.cross_entropy(logits, ids[:, 1:].reshape(-1))
        F.cross_entropy(logits, ids[:, 1:].reshape(-1), label_smoothing=smoothing).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip or float("inf"))
        rate = (step / warmup) if step < warmup else (steps - step) / (steps - warmup)
        for group in chosen.param_groups:
            group["lr"] = lr * rate
        chosen.step()
        chosen.zero_grad()
        found.append(plain.item())
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({}, {}),
        ({"optimizer": "adam", "weight_decay": 0.3}, {"optimizer": "adam", "decay": 0.3}),
        ({"optimizer": "adamw", "weight_decay": 0.3}, {"decay": 0.3}),
        ({"optimizer": "sgd", "lr": 0.1, "clip": 0.05}, {"optimizer": "sgd", "lr": 0.1, "clip": 0.05}),
        ({"clip": 0.0, "label_smoothing": 0.2}, {"clip": 0.0, "smoothing": 0.2}),
        ({"warmup": 3}, {"warmup": 3}),
        ({"batch": None, "batch_tokens": 127, "lr": 1e-2}, {"batch": 3, "lr": 1e-2}),
    ],
    ids=lambda values: " ".join(f"{k}={v}" for k, v in values.items()) or "defaults",
)
def test_the_loss_curve_is_that_of_a_loop_written_by_hand(
    ours: dict[str, Any], theirs: dict[str, Any], corpus_folder: Path, tmp_path: Path
) -> None:
    run(corpus_folder, tmp_path / "run", **ours)
    # float32 sums in another order, over six steps of Adam, which divides by small numbers at first
    torch.testing.assert_close(losses(tmp_path / "run"), by_hand(corpus_folder, **theirs), rtol=2e-5, atol=0)


@pytest.mark.slow
def test_batches_run_on_over_the_end_of_an_epoch(corpus_folder: Path, tmp_path: Path) -> None:
    blocks = len(Corpus(corpus_folder).train)
    batch = blocks // 2 + 3  # the second step crosses into the second epoch
    run(corpus_folder, tmp_path / "run", batch=batch, steps=3, lr=1e-3)
    expected = by_hand(corpus_folder, batch=batch, steps=3, lr=1e-3)
    torch.testing.assert_close(losses(tmp_path / "run"), expected, rtol=1e-5, atol=0)


def test_the_golden_loss_curve_on_storyworld(corpus_folder: Path, tmp_path: Path) -> None:
    facts = run(corpus_folder, tmp_path / "run", steps=40, batch=8, lr=1e-2, seed=7)
    curve = losses(tmp_path / "run")
    assert [curve[step] for step in (0, 9, 19, 29, 39)] == pytest.approx(GOLDEN, abs=2e-3)
    assert facts[-1].val_loss == pytest.approx(GOLDEN_VALIDATION, abs=2e-3)


GOLDEN = [5.7023, 4.6084, 4.1577, 4.2392, 4.2713]
GOLDEN_VALIDATION = 4.2160


def test_the_same_settings_give_the_same_bits(corpus_folder: Path, tmp_path: Path) -> None:
    for name in "ab":
        run(corpus_folder, tmp_path / name, dropout=0.2)
    assert_same_bits(weights(tmp_path / "a"), weights(tmp_path / "b"))
    assert losses(tmp_path / "a") == losses(tmp_path / "b")


def test_seed_decides_the_weights_and_data_seed_the_order(corpus_folder: Path, tmp_path: Path) -> None:
    runs: dict[str, dict[str, Any]] = {"base": {}, "seed": {"seed": 1, "data_seed": 0}, "data": {"data_seed": 1}}
    for name, values in runs.items():
        run(corpus_folder, tmp_path / name, **values)
    start = {name: weights(tmp_path / name, "0")["transformer.wte.weight"] for name in runs}
    assert torch.equal(start["base"], start["data"])
    assert not torch.equal(start["base"], start["seed"])
    first = {name: losses(tmp_path / name)[0] for name in runs}
    assert abs(first["base"] - first["data"]) > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("family", ["gpt-neo", "gpt2", "llama", "pythia", "qwen3"])
def test_every_checkpoint_is_one_the_library_reads(family: str, corpus_folder: Path, tmp_path: Path) -> None:
    facts = run(corpus_folder, tmp_path / "run", family=family, width=32, depth=1, tied=family != "llama")
    data = Corpus(corpus_folder)
    for entry in facts:
        folder = tmp_path / "run" / "checkpoints" / entry.checkpoint
        model = AutoModelForCausalLM.from_pretrained(folder).eval()
        ids = torch.from_numpy(data.validation.ids.astype("int64"))
        with torch.no_grad():
            logits = model(input_ids=ids).logits[:, :-1].reshape(-1, data.vocabulary)
        labels = ids[:, 1:].reshape(-1)
        assert entry.val_loss == pytest.approx(float(F.cross_entropy(logits, labels)), rel=1e-5)
        assert entry.val_accuracy == pytest.approx(float((logits.argmax(1) == labels).float().mean()), abs=2e-3)
        assert entry.perplexity == pytest.approx(float(F.cross_entropy(logits, labels).exp()), rel=1e-4)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        assert tokenizer("Once upon a time")["input_ids"] == data.tokenizer()("Once upon a time")["input_ids"]
    assert facts[0].val_loss > facts[-1].val_loss


def test_a_family_of_ones_own_comes_from_its_configuration(corpus_folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "opt", "hidden_size": 32, "ffn_dim": 64, "num_attention_heads": 2}))
    facts = run(corpus_folder, tmp_path / "run", family=str(path), depth=1)
    assert facts[-1].val_loss < facts[0].val_loss
    assert json.loads((tmp_path / "run/checkpoints/0/config.json").read_text())["model_type"] == "opt"


def test_run_json_tells_the_whole_story(corpus_folder: Path, tmp_path: Path) -> None:
    run(corpus_folder, tmp_path / "run")
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["settings"]["lr"] == 3e-3
    assert record["settings"]["data_seed"] == 0
    assert record["corpus"]["hash"] == Corpus(corpus_folder).hash
    assert record["plan"]["steps"] == 6
    built = build_config("gpt-neo", width=16, depth=2, vocabulary=300, positions=32)
    assert record["model"]["parameters"] == sum(p.numel() for p in build_model(built, seed=0).parameters())
    assert record["provenance"]["versions"]["torch"] == torch.__version__


def test_accumulation_divides_a_step_and_changes_nothing(corpus_folder: Path, tmp_path: Path) -> None:
    run(corpus_folder, tmp_path / "whole")
    run(corpus_folder, tmp_path / "parts", options={"accumulation": 4})
    torch.testing.assert_close(losses(tmp_path / "parts"), losses(tmp_path / "whole"), rtol=2e-5, atol=0)
    with pytest.raises(
        ConfigError, match="4 sequences cannot be shared by 1 process.* × 3 accumulation.*multiple of 3"
    ):
        run(corpus_folder, tmp_path / "odd", options={"accumulation": 3})


def test_a_finished_run_is_not_done_again(corpus_folder: Path, tmp_path: Path) -> None:
    first = run(corpus_folder, tmp_path / "run")
    written = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*") if path.is_file()}
    assert run(corpus_folder, tmp_path / "run") == first
    written.pop(tmp_path / "run" / ".lock")
    assert {path: path.stat().st_mtime_ns for path in written} == written


class Crash(BaseException):
    """Stands for a process that is killed."""


@pytest.mark.slow
@pytest.mark.parametrize("moment", range(1, 10))
def test_killed_at_any_write_it_ends_with_the_same_bits(
    moment: int, corpus_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values: dict[str, Any] = {"dropout": 0.1, "checkpoints": "0,0.01", "options": {"save_minutes": 0, "log_every": 2}}
    run(corpus_folder, tmp_path / "whole", **values)
    replace, calls = os.replace, 0

    def fragile(source: Any, target: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == moment:
            raise Crash
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(storage.os, "replace", fragile)
        patch.setattr(storage.shutil, "rmtree", lambda *_, **__: None)  # a killed process tidies nothing up
        with pytest.raises(Crash):
            run(corpus_folder, tmp_path / "killed", **values)
    run(corpus_folder, tmp_path / "killed", **values)
    for checkpoint in ("0", "0.01", None):
        assert_same_bits(weights(tmp_path / "whole", checkpoint), weights(tmp_path / "killed", checkpoint))
    assert losses(tmp_path / "whole") == losses(tmp_path / "killed")
    left = [path for path in (tmp_path / "killed").rglob("*") if "partial" in path.name or "tmp" in path.name]
    assert left == []


@pytest.fixture(scope="module")
def long_run(corpus_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "whole"
    run(corpus_folder, out, steps=250)
    return out


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda how: how.name)
def test_a_process_that_is_stopped_goes_on_to_the_same_bits(
    how: signal.Signals, corpus_folder: Path, long_run: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "collapselab", "train", "--corpus", str(corpus_folder), "--out", str(tmp_path / "run"), "--width", "16", "--depth", "2", "--batch", "4", "--steps", "250", "--lr", "3e-3", "--device", "cpu", "--save-minutes", "0.002"]  # fmt: skip
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    log, deadline = tmp_path / "run" / "log.jsonl", time.monotonic() + 120
    while not (log.exists() and log.read_text().count("\n") > 40) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(how)
    _, messages = process.communicate(timeout=60)
    assert losses(tmp_path / "run")
    assert len(losses(tmp_path / "run")) < 250
    if how == signal.SIGKILL:
        assert process.returncode == -9
    else:
        assert process.returncode == 128 + how
        assert "Everything is saved; the same command continues" in messages.replace("\n", " ")
        assert int(next((tmp_path / "run" / "state").iterdir()).stem) > 0
    run(corpus_folder, tmp_path / "run", steps=250)
    assert_same_bits(weights(long_run), weights(tmp_path / "run"))
    assert losses(long_run) == losses(tmp_path / "run")


@pytest.mark.slow
def test_two_processes_give_the_loss_curve_of_one(corpus_folder: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29517", "-m", "collapselab", "train", "--corpus", str(corpus_folder), "--out", str(tmp_path / "two"), "--width", "16", "--depth", "2", "--batch", "4", "--steps", "6", "--lr", "3e-3", "--device", "cpu"]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, timeout=240)
    one, two = run(corpus_folder, tmp_path / "one"), RunFolder(tmp_path / "two")
    torch.testing.assert_close(losses(tmp_path / "two"), losses(tmp_path / "one"), rtol=2e-5, atol=0)
    last = two.checkpoint(one[-1].checkpoint)
    assert last is not None
    assert last.val_loss == pytest.approx(one[-1].val_loss, rel=1e-5)
    record = two.record()
    assert record is not None
    assert record.provenance.processes == 2


def test_a_loss_that_is_not_finite_stops_before_the_update(
    corpus_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        RunError,
        match=r"run: (loss|the gradient's norm) is (nan|inf) at step \d+\. Stopped before the update; the last checkpoint is epoch 0",
    ):
        run(corpus_folder, tmp_path / "run", optimizer="sgd", lr=1e20, clip=0.0, steps=20)
    assert len(losses(tmp_path / "run")) < 20
    assert (tmp_path / "run" / "checkpoints").exists()
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["0"]


def test_resuming_with_other_settings_names_them(corpus_folder: Path, tmp_path: Path) -> None:
    run(corpus_folder, tmp_path / "run")
    with pytest.raises(RunError, match=r"other settings \(lr was 0\.003, now 0\.5; seed was 0, now 3\)"):
        run(corpus_folder, tmp_path / "run", lr=0.5, seed=3, data_seed=0)


def test_another_corpus_is_another_run(corpus_folder: Path, tmp_path: Path) -> None:
    from collapselab.corpus.build import Recipe, build_corpus
    from collapselab.corpus.sources import open_source

    other = tmp_path / "other"
    build_corpus(
        open_source(["storyworld:stories=60,validation=8,seed=2"]), other, Recipe(tokenizer="bpe:300", block=32)
    )
    run(corpus_folder, tmp_path / "run")
    with pytest.raises(RunError, match=r"other settings \(corpus was '[0-9a-f]+', now '[0-9a-f]+'\)"):
        run(other, tmp_path / "run")


def interrupted(
    corpus: Path, out: Path, *, after: int, monkeypatch: pytest.MonkeyPatch, report_to: str = "none", **values: Any
) -> None:
    """A run that was told to stop after a step, with a state saved at every step before."""
    with monkeypatch.context() as patch:
        original = Checkpointing.on_step_begin

        def stop(self: Any, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            original(self, args, state, control, **kwargs)
            if state.global_step == after - 1:
                self.around.request.number = signal.SIGTERM

        patch.setattr(Checkpointing, "on_step_begin", stop)
        with pytest.raises(Interrupted, match=f"stopped after step {after} of"):
            run(corpus, out, options={"save_minutes": 0, "report_to": report_to}, **values)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("validation", "after"), [(0, "before its first step"), (1, "after step 1 of 6"), (2, "after step 6 of 6")]
)
@pytest.mark.parametrize("head", ["learned", "class-means"])
def test_a_signal_during_validation_ends_it_after_its_batch_and_the_run_continues_there(
    validation: int, after: str, head: str, corpus_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {"checkpoints": "log:2", "head": head, "tied": head == "learned"}
    run(corpus_folder, tmp_path / "whole", **values)
    monkeypatch.setattr(scores, "TOKENS_AT_ONCE", 32)
    split_scores, score, begun, batches = checkpointing.split_scores, scores.Scorer.sums, [], []

    def counting(*args: Any, **kwargs: Any) -> scores.Scores:
        if kwargs["blocks"] is None:  # the validation split, not the sample of training blocks
            begun.append(1)
        return split_scores(*args, **kwargs)

    def signalling(self: scores.Scorer, *args: Any) -> Tensor:
        if len(begun) == validation + 1:
            batches.append(1)
            os.kill(os.getpid(), signal.SIGTERM)
        return score(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(checkpointing, "split_scores", counting)
        patch.setattr(scores.Scorer, "sums", signalling)
        with pytest.raises(Interrupted, match=f"stopped {after}"):
            run(corpus_folder, tmp_path / "stopped", options={"save_minutes": 0}, **values)
    assert len(batches) == 1, "of many"
    assert len(RunFolder(tmp_path / "stopped").checkpoint_names()) == validation
    run(corpus_folder, tmp_path / "stopped", **values)
    for checkpoint in RunFolder(tmp_path / "whole").checkpoint_names():
        assert_same_bits(weights(tmp_path / "whole", checkpoint), weights(tmp_path / "stopped", checkpoint))
    assert losses(tmp_path / "whole") == losses(tmp_path / "stopped")
    assert logged(tmp_path / "stopped", "val_loss") == pytest.approx(logged(tmp_path / "whole", "val_loss"), rel=1e-6)


def test_a_training_that_is_continued_is_one_run_of_its_tracker(
    corpus_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    interrupted(corpus_folder, tmp_path, after=4, monkeypatch=monkeypatch, report_to="tensorboard")
    run(corpus_folder, tmp_path, options={"report_to": "tensorboard"})
    tracked = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [event.step for event in tracked.Scalars("train/loss")] == [1, 2, 3, 4, 5, 6]
    assert [event.value for event in tracked.Scalars("train/loss")] == pytest.approx(losses(tmp_path))


@pytest.mark.slow
def test_a_damaged_state_falls_back_to_the_one_before(
    corpus_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(corpus_folder, tmp_path / "whole")
    for damaged, start in (({4}, 3), ({3, 4}, 0)):
        out = tmp_path / f"from {start}"
        interrupted(corpus_folder, out, after=4, monkeypatch=monkeypatch)
        assert sorted(path.stem for path in (out / "state").iterdir()) == ["3", "4"]
        for step in damaged:
            path = out / "state" / f"{step}.safetensors"
            content = bytearray(path.read_bytes())
            content[-5] ^= 1
            path.write_bytes(content)
        capsys.readouterr()
        run(corpus_folder, out)
        said = capsys.readouterr().err
        assert "4.safetensors: damaged" in said
        assert (f"continuing at step {start} of 6" in said) == (start > 0)
        assert_same_bits(weights(out), weights(tmp_path / "whole"))


def test_a_damaged_checkpoint_is_made_again(
    corpus_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(corpus_folder, tmp_path / "run", checkpoints="0,0.01")
    good = weights(tmp_path / "run", "0.01")
    path = tmp_path / "run" / "checkpoints" / "0.01" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    before = losses(tmp_path / "run")
    run(corpus_folder, tmp_path / "run", checkpoints="0,0.01")
    assert "Checkpoint 0.01 is made again" in capsys.readouterr().err
    assert_same_bits(weights(tmp_path / "run", "0.01"), good)
    assert losses(tmp_path / "run") == before
    log = RunFolder(tmp_path / "run").read_log()
    assert [entry["checkpoint"] for entry in log if "checkpoint" in entry].count("0.01") == 1


@pytest.mark.slow
def test_a_full_disk_is_one_message_and_the_run_goes_on_later(
    corpus_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("collapselab.core.storage.save_tensors", full)
        with pytest.raises(DiskError, match="the disk is full"):
            run(corpus_folder, tmp_path / "run", options={"save_minutes": 0})
    run(corpus_folder, tmp_path / "run")
    run(corpus_folder, tmp_path / "whole")
    assert_same_bits(weights(tmp_path / "run"), weights(tmp_path / "whole"))


def test_hardware_that_is_not_there_is_an_error(corpus_folder: Path, tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("returns where there is no GPU")
    with pytest.raises((ConfigError, ModelError), match="cuda"):
        run(corpus_folder, tmp_path / "run", options={"device": "cuda"})
    assert not (tmp_path / "run").exists()


def test_a_width_that_heads_do_not_divide_is_refused(corpus_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="llama: width 24 makes heads of 3 numbers.*Choose a multiple of 32"):
        run(corpus_folder, tmp_path / "run", family="llama", width=24)
    assert not (tmp_path / "run").exists()


def test_a_tokenizer_that_does_not_fit_its_corpus_is_refused(
    corpus_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = Corpus(corpus_folder).tokenizer()
    tokenizer.add_tokens(["<one more>"])  # as another version of the library might
    monkeypatch.setattr(Corpus, "tokenizer", lambda _: tokenizer)
    with pytest.raises(CorpusError, match="its tokenizer has 301 tokens, but its ids were made with 300"):
        run(corpus_folder, tmp_path / "run")


def test_blocks_longer_than_the_context_are_refused(corpus_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="context: 16 positions are too few for blocks of 32"):
        run(corpus_folder, tmp_path / "run", context=16)


def test_a_folder_of_something_else_is_left_alone(corpus_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(RunError, match="folder"):
        run(corpus_folder, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_two_processes_do_not_train_the_same_folder(corpus_folder: Path, tmp_path: Path) -> None:
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with RunFolder(tmp_path / "run").locked():
            held.set()
            release.wait(60)

    other = threading.Thread(target=hold)
    other.start()
    held.wait(60)
    try:
        with pytest.raises(RunError, match="another process is training this run"):
            run(corpus_folder, tmp_path / "run")
    finally:
        release.set()
        other.join()
    run(corpus_folder, tmp_path / "run")


def test_a_tracker_gets_the_curve(corpus_folder: Path, tmp_path: Path) -> None:
    run(corpus_folder, tmp_path / "run", options={"report_to": "tensorboard"})
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    curve = [event.value for event in found.Scalars("train/loss")]
    torch.testing.assert_close(curve, losses(tmp_path / "run"), rtol=1e-6, atol=0)
    assert found.Tags()["scalars"].count("train/val_loss") == 1
    (settings,) = (tmp_path / "run" / "tensorboard").glob("*/hparams.yml")
    assert "steps: 6" in settings.read_text()


def test_a_tracker_that_is_not_there_is_named(corpus_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="clearml is not a tracker. Choose from tensorboard, wandb, trackio"):
        run(corpus_folder, tmp_path / "run", options={"report_to": "clearml"})
    with pytest.raises(ConfigError, match=r"trackio is not installed.*collapselab\[trackio\]"):
        run(corpus_folder, tmp_path / "run", options={"report_to": "trackio"})


# Documents, one a block ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sentences of small stories, one a block of 32, most of them padded."""
    folder = tmp_path_factory.mktemp("documents")
    stories = list(open_source(["storyworld:stories=20,validation=1,seed=1"]).train.open())
    sentences = [f"{sentence}." for text in stories for sentence in text.split(".") if len(sentence) > 1]
    (folder / "text.txt").write_text("\n<|endoftext|>\n".join(sentences))
    source = open_source([str(folder / "text.txt")], validation=[str(folder / "text.txt")])
    build_corpus(source, folder / "corpus", Recipe(tokenizer="bpe:300", block=32, packing="document"))
    return folder / "corpus"


def test_on_documents_the_loss_is_that_of_their_own_tokens(documents: Path, tmp_path: Path) -> None:
    facts = run(documents, tmp_path / "r", steps=3, options={"log_every": 1})
    split = Corpus(documents).train
    assert split.lengths is not None
    model = build_model(build_config("gpt-neo", width=16, depth=2, vocabulary=300, positions=32), seed=0)
    numbers = split.order(seed=0)[:4]
    with torch.no_grad():
        alone = [split[int(number)][: int(split.lengths[number])] for number in numbers]
        every = [F.cross_entropy(model(ids[None]).logits[0, :-1], ids[1:], reduction="none") for ids in alone]
    assert losses(tmp_path / "r")[0] == pytest.approx(float(torch.cat(every).mean()), rel=1e-5)
    taken = sum(int(split.lengths[number]) - 1 for number in split.order(seed=0)[:12])
    assert facts[-1].tokens == taken


@pytest.mark.slow
def test_on_documents_a_step_is_the_mean_of_its_labels_however_it_is_divided(documents: Path, tmp_path: Path) -> None:
    for parts in (1, 2, 4):
        run(documents, tmp_path / str(parts), options={"accumulation": parts, "log_every": 1})
    for parts in (2, 4):
        assert losses(tmp_path / str(parts)) == pytest.approx(losses(tmp_path / "1"), rel=1e-5)


@pytest.mark.slow
def test_on_documents_a_stopped_training_goes_on_to_the_same_bits(
    documents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(documents, tmp_path / "whole")
    real = Checkpointing.on_step_end

    def stop(self: Any, args: Any, state: Any, control: Any, **rest: Any) -> None:
        self.stop = state.global_step == 3
        real(self, args, state, control, **rest)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpointing, "on_step_end", stop)
        with pytest.raises(Interrupted):
            run(documents, tmp_path / "stopped")
    run(documents, tmp_path / "stopped")
    assert_same_bits(weights(tmp_path / "whole"), weights(tmp_path / "stopped"))


@pytest.mark.slow
def test_the_loss_that_is_logged_is_without_label_smoothing(corpus_folder: Path, tmp_path: Path) -> None:
    for smoothing in (0.0, 0.3):
        run(corpus_folder, tmp_path / f"{smoothing}", label_smoothing=smoothing, steps=2, options={"log_every": 1})
    plain, smoothed = (logged(tmp_path / f"{smoothing}", "loss") for smoothing in (0.0, 0.3))
    assert plain[0] == smoothed[0], "the first step has the same weights"
    assert plain[1] != smoothed[1], "the gradient has the smoothing"


@pytest.mark.slow
@pytest.mark.parametrize("clip", [0.0, 0.5, 100.0])
def test_the_share_of_clipped_steps_is_logged(clip: float, corpus_folder: Path, tmp_path: Path) -> None:
    run(corpus_folder, tmp_path / "run", clip=clip, steps=12, options={"log_every": 1})
    norms, clipped = (logged(tmp_path / "run", name) for name in ("grad_norm", "clipped"))
    assert clipped == [float(0 < clip < norm) for norm in norms]
    run(corpus_folder, tmp_path / "seldom", clip=clip, steps=12, options={"log_every": 5})
    assert logged(tmp_path / "seldom", "clipped") == [
        sum(clipped[:5]) / 5,
        sum(clipped[5:10]) / 5,
        sum(clipped[10:]) / 2,
    ]
    assert sum(clipped) == (0 if clip != 0.5 else 12)


@pytest.mark.slow
def test_a_checkpoint_says_the_share_of_its_steps_that_were_clipped(corpus_folder: Path, tmp_path: Path) -> None:
    options = {"log_every": 1}
    made = run(corpus_folder, tmp_path, clip=0.9, steps=40, checkpoints="log:4", options=options)
    clipped = logged(tmp_path, "clipped")
    assert 0 < sum(clipped) < len(clipped) == 40
    assert [one.clipped for one in made] == [None, *(sum(clipped[: one.step]) / one.step for one in made[1:])]
    assert len(made) == 5


GLOO = "[../third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:1234"


@pytest.mark.parametrize(
    ("processes", "text", "kind"), [(2, GLOO, RunError), (1, GLOO, RuntimeError), (2, "other", RuntimeError)]
)
def test_a_process_that_is_lost_is_one_message(
    processes: int, text: str, kind: type[Exception], tmp_path: Path
) -> None:
    with pytest.raises(Exception) as raised, one_message_for_a_lost_process(RunFolder(tmp_path / "r"), processes):  # noqa: PT011
        raise RuntimeError(text)
    assert raised.type is kind
