"""The pages of docs/results: packed tables, and pages that are what the tables give."""

import gzip
import json
from pathlib import Path

import make_results
import pandas as pd
import pytest
import result_tables
from result_questions import QUESTIONS, Question

from collapselab.core.catalogue import CONTEXT_METRICS, METRICS
from collapselab.errors import DamagedError
from collapselab.records.suite import SuiteRecord
from collapselab.records.tables import CONTEXTS, HASHES, ContextRow, read_tables
from collapselab.report.figures import FIGURES
from report.suites import write_suite

PACKED = sorted(path.name for path in (result_tables.HERE / "tables").iterdir())


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty docs/results."""
    for module in (result_tables, make_results):
        monkeypatch.setattr(module, "HERE", tmp_path / "results")
    monkeypatch.setattr(make_results, "FIGURES", tmp_path / "results" / "figures")
    return tmp_path / "results"


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    folder = write_suite(tmp_path / "seeds", widths=(32,), depths=(1,), decays=(0.0,), seeds=6, inside=False)
    recipe = {"corpora": {"corpus": {"source": ["/home/someone/texts/tinystories/train.txt"]}}, "grid": {"seed": [0]}}
    SuiteRecord(name="seeds", scale="full", recipe=recipe).write(folder / "suite.json")
    return folder


def test_a_packed_suite_has_its_numbers_and_no_path_or_time(here: Path, suite: Path, tmp_path: Path) -> None:
    packed = result_tables.pack(suite, "seeds")
    result_tables.unpack("seeds", tmp_path / "again")
    before, after = read_tables(suite), read_tables(tmp_path / "again")
    assert after.rows == before.rows
    assert [run["val_loss"] for run in after.runs] == [run["val_loss"] for run in before.runs]
    assert {run["seconds"] for run in after.runs} == {None}
    assert "someone" not in (packed / "suite.json").read_text()
    assert "texts/tinystories/train.txt" in (packed / "suite.json").read_text()


def test_packing_twice_gives_the_same_bytes(here: Path, suite: Path) -> None:
    packed = result_tables.pack(suite, "seeds")
    before = {path.name: path.read_bytes() for path in packed.iterdir()}
    result_tables.pack(suite, "seeds")
    assert {path.name: path.read_bytes() for path in packed.iterdir()} == before
    assert len(before) == 4


def test_a_changed_table_is_refused(here: Path, suite: Path, tmp_path: Path) -> None:
    packed = result_tables.pack(suite, "seeds")
    table = packed / "results.csv.gz"
    table.write_bytes(gzip.compress(gzip.decompress(table.read_bytes()).replace(b"cdnv_k2", b"cdnv_k3", 1)))
    with pytest.raises(DamagedError, match=r"results.csv.gz: not the table"):
        result_tables.unpack("seeds", tmp_path / "again")


def test_what_is_not_a_suite_is_refused(here: Path, suite: Path) -> None:
    (suite / "suite.json").unlink()
    with pytest.raises(DamagedError, match="no suite that has run"):
        result_tables.pack(suite, "seeds")


def test_a_page_is_checked_against_its_tables(here: Path, suite: Path) -> None:
    result_tables.pack(suite, "seeds")
    assert "seeds.md" in make_results.make(["seeds"], check=False)
    assert make_results.make(["seeds"], check=True) == []
    page = here / "seeds.md"
    page.write_text(page.read_text().replace("|6|", "|7|", 1) + "\nA sentence of a person.\n")
    assert make_results.make(["seeds"], check=True) == ["seeds.md"]
    make_results.make(["seeds"], check=False)
    assert "|6|" in page.read_text()
    assert page.read_text().endswith("A sentence of a person.\n")


def test_a_cell_is_the_mean_over_seeds(here: Path) -> None:
    runs = [
        {"run": f"a{seed}", "checkpoint": "1", "tokens": 10, "val_loss": 1.0 + seed, "width": 32, "why": None,
         "corpus": "x 1", "intervene": None}
        for seed in (0, 2)
    ]  # fmt: skip
    rows = [
        {"run": f"a{seed}", "checkpoint": "1", "split": "train", "layer": "last", "bin": "all", "metric": "cdnv_log",
         "value": -1.0, "null": 0.0}
        for seed in (0, 2)
    ]  # fmt: skip
    made = make_results.table(Question("", ("width",), (), metrics=("cdnv_log",)), runs, rows)
    assert made.splitlines()[2] == "|32|2|2.0±1.4|−1.000|"


def test_contexts_are_packed_and_have_a_row_for_each_length(here: Path, suite: Path, tmp_path: Path) -> None:
    runs = [run for run in read_tables(suite).runs if run["val_loss"] is not None]
    rows = [
        ContextRow(
            run=run["run"], checkpoint=run["checkpoint"], layer=layer, n=n, metric="context_within", value=0.5 / n,
            null=0.9, contexts=10 * n, tokens=100, coverage=0.99, left_out=3, version=1, why=None,
        )
        for run in runs for n in (1, 2) for layer in ("1", "last")
    ]  # fmt: skip
    CONTEXTS.write(suite / "contexts.csv", rows)
    (suite / HASHES).unlink(missing_ok=True)  # the tables are the test's own now
    packed = result_tables.pack(suite, "seeds")
    facts = result_tables.unpack("seeds", tmp_path / "again")
    assert result_tables.packed_tables(facts) == ["runs", "results", "contexts"]
    assert (packed / "contexts.csv.gz").is_file()
    tables = read_tables(tmp_path / "again")
    assert tables.contexts == rows
    made = make_results.contexts_table(Question("", ("width",), (), contexts=("context_within",)), tables)
    assert made.splitlines() == [
        "|width|n|contexts|left out|tokens|coverage|`context_within`|",
        "|---|---|---|---|---|---|---|",
        "|32|1|10|3|100|0.990|0.500|",
        "|32|2|20|3|100|0.990|0.250|",
    ]


@pytest.mark.parametrize("name", QUESTIONS)
def test_questions_name_what_there_is(name: str) -> None:
    question = QUESTIONS[name]
    assert set(question.figures) <= set(FIGURES)
    assert {metric.removesuffix(" (validation)") for metric in question.metrics} <= set(METRICS)
    assert set(question.contexts) <= set(CONTEXT_METRICS)
    assert len(list((result_tables.HERE / "recipes").glob(f"{name}.*"))) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", PACKED)
def test_packed_tables_are_whole_and_know_no_machine(name: str, tmp_path: Path) -> None:
    facts = result_tables.unpack(name, tmp_path / name)
    runs = pd.DataFrame(read_tables(tmp_path / name).runs)
    assert facts["runs"] == runs["run"].nunique() > 0
    text = (result_tables.HERE / "tables" / name / "suite.json").read_text()
    assert '"/' not in text, "an absolute path"
    assert json.loads(text)["name"] == name


def test_one_page_is_what_its_tables_give() -> None:
    """All of them are checked by `make results ARGS=--check`, which takes minutes."""
    name = min(PACKED, key=lambda name: (result_tables.HERE / "tables" / name / "results.csv.gz").stat().st_size)
    assert make_results.make([name], check=True) == []
