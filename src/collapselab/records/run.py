"""A run's folder: what it is, how far it got, and from where it can continue.

    <run>/run.json                 RunRecord: the complete configuration and provenance
          checkpoints/<epoch>/     a standard Hugging Face folder, and training.json: a CheckpointRecord, with the hash
                                   of every file in the folder
          measure/<epoch>.json     what was measured of a checkpoint; <epoch>.safetensors: its class moments;
                                   <epoch>.layer-<n>.safetensors: those of a layer below
          log.jsonl                one line a logged step, one a checkpoint
          state/<step>.safetensors what resuming needs, the last two; gone when the run is finished
          .lock                    held while a process trains

A run is finished when every planned checkpoint is there.
"""

import glob
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast, final

from torch import Tensor

from collapselab.core.storage import load_tensors, save_tensors
from collapselab.disk import folder_written_whole, locked, sha256, sweep, written_whole
from collapselab.errors import DamagedError, RunError
from collapselab.messages import logger
from collapselab.records.run_documents import CheckpointRecord, LogEntry, RunRecord, StateFacts, log_entry

if TYPE_CHECKING:
    from transformers import PreTrainedModel

log = logger(__name__)

RECORD, TRAINING = "run.json", "training.json"
STATE = "training state"
KEPT_STATES = 2
LOADED = (".safetensors", ".bin", ".gguf", ".json", ".py")
"""Files that could change what the library loads; others may be added to a checkpoint's folder."""


@final
class RunFolder:
    """The folder of one run; nothing is read or written before a method is called."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.name = Path(os.path.abspath(path)).name  # its own where the folder is a link, not that of the other end

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes out while the block runs; the system releases the lock when this process ends."""
        if self.path.exists() and not self.path.is_dir():
            raise RunError(f"{self.path}: a file. Name a folder for the run.")
        if self.path.is_dir() and any(self.path.iterdir()) and not (self.path / ".lock").exists():
            raise RunError(f"{self.path}: holds something else, and nothing is overwritten. Name another folder.")
        busy = f"{self.path}: another process is training this run. Wait for it, or stop it."
        with locked(self.path / ".lock", busy=busy):
            yield

    def record(self) -> RunRecord | None:
        """run.json, None where there is none yet."""
        return RunRecord.find(
            self.path / RECORD, remedy="Move the folder away, or delete it, and the run is made again."
        )

    def begin(self, record: RunRecord) -> None:
        """Write run.json, or make sure that the one there is of the same run."""
        self.check(record)
        if not self.exists():
            record.write(self.path / RECORD)

    def check(self, record: RunRecord) -> None:
        """RunError where run.json is there, and is of another run."""
        old = self.record()
        if old is None:
            return
        before, now = (run.settings | {"corpus": run.corpus.hash} for run in (old, record))
        changed = [name for name in sorted(before.keys() | now.keys()) if before.get(name) != now.get(name)]
        if changed:
            listed = "; ".join(f"{name} was {before.get(name)!r}, now {now.get(name)!r}" for name in changed)
            raise RunError(f"{self.path}: holds a run with other settings ({listed}). Name another folder for this.")

    def exists(self) -> bool:
        """Whether the run was started."""
        return (self.path / RECORD).is_file()

    @property
    def measurements(self) -> Path:
        """The folder of what was measured of its checkpoints."""
        return self.path / "measure"

    def checkpoints(self) -> "list[Checkpoint]":
        """The checkpoints that are there, in the order of `checkpoint_names`."""
        return [Checkpoint(self, name) for name in self.checkpoint_names()]

    def checkpoint_path(self, name: str) -> Path:
        return self.path / "checkpoints" / name

    def checkpoint(self, name: str, *, verify: bool = True) -> CheckpointRecord | None:
        """What is known of a checkpoint, None where it is not there.

        DamagedError where a file of it is not the one that was written, or where it is not this one; `verify=False`
        looks at training.json alone.
        """
        folder = self.checkpoint_path(name)
        try:
            record = CheckpointRecord.read(folder / TRAINING)
        except FileNotFoundError as error:
            if not folder.exists():
                return None
            raise DamagedError(f"{folder}: has no {TRAINING}.") from error
        if record.checkpoint != name:
            raise DamagedError(f"{folder}: holds checkpoint {record.checkpoint}, not {name}.")
        if verify:
            self._verify(folder, record)
        return record

    def checkpoint_names(self) -> list[str]:
        """The checkpoints that are there, by number; names that are no numbers last."""

        def number(name: str) -> tuple[float, str]:
            return (float(name) if re.fullmatch(r"\d+(\.\d+)?", name) else float("inf"), name)

        inside = (self.path / "checkpoints").glob("*") if (self.path / "checkpoints").is_dir() else ()
        return sorted((path.name for path in inside if path.is_dir() and not path.name.startswith(".")), key=number)

    def write_checkpoint(self, model: "PreTrainedModel", tokenizer: Path, known: CheckpointRecord) -> None:
        """Weights, configuration and tokenizer as the library reads them, and training.json with their hashes."""
        path = self.checkpoint_path(known.checkpoint)
        shutil.rmtree(path, ignore_errors=True)  # a damaged one
        with folder_written_whole(path) as folder:
            with _quiet_library():
                model.save_pretrained(folder)
            shutil.copytree(tokenizer, folder, dirs_exist_ok=True)
            files = {file.relative_to(folder).as_posix(): sha256(file) for file in _files(folder)}
            known.model_copy(update={"files": files}).write(folder / TRAINING)

    def save_state(self, step: int, tensors: dict[str, Tensor], facts: StateFacts) -> None:
        save_tensors(self._state(step), tensors, kind=STATE, facts=dict(facts))
        for old in self._states()[KEPT_STATES:]:
            self._state(old).unlink(missing_ok=True)

    def load_state(self, *, up_to: int) -> tuple[int, Mapping[str, Tensor], StateFacts]:
        """The last whole state that is not after step `up_to`; step 0 and nothing where there is none."""
        for step in self._states():
            if step > up_to:
                continue
            try:
                tensors, facts = load_tensors(self._state(step), kind=STATE)
                return step, tensors, cast(StateFacts, facts)
            except ValueError as error:
                self.say(f"{error} Going back to the one before.")
        return 0, {}, {}

    def drop_states(self) -> None:
        """Remove what resuming needed: the run is finished."""
        folder = self.path / "state"
        for step in self._states():
            self._state(step).unlink(missing_ok=True)
        if folder.is_dir():
            sweep(folder)
            if not any(folder.iterdir()):
                folder.rmdir()

    def log(self, entry: Mapping[str, object]) -> None:
        with (self.path / "log.jsonl").open("a") as file:
            file.write(json.dumps(entry) + "\n")

    def rewind_log(self, step: int, missing: set[str]) -> None:
        """Forget what was logged after a step, and of checkpoints that are made again."""
        path = self.path / "log.jsonl"
        if path.exists():
            entries = (entry for entry in self.read_log() if entry["step"] <= step)
            kept = [entry for entry in entries if entry.get("checkpoint") not in missing]
            with written_whole(path) as temporary:
                temporary.write_text("".join(json.dumps(entry) + "\n" for entry in kept))

    def read_log(self) -> list[LogEntry]:
        """The entries of the log; a line that is none (a process was killed while it wrote it) is left out."""
        try:
            lines = (self.path / "log.jsonl").read_bytes().splitlines()
        except FileNotFoundError:
            return []
        return [entry for line in lines if (entry := log_entry(line)) is not None]

    def say(self, text: str) -> None:
        log.warning("%s: %s", self.name, text)

    def _verify(self, folder: Path, checkpoint: CheckpointRecord) -> None:
        run = self.record() if checkpoint.run is not None else None
        if run is not None and run.hash != checkpoint.run:
            raise DamagedError(f"{folder}: is of the run {checkpoint.run}, not of this one, {run.hash}.")
        for name, expected in checkpoint.files.items():
            try:
                same = sha256(folder / name) == expected
            except FileNotFoundError as error:
                raise DamagedError(f"{folder}: {name} is missing.") from error
            if not same:
                raise DamagedError(f"{folder / name}: damaged or changed; its contents do not match their checksum.")
        loadable = {file.relative_to(folder).as_posix() for file in _files(folder) if file.suffix in LOADED}
        added = loadable - checkpoint.files.keys() - {TRAINING}
        if checkpoint.format > 1 and added:
            raise DamagedError(f"{folder}: {min(added)} was added after it was written.")

    def _state(self, step: int) -> Path:
        return self.path / "state" / f"{step}.safetensors"

    def _states(self) -> list[int]:
        """Steps with a state, the last first."""
        names = [path.stem for path in (self.path / "state").glob("*.safetensors")]
        return sorted((int(step) for step in names if step.isdecimal()), reverse=True)


@final
@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint of a run: where its files are, and where what is measured of it is kept."""

    run: RunFolder
    name: str

    @property
    def path(self) -> Path:
        return self.run.checkpoint_path(self.name)

    def exists(self) -> bool:
        """Whether it was made."""
        return (self.path / TRAINING).exists()

    @property
    def measurement(self) -> Path:
        return self.run.measurements / f"{self.name}.json"

    @property
    def moments(self) -> Path:
        return self.run.measurements / f"{self.name}.safetensors"


def layer_moments(moments: Path, layer: str) -> Path:
    """The file for the class moments of a layer below, beside that of the last."""
    return moments.with_name(f"{moments.stem}.layer-{layer}{moments.suffix}")


def kept_layers(moments: Path) -> dict[str, Path]:
    """The files of class moments of layers below that are beside that of the last, from the first layer on."""
    files = moments.parent.glob(f"{glob.escape(moments.stem)}.layer-*{moments.suffix}")
    numbers = {file.stem.rpartition(".layer-")[2]: file for file in files}
    return {number: numbers[number] for number in sorted(filter(str.isdecimal, numbers), key=int)}


def checkpoint_at(folder: str | Path) -> Checkpoint | None:
    """The checkpoint that a folder is, None where no run keeps one there.

    Every folder above it with a run.json says where that run keeps the checkpoint of this name.
    """
    for place in dict.fromkeys((Path(os.path.abspath(folder)), Path(folder).resolve())):  # a link, or what it links to
        for above in place.parents:
            checkpoint = Checkpoint(RunFolder(above), place.name)
            if checkpoint.run.exists() and checkpoint.path == place:
                return checkpoint
    return None


def verify_checkpoint(checkpoint: Checkpoint) -> CheckpointRecord:
    """What is known of a checkpoint; DamagedError where one of its files is not the one that was written."""
    record = checkpoint.run.checkpoint(checkpoint.name)
    if record is None:
        raise DamagedError(f"{checkpoint.path}: there is no such checkpoint.")
    return record


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


@contextmanager
def _quiet_library() -> Iterator[None]:
    """Without a progress bar for every file: there is one for the training."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]
