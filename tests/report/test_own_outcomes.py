"""A report about an outcome of the user's own, whose name is any text."""

from pathlib import Path

import pytest

from collapselab.analysis.analyze import analyze
from collapselab.records.tables import read_tables
from collapselab.report.report import report
from collapselab.report.words import outcome_column
from report.suites import write_suite
from report.test_report import Page


@pytest.mark.slow
@pytest.mark.parametrize("name", ["blimp", "arc.easy[acc]"])
def test_scores_of_any_name_are_drawn(name: str, tmp_path: Path) -> None:
    folder = write_suite(tmp_path / "suite", depths=(1, 2), seeds=1, inside=False, failures=0)
    runs = {run["run"]: run["val_loss"] for run in read_tables(folder).runs if run["val_loss"] is not None}
    quoted = name.replace('"', '""')
    lines = [f'model,"{quoted}"', *(f"{run},{1 / loss}" for run, loss in runs.items())]
    (tmp_path / "scores.csv").write_text("\n".join(lines) + "\n")
    analyze(folder, outcome=f"score:{name}", scores=tmp_path / "scores.csv", permutations=99)
    made = report(folder, figures=tmp_path / "figures")
    assert {"collapse.svg", "width_lines.svg"} <= {path.name for path in made.figures}
    assert "outcome" in Page(made.page.read_text()).data["models"]


@pytest.mark.parametrize(("outcome", "column"), [("val_loss", "val_loss"), ("ece", "ece"), ("loss_on:imdb", "outcome")])
def test_a_plain_name_is_its_own_column(outcome: str, column: str) -> None:
    assert outcome_column(outcome) == column
