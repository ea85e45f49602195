"""One run, performed: trained, then measured at every checkpoint, as far as either is missing.

`LaunchRequest` is what every launcher is given, and `threads_each` divides the processors among its processes.
"""

import os
import re
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, final

from collapselab.disk import disk_errors
from collapselab.errors import Busy, ConfigError, DamagedError, DiskError, UserError
from collapselab.messages import logger
from collapselab.records.options import Options
from collapselab.records.run import Checkpoint, RunFolder
from collapselab.suite.folder import SuiteFolder
from collapselab.suite.model_entries import ModelEntry, is_measured, measure_entry
from collapselab.suite.plan import AnyEntry, Entry
from collapselab.suite.recipe import Suite
from collapselab.suite.status import missing

log = logger(__name__)

StartMethod = Literal["forkserver", "fork"]
NO_CHECKPOINT = "-"
"""The checkpoint of a model that is no run."""


@final
@dataclass(frozen=True)
class LaunchRequest:
    """A suite that is to be run, and how. A launcher uses the options that mean something to it."""

    suite: Suite
    folder: SuiteFolder
    jobs: int = 1
    """Processes side by side on this machine."""
    device: str = "auto"
    retry_failed: bool = False
    start_method: StartMethod = "forkserver"
    """How multiprocessing starts a process."""
    report_to: str = "none"
    """The tracker that gets every run: its training, and the measurements of its checkpoints."""


@final
@dataclass(frozen=True)
class RunOutcome:
    """How a run ended. `busy`: another process performs it. `stopped`: by a signal, or the disk; `why` says which."""

    run: str
    result: Literal["done", "failed", "busy", "stopped"]
    why: str | None = None


@final
@dataclass(frozen=True)
class RunTask:
    """What is missing of a run: the checkpoints that are to be made, and those that are to be measured."""

    folder: SuiteFolder
    entry: Entry
    options: Options
    device: str
    unmade: list[str]
    unmeasured: list[str]
    report_to: str = "none"


def train_and_measure(task: RunTask) -> None:
    """Train if a checkpoint is missing, then measure, in this process. Every process of a torchrun calls it alike."""
    if task.unmade:
        _train(task)
    run = RunFolder(task.folder.run(task.entry.name))
    for name in task.unmeasured:
        _measure(task, Checkpoint(run, name))


def perform(
    folder: SuiteFolder,
    entry: AnyEntry,
    options: Options,
    *,
    device: str = "auto",
    retry: bool = False,
    report_to: str = "none",
    method: Callable[[RunTask], None] = train_and_measure,
) -> RunOutcome:
    """Do what is missing of a run, in no other process at the same time. A failure is kept, and tried again by `retry`.

    `method` does the work: in this process, or in several through `torchrun`. Interrupted where a signal stops it;
    DiskError where the disk does, which is not the run's fault.
    """
    try:
        with folder.locked(entry.name):
            unmade, unmeasured = _missing(folder, entry, options)
            if not unmade and not unmeasured:
                folder.forget_failure(entry.name)
                return RunOutcome(entry.name, "done")
            failure = folder.failure(entry.name)
            if failure is not None and not retry:
                return RunOutcome(entry.name, "failed", failure.why)
            if isinstance(entry, ModelEntry):
                work = partial(measure_entry, folder.path, entry, options, device=device)
            else:
                unmade += [name for name in unmeasured if name not in unmade and _is_damaged(folder, entry, name)]
                work = partial(method, RunTask(folder, entry, options, device, unmade, unmeasured, report_to))
            try:
                with disk_errors(folder.path):
                    work()
            except DiskError:
                raise
            except Exception as error:  # noqa: BLE001  whatever goes wrong in one run, the others continue
                if not isinstance(error, UserError):
                    traceback.print_exception(error)
                return record_failure(folder, entry, options, reason(error))
            folder.forget_failure(entry.name)
            return RunOutcome(entry.name, "done")
    except Busy:
        return RunOutcome(entry.name, "busy")


def _missing(folder: SuiteFolder, entry: AnyEntry, options: Options) -> tuple[list[str], list[str]]:
    """The checkpoints that are not made yet, and those that are not measured; a model has one, and it is made."""
    if isinstance(entry, ModelEntry):
        return [], [] if is_measured(folder.path, entry, options) else [NO_CHECKPOINT]
    return missing(folder.run(entry.name), entry, options)


def record_failure(folder: SuiteFolder, entry: AnyEntry, options: Options, why: str) -> RunOutcome:
    """Keep why a run could not be finished, at the first checkpoint that is missing."""
    unmade, unmeasured = _missing(folder, entry, options)
    every = [NO_CHECKPOINT] if isinstance(entry, ModelEntry) else list(entry.checkpoints)
    stage, checkpoint = ("training", unmade[0]) if unmade else ("measuring", [*unmeasured, *every][0])
    folder.record_failure(entry, stage=stage, checkpoint=checkpoint, why=why)
    return RunOutcome(entry.name, "failed", why)


def reason(error: Exception) -> str:
    """The message of an error, with its type where it is not one of ours."""
    return str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"


def processors() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads_each(jobs: int) -> int:
    """The threads of each of this many processes, which share the processors.

    OMP_NUM_THREADS is read as OpenMP does: in a list such as 4,2 the first number is that of the outermost level.
    """
    text = os.environ.get("OMP_NUM_THREADS", "").strip()
    if text and not re.fullmatch(r"0*[1-9][0-9]{0,8}\s*(,\s*[0-9]{1,9}\s*)*", text):
        raise ConfigError(
            f"OMP_NUM_THREADS: {text!r} is not a number of threads. Set it to a whole number from 1 on, or unset it."
        )
    most = int(text.partition(",")[0]) if text else processors()
    return max(1, min(most, processors()) // jobs)


def _is_damaged(folder: SuiteFolder, entry: Entry, checkpoint: str) -> bool:
    """Whether a checkpoint that is to be measured is not the one that was written: training makes it again."""
    try:
        RunFolder(folder.run(entry.name)).checkpoint(checkpoint)
    except DamagedError:
        return True
    return False


def _train(task: RunTask) -> None:
    from collapselab.training.train import train

    out = task.folder.run(task.entry.name)
    train(task.entry.settings, task.entry.corpus.path, out, device=task.device, report_to=task.report_to)


def _measure(task: RunTask, checkpoint: Checkpoint) -> None:
    from collapselab.measurement.distributed import Processes
    from collapselab.measurement.measure import measure

    log.info("%s: measuring checkpoint %s", task.entry.name, checkpoint.name)
    corpus, processes = task.entry.corpus.path, Processes.joined()
    measure(
        checkpoint,
        corpus,
        device=task.device,
        processes=processes,
        options=task.options,
        report_to=task.report_to,
    )
