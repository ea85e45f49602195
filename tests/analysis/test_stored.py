"""An analysis is shown only with the tables it was made from; when a file was written does not matter."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from analysis.planted import row_of, run_of
from collapselab.analysis.analyze import (
    STATEMENTS,
    Analysis,
    Request,
    analyze,
    current_analysis,
    program_version,
    read_analysis,
)
from collapselab.disk import read_document, sha256
from collapselab.errors import ConfigError, DamagedError
from collapselab.records.tables import RESULTS, RUNS, read_tables, write_tables

REQUEST = {"outcome": "val_accuracy", "permutations": 99, "seed": 3}


def fill(folder: Path, *, loss: float = 1.0) -> None:
    runs = [run_of(f"{s}", seed=s, val_loss=loss + s**2, val_accuracy=0.5 - (s - loss) ** 2 / 999) for s in range(9)]
    rows = [row_of(run, "agreement", 0.1 + run["seed"] / 20) for run in runs]
    write_tables(folder, {"runs": runs, "results": rows}, made_from=[])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    fill(tmp_path)
    analyze(tmp_path, **REQUEST)
    return tmp_path


def current(folder: Path) -> Analysis:
    return current_analysis(folder, read_tables(folder))


def summary(folder: Path) -> Path:
    return folder / "analysis" / "summary.json"


def test_the_summary_says_what_it_was_made_from(folder: Path) -> None:
    document = read_document(summary(folder))
    assert document["tables"] == {name: sha256(folder / name) for name in ("runs.csv", "results.csv")}
    assert document["files"] == {f"{name}.csv": sha256(folder / "analysis" / f"{name}.csv") for name in STATEMENTS}
    assert {name: document[name] for name in REQUEST} == REQUEST
    assert document["program"] == program_version()


def test_what_fits_is_read_and_not_made_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = read_analysis(folder, read_tables(folder))
    assert made is not None
    monkeypatch.setattr("collapselab.analysis.analyze.combine", None)
    assert current(folder) == made
    assert made.tables["relate"]


@pytest.mark.parametrize("age", [0, 2_000_000_000])
def test_tables_that_changed_are_analysed_again_however_old_the_files_look(folder: Path, age: int) -> None:
    before = current(folder)
    fill(folder, loss=7.0)
    for name in ("runs.csv", "results.csv"):
        os.utime(folder / name, (age, age))  # the point of the test: times say nothing
    after = current(folder)
    assert after.tables["relate"] != before.tables["relate"]
    assert after.sources == read_tables(folder).hashes
    assert {name: getattr(after, name) for name in REQUEST} == REQUEST
    assert after == analyze(folder, **REQUEST)


@pytest.mark.slow
@pytest.mark.parametrize("name", STATEMENTS)
def test_an_edited_table_of_the_analysis_is_made_again(folder: Path, name: str) -> None:
    path = folder / "analysis" / f"{name}.csv"
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"1", b"2") + b"\xff")
    assert current(folder).contents()[f"{name}.csv"] == whole
    assert path.read_bytes() == whole
    path.unlink()
    current(folder)
    assert path.read_bytes() == whole


def test_another_program_analyses_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collapselab.analysis.analyze.program_version", lambda: "9.9.9+other")
    assert read_analysis(folder, read_tables(folder)) is None
    current(folder)
    assert read_document(summary(folder))["program"] == "9.9.9+other"


def test_an_edited_sentence_is_refused_with_what_to_do(folder: Path) -> None:
    text = summary(folder).read_text()
    summary(folder).write_text(text.replace("models", "MODELS"))
    with pytest.raises(DamagedError, match="summary.json: damaged or edited.* Run `collapselab analyze` again"):
        current(folder)


def test_a_summary_of_an_earlier_version_gives_its_request_and_nothing_else(folder: Path) -> None:
    document = json.loads(summary(folder).read_text())
    keys = ("directory", "outcome", "models", "permutations", "seed")
    sentences = [{"topic": "models", "table": "runs", "text": "All is well."}]
    summary(folder).write_text(json.dumps({key: document[key] for key in keys} | {"sentences": sentences}))
    found = current(folder)
    assert {name: getattr(found, name) for name in REQUEST} == REQUEST
    assert "All is well." not in [sentence.text for sentence in found.sentences]


@pytest.mark.parametrize(
    "content",
    [
        b"", b"[]", b"\xff", b'{"outcome": NaN}', b"[" * 20_000, b'{"outcome": "val_loss"}',
        b'{"outcome": ["val_loss"], "permutations": 99, "seed": 0}',
        b'{"outcome": "val_loss", "permutations": {"a": 1}, "seed": 0}',
        b'{"outcome": "val_loss", "permutations": true, "seed": 0}',
        b'{"outcome": "val_loss", "permutations": 99, "seed": -1}',
        b'{"outcome": "val_loss", "permutations": 1' + b"0" * 5000 + b', "seed": 0}',
    ],
)  # fmt: skip
def test_an_odd_summary_is_one_message(folder: Path, content: bytes) -> None:
    summary(folder).write_bytes(content)
    with pytest.raises(DamagedError, match="summary.json: .*Run `collapselab analyze` again") as error:
        current(folder)
    assert len(str(error.value)) < 600


def test_a_write_that_is_interrupted_leaves_nothing_that_fits(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(folder, loss=7.0)

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("collapselab.analysis.analyze.SummaryRecord.write", die)
    with pytest.raises(KeyboardInterrupt):
        analyze(folder, permutations=99)
    assert read_analysis(folder, read_tables(folder)) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"permutations": 98}, "permutations: Input should be greater than or equal to 99"),
        ({"permutations": 10**20}, "permutations: Input should be less than or equal"),
        ({"seed": -1}, "seed: Input should be greater than or equal to 0"),
        ({"seed": 1.5}, "seed: Input should be a valid integer"),
    ],
)
def test_a_request_that_cannot_be_met_is_refused(folder: Path, change: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        analyze(folder, **change)


def test_a_seed_of_twenty_digits_is_a_seed(folder: Path) -> None:
    seed = 12345678901234567890
    made = analyze(folder, permutations=99, seed=seed)
    assert made == current(folder)
    assert made.seed == seed


def test_tables_of_ones_own_are_analysed_and_followed(tmp_path: Path) -> None:
    runs = [run_of(f"{s}", seed=s, val_loss=float(np.sqrt(s + 1))) for s in range(9)]
    RUNS.write(tmp_path / "runs.csv", runs)
    RESULTS.write(tmp_path / "results.csv", [row_of(run, "agreement", run["seed"] / 9) for run in runs])
    first = analyze(tmp_path, permutations=99)
    RESULTS.write(tmp_path / "results.csv", [row_of(run, "agreement", (run["seed"] / 9) ** 2) for run in runs])
    assert current(tmp_path).tables["relate"] != first.tables["relate"]
    assert dict(Request()) == {"outcome": "val_loss", "permutations": 10_000, "seed": 0}
