"""The page is chosen by what it is about: one model, several models, or a suite."""

import webbrowser
from dataclasses import replace
from pathlib import Path

import pytest

from collapselab import load_results
from collapselab.core.catalogue import METRICS
from collapselab.errors import DamagedError
from collapselab.records.measurement import Result
from collapselab.records.profile import HEADLINES, profile
from collapselab.records.tables import Row
from collapselab.report.data import Kind, load_report_data
from collapselab.report.report import report
from collapselab.suite.collect_models import collect_models
from report.measured import measure_models, result_of
from report.suites import write_suite
from report.test_report import Page


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return measure_models(tmp_path_factory.mktemp("models"))


def page_of(source: Path | Result, out: Path) -> Page:
    return Page(report(source, out=out).page.read_text(encoding="utf-8"))


def test_the_kind_follows_from_the_source(results: Path, tmp_path: Path) -> None:
    assert load_report_data(result_of(results, 16)).kind is Kind.MODEL
    assert load_report_data(results).kind is Kind.MODELS
    collect_models([results], tmp_path / "atlas")
    assert load_report_data(tmp_path / "atlas").kind is Kind.MODELS
    collect_models([result_of(results, 32)], tmp_path / "one")
    assert load_report_data(tmp_path / "one").kind is Kind.MODEL
    suite = write_suite(tmp_path / "suite", widths=(32,), depths=(1,), decays=(0.0,), seeds=2, inside=False)
    assert load_report_data(suite).kind is Kind.SUITE


def test_the_page_of_one_model_has_a_bar_for_each_property_and_its_tokens(results: Path, tmp_path: Path) -> None:
    page = page_of(result_of(results, 16), tmp_path / "model.html")
    assert len(page.with_class("fill")) == len(HEADLINES)
    assert "neo-16" in page.text
    assert {"layers-within_share", "bins-within_share"} <= set(page.data["panels"])
    assert page.with_class("token-search")
    assert "id" not in [attrs.get("id") for _, attrs in page.elements]
    assert page.data["saved"]["results.csv"]


def test_a_model_in_the_working_directory_is_found_among_results(results: Path, tmp_path: Path) -> None:
    """`measure neo-16 --out results/` names the file after the folder of the model too."""
    path = result_of(results, 16)
    (result,) = load_results(path)
    relative = replace(result, facts=result.facts | {"model": "neo-16", "run": "neo-16"})
    relative.save(tmp_path / f"there--neo-16.{path.name.split('.')[-2]}.json")
    assert [found.name for found in load_results(tmp_path)] == ["neo-16"]
    relative.save(tmp_path / f"there--neo-32.{path.name.split('.')[-2]}.json")
    with pytest.raises(DamagedError):
        load_results(tmp_path)


def test_a_result_is_reported_beside_its_file(results: Path) -> None:
    path = result_of(results, 16)
    assert report(path).page == path.with_suffix(".html")


def test_a_result_shows_itself_in_a_browser(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (result,) = load_results(result_of(results, 16))
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    page = result.show()
    assert opened == [page.resolve().as_uri()]
    assert Page(page.read_text(encoding="utf-8")).with_class("profile")


def test_the_page_of_several_models_has_a_table_of_them_and_a_scatter(results: Path, tmp_path: Path) -> None:
    page = page_of(results, tmp_path / "models.html")
    assert page.data["tables"]["overview"]["model"] == ["neo-16", "neo-32"]
    assert "explore-axes" in page.data["panels"]
    chosen = {attrs["value"] for tag, attrs in page.elements if tag == "option" and "value" in attrs}
    assert {"val_loss", "agreement", "cdnv", "parameters", "width"} <= chosen


def test_a_bar_is_between_shuffled_labels_and_the_ideal() -> None:
    ends = {headline.metric: headline.ideal for headline in HEADLINES}
    assert set(ends) <= set(METRICS)

    def row(metric: str, value: float, null: float | None) -> Row:
        return Row(run="a", checkpoint="-", metric=metric, value=value, null=null)

    rows = [row("agreement", 0.6, 0.2), row("norm_cv", 0.5, 0.4), row("logdist_std", 0.1, None),
            row("within_share", 0.5, 1.0), row("vci", 0.8, 1.0)]  # fmt: skip
    bars = {bar.headline.metric: bar for bar in profile(rows)}
    assert bars["agreement"].share == pytest.approx(0.5)
    assert bars["norm_cv"].share == 0, "farther from the ideal than shuffled labels"
    assert bars["logdist_std"].share is None
    assert (bars["within_share"].low, bars["within_share"].high) == (pytest.approx(0.2), pytest.approx(0.5))
    assert "duality_cos_mean" not in bars
