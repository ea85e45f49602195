"""Where the runs of a suite are performed: one file for each launcher, one entry in LAUNCHERS.

local.py     processes of this machine, side by side; waits for them
slurm.py     an array of jobs on a SLURM cluster; submits and returns
ray.py       tasks of a Ray cluster; submits and returns

suite/run.py prepares the folder, finds the runs that are missing and calls `submit`. A launcher brings each run to
`perform` of suite/job.py, in whatever process it starts; the results go into the folder, never through the launcher.
`suite status` and `suite cancel` ask every launcher, since a folder may have jobs of several.

To add one: a class with the methods of `Launcher` in suite/job.py, and an entry point of the group
`collapselab.launchers` that names it.
"""

from collections.abc import Callable
from importlib.metadata import entry_points

from collapselab.errors import ConfigError, did_you_mean
from collapselab.suite.job import Launcher
from collapselab.suite.launchers.local import LocalLauncher
from collapselab.suite.launchers.ray import RayLauncher
from collapselab.suite.launchers.slurm import SlurmLauncher

GROUP = "collapselab.launchers"
"""The entry points of launchers in other packages."""


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
