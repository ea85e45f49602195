"""Trackers: where trainings and measurements are followed, through accelerate.

A run has an identity that does not change when it is continued, so all that is logged of it is in one place: a training
that was stopped, its continuation, and the measurements of its checkpoints.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, final

from collapselab.errors import ConfigError, did_you_mean

PROJECT = "collapselab"
NONE = "none"
TRACKERS = ("tensorboard", "wandb", "trackio")
"""The trackers by name, which is that of their library and of their extra too."""
STEP = "train/global_step"
"""The axis of all curves in wandb, whose own step counts calls and never goes back."""


@final
@dataclass(frozen=True)
class TrackedRun:
    """What a tracker calls a run: its name for people, its folder, and an identity of letters and digits."""

    name: str
    folder: Path

    @property
    def identity(self) -> str:
        """The same for the same folder, however often the run is continued."""
        return hashlib.sha256(str(self.folder.resolve()).encode()).hexdigest()[:16]

    @property
    def own_name(self) -> str:
        """A name that no other folder's run has, for a tracker that knows runs by their name alone."""
        return f"{self.name}-{self.identity[:6]}"


@final
@dataclass(frozen=True)
class Tracker:
    """One run of a tracker, opened."""

    name: str
    accelerated: Any

    def settings(self, values: Mapping[str, object]) -> None:
        """Log the settings of a run, to sort and group runs by."""
        plain = {name: value if isinstance(value, str | int | float) else str(value) for name, value in values.items()}
        self.accelerated.store_init_configuration(plain)

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Log numbers at a step, which the tracker draws as curves."""
        if self.name == "wandb":
            self.accelerated.log({**values, STEP: step})
        else:
            self.accelerated.log(dict(values), step=step)


def check_tracker(name: str) -> None:
    """ConfigError for a tracker that does not exist, or is not installed."""
    if name != NONE and name not in TRACKERS:
        hint = did_you_mean(name, TRACKERS, otherwise=f"Choose from {', '.join(TRACKERS)} or none.")
        raise ConfigError(f"report_to: {name} is not a tracker. {hint}")
    if name != NONE and find_spec(name) is None:
        raise ConfigError(f"report_to: {name} is not installed. Install it: pip install 'collapselab[{name}]'")


@contextmanager
def tracked(name: str, run: TrackedRun) -> Iterator[Tracker | None]:
    """The run in the tracker while the block runs; None where `name` is none."""
    check_tracker(name)
    if name == NONE:
        yield None
        return
    from accelerate import tracking  # type: ignore[import-untyped]

    made: Any
    if name == "tensorboard":
        chosen = os.environ.get("TENSORBOARD_LOGGING_DIR")
        made = tracking.TensorBoardTracker(run.own_name if chosen else name, chosen or run.folder)
    elif name == "wandb":
        run.folder.mkdir(parents=True, exist_ok=True)
        project = os.environ.get("WANDB_PROJECT", PROJECT)
        made = tracking.WandBTracker(project, id=run.identity, name=run.name, resume="allow", dir=str(run.folder))
    else:
        project = os.environ.get("TRACKIO_PROJECT", PROJECT)
        made = tracking.TrackioTracker(project, name=run.own_name, resume="allow", embed=False)
    made.start()
    if name == "wandb":
        made.tracker.define_metric("*", step_metric=STEP)
    try:
        yield Tracker(name, made)
    finally:
        made.finish()
