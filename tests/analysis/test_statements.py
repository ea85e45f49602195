"""A statement is one entry: its table, its sentences and its frame follow from that."""

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from analysis.planted import row_of, run_of
from collapselab.analysis.analyze import STATEMENTS, Analysis, Given, Statement, analyze, read_analysis
from collapselab.analysis.models import Models, Regime
from collapselab.analysis.verdict import Verdict
from collapselab.analysis.words import Sentence
from collapselab.records.tables import read_tables, write_tables


@dataclass(frozen=True)
class Widest:
    """A row of the toy's table: text, a number, a verdict and a regime, each of which may be missing."""

    name: str
    width: float | None = None
    verdict: Verdict = Verdict.TOO_FEW
    regime: Regime | None = None


def widest(given: Given) -> list[Widest]:
    first = given.models.regimes[0]
    known = Widest("widest", float(given.models.frame["width"].max()), Verdict.NOT_SHOWN, first)
    return [known, Widest(f"{len(given.rows['relate'])} relations before it")]


def in_words(models: Models, rows: Sequence[Widest]) -> Iterable[Sentence]:
    yield Sentence("width", "widest", f"The widest of {len(models.known)} models is {rows[0].width:g} wide.")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setitem(STATEMENTS, "widest", Statement(Widest, widest, in_words))
    runs = [run_of(f"{s}", seed=s, weight_decay=s / 10, width=64 + s % 2, val_loss=1.0 + s**2) for s in range(9)]
    rows = [row_of(run, "agreement", 0.1 + run["seed"] / 20) for run in runs]
    write_tables(tmp_path, {"runs": runs, "results": rows}, made_from=[])
    return tmp_path


@pytest.fixture
def analysis(folder: Path) -> Analysis:
    return analyze(folder, permutations=99)


def test_a_statement_from_outside_has_its_table_on_disk(analysis: Analysis, folder: Path) -> None:
    with (folder / "analysis" / "widest.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    relations = len(analysis.tables["relate"])
    assert lines == [
        {"name": "widest", "width": "65.0", "verdict": "not shown", "regime": "weight_decay=0"},
        {"name": f"{relations} relations before it", "width": "", "verdict": "too few runs", "regime": ""},
    ]


def test_it_has_its_sentences_in_the_summary_and_its_frame(analysis: Analysis) -> None:
    assert analysis.summary["sentences"][-1] == {
        "topic": "width",
        "table": "widest",
        "text": "The widest of 9 models is 65 wide.",
    }
    assert list(analysis.frames) == list(STATEMENTS)
    frame = analysis.frames["widest"]
    assert list(frame) == ["name", "width", "verdict", "regime"]
    assert frame["width"][0] == 65
    assert analysis.to_json()["widest"][0]["regime"] == "weight_decay=0"


def test_it_is_read_back_as_it_was_and_followed_when_it_changes(analysis: Analysis, folder: Path) -> None:
    tables = read_tables(folder)
    assert read_analysis(folder, tables) == analysis
    path = folder / "analysis" / "widest.csv"
    path.write_bytes(path.read_bytes().replace(b"65", b"66"))
    assert read_analysis(folder, tables) is None


def test_an_analysis_without_it_is_made_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as without:
        without.delitem(STATEMENTS, "widest")
        analyze(folder, permutations=99)
        assert read_analysis(folder, read_tables(folder)) is not None
    assert read_analysis(folder, read_tables(folder)) is None


def test_frames_have_the_numbers_of_the_rows(analysis: Analysis) -> None:
    frame = analysis.frames["relate"]
    assert len(frame) == len(analysis.tables["relate"]) > 0
    assert frame["r"].dropna().tolist() == [row.r for row in analysis.tables["relate"] if row.r is not None]
    assert set(frame["verdict"]) <= set(Verdict)
