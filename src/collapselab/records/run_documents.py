"""The documents in a run's folder: run.json, training.json of a checkpoint, and the lines of log.jsonl.

`run.py` says where they are, and reads and writes them.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import TypedDict

from pydantic import Field, JsonValue

from collapselab.record import FiniteOrNone, Part, Record


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
    """Losses of the steps since the last line of the log."""
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
    """Share of the steps since the last line whose gradient was longer than `clip`, and was shortened to it."""
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
    """Those that identify the run: every setting of the first version, and later ones that are not at their default."""
    corpus: TrainedOn
    """Its path, hash, vocabulary and block length."""
    plan: PlannedRun
    """What the settings come to: batch, blocks, steps, warm-up, tokens, and the step of each checkpoint."""
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
    """Mean loss on a fixed sample of training blocks, evaluated at this checkpoint; None before version 0.2.0."""
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
    """Share of the steps so far whose gradient was longer than `clip`, and was shortened to it."""
    files: dict[str, str] = Field(default_factory=dict)
    """SHA-256 of every other file of its folder; `train`, `measure`, `sample` and `suite run` verify them."""

    @classmethod
    def upgraded(cls, document: dict[str, JsonValue]) -> dict[str, JsonValue]:
        if "train_loss_running" not in document:  # version 0.1.0 stored the running mean as train_loss
            document = document | {"train_loss": None, "train_loss_running": document.get("train_loss")}
        if "sha256" in document and "files" not in document:
            return document | {"files": {"model.safetensors": document["sha256"]}}
        return document


def identity(settings: Mapping[str, JsonValue], corpus_hash: str) -> str:
    """Eight hex digits that two runs share exactly if they should have the same weights."""
    values = json.dumps([settings, corpus_hash], sort_keys=True)
    return hashlib.sha256(values.encode()).hexdigest()[:8]


def log_entry(line: bytes) -> LogEntry | None:
    """What a line of a log says, of which only the step is checked; None where it is not one."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    known = isinstance(entry, dict) and isinstance(entry.get("step"), int)
    return entry if known else None
