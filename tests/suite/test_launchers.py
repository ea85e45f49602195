"""A launcher from outside is one class and one entry: `suite run`, `suite status` and `suite cancel` find it by name."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from collapselab.cli.suite import app
from collapselab.errors import ConfigError
from collapselab.records.tables import RESULTS, RUNS
from collapselab.suite import launchers
from collapselab.suite import run as suites
from collapselab.suite.folder import SuiteFolder
from collapselab.suite.job import LaunchRequest, perform
from collapselab.suite.launchers import LAUNCHERS, find_launcher
from collapselab.suite.plan import Entry
from suite.recipes import written


class InProcess:
    """Performs the runs in this process, one after another."""

    waits = True

    def check(self, request: LaunchRequest) -> None:
        pass

    def submit(self, request: LaunchRequest, entries: list[Entry], update: Callable[[], None]) -> dict[str, str]:
        for entry in entries:
            assert perform(request.folder, entry, request.suite.measure, device=request.device).result == "done"
            update()
        return {}

    def states(self, folder: SuiteFolder) -> dict[str, str]:
        return {}

    def cancel(self, folder: SuiteFolder) -> int:
        return 0


class Queue:
    """Keeps the names of the runs, and performs none."""

    waits = False

    def __init__(self) -> None:
        self.queued: dict[str, str] = {}

    def check(self, request: LaunchRequest) -> None:
        if request.device != "auto":
            raise ConfigError("device: the queue chooses it.")

    def submit(self, request: LaunchRequest, entries: list[Entry], update: Callable[[], None]) -> dict[str, str]:
        new = {entry.name: f"q{number}" for number, entry in enumerate(entries) if entry.name not in self.queued}
        self.queued |= new
        return new

    def states(self, folder: SuiteFolder) -> dict[str, str]:
        return {run: f"{job} WAITING" for run, job in self.queued.items()}

    def cancel(self, folder: SuiteFolder) -> int:
        cancelled = len(self.queued)
        self.queued.clear()
        return cancelled


@pytest.fixture
def recipe(tmp_path: Path, tiny: dict[str, Any]) -> Path:
    """Two runs of two steps."""
    base = tiny["base"] | {"steps": 2}
    return written(tmp_path / "tiny.yaml", tiny, grid={"width": [8, 12]}, base=base, measure={"tokens": 100})


def invoked(*words: str | Path) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "200", "OMP_NUM_THREADS": "1"})


def test_a_launcher_that_waits_ends_with_tables(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LAUNCHERS, "toy", InProcess)
    out = recipe.parent / "suite"
    result = invoked("run", recipe, "--launcher", "toy", "--device", "cpu", "--out", out)
    assert result.exit_code == 0, result.output
    assert "2 runs: 2 done" in result.stdout
    assert len(RUNS.read(out / "runs.csv")) == 4
    assert RESULTS.read(out / "results.csv")


def test_a_launcher_with_a_queue_is_asked_by_run_status_and_cancel(
    recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = Queue()
    monkeypatch.setitem(LAUNCHERS, "queue", lambda: queue)
    out = recipe.parent / "suite"
    given = (recipe, "--out", out)
    assert isinstance(invoked("run", *given, "--launcher", "queue", "--device", "cpu").exception, ConfigError)
    assert not out.exists(), "it is checked before anything is made"
    submitted = json.loads(invoked("run", *given, "--launcher", "queue", "--json").stdout)["jobs"]
    assert list(submitted.values()) == ["q0", "q1"]
    assert not (out / "runs.csv").exists(), "nothing has been done that could be collected"
    assert "0 jobs submitted" in invoked("run", *given, "--launcher", "queue").stdout
    runs = json.loads(invoked("status", *given, "--json").stdout)["runs"]
    assert [(run["stage"], run["job"]) for run in runs] == [("queued", "q0 WAITING"), ("queued", "q1 WAITING")]
    assert "2 jobs cancelled" in invoked("cancel", *given).stdout
    assert suites.job_states(SuiteFolder(out)) == {}


def test_an_unknown_launcher_is_refused_with_the_nearest_before_anything_is_made(recipe: Path) -> None:
    result = invoked("run", recipe, "--launcher", "slrum", "--out", recipe.parent / "suite")
    assert isinstance(result.exception, ConfigError)
    assert str(result.exception) == "launcher: 'slrum' is not one. Did you mean slurm? Choose from local, slurm, ray."
    assert not (recipe.parent / "suite").exists()
    with pytest.raises(ConfigError, match="'' is not one. Choose from local, slurm, ray"):
        find_launcher("")


def test_an_entry_point_of_another_package_is_a_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("toy", f"{__name__}:InProcess", launchers.GROUP)
    monkeypatch.setattr(launchers, "entry_points", lambda group: [entry] if group == launchers.GROUP else [])
    monkeypatch.setitem(sys.modules, __name__, sys.modules[InProcess.__module__])
    assert type(find_launcher("toy")).__name__ == "InProcess"
    assert list(launchers.launchers()) == ["local", "slurm", "ray", "toy"]


def worker_command() -> list[str]:
    """The command of each worker, as the Kubernetes Job and the SkyPilot task of the documentation have it."""
    page = (Path(__file__).parents[2] / "docs" / "suites.md").read_text()
    files = [yaml.safe_load(text) for text in re.findall(r"```yml\n(.*?)```", page, flags=re.S)]
    (job,) = (file["spec"] for file in files if file.get("kind") == "Job")
    (task,) = (file for file in files if "num_nodes" in file)
    (worker,) = job["template"]["spec"]["containers"]
    assert job["completions"] == job["parallelism"] == task["num_nodes"] == 4
    assert worker["volumeMounts"][0]["mountPath"] == next(iter(task["volumes"])) == "/data"
    assert worker["command"] == task["run"].split()
    return list(worker["command"])


@pytest.mark.slow
def test_two_workers_on_one_folder_share_the_runs(tmp_path: Path, tiny: dict[str, Any]) -> None:
    """As Kubernetes and SkyPilot start them: the same command twice, at once."""
    written(tmp_path / "recipe.yaml", tiny, base=tiny["base"] | {"width": 8, "steps": 100}, grid={"seed": [0, 1, 2, 3]})
    command = [sys.executable, "-m", *(word.replace("/data", str(tmp_path)) for word in worker_command())]
    workers = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(2)]
    assert [worker.wait(240) for worker in workers] == [0, 0]
    assert len(RUNS.read(tmp_path / "suite" / "runs.csv")) == 8
    for log in (tmp_path / "suite").glob("*/log.jsonl"):
        steps = [json.loads(line)["step"] for line in log.read_text().splitlines() if "loss" in json.loads(line)]
        assert len(steps) == len(set(steps)), "no run was trained twice"
    assert len(list((tmp_path / "suite").glob("*/log.jsonl"))) == 4
