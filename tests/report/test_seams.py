"""What a page does with a figure, a control and a statement that it does not know: it shows them."""

from dataclasses import replace
from pathlib import Path

import altair as alt
import pytest

from collapselab.analysis.analyze import analyze
from collapselab.analysis.statements import STATEMENTS, Statement
from collapselab.analysis.words import Sentence
from collapselab.report.charts.panels import Figure, Panel
from collapselab.report.data import View
from collapselab.report.export import write_figures
from collapselab.report.figures import FIGURES, FigureEntry
from collapselab.report.report import contents, render
from collapselab.report.story import Story, load_story
from report.suites import write_suite
from report.test_report import Page


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    folder = tmp_path_factory.mktemp("suites") / "small"
    write_suite(folder, widths=(32, 64), depths=(1,), decays=(0.0,), seeds=4, metrics=("agreement",), inside=False)
    analyze(folder, permutations=99)
    return load_story(folder)


def toy(view: View) -> Figure:
    count = len(view.story.runs)
    chart = alt.Chart(alt.NamedData("toy")).mark_point().encode(x="runs:Q", y="runs:Q")
    panel = Panel("toy-runs", chart, "toy", f"{count} runs.")
    return Figure("toy", "A figure from outside", "Its caption.", [panel], tables={"toy": {"runs": [count]}})


def test_a_figure_from_outside_is_on_the_page_and_among_the_files(
    story: Story, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FIGURES, "toy", FigureEntry("relations", 9, toy))
    shown = contents(story)
    page = Page(render(shown))
    assert "A figure from outside" in page.text
    assert page.text.index(shown.figures["collapse"].title) < page.text.index("A figure from outside")
    assert page.text.index("A figure from outside") < page.text.index(shown.figures["training"].title)
    assert page.data["panels"]["toy-runs"]["table"] == "toy"
    assert page.data["tables"]["toy"] == {"runs": [len(story.runs)]}
    only = replace(shown, figures={"toy": shown.figures["toy"]})
    written = write_figures(tmp_path, only.figures.values(), only.tables, only.keys)
    assert {path.name for path in written} == {"toy.svg", "toy.pdf"}


@pytest.mark.parametrize(("key", "section"), [("toys", "inside"), ("toy", "outside")])
def test_an_entry_that_does_not_fit_its_figure_is_an_error(
    story: Story, monkeypatch: pytest.MonkeyPatch, key: str, section: str
) -> None:
    monkeypatch.setitem(FIGURES, key, FigureEntry(section, 9, toy))
    with pytest.raises(ValueError, match="calls itself 'toy'"):
        contents(story)


def test_a_statement_that_no_section_is_about_is_on_the_page(
    story: Story, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "Further statements" not in Page(render(contents(story))).text
    said = Sentence("moon", "moon", "The moon was full in 3 of 4 runs.")
    monkeypatch.setitem(STATEMENTS, "moon", Statement(Sentence, lambda given: [said], lambda models, rows: [said]))
    analyze(story.directory, permutations=99)
    page = Page(render(contents(load_story(story.directory))))
    assert "Further statements moon The moon was full in 3 of 4 runs." in page.text
    assert "moon.csv" in page.data["saved"]
