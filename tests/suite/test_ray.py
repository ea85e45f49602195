"""Runs as tasks of a real Ray cluster of two nodes, of which one is killed."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from collapselab.records.tables import RESULTS, RUNS
from collapselab.suite import run as suites
from collapselab.suite.folder import SuiteFolder
from suite.recipes import opened, written

pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head that owns the tasks and performs none; nodes are added."""
    ray = pytest.importorskip("ray", reason="returns with the extra ray")
    from ray.cluster_utils import Cluster

    found = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_ADDRESS", found.address)
        yield found
        ray.shutdown()
    found.shutdown()


def until(condition: Callable[[], bool], seconds: float = 600.0) -> None:
    """Wait; on a busy machine a node takes half a minute to start, and a task to import torch."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(0.2)


def tables(folder: SuiteFolder) -> tuple[Any, Any]:
    runs = RUNS.read(folder.path / "runs.csv")
    return [{k: v for k, v in row.items() if k != "seconds"} for row in runs], RESULTS.read(folder.path / "results.csv")


def test_cancelled_runs_are_saved_and_leave_the_queue(tmp_path: Path, tiny: dict[str, Any], cluster: Any) -> None:
    changes = {"resources": {"cpus": 1, "memory": 0.5}, "grid": {"width": [8, 12]}}
    suite, folder = opened(tmp_path, tiny, **changes, base=tiny["base"] | {"steps": 10**6})
    cluster.add_node(num_cpus=1)
    assert len(suites.run(suite, folder, launcher="ray").jobs) == 2
    until(lambda: any(state.step > 5 for state in suites.status(suite, folder)))
    assert sorted(state.split()[1] for state in suites.job_states(folder).values()) == ["PENDING", "RUNNING"]
    assert suites.cancel(folder) == 2
    until(lambda: suites.job_states(folder) == {})
    assert {state.stage for state in suites.status(suite, folder)} <= {"stopped", "queued"}
    assert list(folder.path.glob("*/state/*.safetensors")), "the run was saved"


def test_a_killed_node_and_a_driver_that_left_end_with_the_tables_of_a_local_suite(
    tmp_path: Path, tiny: dict[str, Any], cluster: Any
) -> None:
    changes = {
        "resources": {"cpus": 1, "memory": 0.5},
        "grid": {"width": [8, 12]},
        "base": tiny["base"] | {"steps": 600},
    }
    suite, folder = opened(tmp_path, tiny, **changes)
    node = cluster.add_node(num_cpus=1)  # beside that of the test before
    recipe = written(tmp_path / "tiny.yaml", tiny, **changes)
    command = [sys.executable, "-m", "collapselab", "suite", "run", str(recipe), "--launcher", "ray", "--out"]
    subprocess.run([*command, str(folder.path)], check=True)  # the driver ends when all is submitted
    assert len(suites.job_states(folder)) == 2
    assert suites.run(suite, folder, launcher="ray").jobs == {}, "all have their tasks"
    until(lambda: all(state.step > 5 for state in suites.status(suite, folder)))
    cluster.remove_node(node, allow_graceful=False)
    until(lambda: all(state.stage == "done" for state in suites.status(suite, folder)))
    until(lambda: suites.job_states(folder) == {})
    local = SuiteFolder(tmp_path / "local")
    assert not suites.run(suite, local).failed
    assert tables(folder) == tables(local)
