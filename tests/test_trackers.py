"""Trackers: one that is not there is named, a run keeps its identity, and what is logged can be read back.

TensorBoard is real. The others are stand-ins with the calls of the real libraries, which `make test-newest` runs.
"""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from collapselab.errors import ConfigError
from collapselab.trackers import TRACKERS, TrackedRun, check_tracker, tracked

VALUES = {"collapse/cdnv": 0.5}


def test_one_that_does_not_exist_or_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    check_tracker("none")
    with pytest.raises(ConfigError, match="tensorbord is not a tracker. Did you mean tensorboard\\?"):
        check_tracker("tensorbord")
    monkeypatch.setattr("collapselab.trackers.find_spec", lambda _: None)
    for name in TRACKERS:
        with pytest.raises(ConfigError, match=rf"{name} is not installed.*collapselab\[{name}\]"):
            check_tracker(name)


def test_a_run_has_one_identity_wherever_it_is_called_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    whole = TrackedRun("a", tmp_path / "a").identity
    monkeypatch.chdir(tmp_path)
    assert TrackedRun("a", Path("a")).identity == whole
    assert TrackedRun("a", Path("b")).identity != whole
    assert whole.isalnum()


def test_tensorboard_has_the_curves_of_one_run(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = TrackedRun("a", tmp_path)
    for step in (0, 5):  # stopped, and continued
        with tracked("tensorboard", run) as tracker:
            assert tracker is not None
            tracker.scalars(VALUES, step)
    found = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [(event.step, event.value) for event in found.Scalars("collapse/cdnv")] == [(0, 0.5), (5, 0.5)]


def test_none_is_no_tracker(tmp_path: Path) -> None:
    with tracked("none", TrackedRun("a", tmp_path)) as tracker:
        assert tracker is None
    assert not list(tmp_path.iterdir())


class Wandb(ModuleType):
    """The calls that are made of wandb."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.run: Any = None
        self.calls: list[Any] = []
        self.axes: dict[str, str | None] = {}

    def init(self, **given: Any) -> Any:
        self.calls.append(given)
        self.run = SimpleNamespace(
            log=lambda values, step: self.calls.append(values),
            finish=lambda: setattr(self, "run", None),
            define_metric=lambda name, step_metric=None: self.axes.update({name: step_metric}),
            config={},
        )
        return self.run


def test_wandb_continues_the_same_run_and_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = Wandb()
    wandb.__spec__ = SimpleNamespace()  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    monkeypatch.setattr("collapselab.trackers.find_spec", lambda _: True)
    run = TrackedRun("a", tmp_path)
    for _ in range(2):
        with tracked("wandb", run) as tracker:
            assert tracker is not None
            tracker.scalars(VALUES, 5)
        assert wandb.run is None
    first, logged, second, _ = wandb.calls
    assert first == second
    assert (first["id"], first["resume"]) == (run.identity, "allow")
    assert logged == {**VALUES, "train/global_step": 5}
    assert wandb.axes["*"] == "train/global_step", "curves are drawn over steps, not over calls"


def test_trackio_which_knows_names_alone_keeps_runs_of_one_name_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[dict[str, Any]] = []
    trackio = ModuleType("trackio")
    opened = SimpleNamespace(finish=lambda: None)
    trackio.__dict__.update(init=lambda **given: calls.append(given) or opened)
    monkeypatch.setitem(sys.modules, "trackio", trackio)
    monkeypatch.setattr("collapselab.trackers.find_spec", lambda _: True)
    monkeypatch.setenv("TRACKIO_PROJECT", "mine")
    for suite in ("one", "two", "one"):
        with tracked("trackio", TrackedRun("02x0128", tmp_path / suite / "02x0128")):
            pass
    first, other, again = (call["name"] for call in calls)
    assert first == again != other
    assert first.startswith("02x0128-")
    assert {call["project"] for call in calls} == {"mine"}


def test_the_users_folder_of_tensorboard_has_one_folder_for_each_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "elsewhere"))
    runs = [TrackedRun("a", tmp_path / suite / "a") for suite in ("one", "two")]
    for run in runs:
        with tracked("tensorboard", run) as tracker:
            assert tracker is not None
            tracker.scalars(VALUES, 0)
    assert {folder.name for folder in (tmp_path / "elsewhere").iterdir()} == {run.own_name for run in runs}
