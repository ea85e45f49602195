"""Experiment trackers for trainings and measurements, through accelerate.

A run keeps its identity when it is continued, so that a training, its continuation and the measurements of its
checkpoints are logged to the same run of the tracker.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from collapselab.errors import ConfigError, did_you_mean

PROJECT = "collapselab"
NONE = "none"
TRACKERS = ("tensorboard", "wandb", "trackio")
"""Names of the trackers, of their libraries and of our extras."""
STEP = "train/global_step"
"""The axis of all curves in wandb, whose own step counts calls and cannot decrease."""


@dataclass(frozen=True)
class TrackedRun:
    """The name of a run, its folder, and an alphanumeric identity derived from the folder."""

    name: str
    folder: Path

    @property
    def identity(self) -> str:
        """Identity that is the same whenever the run in this folder is continued."""
        return hashlib.sha256(str(self.folder.resolve()).encode()).hexdigest()[:16]

    @property
    def own_name(self) -> str:
        """A name that is unique to the folder, for trackers that identify runs by name."""
        return f"{self.name}-{self.identity[:6]}"


@dataclass(frozen=True)
class Tracker:
    """An open run of a tracker."""

    name: str
    accelerated: Any

    def settings(self, values: Mapping[str, object]) -> None:
        """Log the settings of a run, for sorting and grouping."""
        plain = {name: value if isinstance(value, str | int | float) else str(value) for name, value in values.items()}
        self.accelerated.store_init_configuration(plain)

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Log values at a step."""
        if self.name == "wandb":
            self.accelerated.log({**values, STEP: step})
        else:
            self.accelerated.log(dict(values), step=step)


def check_tracker(name: str) -> None:
    """Raise ConfigError if the tracker is unknown or not installed."""
    if name != NONE and name not in TRACKERS:
        hint = did_you_mean(name, TRACKERS, otherwise=f"Choose from {', '.join(TRACKERS)} or none.")
        raise ConfigError(f"report_to: {name} is not a tracker. {hint}")
    if name != NONE and find_spec(name) is None:
        raise ConfigError(f"report_to: {name} is not installed. Install it: pip install 'collapselab[{name}]'")


@contextmanager
def tracked(name: str, run: TrackedRun) -> Iterator[Tracker | None]:
    """Open a run in the tracker while the block runs; None if `name` is none."""
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
