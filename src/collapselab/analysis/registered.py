"""What was registered before a suite's first run: the metrics and the outcome of the main tests, and what matters.

Without a registration the same tests are made with the defaults, and everything is called exploratory.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import final

from collapselab.records.suite import Primary, registered_primary


@final
@dataclass(frozen=True)
class Registered:
    """What a suite of arms is judged by, and whether that was chosen before its first run."""

    primary: Primary = field(default_factory=Primary)
    beforehand: bool = False

    @property
    def hash(self) -> str | None:
        """Of what was chosen beforehand; None where nothing was."""
        return self.primary.hash if self.beforehand else None

    def covers(self, outcome: str) -> bool:
        """Whether tests of this outcome were registered before the first run."""
        return self.beforehand and outcome == self.primary.outcome

    def smallest_effect(self, outcome: str) -> float | None:
        """The smallest effect of interest on this outcome, where it was given in its unit."""
        return self.primary.smallest_effect if outcome == self.primary.outcome else None


def registered_in(directory: Path) -> Registered:
    """What was registered in a folder; the defaults where nothing was."""
    primary = registered_primary(directory)
    return Registered() if primary is None else Registered(primary, beforehand=True)
