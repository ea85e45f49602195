"""Where the runs of a suite are performed: one file for each launcher, one entry in LAUNCHERS.

local.py     processes of this machine, side by side; waits for them
slurm.py     an array of jobs on a SLURM cluster; submits and returns
ray.py       tasks of a Ray cluster; submits and returns

suite/run.py prepares the folder, finds the runs that are missing and calls `submit`. A launcher brings each run to
`perform` of suite/job.py, in whatever process it starts; the results go into the folder, never through the launcher.
`suite status` and `suite cancel` ask every launcher, since a folder may have jobs of several.

To add one: a class with the methods of `Launcher`, named by an entry point of the group `collapselab.launchers`.
"""

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Protocol

from collapselab.errors import ConfigError, did_you_mean
from collapselab.suite.folder import SuiteFolder
from collapselab.suite.job import LaunchRequest
from collapselab.suite.launchers.local import LocalLauncher
from collapselab.suite.launchers.ray import RayLauncher
from collapselab.suite.launchers.slurm import SlurmLauncher
from collapselab.suite.plan import AnyEntry

GROUP = "collapselab.launchers"
"""The entry points of launchers in other packages."""


class Launcher(Protocol):
    """A way of performing the runs of a suite."""

    @property
    def waits(self) -> bool:
        """Whether `submit` returns only when every run has ended; the tables are then collected at once."""

    def check(self, request: LaunchRequest) -> None:
        """ConfigError where runs cannot be submitted from here. Called before anything is written."""

    def submit(self, request: LaunchRequest, entries: list[AnyEntry], update: Callable[[], None]) -> dict[str, str]:
        """Perform the runs or queue a job for each; the id of each new job, by run.

        A launcher that waits calls `update` about every second: it shows the progress and keeps the tables current.
        """

    def script(self, request: LaunchRequest, entries: list[AnyEntry]) -> str | None:
        """What it would submit, for --dry-run; None where it submits no script."""

    def states(self, folder: SuiteFolder) -> dict[str, str]:
        """The jobs of the suite in its queue: run → id and state, as people read them."""

    def cancel(self, folder: SuiteFolder) -> int:
        """Cancel the jobs of the suite in its queue; how many there were."""


LAUNCHERS: dict[str, Callable[[], Launcher]] = {
    "local": LocalLauncher,
    "slurm": SlurmLauncher,
    "ray": RayLauncher,
}
"""Launchers of this package by their names, the default first."""


def launchers() -> dict[str, Callable[[], Launcher]]:
    """Return every launcher by its name, those of other packages among them."""
    return LAUNCHERS | {entry.name: entry.load() for entry in entry_points(group=GROUP)}


def find_launcher(name: str) -> Launcher:
    """Return the launcher of this name; ConfigError with the nearest name where there is none."""
    known = launchers()
    if name not in known:
        hint = f"{did_you_mean(name, known)} Choose from {', '.join(known)}.".lstrip()
        raise ConfigError(f"launcher: {name!r} is not one. {hint}")
    return known[name]()
