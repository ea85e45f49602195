"""A measurement in a tracker: its numbers as curves."""

from collections.abc import Collection
from pathlib import Path

from collapselab.records.measurement import Result
from collapselab.records.run import Checkpoint
from collapselab.trackers import NONE, TrackedRun, tracked

PREFIX = "collapse"
FOLDER = "tracked"
"""Where models that are no runs have their folder, in the present one."""


def report_measurement(report_to: str, result: Result, checkpoint: Checkpoint | None) -> None:
    """Log a result to a tracker: to the run that the checkpoint belongs to, at its step, or to one of its own."""
    if report_to == NONE:
        return
    made = None if checkpoint is None else checkpoint.run.checkpoint(checkpoint.name)
    step = 0 if made is None else made.step
    with tracked(report_to, _run_of(result, checkpoint)) as tracker:
        assert tracker is not None
        tracker.scalars(logged(result), step)


def logged(result: Result, only: Collection[str] | None = None) -> dict[str, float]:
    """Return the values of a result, or of `only` these metrics, under the names they are logged by."""
    values: dict[str, float] = {}
    for row in result.rows:
        if row.split == "train" and row.bin == "all" and row.value is not None and (only is None or row.metric in only):
            name = row.metric if row.layer == "last" else f"layer{row.layer}/{row.metric}"
            values[f"{PREFIX}/{name}"] = row.value
            if row.null is not None:
                values[f"{PREFIX}/null/{name}"] = row.null
    scores = result.facts["splits"]["validation"]
    by_name = {"val_loss": scores.get("loss"), "val_accuracy": scores.get("accuracy")}
    return values | {f"{PREFIX}/{name}": score for name, score in by_name.items() if score is not None}


def _run_of(result: Result, checkpoint: Checkpoint | None) -> TrackedRun:
    if checkpoint is not None:
        return TrackedRun(checkpoint.run.name, checkpoint.run.path)
    name = "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in result.name).strip(".-")
    return TrackedRun(result.name, Path(FOLDER) / (name or "model"))
