"""Jobs of a cluster: through submitit's own executors always, on a real SLURM where there is one."""

import os
import signal
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from collapselab.errors import ConfigError, Interrupted, RunError
from collapselab.records.tables import RESULTS, RUNS
from collapselab.suite import run as suites
from collapselab.suite.folder import SuiteFolder
from collapselab.suite.job import perform
from collapselab.suite.launchers import LAUNCHERS, slurm
from collapselab.suite.recipe import Suite
from suite.recipes import opened
from suite.slurm_cluster import cluster, missing


@pytest.fixture
def prepared(tmp_path: Path, tiny: dict[str, Any]) -> tuple[Suite, SuiteFolder]:
    return opened(tmp_path, tiny, resources={"cpus": 1, "memory": 0.5, "minutes": 10, "gpus": 1, "partition": "gpu",
                                             "account": "lab", "setup": ["module load python"],
                                             "extra": {"qos": "low"}, "at_once": 2})  # fmt: skip


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """A stand-in for a cluster's commands: it says what it is told to, refuses jobs, and keeps what it was asked."""

    def says(*lines: str) -> Path:
        place = tmp_path / "bin"
        place.mkdir(exist_ok=True)
        refuse = "echo 'sbatch: error: invalid partition specified: nowhere' >&2; exit 1"
        for name, does in (
            ("squeue", "\n".join(["cat <<'END'", *lines, "END"])),
            ("scancel", ""),
            ("sbatch", refuse),
            ("srun", ""),
        ):
            (place / name).write_text(f"#!/bin/sh\necho $0 $@ >> {tmp_path}/asked\n{does}\n")
            (place / name).chmod(stat.S_IRWXU)
        monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")
        return tmp_path / "asked"

    return says


def test_a_job_asks_for_what_the_recipe_says(prepared: tuple[Suite, SuiteFolder], queue: Callable[..., Path]) -> None:
    queue()
    wanted = {
        "cpus_per_task": 1, "mem": "512MB", "time": 10, "gpus_per_node": 1, "partition": "gpu", "account": "lab",
        "job_name": "collapselab-tiny", "array_parallelism": 2, "setup": ["module load python"], "signal_delay_s": 120,
        "additional_parameters": {"requeue": True, "qos": "low"},
    }  # fmt: skip
    parameters = slurm.slurm_executor(prepared[0], prepared[1].path).parameters
    assert {name: parameters[name] for name in wanted} == wanted


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # submitit leaves its log files open
def test_jobs_do_the_missing_runs_and_the_tables_are_those_of_a_local_suite(
    tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from submitit import DebugExecutor

    suite, folder = opened(tmp_path, tiny)
    executor = DebugExecutor(folder.path / "slurm")
    first = suites.prepare(suite, folder).entries[0]
    assert perform(folder, first, suite.measure).result == "done"
    made: list[Any] = []
    real = executor.map_array
    executor.map_array = lambda *given: (made.extend(real(*given)), made)[1]  # type: ignore[method-assign]
    monkeypatch.setitem(LAUNCHERS, "slurm", lambda: slurm.SlurmLauncher(executor))
    submitted = suites.run(suite, folder, launcher="slurm").jobs
    assert first.name not in submitted
    assert len(submitted) == 2
    assert [job.result() for job in made] == ["done", "done"]
    assert [state.stage for state in suites.status(suite, folder)] == ["done"] * 3
    assert len(RUNS.read(folder.path / "runs.csv")) == 6, "a job leaves the tables current"


def test_a_failure_in_a_job_is_recorded_and_fails_the_job(tmp_path: Path, tiny: dict[str, Any]) -> None:
    suite, folder = opened(tmp_path, tiny, grid={"width": [8]}, base=tiny["base"] | {"lr": 1e30, "clip": 0.0})
    (entry,) = suites.prepare(suite, folder).entries
    job = slurm.SlurmJob(str(folder.path), suite.measure, retry=False)
    with pytest.raises(RunError, match="Stopped before the update"):
        job(entry)
    assert [row["why"] is None for row in RUNS.read(folder.path / "runs.csv")] == [True, False]


@pytest.mark.parametrize(("number", "requeued"), [(signal.SIGUSR2, True), (signal.SIGTERM, False)])
def test_time_that_is_up_saves_and_queues_again_and_sigterm_only_saves(
    number: signal.Signals, requeued: bool, tmp_path: Path, tiny: dict[str, Any]
) -> None:
    suite, folder = opened(tmp_path, tiny, grid={"width": [8]}, base=tiny["base"] | {"steps": 100000})
    (entry,) = suites.prepare(suite, folder).entries
    asked: list[int] = []
    before = {one: signal.getsignal(one) for one in (signal.SIGUSR2, signal.SIGALRM)}

    def when_it_trains(*_: object) -> None:
        log = folder.run(entry.name) / "log.jsonl"
        started = log.exists() and log.read_text().count('"loss"') > 3
        os.kill(os.getpid(), number) if started else signal.setitimer(signal.ITIMER_REAL, 0.05)

    signal.signal(signal.SIGUSR2, lambda one, _: asked.append(one))
    signal.signal(signal.SIGALRM, when_it_trains)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with pytest.raises(Interrupted):
            slurm.SlurmJob(str(folder.path), suite.measure, retry=False)(entry)
        assert asked == ([signal.SIGUSR2] if requeued else [])
        assert list((folder.run(entry.name) / "state").glob("*.safetensors"))
        again = slurm.SlurmJob(str(folder.path), suite.measure, retry=False).checkpoint(entry)
        assert again.args == (entry,)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for one, handler in before.items():
            signal.signal(one, handler)


def test_runs_with_a_job_in_the_queue_are_not_submitted_again(
    tmp_path: Path, tiny: dict[str, Any], queue: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from submitit import DebugExecutor

    suite, folder = opened(tmp_path, tiny)
    one, two, three = (entry.name for entry in suites.prepare(suite, folder).entries)
    folder.record_jobs({one: "7_0", two: "7_1", three: "7_2"})
    asked = queue("7_0|RUNNING|None", "7_1|PENDING|Priority", "8|RUNNING|None")
    assert suites.job_states(folder) == {one: "7_0 RUNNING", two: "7_1 PENDING (Priority)"}
    assert [state.job for state in suites.status(suite, folder, jobs=suites.job_states(folder))][2] is None
    executor = DebugExecutor(folder.path / "slurm")
    monkeypatch.setitem(LAUNCHERS, "slurm", lambda: slurm.SlurmLauncher(executor))
    assert list(suites.run(suite, folder, launcher="slurm").jobs) == [three]
    assert suites.cancel(folder) == 2
    assert "scancel 7_0 7_1" in asked.read_text()


def test_what_sbatch_refuses_is_said(tmp_path: Path, tiny: dict[str, Any], queue: Callable[..., Path]) -> None:
    queue()
    with pytest.raises(RunError, match="sbatch: did not take the jobs .*invalid partition.*Correct `resources`"):
        suites.run(*opened(tmp_path, tiny, resources={"partition": "nowhere"}), launcher="slurm")


def test_a_cluster_that_is_not_there_is_an_error(
    prepared: tuple[Suite, SuiteFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ConfigError, match="slurm was asked for, but sbatch is not here"):
        suites.run(*prepared, launcher="slurm")
    assert not prepared[1].path.exists()


@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_on_a_real_slurm_a_killed_and_a_requeued_job_end_with_the_tables_of_a_local_suite(
    tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Needs root and Debian's slurm-wlm and munge; `make test-slurm` installs them."""
    changes = {"resources": {"cpus": 1, "memory": 0.5, "minutes": 5}, "base": tiny["base"] | {"steps": 1500}}
    suite, folder = opened(tmp_path, tiny, **changes)
    with cluster(tmp_path / "cluster") as environment:
        monkeypatch.setenv("SLURM_CONF", environment["SLURM_CONF"])
        submitted = suites.run(suite, folder, launcher="slurm").jobs
        assert len(submitted) == 3
        assert suites.run(suite, folder, launcher="slurm").jobs == {}, "all have their jobs"
        first, second, _ = submitted
        _until(lambda: _stage(suite, folder, first) == "training" and _step(suite, folder, first) > 5)
        slurm.run_command("scancel", "--signal=KILL", submitted[first])  # as the kernel would, out of memory
        _until(lambda: first not in suites.job_states(folder))
        _until(lambda: _stage(suite, folder, second) == "training" and _step(suite, folder, second) > 5)
        slurm.run_command("scancel", "--signal=USR2", submitted[second])  # as SLURM does when time is nearly up
        _until(lambda: "PENDING" in suites.job_states(folder).get(second, ""))
        assert (folder.run(second) / "state").exists(), "saved before it went back into the queue"
        assert list(suites.run(suite, folder, launcher="slurm").jobs) == [first], (
            "the dead one alone is submitted again"
        )
        _until(lambda: all(state.stage == "done" for state in suites.status(suite, folder)), seconds=240)
        _until(lambda: not suites.job_states(folder))
    local = SuiteFolder(tmp_path / "local")
    assert not suites.run(suite, local).failed
    assert _tables(folder) == _tables(local)


def _stage(suite: Suite, folder: SuiteFolder, run: str) -> str:
    return next(state.stage for state in suites.status(suite, folder) if state.run == run)


def _step(suite: Suite, folder: SuiteFolder, run: str) -> int:
    return next(state.step for state in suites.status(suite, folder) if state.run == run)


def _tables(folder: SuiteFolder) -> tuple[Any, Any]:
    runs = RUNS.read(folder.path / "runs.csv")
    return [{k: v for k, v in row.items() if k != "seconds"} for row in runs], RESULTS.read(folder.path / "results.csv")


def _until(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(0.2)
