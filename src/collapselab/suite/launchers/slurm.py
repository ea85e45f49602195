"""Runs on a SLURM cluster, through submitit: one array of jobs for the runs that are missing.

Shortly before its time is up a job gets a signal: the run is saved, and the job goes back into the queue. A preempted
or cancelled job gets SIGTERM: the run is saved, and SLURM itself decides whether the job is queued again. The run of a
job that dies is submitted again by the next `suite run`. The states of the jobs come from `squeue`, which every cluster
has; `sacct` needs an accounting database, which some clusters do not have.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from collapselab.errors import ConfigError, Interrupted, RunError, interruptible
from collapselab.records.options import Options
from collapselab.suite.folder import SuiteFolder
from collapselab.suite.job import Launcher, LaunchRequest, perform_in_job, threads_each
from collapselab.suite.plan import Entry
from collapselab.suite.recipe import Suite

ARRAY = 1000
"""Jobs in one array; SLURM allows 1,001 unless its administrator says otherwise."""

REQUEUES = 1000
"""How often a run may use up its time and come back: as often as it needs."""

SIGNAL_SECONDS = 120
"""How long before its time is up a job gets the signal."""


class SlurmLauncher(Launcher):
    """Queues one job for each run on a SLURM cluster, and returns. `executor` takes the place of submitit's own."""

    waits = False

    def __init__(self, executor: Any = None) -> None:
        self._executor = executor

    def check(self, request: LaunchRequest) -> None:
        if self._executor is None:
            slurm_executor(request.suite, request.folder.path.resolve())

    def submit(self, request: LaunchRequest, entries: list[Entry], update: Callable[[], None]) -> dict[str, str]:
        suite, folder = request.suite, request.folder.path.resolve()
        executor = self._executor or slurm_executor(suite, folder)
        job = SlurmJob(str(folder), suite.measure, **request.how)
        submitted: dict[str, str] = {}
        for part in (entries[first : first + ARRAY] for first in range(0, len(entries), ARRAY)):
            try:
                jobs = executor.map_array(job, part)
            except RuntimeError as error:  # what submitit's errors are
                words = str(error).strip().splitlines()[-1]
                message = f"sbatch: did not take the jobs ({words}). Correct `resources` in the recipe."
                raise RunError(message) from error
            submitted |= {entry.name: job.job_id for entry, job in zip(part, jobs, strict=True)}
        return submitted

    def states(self, folder: SuiteFolder) -> dict[str, str]:
        """The suite's jobs in the queue: run → id and state, as 17_3 RUNNING or 17_4 PENDING (Priority)."""
        jobs, queue = folder.jobs(), {}
        if not jobs or shutil.which("squeue") is None:
            return {}
        for line in run_command("squeue", "--me", "--array", "--noheader", "--format=%i|%T|%r").splitlines():
            job, state, reason = line.split("|", 2)
            queue[job] = state if reason in ("None", "") else f"{state} ({reason})"
        return {run: f"{job} {queue[job]}" for run, job in jobs.items() if job in queue}

    def cancel(self, folder: SuiteFolder) -> int:
        jobs = [state.split()[0] for state in self.states(folder).values()]
        if jobs:
            run_command("scancel", *jobs)
        return len(jobs)


class SlurmJob:
    """A job of the cluster: it performs one run. submitit calls `checkpoint` for what is to be queued again."""

    def __init__(self, path: str, options: Options, **how: Any) -> None:
        self.path, self.options, self.how = path, options, how

    def __call__(self, entry: Entry) -> str:
        import torch
        from submitit import JobEnvironment

        torch.set_num_threads(int(os.environ.get("SLURM_CPUS_PER_TASK") or threads_each(1)))
        number = signal.Signals[f"SIG{JobEnvironment.USR_SIG}"]
        requeue = signal.getsignal(number)
        signals: list[int] = []

        def time_is_up(*_: object) -> None:
            signals.append(number)
            os.kill(os.getpid(), signal.SIGTERM)  # at which training saves and stops

        signal.signal(number, time_is_up)
        try:
            with interruptible(signal.SIGTERM):
                return perform_in_job(self.path, entry, self.options, **self.how)
        except Interrupted:
            if signals and callable(requeue):
                requeue(number, None)
            raise
        finally:
            signal.signal(number, requeue)

    def checkpoint(self, entry: Entry) -> Any:
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, entry)


def slurm_executor(suite: Suite, folder: Path) -> Any:
    if find_spec("submitit") is None:
        raise ConfigError("launcher: slurm needs the extra of that name: pip install 'collapselab[slurm]'")
    if shutil.which("sbatch") is None:
        raise ConfigError("launcher: slurm was asked for, but sbatch is not here. Run it on the cluster's login node.")
    from submitit import SlurmExecutor

    wanted = suite.resources
    chosen = {"partition": wanted.partition, "account": wanted.account, "gpus_per_node": wanted.gpus}
    executor = SlurmExecutor(folder / "slurm" / "%j", max_num_timeout=REQUEUES)
    executor.update_parameters(
        job_name=f"collapselab-{suite.name}",
        nodes=1,
        ntasks_per_node=1,
        cpus_per_task=wanted.cpus,
        mem=f"{round(1024 * wanted.memory)}MB",
        time=wanted.minutes,
        signal_delay_s=min(SIGNAL_SECONDS, 30 * wanted.minutes),
        array_parallelism=wanted.at_once,
        setup=wanted.setup,
        additional_parameters={"requeue": True, **wanted.extra},
        **{name: value for name, value in chosen.items() if value},
    )
    return executor


def run_command(*command: str) -> str:
    """What a command of the cluster prints; RunError where it fails or does not answer."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError) as error:
        words = (getattr(error, "stderr", None) or str(error)).strip()
        raise RunError(f"{command[0]}: the cluster does not answer ({words}). Try again later.") from error
