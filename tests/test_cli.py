import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import collapselab
from collapselab import METRICS, cli
from collapselab.errors import UserError


def test_metrics_lists_the_whole_catalogue() -> None:
    result = CliRunner().invoke(cli.app, ["metrics", "--json"])
    assert result.exit_code == 0
    assert [entry["id"] for entry in json.loads(result.stdout)] == list(METRICS)
    table = CliRunner().invoke(cli.app, ["metrics"], env={"COLUMNS": "200"}).stdout
    assert all(id in table for id in METRICS)


def test_the_version_is_printed_by_the_module_too() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "collapselab", "--version"], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == collapselab.__version__


def test_a_user_error_is_one_message_and_exit_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise UserError("corpus: no such folder.")

    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(SystemExit) as exit:
        cli.main()
    assert exit.value.code == 2
    assert capsys.readouterr().err == "collapselab: corpus: no such folder.\n"
