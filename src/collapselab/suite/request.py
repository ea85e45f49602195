"""What every launcher is given."""

from dataclasses import dataclass
from typing import final

from collapselab.suite.folder import SuiteFolder
from collapselab.suite.recipe import Suite


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
    start_method: str = "forkserver"
    """How multiprocessing starts a process."""
