import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from collapselab.cli import analyze as commands
from collapselab.errors import RunError
from collapselab.records.published import import_published
from collapselab.records.tables import RESULTS, RUNS

app = typer.Typer()
app.command("import")(commands.import_published)
app.command("analyze")(commands.analyze)


@pytest.fixture
def published(tmp_path: Path) -> Path:
    from collapselab.records.published import FIRST, columns_of

    lines = [",".join([*columns_of(FIRST), "dists_mean"])]
    for depth in (1, 2):
        for seed in range(5):
            cells = {column: str(1 + 0.1 * seed * depth + 0.01 * i) for i, column in enumerate(columns_of(FIRST))}
            cells |= {"model": f"{depth:02}x0064_01d{seed:02}@0", "n_params": str(1000 * depth), "dists_mean": "-1"}
            cells |= {"matches": str(30 + seed), "misses": "70", "val_loss": str(3 - depth + 0.1 * (seed * 7 % 5))}
            lines.append(",".join(cells[column] for column in lines[0].split(",")))
    path = tmp_path / "published.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_import_writes_both_tables_and_notes_what_it_left_out(published: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["import", str(published), "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    assert "10 models" in result.stdout
    runs, rows = import_published(published)
    assert RUNS.read(tmp_path / "out" / "runs.csv") == runs
    assert RESULTS.read(tmp_path / "out" / "results.csv") == rows
    facts = json.loads(
        CliRunner().invoke(app, ["import", str(published), "--out", str(tmp_path / "o"), "--json"]).stdout
    )
    assert (facts["models"], facts["values"], facts["missing"]) == (10, 120, 0)


def test_analyze_prints_the_summary_or_everything(published: Path, tmp_path: Path) -> None:
    CliRunner().invoke(app, ["import", str(published), "--out", str(tmp_path)])
    arguments = ["analyze", str(tmp_path), "--permutations", "99"]
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "500"})
    assert result.exit_code == 0, result.output
    summary = json.loads((tmp_path / "analysis" / "summary.json").read_text())
    everything = CliRunner().invoke(app, [*arguments, "--full"], env={"COLUMNS": "500"}).stdout
    for sentence in summary["sentences"]:
        assert sentence["text"][:60] in everything
    assert sum(sentence["text"][:60] in result.stdout for sentence in summary["sentences"]) <= 10
    document = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert document["sentences"] == summary["sentences"]
    assert document["relate"]


def test_a_folder_without_tables_is_one_message(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["analyze", str(tmp_path)])
    assert isinstance(result.exception, RunError)
    assert "runs.csv" in str(result.exception)
