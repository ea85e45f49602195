"""A table is added by its entry and the function that fills it: the rest follows."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from collapselab.corpus.blocks import Corpus
from collapselab.errors import DamagedError, RunError
from collapselab.measurement.measure import measure
from collapselab.measurement.tables import FILLERS, MeasuredLayer
from collapselab.models.build import build_config, build_model
from collapselab.records.measurement import Result
from collapselab.records.table import Count, Name, Table
from collapselab.records.tables import RUNS, TABLES, read_tables, write_tables
from records.test_tables import ROW, RUN


@dataclass(frozen=True)
class Frequent:
    run: Name
    checkpoint: Name
    split: Name
    layer: Name
    token: Count
    count: Count


TOY: Table[Frequent] = Table(
    name="frequent",
    about="One row for the most frequent class of each layer.",
    key=("run", "checkpoint", "split", "layer"),
    row=Frequent,
)


def most_frequent(layer: MeasuredLayer) -> Iterator[Frequent]:
    row = int(layer.moments.counts.argmax())
    yield Frequent(**layer.name, token=int(layer.token_ids[row]), count=int(layer.moments.counts[row]))


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TABLES, "frequent", TOY)
    monkeypatch.setitem(FILLERS, "frequent", most_frequent)


@pytest.fixture
def result(toy: None, corpus: Corpus) -> Result:
    config = build_config("gpt-neo", width=16, depth=2, vocabulary=corpus.vocabulary, positions=corpus.block)
    measured = measure(build_model(config, seed=0), corpus, layers="all", tokens=400, skip_positions=0, quiet=True)
    assert isinstance(measured, Result)
    return measured


def test_its_rows_are_in_the_result_and_come_back_from_disk(result: Result, corpus: Corpus, tmp_path: Path) -> None:
    rows = result.tables["frequent"]
    assert [(row.split, row.layer) for row in rows] == [
        (split, layer) for split in ("train", "validation") for layer in ("1", "2", "last")
    ]
    assert len({(row.token, row.count) for row in rows if row.split == "train"}) == 1, "one label a token, at any layer"
    result.save(tmp_path / "result.json")
    assert Result.load(tmp_path / "result.json").tables["frequent"] == rows
    assert result.frame("frequent")["count"].tolist() == [row.count for row in rows]


def test_it_is_written_hashed_and_read_with_the_others_and_removed_when_it_is_empty(
    result: Result, tmp_path: Path
) -> None:
    tables = {"runs": [RUN], "results": [ROW], "frequent": result.tables["frequent"]}
    write_tables(tmp_path, tables, made_from=[])
    assert read_tables(tmp_path).tables["frequent"] == result.tables["frequent"]
    path = tmp_path / "frequent.csv"
    path.write_text(path.read_text().replace("last", "7"))
    with pytest.raises(DamagedError, match="frequent.csv"):
        read_tables(tmp_path)
    path.unlink()
    with pytest.raises(RunError, match="frequent.csv: no such file"):
        read_tables(tmp_path)
    write_tables(tmp_path, tables, made_from=[])
    write_tables(tmp_path, {"runs": [RUN], "results": [ROW]}, made_from=[])
    assert not path.exists()
    assert sorted(read_tables(tmp_path).tables) == ["results", "runs"]


def test_a_table_that_was_not_filled_is_named(result: Result) -> None:
    with pytest.raises(KeyError, match="contexts: no table of this measurement. It has results, frequent"):
        result.frame("contexts")


def test_every_table_has_a_key_among_its_columns() -> None:
    assert RUNS.name in TABLES
    for table in TABLES.values():
        assert set(table.key) <= set(table.columns), table.name
