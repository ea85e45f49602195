"""Atomic writing, verification, locking and hashing of files, and messages for errors of the disk.

A file is written under a temporary name in the same folder and renamed when it is complete. The temporary name contains
the machine and the process, so that the next process that writes in the folder can remove what a killed process left.
A JSON document contains a checksum, so that an edited or damaged value is an error instead of a different number. A
record is such a document with typed fields:

    class Note(Record):
        text: str

    Note(text="seen").write(path)
    Note.read(path).text

A field that is added later needs a default, so that records of earlier versions can be opened. Unknown fields are
ignored. A missing field, a wrong type or a wrong checksum raises DamagedError.
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
from typing import Annotated, Literal, Self

from filelock import FileLock, Timeout
from pydantic import BaseModel, BeforeValidator, ConfigDict, JsonValue, ValidationError

from collapselab.errors import Busy, DamagedError, DiskError, RunError
from collapselab.messages import logger

log = logger(__name__)

CHECKSUM = "checksum"

FOREIGN_SECONDS = 24 * 3600
"""Age at which a temporary file of another machine counts as left behind."""

LOCK_SECONDS, LOCK_POLL_SECONDS = 0.5, 0.02
"""Several attempts, since `is_locked` holds the lock for a moment, longer on a busy machine."""

_LEFT = re.compile(r"\.(?P<name>.+)\.(?:(?P<host>[^.]+)-)?(?P<process>\d+)\.(?:tmp|partial)")
_HOST = re.sub(r"[^A-Za-z0-9_]", "_", socket.gethostname()) or "localhost"
AFTERWARDS = "No partial file is left. Once this is fixed, the same command continues."


@contextmanager
def written_whole(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path that is renamed to `path` when the block ends, or deleted if the block fails.

        with written_whole("runs.csv") as temporary:
            temporary.write_text(text)

    The file gets the permissions of any new file under the user's umask.
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
    """Do the same for a folder, which must not exist yet."""
    path = Path(path)
    with disk_errors(path):
        make_folder(path.parent)
        sweep(path.parent)
        partial = path.parent / f".{path.name}.{_HOST}-{os.getpid()}.partial"
        shutil.rmtree(partial, ignore_errors=True)  # left by a killed process with our id
        try:
            partial.mkdir()
            mode = stat.S_IMODE(partial.stat().st_mode)
            yield partial
            for inside in partial.rglob("*"):
                if inside.is_file():
                    _flush(inside, mode & 0o666)
                elif inside.is_dir():
                    inside.chmod(mode)
            partial.chmod(mode)  # copytree also copies permissions
            os.replace(partial, path)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


def check_writable(path: str | Path) -> None:
    """Raise DiskError if this file cannot be written; called before the work whose result it will hold."""
    path = Path(path)
    if path.is_dir():
        raise DiskError(f"{path}: is a folder. Name a file in it.")
    with disk_errors(path):
        make_folder(path.parent)
        probe = path.with_name(f".{path.name}.{_HOST}-{os.getpid()}.tmp")
        probe.touch()
        probe.unlink()


def make_folder(path: str | Path) -> None:
    """Make a folder and its parents if necessary; NotADirectoryError if one of them is a file."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path)) from error


def user_cache(name: str) -> Path:
    """Return the folder of this name in the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "collapselab" / name


def sweep(folder: str | Path) -> None:
    """Remove the temporary files and folders of dead processes from a folder."""
    for path in Path(folder).glob(".*"):
        name = _LEFT.fullmatch(path.name)
        if name is not None and _is_left_behind(path, name["host"], int(name["process"])):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def remove_folder(path: str | Path) -> None:
    """Delete a folder atomically: it is renamed first, so that the next `sweep` removes what a kill leaves."""
    path = Path(path)
    removed = path.with_name(f".{path.name}.{_HOST}-{os.getpid()}.partial")
    try:
        os.replace(path, removed)
    except OSError:  # removed by another process, or not permitted
        return
    shutil.rmtree(removed, ignore_errors=True)


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write a file atomically, unless it already has these contents."""
    path = Path(path)
    if path.is_file() and read_bytes(path) == content:
        return
    with written_whole(path) as temporary:
        temporary.write_bytes(content)


def read_bytes(path: Path) -> bytes:
    """Return the contents of a file; RunError if it does not exist."""
    if not path.is_file():
        raise RunError(f"{path}: no such file.")
    with disk_errors(path, reading=True):
        return path.read_bytes()


def write_document(path: str | Path, document: Mapping[str, object], *, compact: bool = False) -> None:
    """Write a JSON document with a checksum atomically. NaN and infinity are refused.

    `format` in the document must be at least 2; 1 stands for documents of version 0.1.0 without a checksum. `compact`
    omits line breaks, for documents that are long tables.
    """
    with written_whole(path) as temporary:
        temporary.write_text(document_text(document, compact=compact), "utf-8")


def document_text(document: Mapping[str, object], *, compact: bool = False, sort_keys: bool = False) -> str:
    """Return the text that `write_document` writes; with `sort_keys` the same for documents that were read back."""
    indent, checked = None if compact else 1, with_checksum(document)
    return json.dumps(checked, indent=indent, ensure_ascii=False, allow_nan=False, sort_keys=sort_keys) + "\n"


def with_checksum(document: Mapping[str, object]) -> dict[str, object]:
    """Return a JSON document with a checksum of its contents."""
    return {**document, CHECKSUM: checksum_of(document)}


def read_document(path: str | Path, *, unchecked: bool = False) -> dict[str, JsonValue]:
    """Read a document written by `write_document`; FileNotFoundError if there is none, DamagedError if it was changed.

    `unchecked` also accepts a document of version 0.1.0, which has no checksum, and warns that it is unverified.
    """
    path = Path(path)
    with disk_errors(path, reading=True):
        raw = path.read_bytes()
    try:
        document = json.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{path}: not a JSON document.") from error
    if not isinstance(document, dict):
        raise DamagedError(f"{path}: must contain a JSON object, got a {type(document).__name__}.")
    return verified(document, path, unchecked=unchecked)


def verified(document: dict[str, JsonValue], path: str | Path, *, unchecked: bool = False) -> dict[str, JsonValue]:
    """Return a document, or a part with its own checksum, without the checksum; DamagedError if that is wrong."""
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
        what = "it has no checksum" if expected is None else "the contents do not match the checksum"
        raise DamagedError(f"{path}: damaged or edited; {what}.")
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
    """Return whether keys and version are those of version 0.1.0, so that a later document needs its checksum.

    That version did not write `format` into all documents, and wrote the jobs of a suite as a plain mapping of names.
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
    log.warning("%s: records of version 0.1.0 have no checksums and were not verified.", folder)


def checksum_of(document: Mapping[str, object]) -> str:
    """Return the sha256 of the contents of a JSON document, whatever its layout."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


@contextmanager
def disk_errors(path: str | Path, *, reading: bool = False) -> Iterator[None]:
    """Convert errors of the disk in the block into DiskError.

    FileNotFoundError is not converted. An error of the disk in the chain of causes counts too, since libraries wrap
    errors of writing.
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
            place = path  # the temporary name means nothing to the user
        raise DiskError(f"{place}: {trouble}. {'' if reading else AFTERWARDS}".rstrip()) from error


def disk_trouble(error: BaseException | None, *, reading: bool = False) -> str | None:
    """Describe an error of the disk; None for other errors. Some libraries report it only in their message."""
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
    """Hold the lock of a file while the block runs; raise `Busy` with this message if another process holds it.

    `wait` waits for the other process instead. The system releases the lock when the process ends. Machines that share
    the folder share the lock; on a file system without locks, the existence of the file is the lock.
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
    """Return whether a process holds the lock of a file."""
    if not Path(path).exists():
        return False
    try:
        FileLock(path).acquire(blocking=False).lock.release()
    except Timeout:
        return True
    except OSError:  # a read-only file is not one of our locks
        return False
    return False


def sha256(path: str | Path) -> str:
    """Return the sha256 of a file."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flush(file: Path, mode: int) -> None:
    """Flush a file to disk and set the usual permissions; some libraries make their files private."""
    with file.open("rb" if os.name == "posix" else "r+b") as opened:  # Windows needs a writable handle
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
"""A number or None; infinite numbers, such as the perplexity of a huge loss, become None."""


class Part(BaseModel):
    """Base class of records and their parts: immutable, with strictly typed fields."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class Record(Part):
    """Base class of the documents that we write. `format` 1 was written without a checksum."""

    format: Literal[1, 2] = 2

    def write(self, path: str | Path) -> None:
        """Write the record atomically."""
        write_document(path, self.model_dump(mode="json") | {"format": 2})

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a record; FileNotFoundError if there is none, DamagedError if it is invalid or was changed."""
        return cls.parsed(read_document(path, unchecked=True), path)

    @classmethod
    def find(cls, path: str | Path, *, remedy: str = "") -> Self | None:
        """Read a record, or return None if there is none; DamagedError, with the remedy, if it was changed."""
        try:
            return cls.read(path)
        except FileNotFoundError:
            return None
        except DamagedError as error:
            raise DamagedError(f"{error} {remedy}".rstrip()) from error

    @classmethod
    def parsed(cls, document: dict[str, JsonValue], where: str | Path) -> Self:
        """Return the record in a document."""
        try:
            return cls.model_validate(cls.upgraded({"format": 1} | document))
        except ValidationError as error:
            raise DamagedError(f"{where}: not a valid {cls.__name__}; {first_error(error)}.") from error

    @classmethod
    def upgraded(cls, document: dict[str, JsonValue]) -> dict[str, JsonValue]:
        """Convert a document of an earlier version; overridden by records whose fields have changed."""
        return document


def first_error(error: ValueError) -> str:
    """Return the first problem of a validation, preceded by the name of its field."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False)[0]
    field, problem = ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
    return f"{field}: {problem}" if field else problem
