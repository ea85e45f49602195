"""Finished measurements on disk, so that the same command finds its result instead of measuring again.

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
from typing import final

from collapselab.corpus.blocks import Corpus
from collapselab.disk import disk_errors, sha256
from collapselab.errors import DamagedError
from collapselab.records.measurement import Result
from collapselab.records.options import Options
from collapselab.records.versions import outdated

FINISHED = "finished"
"""The folder of finished results inside the state folder."""


@final
class FinishedResult:
    """The file of one result; without a path nothing is read or written. `ignored` leaves an existing file unread."""

    def __init__(self, path: Path | None, say: Callable[[str], None], *, ignored: bool = False) -> None:
        self.path, self.say, self.ignored = path, say, ignored

    def find(
        self, corpus: Corpus, options: Options, *, files_hash: str | None = None, model_hash: str | None = None
    ) -> Result | None:
        """The result in the file, if it is of this corpus, these options, and a model with one of these hashes."""
        result = self._result
        if result is None:
            return None
        facts = result.facts
        same_files = files_hash is not None and facts.get("files_hash") == files_hash
        same_weights = model_hash is not None and facts["model_hash"] == model_hash
        same_task = facts["corpus_hash"] == corpus.hash and facts["options"] == options.facts()
        return result if same_task and (same_files or same_weights) else None

    def write(self, result: Result) -> None:
        """Write a result, in place of the one that is there."""
        if self.path is not None:
            if self._result is not None:
                self.say(f"{self.path}: was measured with other options, or of another model or corpus; now replaced.")
            result.save(self.path)

    @cached_property
    def _result(self) -> Result | None:
        """The result in the file, None if there is none, or it is damaged or of another version."""
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


def finished_path(state: str | Path | None, corpus: Corpus, options: Options, **model: str | None) -> Path | None:
    """The file in a state folder for the measurement of a model; None without such a folder."""
    if state is None:
        return None
    named = {**model, "corpus_hash": corpus.hash, "options": options.facts()}
    digest = hashlib.blake2b(json.dumps(named, sort_keys=True).encode(), digest_size=8).hexdigest()
    return Path(state) / FINISHED / f"{digest}.json"


def files_hash(path: str | Path) -> str | None:
    """16 hex digits for the files that a model is loaded from; None where not all of them are in this place.

    That is the case for a model of the hub, and for an adapter, whose base model is elsewhere.
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
