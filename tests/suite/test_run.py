"""A suite end to end: what is missing is done, what failed is known, what is there is never damaged."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from collapselab.core import moments
from collapselab.core.moments import ClassMoments
from collapselab.errors import (
    ConfigError,
    CorpusError,
    DamagedError,
    DiskError,
    Interrupted,
    ModelError,
    RunError,
    UserError,
)
from collapselab.measurement import resume as store
from collapselab.records.measurement import Result
from collapselab.records.run import RunFolder
from collapselab.records.tables import RESULTS, RUNS, Row
from collapselab.suite import run as suites
from collapselab.suite.collect import collect
from collapselab.suite.folder import SuiteFolder, open_suite
from collapselab.suite.job import LaunchRequest, RunOutcome, perform, threads_each
from collapselab.suite.launchers import local as launch
from collapselab.suite.launchers.local import ProcessPool, Worker
from collapselab.suite.plan import Entry
from collapselab.suite.recipe import Suite
from collapselab.suite.status import State, run_state
from suite.recipes import opened, written

NO_TIMES = {"seconds"}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, tiny: dict[str, Any]) -> tuple[Suite, SuiteFolder]:
    """The tiny suite, run by two processes."""
    suite, folder = opened(tmp_path_factory.mktemp("finished"), tiny)
    report = suites.run(suite, folder, jobs=2)
    assert [state.stage for state in report.states] == ["done"] * 3, report
    return suite, folder


@pytest.fixture
def copied(finished: tuple[Suite, SuiteFolder], tmp_path: Path) -> tuple[Suite, SuiteFolder]:
    """The finished suite, to be spoiled."""
    shutil.copytree(finished[1].path, tmp_path / "suite")
    return finished[0], SuiteFolder(tmp_path / "suite")


def test_a_checkpoint_that_is_being_written_is_not_behind_the_tables(
    copied: tuple[Suite, SuiteFolder],
) -> None:
    """Its folder has a temporary name, and another process may give it its own at any moment."""
    _, folder = copied
    before = collect(folder)
    made_from = json.loads((folder.path / "tables.json").read_text())["made_from"]
    written = next(folder.path.glob("*/checkpoints/*/training.json")).parent
    partial = written.with_name(".0.5.elsewhere-1.partial")
    partial.mkdir()
    (partial / "training.json").write_text("unfinished")
    assert collect(folder).rows == before.rows
    assert json.loads((folder.path / "tables.json").read_text())["made_from"] == made_from
    assert made_from


def entries(suite: Suite, folder: SuiteFolder) -> list[Entry]:
    return suites.plan(suite, folder).entries


def files(folder: Path) -> dict[str, tuple[int, int]]:
    """Every file with the time it was last written and its place on the disk."""
    found = (path for path in folder.rglob("*") if path.is_file() and ".locks" not in path.parts)
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_ino) for path in found}


def without_times(folder: SuiteFolder) -> tuple[list[dict[str, Any]], list[Any]]:
    runs = [
        {key: value for key, value in run.items() if key not in NO_TIMES} for run in RUNS.read(folder.path / "runs.csv")
    ]
    return runs, RESULTS.read(folder.path / "results.csv")


def test_every_checkpoint_has_its_row_and_its_measurements(finished: tuple[Suite, SuiteFolder]) -> None:
    suite, folder = finished
    runs, results = RUNS.read(folder.path / "runs.csv"), RESULTS.read(folder.path / "results.csv")
    assert len(runs) == 6
    for one in entries(suite, folder):
        for row in (row for row in runs if row["run"] == one.name):
            facts = json.loads((folder.run(one.name) / "checkpoints" / row["checkpoint"] / "training.json").read_text())
            assert (row["val_loss"], row["tokens"]) == (facts["val_loss"], facts["tokens"])
            assert (row["width"], row["parameters"], row["why"]) == (one.settings.width, one.parameters, None)
            assert row["corpus"].endswith(one.corpus.hash or "?")
    stored = [json.loads(path.read_text())["rows"] for path in sorted(folder.path.glob("*/measure/*.json"))]
    assert len(results) == sum(map(len, stored))
    assert {row.run for row in results} == {row["run"] for row in runs}


def test_the_disk_of_a_run_is_that_foretold(finished: tuple[Suite, SuiteFolder]) -> None:
    """To the byte, but for the headers of the files and for classes that were not seen."""
    suite, folder = finished
    for one in entries(suite, folder):
        stored, measured = (
            list(folder.run(one.name).glob(f"{place}.safetensors")) for place in ("c*/*/*", "measure/*")
        )
        assert len(stored) == len(measured) == len(one.checkpoints)
        seen = [ClassMoments.load(path).counts.count_nonzero() for path in measured]
        unseen = sum(one.corpus.vocabulary - int(classes) for classes in seen) * (8 * one.settings.width + 24)
        found = sum(path.stat().st_size - header(path) for path in (*stored, *measured))
        assert found == one.disk - unseen


def header(path: Path) -> int:
    with path.open("rb") as file:
        return 8 + int.from_bytes(file.read(8), "little")


def test_repeated_it_writes_nothing(finished: tuple[Suite, SuiteFolder]) -> None:
    suite, folder = finished
    before = files(folder.path)
    suites.run(suite, folder, jobs=2)
    changed = {Path(name).name for name, facts in files(folder.path).items() if before.get(name) != facts}
    assert changed == set()


def test_only_what_is_missing_is_done_again(copied: tuple[Suite, SuiteFolder]) -> None:
    suite, folder = copied
    whole, before = without_times(folder), files(folder.path)
    first, second, _ = entries(suite, folder)
    shutil.rmtree(folder.run(first.name))
    next((folder.run(second.name) / "measure").glob("0*.json")).unlink()
    report = suites.run(suite, folder)
    assert not report.failed
    assert without_times(folder) == whole
    runs = {
        Path(name).relative_to(folder.path).parts[0]
        for name, facts in files(folder.path).items()
        if before.get(name) != facts
    }
    assert runs == {first.name, second.name, "runs.csv", "tables.json", "logs"}, "results.csv is the same as before"


def test_a_failure_is_known_with_its_reason_and_the_others_finish(tmp_path: Path, tiny: dict[str, Any]) -> None:
    suite, folder = opened(tmp_path, tiny, grid={"width": [8], "lr": [3e-3, 1e30]}, base=tiny["base"] | {"clip": 0.0})
    good, bad = entries(suite, folder)
    report = suites.run(suite, folder)
    assert [state.stage for state in report.states] == ["done", "failed"]
    rows = {(row["run"], row["checkpoint"]): row["why"] for row in RUNS.read(folder.path / "runs.csv")}
    assert "training failed: " in rows[bad.name, bad.checkpoints[-1]]
    assert "Stopped before the update" in rows[bad.name, bad.checkpoints[-1]]
    assert rows[bad.name, "0"] is rows[good.name, "0"] is None
    log = folder.path / "failed" / f"{bad.name}.json"
    recorded = log.stat().st_mtime_ns
    assert [state.run for state in suites.run(suite, folder).failed] == [bad.name]
    assert log.stat().st_mtime_ns == recorded, "it is not tried again unless asked"
    suites.run(suite, folder, retry_failed=True)
    assert log.stat().st_mtime_ns > recorded


def test_a_failure_whose_cause_is_gone_can_be_retried(tmp_path: Path, tiny: dict[str, Any]) -> None:
    suite, folder = opened(tmp_path, tiny, grid={"width": [8]})
    suites.prepare(suite, folder)
    (one,) = entries(suite, folder)
    folder.run(one.name).mkdir()
    (folder.run(one.name) / "letter.txt").write_text("mine")
    outcome = perform(folder, one, suite.measure)
    assert (outcome.result, one.name in (outcome.why or "")) == ("failed", True)
    (folder.run(one.name) / "letter.txt").unlink()
    assert perform(folder, one, suite.measure).result == "failed"
    assert perform(folder, one, suite.measure, retry=True).result == "done"
    assert folder.failures() == set()
    assert [row["why"] for row in collect(folder).runs] == [None, None]


def test_a_checkpoint_that_cannot_be_measured_says_so_in_its_row(
    copied: tuple[Suite, SuiteFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    suite, folder = copied
    one = entries(suite, folder)[0]
    (folder.run(one.name) / "measure" / "0.json").unlink()

    def fail(*_: object, **__: object) -> None:
        raise ModelError("layer 3 has no weights.")

    monkeypatch.setattr("collapselab.measurement.measure.measure", fail)
    assert perform(folder, one, suite.measure).result == "failed"
    rows = {row["checkpoint"]: row for row in collect(folder).runs if row["run"] == one.name}
    assert rows["0"]["why"] == "measuring failed: layer 3 has no weights."
    assert rows["0"]["val_loss"] is not None
    assert [row["why"] for name, row in rows.items() if name != "0"] == [None]


def test_a_run_in_another_process_s_hands_is_left_to_it(copied: tuple[Suite, SuiteFolder]) -> None:
    suite, folder = copied
    one = entries(suite, folder)[0]
    next((folder.run(one.name) / "measure").glob("*.json")).unlink()
    holder = subprocess.Popen(
        [sys.executable, "-c", "import fcntl, sys\nf = open(sys.argv[1], 'a')\nfcntl.flock(f, 2)\nprint(flush=True)\ninput()",
         str(folder.path / ".locks" / one.name)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert holder.stdout is not None
    holder.stdout.readline()
    assert perform(folder, one, suite.measure).result == "busy"
    assert run_state(folder, one, suite.measure).stage == "measuring"
    holder.kill()  # as a crash would
    holder.communicate()
    assert run_state(folder, one, suite.measure).stage == "stopped"
    assert perform(folder, one, suite.measure).result == "done"


def test_two_at_once_share_the_work_and_do_nothing_twice(
    tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "BUSY_SECONDS", 0.2)
    suite, folder = opened(tmp_path, tiny)
    suites.prepare(suite, folder)
    todo = entries(suite, folder)
    pools = [ProcessPool(LaunchRequest(suite, folder)) for _ in range(2)]
    threads = [threading.Thread(target=pool.run, args=(todo, lambda: None)) for pool in pools]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    for pool in pools:
        assert {outcome.result for outcome in pool.outcomes.values()} == {"done"}
    for one in todo:  # a second training or measurement would have said so
        said = folder.log(one.name).read_text()
        assert said.count("measuring checkpoint 0\n") == 1, said
        log = [json.loads(line) for line in (folder.run(one.name) / "log.jsonl").read_text().splitlines()]
        assert [entry["step"] for entry in log if "loss" in entry] == [1, 2, 3, 4, 5, 6]


def kill_a_worker(pool: ProcessPool, folder: SuiteFolder, one: Entry, deaths: int) -> None:
    """Kill the process that is at the run, so often."""
    killed: set[Worker] = set()
    while len(killed) < deaths:
        for worker in set(pool._workers.values()) - killed:
            if folder.is_running(one.name):
                killed.add(worker)
                os.kill(worker.process.pid or 0, signal.SIGKILL)
        time.sleep(0.01)


@pytest.mark.parametrize(("deaths", "result"), [(1, "done"), (3, "failed")])
def test_a_process_that_is_killed_is_replaced_but_not_for_ever(
    deaths: int, result: str, tmp_path: Path, tiny: dict[str, Any]
) -> None:
    suite, folder = opened(tmp_path, tiny, grid={"width": [8]}, base=tiny["base"] | {"steps": 300})
    suites.prepare(suite, folder)
    (one,) = entries(suite, folder)
    pool = ProcessPool(LaunchRequest(suite, folder))
    killer = threading.Thread(target=kill_a_worker, args=(pool, folder, one, deaths))
    killer.start()
    outcome = pool.run([one], lambda: None)[one.name]
    killer.join()
    assert outcome.result == result
    if result == "failed":
        assert "its process was killed by SIGKILL, 3 times; often memory ran out" in (outcome.why or "")
        assert run_state(folder, one, suite.measure).stage == "failed"


def test_a_signal_stops_every_process_with_its_work_saved(tmp_path: Path, tiny: dict[str, Any]) -> None:
    suite, folder = opened(tmp_path, tiny, grid={"width": [8]}, base=tiny["base"] | {"steps": 100000})
    name: list[str] = []

    def stop_when_it_trains(states: list[State]) -> None:
        if states[0].stage == "training" and states[0].step > 5 and not name:
            name.append(states[0].run)
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted, match="stopped with 1 of 1 runs to go. Everything is saved") as stopped:
        suites.run(suite, folder, watch=stop_when_it_trains)
    assert stopped.value.signal == signal.SIGTERM
    (state,) = suites.status(suite, folder)
    assert (state.stage, state.checkpoints_made) == ("stopped", 1)
    assert list((folder.run(name[0]) / "state").glob("*.safetensors")), "the state of the last step was saved"


def test_a_recipe_that_changed_is_refused_and_says_what(
    copied: tuple[Suite, SuiteFolder], tmp_path: Path, tiny: dict[str, Any]
) -> None:
    _, folder = copied
    before = files(folder.path)
    changed, _ = opened(tmp_path, tiny, grid={"width": [8, 24]}, base=tiny["base"] | {"dropout": 0.1})
    with pytest.raises(
        RunError, match=r"base.dropout was not there, now 0.1; grid.width was \[8, 12, 16\], now \[8, 24\]"
    ):
        suites.run(changed, folder)
    assert files(folder.path) == before
    asked, _ = opened(tmp_path, tiny, question="Is it worth it?", resources={"cpus": 3})
    suites.run(asked, folder)  # neither decides a number
    added, _ = opened(tmp_path, tiny, grid={"width": [8, 20]})
    report = suites.run(added, folder, accept_change=True)
    assert [state.stage for state in report.states] == ["done", "done"]
    assert {row["width"] for row in RUNS.read(folder.path / "runs.csv")} == {8, 12, 16, 20}, "what was there stays"


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path, tiny: dict[str, Any]) -> None:
    suite, folder = opened(tmp_path, tiny)
    folder.path.mkdir()
    (folder.path / "letter.txt").write_text("mine")
    with pytest.raises(RunError, match="holds something else, and nothing is overwritten"):
        suites.run(suite, folder)
    assert [path.name for path in folder.path.iterdir()] == ["letter.txt"]


def test_a_corpus_that_is_not_there_is_named(tmp_path: Path, tiny: dict[str, Any]) -> None:
    suite, folder = opened(tmp_path, tiny, corpus="gone")
    for verb in (suites.plan, suites.prepare):
        with pytest.raises(CorpusError, match="gone: no such folder. Build a corpus"):
            verb(suite, folder)


def test_a_corpus_that_the_recipe_describes_is_built_once(tmp_path: Path, tiny: dict[str, Any]) -> None:
    spec = {"source": "storyworld:stories=30,validation=5,seed=1", "tokenizer": "bpe:300", "block": 32}
    suite, folder = opened(tmp_path, tiny, corpus=spec)
    first = suites.prepare(suite, folder).entries
    before = files(folder.path / "corpora")
    second = suites.prepare(suite, folder).entries
    assert files(folder.path / "corpora") == before
    assert first == second
    again, _ = opened(tmp_path, tiny)
    assert [one.name for one in entries(again, folder)] == [one.name for one in first], "the same text, the same runs"


def test_the_tables_come_from_the_folders_alone(copied: tuple[Suite, SuiteFolder]) -> None:
    _, folder = copied
    before = [(folder.path / name).read_bytes() for name in ("runs.csv", "results.csv")]
    for name in ("runs.csv", "results.csv"):
        (folder.path / name).unlink()
    assert not collect(folder).refused
    assert [(folder.path / name).read_bytes() for name in ("runs.csv", "results.csv")] == before


def test_a_damaged_record_may_be_deleted_and_the_suite_goes_on(copied: tuple[Suite, SuiteFolder]) -> None:
    suite, folder = copied
    before = (folder.path / "suite.json").read_bytes()
    (folder.path / "suite.json").write_text("{")
    with pytest.raises(DamagedError, match=r"suite.json: not a JSON document.* Delete it"):
        folder.begin(suite)
    (folder.path / "suite.json").unlink()
    folder.begin(suite)
    assert (folder.path / "suite.json").read_bytes() == before


def test_rows_whose_hash_does_not_fit_are_refused(copied: tuple[Suite, SuiteFolder]) -> None:
    suite, folder = copied
    first, second, third = entries(suite, folder)
    record = RunFolder(folder.run(first.name)).record()
    assert record is not None
    record.model_copy(update={"settings": record.settings | {"lr": 0.004}}).write(folder.run(first.name) / "run.json")
    foreign = folder.run(third.name) / "measure" / "0.json"
    (folder.run(second.name) / "measure" / "0.json").write_bytes(foreign.read_bytes())
    (folder.run(third.name) / "measure" / f"{third.checkpoints[-1]}.json").write_text("{")
    tables = collect(folder)
    told = "\n".join(tables.refused)
    assert f"{first.name}: its settings have the hash" in told
    assert f"its run is {third.name}, not {second.name}. Its rows are refused" in told
    assert "Its rows are refused; `suite run` measures again" in told
    assert len(tables.refused) == 3
    assert {row["run"] for row in tables.runs} == {second.name, third.name}
    assert {(row.run, row.checkpoint) for row in tables.results} == {
        (second.name, second.checkpoints[-1]),
        (third.name, "0"),
    }


def test_rows_of_another_version_of_a_metric_are_left_out_and_measured_again(
    copied: tuple[Suite, SuiteFolder],
) -> None:
    suite, folder = copied
    one = entries(suite, folder)[0]
    path = folder.run(one.name) / "measure" / "0.json"
    document = json.loads(path.read_text())
    rows = [Row(**row | {"version": 99 if row["metric"] == "cdnv" else row["version"]}) for row in document["rows"]]
    Result(rows, document["facts"]).save(path)
    tables = collect(folder)
    assert "its cdnv follows version 99 of the definition, not version 1. Its rows are left out" in tables.refused[0]
    assert (one.name, "0") not in {(row.run, row.checkpoint) for row in tables.results}
    assert tables.results
    assert run_state(folder, one, suite.measure).stage == "stopped"
    assert perform(folder, one, suite.measure).result == "done"
    assert not collect(folder).refused


def test_other_measuring_options_make_a_finished_run_missing(
    copied: tuple[Suite, SuiteFolder], tmp_path: Path, tiny: dict[str, Any]
) -> None:
    _, folder = copied
    other, _ = opened(tmp_path, tiny, measure={"tokens": 200})
    one = entries(other, folder)[0]
    assert run_state(folder, one, other.measure).stage == "stopped"
    assert perform(folder, one, other.measure).result == "done"
    assert "training step" not in folder.path.joinpath("logs", f"{one.name}.log").read_text().split("measuring")[-1]


def test_states_tell_how_far_a_run_is(tmp_path: Path, tiny: dict[str, Any]) -> None:
    suite, folder = opened(tmp_path, tiny, grid={"width": [8]}, base=tiny["base"] | {"steps": 8})
    with pytest.raises(RunError, match="has not been run here"):
        suites.status(suite, folder)
    suites.prepare(suite, folder)
    (one,) = entries(suite, folder)
    assert suites.status(suite, folder)[0].stage == "queued"
    run = folder.run(one.name)
    (run / "checkpoints" / "0").mkdir(parents=True)
    (run / "checkpoints" / "0" / "training.json").write_text("{}")
    (run / "run.json").write_text("{}")
    entry = {"step": 6, "loss": 3.5, "tokens": 6 * 124, "tokens_per_second": 62.0}
    (run / "log.jsonl").write_text(json.dumps({"checkpoint": "0"}) + "\n" + json.dumps(entry) + '\n{"step": 7, "lo')
    assert suites.status(suite, folder)[0].stage == "stopped"
    with folder.locked(one.name):
        (state,) = suites.status(suite, folder)
    assert (state.stage, state.step, state.steps, state.loss) == ("training", 6, 8, 3.5)
    assert state.seconds_left == pytest.approx(2 * 124 / 62)
    assert (state.checkpoints, state.checkpoints_made, state.checkpoints_measured) == (2, 1, 0)


def test_a_full_disk_stops_the_suite_and_damages_nothing(
    copied: tuple[Suite, SuiteFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    suite, folder = copied
    whole, one = without_times(folder), entries(suite, folder)[0]
    next((folder.run(one.name) / "measure").glob("*.json")).unlink()

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(store, "save_tensors", full)
        patch.setattr(moments, "save_tensors", full)
        with pytest.raises(DiskError, match="the disk is full"):
            perform(folder, one, suite.measure)
    assert folder.failures() == set(), "the run is not to blame"
    suites.run(suite, folder)
    assert without_times(folder) == whole


def test_a_damaged_checkpoint_is_trained_again_before_it_is_measured(copied: tuple[Suite, SuiteFolder]) -> None:
    suite, folder = copied
    whole, one = without_times(folder), entries(suite, folder)[0]
    run = folder.run(one.name)
    weights = run / "checkpoints" / one.checkpoints[-1] / "model.safetensors"
    good = weights.read_bytes()
    weights.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    next((run / "measure").glob(f"{one.checkpoints[-1]}.json")).unlink()
    assert perform(folder, one, suite.measure).result == "done"
    assert weights.read_bytes() == good
    collect(folder)
    assert without_times(folder) == whole


def test_a_run_whose_folder_is_a_link_is_measured_under_its_own_name(
    copied: tuple[Suite, SuiteFolder], tmp_path: Path
) -> None:
    suite, folder = copied
    whole, one = without_times(folder), entries(suite, folder)[0]
    folder.run(one.name).rename(tmp_path / "on another disk")
    folder.run(one.name).symlink_to(tmp_path / "on another disk")
    for path in (folder.run(one.name) / "measure").glob("*.json"):
        path.unlink()
    assert perform(folder, one, suite.measure).result == "done"
    assert collect(folder).refused == []
    assert without_times(folder) == whole


def test_trouble_with_the_disk_ends_the_pool_with_one_message(
    tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    suite, folder = opened(tmp_path, tiny)
    monkeypatch.setattr(Worker, "outcome", lambda worker: RunOutcome(worker.entry.name, "stopped", "the disk is full."))
    with pytest.raises(RunError, match="the disk is full."):
        suites.run(suite, folder)


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="returns where the tests run as root, who can mount a small disk")
def test_a_real_small_disk_and_a_read_only_one(tmp_path: Path, tiny: dict[str, Any]) -> None:
    place = tmp_path / "disk"
    place.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", place], check=False, capture_output=True
    ).returncode:
        pytest.skip("returns where mounting is allowed")
    try:
        suite, _ = opened(tmp_path, tiny, base=tiny["base"] | {"width": 256, "depth": 2}, grid={"seed": [0, 1]})
        folder = SuiteFolder(place / "suite")
        with pytest.raises(UserError, match="the disk is full"):
            suites.run(suite, folder)
        subprocess.run(["mount", "-o", "remount,size=200m", place], check=True)
        assert not suites.run(suite, folder).failed
        subprocess.run(["mount", "-o", "remount,ro", place], check=True)
        before = files(folder.path)
        with pytest.raises(UserError, match=r"cannot be written \(Read-only file system\)"):
            suites.run(suite, folder)
        assert files(folder.path) == before
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def test_processors_are_divided_among_the_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert [threads_each(jobs) for jobs in (1, 2, 3, 16)] == [8, 4, 2, 1]
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    assert threads_each(2) == 2


@pytest.mark.parametrize(("text", "threads"), [("2,1", 2), (" 3 , 1", 3), ("5", 5), ("", 8), ("99", 8)])
def test_the_number_of_threads_is_read_as_openmp_does(text: str, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setenv("OMP_NUM_THREADS", text)
    assert threads_each(1) == threads


@pytest.mark.parametrize("text", ["abc", "2;1", "²"])
def test_a_number_of_threads_that_is_none_is_refused_before_anything_is_made(
    text: str, tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    suite, folder = opened(tmp_path, tiny)
    monkeypatch.setenv("OMP_NUM_THREADS", text)
    with pytest.raises(ConfigError, match="OMP_NUM_THREADS must be a whole number"):
        suites.run(suite, folder)
    assert not folder.path.exists()


def test_whatever_goes_wrong_in_a_process_is_a_failure_with_its_reason(tmp_path: Path, tiny: dict[str, Any]) -> None:
    """A log that cannot be written, as an example of what happens before a run begins."""
    suite, folder = opened(tmp_path, tiny, grid={"width": [8]})
    suites.prepare(suite, folder)
    (folder.path / "logs").write_text("not a folder")
    with pytest.raises(RunError, match="logs: cannot be written"):
        suites.run(suite, folder)


def test_jobs_below_one_are_refused(tmp_path: Path, tiny: dict[str, Any]) -> None:
    suite, folder = opened(tmp_path, tiny)
    with pytest.raises(ConfigError, match="jobs must be ≥ 1, got 0"):
        suites.run(suite, folder, jobs=0)


def test_a_suite_is_opened_by_name_by_file_and_by_folder(
    copied: tuple[Suite, SuiteFolder], tmp_path: Path, tiny: dict[str, Any]
) -> None:
    suite, folder = copied
    assert open_suite(folder.path)[0] == suite
    assert open_suite("demo", scale="small")[1].path == Path("suites/demo-small")
    assert open_suite(written(tmp_path / "mine.yaml", tiny))[1].path == Path("suites/mine")
    with pytest.raises(ConfigError, match="was run at scale full, not small"):
        open_suite(folder.path, scale="small")


def test_a_checkpoint_of_another_run_is_refused_by_name(copied: tuple[Suite, SuiteFolder]) -> None:
    suite, folder = copied
    first, second, _ = entries(suite, folder)
    for name in ("checkpoints/0", "measure"):
        shutil.rmtree(folder.run(first.name) / name)
    shutil.copytree(folder.run(second.name) / "checkpoints" / "0", folder.run(first.name) / "checkpoints" / "0")
    tables = collect(folder)
    assert any(first.name in reason and "another run" in reason for reason in tables.refused), tables.refused
    assert {row["run"] for row in tables.runs} == {one.name for one in entries(suite, folder)} - {first.name}
    assert run_state(folder, first, suite.measure).stage != "done"


def test_a_run_without_its_record_is_named_and_made_again(copied: tuple[Suite, SuiteFolder]) -> None:
    suite, folder = copied
    whole, one = without_times(folder), entries(suite, folder)[0]
    (folder.run(one.name) / "run.json").unlink()
    assert run_state(folder, one, suite.measure).stage == "stopped"
    assert any(one.name in reason and "run.json" in reason for reason in collect(folder).refused)
    suites.run(suite, folder)
    assert collect(folder).refused == []
    assert without_times(folder) == whole
