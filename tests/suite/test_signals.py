"""SIGTERM to the process group of `suite run`, as clusters send it: one message, its exit status, and it resumes.

python tests/suite/test_signals.py TRIES     the same so often, at random moments
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from collapselab.records.tables import RUNS

COMMAND = [sys.executable, "-m", "collapselab", "suite", "run"]


def stopped(recipe: Path, out: Path, after_fork_server: float) -> tuple[int, str]:
    """The exit status and messages of a suite whose group gets SIGTERM so long after the fork server has started."""
    child = subprocess.Popen([*COMMAND, str(recipe), "--jobs", "2", "--out", str(out)], stdout=subprocess.DEVNULL,
                             stderr=subprocess.PIPE, text=True, start_new_session=True)  # fmt: skip
    while child.poll() is None and not has_fork_server(child.pid):
        time.sleep(0.001)
    time.sleep(after_fork_server)
    os.killpg(child.pid, signal.SIGTERM)
    messages = child.communicate(timeout=120)[1]
    return child.returncode, messages


def has_fork_server(process: int) -> bool:
    children = (path.read_text().split() for path in Path(f"/proc/{process}/task").glob("*/children"))
    return any(b"forkserver" in Path(f"/proc/{child}/cmdline").read_bytes() for listed in children for child in listed)


def check(place: Path, recipe: Path, moments: list[float]) -> None:
    for moment in moments:
        status, messages = stopped(recipe, place / "suite", moment)
        assert status == 128 + signal.SIGTERM, (moment, status, messages)
        assert "the same command continues" in messages, (moment, messages)
        assert "Traceback" not in messages, (moment, messages)
        assert "Error" not in messages, (moment, messages)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="returns where /proc tells a process's children")
def test_sigterm_to_the_group_ends_with_its_message_and_resumes(tmp_path: Path, tiny: dict[str, Any]) -> None:
    """In the fork server's first milliseconds, while it imports, and when processes start and train."""
    recipe = tmp_path / "signals.yaml"
    recipe.write_text(yaml.safe_dump(tiny | {"base": tiny["base"] | {"steps": 2000}, "grid": {"width": [8, 12]}}))
    check(tmp_path, recipe, [0.0, 1.0, random.Random(0).uniform(4, 8)])
    subprocess.run([*COMMAND, str(recipe), "--jobs", "2", "--out", str(tmp_path / "suite")], check=True)
    assert len(RUNS.read(tmp_path / "suite" / "runs.csv")) == 4


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        long = Path(folder) / "long.yaml"
        long.write_text(
            "question: Does it stop?\ncorpus: {source: 'storyworld:stories=100', tokenizer: 'bpe:300', block: 32}\n"
            "base: {width: 8, depth: 1, steps: 100000}\ngrid: {seed: [0, 1]}\nmeasure: {tokens: 400}\n"
        )
        tries = [random.uniform(0, 12) for _ in range(int(sys.argv[1]))]
        check(Path(folder), long, tries)
        print(f"{len(tries)} of {len(tries)} ended with their message and exit status {128 + signal.SIGTERM}")
