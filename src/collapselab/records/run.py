"""The folder of a run: its documents, its progress, and the state from which it can continue.

    <run>/run.json                 RunRecord: the complete configuration and provenance
          checkpoints/<epoch>/     a standard Hugging Face folder, and training.json: a CheckpointRecord, with the hash
                                   of every file in the folder
          measure/<epoch>.json     the measurement of a checkpoint; <epoch>.safetensors: its class moments;
                                   <epoch>.layer-<n>.safetensors: those of a lower layer
          log.jsonl                one line per logged step and per checkpoint
          state/<step>.safetensors the last two training states; deleted when the run is finished
          .lock                    held while a process trains

A run is finished when all planned checkpoints exist.
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
from typing import TYPE_CHECKING, TypedDict, cast

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
"""Files that could change what transformers loads; other files may be added to the folder of a checkpoint."""


class TrainedOn(Part):
    """The corpus of a run."""

    path: str
    hash: str
    vocabulary: int
    block: int


class PlannedRun(Part):
    """What follows from the settings and the corpus; `checkpoints` maps the names of checkpoints to steps."""

    batch: int
    blocks: int
    steps: int
    warmup: int
    tokens: int
    checkpoints: dict[str, int]


class BuiltModel(Part):
    """The model that is trained: its size and its configuration for transformers."""

    parameters: int
    config: dict[str, JsonValue]


class Provenance(Part):
    """When, where and with which software a run was started."""

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
    """What is stored with the tensors of an unfinished training."""

    recent: list[float]
    """Losses of the last steps."""
    unlogged: list[float]
    """Losses of the steps since the last log line."""
    unlogged_clipped: int
    """Number of these steps whose gradient was clipped."""
    clipped_steps: int | None
    """Number of all steps so far whose gradient was clipped; None if not counted from the first step."""
    seconds: float
    """Time of all steps so far."""


class StepEntry(TypedDict, total=False):
    """A line of log.jsonl for a step; each intervention adds its own keys."""

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
    """Norm of the gradient of the step, before clipping."""
    clipped: float
    """Share of clipped steps since the last line."""
    tokens_per_second: float
    """Since the last line."""
    seconds: float
    """Time of training so far."""


class LogEntry(StepEntry, total=False):
    """A line of log.jsonl for a step, or for a checkpoint, with its name."""

    checkpoint: str


class RunRecord(Record):
    """run.json: everything that determines the weights of a run, and where it was started.

    `settings` identify the run: see `collapselab.training.settings.resolved`.
    """

    hash: str
    """Identity of the run: 8 digits over settings and corpus hash."""
    settings: dict[str, JsonValue]
    """The settings that identify the run."""
    corpus: TrainedOn
    """Its path, hash, vocabulary and block length."""
    plan: PlannedRun
    """Batch, blocks, steps, warm-up, tokens, and the step of each checkpoint."""
    model: BuiltModel
    """Number of parameters, and the configuration for transformers."""
    provenance: Provenance
    """When it started, versions, Python, commit, machine, device, precision, processes, threads."""


class CheckpointRecord(Record):
    """training.json: facts about a checkpoint, and the sha256 of every other file in its folder.

    A checkpoint of format 1 has no `run`, and only the hash of its weights.
    """

    run: str | None = None
    """The hash of its run."""
    checkpoint: str
    """Its name: the requested epoch."""
    step: int
    """Steps taken."""
    epoch: float
    """Passes over the training split, rounded to steps."""
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
    """Share of correct predictions on the validation split."""
    perplexity: FiniteOrNone
    """Exp of `val_loss`."""
    seconds: float
    """Time of training so far, including before interruptions."""
    clipped: FiniteOrNone = None
    """Share of clipped steps so far."""
    files: dict[str, str] = Field(default_factory=dict)
    """SHA-256 of every other file in its folder."""

    @classmethod
    def upgraded(cls, document: dict[str, JsonValue]) -> dict[str, JsonValue]:
        if "train_loss_running" not in document:  # version 0.1.0 stored the running mean as train_loss
            document = document | {"train_loss": None, "train_loss_running": document.get("train_loss")}
        if "sha256" in document and "files" not in document:
            return document | {"files": {"model.safetensors": document["sha256"]}}
        return document


def identity(settings: Mapping[str, JsonValue], corpus_hash: str) -> str:
    """Return eight hex digits that are equal for two runs that should have the same weights, and differ otherwise."""
    values = json.dumps([settings, corpus_hash], sort_keys=True)
    return hashlib.sha256(values.encode()).hexdigest()[:8]


def log_entry(line: bytes) -> LogEntry | None:
    """Parse a line of a log, checking only the step; None if the line is not an entry."""
    try:
        entry: LogEntry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) and isinstance(entry.get("step"), int) else None


class RunFolder:
    """The folder of one run; nothing is read or written until a method is called."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.name = Path(os.path.abspath(path)).name  # a link has its own name, not that of its target

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Exclude other processes while the block runs; the system releases the lock when this process ends."""
        if self.path.exists() and not self.path.is_dir():
            raise RunError(f"{self.path}: is a file. Choose a folder for the run.")
        if self.path.is_dir() and any(self.path.iterdir()) and not (self.path / ".lock").exists():
            raise RunError(f"{self.path}: contains other files, which are not overwritten. Choose another folder.")
        busy = f"{self.path}: another process is training this run. Wait for it or stop it."
        with locked(self.path / ".lock", busy=busy):
            yield

    def record(self) -> RunRecord | None:
        """Read run.json; None if the run was not started."""
        return RunRecord.find(self.path / RECORD, remedy="Move or delete the folder to make the run again.")

    def begin(self, record: RunRecord) -> None:
        """Write run.json, or check that the existing one belongs to the same run."""
        self.check(record)
        if not self.exists():
            record.write(self.path / RECORD)

    def check(self, record: RunRecord) -> None:
        """Raise RunError if run.json belongs to another run."""
        old = self.record()
        if old is None:
            return
        before, now = (run.settings | {"corpus": run.corpus.hash} for run in (old, record))
        changed = [name for name in sorted(before.keys() | now.keys()) if before.get(name) != now.get(name)]
        if changed:
            listed = "; ".join(f"{name} was {before.get(name)!r}, now {now.get(name)!r}" for name in changed)
            raise RunError(
                f"{self.path}: holds a run with other settings ({listed}). Choose another folder for this run."
            )

    def exists(self) -> bool:
        """Return whether the run was started."""
        return (self.path / RECORD).exists()

    @property
    def measurements(self) -> Path:
        """The folder with the measurements of its checkpoints."""
        return self.path / "measure"

    def checkpoints(self) -> "list[Checkpoint]":
        """Return the existing checkpoints in the order of `checkpoint_names`."""
        return [Checkpoint(self, name) for name in self.checkpoint_names()]

    def checkpoint_path(self, name: str) -> Path:
        return self.path / "checkpoints" / name

    def checkpoint(self, name: str, *, verify: bool = True) -> CheckpointRecord | None:
        """Read training.json of a checkpoint; None if there is no such checkpoint.

        DamagedError if a file in its folder was changed or belongs to another checkpoint; `verify=False` only checks
        training.json.
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
        """Return the names of the existing checkpoints in numerical order, other names last."""

        def number(path: Path) -> tuple[float, str]:
            is_number = re.fullmatch(r"\d+(\.\d+)?", path.name)
            return (float(path.name) if is_number else float("inf"), path.name)

        inside = [path for path in (self.path / "checkpoints").glob("[!.]*") if path.is_dir()]
        return [path.name for path in sorted(inside, key=number)]

    def write_checkpoint(self, model: "PreTrainedModel", tokenizer: Path, known: CheckpointRecord) -> None:
        """Write weights, configuration and tokenizer for transformers, and training.json with their hashes."""
        path = self.checkpoint_path(known.checkpoint)
        shutil.rmtree(path, ignore_errors=True)  # a damaged one
        with folder_written_whole(path) as folder:
            _save_quietly(model, folder)
            shutil.copytree(tokenizer, folder, dirs_exist_ok=True)
            files = {file.relative_to(folder).as_posix(): sha256(file) for file in _files(folder)}
            known.model_copy(update={"files": files}).write(folder / TRAINING)

    def save_state(self, step: int, tensors: "dict[str, Tensor]", facts: StateFacts) -> None:
        """Write the state that resuming after this step needs, and remove all older states but one."""
        from collapselab.core.storage import save_tensors

        save_tensors(self._state(step), tensors, kind=STATE, facts={**facts, **self._state_identity(step)})
        for old in self._states()[KEPT_STATES:]:
            self._state(old).unlink(missing_ok=True)

    def load_state(self, *, up_to: int) -> "tuple[int, Mapping[str, Tensor], StateFacts]":
        """Read the last undamaged state up to step `up_to`; step 0 without tensors if there is none."""
        from collapselab.core.storage import load_tensors

        for step in self._states():
            if step > up_to:
                continue
            try:
                tensors, facts = load_tensors(self._state(step), kind=STATE)
                # States of version 0.1.0 do not identify their run.
                if any(facts.pop(name, value) != value for name, value in self._state_identity(step).items()):
                    raise ValueError(f"{self._state(step)}: belongs to another run or step.")
                return step, tensors, cast(StateFacts, facts)
            except ValueError as error:
                self.say(f"{error} Using the previous state.")
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
            if not any(folder.iterdir()):  # keep the user's files
                folder.rmdir()

    def log(self, entry: Mapping[str, object]) -> None:
        with (self.path / "log.jsonl").open("a") as file:
            file.write(json.dumps(entry) + "\n")

    def rewind_log(self, step: int, missing: set[str]) -> None:
        """Remove log entries after a step, and those of checkpoints that will be made again."""
        path = self.path / "log.jsonl"
        if path.exists():
            entries = (entry for entry in self.read_log() if entry["step"] <= step)
            kept = [entry for entry in entries if entry.get("checkpoint") not in missing]
            with written_whole(path) as temporary:
                temporary.write_text("".join(json.dumps(entry) + "\n" for entry in kept))

    def read_log(self) -> list[LogEntry]:
        """Return the entries of the log, without the incomplete last line of a process that was killed."""
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
            raise DamagedError(f"{folder}: belongs to run {checkpoint.run}, not to this one, {run.hash}.")
        for name, expected in checkpoint.files.items():
            if not (folder / name).is_file():
                raise DamagedError(f"{folder}: {name} is missing.")
            if sha256(folder / name) != expected:
                raise DamagedError(f"{folder / name}: damaged or changed; the contents do not match the checksum.")
        loadable = {file.relative_to(folder).as_posix() for file in _files(folder) if file.suffix in LOADED}
        added = loadable - checkpoint.files.keys() - {TRAINING}
        if checkpoint.format > 1 and added:
            raise DamagedError(f"{folder}: {min(added)} was added after the checkpoint was written.")

    def _state(self, step: int) -> Path:
        return self.path / "state" / f"{step}.safetensors"

    def _states(self) -> list[int]:
        """Return the steps with a state, latest first."""
        names = [path.stem for path in (self.path / "state").glob("*.safetensors")]
        return sorted((int(step) for step in names if step.isdecimal()), reverse=True)


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint of a run: the paths of its files and of its measurements."""

    run: RunFolder
    name: str

    @property
    def path(self) -> Path:
        return self.run.checkpoint_path(self.name)

    def exists(self) -> bool:
        """Return whether it was made."""
        return (self.path / TRAINING).exists()

    @property
    def measurement(self) -> Path:
        return self.run.measurements / f"{self.name}.json"

    @property
    def moments(self) -> Path:
        return self.run.measurements / f"{self.name}.safetensors"


def checkpoint_at(folder: str | Path) -> Checkpoint | None:
    """Return the checkpoint in this folder; None if the folder is not inside a run."""
    for place in dict.fromkeys((Path(os.path.abspath(folder)), Path(folder).resolve())):  # a link, then its target
        for above in place.parents:
            checkpoint = Checkpoint(RunFolder(above), place.name)
            if checkpoint.run.exists() and checkpoint.path == place:
                return checkpoint
    return None


def verify_checkpoint(checkpoint: Checkpoint) -> CheckpointRecord:
    """Read training.json of a checkpoint; DamagedError if a file was changed."""
    record = checkpoint.run.checkpoint(checkpoint.name)
    if record is None:
        raise DamagedError(f"{checkpoint.path}: no such checkpoint.")
    return record


def verify_copy(folder: Path) -> None:
    """Check a checkpoint that was copied out of its run; DamagedError if a file was changed."""
    try:
        document = json.loads((folder / TRAINING).read_bytes())
    except OSError:
        return
    except ValueError as error:
        raise DamagedError(f"{folder / TRAINING}: not a JSON document.") from error
    if isinstance(document, dict) and "checkpoint" in document:  # otherwise a file of another tool
        RunFolder(folder)._verify(folder, CheckpointRecord.read(folder / TRAINING))


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _save_quietly(model: "PreTrainedModel", folder: Path) -> None:
    """Save a model without the progress bar of transformers, since training has its own."""
    from transformers.utils import logging

    was_shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        model.save_pretrained(folder)
    finally:
        if was_shown:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]
