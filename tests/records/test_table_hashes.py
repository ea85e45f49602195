"""Tables know whether they were edited, and a write that was interrupted leaves nothing that passes for a table."""

import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collapselab.disk import read_document, sha256
from collapselab.errors import DamagedError, RunError, UserError
from collapselab.records.tables import RESULTS, RUNS, read_tables, write_tables
from records.test_tables import ROW, RUN, changed

SOURCE = [("a-1/run.json", "00ff")]
SOME_RUNS = {"old": [RUN], "new": [RUN, {**RUN, "run": "b-2"}]}
ROWS = {"old": [ROW], "new": [ROW, replace(ROW, run="b-2")]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_tables(tmp_path, {"runs": [RUN], "results": [ROW]}, made_from=SOURCE)
    return tmp_path


def test_both_tables_come_back_with_their_hashes_and_their_sources(folder: Path) -> None:
    tables = read_tables(folder)
    assert (tables.runs, tables.rows) == ([RUN], [ROW])
    assert tables.hashes == {name: sha256(folder / name) for name in ("runs.csv", "results.csv")}
    document = read_document(folder / "tables.json")
    assert document["tables"] == tables.hashes
    assert document["made_from"] == [{"file": "a-1/run.json", "sha256": "00ff"}]


@pytest.mark.parametrize(("name", "column"), [("runs.csv", "val_loss"), ("results.csv", "value")])
def test_an_edited_number_is_refused_with_what_to_do(folder: Path, name: str, column: str) -> None:
    changed(folder / name, column, "0.125")
    with pytest.raises(DamagedError, match=name):
        read_tables(folder)
    (folder / "tables.json").unlink()
    assert read_tables(folder), "now it is the user's own work"


def test_every_bit_of_the_hashes_themselves_is_checked(folder: Path) -> None:
    path = folder / "tables.json"
    whole = path.read_bytes()
    for place in range(0, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with (
            pytest.raises(UserError, match=r"tables.json")
            if not whole[place : place + 1].isspace()
            else suppress(UserError)
        ):
            read_tables(folder)


def test_tables_without_hashes_are_the_users_own(tmp_path: Path) -> None:
    RUNS.write(tmp_path / "runs.csv", [RUN])
    RESULTS.write(tmp_path / "results.csv", [ROW])
    assert read_tables(tmp_path).rows == [ROW]


@pytest.mark.parametrize("hashed_before", [True, False])
@pytest.mark.parametrize("moved", [0, 1, 2, 3])
def test_an_interrupted_write_leaves_the_old_tables_or_none_that_are_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hashed_before: bool, moved: int
) -> None:
    if hashed_before:
        write_tables(tmp_path, {"runs": SOME_RUNS["old"], "results": ROWS["old"]}, made_from=SOURCE)
    else:
        RUNS.write(tmp_path / "runs.csv", SOME_RUNS["old"])
        RESULTS.write(tmp_path / "results.csv", ROWS["old"])
    before, real, left = read_tables(tmp_path), os.replace, [moved]

    def replace_then_die(*args: Any) -> None:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", replace_then_die)
        try:
            write_tables(tmp_path, {"runs": SOME_RUNS["new"], "results": ROWS["new"]}, made_from=SOURCE)
        except KeyboardInterrupt:
            assert moved < 3
    if moved == 0:
        assert read_tables(tmp_path) == before
    elif moved < 3:
        with pytest.raises(DamagedError, match="csv"):
            read_tables(tmp_path)
    write_tables(tmp_path, {"runs": SOME_RUNS["new"], "results": ROWS["new"]}, made_from=SOURCE)
    assert read_tables(tmp_path).runs == SOME_RUNS["new"]


def test_a_first_write_that_was_interrupted_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collapselab.records.tables.write_bytes", lambda path, content: (_ for _ in ()).throw(OSError))
    with pytest.raises(OSError):  # noqa: PT011
        write_tables(tmp_path, {"runs": [RUN], "results": [ROW]}, made_from=SOURCE)
    with pytest.raises(RunError, match="runs.csv"):
        read_tables(tmp_path)


def test_the_same_tables_are_not_written_again(folder: Path) -> None:
    before = {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.iterdir()}
    write_tables(folder, {"runs": [RUN], "results": [ROW]}, made_from=SOURCE)
    assert {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.iterdir()} == before
    assert len(before) == 3


@pytest.mark.parametrize(
    ("name", "column", "text", "message"),
    [
        ("results.csv", "layer", "two", "line 2: layer is 'two'"),
        ("results.csv", "bin", "1..9", "line 2: bin is '1..9'"),
        ("results.csv", "classes", "9" * 400, "line 2: classes is '999"),
        ("results.csv", "classes", "9" * 5000, "line 2: classes is '999"),
        ("results.csv", "tokens", "²", "line 2: tokens is '²'"),
        ("results.csv", "value", "9" * 400, "line 2: value is '999"),
        ("runs.csv", "epoch", "-1", "line 2: epoch is '-1'"),
        ("runs.csv", "seed", "99999999999999999999", "line 2: seed is '99999999999999999999'"),
        ("runs.csv", "val_loss", "nan", "line 2: val_loss is 'nan'"),
    ],
)
def test_a_cell_of_another_form_is_refused_when_it_is_read(
    tmp_path: Path, name: str, column: str, text: str, message: str
) -> None:
    RUNS.write(tmp_path / "runs.csv", [RUN])
    RESULTS.write(tmp_path / "results.csv", [ROW])
    changed(tmp_path / name, column, text)
    with pytest.raises(RunError) as error:
        read_tables(tmp_path)
    assert message in str(error.value)
    assert len(str(error.value)) < 400
