"""One run, performed: trained, then measured at every checkpoint, as far as either is missing.

`LaunchRequest` is what every launcher is given, and `threads_each` divides the processors among its processes.
"""

import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from collapselab.disk import disk_errors
from collapselab.errors import Busy, ConfigError, DamagedError, DiskError, RunError, UserError
from collapselab.messages import logger
from collapselab.records.options import Options
from collapselab.records.run import Checkpoint, RunFolder
from collapselab.suite.folder import SuiteFolder
from collapselab.suite.plan import Entry
from collapselab.suite.recipe import Suite
from collapselab.suite.status import missing

log = logger(__name__)


class LaunchRequest(NamedTuple):
    """A suite that is to be run, and how. A launcher uses the options that mean something to it."""

    suite: Suite
    folder: SuiteFolder
    jobs: int = 1
    """Processes side by side on this machine."""
    device: str = "auto"
    retry_failed: bool = False
    start_method: str = "forkserver"
    """How multiprocessing starts a process."""
    report_to: str = "none"
    """The tracker that gets every run: its training, and the measurements of its checkpoints."""

    @property
    def how(self) -> dict[str, Any]:
        """How a run is performed, as `perform` takes it."""
        return {"retry": self.retry_failed, "report_to": self.report_to}


class Launcher(Protocol):
    """A way of performing the runs of a suite."""

    waits: bool
    """Whether `submit` returns only when every run has ended; the tables are then collected at once."""

    def check(self, request: LaunchRequest) -> None:
        """ConfigError where runs cannot be submitted from here. Called before anything is written."""

    def submit(self, request: LaunchRequest, entries: list[Entry], update: Callable[[], None]) -> dict[str, str]:
        """Perform the runs or queue a job for each; the id of each new job, by run.

        A launcher that waits calls `update` about every second: it shows the progress and keeps the tables current.
        """

    def states(self, folder: SuiteFolder) -> dict[str, str]:
        """The jobs of the suite in its queue: run → id and state, as people read them."""
        return {}

    def cancel(self, folder: SuiteFolder) -> int:
        """Cancel the jobs of the suite in its queue; how many there were."""
        return 0


class RunOutcome(NamedTuple):
    """How a run ended. `busy`: another process performs it. `stopped`: by a signal, or the disk; `why` says which."""

    run: str
    result: Literal["done", "failed", "busy", "stopped"]
    why: str | None = None


def perform(folder: SuiteFolder, entry: Entry, options: Options, *, retry: bool = False, **how: Any) -> RunOutcome:
    """Do what is missing of a run, in no other process at the same time. A failure is kept, and tried again by `retry`.

    `how` are `device` and `report_to`, as `train` and `measure` take them.

    Interrupted where a signal stops it; DiskError where the disk does, which is not the run's fault.
    """
    try:
        with folder.locked(entry.name):
            unmade, unmeasured = missing(folder, entry, options)
            if not unmade and not unmeasured:
                folder.forget_failure(entry.name)
                return RunOutcome(entry.name, "done")
            failure = folder.failure(entry.name)
            if failure is not None and not retry:
                return RunOutcome(entry.name, "failed", failure.why)
            try:
                with disk_errors(folder.path):
                    _train_and_measure(folder, entry, options, unmade, unmeasured, **how)
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


def perform_in_job(path: str, entry: Entry, options: Options, *, retry: bool = False, **how: Any) -> str:
    """Perform a run in a job of a cluster, and collect; RunError where the run failed."""
    from collapselab.suite.collect import collect

    folder = SuiteFolder(path)
    outcome = perform(folder, entry, options, retry=retry, **how)
    collect(folder)
    if outcome.result == "failed":
        raise RunError(f"{entry.name}: {outcome.why}")
    return outcome.result


def record_failure(folder: SuiteFolder, entry: Entry, options: Options, why: str) -> RunOutcome:
    """Keep why a run could not be finished, at the first checkpoint that is missing."""
    unmade, unmeasured = missing(folder, entry, options)
    stage, checkpoint = ("training", unmade[0]) if unmade else ("measuring", [*unmeasured, *entry.checkpoints][0])
    folder.record_failure(entry, stage=stage, checkpoint=checkpoint, why=why)
    return RunOutcome(entry.name, "failed", why)


def reason(error: Exception) -> str:
    """The message of an error, with its type where it is not one of ours."""
    return str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"


def processors() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads_each(jobs: int) -> int:
    """The threads of each of this many processes, which share the processors, or as many as OMP_NUM_THREADS."""
    text = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()  # of 4,2 the outermost level
    if text and not text.isdecimal():
        raise ConfigError(f"OMP_NUM_THREADS must be a whole number ≥ 1, got {text!r}. Correct it, or unset it.")
    return max(1, min(int(text or processors()), processors()) // jobs)


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


def _train_and_measure(
    folder: SuiteFolder, entry: Entry, options: Options, unmade: list[str], unmeasured: list[str], **how: Any
) -> None:
    """Make the checkpoints that are missing or damaged, and measure those that are not measured."""
    from collapselab.measurement.measure import measure
    from collapselab.training.train import train

    run = RunFolder(folder.run(entry.name))
    if unmade or any(_is_damaged(run, name) for name in unmeasured):
        train(entry.settings, entry.corpus.path, run.path, **how)
    for name in unmeasured:
        log.info("%s: measuring checkpoint %s", entry.name, name)
        measure(Checkpoint(run, name), entry.corpus.path, options=options, **how)


def _is_damaged(run: RunFolder, checkpoint: str) -> bool:
    """Whether a checkpoint that is to be measured is not the one that was written: training makes it again."""
    try:
        run.checkpoint(checkpoint)
    except DamagedError:
        return True
    return False
