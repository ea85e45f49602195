"""What a page does with a figure, a control and a statement that it does not know: it shows them."""

from dataclasses import replace
from pathlib import Path

import altair as alt
import pytest

from collapselab.analysis.analyze import STATEMENTS, Statement, analyze
from collapselab.analysis.words import Sentence
from collapselab.report.charts.panels import Figure, Panel
from collapselab.report.data import ReportData, load_report_data
from collapselab.report.export import write_figures
from collapselab.report.figures import FIGURES, FigureEntry
from collapselab.report.report import contents, render
from collapselab.report.view import View
from report.suites import write_suite
from report.test_report import Page


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> ReportData:
    folder = tmp_path_factory.mktemp("suites") / "small"
    write_suite(folder, widths=(32, 64), depths=(1,), decays=(0.0,), seeds=4, metrics=("agreement",), inside=False)
    analyze(folder, permutations=99)
    return load_report_data(folder)


def toy(view: View) -> Figure:
    count = len(view.data.runs)
    chart = alt.Chart(alt.NamedData("toy")).mark_point().encode(x="runs:Q", y="runs:Q")
    panel = Panel("toy-runs", chart, "toy", f"{count} runs.")
    return Figure("Its caption.", [panel], tables={"toy": {"runs": [count]}})


def test_a_figure_from_outside_is_on_the_page_and_among_the_files(
    data: ReportData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FIGURES, "toy", FigureEntry("relations", "A figure from outside", "What to look for.", toy))
    shown = contents(data)
    page = Page(render(shown))
    assert "A figure from outside" in page.text
    assert "What to look for." in page.text
    assert page.data["panels"]["toy-runs"]["table"] == "toy"
    assert page.data["tables"]["toy"] == {"runs": [len(data.runs)]}
    only = replace(shown, figures={"toy": shown.figures["toy"]})
    written = write_figures(tmp_path, only.figures.values(), only.tables, only.keys)
    assert {path.name for path in written} == {"toy.svg", "toy.pdf"}


def test_an_entry_of_a_section_that_is_not_there_is_an_error(data: ReportData, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FIGURES, "toy", FigureEntry("outside", "A figure", "What to look for.", toy))
    with pytest.raises(ValueError, match="outside"):
        contents(data)


def test_a_statement_that_no_section_is_about_is_on_the_page(
    data: ReportData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "Further statements" not in Page(render(contents(data))).text
    said = Sentence("moon", "moon", "The moon was full in 3 of 4 runs.")
    monkeypatch.setitem(STATEMENTS, "moon", Statement(Sentence, lambda given: [said], lambda models, rows: [said]))
    analyze(data.directory, permutations=99)
    page = Page(render(contents(load_report_data(data.directory))))
    assert "Further statements (1) moon The moon was full in 3 of 4 runs." in page.text
    assert "moon.csv" in page.data["saved"]
