"""The section As a cause: drawn from a planted suite of arms, and absent where there are no arms."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from analysis import planted_arms
from analysis.planted import row_of
from analysis.planted_arms import Planted, arms_table
from collapselab.analysis.effects import Effect
from collapselab.analysis.verdict import Role, Verdict
from collapselab.records.tables import Run, write_tables
from collapselab.report.answer import headline
from collapselab.report.charts.panels import Figure
from collapselab.report.data import load_report_data
from collapselab.report.figures import FIGURES
from collapselab.report.figures.cause import _verdict_line
from collapselab.report.report import contents, render
from collapselab.report.words import in_words
from report.suites import write_suite

CAUSE = [key for key, entry in FIGURES.items() if entry.section == "causes"]
ARMS = [
    Planted("within:+0.1", {"cdnv_log": -0.3, "val_loss": -0.09}),
    Planted("within:-0.1", {"cdnv_log": 0.3, "val_loss": 0.09}),
    Planted("within:+0.1:sham"),
    Planted("simreg:0.1", {"cdnv_log": -0.2, "val_loss": -0.06}),
    Planted("uniform_means:+0.3", {"val_loss": 1.9}),
]


@pytest.fixture(scope="module")
def arms_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("arms")

    def written(runs: list[Run], metrics: dict[str, list[float]]) -> None:
        rows = [row_of(run, name, float(value)) for name, values in metrics.items()
                for run, value in zip(runs, values, strict=True)]  # fmt: skip
        write_tables(folder, {"runs": runs, "results": rows}, made_from=[])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planted_arms, "table", written)
        arms_table(ARMS, seeds=8, rng=np.random.default_rng(0))
    return folder


@pytest.fixture(scope="module")
def figures(arms_folder: Path) -> dict[str, Figure]:
    return contents(load_report_data(arms_folder)).figures


def test_every_figure_of_the_section_is_drawn(figures: dict[str, Figure]) -> None:
    assert CAUSE
    for key in CAUSE:
        assert figures[key].missing == "", key
        assert figures[key].panels, key
        for panel in figures[key].panels:
            assert panel.table in figures[key].tables
            panel.chart.to_dict()  # validated by the library


def test_the_check_fills_what_was_reached_and_no_sham(figures: dict[str, Figure]) -> None:
    table = figures["manipulation"].tables["manipulation cdnv_log"]
    kinds = dict(zip(table["arm"], table["kind"], strict=True))
    assert kinds == {
        "simreg:0.1": "reached", "within:-0.1": "reached", "within:+0.1": "reached", "within:+0.1:sham": "sham",
    }  # fmt: skip
    missed = figures["manipulation"].tables["manipulation logdist_std"]
    assert missed["kind"] == ["not reached"]


def test_the_forest_has_each_verdict_and_the_band(figures: dict[str, Figure]) -> None:
    table = figures["effects"].tables["effects"]
    kinds = dict(zip(table["arm"], table["kind"], strict=True))
    assert kinds == {
        "simreg:0.1": "helps", "uniform_means:+0.3": "did not reach", "within:-0.1": "harms", "within:+0.1": "helps",
    }  # fmt: skip
    assert "Band: ±" in figures["effects"].caption
    assert "p 0" not in table["words"][list(kinds).index("uniform_means:+0.3")]


def test_the_p_beside_equivalent_is_that_of_equivalence() -> None:
    row = Effect("within", 0.1, False, "val_loss", 8, 0.001, p_holm=0.9, p_equivalence=0.01, role=Role.OUTCOME)
    assert _verdict_line(replace(row, verdict=Verdict.EQUIVALENT)).words == "equivalent, p 0.01"
    assert _verdict_line(replace(row, verdict=Verdict.UNDECIDED)).words == "undecided, p 0.9"


def test_an_axis_that_is_not_straight_is_named_and_that_of_carriers_is_straight(figures: dict[str, Figure]) -> None:
    """One arm is off by 1.9 nats, so that the others would be in one place."""
    assert "The axis is logarithmic in both directions from 0." in figures["effects"].caption
    assert "logarithmic" not in figures["shams"].caption
    for panel in figures["attribution"].panels:
        assert "symlog" not in str(panel.chart.to_dict())


def test_the_headline_counts_interventions(arms_folder: Path) -> None:
    data = load_report_data(arms_folder)
    assert re.findall(r"\d+", headline(data).split(". ")[-1]) == ["4", "2", "1"], "interventions, helpful, harmful"


def test_treatments_and_shams_share_the_line_of_their_arm(figures: dict[str, Figure]) -> None:
    table = figures["shams"].tables["shams"]
    assert table["kind"][1::2] == ["sham"] * (len(table["kind"]) // 2)
    assert table["label"][1::2] == [None] * (len(table["kind"]) // 2)
    assert table["name_at"][::2] == table["name_at"][1::2]


def test_points_of_the_plot_are_the_effects(figures: dict[str, Figure]) -> None:
    table = figures["attribution"].tables["attribution cdnv_log"]
    kinds = dict(zip(table["arm"], table["kind"], strict=True))
    names = dict(zip(table["arm"], table["intervention"], strict=True))
    assert (kinds["within:+0.1"], kinds["within:+0.1:sham"]) == ("arm", "sham")
    assert names["within:+0.1"] == names["within:+0.1:sham"] == "within"
    assert names["uniform_means:+0.3"] == "uniform_means"


@pytest.mark.slow
def test_the_page_has_the_section_where_there_are_arms_and_not_elsewhere(arms_folder: Path, tmp_path: Path) -> None:
    page = render(contents(load_report_data(arms_folder)))
    assert 'id="causes"' in page
    assert "validation loss" in page.split('id="causes"')[1]
    without = contents(load_report_data(write_suite(tmp_path)))
    assert all(without.figures[key].missing for key in CAUSE)
    assert 'id="causes"' not in render(without)


def test_an_intervention_is_not_read_as_the_metric_of_its_name() -> None:
    assert "cdnv:-0.3" in in_words("Cannot tell for cdnv:-0.3 and cdnv.")
    assert 'title="cdnv"' in in_words("Cannot tell for cdnv:-0.3 and cdnv.")
