"""SIGTERM and Ctrl-C: every command says that it stopped, ends with the signal's status and leaves nothing half-written.

The command stands still at the moment in which a file takes its name, the worst one there is; the signal comes then.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from collapselab import cli
from collapselab.errors import Interrupted, interruptible
from collapselab.records.run import RunFolder
from report.suites import write_suite

STANDING_STILL = """
import os, sys, time
from pathlib import Path
from collapselab import disk
name, *sys.argv[1:] = sys.argv[1:]
replace = os.replace
def slowly(source, target):
    if Path(target).name == name and Path(source).name.startswith("."):
        print("now", flush=True)
        time.sleep(120)
    replace(source, target)
disk.os.replace = slowly
{before}
from collapselab.cli import main
main()
"""
RECIPE: dict[str, Any] = {
    "question": "Does it stop?",
    "corpus": {"source": "storyworld:stories=12,validation=4", "tokenizer": "bpe:300", "block": 32},
    "base": {"depth": 1, "lr": 3e-3, "batch": 4, "steps": 6},
    "grid": {"width": [8, 12]},
    "measure": {"tokens": 400},
}
BUILD = ["corpus", "build", "storyworld:stories=40,validation=5", "--tokenizer", "bpe:300", "--block", "32"]


def stopped(name: str, words: list[str], number: signal.Signals, *, before: str = "") -> str:
    """What a command says on stderr that gets the signal while it writes the file of this name."""
    command = [sys.executable, "-c", STANDING_STILL.format(before=before), name, *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        seen = []
        while not seen or seen[-1] not in ("now\n", ""):
            seen.append(process.stdout.readline())
        assert seen[-1] == "now\n", process.communicate()[1]
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + number, said
    assert "Traceback" not in said
    return said


def finished(words: list[str]) -> None:
    result = CliRunner().invoke(cli.app, words)
    assert result.exit_code == 0, result.output


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def leftovers(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob(".*") if path.suffix in (".tmp", ".partial")]


@pytest.mark.slow
def test_building_a_corpus(tmp_path: Path) -> None:
    words = [*BUILD, "--out", str(tmp_path / "stopped")]
    assert "collapselab: stopped." in stopped("stopped", words, signal.SIGINT)
    assert list(tmp_path.iterdir()) == []
    finished(words)
    finished([*BUILD, "--out", str(tmp_path / "whole")])
    assert contents(tmp_path / "stopped") == contents(tmp_path / "whole")


@pytest.mark.slow
def test_analysing(tmp_path: Path) -> None:
    folder = write_suite(tmp_path / "suite", widths=(32, 64), depths=(1,), decays=(0.0,), seeds=2, inside=False)
    words = ["analyze", str(folder), "--permutations", "99"]
    assert "collapselab: stopped." in stopped("summary.json", words, signal.SIGTERM)
    assert leftovers(folder) == []
    assert not (folder / "analysis" / "summary.json").exists()
    finished(words)
    continued = contents(folder)
    shutil.rmtree(folder / "analysis")
    finished(words)
    assert contents(folder) == continued


@pytest.mark.slow
def test_the_demo(tmp_path: Path) -> None:
    recipe, out = tmp_path / "small.yaml", tmp_path / "out"
    recipe.write_text(yaml.safe_dump(RECIPE))
    before = f"from collapselab import demo; demo.RECIPE = Path({str(recipe)!r})"
    words = ["demo", "--out", str(out), "--jobs", "1", "--no-open"]
    for name, number in (("suite.json", signal.SIGINT), ("summary.json", signal.SIGTERM)):
        assert "collapselab: stopped." in stopped(name, words, number, before=before)
        assert leftovers(out) == []
        assert not list(out.rglob(name))


@pytest.mark.slow
@pytest.mark.parametrize(("jobs", "number"), [(1, signal.SIGINT), (2, signal.SIGTERM)])
def test_a_suite_of_processes(jobs: int, number: signal.Signals, tmp_path: Path) -> None:
    recipe = RECIPE | {"base": RECIPE["base"] | {"steps": 1500}}
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(recipe))
    words = ["suite", "run", str(tmp_path / "small.yaml"), "--jobs", str(jobs), "--out", str(tmp_path / "stopped")]
    command = [sys.executable, "-m", "collapselab", *words]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        at_work(tmp_path / "stopped", jobs, process)
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + number, said
    assert "2 of 2" in said
    assert "Traceback" not in said
    assert leftovers(tmp_path) == []
    states = list((tmp_path / "stopped").glob("*/state/*.safetensors"))
    assert len(states) == jobs, "every process saved its step"


def at_work(folder: Path, jobs: int, process: "subprocess.Popen[str]") -> None:
    """Wait until as many processes train as were asked for."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        logs = [RunFolder(path.parent).read_log() for path in folder.glob("*/log.jsonl")]
        if sum(len(log) > 5 for log in logs) == jobs:
            return
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.05)
    raise AssertionError("nothing was trained in two minutes")


def test_an_interruption_is_not_taken_for_an_error_of_one_model() -> None:
    """Whoever continues with the next model after an error must not continue after a signal."""

    def one_model_after_the_other() -> None:
        for _ in range(2):
            with suppress(Exception):
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(1)

    with pytest.raises(Interrupted, match="stopped"), interruptible():
        one_model_after_the_other()
