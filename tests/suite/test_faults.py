"""Killed at random moments, again and again, a suite ends with the tables of one that was left alone."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from collapselab.records.tables import RESULTS, RUNS
from collapselab.suite import run as suites
from collapselab.suite.collect import collect
from collapselab.suite.job import perform
from suite.recipes import opened, written

KILLS = 10


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="returns where /proc tells a process's children")
def test_killed_ten_times_it_ends_with_the_same_tables(tmp_path: Path, tiny: dict[str, Any]) -> None:
    changes: dict[str, Any] = {
        "grid": {"width": [8, 12], "seed": [0, 1]},
        "base": tiny["base"] | {"steps": 40},
        "checkpoints": [0, 0.2],
    }
    recipe = written(tmp_path / "faults.yaml", tiny, **changes)
    script = Path(__file__).with_name("faults.py")
    command = [sys.executable, str(script), str(recipe), str(tmp_path / "killed"), str(KILLS), "0"]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=240)
    killed = json.loads(said.stdout.splitlines()[-1])
    assert len(killed) == KILLS, f"it was done after {len(killed)} kills; make it longer"
    assert max(killed) >= 3, "the process that leads and both workers"
    suite, folder = opened(tmp_path, tiny, **changes)
    assert {perform(folder, one, suite.measure).result for one in suites.prepare(suite, folder).entries} == {"done"}
    collect(folder)
    tables = [
        (
            [{key: value for key, value in row.items() if key != "seconds"} for row in RUNS.read(place / "runs.csv")],
            RESULTS.read(place / "results.csv"),
        )
        for place in (tmp_path / "killed", folder.path)
    ]
    assert tables[0] == tables[1]
    assert len(tables[0][0]) == 4 * 3
