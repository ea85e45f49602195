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
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, final

from collapselab.errors import ConfigError, Interrupted, RunError, interruptible
from collapselab.records.options import Options
from collapselab.suite.folder import SuiteFolder
from collapselab.suite.job import LaunchRequest, perform, threads_each, torchrun, train_and_measure
from collapselab.suite.plan import AnyEntry
from collapselab.suite.recipe import Suite

if TYPE_CHECKING:
    from submitit import Executor, SlurmExecutor
    from submitit.helpers import DelayedSubmission

ARRAY = 1000
"""Jobs in one array; SLURM allows 1,001 unless its administrator says otherwise."""

REQUEUES = 1000
"""How often a run may use up its time and come back: as often as it needs."""

NOT_INSTALLED = "launcher: slurm needs the extra of that name: pip install 'collapselab[slurm]'"

SIGNAL_SECONDS = 120
"""How long before its time is up a job gets the signal."""


@final
class SlurmLauncher:
    """Queues one job for each run on a SLURM cluster, and returns. `executor` takes the place of submitit's own."""

    waits = False

    def __init__(self, executor: "Executor | None" = None) -> None:
        self._executor = executor

    def check(self, request: LaunchRequest) -> None:
        if self._executor is None:
            _executor(request.suite, request.folder.path.resolve())

    def submit(self, request: LaunchRequest, entries: list[AnyEntry], update: Callable[[], None]) -> dict[str, str]:
        """Queue a job for every run that has none in the queue and that no process is performing."""
        suite, folder = request.suite, request.folder
        executor = self._executor or _executor(suite, folder.path.resolve())
        processes = max(1, suite.resources.gpus)
        job = SlurmJob(
            str(folder.path.resolve()),
            suite.measure,
            processes=processes,
            retry=request.retry_failed,
            report_to=request.report_to,
        )
        submitted: dict[str, str] = {}
        with folder.locked("slurm", wait=True):
            queued = self.states(folder)
            free = [entry for entry in entries if entry.name not in queued and not folder.is_running(entry.name)]
            for part in (free[first : first + ARRAY] for first in range(0, len(free), ARRAY)):
                try:
                    jobs = executor.map_array(job, part)
                except RuntimeError as error:  # what submitit's errors are
                    words = str(error).strip().splitlines()[-1]
                    message = f"sbatch: did not take the jobs ({words}). Correct `resources` in the recipe."
                    raise RunError(message) from error
                submitted |= {entry.name: job.job_id for entry, job in zip(part, jobs, strict=True)}
                folder.record_jobs(folder.jobs() | submitted)
        return submitted

    def script(self, request: LaunchRequest, entries: list[AnyEntry]) -> str:
        """The script that `submit` would give to sbatch: what submitit gives to a stand-in that keeps it."""
        if find_spec("submitit") is None:
            raise ConfigError(NOT_INSTALLED)
        from submitit.helpers import environment_variables

        folder = request.folder.path.resolve()
        path = os.environ.get("PATH", os.defpath)
        with tempfile.TemporaryDirectory() as place, environment_variables(PATH=f"{place}:{path}"):
            for name, does in (("sbatch", f"cp $1 {place}/script\necho Submitted batch job 1"), ("srun", "")):
                command = Path(place) / name
                command.write_text(f"#!/bin/sh\n{does}\n")
                command.chmod(0o755)
            executor = _executor(request.suite, Path(place) / "suite")
            executor.map_array(str, range(min(ARRAY, len(entries))))
            return (Path(place) / "script").read_text().replace(f"{place}/suite", str(folder))

    def states(self, folder: SuiteFolder) -> dict[str, str]:
        """The suite's jobs in the queue: run → id and state, as 17_3 RUNNING or 17_4 PENDING (Priority)."""
        jobs = folder.jobs()
        if not jobs:
            return {}
        queue = _queue()
        return {run: f"{job} {queue[job]}" for run, job in jobs.items() if job in queue}

    def cancel(self, folder: SuiteFolder) -> int:
        jobs = [state.split()[0] for state in self.states(folder).values()]
        if jobs:
            run_command("scancel", *jobs)
        return len(jobs)


@final
class SlurmJob:
    """A job of the cluster: it performs one run. submitit calls `checkpoint` for what is to be queued again."""

    def __init__(self, path: str, options: Options, *, processes: int, retry: bool, report_to: str = "none") -> None:
        self.path, self.options, self.processes, self.retry = path, options, processes, retry
        self.report_to = report_to

    def __call__(self, entry: AnyEntry) -> str:
        import torch
        from submitit import JobEnvironment

        from collapselab.suite.collect import collect

        torch.set_num_threads(int(os.environ.get("SLURM_CPUS_PER_TASK") or threads_each(1)))
        folder, number = SuiteFolder(self.path), signal.Signals[f"SIG{JobEnvironment.USR_SIG}"]
        method = torchrun(self.processes) if self.processes > 1 else train_and_measure
        requeue = signal.getsignal(number)
        signals: list[int] = []

        def time_is_up(*_: object) -> None:
            signals.append(number)
            os.kill(os.getpid(), signal.SIGTERM)  # at which training saves and stops

        signal.signal(number, time_is_up)
        try:
            with interruptible(signal.SIGTERM):
                outcome = perform(
                    folder, entry, self.options, retry=self.retry, report_to=self.report_to, method=method
                )
        except Interrupted:
            if signals and callable(requeue):
                requeue(number, None)
            raise
        finally:
            signal.signal(number, requeue)
        collect(folder)
        if outcome.result == "failed":
            raise RunError(f"{entry.name}: {outcome.why}")
        return outcome.result

    def checkpoint(self, entry: AnyEntry) -> "DelayedSubmission":
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, entry)


def _executor(suite: Suite, folder: Path) -> "SlurmExecutor":
    if find_spec("submitit") is None:
        raise ConfigError(NOT_INSTALLED)
    if shutil.which("sbatch") is None:
        raise ConfigError("launcher: slurm was asked for, but sbatch is not here. Run it on the cluster's login node.")
    from submitit import SlurmExecutor

    wanted = suite.resources
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
    states = {}
    for line in run_command("squeue", "--me", "--array", "--noheader", "--format=%i|%T|%r").splitlines():
        job, state, reason = line.split("|", 2)
        states[job] = state if reason in ("None", "") else f"{state} ({reason})"
    return states


def run_command(*command: str) -> str:
    """What a command of the cluster prints; RunError where it fails or does not answer."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError) as error:
        words = (getattr(error, "stderr", None) or str(error)).strip()
        raise RunError(f"{command[0]}: the cluster does not answer ({words}). Try again later.") from error
