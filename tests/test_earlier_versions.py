"""Folders that version 0.1.0 wrote open, go on and are analysed; adding a setting or an option changes no hash."""

import os
import shutil
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from collapselab.analysis.analyze import analyze
from collapselab.core.catalogue import FIRST, METRICS
from collapselab.errors import DamagedError
from collapselab.records.options import Options
from collapselab.records.run import RunFolder, identity
from collapselab.records.tables import RUNS, read_tables
from collapselab.suite import run as suites
from collapselab.suite.collect import collect
from collapselab.suite.folder import open_suite
from collapselab.training.settings import Settings, resolved
from collapselab.training.train import train

ARCHIVE = Path(__file__).with_name("fixtures") / "version-0.1.0.tar.xz"
"""A suite of two runs that are trained and measured, and a run that was stopped after 6 of its 12 steps."""

ROUNDING = 1e-4
"""Features in float32 differ in their last digits between processors; the archive was made on another one."""


@pytest.fixture
def earlier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path)  # its records name the corpus by a relative path
    return tmp_path


def test_a_finished_suite_is_found_finished(earlier: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suite, folder = open_suite("./suite")
    assert [state.stage for state in suites.status(suite, folder)] == ["done", "done"]
    before = (earlier / "suite" / "results.csv").read_bytes()
    assert not suites.run(suite, folder).failed
    assert (earlier / "suite" / "results.csv").read_bytes() == before


def test_its_tables_have_the_same_numbers_when_they_are_collected_again(earlier: Path) -> None:
    _, folder = open_suite("./suite")
    before, results = RUNS.read(folder.path / "runs.csv"), (folder.path / "results.csv").read_bytes()
    tables = collect(folder)
    assert tables.refused == []
    assert (folder.path / "results.csv").read_bytes() == results
    assert len(results) > 10_000
    for old, new in zip(before, RUNS.read(folder.path / "runs.csv"), strict=True):
        assert {name: new[name] for name in old} == old
        assert new["train_loss"] is None
        assert (new["train_loss_running"] is None) == (new["checkpoint"] == "0")


def test_its_suite_is_analysed(earlier: Path) -> None:
    analysis = analyze("suite", permutations=99)
    assert analysis.models == 2
    assert [sentence.text for sentence in analysis.sentences if sentence.topic == "versions"] == [
        "head_sum follows version 1 of its definition; today's is version 2."
    ]


def test_a_stopped_run_goes_on_to_the_same_weights(earlier: Path, one_thread: None) -> None:
    (corpus,) = (earlier / "suite" / "corpora").iterdir()
    os.close(os.open(earlier / "stopped" / ".lock", os.O_CREAT))  # locks are not in the archive
    settings = Settings(width=16, depth=1, steps=12, batch=8, lr=2e-3, seed=7)
    made = train(settings, corpus, earlier / "stopped")
    assert [one.step for one in made] == [0, 12]
    train(settings, corpus, earlier / "whole")
    resumed, whole, first = (
        load_file(earlier / run / "checkpoints" / name / "model.safetensors")
        for run, name in (("stopped", made[-1].checkpoint), ("whole", made[-1].checkpoint), ("whole", "0"))
    )
    assert len(whole) > 10
    for (
        name,
        weight,
    ) in whole.items():  # the archive's six steps were taken on another processor, which rounds otherwise
        torch.testing.assert_close(resumed[name], weight, rtol=0, atol=1e-5)
    moved = max(float((whole[name] - first[name]).abs().max()) for name in whole)
    assert moved > 1e-3, "the tolerance is a hundredth of what the steps do"


def test_a_damaged_checkpoint_of_it_is_found(earlier: Path) -> None:
    run = next((earlier / "suite").glob("*/run.json")).parent
    weights = run / "checkpoints" / "0" / "model.safetensors"
    raw = bytearray(weights.read_bytes())
    raw[-5] ^= 1
    weights.write_bytes(raw)
    with pytest.raises(DamagedError, match="model.safetensors: damaged or changed"):
        RunFolder(run).checkpoint("0")


def test_a_removed_measurement_of_it_is_made_again_with_the_same_numbers(earlier: Path, one_thread: None) -> None:
    suite, folder = open_suite("./suite")
    before = (folder.path / "results.csv").read_text()
    run = next(folder.path.glob("*/run.json")).parent
    shutil.rmtree(run / "measure")
    assert not suites.run(suite, folder).failed
    after = (folder.path / "results.csv").read_text()
    later = [f",{metric.id}," for metric in METRICS.values() if metric.since != FIRST] + [",head_sum,"]
    kept, earlier_rows = (
        [line for line in text.splitlines() if not any(name in line for name in later)] for text in (after, before)
    )
    for now, then in zip(kept, earlier_rows, strict=True):
        cells = list(zip(now.split(","), then.split(","), strict=True))
        assert all(
            one == other or float(one) == pytest.approx(float(other), rel=ROUNDING, abs=1e-6) for one, other in cells
        ), now
    assert len(kept) < len(after.splitlines())  # the metrics that came later are there too
    versions = {(row.run, row.version) for row in read_tables(folder.path).rows if row.metric == "head_sum"}
    assert versions == {(run.name, METRICS["head_sum"].version)}, "values of two definitions are not in one table"


class Grown(Settings):
    """Settings of some later version."""

    coupling: float = 0.0


@pytest.mark.parametrize("values", [{}, {"seed": 3, "lr": 1e-3}, {"steps": 7, "batch": 2}, {"tied": False}])
def test_a_setting_added_with_a_default_renames_no_run(values: dict[str, float]) -> None:
    before = identity(resolved(Settings(width=16, depth=1, **values)), "corpus")  # type: ignore[arg-type]
    grown = Grown(width=16, depth=1, **values)  # type: ignore[arg-type]
    assert identity(resolved(grown), "corpus") == before
    changed = grown.model_copy(update={"coupling": 0.5})
    assert identity(resolved(changed), "corpus") != before


def test_the_identity_of_a_run_is_that_of_version_0_1_0(earlier: Path) -> None:
    for path in (earlier / "suite").glob("*/run.json"):
        record = RunFolder(path.parent).record()
        assert record is not None
        seed = int(str(record.settings["seed"]))
        settings = Settings(width=16, depth=1, lr=2e-3, batch=8, steps=12, checkpoints="0", seed=seed)
        assert path.parent.name[-8:] == identity(resolved(settings), record.corpus.hash) == record.hash


@dataclass(frozen=True)
class GrownOptions(Options):  # type: ignore[misc]
    """Options of some later version."""

    further: int = 0


def test_an_option_added_with_a_default_leaves_measurements_what_they_are() -> None:
    assert GrownOptions(bins=2).facts() == Options(bins=2).facts()
    assert GrownOptions(bins=2, further=3).facts() == Options(bins=2).facts() | {"further": 3}
