"""Finished measurements, kept so that the same command finds its result instead of measuring again.

    RUN/measure/<checkpoint>.json      of a checkpoint of a run
    STATE/finished/<name>.json         of any other model, named after the model, the corpus and the options

A result answers for a model if it was made from the same files, or from the same weights and configuration. The files
are compared first: hashing them takes a fraction of the time of loading the model.
"""

import hashlib
import json
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, final

from collapselab.disk import disk_errors, sha256
from collapselab.errors import DamagedError
from collapselab.records.result import Result
from collapselab.records.versions import outdated

FINISHED = "finished"
"""The folder of finished results inside the state folder."""


@final
class Finished:
    """The place of one result; without a path nothing is kept. `ignored` leaves what is there unread."""

    def __init__(self, path: Path | None, say: Callable[[str], None], *, ignored: bool = False) -> None:
        self.path, self.say, self.ignored = path, say, ignored

    def answer(self, wanted: dict[str, Any]) -> Result | None:
        """The result that is kept, if it was made from what is wanted: every fact is known and the same."""
        result = self._kept
        same = result is not None and all(
            value is not None and result.facts.get(name) == value for name, value in wanted.items()
        )
        return result if same else None

    def keep(self, result: Result) -> None:
        """Write a result in the place of what is there."""
        if self.path is not None:
            if self._kept is not None:
                self.say(f"{self.path}: was measured with other options, or of another model or corpus; now replaced.")
            result.save(self.path)

    @cached_property
    def _kept(self) -> Result | None:
        """The result that is kept, None if there is none, or it is damaged or of another version."""
        if self.path is None or self.ignored:
            return None
        try:
            with disk_errors(self.path, reading=True):
                result = Result.load(self.path)
        except FileNotFoundError:
            return None
        except DamagedError as error:
            self.say(f"{error} It is made again.")
            return None
        why = outdated((row.metric, row.version) for row in result.rows)
        if why is not None:
            self.say(f"{self.path}: measured by another version of collapselab: {why}. It is made again.")
        return result if why is None else None


def place_in(state: str | Path | None, named: dict[str, Any]) -> Path | None:
    """The file in a state folder for the measurement that `named` describes; None without such a folder."""
    if state is None:
        return None
    digest = hashlib.blake2b(json.dumps(named, sort_keys=True).encode(), digest_size=8).hexdigest()
    return Path(state) / FINISHED / f"{digest}.json"


def files_hash(path: str | Path) -> str | None:
    """16 hex digits for the files that a model is loaded from; None where they are not all in this place.

    That is so on the hub, and for an adapter, whose base model is elsewhere.
    """
    place = Path(path)
    if place.is_dir():
        files = sorted(file for file in place.iterdir() if file.is_file() and not file.name.startswith("."))
    else:
        files = [place] if place.is_file() else []
    if not files or any(file.name == "adapter_config.json" for file in files):
        return None
    with disk_errors(place, reading=True):
        hashes = {file.name: sha256(file) for file in files}
    return hashlib.blake2b(json.dumps(hashes, sort_keys=True).encode(), digest_size=8).hexdigest()
