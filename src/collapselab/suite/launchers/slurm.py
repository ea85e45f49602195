"""Runs on a SLURM cluster, through submitit: one array of jobs for the runs that are missing.

Shortly before its time is up a job gets a signal: the run is saved, and the job goes back into the queue. A preempted
or cancelled job gets SIGTERM: the run is saved, and SLURM itself decides whether the job comes back. A job that dies
leaves its run to the next `suite run`. What the jobs are doing is asked of `squeue`, which every cluster has; the
accounting database, which `sacct` needs, is not.
"""

import os
import shutil
import signal
import subprocess
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, final

from collapselab.errors import ConfigError, Interrupted, RunError
from collapselab.records.options import Options
from collapselab.signals import interruptible
from collapselab.suite.collect import collect
from collapselab.suite.folder import SuiteFolder
from collapselab.suite.job import perform
from collapselab.suite.launchers.local import threads_each
from collapselab.suite.plan import Entry
from collapselab.suite.recipe import Suite
from collapselab.suite.recipe_text import has_control_characters
from collapselab.suite.run import plan, prepare
from collapselab.suite.status import run_state

if TYPE_CHECKING:
    from submitit.core.core import Executor
    from submitit.core.utils import DelayedSubmission

ARRAY = 1000
"""Jobs in one array; SLURM allows 1,001 unless its administrator says otherwise."""

REQUEUES = 1000
"""How often a run may use up its time and come back: as often as it needs."""

SIGNAL_SECONDS = 120
"""How long before its time is up a job is told."""


def submit(
    suite: Suite,
    folder: SuiteFolder,
    *,
    retry_failed: bool = False,
    accept_change: bool = False,
    executor: "Executor | None" = None,
) -> dict[str, str]:
    """Queue a job for every run that is missing and has none; the id of each new job, by run."""
    executor = executor or _executor(suite, folder)
    planned = prepare(suite, folder, accept_change=accept_change)
    with folder.locked("slurm", wait=True):
        queued = job_states(folder)
        todo = [entry for entry in planned.entries if entry.name not in queued]
        todo = [entry for entry in todo if _is_to_do(folder, entry, suite.measure, retry_failed)]
        submitted: dict[str, str] = {}
        for first in range(0, len(todo), ARRAY):
            part = todo[first : first + ARRAY]
            jobs = _mapped(executor, _job(folder, suite, retry_failed), part)
            submitted |= {entry.name: job.job_id for entry, job in zip(part, jobs, strict=True)}
            folder.record_jobs(folder.jobs() | submitted)
    return submitted


def script(suite: Suite, folder: SuiteFolder) -> str:
    """The script that `submit` would hand to sbatch."""
    executor = _executor(suite, folder, anywhere=True)
    runs = min(ARRAY, len(plan(suite, folder).entries))
    if runs > 1:
        executor.parameters["map_count"] = runs
    text: str = executor._make_submission_file_text(executor._submitit_command_str, "")
    return text


def job_states(folder: SuiteFolder) -> dict[str, str]:
    """The jobs of the suite that are in the queue: run → id and state, as 17_3 RUNNING or 17_4 PENDING (Priority)."""
    jobs = folder.jobs()
    if not jobs:
        return {}
    queue = _queue()
    return {run: f"{job} {queue[job]}" for run, job in jobs.items() if job in queue}


def cancel(folder: SuiteFolder) -> int:
    """Cancel the suite's jobs that are in the queue; how many there were."""
    jobs = [state.split()[0] for state in job_states(folder).values()]
    if jobs:
        _asked("scancel", *jobs)
    return len(jobs)


@final
class Job:
    """What a job of the cluster does: one run. submitit calls `checkpoint` for what is to be queued again."""

    def __init__(self, path: str, options: Options, *, processes: int, retry: bool) -> None:
        self.path, self.options, self.processes, self.retry = path, options, processes, retry

    def __call__(self, entry: Entry) -> str:
        import torch

        torch.set_num_threads(int(os.environ.get("SLURM_CPUS_PER_TASK") or threads_each(1)))
        folder, number = SuiteFolder(self.path), _signal()
        requeue: Any = signal.getsignal(number)
        told: list[int] = []

        def time_is_up(*_: object) -> None:
            told.append(number)
            os.kill(os.getpid(), signal.SIGTERM)  # for which training has its own way to stop

        signal.signal(number, time_is_up)
        try:
            with interruptible(signal.SIGTERM):
                outcome = perform(folder, entry, self.options, retry=self.retry, processes=self.processes)
        except Interrupted:
            if told and callable(requeue):
                requeue(number, None)
            raise
        finally:
            signal.signal(number, requeue)
        collect(folder)
        if outcome.result == "failed":
            raise RunError(f"{entry.name}: {outcome.why}")
        return outcome.result

    def checkpoint(self, entry: Entry) -> "DelayedSubmission":
        from submitit.core.utils import DelayedSubmission

        return DelayedSubmission(self, entry)


def _mapped(executor: "Executor", job: Job, entries: list[Entry]) -> list[Any]:
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    try:
        return executor.map_array(job, entries)
    except (FailedJobError, FailedSubmissionError) as error:
        said = str(error).strip().splitlines()[-1]
        raise RunError(f"sbatch: did not take the jobs ({said}). Mend `resources` in the recipe.") from error


def _job(folder: SuiteFolder, suite: Suite, retry: bool) -> Job:
    return Job(str(folder.path.resolve()), suite.measure, processes=max(1, suite.resources.gpus), retry=retry)


def _signal() -> signal.Signals:
    from submitit.core.job_environment import JobEnvironment

    return signal.Signals[f"SIG{JobEnvironment.USR_SIG}"]


def _is_to_do(folder: SuiteFolder, entry: Entry, options: Options, retry_failed: bool) -> bool:
    stage = run_state(folder, entry, options).stage
    return stage in ("queued", "stopped") or (stage == "failed" and retry_failed)


def _executor(suite: Suite, folder: SuiteFolder, *, anywhere: bool = False) -> Any:
    if find_spec("submitit") is None:
        raise ConfigError("launcher: slurm needs the extra of that name: pip install 'collapselab[slurm]'")
    from submitit.slurm.slurm import SlurmExecutor

    class Anywhere(SlurmExecutor):
        """One that needs no cluster, since it only shows what it would submit."""

        @classmethod
        def affinity(cls) -> int:
            return 2

    if not anywhere and shutil.which("sbatch") is None:
        raise ConfigError("launcher: slurm was asked for, but sbatch is not here. Run it on the cluster's login node.")
    for what, text in (("name of the suite", suite.name), ("folder", str(folder.path.resolve()))):
        if has_control_characters(text):
            raise ConfigError(
                f"{text!r}: a line break or another control character in the {what}; a job's script has none."
            )
    wanted = suite.resources
    executor = (Anywhere if anywhere else SlurmExecutor)(
        folder.path.resolve() / "slurm" / "%j", max_num_timeout=REQUEUES
    )
    executor.update_parameters(
        job_name=f"collapselab-{suite.name}",
        nodes=1,
        ntasks_per_node=1,
        cpus_per_task=wanted.cpus,
        mem=f"{round(1024 * wanted.memory)}MB",
        time=wanted.minutes,
        signal_delay_s=min(SIGNAL_SECONDS, 30 * wanted.minutes),
        array_parallelism=wanted.at_once,
        additional_parameters={"requeue": True, **wanted.extra},
        **({"gpus_per_node": wanted.gpus} if wanted.gpus else {}),
        **({"partition": wanted.partition} if wanted.partition else {}),
        **({"account": wanted.account} if wanted.account else {}),
        **({"setup": wanted.setup} if wanted.setup else {}),
    )
    return executor


def _queue() -> dict[str, str]:
    """The user's jobs that wait or run: id → state, with the reason where it waits."""
    if shutil.which("squeue") is None:
        return {}
    found = {}
    for line in _asked("squeue", "--me", "--array", "--noheader", "--format=%i|%T|%r").splitlines():
        job, state, reason = line.split("|", 2)
        found[job] = state if reason in ("None", "") else f"{state} ({reason})"
    return found


def _asked(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip()
        raise RunError(f"{command[0]}: the cluster does not answer ({said}). Try again later.") from error
