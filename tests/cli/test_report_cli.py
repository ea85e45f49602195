import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from collapselab.analysis.analyze import analyze
from collapselab.cli.analyze import report
from collapselab.errors import RunError
from report.suites import write_suite

app = typer.Typer()
app.command()(report)


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    folder = write_suite(
        tmp_path / "suite", widths=(32, 64), depths=(1,), decays=(0.0,), seeds=4, metrics=("agreement",), inside=False
    )
    analyze(folder, permutations=99)
    return folder


def test_report_writes_a_page_into_the_folder_and_says_where(suite: Path) -> None:
    result = CliRunner().invoke(app, [str(suite)])
    assert result.exit_code == 0, result.output
    assert str(suite / "report.html") in result.stdout
    assert (suite / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_report_writes_figures_and_lists_them_for_a_program(suite: Path, tmp_path: Path) -> None:
    arguments = [str(suite), "--out", str(tmp_path / "page.html"), "--figures", str(tmp_path / "figures"), "--json"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    written = json.loads(result.stdout)
    assert written["page"] == str(tmp_path / "page.html")
    assert sorted(written["figures"]) == sorted(str(path) for path in (tmp_path / "figures").iterdir())
    assert str(tmp_path / "figures" / "collapse.pdf") in written["figures"]


def test_a_folder_without_results_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, [str(tmp_path)])
    assert isinstance(result.exception, RunError)
    assert not (tmp_path / "report.html").exists()


def test_a_folder_that_is_not_there_is_one_message(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, [str(tmp_path / "nowhere")])
    assert isinstance(result.exception, RunError)
    assert isinstance(result.exception, RunError)
