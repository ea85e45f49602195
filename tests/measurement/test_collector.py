"""A collector is added by one class and its entry, with a table of its own: the rest follows.

Its values are right, and the same after a kill, from two processes, and with intervals.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from collapselab.corpus.blocks import Corpus
from collapselab.errors import DamagedError, RunError
from collapselab.measurement import measure_model, resume
from collapselab.measurement.collectors import COLLECTORS
from collapselab.measurement.measure import measure
from collapselab.models.taps import features
from collapselab.records.measurement import Result
from collapselab.records.tables import RUNS, TABLES, read_tables, write_tables
from measurement.toy_collector import install
from records.test_tables import ROW, RUN

OPTIONS: dict[str, Any] = {"tokens": 400, "batch": 3, "quiet": True}


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    collectors, tables = [*COLLECTORS], {**TABLES}
    install(collectors, tables)
    monkeypatch.setitem(TABLES, "lengths", tables["lengths"])
    monkeypatch.setattr("collapselab.measurement.collectors.COLLECTORS", collectors)
    monkeypatch.setattr("collapselab.measurement.measure_model.COLLECTORS", collectors)


@pytest.fixture
def result(model: torch.nn.Module, corpus: Corpus) -> Result:
    measured = measure(model, corpus, layers="all", skip_positions=0, **OPTIONS)
    assert isinstance(measured, Result)
    return measured


def values(result: Result) -> dict[tuple[str, str], float | None]:
    found = {(row.split, row.layer): row.value for row in result.rows if row.metric == "mean_length"}
    assert found
    return found


def test_its_values_are_right(result: Result, model: torch.nn.Module, corpus: Corpus) -> None:
    sample = corpus.validation.read(range(len(corpus.validation))).ids
    assert result.facts["splits"]["validation"]["blocks"] <= len(sample)
    assert len(values(result)) == 2 * 3
    everything = measure(model, corpus, quiet=True)
    with torch.no_grad():
        expected = features(model, sample)[:, :-1].norm(dim=-1).mean()
    assert values(everything)["validation", "last"] == pytest.approx(float(expected), rel=1e-9)  # type: ignore[arg-type]


def test_its_rows_are_in_the_result_and_come_back_from_disk(result: Result, tmp_path: Path) -> None:
    rows = result.tables["lengths"]
    assert {(row.split, row.layer): row.length for row in rows} == values(result)
    result.save(tmp_path / "result.json")
    assert Result.load(tmp_path / "result.json").tables["lengths"] == rows
    assert result.frame("lengths")["length"].tolist() == [row.length for row in rows]


def test_it_survives_a_kill(model: torch.nn.Module, corpus: Corpus, tmp_path: Path) -> None:
    ran, real = 0, measure_model.features

    def killed(*args: Any, **inputs: Any) -> Any:
        nonlocal ran
        ran += 1
        if ran > 3:
            raise KeyboardInterrupt
        return real(*args, **inputs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resume, "SAVE_SECONDS", 0.0)
        patch.setattr(resume, "SAVE_FACTOR", 0)
        patch.setattr(measure_model, "features", killed)
        with pytest.raises(KeyboardInterrupt):
            measure(model, corpus, state=tmp_path, **OPTIONS)
    continued, whole = (measure(model, corpus, state=state, **OPTIONS) for state in (tmp_path, None))
    assert values(continued) == values(whole)  # type: ignore[arg-type]


def test_it_has_intervals(model: torch.nn.Module, corpus: Corpus) -> None:
    resampled = measure(model, corpus, bootstrap=20, **OPTIONS)
    rows = [row for row in resampled.rows if row.metric == "mean_length"]  # type: ignore[union-attr]
    assert len(rows) == 2
    for row in rows:
        assert row.low is not None
        assert row.high is not None
        assert row.value is not None
        assert row.low < row.value < row.high


@pytest.mark.slow
def test_two_processes_agree_with_one(corpus: Corpus, tmp_path: Path) -> None:
    jobs = [(name, world, {"tokens": 400, "batch": 3, "toy": True}) for name, world in (("one", 1), ("two", 2))]
    script = Path(__file__).parent / "worlds.py"
    subprocess.run([sys.executable, script, tmp_path, corpus.path, json.dumps(jobs)], check=True, timeout=240)
    one, two = (Result.load(tmp_path / f"{name}.json") for name in ("one", "two"))
    assert values(two) == pytest.approx(values(one), rel=1e-12)


def test_it_is_written_hashed_and_read_with_the_others_and_removed_when_it_is_empty(
    result: Result, tmp_path: Path
) -> None:
    tables = {"runs": [RUN], "results": [ROW], "lengths": result.tables["lengths"]}
    write_tables(tmp_path, tables, made_from=[])
    assert read_tables(tmp_path).tables["lengths"] == result.tables["lengths"]
    path = tmp_path / "lengths.csv"
    path.write_text(path.read_text().replace("last", "7"))
    with pytest.raises(DamagedError, match="lengths.csv"):
        read_tables(tmp_path)
    path.unlink()
    with pytest.raises(RunError, match="lengths.csv: no such file"):
        read_tables(tmp_path)
    write_tables(tmp_path, tables, made_from=[])
    write_tables(tmp_path, {"runs": [RUN], "results": [ROW]}, made_from=[])
    assert not path.exists()
    assert sorted(read_tables(tmp_path).tables) == ["results", "runs"]


def test_a_table_that_was_not_filled_is_named(result: Result) -> None:
    with pytest.raises(KeyError, match="contexts: .* results, lengths"):
        result.frame("contexts")


def test_every_table_has_a_key_among_its_columns() -> None:
    assert RUNS.name in TABLES
    for table in TABLES.values():
        assert set(table.key) <= set(table.columns), table.name
