"""The Hugging Face hub: whether it can be reached, what is in its cache, and where the library finds a model.

The library tries for most of a minute to reach the hub. Here one request is sent, for a few seconds, including
the time to look up its name; if it does not answer, only the cache on this machine is searched.
"""

import importlib.util
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict
from urllib.error import HTTPError
from urllib.request import Request, urlopen

if TYPE_CHECKING:
    from gguf import GGUFReader

HUB_SECONDS = 3.0
"""How long the hub may take to answer."""

LFS_POINTER = b"version https://git-lfs.github.com/spec/"
"""How a file begins that git leaves in place of a large file that was not downloaded."""


@dataclass(frozen=True)
class Revisions:
    """The branches and tags of a model on the hub, each with its commit."""

    commits: dict[str, str]
    from_cache: bool = False
    """Whether these are only the ones in the cache on this machine, since the hub does not answer."""


_IDENTITY = re.compile(r"\w[\w.-]*(/[\w.-]+)?")
LONGEST_NAME = 500
"""More than an owner, a model and a revision of the hub ever have."""


class PretrainedArguments(TypedDict):
    """Arguments of the library's `from_pretrained`."""

    pretrained_model_name_or_path: str
    local_files_only: bool
    gguf_file: NotRequired[str]
    revision: NotRequired[str | None]


@dataclass(frozen=True)
class Pretrained:
    """Where the library finds a model or a tokenizer: a folder, a GGUF file in it, or an id on the hub."""

    path: str
    """The folder; the id if it is not on this machine."""
    gguf_file: str | None = None
    revision: str | None = None
    is_local: bool = True
    adapter: Path | None = None
    """The folder of an adapter that goes on top of it."""

    @property
    def arguments(self) -> PretrainedArguments:
        """The arguments of the library's `from_pretrained`."""
        arguments: PretrainedArguments = {"pretrained_model_name_or_path": self.path, "local_files_only": self.is_local}
        if self.gguf_file is not None:
            return {**arguments, "gguf_file": self.gguf_file}
        return arguments if self.is_local else {**arguments, "revision": self.revision}

    @property
    def file(self) -> Path:
        """The folder or GGUF file on this machine."""
        return Path(self.path) if self.gguf_file is None else Path(self.path) / self.gguf_file

    @contextmanager
    def parsed_once(self) -> Iterator[None]:
        """Let the library read a GGUF file through `gguf_header`; alone it parses the file for every call, slowly."""
        if self.gguf_file is None:
            yield
            return
        import gguf

        library: Any = gguf
        reader = library.GGUFReader
        library.GGUFReader = lambda path: gguf_header(Path(path))
        try:
            yield
        finally:
            library.GGUFReader = reader


def in_gguf(file: Path) -> Pretrained | None:
    """A GGUF file as the library finds it; None where the package gguf, which it needs, is not installed."""
    return None if importlib.util.find_spec("gguf") is None else Pretrained(str(file.parent), gguf_file=file.name)


def gguf_header(file: Path) -> "GGUFReader":
    """Return the metadata of a GGUF file and where its tensors are; ValueError and others where it is damaged."""
    return _parsed(file, file.stat().st_mtime_ns, file.stat().st_size)


@lru_cache(maxsize=1)
def _parsed(file: Path, *version: int) -> "GGUFReader":
    import numpy as np
    from gguf.gguf_reader import GGUFReader  # the name in gguf itself may be replaced at the moment, by `parsed_once`

    class Reader(GGUFReader):
        data: Any

        def _get(self, offset: int, dtype: Any, count: int = 1, override_order: Any = None) -> Any:
            """Refuse to read past the end: GGUFReader never finishes an array that is longer than the file."""
            if isinstance(self.data, np.memmap):  # three times slower than an array, at every token of the vocabulary
                self.data = self.data.view(np.ndarray)
            values = super()._get(offset, dtype, count, override_order)
            if len(values) < count:
                raise ValueError(f"its header or a tensor needs more than the {len(self.data):,} bytes it has")
            return values

    return Reader(file)


def hub_answers() -> bool:
    """Whether the hub can be reached: any answer counts."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    answers: list[bool] = []
    # A thread, because the timeout of a request does not limit the time that looking up a name takes.
    request = threading.Thread(target=lambda: answers.append(_answers(constants.ENDPOINT)), daemon=True)
    request.start()
    request.join(HUB_SECONDS)
    return answers == [True]


def hub_id(name: str) -> tuple[str, str | None] | None:
    """Id and revision of a name such as `owner/model@revision`; None if it cannot be a name on the hub."""
    identity, at, revision = name.partition("@")
    if len(name) > LONGEST_NAME or not name.isprintable():
        return None
    if not _IDENTITY.fullmatch(identity) or (at and not revision):
        return None
    return identity, revision or None


def hub_revisions(identity: str) -> Revisions:
    """Every branch and tag of a model; where the hub does not answer, those in the cache. OSError if it refuses."""
    if not hub_answers():
        return Revisions(_cached_revisions(identity), from_cache=True)
    from huggingface_hub import list_repo_refs

    refs = list_repo_refs(identity)
    return Revisions({ref.name: ref.target_commit for ref in (*refs.branches, *refs.tags)})


def _cached_revisions(identity: str) -> dict[str, str]:
    """The revisions of a model in the hub's cache whose configuration is there."""
    from huggingface_hub import constants

    references = Path(constants.HF_HUB_CACHE) / f"models--{identity.replace('/', '--')}" / "refs"
    files = [file for file in references.rglob("*") if file.is_file()] if references.is_dir() else []
    names = {file.relative_to(references).as_posix(): file.read_text().strip() for file in sorted(files)}
    return {name: commit for name, commit in names.items() if cached_folder(identity, name) is not None}


def cached_folder(identity: str, revision: str | None = None, *, file: str = "config.json") -> Path | None:
    """The folder of a model in the hub's cache on this machine, None unless it holds the file; no network is used."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        cached = try_to_load_from_cache(identity, file, revision=revision)
    except HFValidationError:  # a name that the hub does not accept was never downloaded from it
        return None
    return Path(cached).parent if isinstance(cached, str) else None


def download_command(identity: str, revision: str | None = None) -> str:
    """The command that downloads a model or tokenizer from the hub into a folder DIR."""
    return f"hf download {identity}{f' --revision {revision}' if revision else ''} --local-dir DIR"


def _answers(address: str) -> bool:
    try:
        with urlopen(Request(address, method="HEAD"), timeout=HUB_SECONDS):
            return True
    except HTTPError:
        return True
    except (OSError, ValueError):  # no network; not an address
        return False
