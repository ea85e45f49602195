"""Killed at any moment, the same call goes on and ends with the same bits; what is finished is not done again."""

import copy
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from checkpoints import save_checkpoint
from collapselab.corpus.blocks import Corpus
from collapselab.errors import DamagedError, Interrupted, RunError
from collapselab.measurement import measure_model as walk
from collapselab.measurement import resume as store
from collapselab.measurement.measure import measure
from collapselab.measurement.resume import ResumeFolder
from collapselab.records.measurement import Result, Results
from collapselab.records.tables import Row

OPTIONS: dict[str, Any] = {"tokens": 900, "batch": 4, "quiet": True}
BATCHES = 16  # 30 blocks a split, 4 at a time


@pytest.fixture(autouse=True)
def save_after_every_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "SAVE_SECONDS", 0.0)
    monkeypatch.setattr(store, "SAVE_FACTOR", 0)


class Killed(Exception):
    """The process ended here."""


def stopping_after(batches: int, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Let the model run for so many batches; the function tells how many it ran."""
    real, ran = walk.features, 0

    def features(*args: Any, **inputs: Any) -> Tensor:
        nonlocal ran
        if ran == batches:
            raise Killed
        ran += 1
        return real(*args, **inputs)

    monkeypatch.setattr(walk, "features", features)
    return lambda: ran


@pytest.fixture(scope="module")
def whole(model: nn.Module, corpus: Corpus) -> Result:
    result = measure(model, corpus, **OPTIONS)
    assert isinstance(result, Result)
    return result


@pytest.mark.parametrize("batches", [1, 3, 7, 8, 9, 15])
def test_an_interrupted_measurement_goes_on_and_ends_with_the_same_bits(
    model: nn.Module, corpus: Corpus, whole: Result, batches: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        stopping_after(batches, patch)
        with pytest.raises(Killed):
            measure(model, corpus, state=tmp_path, **OPTIONS)
    ran = stopping_after(BATCHES, monkeypatch)
    result = measure(model, corpus, state=tmp_path, **OPTIONS)
    assert result.rows == whole.rows
    assert ran() == BATCHES - batches, "finished batches must not be run again"
    assert [path.name for path in tmp_path.iterdir()] == ["finished"], "nothing is left to go on from"


def test_a_damaged_part_is_told_and_collected_again(
    model: nn.Module,
    corpus: Corpus,
    whole: Result,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with monkeypatch.context() as patch:
        stopping_after(6, patch)
        with pytest.raises(Killed):
            measure(model, corpus, state=tmp_path, **OPTIONS)
    (newest,) = tmp_path.glob("*/train-00.safetensors")
    contents = bytearray(newest.read_bytes())
    contents[-5] ^= 4
    newest.write_bytes(contents)
    ran = stopping_after(BATCHES, monkeypatch)
    result = measure(model, corpus, state=tmp_path, **OPTIONS)
    assert result.rows == whole.rows
    assert ran() == BATCHES
    assert "do not match their checksum" in capsys.readouterr().err


def test_the_batches_of_the_beginning_are_kept_although_auto_would_choose_others(
    model: nn.Module, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from collapselab.measurement import model as subject

    options = {"tokens": 900, "quiet": True}
    monkeypatch.setitem(subject.TOKENS_AT_ONCE, "cpu", 5 * 32)
    with monkeypatch.context() as patch:
        stopping_after(2, patch)
        with pytest.raises(Killed):
            measure(model, corpus, state=tmp_path, **options)
    monkeypatch.setitem(subject.TOKENS_AT_ONCE, "cpu", 8192)
    result = measure(model, corpus, state=tmp_path, **options)
    assert isinstance(result, Result)
    assert result.facts["batch"] == 5


def test_other_options_never_use_the_state_of_these(
    model: nn.Module, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        stopping_after(6, patch)
        with pytest.raises(Killed):
            measure(model, corpus, state=tmp_path, **OPTIONS)
    other = OPTIONS | {"seed": 1}
    assert measure(model, corpus, state=tmp_path, **other).rows == measure(model, corpus, **other).rows
    unfinished = [path for path in tmp_path.iterdir() if path.name != "finished"]
    assert len(unfinished) == 1, "the unfinished one is still there"


def test_a_second_process_at_the_same_measurement_is_refused(tmp_path: Path) -> None:
    folder = ResumeFolder(tmp_path / "one")
    with folder.lock():
        with pytest.raises(RunError, match="another process is at this measurement"), folder.lock():
            pass
        with folder.lock(rank=1):
            pass


# Finished results of models that are no runs ---------------------------------------------------------------------------


@pytest.fixture
def no_loading(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Call it, and no model can be loaded any more."""
    from collapselab.models import load

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("the model was loaded")

    return lambda: monkeypatch.setattr(load, "load_model", refuse)


@pytest.fixture
def own_folder(folder: Path, tmp_path: Path) -> Path:
    """A copy of the model's folder, to be changed."""
    shutil.copytree(folder, tmp_path / "mine")
    return tmp_path / "mine"


def test_a_finished_result_of_a_folder_is_found_again_without_loading_the_model(
    folder: Path,
    corpus: Corpus,
    tmp_path: Path,
    no_loading: Callable[[], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    options: dict[str, Any] = {"tokens": 100, "dtype": "float64", "state": tmp_path}
    first = measure(folder, corpus, **options)
    no_loading()
    again = measure(folder, corpus, out=tmp_path / "rows.csv", **options)
    assert again == first
    kept = next((tmp_path / "finished").iterdir())
    assert f"{folder}: measured already; {kept}. With --again it is measured again." in capsys.readouterr().err
    assert (tmp_path / "rows.csv").exists()
    with pytest.raises(AssertionError, match="the model was loaded"):
        measure(folder, corpus, again=True, **options)
    with pytest.raises(AssertionError, match="the model was loaded"):
        measure(folder, corpus, **(options | {"seed": 1}))


def test_a_kept_result_answers_for_the_same_weights_in_changed_files_and_for_no_others(
    own_folder: Path, model: Any, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"tokens": 100, "dtype": "float64", "state": tmp_path / "state", "quiet": True}
    first = measure(own_folder, corpus, **options)
    ran = stopping_after(99, monkeypatch)
    (own_folder / "README.md").write_text("The same model.")
    assert (measure(own_folder, corpus, **options).rows, ran()) == (first.rows, 0)
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.get_output_embeddings().weight[0, 0] += 1
    other.save_pretrained(own_folder)
    assert measure(own_folder, corpus, **options).rows != first.rows
    assert ran() > 0


def test_a_kept_result_that_is_damaged_or_of_another_version_is_measured_again(
    folder: Path, corpus: Corpus, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options: dict[str, Any] = {"tokens": 100, "dtype": "float64", "state": tmp_path}
    first = measure(folder, corpus, **options)
    kept = next((tmp_path / "finished").iterdir())
    change_rows(kept, OLD["version"][0])
    assert measure(folder, corpus, **options).rows == first.rows
    assert "another version of collapselab: its cdnv follows version 99" in capsys.readouterr().err
    whole = kept.read_text()
    value = re.search(r'"value": (0\.\d+)', whole)
    assert value is not None
    for spoilt in ("{", whole.replace(value[1], "0.123", 1), "[]"):
        kept.write_text(spoilt)
        assert measure(folder, corpus, **options).rows == first.rows
        assert "It is made again" in capsys.readouterr().err


def test_a_loaded_model_with_a_state_is_measured_once(
    model: nn.Module, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = measure(model, corpus, state=tmp_path, **OPTIONS)
    ran = stopping_after(99, monkeypatch)
    assert (measure(model, corpus, state=tmp_path, **OPTIONS), ran()) == (first, 0)


SLOW = """
import sys, time
import torch
torch.set_num_threads(1)
from collapselab.measurement import measure_model as walk
real = walk.features
def slow(*args, **inputs):
    time.sleep(0.02)
    return real(*args, **inputs)
walk.features = slow
"""
SCRIPT = f"""{SLOW}
from collapselab.measurement.measure import measure
from collapselab.measurement import resume as store
store.SAVE_SECONDS, store.SAVE_FACTOR = 0.0, 0
measure(sys.argv[1], sys.argv[2], state=sys.argv[3], dtype="float64", tokens=3000, batch=2, quiet=True)
"""
COMMAND = f"""{SLOW}
from collapselab.cli import main
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "status", "bootstrap"), [(signal.SIGTERM, 143, 0), (signal.SIGINT, 130, 3)], ids=["SIGTERM", "Ctrl-C"]
)
def test_a_signal_saves_what_is_collected_and_the_same_command_ends_bit_identically(
    folder: Path, corpus: Corpus, tmp_path: Path, number: signal.Signals, status: int, bootstrap: int
) -> None:
    words = ["measure", folder, "--corpus", corpus.path, "--state", tmp_path, "--dtype", "float64", "--tokens", "3000"]
    words += ["--batch", "2", "--bootstrap", str(bootstrap)]
    command = [sys.executable, "-c", COMMAND, *map(str, words)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 100
    while not list(tmp_path.glob("*/plan.json")) and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(0.2)  # ten batches of some sixty, far less than a minute: nothing was saved for being due
    process.send_signal(number)
    _, said = process.communicate(timeout=100)
    assert process.returncode == status, said
    assert f"collapselab: stopped by {number.name}. What is collected is in {tmp_path}" in said
    assert "the same command continues" in said
    assert "Traceback" not in said
    assert list(tmp_path.glob("*/train-*.safetensors"))
    options: dict[str, Any] = {"dtype": "float64", "tokens": 3000, "batch": 2, "quiet": True, "bootstrap": bootstrap}
    found = measure(folder, corpus, state=tmp_path, **options)
    assert found.rows == measure(folder, corpus, **options).rows


def test_a_signal_between_batches_stops_before_the_next_one(
    model: nn.Module, corpus: Corpus, whole: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "SAVE_SECONDS", 60.0)
    real, ran = walk.features, 0

    def features(*args: Any, **inputs: Any) -> Tensor:
        nonlocal ran
        ran += 1
        if ran == 11:
            os.kill(os.getpid(), signal.SIGTERM)
        return real(*args, **inputs)

    monkeypatch.setattr(walk, "features", features)
    with pytest.raises(Interrupted, match="stopped by SIGTERM"):
        measure(model, corpus, state=tmp_path, **OPTIONS)
    assert ran == 11
    assert measure(model, corpus, state=tmp_path, **OPTIONS).rows == whole.rows
    assert ran == BATCHES


@pytest.mark.parametrize("spoilt", ["{", "[]", '{"batch": 2}', "\x00" * 40], ids=["cut", "list", "edited", "zeros"])
def test_a_damaged_plan_is_said_and_the_measurement_starts_from_the_beginning(
    model: nn.Module,
    corpus: Corpus,
    whole: Result,
    spoilt: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with monkeypatch.context() as patch:
        stopping_after(6, patch)
        with pytest.raises(Killed):
            measure(model, corpus, state=tmp_path, **OPTIONS)
    plan = next(tmp_path.glob("*/plan.json"))
    plan.write_text(spoilt)
    ran = stopping_after(BATCHES, monkeypatch)
    assert measure(model, corpus, state=tmp_path, **OPTIONS).rows == whole.rows
    assert ran() == BATCHES
    said = capsys.readouterr().err
    assert str(plan) in said
    assert "The measurement starts from the beginning." in said


@pytest.mark.slow
def test_kill_9_in_the_middle_and_the_same_command_ends_bit_identically(
    folder: Path, corpus: Corpus, tmp_path: Path
) -> None:
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, folder, corpus.path, tmp_path], stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("*/train-00.safetensors")):
        assert process.poll() is None, process.stderr and process.stderr.read().decode()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert process.stderr is not None
    process.stderr.close()
    options: dict[str, Any] = {"dtype": "float64", "tokens": 3000, "batch": 2, "quiet": True}
    found = measure(folder, corpus, state=tmp_path, **options)
    assert found.rows == measure(folder, corpus, **options).rows


@pytest.mark.parametrize("moment", ["before the sums are deleted", "while they are"])
def test_killed_once_the_result_is_written_no_sums_stay(
    moment: str, folder: Path, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*args: Any, **options: Any) -> None:
        raise Killed

    options: dict[str, Any] = {**OPTIONS, "dtype": "float64", "state": tmp_path / "state"}
    with monkeypatch.context() as patch:
        patch.setattr(*((ResumeFolder, "remove", die) if "before" in moment else (shutil, "rmtree", die)))
        with pytest.raises(Killed):
            measure(folder, corpus, **options)
    (left,) = (path for path in (tmp_path / "state").iterdir() if path.name != "finished")
    other = tmp_path / "state" / "of-another"
    other.mkdir()
    (other / "plan.json").write_bytes((left / "plan.json").read_bytes())
    if "while" in moment:
        left.rename(left.with_name(re.sub(r"-\d+\.partial", "-999999999.partial", left.name)))
    measure(folder, corpus, **options)
    assert {path.name for path in (tmp_path / "state").iterdir()} == {"finished", "of-another"}


# Runs ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path, model: Any) -> Path:
    """A run of ours with two checkpoints."""
    path = tmp_path / "02x0012-s0"
    for checkpoint in ("0", "1"):
        save_checkpoint(model, path, checkpoint)
    return path


def test_a_run_gives_a_result_for_each_checkpoint_and_keeps_it(run: Path, corpus: Corpus) -> None:
    results = measure(run, corpus, tokens=100, dtype="float64", quiet=True)
    assert isinstance(results, Results)
    assert [(result.facts["run"], result.facts["checkpoint"]) for result in results] == [
        ("02x0012-s0", "0"),
        ("02x0012-s0", "1"),
    ]
    assert results.initial(results[1]) is results[0]
    assert sorted(path.name for path in (run / "measure").iterdir() if path.is_file()) == [
        "0.json", "0.safetensors", "1.json", "1.safetensors",
    ]  # fmt: skip
    assert Result.load(run / "measure" / "1.json").rows == results[1].rows
    from collapselab import ClassMoments, collapse_metrics

    moments = ClassMoments.load(run / "measure" / "0.safetensors")
    assert collapse_metrics(moments, only=["cdnv"])["cdnv"].value == results[0].row("cdnv").value


def test_a_measured_checkpoint_is_not_measured_again_unless_the_options_differ(
    run: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {"tokens": 100, "dtype": "float64"}
    first = measure(run, corpus, quiet=True, **options)  # type: ignore[arg-type]
    ran = stopping_after(99, monkeypatch)
    again = measure(run, corpus, **options)  # type: ignore[arg-type]
    assert (again.rows, ran()) == (first.rows, 0)
    assert "02x0012-s0/0: measured already" in capsys.readouterr().err
    measure(run, corpus, **(options | {"seed": 3}))  # type: ignore[arg-type]
    assert ran() > 0
    assert "was measured with other options" in capsys.readouterr().err


@pytest.mark.parametrize("damage", ["weights", "configuration", "swapped"])
def test_a_checkpoint_that_was_changed_is_not_measured(run: Path, corpus: Corpus, damage: str) -> None:
    one, other = run / "checkpoints" / "0", run / "checkpoints" / "1"
    if damage == "weights":
        content = bytearray((one / "model.safetensors").read_bytes())
        content[-5] ^= 1
        (one / "model.safetensors").write_bytes(content)
    elif damage == "configuration":
        settings = json.loads((one / "config.json").read_text())
        (one / "config.json").write_text(json.dumps(settings | {"layer_norm_epsilon": 0.1}))
    else:
        one.rename(run / "between")
        other.rename(one)
        (run / "between").rename(other)
    message = {"weights": "model.safetensors: damaged or changed", "configuration": "config.json: damaged or changed"}
    with pytest.raises(DamagedError, match=message.get(damage, "holds checkpoint 1, not 0")):
        measure(one, corpus, tokens=100, dtype="float64", quiet=True)
    results = measure(run, corpus, tokens=100, dtype="float64", quiet=True)
    assert isinstance(results, Results)
    sound = [] if damage == "swapped" else ["1"]
    assert [result.facts["checkpoint"] for result in results] == sound
    assert len(results.failures) == 2 - len(sound)
    assert sorted(path.stem for path in (run / "measure").glob("*.json")) == sound


def test_a_damaged_result_is_made_again(run: Path, corpus: Corpus) -> None:
    options: dict[str, Any] = {"tokens": 100, "dtype": "float64", "quiet": True}
    first = measure(run, corpus, **options)
    (run / "measure" / "0.json").write_text('{"rows": [')
    assert measure(run, corpus, **options).rows == first.rows
    json.loads((run / "measure" / "0.json").read_text())


def change_rows(path: Path, change: Callable[[list[dict[str, Any]]], object]) -> None:
    """Change the rows of a finished measurement, and write it as a whole one."""
    document = json.loads(path.read_text())
    change(document["rows"])
    Result([Row(**row) for row in document["rows"]], document["facts"]).save(path)


OLD: dict[str, tuple[Callable[[list[dict[str, Any]]], object], str]] = {
    "version": (lambda rows: [row.update(version=99) for row in rows if row["metric"] == "cdnv"], "cdnv.* version 99"),
    "lacking": (lambda rows: rows.remove(next(row for row in rows if row["metric"] == "head_sum")), "lacks .*head_sum"),
}


@pytest.mark.parametrize("case", OLD)
def test_a_measurement_of_another_version_of_the_catalogue_is_made_again_and_says_why(
    run: Path, corpus: Corpus, case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options: dict[str, Any] = {"tokens": 100, "dtype": "float64"}
    first = measure(run, corpus, **options)
    change_rows(run / "measure" / "0.json", OLD[case][0])
    capsys.readouterr()
    assert measure(run, corpus, **options).rows == first.rows
    assert re.search(
        rf"0.json: measured by another version of collapselab: it.*{OLD[case][1]}", capsys.readouterr().err
    )
    assert Result.load(run / "measure" / "0.json").rows == first.rows[: len(first.rows) // 2]


def test_a_repeated_measurement_has_the_same_json(folder: Path, corpus: Corpus, tmp_path: Path) -> None:
    options: dict[str, Any] = {"classes": True, "contexts": "1", "min_uses": 2, "tokens": 300}
    texts = [measure(folder, corpus, state=tmp_path, quiet=True, **options).to_json() for _ in range(2)]
    assert texts[0] == texts[1]
