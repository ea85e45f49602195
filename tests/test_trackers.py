"""Trackers: one that is not there is named, a run keeps its identity, and what is logged can be read back.

TensorBoard is real. The others are stand-ins with the calls of the real libraries, which `make test-newest` runs.
"""

import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from collapselab.cli.options import TRACKER_NAMES
from collapselab.errors import ConfigError
from collapselab.trackers import TRACKERS, TrackedRun, check_tracker, tracked, trainer_reports
from collapselab.training.settings import Settings, plan
from collapselab.training.trainer import training_arguments

VALUES = {"collapse/cdnv": 0.5}
TABLE: tuple[list[str], list[list[Any]]] = (["metric", "value"], [["cdnv", 0.5], ["a|b", None]])


def test_the_help_knows_every_tracker() -> None:
    assert tuple(TRACKERS) == TRACKER_NAMES


def test_one_that_does_not_exist_or_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    check_tracker("none")
    with pytest.raises(ConfigError, match="tensorbord is not a tracker. Did you mean tensorboard\\? There are"):
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


def test_tensorboard_has_curves_and_a_table_of_one_run(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = TrackedRun("a", tmp_path)
    for step in (0, 5):  # stopped, and continued
        with tracked("tensorboard", run) as tracker:
            assert tracker is not None
            tracker.scalars(VALUES, step)
            tracker.table("collapse/results", *TABLE, step)
    found = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [(event.step, event.value) for event in found.Scalars("collapse/cdnv")] == [(0, 0.5), (5, 0.5)]
    (text,) = found.Tensors("collapse/results/text_summary")[0].tensor_proto.string_val
    assert b"| cdnv | 0.5 |" in text
    assert b"a\\|b" in text


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
        self.Table = lambda columns, data, allow_mixed_types: ("table", columns, data)

    def init(self, **given: Any) -> Any:
        self.calls.append(given)
        self.run = SimpleNamespace(
            log=self.calls.append, save=lambda *_, **__: None, finish=lambda: setattr(self, "run", None)
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


def test_a_trainer_finds_the_identity_in_the_environment_for_as_long_as_it_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb = Wandb()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    monkeypatch.setattr("collapselab.trackers.find_spec", lambda _: True)
    monkeypatch.setenv("WANDB_NAME", "mine")
    monkeypatch.delenv("WANDB_RUN_ID", raising=False)
    run = TrackedRun("a", tmp_path)
    with trainer_reports("wandb", run):
        assert os.environ["WANDB_RUN_ID"] == run.identity
        assert os.environ["WANDB_RESUME"] == "allow"
        wandb.init()
    assert wandb.run is None, "the next training has a run of its own"
    assert os.environ["WANDB_NAME"] == "mine"
    assert "WANDB_RUN_ID" not in os.environ


def test_trackio_which_knows_names_alone_keeps_runs_of_one_name_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[dict[str, Any]] = []
    trackio = ModuleType("trackio")
    trackio.__dict__.update(init=lambda **given: calls.append(given), finish=lambda: None)
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
    settings = Settings(width=8, depth=1, steps=1)
    planned = plan(settings, blocks=8, block=8, samples=64)
    cpu, folder = torch.device("cpu"), str(tmp_path / "one" / "02x0128")
    args = training_arguments(settings, planned, folder=folder, device=cpu, bf16=False, parts=1, report_to="trackio")
    assert (args.project, args.run_name) == ("mine", first), "the training has the same run"


def test_the_users_folder_of_tensorboard_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", "elsewhere")
    with trainer_reports("tensorboard", TrackedRun("a", tmp_path)):
        assert os.environ["TENSORBOARD_LOGGING_DIR"] == "elsewhere"
    assert os.environ["TENSORBOARD_LOGGING_DIR"] == "elsewhere"
