"""Tensors on disk, whole or not at all, with a checksum over everything that gives them meaning.

safetensors checks that the file is long enough, not that its bytes are the ones written. The digest here covers names,
types, shapes, bytes and metadata, so a flipped bit anywhere is an error and never a slightly different number.
"""

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor


@contextmanager
def written_whole(path: str | Path) -> Iterator[Path]:
    """A temporary name beside `path` that takes its place when the block ends, and vanishes if the block fails."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def folder_written_whole(path: str | Path) -> Iterator[Path]:
    """The same for a folder, which must not be there yet. What processes left that were killed is removed."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    _sweep_up(path)
    partial = path.parent / f".{path.name}.{os.getpid()}.partial"
    try:
        partial.mkdir()
        yield partial
        for file in partial.rglob("*"):
            if file.is_file():
                with file.open("rb") as opened:
                    os.fsync(opened.fileno())
        os.replace(partial, path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def disk_trouble(error: Exception) -> str | None:
    """What is wrong with the disk, if it is the disk's fault; safetensors reports that by its message alone."""
    code = getattr(error, "errno", None)
    if code in (errno.ENOSPC, errno.EDQUOT) or "No space left on device" in str(error):
        return "the disk is full"
    if code in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"cannot be written ({os.strerror(code)})"
    return None


def _sweep_up(path: Path) -> None:
    for left in path.parent.glob(f".{path.name}.*.partial"):
        process = int(left.name.split(".")[-2])
        if process == os.getpid() or not _is_running(process):  # ours is from another that had this number
            shutil.rmtree(left, ignore_errors=True)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        return True
    return True


def sha256(path: Path) -> str:
    """Hash of a file's contents."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def save_tensors(path: str | Path, tensors: dict[str, Tensor], *, kind: str, facts: dict[str, object]) -> None:
    """Write tensors and a few facts about them as one safetensors file that `load_tensors` can verify."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    text = json.dumps(facts, sort_keys=True)
    metadata = {"kind": kind, "facts": text, "digest": _digest(tensors, kind, text)}
    with written_whole(path) as temporary:
        save_file(tensors, temporary, metadata=metadata)


def load_tensors(path: str | Path, *, kind: str) -> tuple[dict[str, Tensor], dict[str, object]]:
    """The tensors and facts that `save_tensors` wrote; ValueError where the file is foreign or damaged."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file.")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  not a dict
    except SafetensorError as error:
        raise ValueError(f"{path}: damaged, or not a safetensors file ({error}).") from error
    found = metadata.get("kind")
    if found != kind:
        raise ValueError(f"{path}: holds {found or 'unknown tensors'}, not {kind}.")
    text = metadata.get("facts", "")
    if metadata.get("digest") != _digest(tensors, kind, text):
        raise ValueError(f"{path}: damaged; its contents do not match their checksum. Delete it and make it again.")
    return tensors, json.loads(text)


def _digest(tensors: dict[str, Tensor], kind: str, text: str) -> str:
    digest = hashlib.sha256(f"{kind}\n{text}\n".encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
