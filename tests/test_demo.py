"""The demo in miniature: everything once, gone on with, repeated, and with a run that fails."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import webbrowser
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from collapselab import cli
from collapselab import demo as stage
from collapselab.demo import Demo, run_demo
from collapselab.disk import read_document
from collapselab.errors import ConfigError

MINIATURE: dict[str, Any] = {
    "question": "Does it work?",
    "corpus": {"source": "storyworld:stories=12,validation=4", "tokenizer": "bpe:300", "block": 32},
    "base": {"depth": 1, "lr": 3e-3, "batch": 4, "steps": 6},
    "grid": {"width": [8, 12]},
    "measure": {"tokens": 400},
}


pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.slow]


def written(place: Path, **changes: Any) -> Path:
    path = place / "miniature.yaml"
    path.write_text(yaml.safe_dump(MINIATURE | changes))
    return path


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Demo]:
    """The recipe and what the demo made of it, after it was killed while it trained."""
    place = tmp_path_factory.mktemp("demo")
    recipe = written(place)
    call = f"from collapselab.demo import run_demo; run_demo({str(place / 'out')!r}, suite={str(recipe)!r}, jobs=1)"
    process = subprocess.Popen([sys.executable, "-c", call], stderr=subprocess.DEVNULL, start_new_session=True)
    first = measured_of_the_first_run(place / "out", process)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    before = {path: path.stat().st_mtime_ns for path in first.iterdir() if path.suffix == ".json"}
    assert before
    made = run_demo(place / "out", suite=recipe)
    assert {path: path.stat().st_mtime_ns for path in before} == before, "what was finished was done again"
    return recipe, made


def measured_of_the_first_run(out: Path, process: "subprocess.Popen[bytes]") -> Path:
    """The folder of the first measurement, as soon as there is one."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if found := list(out.glob("*/measure/*.json")):
            return found[0].parent
        assert process.poll() is None
        time.sleep(0.02)
    raise AssertionError("nothing was measured in two minutes")


def times(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def invoked(monkeypatch: pytest.MonkeyPatch, recipe: Path, *words: str | Path) -> Result:
    monkeypatch.setattr(stage, "RECIPE", recipe)
    return CliRunner().invoke(cli.app, ["demo", *map(str, words)])


def test_killed_and_started_again_it_ends_with_a_page_and_no_failure(finished: tuple[Path, Demo]) -> None:
    _, made = finished
    assert made.failures == []
    assert made.page.read_text().startswith("<!")
    assert (made.folder / "analysis" / "summary.json").is_file()
    assert len(made.sentences) >= 3


def test_repeated_it_does_nothing_again_and_says_the_same(
    finished: tuple[Path, Demo], capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, made = finished
    before = times(made.folder)
    assert run_demo(made.folder, suite=recipe) == made
    assert times(made.folder) == before
    assert capsys.readouterr().err.count("done already") == 4


def test_what_an_older_program_made_of_the_tables_is_made_again(
    finished: tuple[Path, Demo], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, made = finished
    folder = shutil.copytree(made.folder, tmp_path / "out")
    tables = times(folder)[str(folder / "runs.csv")]
    program = read_document(folder / "analysis" / "summary.json")["program"]
    for module in ("analysis.analyze", "report.report"):
        monkeypatch.setattr(f"collapselab.{module}.program_version", lambda: "0.0.0+older")
    drawn: list[Path] = []
    monkeypatch.setattr(stage, "report", lambda folder: (drawn.append(folder), made)[1])
    run_demo(folder, suite=recipe)
    assert drawn == [folder]
    assert read_document(folder / "analysis" / "summary.json")["program"] == "0.0.0+older" != program
    assert times(folder)[str(folder / "runs.csv")] == tables, "the tables are the same as before"


def test_the_command_ends_with_the_path_of_the_page(
    finished: tuple[Path, Demo], monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, made = finished
    result = invoked(monkeypatch, recipe, "--out", made.folder)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[-1] == str(made.page.resolve())
    assert max(map(len, lines[:-1])) <= 80
    assert " ".join(made.sentences[0].split()) in " ".join(result.stdout.split())
    assert "[1/4]" in result.stderr
    assert "[1/4]" not in result.stdout


def test_json_is_one_document_and_opens_nothing(finished: tuple[Path, Demo], monkeypatch: pytest.MonkeyPatch) -> None:
    recipe, made = finished
    monkeypatch.setattr(webbrowser, "open", lambda _: pytest.fail("a program asked, not a person"))
    result = invoked(monkeypatch, recipe, "--out", made.folder, "--json")
    document = json.loads(result.stdout)
    assert document == json.loads(json.dumps(made.to_json()))
    assert set(document) == {"folder", "page", "sentences", "failures"}
    assert Path(document["page"]).is_file()


def test_a_run_that_fails_is_listed_and_the_page_is_made_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = {"width": [8], "lr": [3e-3, 1e30]}
    recipe = written(tmp_path, base=MINIATURE["base"] | {"clip": 0.0}, grid=grid)
    result = invoked(monkeypatch, recipe, "--out", tmp_path / "out", "--jobs", "1")
    assert result.exit_code == 1, result.output
    assert "1 failed:\n  01x0008" in result.stderr
    assert "Stopped before the update" in result.stderr
    assert f"collapselab suite run {tmp_path / 'out'} --retry-failed" in result.stderr
    assert "; 1 run failed" in result.stdout
    assert Path(result.stdout.splitlines()[-1]).is_file()


def test_no_process_at_all_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="jobs must be"):
        run_demo(tmp_path / "out", suite=written(tmp_path), jobs=0)


def test_the_page_is_not_opened_where_output_is_no_terminal(
    finished: tuple[Path, Demo], monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, made = finished
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(webbrowser, "open", lambda _: pytest.fail("nobody looks"))
    assert invoked(monkeypatch, recipe, "--out", made.folder).exit_code == 0


def test_stopped_between_its_stages_it_says_so_and_ends_with_the_signal(
    finished: tuple[Path, Demo], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, made = finished
    monkeypatch.setattr(stage, "load_report_data", lambda _: os.kill(os.getpid(), signal.SIGINT))
    monkeypatch.setattr(stage, "RECIPE", recipe)
    monkeypatch.setattr(sys, "argv", ["collapselab", "demo", "--out", str(made.folder)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 128 + signal.SIGINT
    assert "the same command continues" in capsys.readouterr().err
