"""One run, performed: trained, then measured at every checkpoint, as far as either is missing.

`LaunchRequest` is what every launcher is given, and `threads_each` divides the processors among its processes.
`torchrun` performs a run in as many processes as it has GPUs: the process that holds the run's lock starts them, passes
a signal on and waits; rank 0 writes what went wrong into a file.
"""

import os
import pickle
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, final

from collapselab.disk import disk_errors
from collapselab.errors import (
    Busy,
    ConfigError,
    DamagedError,
    DiskError,
    Interrupted,
    RunError,
    UserError,
    stop_requests,
)
from collapselab.messages import logger
from collapselab.records.options import Options
from collapselab.records.run import Checkpoint, RunFolder
from collapselab.suite.folder import SuiteFolder
from collapselab.suite.plan import AnyEntry, Entry, ModelEntry
from collapselab.suite.recipe import Suite
from collapselab.suite.status import missing

log = logger(__name__)

StartMethod = Literal["forkserver", "fork"]
NO_CHECKPOINT = "-"
"""The checkpoint of a model that is no run."""

WATCH_SECONDS = 0.2


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
                work = partial(entry.measure, folder.path, options, device=device)
            else:
                unmade += [name for name in unmeasured if name not in unmade and _is_damaged(folder, entry.name, name)]
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
        return [], [] if entry.is_measured(folder.path, options) else [NO_CHECKPOINT]
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
    text = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    if text and not (text.isdecimal() and 1 <= int(text) <= 10**6):
        raise ConfigError(f"OMP_NUM_THREADS must be a whole number ≥ 1, got {text[:80]!r}. Correct it, or unset it.")
    most = int(text) if text else processors()
    return max(1, min(most, processors()) // jobs)


@contextmanager
def output_to(path: Path) -> Iterator[None]:
    """Append everything that this process prints to the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        before = [os.dup(number) for number in (1, 2)]
        try:
            for number in (1, 2):
                os.dup2(file.fileno(), number)
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for number, old in zip((1, 2), before, strict=True):
                os.dup2(old, number)
                os.close(old)


def _is_damaged(folder: SuiteFolder, run: str, checkpoint: str) -> bool:
    """Whether a checkpoint that is to be measured is not the one that was written: training makes it again."""
    try:
        RunFolder(folder.run(run)).checkpoint(checkpoint)
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
    measure(
        checkpoint,
        task.entry.corpus.path,
        device=task.device,
        processes=Processes.joined(),
        options=task.options,
        report_to=task.report_to,
    )


def torchrun(processes: int) -> Callable[[RunTask], None]:
    """A method of `perform` that trains and measures in this many processes.

    It raises RunError with what rank 0 wrote, and Interrupted at SIGTERM.
    """

    def method(task: RunTask) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path, reason = Path(folder) / "task.pickle", Path(folder) / "reason.txt"
            path.write_bytes(pickle.dumps(task))
            command = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
            child = subprocess.Popen([sys.executable, *command, "-m", "collapselab.suite.job", str(path)])
            if (stopped := _wait(child)) is not None:
                message = f"{task.entry.name}: stopped. Everything is saved; the same command continues."
                raise Interrupted(message, stopped)
            if child.returncode:
                words = reason.read_text() if reason.exists() else f"torchrun ended with status {child.returncode}."
                raise RunError(words)

    return method


def _wait(child: "subprocess.Popen[bytes]") -> int | None:
    """Wait for the child, passing a first signal on; the signal, None if there was none."""
    passed_on = False
    try:
        with stop_requests() as request:
            while True:
                try:
                    child.wait(WATCH_SECONDS)
                    return request.number
                except subprocess.TimeoutExpired:
                    if request.number is not None and not passed_on:
                        passed_on = True
                        child.terminate()
    finally:
        if child.poll() is None:  # a second signal
            child.kill()


def main(path: Path) -> None:
    """The main function of each process under torchrun; the file `path` holds its task."""
    task: RunTask = pickle.loads(path.read_bytes())  # written by `torchrun` a moment ago
    try:
        train_and_measure(task)
    except Interrupted as error:
        sys.exit(128 + error.signal)
    except UserError as error:
        if os.environ.get("RANK", "0") == "0":
            (path.parent / "reason.txt").write_text(str(error))
        sys.exit(2)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
