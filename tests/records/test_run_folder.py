"""A run's folder: every file of a checkpoint is the one that was written, or the checkpoint is refused."""

import json
import os
import random
import shutil
from pathlib import Path

import pytest
from pydantic import JsonValue

from collapselab.errors import DamagedError, DiskError, RunError
from collapselab.models.build import build_config, build_model
from collapselab.records.run import (
    BuiltModel,
    CheckpointRecord,
    PlannedRun,
    Provenance,
    RunFolder,
    RunRecord,
    TrainedOn,
    checkpoint_at,
    identity,
)

SETTINGS: dict[str, JsonValue] = {"width": 8, "depth": 1, "seed": 0}


def record(**settings: JsonValue) -> RunRecord:
    values = SETTINGS | settings
    return RunRecord(
        hash=identity(values, "abc"),
        settings=values,
        corpus=TrainedOn(path="corpora/a", hash="abc", vocabulary=32, block=8),
        plan=PlannedRun(batch=2, blocks=4, steps=2, warmup=0, tokens=28, checkpoints={"0": 0, "1": 2}),
        model=BuiltModel(parameters=100, config={}),
        provenance=Provenance(
            started="2026-01-01", versions={}, python="3", commit=None, machine="m", device="cpu", precision="fp32",
            processes=1, threads=1,
        ),
    )  # fmt: skip


def checkpoint(name: str, run: str) -> CheckpointRecord:
    return CheckpointRecord(
        run=run, checkpoint=name, step=int(name), epoch=float(name), tokens=1, train_loss=None, val_loss=3.5,
        val_accuracy=0.1, perplexity=float("inf"), seconds=1.0,
    )  # fmt: skip


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("records") / "run"
    folder, tokenizer = RunFolder(path), tmp_path_factory.mktemp("tokenizer")
    (tokenizer / "tokenizer.json").write_text('{"model": {}}')
    folder.begin(record())
    for seed, name in enumerate(("0", "1")):
        model = build_model(build_config("gpt-neo", width=16, depth=1, vocabulary=32, positions=8), seed=seed)
        folder.write_checkpoint(model, tokenizer, checkpoint(name, record().hash))
    return path


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> RunFolder:
    shutil.copytree(written, tmp_path / "run")
    return RunFolder(tmp_path / "run")


def test_a_checkpoint_comes_back_with_what_is_known_of_it(folder: RunFolder) -> None:
    found = folder.checkpoint("1")
    assert found is not None
    assert (found.step, found.val_loss, found.train_loss, found.perplexity) == (1, 3.5, None, None)
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= found.files.keys()
    assert folder.checkpoint("2") is None
    assert folder.checkpoint_names() == ["0", "1"]


def test_a_flipped_bit_in_any_file_of_a_checkpoint_is_found(folder: RunFolder) -> None:
    chance, tried = random.Random(0), 0
    for file in sorted(folder.checkpoint_path("1").iterdir()):
        good = file.read_bytes()
        for _ in range(12):
            bad = bytearray(good)
            bad[chance.randrange(len(bad))] ^= 1 << chance.randrange(8)
            file.write_bytes(bad)
            if file.name == "training.json":
                try:
                    same = folder.checkpoint("1")
                except DamagedError:
                    same = None
                file.write_bytes(good)
                assert same is None or same == folder.checkpoint("1")
            else:
                with pytest.raises(DamagedError, match=file.name):
                    folder.checkpoint("1")
                file.write_bytes(good)
            tried += 1
    assert tried >= 12 * 5
    assert folder.checkpoint("1") is not None


def test_swapped_checkpoints_are_found(folder: RunFolder) -> None:
    one, other = folder.checkpoint_path("0"), folder.checkpoint_path("1")
    one.rename(one.with_name("between"))
    other.rename(one)
    one.with_name("between").rename(other)
    with pytest.raises(DamagedError, match="checkpoint 1"):
        folder.checkpoint("0")


def test_a_checkpoint_of_another_run_is_found(folder: RunFolder, tmp_path: Path) -> None:
    other = RunFolder(tmp_path / "other")
    other.begin(record(seed=1))
    shutil.copytree(folder.checkpoint_path("0"), other.checkpoint_path("0"))
    with pytest.raises(DamagedError, match=record(seed=1).hash):
        other.checkpoint("0")


@pytest.mark.parametrize(
    ("name", "refused"), [("pytorch_model.bin", True), ("adapter_config.json", True), ("notes.txt", False)]
)
def test_a_file_that_could_change_the_model_may_not_be_added(folder: RunFolder, name: str, refused: bool) -> None:
    (folder.checkpoint_path("0") / name).write_text("{}")
    if refused:
        with pytest.raises(DamagedError, match=name):
            folder.checkpoint("0")
    else:
        assert folder.checkpoint("0") is not None


def test_a_missing_file_is_found(folder: RunFolder) -> None:
    (folder.checkpoint_path("0") / "config.json").unlink()
    with pytest.raises(DamagedError, match="config.json"):
        folder.checkpoint("0")
    (folder.checkpoint_path("1") / "training.json").unlink()
    with pytest.raises(DamagedError, match="training.json"):
        folder.checkpoint("1")


def test_every_edited_value_of_the_records_is_found(folder: RunFolder) -> None:
    tried = 0
    for path, read in (
        (folder.path / "run.json", lambda: folder.record()),
        (folder.checkpoint_path("0") / "training.json", lambda: folder.checkpoint("0")),
    ):
        good = path.read_text()
        for edited in edits(json.loads(good)):
            path.write_text(json.dumps(edited))
            with pytest.raises(DamagedError):
                read()
            tried += 1
        path.write_text(good)
    assert tried > 40


def edits(document: JsonValue) -> list[JsonValue]:
    """The document with one value changed, each in turn."""
    if isinstance(document, dict):
        return [document | {key: changed} for key, value in document.items() for changed in edits(value)]
    if isinstance(document, list):
        return [
            [*document[:i], changed, *document[i + 1 :]] for i, value in enumerate(document) for changed in edits(value)
        ]
    if isinstance(document, bool) or document is None:
        return [not document]
    return [document + "x"] if isinstance(document, str) else [document + 1]


def test_other_settings_are_refused_with_what_differs(folder: RunFolder) -> None:
    with pytest.raises(RunError, match="seed.* 0.* 3"):
        folder.begin(record(seed=3))
    folder.begin(record())


def test_a_setting_of_a_later_version_that_was_changed_makes_another_run(folder: RunFolder) -> None:
    with pytest.raises(RunError, match="coupling.* 0.5"):
        folder.begin(record(coupling=0.5))


@pytest.mark.parametrize("line", [b"", b"[1]", b"{", b'{"loss": 1}', b'{"step": "a"}', b"\xff", b"[" * 100_000])
def test_a_line_of_the_log_that_is_none_is_left_out(folder: RunFolder, line: bytes) -> None:
    folder.log({"step": 1, "loss": 2.0})
    with (folder.path / "log.jsonl").open("ab") as file:
        file.write(line + b"\n")
    folder.log({"step": 2, "loss": 1.0})
    assert [entry["step"] for entry in folder.read_log()] == [1, 2]
    folder.rewind_log(1, set())
    assert [entry["step"] for entry in folder.read_log()] == [1]


def test_what_a_killed_process_left_among_the_states_does_not_stop_the_end(folder: RunFolder) -> None:
    (folder.path / "state").mkdir()
    (folder.path / "state" / ".6.safetensors.4194305.tmp").write_text("half")  # no process has this number
    folder.drop_states()
    assert "state" not in os.listdir(folder.path)


def test_a_folder_is_the_checkpoint_that_a_run_above_keeps_there(folder: RunFolder, tmp_path: Path) -> None:
    path = folder.checkpoint_path("1")
    found = checkpoint_at(path)
    assert found is not None
    assert (found.run.name, found.name, found.path) == ("run", "1", path)
    assert found.measurement == folder.path / "measure" / "1.json"
    assert [checkpoint.name for checkpoint in folder.checkpoints() if checkpoint.exists()] == ["0", "1"]
    shutil.copytree(path, folder.path / "copies" / "1")
    shutil.copytree(path, tmp_path / "checkpoints" / "1")
    for elsewhere in (folder.path / "copies" / "1", tmp_path / "checkpoints" / "1", folder.path, path / "deeper"):
        assert checkpoint_at(elsewhere) is None


def test_a_run_that_is_a_link_has_its_own_name(folder: RunFolder, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder.path)
    found = checkpoint_at(tmp_path / "link" / "checkpoints" / "1")
    assert found is not None
    assert (RunFolder(tmp_path / "link").name, found.run.name, found.name) == ("link", "link", "1")
    (tmp_path / "checkpoint").symlink_to(folder.checkpoint_path("0"))
    found = checkpoint_at(tmp_path / "checkpoint")
    assert found is not None
    assert (found.run.name, found.name) == ("run", "0")


def test_a_folder_in_place_of_its_record_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run" / "run.json").mkdir(parents=True)
    (tmp_path / "run" / "checkpoints" / "0").mkdir(parents=True)
    found = checkpoint_at(tmp_path / "run" / "checkpoints" / "0")
    assert found is not None
    with pytest.raises(DiskError, match="run.json"):
        found.run.record()
