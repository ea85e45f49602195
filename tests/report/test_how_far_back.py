"""The figure of contexts: every number of the table is drawn, and where nothing was measured it says how to."""

import json
from pathlib import Path

import pytest

from collapselab.records.tables import CONTEXTS, ContextRow
from collapselab.report.charts.panels import Figure
from collapselab.report.data import ReportData, load_report_data
from collapselab.report.figures.contexts import how_far_back as draw
from collapselab.report.report import report
from collapselab.report.view import Keys, View, lines
from report.suites import write_suite


def context_rows(data: ReportData) -> list[ContextRow]:
    rows = []
    for run in data.runs:
        if run["val_loss"] is None:
            continue
        for n in (1, 2, 3):
            for layer in ("1", "last"):
                for metric in ("context_within", "entropy_gap"):
                    if layer == "last" or metric == "context_within":
                        missing = n == 3 and run["checkpoint"] == "0"
                        rows.append(
                            ContextRow(
                                run=run["run"], checkpoint=run["checkpoint"], layer=layer, n=n, metric=metric,
                                value=None if missing else 1 / (n + float(run["epoch"] or 0)), null=None if missing else 0.9,
                                contexts=10 * n, tokens=500, coverage=0.99, left_out=4, version=1,
                                why="no context has 10 uses." if missing else None,
                            )
                        )  # fmt: skip
    return rows


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_suite(
        tmp_path / "suite", widths=(32, 64), depths=(1,), decays=(0.0,), seeds=2, metrics=("agreement",), inside=False
    )


def view_of(data: ReportData) -> View:
    return View(data, Keys(["32", "64"], ["1"], []), {})


def how_far_back(view: View) -> Figure:
    figure = draw(view)
    assert isinstance(figure, Figure)
    return figure


def test_without_contexts_it_says_how_to_measure_them(folder: Path) -> None:
    assert "--contexts 1,2,3" in str(draw(view_of(load_report_data(folder))))


def test_every_value_of_the_last_checkpoint_is_drawn_over_n_and_all_of_them_over_training(folder: Path) -> None:
    rows = context_rows(load_report_data(folder))
    CONTEXTS.write(folder / "contexts.csv", rows)
    figure = how_far_back(view_of(load_report_data(folder)))
    assert [panel.key for panel in figure.panels] == [
        "contexts-n",
        "contexts-layers",
        "contexts-training",
        "contexts-gap",
    ]
    over_n = lines(figure.tables["contexts n"])
    runs = {row.run for row in rows}
    assert len(runs) == 3
    assert len(over_n) == 2 * 3 * len(runs), "measured and exchanged"
    for line in over_n:
        if line["what"] == "measured":
            assert line["value"] == pytest.approx(1 / (line["n"] + 4), rel=1e-5), "of the last checkpoint"
    labels = load_report_data(folder).labels
    within = [row for row in rows if row.metric == "context_within" and row.layer == "last" and row.value is not None]
    training = {
        (line["run"], line["place"], line["n"]): line["value"] for line in lines(figure.tables["contexts training"])
    }
    assert len(training) == len(within)
    for row in within:
        assert training[labels[row.run], int(row.checkpoint), row.n] == pytest.approx(row.value, rel=1e-5)
    assert len(lines(figure.tables["contexts gap"])) == len(within)
    colours = {json.dumps(panel.chart.to_dict()["layer"][0]["encoding"]["color"]) for panel in figure.panels[:3]}
    assert len(colours) == 1, "panels side by side share the scale of colours; another would leave some without any"
    assert all("wide" in table for table in figure.tables.values())
    assert "context_within over n, median of 3 runs: 1 0.2" in figure.panels[0].numbers


def test_layers_and_lengths_have_whole_ticks(folder: Path) -> None:
    CONTEXTS.write(folder / "contexts.csv", context_rows(load_report_data(folder)))
    panels = {panel.key: panel for panel in how_far_back(view_of(load_report_data(folder))).panels}
    for layer in panels["contexts-layers"].chart.to_dict()["layer"]:
        assert layer["encoding"]["x"]["axis"] == {"format": "d", "values": [1, 2]}
    for layer in panels["contexts-n"].chart.to_dict()["layer"]:
        assert layer["encoding"]["x"]["axis"] == {"format": "d", "values": [1, 2, 3]}


def test_the_page_has_it(folder: Path) -> None:
    CONTEXTS.write(folder / "contexts.csv", context_rows(load_report_data(folder)))
    text = report(folder, out=folder / "page.html").page.read_text()
    assert "How far back" in text
    assert "context_within over n, median of 3 runs" in text


@pytest.mark.parametrize(
    ("corpora", "shown"),
    [
        (("even-4bdcc5c9 bd8b4f11355d7734", "skewed-d68ddf5e 9d405e915d4b48a8"), ("even", "skewed")),
        (("same-4bdcc5c9 bd8b4f11355d7734", "same-d68ddf5e 9d405e915d4b48a8"), None),
        (("markov 4e5f", "stories 6a7b"), None),
    ],
)
def test_models_of_several_corpora_have_panels_of_their_own(
    folder: Path, corpora: tuple[str, str], shown: tuple[str, str] | None
) -> None:
    data = load_report_data(folder)
    first = data.runs[0]["run"]
    for run in data.runs:
        run["corpus"] = corpora[run["run"] != first]  # type: ignore[typeddict-unknown-key]
    data.tables.tables["contexts"] = context_rows(data)
    figure = how_far_back(view_of(data))
    notes = [f"on {corpus}" for corpus in shown or corpora]
    assert {panel.note for panel in figure.panels} == set(notes)
    assert len({panel.key for panel in figure.panels}) == len(figure.panels) == 8
    for panel in figure.panels:
        runs = {line["run"] for line in lines(figure.tables[panel.table])}
        assert (runs == {data.labels[first]}) == (panel.note == notes[0])
        assert json.dumps(panel.chart.to_dict()).count(f'"name": "{panel.table}"') == 1
