"""How files are written (whole or not at all), verified, locked and hashed, and the messages when the disk refuses.

A file is written under a temporary name beside its own, which it takes when it is finished. The temporary name holds
the machine and the process: whoever writes in that folder next removes what a killed process has left behind, and
nothing else. A JSON document holds a checksum of its contents, so that an edited or damaged value is an error and
never another number. A record is such a document with named, typed fields:

    class Note(Record):
        text: str

    Note(text="seen").write(path)
    Note.read(path).text

A field added later needs a default: records of earlier versions then open as they are. Fields that this version does
not know are ignored; a field of another type, a missing one or a changed checksum is a DamagedError.
"""

import errno
import hashlib
import json
import math
import os
import re
import shutil
import socket
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from filelock import FileLock, Timeout
from pydantic import BaseModel, BeforeValidator, ConfigDict, JsonValue, ValidationError

from collapselab.errors import Busy, DamagedError, DiskError, RunError
from collapselab.messages import logger

log = logger(__name__)

CHECKSUM = "checksum"

FOREIGN_SECONDS = 24 * 3600
"""After this long, what a process of another machine was writing is taken for left behind."""

LOCK_SECONDS, LOCK_POLL_SECONDS = 0.5, 0.02
"""More than one try: `is_locked` holds the lock for a moment, on a busy machine for longer."""

_LEFT = re.compile(r"\.(?P<name>.+)\.(?:(?P<host>[^.]+)-)?(?P<process>\d+)\.(?:tmp|partial)")
_HOST = re.sub(r"[^A-Za-z0-9_]", "_", socket.gethostname()) or "localhost"
AFTERWARDS = "What is finished stays, nothing half-written is left; once that is fixed, the same command continues."


@contextmanager
def written_whole(path: str | Path) -> Iterator[Path]:
    """A temporary name beside `path` that takes its place when the block ends, and vanishes if the block fails.

        with written_whole("runs.csv") as temporary:
            temporary.write_text(text)

    The file gets the permissions that the user's umask gives to any new file.
    """
    path = Path(path)
    with disk_errors(path):
        if not path.name:  # "." or "/"
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        make_folder(path.parent)
        sweep(path.parent)
        temporary = path.with_name(f".{path.name}.{_HOST}-{os.getpid()}.tmp")
        try:
            temporary.touch()
            mode = stat.S_IMODE(temporary.stat().st_mode)
            yield temporary
            _flush(temporary, mode)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def folder_written_whole(path: str | Path) -> Iterator[Path]:
    """The same for a folder, which must not exist yet."""
    path = Path(path)
    with disk_errors(path):
        make_folder(path.parent)
        sweep(path.parent)
        partial = path.parent / f".{path.name}.{_HOST}-{os.getpid()}.partial"
        shutil.rmtree(partial, ignore_errors=True)  # of a killed process that had our number
        try:
            partial.mkdir()
            mode = stat.S_IMODE(partial.stat().st_mode)
            yield partial
            for inside in partial.rglob("*"):
                if inside.is_file():
                    _flush(inside, mode & 0o666)
                elif inside.is_dir():
                    inside.chmod(mode)
            partial.chmod(mode)  # copying a folder into it copies that folder's permissions too
            os.replace(partial, path)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


def check_writable(path: str | Path) -> None:
    """DiskError if a file cannot be written here: called before the work whose result it will hold."""
    path = Path(path)
    if path.is_dir():
        raise DiskError(f"{path}: a folder, where a file is to be written. Name a file in it.")
    with disk_errors(path):
        make_folder(path.parent)
        probe = path.with_name(f".{path.name}.{_HOST}-{os.getpid()}.tmp")
        probe.touch()
        probe.unlink()


def make_folder(path: str | Path) -> None:
    """Make a folder and those above it, if they are not there; NotADirectoryError if a file is in the way."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path)) from error


def user_cache(name: str) -> Path:
    """The folder of this name in the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "collapselab" / name


def sweep(folder: str | Path) -> None:
    """Remove from a folder the temporary files and folders of processes that no longer run."""
    for path in Path(folder).glob(".*"):
        name = _LEFT.fullmatch(path.name)
        if name is not None and _is_left_behind(path, name["host"], int(name["process"])):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def remove_folder(path: str | Path) -> None:
    """Delete a folder at once: what a kill leaves of it has a temporary name, which the next `sweep` removes."""
    path = Path(path)
    removed = path.with_name(f".{path.name}.{_HOST}-{os.getpid()}.partial")
    try:
        os.replace(path, removed)
    except OSError:  # another process was faster, or the disk refuses: then it stays
        return
    shutil.rmtree(removed, ignore_errors=True)


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write a file whole or not at all; one that holds these bytes already is left alone."""
    path = Path(path)
    if path.is_file() and read_bytes(path) == content:
        return
    with written_whole(path) as temporary:
        temporary.write_bytes(content)


def read_bytes(path: Path) -> bytes:
    """The contents of a file; RunError if it is not there."""
    if not path.is_file():
        raise RunError(f"{path}: no such file.")
    with disk_errors(path, reading=True):
        return path.read_bytes()


def write_document(path: str | Path, document: Mapping[str, object], *, compact: bool = False) -> None:
    """Write a JSON document with a checksum of its contents, whole or not at all. NaN and infinity are refused.

    `format` in the document is 2 or more: 1 is for documents of earlier versions, which had no checksum. `compact`
    writes no line breaks, for documents that are long tables.
    """
    with written_whole(path) as temporary:
        temporary.write_text(document_text(document, compact=compact), "utf-8")


def document_text(document: Mapping[str, object], *, compact: bool = False) -> str:
    """The text that `write_document` writes."""
    checked = with_checksum(document)
    return json.dumps(checked, indent=None if compact else 1, ensure_ascii=False, allow_nan=False) + "\n"


def with_checksum(document: Mapping[str, object]) -> dict[str, object]:
    """Return a JSON document with a checksum of its contents."""
    return {**document, CHECKSUM: checksum_of(document)}


def read_document(path: str | Path, *, unchecked: bool = False) -> dict[str, JsonValue]:
    """The document that `write_document` wrote; FileNotFoundError if there is none, DamagedError if it was changed.

    `unchecked` also reads a document of version 0.1.0, which wrote no checksums, and notes that it is unverified.
    """
    path = Path(path)
    with disk_errors(path, reading=True):
        raw = path.read_bytes()
    try:
        document = json.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{path}: not a JSON document.") from error
    if not isinstance(document, dict):
        raise DamagedError(f"{path}: a JSON {type(document).__name__}, where an object is needed.")
    return verified(document, path, unchecked=unchecked)


def verified(document: dict[str, JsonValue], path: str | Path, *, unchecked: bool = False) -> dict[str, JsonValue]:
    """A document, or a part of one that has a checksum of its own, without it; DamagedError if it does not fit."""
    document = dict(document)
    expected = document.pop(CHECKSUM, None)
    if expected is None and unchecked and _is_of_first_version(document):
        _note_unverified(str(Path(path).parent))
        return document
    try:
        actual = checksum_of(document)
    except ValueError:  # NaN or infinity, which are never written
        actual = None
    if expected is None or expected != actual:
        what = "has no checksum" if expected is None else "was changed after it was written, its checksum differs"
        raise DamagedError(f"{path}: damaged or edited; it {what}.")
    return document


FIRST_VERSION = tuple(
    frozenset(keys.split())
    for keys in (
        "format hash settings corpus plan model provenance",
        "format hash request block vocabulary end_of_text boundary splits files versions",
        "format name scale recipe",
        "checkpoint step epoch tokens train_loss val_loss val_accuracy perplexity seconds sha256",
        "run stage checkpoint why when settings corpus parameters epochs",
        "directory outcome models permutations seed sentences",
        "facts rows",
        "results failures",
    )
)
"""The keys of the documents of version 0.1.0, the only ones without a checksum."""


def _is_of_first_version(document: "dict[str, JsonValue]") -> bool:
    """Return whether keys and version are those of a document of 0.1.0: a later one cannot pass by losing its checksum.

    That version wrote no `format` into some documents, and the jobs of a suite as names alone.
    """
    if document.get("format", 1) != 1:
        return False
    described = [document.get(key, {}) for key in ("facts", "provenance")]
    versions = [part.get("versions", {}) for part in (document, *described) if isinstance(part, dict)]
    of_program = [part.get("collapselab", "0.1.0") for part in versions if isinstance(part, dict)]
    is_jobs = bool(document) and all(isinstance(job, str) for job in document.values())
    return (frozenset(document) in FIRST_VERSION or is_jobs) and all(version == "0.1.0" for version in of_program)


@cache
def _note_unverified(folder: str) -> None:
    log.warning("%s: records of version 0.1.0, which have no checksums; unverified.", folder)


def checksum_of(document: Mapping[str, object]) -> str:
    """sha256 of a JSON document's contents, however they are laid out in the file."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


@contextmanager
def disk_errors(path: str | Path, *, reading: bool = False) -> Iterator[None]:
    """Whatever the disk refuses in the block becomes one DiskError.

    A file that is not there is not the disk's refusal and stays FileNotFoundError. An error of the disk deeper in the
    chain of causes counts too, since libraries wrap what they cannot write.
    """
    try:
        yield
    except DiskError:
        raise
    except Exception as error:
        trouble = disk_trouble(error, reading=reading)
        if trouble is None:
            raise
        place = getattr(error, "filename", None)
        if place is None or any(_LEFT.fullmatch(part) for part in Path(os.fsdecode(place)).parts):
            place = path  # the user knows no temporary name
        raise DiskError(f"{place}: {trouble}. {'' if reading else AFTERWARDS}".rstrip()) from error


def disk_trouble(error: BaseException | None, *, reading: bool = False) -> str | None:
    """What the disk refused, in words; None if it is not the disk. Some libraries say it in their text alone."""
    while error is not None:
        code = getattr(error, "errno", None)
        if code in (errno.ENOSPC, errno.EDQUOT) or "No space left on device" in str(error):
            return "the disk is full"
        if isinstance(error, OSError) and code in _REFUSALS:
            return f"cannot be {'read' if reading else 'written'} ({os.strerror(code)})"
        error = error.__cause__
    return None


_REFUSALS = {
    errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO, errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR, errno.EISDIR,
    errno.ENAMETOOLONG, errno.ELOOP, errno.EFBIG, errno.EMFILE, errno.ENFILE, errno.ESTALE
}  # fmt: skip


@contextmanager
def locked(path: str | Path, *, wait: bool = False, busy: str = "another process is working on it.") -> Iterator[None]:
    """Hold the lock of a file while the block runs; `Busy` with this message if another process has it.

    `wait` waits for the other process instead. The system releases the lock when the process ends, however it ends.
    Machines that share the folder share the lock. On a file system without locks, a file that names the process is one.
    """
    path = Path(path)
    lock = FileLock(path)
    with disk_errors(path):
        make_folder(path.parent)
        try:
            lock.acquire(timeout=-1 if wait else LOCK_SECONDS, poll_interval=LOCK_POLL_SECONDS)
        except Timeout as error:
            raise Busy(busy) from error
    try:
        yield
    finally:
        lock.release()


def is_locked(path: str | Path) -> bool:
    """Whether a process holds the lock of a file."""
    if not Path(path).exists():
        return False
    try:
        FileLock(path).acquire(blocking=False).lock.release()
    except Timeout:
        return True
    except OSError:  # may not be written, and so is no lock of ours
        return False
    return False


def sha256(path: str | Path) -> str:
    """Hash of a file's contents."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flush(file: Path, mode: int) -> None:
    """Onto the disk, with the permissions of a new file: some libraries write theirs for the user alone."""
    with file.open("rb" if os.name == "posix" else "r+b") as opened:  # Windows flushes only what may be written
        os.fsync(opened.fileno())
    if stat.S_IMODE(file.stat().st_mode) != mode:
        file.chmod(mode)


def _is_left_behind(path: Path, host: str | None, process: int) -> bool:
    import psutil

    if host not in (None, _HOST):
        with suppress(OSError):
            return time.time() - path.stat().st_mtime > FOREIGN_SECONDS
        return False
    return not psutil.pid_exists(process)


def _finite_or_none(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value


FiniteOrNone = Annotated[float | None, BeforeValidator(_finite_or_none)]
"""A number, or None where there is none; what is not finite (the perplexity of a huge loss) is None."""


class Part(BaseModel):
    """Base of what a record is made of: named, typed fields."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class Record(Part):
    """Base of every document that a folder of ours holds. `format` 1 was written without a checksum."""

    compact: ClassVar[bool] = False

    format: Literal[1, 2] = 2

    def write(self, path: str | Path) -> None:
        """Write the record, whole or not at all."""
        write_document(path, self.model_dump(mode="json") | {"format": 2}, compact=self.compact)

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """The record in a file; FileNotFoundError if there is none, DamagedError if it is not one, or was changed."""
        return cls.parsed(read_document(path, unchecked=True), path)

    @classmethod
    def find(cls, path: str | Path, *, remedy: str = "") -> Self | None:
        """The record in a file, None where there is none; DamagedError with the remedy if it was changed."""
        try:
            return cls.read(path)
        except FileNotFoundError:
            return None
        except DamagedError as error:
            raise DamagedError(f"{error} {remedy}".rstrip()) from error

    @classmethod
    def parsed(cls, document: dict[str, JsonValue], where: str | Path) -> Self:
        """The record that a document holds."""
        try:
            return cls.model_validate(cls.upgraded({"format": 1} | document))
        except ValidationError as error:
            raise DamagedError(f"{where}: not a {cls.__name__} of this version; {first_error(error)}.") from error

    @classmethod
    def upgraded(cls, document: dict[str, JsonValue]) -> dict[str, JsonValue]:
        """The document in the present form; a record whose form has changed says how."""
        return document


def first_error(error: ValueError) -> str:
    """Return the first problem that a validation found, after the name of its field."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False)[0]
    field, problem = ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
    return f"{field}: {problem}" if field else problem
