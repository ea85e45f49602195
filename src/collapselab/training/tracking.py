"""A training in a tracker: its settings, and every line of its log at the step it is of.

The library has callbacks of its own for trackers. Ours has the same run as the measurements of its checkpoints, and the
same steps: some of the library's count calls, so curves of training and of collapse would not lie over one another.
"""

import math
from typing import Any, final

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from collapselab.trackers import Cell, Tracker
from collapselab.training.settings import Settings

PREFIX = "train"


@final
class TrackedTraining(TrainerCallback):
    """Passes what a Trainer logs on to a tracker, as train/<name>."""

    def __init__(self, tracker: Tracker, settings: Settings) -> None:
        self.tracker = tracker
        tracker.settings({name: _cell(value) for name, value in settings.model_dump().items()})

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **_: object,
    ) -> None:
        numbers = {name: value for name, value in (logs or {}).items() if isinstance(value, int | float)}
        finite = {f"{PREFIX}/{name}": float(value) for name, value in numbers.items() if math.isfinite(value)}
        if finite:
            self.tracker.scalars(finite, state.global_step)


def _cell(value: object) -> Cell:
    return value if value is None or isinstance(value, str | int | float) else ", ".join(map(str, value))  # type: ignore[call-overload]
