"""A run's folder: its documents, how far the run got, and from where it can continue.

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

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, cast, final

from pydantic import Field, JsonValue

from collapselab.disk import FiniteOrNone, Part, Record, folder_written_whole, locked, sha256, sweep, written_whole
from collapselab.errors import DamagedError, RunError
from collapselab.messages import logger

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

log = logger(__name__)

RECORD, TRAINING = "run.json", "training.json"
STATE = "training state"
KEPT_STATES = 2
LOADED = (".safetensors", ".bin", ".gguf", ".json", ".py")
"""Files that could change what the library loads; others may be added to a checkpoint's folder."""


class TrainedOn(Part):
    """The corpus of a run."""

    path: str
    hash: str
    vocabulary: int
    block: int


class PlannedRun(Part):
    """What the settings come to on that corpus; `checkpoints` are their steps by name."""

    batch: int
    blocks: int
    steps: int
    warmup: int
    tokens: int
    checkpoints: dict[str, int]


class BuiltModel(Part):
    """The model that is trained: its size and the configuration that the library builds it from."""

    parameters: int
    config: dict[str, JsonValue]


class Provenance(Part):
    """When, by what and where a run was started."""

    started: str
    versions: dict[str, str]
    python: str
    commit: str | None
    machine: str
    device: str
    precision: str
    processes: int
    threads: int


class StateFacts(TypedDict, total=False):
    """What is kept with the tensors of an unfinished training."""

    recent: list[float]
    """Losses of the last steps."""
    unlogged: list[float]
    """Losses of the steps since the last log line."""
    unlogged_clipped: int
    """Of these steps, how many had their gradient clipped."""
    clipped_steps: int | None
    """Of all steps so far, how many had their gradient clipped; None where it was not counted from the first one."""
    seconds: float
    """Time of all steps so far."""


class StepEntry(TypedDict, total=False):
    """A line of log.jsonl for a step; each intervention adds keys of its own."""

    step: int
    """Steps taken."""
    epoch: float
    """Passes over the training split."""
    tokens: int
    """Labels trained on."""
    loss: float
    """Mean of the steps since the last line."""
    lr: float
    """Learning rate of the step."""
    grad_norm: float | None
    """Of the step, before clipping."""
    clipped: float
    """Share of clipped steps since the last line."""
    tokens_per_second: float
    """Since the last line."""
    seconds: float
    """Time of training so far."""


class LogEntry(StepEntry, total=False):
    """A line of log.jsonl: of a step, or of a checkpoint, which has its name."""

    checkpoint: str


class RunRecord(Record):
    """run.json: everything that decides the weights of a run, and where it was started.

    `settings` are those that identify the run: see `collapselab.training.settings.resolved`.
    """

    hash: str
    """Identity of the run: 8 digits over settings and corpus hash."""
    settings: dict[str, JsonValue]
    """Those that identify the run."""
    corpus: TrainedOn
    """Its path, hash, vocabulary and block length."""
    plan: PlannedRun
    """Batch, blocks, steps, warm-up, tokens, and the step of each checkpoint."""
    model: BuiltModel
    """Number of parameters, and the library's configuration."""
    provenance: Provenance
    """When it started, versions, Python, commit, machine, device, precision, processes, threads."""


class CheckpointRecord(Record):
    """training.json: what is known of a checkpoint, and the sha256 of every other file of its folder.

    `run` is the hash of its run; a checkpoint of format 1 has none, and the hash of its weights alone.
    """

    run: str | None = None
    """The hash of its run."""
    checkpoint: str
    """Its name: the epoch that was asked for."""
    step: int
    """Steps taken."""
    epoch: float
    """Passes over the training split, as steps make it."""
    tokens: int
    """Labels trained on."""
    train_loss: FiniteOrNone
    """Mean loss on a fixed sample of training blocks; None before version 0.2.0."""
    train_tokens: int | None = None
    """Labels in that sample."""
    train_loss_running: FiniteOrNone = None
    """Mean loss of the last 100 steps. It lags behind `train_loss` while the loss falls."""
    val_loss: FiniteOrNone
    """Mean loss on the validation split."""
    val_accuracy: FiniteOrNone
    """Share of right predictions there."""
    perplexity: FiniteOrNone
    """Exp of `val_loss`."""
    seconds: float
    """Time of training so far, over all sittings."""
    clipped: FiniteOrNone = None
    """Share of clipped steps so far."""
    files: dict[str, str] = Field(default_factory=dict)
    """SHA-256 of every other file of its folder."""

    @classmethod
    def upgraded(cls, document: dict[str, JsonValue]) -> dict[str, JsonValue]:
        if "train_loss_running" not in document:  # version 0.1.0 stored the running mean as train_loss
            document = document | {"train_loss": None, "train_loss_running": document.get("train_loss")}
        if "sha256" in document and "files" not in document:
            return document | {"files": {"model.safetensors": document["sha256"]}}
        return document


def identity(settings: Mapping[str, JsonValue], corpus_hash: str) -> str:
    """Return eight hex digits that two runs share exactly if they should have the same weights."""
    values = json.dumps([settings, corpus_hash], sort_keys=True)
    return hashlib.sha256(values.encode()).hexdigest()[:8]


def log_entry(line: bytes) -> LogEntry | None:
    """Return a line of a log, of which only the step is checked; None if the line is not an entry."""
    try:
        entry: LogEntry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) and isinstance(entry.get("step"), int) else None


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
        """Read run.json; None if there is none yet."""
        return RunRecord.find(
            self.path / RECORD, remedy="Move the folder away, or delete it, and the run is made again."
        )

    def begin(self, record: RunRecord) -> None:
        """Write run.json, or check that the one there is of the same run."""
        self.check(record)
        if not self.exists():
            record.write(self.path / RECORD)

    def check(self, record: RunRecord) -> None:
        """Raise RunError if run.json is of another run."""
        old = self.record()
        if old is None:
            return
        before, now = (run.settings | {"corpus": run.corpus.hash} for run in (old, record))
        changed = [name for name in sorted(before.keys() | now.keys()) if before.get(name) != now.get(name)]
        if changed:
            listed = "; ".join(f"{name} was {before.get(name)!r}, now {now.get(name)!r}" for name in changed)
            raise RunError(f"{self.path}: holds a run with other settings ({listed}). Name another folder for this.")

    def exists(self) -> bool:
        """Return whether the run was started."""
        return (self.path / RECORD).exists()

    @property
    def measurements(self) -> Path:
        """The folder with the measurements of its checkpoints."""
        return self.path / "measure"

    def checkpoints(self) -> "list[Checkpoint]":
        """Return the checkpoints that are there, in the order of `checkpoint_names`."""
        return [Checkpoint(self, name) for name in self.checkpoint_names()]

    def checkpoint_path(self, name: str) -> Path:
        return self.path / "checkpoints" / name

    def checkpoint(self, name: str, *, verify: bool = True) -> CheckpointRecord | None:
        """Read training.json of a checkpoint; None if there is no such checkpoint.

        DamagedError if a file in its folder is not the one that was written, or is of another checkpoint;
        `verify=False` checks training.json alone.
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
        """Return the names of the checkpoints that are there, by number; names that are no numbers last."""

        def number(path: Path) -> tuple[float, str]:
            is_number = re.fullmatch(r"\d+(\.\d+)?", path.name)
            return (float(path.name) if is_number else float("inf"), path.name)

        inside = [path for path in (self.path / "checkpoints").glob("[!.]*") if path.is_dir()]
        return [path.name for path in sorted(inside, key=number)]

    def write_checkpoint(self, model: "PreTrainedModel", tokenizer: Path, known: CheckpointRecord) -> None:
        """Write weights, configuration and tokenizer as the library reads them, and training.json with their hashes."""
        path = self.checkpoint_path(known.checkpoint)
        shutil.rmtree(path, ignore_errors=True)  # a damaged one
        with folder_written_whole(path) as folder:
            _save_quietly(model, folder)
            shutil.copytree(tokenizer, folder, dirs_exist_ok=True)
            files = {file.relative_to(folder).as_posix(): sha256(file) for file in _files(folder)}
            known.model_copy(update={"files": files}).write(folder / TRAINING)

    def save_state(self, step: int, tensors: "dict[str, Tensor]", facts: StateFacts) -> None:
        """Write what resuming after a step needs, and remove older states but one."""
        from collapselab.core.storage import save_tensors

        save_tensors(self._state(step), tensors, kind=STATE, facts={**facts, **self._state_identity(step)})
        for old in self._states()[KEPT_STATES:]:
            self._state(old).unlink(missing_ok=True)

    def load_state(self, *, up_to: int) -> "tuple[int, Mapping[str, Tensor], StateFacts]":
        """Read the last undamaged state that is not after step `up_to`; step 0 and nothing if there is none."""
        from collapselab.core.storage import load_tensors

        for step in self._states():
            if step > up_to:
                continue
            try:
                tensors, facts = load_tensors(self._state(step), kind=STATE)
                # states of version 0.1.0 do not say whose they are
                if any(facts.pop(name, value) != value for name, value in self._state_identity(step).items()):
                    raise ValueError(f"{self._state(step)}: the state of another run or step.")
                return step, tensors, cast(StateFacts, facts)
            except ValueError as error:
                self.say(f"{error} Going back to the one before.")
        return 0, {}, {}

    def _state_identity(self, step: int) -> dict[str, object]:
        record = self.record()
        return {"step": step, "run": record.hash if record else None}

    def drop_states(self) -> None:
        """Remove the states of a finished run."""
        for step in self._states():
            self._state(step).unlink(missing_ok=True)
        folder = self.path / "state"
        if folder.is_dir():
            sweep(folder)
            if not any(folder.iterdir()):  # files of the user stay
                folder.rmdir()

    def log(self, entry: Mapping[str, object]) -> None:
        with (self.path / "log.jsonl").open("a") as file:
            file.write(json.dumps(entry) + "\n")

    def rewind_log(self, step: int, missing: set[str]) -> None:
        """Remove what was logged after a step, and of checkpoints that are made again."""
        path = self.path / "log.jsonl"
        if path.exists():
            entries = (entry for entry in self.read_log() if entry["step"] <= step)
            kept = [entry for entry in entries if entry.get("checkpoint") not in missing]
            with written_whole(path) as temporary:
                temporary.write_text("".join(json.dumps(entry) + "\n" for entry in kept))

    def read_log(self) -> list[LogEntry]:
        """Return the entries of the log, without the incomplete line of a process that was killed."""
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
            if not (folder / name).is_file():
                raise DamagedError(f"{folder}: {name} is missing.")
            if sha256(folder / name) != expected:
                raise DamagedError(f"{folder / name}: damaged or changed; its contents do not match their checksum.")
        loadable = {file.relative_to(folder).as_posix() for file in _files(folder) if file.suffix in LOADED}
        added = loadable - checkpoint.files.keys() - {TRAINING}
        if checkpoint.format > 1 and added:
            raise DamagedError(f"{folder}: {min(added)} was added after it was written.")

    def _state(self, step: int) -> Path:
        return self.path / "state" / f"{step}.safetensors"

    def _states(self) -> list[int]:
        """Return the steps with a state, the last first."""
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


def checkpoint_at(folder: str | Path) -> Checkpoint | None:
    """Return the checkpoint that a folder is; None if it is not inside a run."""
    for place in dict.fromkeys((Path(os.path.abspath(folder)), Path(folder).resolve())):  # a link, or what it links to
        for above in place.parents:
            checkpoint = Checkpoint(RunFolder(above), place.name)
            if checkpoint.run.exists() and checkpoint.path == place:
                return checkpoint
    return None


def verify_checkpoint(checkpoint: Checkpoint) -> CheckpointRecord:
    """Read training.json of a checkpoint; DamagedError if a file is not the one that was written."""
    record = checkpoint.run.checkpoint(checkpoint.name)
    if record is None:
        raise DamagedError(f"{checkpoint.path}: there is no such checkpoint.")
    return record


def verify_copy(folder: Path) -> None:
    """Check a checkpoint that was copied out of its run; DamagedError if a file is not the one that was written."""
    try:
        document = json.loads((folder / TRAINING).read_bytes())
    except OSError:
        return
    except ValueError as error:
        raise DamagedError(f"{folder / TRAINING}: not a JSON document.") from error
    if isinstance(document, dict) and "checkpoint" in document:  # else a file of another tool
        RunFolder(folder)._verify(folder, CheckpointRecord.read(folder / TRAINING))


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _save_quietly(model: "PreTrainedModel", folder: Path) -> None:
    """Save a model without the library's progress bar for each file: training has one."""
    from transformers.utils import logging

    was_shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        model.save_pretrained(folder)
    finally:
        if was_shown:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]
