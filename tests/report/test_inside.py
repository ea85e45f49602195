"""What is inside the models, and what the report takes from the runs' own records."""

from pathlib import Path

import pytest

from collapselab.records.tables import DECIDERS, PUSH, DeciderRow, PushRow
from collapselab.report.charts.panels import Figure
from collapselab.report.data import load_report_data
from collapselab.report.figures.inside import deciders, push
from collapselab.report.provenance import provenance
from collapselab.report.report import report
from collapselab.report.view import Keys, View, lines, plain
from report.suites import write_suite


def test_settings_that_differ_are_counted(tmp_path: Path) -> None:
    folder = write_suite(
        tmp_path / "suite", widths=(32, 64), depths=(1,), decays=(0.0,), seeds=2, metrics=("agreement",), inside=False
    )
    (folder / "01x0032-wd0-s0" / "run.json").write_text("{ half a rec")
    facts = provenance(load_report_data(folder))
    assert facts.records == 2, "a record that is damaged is left out"
    assert dict(facts.facts)["seed"] == "0 (1 of 2), 1 (1 of 2)"
    assert dict(facts.facts)["width"] == "64"


def test_counts_stay_whole_and_what_is_not_finite_is_missing() -> None:
    assert plain(66_155_520.0) == 66_155_520
    assert plain(0.123456789) == 0.123457
    assert plain(float("nan")) is None
    assert plain(float("inf")) is None


def test_pushed_features_are_drawn_where_they_were_measured(tmp_path: Path) -> None:
    folder = write_suite(tmp_path / "suite")
    view = View(load_report_data(folder), Keys([], [], []), {})
    assert "--push default" in str(push(view))
    rows = [
        PushRow(run, "4", head, alpha, None, 100, 3.0 + alpha**2, 0.1, 0.2, 0.3 + alpha)
        for run in ("01x0032-wd0-s0", "01x0064-wd0-s0")
        for head in ("own", "centres")
        for alpha in (-0.3, 0.0, 0.3)
    ]
    PUSH.write(folder / "push.csv", rows)
    drawn = push(View(load_report_data(folder), Keys(["32", "64"], ["1"], []), {}))
    assert isinstance(drawn, Figure)
    assert [panel.key for panel in drawn.panels] == ["push-loss", "push-ece", "push-agreement"]
    losses = [line["value"] for line in lines(drawn.tables["push loss"])]
    assert losses == pytest.approx([0.09, 0, 0.09] * 4)
    assert "median of 2 runs: α -0.3 0, α 0 0.3, α 0.3 0.6" in drawn.panels[2].numbers
    assert 'data-panel="push-agreement"' in report(folder).page.read_text(encoding="utf-8")


def test_deciders_are_drawn_as_a_square_for_each_depth(tmp_path: Path) -> None:
    folder = write_suite(tmp_path / "suite")
    assert "--deciders" in str(deciders(View(load_report_data(folder), Keys([], [], []), {})))
    names = ["token", "head", "nearest 1", "nearest last", "lens 1"]
    rows = [
        DeciderRow(run, "4", first, second, 200, agreed, agreed / 200)
        for run, more in (("01x0032-wd0-s0", 0), ("01x0064-wd0-s0", 20))
        for i, first in enumerate(names)
        for j, second in enumerate(names)
        for agreed in [10 * (i + j) + more]
        if i < j
    ]
    DECIDERS.write(folder / "deciders.csv", rows)
    drawn = deciders(View(load_report_data(folder), Keys(["32", "64"], ["1"], []), {}))
    assert isinstance(drawn, Figure)
    (panel,) = drawn.panels
    assert panel.heading == "1 block, 2 runs"
    cells = {(line["down"], line["across"]): line for line in lines(drawn.tables["deciders 5"])}
    assert len(cells) == 10
    assert cells["output layer", "next token"]["share"] == pytest.approx((10 + 30) / 2 / 200)
    assert cells["lens 1", "nearest last"]["text"] == "0.40"
    report(folder)
    assert "Which deciders agree" in (folder / "report.html").read_text()
