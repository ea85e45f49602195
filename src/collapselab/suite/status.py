"""The state of each run, read from its folder: queued, training, measuring, stopped, failed or done."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, TypeGuard, final

from pydantic import JsonValue

from collapselab.errors import DamagedError
from collapselab.records.measurement import Result
from collapselab.records.options import Options
from collapselab.records.outcomes import SUITE_OUTCOMES
from collapselab.records.run import Checkpoint, LogEntry, RunFolder, log_entry
from collapselab.suite.folder import SuiteFolder
from collapselab.suite.model_entries import ModelEntry, is_measured
from collapselab.suite.plan import AnyEntry, Entry

Stage = Literal["queued", "training", "measuring", "stopped", "failed", "done"]
STAGES: tuple[Stage, ...] = ("training", "measuring", "failed", "stopped", "queued", "done")
"""In the order in which they are shown."""
TAIL = 4096
"""Bytes at the end of a log that hold its last line."""


@final
@dataclass(frozen=True)
class State:
    """How far a run is. `stopped`: started, and no process performs it; the next `suite run` continues it."""

    run: str
    stage: Stage
    checkpoints: int
    checkpoints_made: int
    checkpoints_measured: int
    step: int
    steps: int
    loss: float | None = None
    seconds_left: float | None = None
    why: str | None = None
    job: str | None = None

    def facts(self) -> dict[str, JsonValue]:
        return asdict(self)


def run_state(folder: SuiteFolder, entry: AnyEntry, options: Options, *, job: str | None = None) -> State:
    """The state of one run, or of a model that is measured."""
    if isinstance(entry, ModelEntry):
        return _model_state(folder, entry, options, job)
    path = folder.run(entry.name)
    unmade, unmeasured = missing(path, entry, options)
    count = len(entry.checkpoints)
    step, loss, left = _progress(path, entry) if unmade else (entry.planned.steps, None, None)
    failure = folder.failure(entry.name)
    if not unmade and not unmeasured:
        stage: Stage = "done"
    elif folder.is_running(entry.name):
        stage = "training" if unmade else "measuring"
    elif failure is not None:
        stage = "failed"
    else:
        stage = "stopped" if (path / "run.json").exists() else "queued"
    why = failure.why if failure is not None and stage == "failed" else None
    left = left if stage == "training" else None
    made, measured = count - len(unmade), count - len(unmeasured)
    return State(entry.name, stage, count, made, measured, step, entry.planned.steps, loss, left, why, job)


def _model_state(folder: SuiteFolder, entry: ModelEntry, options: Options, job: str | None) -> State:
    failure = folder.failure(entry.name)
    done = is_measured(folder.path, entry, options)
    running = folder.is_running(entry.name)
    stage: Stage = "done" if done else "measuring" if running else "failed" if failure is not None else "queued"
    why = failure.why if failure is not None and stage == "failed" else None
    return State(entry.name, stage, 1, 1, int(done), 0, 0, None, None, why, job)


def missing(path: Path, entry: Entry, options: Options) -> tuple[list[str], list[str]]:
    """The checkpoints of a run that are not made yet, and those that are not measured with these options."""
    run = RunFolder(path)
    checkpoints = [Checkpoint(run, name) for name in entry.checkpoints]
    unmade = [checkpoint.name for checkpoint in checkpoints if not checkpoint.exists()]
    unmeasured = [
        checkpoint.name for checkpoint in checkpoints if not _is_measured(checkpoint, entry.corpus.hash, options)
    ]
    return unmade, unmeasured


def _is_measured(checkpoint: Checkpoint, corpus_hash: str | None, options: Options) -> bool:
    try:
        result = Result.load(checkpoint.measurement)
    except (FileNotFoundError, DamagedError):
        return False
    measured, wanted = result.facts["options"], options.facts()
    if wanted.get("outcomes") == SUITE_OUTCOMES and "outcomes" not in measured:
        wanted = {name: value for name, value in wanted.items() if name != "outcomes"}  # version 0.1 had no default
    if measured != wanted or result.facts["corpus_hash"] != corpus_hash:
        return False
    return result.outdated() is None


def _progress(path: Path, entry: Entry) -> tuple[int, float | None, float | None]:
    """The last logged step, its loss, and the seconds that the remaining steps take at the speed of the last one."""
    last: LogEntry | None = None
    for line in _tail(path / "log.jsonl"):
        logged = log_entry(line)
        if logged is not None and all(_is_number(logged.get(key)) for key in ("step", "loss", "tokens")):
            last = logged
    if last is None:
        return 0, None, None
    rate = last.get("tokens_per_second")
    left = (entry.planned.tokens - last["tokens"]) / rate if _is_number(rate) and rate >= 1e-9 else None
    return min(last["step"], entry.planned.steps), last["loss"], left


def _is_number(value: object) -> TypeGuard[float]:
    """Whether it is a number that we write into a log. The log is only shown: anything else is left out."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 2**63


def _tail(path: Path) -> list[bytes]:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL))
            return file.read().splitlines()
    except FileNotFoundError:
        return []
