"""Runs on a Ray cluster: each is a task, and a detached actor of the cluster owns the tasks, so the driver may leave.

The task of a run whose process or node dies is started again by Ray, elsewhere, and continues from what was saved. The
suite's folder must be one that all nodes see: results go into it, never through Ray.
"""

import hashlib
import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from collapselab.errors import ConfigError, Interrupted
from collapselab.records.options import Options
from collapselab.suite.folder import SuiteFolder
from collapselab.suite.job import Launcher, LaunchRequest, output_to, perform_in_job
from collapselab.suite.plan import Entry

NAMESPACE = "collapselab"
RETRIES = 3
"""How often Ray starts the task of a run again whose process or node died."""


class RayLauncher(Launcher):
    """Gives one task for each run to a Ray cluster, and returns."""

    waits = False

    def check(self, request: LaunchRequest) -> None:
        _connected()

    def submit(self, request: LaunchRequest, entries: list[Entry], update: Callable[[], None]) -> dict[str, str]:
        wanted = request.suite.resources
        owner = {"name": _name(request.folder), "namespace": NAMESPACE, "lifetime": "detached", "get_if_exists": True}
        actor = _connected().remote(_Owner).options(**owner, num_cpus=0).remote(str(request.folder.path.resolve()))
        memory = int(wanted.memory * 2**30)
        resources = {"num_cpus": wanted.cpus, "num_gpus": wanted.gpus, "memory": memory, "max_retries": RETRIES}
        added = actor.add.remote(entries, request.suite.measure, request.how, resources)
        return dict(_connected().get(added))

    def states(self, folder: SuiteFolder) -> dict[str, str]:
        """The suite's tasks that have not ended: run → id and whether a process performs it."""
        try:
            owner = _owner(folder) if folder.jobs("ray") else None
        except ConfigError:  # no cluster answers
            return {}
        jobs: dict[str, str] = {} if owner is None else _connected().get(owner.jobs.remote())
        return {run: f"{job} {'RUNNING' if folder.is_running(run) else 'PENDING'}" for run, job in jobs.items()}

    def cancel(self, folder: SuiteFolder) -> int:
        if not self.states(folder):
            return 0
        return int(_connected().get(_owner(folder).cancel.remote()))


class _Owner:
    """The actor that owns the tasks of one suite."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.tasks: dict[str, Any] = {}

    def add(
        self, entries: list[Entry], options: Options, how: dict[str, Any], resources: dict[str, Any]
    ) -> dict[str, str]:
        """Start a task for each run; the id of each."""
        import ray

        task = ray.remote(_perform).options(**resources)
        started = {entry.name: task.remote(self.path, entry, options, how) for entry in entries}
        self.tasks |= started
        return {run: str(ref.hex()[:16]) for run, ref in started.items()}

    def jobs(self) -> dict[str, str]:
        """The tasks that have not ended."""
        import ray

        waiting = ray.wait(list(self.tasks.values()), num_returns=len(self.tasks), timeout=0)[1] if self.tasks else []
        self.tasks = {run: ref for run, ref in self.tasks.items() if ref in waiting}
        return {run: str(ref.hex()[:16]) for run, ref in self.tasks.items()}

    def cancel(self) -> int:
        """Cancel all tasks; a run that is performed is saved first."""
        import ray

        left = len(self.jobs())
        for ref in self.tasks.values():
            ray.cancel(ref)
        return left


def _perform(path: str, entry: Entry, options: Options, how: dict[str, Any]) -> str:
    """A task: perform one run, with its output in the run's log."""
    import ray
    import torch

    torch.set_num_threads(max(1, int(ray.get_runtime_context().get_assigned_resources().get("CPU", 1))))
    try:
        with output_to(SuiteFolder(path).log(entry.name)):
            return perform_in_job(path, entry, options, **how)
    except Interrupted:  # cancelled: everything is saved
        return "stopped"


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


def _owner(folder: SuiteFolder) -> Any:
    """The actor of this suite; None where there is none."""
    try:
        return _connected().get_actor(_name(folder), namespace=NAMESPACE)
    except ValueError:
        return None


def _name(folder: SuiteFolder) -> str:
    return f"suite-{hashlib.sha256(str(Path(folder.path).resolve()).encode()).hexdigest()[:16]}"
