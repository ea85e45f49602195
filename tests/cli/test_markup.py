"""Users' text is never markup: brackets in names, questions and paths are printed as they are."""

import io
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console
from typer.testing import CliRunner, Result

from collapselab import cli
from collapselab.messages import progress
from collapselab.records.run import CheckpointRecord
from collapselab.suite.status import State, plan_table, status_table

TAGS = ["[/bold]", "[bold]", "[/]", "[red", "[link=x]a", "\\[x]"]


def invoked(*words: str | Path) -> Result:
    return CliRunner().invoke(cli.app, [str(word) for word in words], env={"COLUMNS": "300", "OMP_NUM_THREADS": "1"})


@pytest.mark.parametrize("tag", TAGS)
def test_a_question_and_a_folder_with_brackets_are_shown_as_they_are(tag: str, tmp_path: Path) -> None:
    recipe: dict[str, Any] = {
        "question": f"Does {tag} matter?",
        "corpus": {"source": "storyworld:stories=12,validation=4", "tokenizer": "bpe:300", "block": 32},
        "base": {"width": 8, "depth": 1},
    }
    path = tmp_path / f"a{tag.replace('/', '')}.yaml"
    path.write_text(yaml.safe_dump(recipe))
    result = invoked("suite", "plan", path, "--no-timing", "--out", tmp_path / f"out{tag}")
    assert result.exit_code == 0, result.output
    assert f"{path.stem}: Does {tag} matter?" in result.stdout
    assert f"suite run {path} → {tmp_path / f'out{tag}'}" in result.stdout


@pytest.mark.parametrize("tag", TAGS)
def test_names_in_tables_are_shown_as_they_are(tag: str) -> None:
    state = State(f"run{tag}", "failed", 2, 1, 0, 3, 4, why=f"because {tag}", job=f"7 {tag}")
    console = Console(width=300, file=io.StringIO(), record=True)
    console.print(status_table([state]))
    run = {"run": f"run{tag}", "stage": "done", "parameters": 1, "batch": 1, "steps": 1, "tokens": 1, "flops": 1.0,
           "disk_bytes": 1, "checkpoints": [tag], "seconds": None}  # fmt: skip
    total = {"runs": 1, "done": 1, "checkpoints": 1, "tokens": 1, "flops": 1.0, "disk_bytes": 1, "seconds_left": None}
    console.print(
        plan_table({"runs": [run], "total": total, "warnings": [tag], "impossible": [tag], "comparison": None})
    )
    text = console.export_text()
    assert text.count(f"run{tag}") == 2
    assert f"because {tag}" in text
    assert f"7 {tag}" in text
    assert text.count(tag) == 7


@pytest.mark.parametrize("tag", TAGS)
def test_the_folder_of_a_training_with_brackets_is_shown_as_it_is(
    tag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = CheckpointRecord(
        checkpoint=tag, step=1, epoch=1.0, tokens=1, train_loss=1.0, val_loss=None, val_accuracy=0.5, perplexity=2.0,
        seconds=1.0,
    )  # fmt: skip
    monkeypatch.setattr("collapselab.training.train.train", lambda *_, **__: [made])
    result = invoked("train", "--corpus", "c", "--out", f"x{tag}", "--width", 8, "--depth", 1)
    assert result.exit_code == 0, result.output
    assert f"collapselab sample x{tag}" in result.stdout
    assert tag in result.stdout.splitlines()[1]


@pytest.mark.parametrize("tag", TAGS)
def test_progress_shows_a_name_with_brackets_as_it_is(
    tag: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("rich.console.Console", lambda **_: Console(width=300, force_terminal=False, stderr=True))
    with progress(f"reading {tag}", total=2, unit="files") as advance:
        advance(1, note=f"note {tag}")
    said = capsys.readouterr().err
    assert f"reading {tag}" in said
    assert f"note {tag}" in said


@pytest.mark.parametrize("tag", TAGS)
def test_an_option_s_value_with_brackets_is_refused_in_words(tag: str) -> None:
    result = invoked("train", "--corpus", "c", "--out", "o", "--depth", 1, "--width", tag)
    assert result.exit_code == 2
    assert "Invalid value for '--width'" in result.output
