"""The trackers themselves, offline: a run that is continued is one run. `make test-newest` installs them."""

import json
import sqlite3
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from collapselab.trackers import PROJECT, TrackedRun, tracked

STEPS = (0, 5)


@pytest.fixture(autouse=True)
def libraries_may_warn() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def report(name: str, folder: Path) -> None:
    for step in STEPS:  # stopped, and continued
        with tracked(name, TrackedRun("a", folder / "run")) as tracker:
            assert tracker is not None
            tracker.settings({"width": 8, "head": "learned", "steps": None})
            tracker.scalars({"collapse/cdnv": 0.5 + step}, step)


def test_wandb_keeps_one_identity_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="runs where wandb is installed: make test-newest")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.chdir(tmp_path)
    report("wandb", tmp_path)
    written = list((tmp_path / "run").glob("wandb/offline-run-*"))
    identity = TrackedRun("a", tmp_path / "run").identity
    assert written
    assert all(folder.name.endswith(identity) for folder in written)


def test_trackio_has_one_run_with_both_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    pytest.importorskip("trackio", reason="runs where trackio is installed: make test-newest")
    monkeypatch.chdir(tmp_path)
    report("trackio", tmp_path)
    api = pytest.importorskip("trackio.api", reason="runs where trackio can be read back").Api()
    runs = list(api.runs(PROJECT))
    assert [run.name for run in runs] == [TrackedRun("a", tmp_path / "run").own_name]
    store = sqlite3.connect(tmp_path / "trackio" / f"{PROJECT}.db")
    lines = [(step, json.loads(text)) for step, text in store.execute("select step, metrics from metrics order by id")]
    assert [(step, line["collapse/cdnv"]) for step, line in lines if "collapse/cdnv" in line] == [(0, 0.5), (5, 5.5)]
    (config,) = (json.loads(text) for (text,) in store.execute("select config from configs"))
    assert (config["width"], config["head"]) == (8, "learned")
