"""Runs on a Ray cluster: each is a task, and a detached actor of the cluster owns the tasks, so the driver may leave.

The task of a run whose process or node dies is started again by Ray, elsewhere, and continues from what was saved. The
suite's folder must be one that all nodes see: results go into it, never through Ray.
"""

import hashlib
import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, final

from collapselab.errors import ConfigError, Interrupted, RunError
from collapselab.records.options import Options
from collapselab.suite.folder import SuiteFolder
from collapselab.suite.job import LaunchRequest, output_to, perform, torchrun, train_and_measure
from collapselab.suite.plan import AnyEntry

NAMESPACE = "collapselab"
RETRIES = 3
"""How often Ray starts the task of a run again whose process or node died."""


@final
class RayLauncher:
    """Gives one task for each run to a Ray cluster, and returns."""

    waits = False

    def check(self, request: LaunchRequest) -> None:
        _connected()

    def submit(self, request: LaunchRequest, entries: list[AnyEntry], update: Callable[[], None]) -> dict[str, str]:
        """Give a task to the cluster for every run that has none and that no process is performing."""
        ray, folder, wanted = _connected(), request.folder, request.suite.resources
        with folder.locked("ray", wait=True):
            queued = self.states(folder)
            free = [entry for entry in entries if entry.name not in queued and not folder.is_running(entry.name)]
            owner = _owner(folder)
            if owner is None:
                options = {"name": _name(folder), "namespace": NAMESPACE, "lifetime": "detached", "num_cpus": 0}
                owner = ray.remote(_Owner).options(**options).remote(str(folder.path.resolve()))
            resources = {
                "num_cpus": wanted.cpus,
                "num_gpus": wanted.gpus,
                "memory": int(wanted.memory * 2**30),
                "max_retries": RETRIES,
            }
            how = (request.suite.measure, max(1, wanted.gpus), request.retry_failed, request.report_to)
            submitted: dict[str, str] = ray.get(owner.add.remote(free, how, resources))
            folder.record_jobs(folder.jobs("ray") | submitted, "ray")
        return submitted

    def script(self, request: LaunchRequest, entries: list[AnyEntry]) -> None:
        """None: tasks have no script."""

    def states(self, folder: SuiteFolder) -> dict[str, str]:
        """The suite's tasks that have not ended: run → id and whether a process performs it."""
        if not folder.jobs("ray") or not _is_reachable() or (owner := _owner(folder)) is None:
            return {}
        jobs: dict[str, str] = _connected().get(owner.jobs.remote())
        return {run: f"{job} {'RUNNING' if folder.is_running(run) else 'PENDING'}" for run, job in jobs.items()}

    def cancel(self, folder: SuiteFolder) -> int:
        if not self.states(folder):
            return 0
        cancelled: int = _connected().get(_owner(folder).cancel.remote())
        return cancelled


@final
class _Owner:
    """The actor that owns the tasks of one suite."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.tasks: dict[str, Any] = {}

    def add(self, entries: list[AnyEntry], how: tuple[object, ...], resources: dict[str, Any]) -> dict[str, str]:
        """Start a task for each run; the id of each."""
        import ray

        task = ray.remote(_perform).options(**resources)
        started = {entry.name: task.remote(self.path, entry, *how) for entry in entries}
        self.tasks |= started
        return {run: _id(ref) for run, ref in started.items()}

    def jobs(self) -> dict[str, str]:
        """The tasks that have not ended."""
        import ray

        waiting = ray.wait(list(self.tasks.values()), num_returns=len(self.tasks), timeout=0)[1] if self.tasks else []
        self.tasks = {run: ref for run, ref in self.tasks.items() if ref in waiting}
        return {run: _id(ref) for run, ref in self.tasks.items()}

    def cancel(self) -> int:
        """Cancel all tasks; a run that is performed is saved first."""
        import ray

        left = len(self.jobs())
        for ref in self.tasks.values():
            ray.cancel(ref)
        return left


def _perform(path: str, entry: AnyEntry, options: Options, processes: int, retry: bool, report_to: str) -> str:
    """A task: perform one run, with its output in the run's log."""
    import ray
    import torch

    from collapselab.suite.collect import collect

    torch.set_num_threads(max(1, int(ray.get_runtime_context().get_assigned_resources().get("CPU", 1))))
    folder = SuiteFolder(path)
    method = torchrun(processes) if processes > 1 else train_and_measure
    try:
        with output_to(folder.log(entry.name)):
            outcome = perform(folder, entry, options, retry=retry, report_to=report_to, method=method)
    except Interrupted:  # cancelled: everything is saved
        return "stopped"
    collect(folder)
    if outcome.result == "failed":
        raise RunError(f"{entry.name}: {outcome.why}")
    return outcome.result


def _connected() -> Any:
    """The library, connected to the cluster of RAY_ADDRESS, or to the one that this machine belongs to."""
    if find_spec("ray") is None:
        raise ConfigError("launcher: ray needs the extra of that name: pip install 'collapselab[ray]'")
    import ray

    if not ray.is_initialized():
        try:
            address = os.environ.get("RAY_ADDRESS", "auto")
            ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level="ERROR")
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise ConfigError(
                f"launcher: no Ray cluster answers ({str(error).splitlines()[0]}). Start one with `ray start --head`, "
                "or set RAY_ADDRESS."
            ) from error
    return ray


def _is_reachable() -> bool:
    try:
        _connected()
    except ConfigError:
        return False
    return True


def _owner(folder: SuiteFolder) -> Any:
    """The actor of this suite; None where there is none."""
    try:
        return _connected().get_actor(_name(folder), namespace=NAMESPACE)
    except ValueError:
        return None


def _name(folder: SuiteFolder) -> str:
    return f"suite-{hashlib.sha256(str(Path(folder.path).resolve()).encode()).hexdigest()[:16]}"


def _id(reference: Any) -> str:
    return str(reference.hex()[:16])
