"""Text and files that mean harm, and disks that refuse: one message or a page that is as safe as any other."""

import base64
import errno
import hashlib
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from collapselab import cli
from collapselab.errors import DiskError, UserError
from collapselab.records.tables import StoredTables
from collapselab.report.data import ReportData, load_report_data
from collapselab.report.provenance import provenance
from collapselab.report.report import report
from records.test_tables import changed
from report.suites import write_suite
from report.test_report import Page

DEAD = 2**22 + 1
"""Larger than any process id that Linux gives."""

HOSTILE = "</script><img src=x onerror=alert(1)>"
SMALL: dict[str, Any] = {"widths": (32,), "depths": (1, 2), "decays": (0.0,), "metrics": ("agreement",), "failures": 1}


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    return write_suite(tmp_path / "suite", seeds=3, inside=True, **SMALL)


def exit_of(monkeypatch: pytest.MonkeyPatch, *words: str | Path) -> Any:
    monkeypatch.setattr(sys, "argv", ["collapselab", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code


def test_the_policy_names_the_scripts_of_the_page_and_no_others(suite: Path) -> None:
    page = Page(report(suite).page.read_text(encoding="utf-8"))
    policy = next(a["content"] for tag, a in page.elements if a.get("http-equiv") == "Content-Security-Policy")
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    code = [text for attrs, text in page.scripts if "--ink" not in text and not attrs.get("type")]
    assert len(code) == 2
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in code]
    assert rules["script-src"].split(" ") == [f"'sha256-{digest}'" for digest in hashes]
    assert rules["default-src"] == "'none'"
    assert "unsafe-eval" not in policy
    assert not [name for _, attrs in page.elements for name in attrs if name.startswith("on")], "no handler in a tag"


def test_hostile_names_are_text_in_title_tables_and_data(tmp_path: Path) -> None:
    folder = tmp_path / "<img src=x onerror=alert(2)>"
    write_suite(folder, seeds=3, inside=False, name=HOSTILE, why=HOSTILE, **SMALL)
    text = report(folder).page.read_text(encoding="utf-8")
    assert HOSTILE not in text
    page = Page(text)
    assert "img" not in {tag for tag, _ in page.elements}
    assert any(run.startswith(HOSTILE) for run in page.data["models"]["name"]), "the name itself is kept"
    assert HOSTILE in page.text


def test_a_folder_as_out_gets_the_page(suite: Path, tmp_path: Path) -> None:
    (tmp_path / "pages").mkdir()
    assert report(suite, out=tmp_path / "pages").page == tmp_path / "pages" / "report.html"
    assert (tmp_path / "pages" / "report.html").is_file()


def test_out_below_a_file_is_refused(suite: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(DiskError, match="file: cannot be written"):
        report(suite, out=tmp_path / "file" / "page.html")
    with pytest.raises(DiskError, match="file: cannot be written"):
        report(suite, figures=tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(
    ("number", "words"), [(errno.ENOSPC, "the disk is full"), (errno.EACCES, "cannot be written (Permission denied)")]
)
@pytest.mark.parametrize("command", ["analyze", "report"])
def test_a_disk_that_refuses_is_one_message_and_exit_2(
    suite: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
    number: int,
    words: str,
) -> None:
    def refuse(source: Any, target: Any) -> None:
        raise OSError(number, os.strerror(number), str(target))

    monkeypatch.setattr(os, "replace", refuse)
    assert exit_of(monkeypatch, command, suite) == 2
    messages = [line for line in capsys.readouterr().err.splitlines() if line.startswith("collapselab: ")]
    assert len(messages) == 1
    assert words in messages[0]
    assert not list(suite.rglob(".*.tmp")), "nothing half-written is left"


def test_what_killed_commands_left_is_removed_by_the_next_ones(suite: Path) -> None:
    (suite / "analysis").mkdir()
    left = [suite / "analysis" / f".relate.csv.{DEAD}.tmp", suite / f".report.html.{DEAD}.tmp"]
    for path in left:
        path.write_text("half")
    report(suite)
    assert not [path for path in left if path.exists()]
    assert (suite / "analysis" / "relate.csv").is_file()


def test_a_file_in_place_of_the_folder_analysis_is_one_message(
    suite: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (suite / "analysis").write_text("mine")
    for command in ("analyze", "report"):
        assert exit_of(monkeypatch, command, suite) == 2
        assert "analysis" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "column", "text"),
    [
        ("results.csv", "layer", "x"), ("results.csv", "bin", "few"), ("results.csv", "classes", "9" * 400),
        ("runs.csv", "epoch", "-1"), ("runs.csv", "width", "9" * 400), ("runs.csv", "val_loss", "NaN"),
    ],
)  # fmt: skip
def test_analyze_and_report_refuse_the_same_tables(
    suite: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, column: str, text: str
) -> None:
    changed(suite / name, column, text, line=3)
    said = []
    for command in ("analyze", "report"):
        assert exit_of(monkeypatch, command, suite) == 2
        said.append(capsys.readouterr().err)
    assert said[0] == said[1]
    assert f"{name}, line 4: {column} is " in said[0]


def test_twice_the_same_column_is_refused(suite: Path) -> None:
    lines = (suite / "runs.csv").read_text().splitlines()
    (suite / "runs.csv").write_text("\n".join([lines[0] + ",seed", *(line + ",1" for line in lines[1:])]))
    with pytest.raises(UserError, match="'seed'"):
        load_report_data(suite)


@pytest.mark.parametrize(
    "content",
    [b"", b"[1]", b"\xff\xfe", b"[" * 10_000, b'{"corpus": [1], "settings": 3, "provenance": "x"}',
     b'{"corpus": {"path": ["a"]}, "provenance": {"versions": [1]}}', b'{"settings": {"width": NaN}}'],
)  # fmt: skip
def test_an_odd_record_of_a_run_is_left_out(suite: Path, content: bytes) -> None:
    data = load_report_data(suite)
    for path in suite.glob("*/run.json"):
        path.write_bytes(content)
    assert provenance(data).facts == []


def test_a_name_that_no_file_can_have_is_left_out(suite: Path) -> None:
    data = load_report_data(suite)
    run = {**data.runs[0], "run": "x" * 5000}
    long = ReportData(data.directory, StoredTables({"runs": [run]}, {}), None, None, "nothing yet")
    assert provenance(long).records == 0
