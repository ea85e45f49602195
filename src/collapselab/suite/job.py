"""One run, done: trained, then measured at every checkpoint, as far as either is missing."""

import sys
import traceback
from dataclasses import asdict, dataclass
from typing import Literal, final

from collapselab.disk import disk_errors
from collapselab.errors import Busy, DamagedError, DiskError, UserError
from collapselab.records.options import Options
from collapselab.records.run import RunFolder
from collapselab.suite.folder import SuiteFolder
from collapselab.suite.plan import Entry
from collapselab.suite.status import missing
from collapselab.suite.torchrun import do_together


@final
@dataclass(frozen=True)
class Outcome:
    """How it went. `busy`: another process is at the run. `stopped`: by a signal, or the disk; `why` says which."""

    run: str
    result: Literal["done", "failed", "busy", "stopped"]
    why: str | None = None


def perform(
    folder: SuiteFolder,
    entry: Entry,
    options: Options,
    *,
    device: str = "auto",
    retry: bool = False,
    processes: int = 1,
) -> Outcome:
    """Do what is missing of a run, and be the only one. A failure is kept, and not tried again unless `retry`.

    Interrupted where a signal stops it; DiskError where the disk does, which is not the run's fault.
    """
    try:
        with folder.locked(entry.name):
            unmade, unmeasured = missing(folder.run(entry.name), entry, options)
            if not unmade and not unmeasured:
                folder.forget_failure(entry.name)
                return Outcome(entry.name, "done")
            failure = folder.failure(entry.name)
            if failure is not None and not retry:
                return Outcome(entry.name, "failed", failure.why)
            return _perform(folder, entry, options, device, processes)
    except Busy:
        return Outcome(entry.name, "busy")


def record_failure(folder: SuiteFolder, entry: Entry, options: Options, why: str) -> Outcome:
    """Keep why a run could not be finished, at the first checkpoint that is missing."""
    unmade, unmeasured = missing(folder.run(entry.name), entry, options)
    stage, checkpoint = ("training", unmade[0]) if unmade else ("measuring", [*unmeasured, *entry.checkpoints][0])
    folder.record_failure(entry, stage=stage, checkpoint=checkpoint, why=why)
    return Outcome(entry.name, "failed", why)


def reason(error: Exception) -> str:
    """What an error says, with its type where it is not one of ours."""
    return str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"


def _perform(folder: SuiteFolder, entry: Entry, options: Options, device: str, processes: int) -> Outcome:
    unmade, unmeasured = missing(folder.run(entry.name), entry, options)
    unmade += [name for name in unmeasured if name not in unmade and _is_damaged(folder, entry, name)]
    try:
        with disk_errors(folder.path):
            if processes > 1:
                do_together(folder, entry, options, device, unmade, unmeasured, processes=processes)
            else:
                do_alone(folder, entry, options, device, unmade, unmeasured)
    except DiskError:
        raise
    except Exception as error:  # noqa: BLE001  whatever goes wrong in one run, the others go on
        if not isinstance(error, UserError):
            traceback.print_exception(error)
        return record_failure(folder, entry, options, reason(error))
    folder.forget_failure(entry.name)
    return Outcome(entry.name, "done")


def _is_damaged(folder: SuiteFolder, entry: Entry, checkpoint: str) -> bool:
    """Whether a checkpoint that is to be measured is not the one that was written: training makes it again."""
    try:
        RunFolder(folder.run(entry.name)).checkpoint(checkpoint)
    except DamagedError:
        return True
    return False


def do_alone(
    folder: SuiteFolder, entry: Entry, options: Options, device: str, unmade: list[str], unmeasured: list[str]
) -> None:
    """Train if a checkpoint is missing, and measure those that are not. Each process of a torchrun calls it alike."""
    if unmade:
        _train(folder, entry, device)
    for checkpoint in unmeasured:
        _measure(folder, entry, checkpoint, options, device)


def _train(folder: SuiteFolder, entry: Entry, device: str) -> None:
    from collapselab.training.train import train

    train(entry.settings, entry.corpus.path, folder.run(entry.name), device=device)


def _measure(folder: SuiteFolder, entry: Entry, checkpoint: str, options: Options, device: str) -> None:
    from collapselab.measurement.distributed import Processes
    from collapselab.measurement.measure import measure

    model = folder.run(entry.name) / "checkpoints" / checkpoint
    print(f"{entry.name}: measuring checkpoint {checkpoint}", file=sys.stderr, flush=True)
    measure(model, entry.corpus.path, device=device, processes=Processes.joined(), **asdict(options))
