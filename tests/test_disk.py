"""Files are whole or absent, checked when they are read, and swept up when their writer has died."""

import errno
import json
import os
import stat
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import pytest

from collapselab import disk
from collapselab.disk import (
    disk_errors,
    disk_trouble,
    folder_written_whole,
    is_locked,
    locked,
    read_document,
    sweep,
    write_document,
    written_whole,
)
from collapselab.errors import Busy, DamagedError, DiskError

DOCUMENT = {"format": 2, "name": "ö", "loss": 0.1, "steps": [1, 2], "inner": {"a": None, "b": True}}


def dead_process() -> int:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def test_a_block_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")

    def fail() -> None:
        with written_whole(tmp_path / "a") as temporary:
            temporary.write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert (tmp_path / "a").read_text() == "old"
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("host", ["", f"{disk._HOST}-"])
def test_whoever_writes_next_removes_what_a_dead_process_left(tmp_path: Path, host: str) -> None:
    process = dead_process()
    (tmp_path / f".6.safetensors.{host}{process}.tmp").write_text("half")
    (tmp_path / f".corpus.{host}{process}.partial").mkdir()
    alive = tmp_path / f".7.safetensors.{host}{os.getppid()}.tmp"
    alive.write_text("being written")
    (tmp_path / ".hidden.tmp").write_text("the user's own")
    with written_whole(tmp_path / "new") as temporary:
        temporary.write_text("whole")
    assert sorted(os.listdir(tmp_path)) == sorted(["new", ".hidden.tmp", alive.name])


def test_what_another_machine_is_writing_stays_for_a_day(tmp_path: Path) -> None:
    theirs = tmp_path / f".a.elsewhere-{dead_process()}.tmp"
    theirs.write_text("")
    sweep(tmp_path)
    assert theirs.exists()
    old = time.time() - disk.FOREIGN_SECONDS - 60
    os.utime(theirs, (old, old))
    sweep(tmp_path)
    assert not theirs.exists()


def test_a_link_left_under_such_a_name_is_removed_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "precious").write_text("")
    (tmp_path / f".a.{dead_process()}.partial").symlink_to(tmp_path / "mine")
    sweep(tmp_path)
    assert os.listdir(tmp_path) == ["mine"]
    assert (tmp_path / "mine" / "precious").exists()


@pytest.mark.parametrize(("mask", "mode"), [(0o002, 0o664), (0o022, 0o644), (0o077, 0o600)])
def test_files_get_the_permissions_of_the_users_umask(tmp_path: Path, mask: int, mode: int) -> None:
    before = os.umask(mask)
    try:
        with written_whole(tmp_path / "a") as temporary:
            os.close(os.open(temporary, os.O_CREAT | os.O_WRONLY, 0o600))
            temporary.chmod(0o600)  # as some libraries do
        with folder_written_whole(tmp_path / "b") as folder:
            (folder / "c").write_text("")
            (folder / "c").chmod(0o600)
    finally:
        os.umask(before)
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("a", "b/c")] == [mode, mode]


def test_a_document_comes_back_and_its_layout_does_not_matter(tmp_path: Path) -> None:
    write_document(tmp_path / "a.json", DOCUMENT)
    assert read_document(tmp_path / "a.json") == DOCUMENT
    laid_out = json.dumps(json.loads((tmp_path / "a.json").read_text()), indent=7, sort_keys=True)
    (tmp_path / "a.json").write_text(laid_out)
    assert read_document(tmp_path / "a.json") == DOCUMENT


def test_every_flipped_bit_of_a_document_is_found_or_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_document(path, DOCUMENT)
    good = path.read_bytes()
    refused = 0
    for place in range(8 * len(good)):
        bad = bytearray(good)
        bad[place // 8] ^= 1 << (place % 8)
        path.write_bytes(bad)
        try:
            assert read_document(path, unchecked=True) == DOCUMENT
        except DamagedError:
            refused += 1
    assert refused > 6 * len(good)


@pytest.mark.parametrize(
    "text", ["", "ÿ", "null", "[1]", "{" * 5000, "[" * 100_000, '{"a": ' + "9" * 5000 + "}", '{"a": \x00}', "{}extra"]
)
def test_odd_documents_are_damaged_ones(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(DamagedError, match="a.json: "):
        read_document(tmp_path / "a.json", unchecked=True)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_numbers_that_json_has_not_are_neither_written_nor_read(tmp_path: Path, number: float) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_document(tmp_path / "a.json", {"format": 2, "loss": number})
    (tmp_path / "a.json").write_text(json.dumps({"format": 2, "loss": number, "checksum": "0"}))
    with pytest.raises(DamagedError, match="checksum"):
        read_document(tmp_path / "a.json")


def test_only_the_first_format_may_lack_a_checksum(tmp_path: Path) -> None:
    first = {"format": 1, "name": "a", "scale": "full", "recipe": {}}
    (tmp_path / "a.json").write_text(json.dumps(first))
    assert read_document(tmp_path / "a.json", unchecked=True) == first
    measured = {"facts": {"versions": {"collapselab": "0.1.0"}}, "rows": []}
    (tmp_path / "a.json").write_text(json.dumps(measured))
    assert read_document(tmp_path / "a.json", unchecked=True) == measured
    (tmp_path / "a.json").write_text(json.dumps({"format": 2, "a": 1}))
    with pytest.raises(DamagedError, match="checksum"):
        read_document(tmp_path / "a.json", unchecked=True)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EDQUOT, "the disk is full"),
        (errno.EROFS, "cannot be written (Read-only file system)"),
        (errno.EACCES, "cannot be written (Permission denied)"),
        (errno.ENOTDIR, "cannot be written (Not a directory)"),
    ],
)
def test_what_the_disk_refuses_is_said_in_words_however_deep_it_is_wrapped(code: int, words: str) -> None:
    def refuse() -> None:
        try:
            raise OSError(code, os.strerror(code))
        except OSError as error:
            raise RuntimeError("a library's own words") from error

    with pytest.raises(DiskError) as raised, disk_errors("runs/a"):
        refuse()
    assert str(raised.value).startswith(f"runs/a: {words}.")


@pytest.mark.parametrize("written", [written_whole, folder_written_whole])
def test_a_refusal_names_the_users_file_and_not_the_temporary_one(written: Any, tmp_path: Path) -> None:
    place = tmp_path / "runs" / "model"
    with pytest.raises(DiskError) as raised, written(place) as temporary:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(temporary / "inside"))
    assert str(raised.value).startswith(f"{place}: cannot be written (Permission denied).")


def test_a_file_that_is_not_there_is_not_the_disks_fault() -> None:
    assert disk_trouble(FileNotFoundError(errno.ENOENT, "no")) is None
    assert disk_trouble(ValueError("a number")) is None


def test_under_a_file_there_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DiskError), written_whole(tmp_path / "file" / "a"):
        pass


def test_a_lock_keeps_another_process_out_and_falls_with_it(tmp_path: Path) -> None:
    script = f"import time; from collapselab.disk import locked\nwith locked({str(tmp_path / 'l')!r}): print(1, flush=True); time.sleep(60)"
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    assert is_locked(tmp_path / "l")
    with pytest.raises(Busy, match="wait for it"), locked(tmp_path / "l", busy="wait for it"):
        pass
    child.kill()
    child.wait()
    child.stdout.close()
    assert not is_locked(tmp_path / "l")
    with locked(tmp_path / "l"):
        assert is_locked(tmp_path / "l")


def test_a_file_system_without_locks_has_them_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSYS, "not implemented")

    monkeypatch.setattr("fcntl.flock", refuse)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "flock not supported", UserWarning)
        _lock_twice(tmp_path / "l")


def _lock_twice(path: Path) -> None:
    with locked(path):
        assert is_locked(path)
        with pytest.raises(Busy), locked(path):
            pass
    assert not is_locked(path)


def test_a_lock_that_may_only_be_read_can_be_asked_for(tmp_path: Path) -> None:
    with locked(tmp_path / "l"):
        pass
    (tmp_path / "l").chmod(0o444)
    assert not is_locked(tmp_path / "l")


def test_looking_at_a_lock_does_not_disturb_who_takes_it(tmp_path: Path) -> None:
    stop, taken = threading.Event(), 0

    def look() -> None:
        while not stop.is_set():
            is_locked(tmp_path / "l")

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        for _ in range(200):
            with locked(tmp_path / "l", wait=False):
                taken += 1
    finally:
        stop.set()
        watcher.join()
    assert taken == 200


@pytest.mark.parametrize("path", [".", "/"])
def test_a_folder_without_a_name_is_not_written(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DiskError), written_whole(path):
        pass


@pytest.mark.parametrize(
    "later",
    [
        {"format": 1, "name": "a", "scale": "full", "recipe": {}, "primary": None},
        {"format": 1, "checkpoint": "0", "val_loss": 0.1, "files": {}},
        {"facts": {"versions": {"collapselab": "0.2.0"}}, "rows": []},
        {"format": 1},
    ],
)
def test_a_later_document_does_not_pass_for_one_of_the_first_version(tmp_path: Path, later: dict[str, Any]) -> None:
    (tmp_path / "a.json").write_text(json.dumps(later))
    with pytest.raises(DamagedError, match="checksum"):
        read_document(tmp_path / "a.json", unchecked=True)
