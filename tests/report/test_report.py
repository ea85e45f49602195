"""The page as text: what it says, what it holds, what it does where the tables hold little."""

import base64
import gzip
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collapselab.analysis.analyze import analyze
from collapselab.core.catalogue import METRICS
from collapselab.errors import RunError
from collapselab.records.suite import SuiteRecord
from collapselab.records.tables import RESULTS, RUNS
from collapselab.report.data import load_report_data
from collapselab.report.provenance import provenance
from collapselab.report.report import report
from report.suites import failed, one_run, results_of, write_suite

HOSTILE = "<script>alert(1)</script>"


class Page(HTMLParser):
    """The page as a browser takes it apart: scripts, text outside of them, and attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.scripts: list[tuple[dict[str, Any], str]] = []
        self.words: list[str] = []
        self.elements: list[tuple[str, dict[str, Any]]] = []
        self._inside: str | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._inside = tag
            self.scripts.append((dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style"):
            self._inside = None

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.scripts[-1] = (self.scripts[-1][0], self.scripts[-1][1] + data)
        else:
            self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))

    @property
    def data(self) -> dict[str, Any]:
        packed = next(text for attrs, text in self.scripts if attrs.get("id") == "data")
        found: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(packed)))
        return found

    def with_class(self, name: str) -> list[dict[str, Any]]:
        return [attrs for _, attrs in self.elements if name in attrs.get("class", "").split()]


def page_of(folder: Path, **options: Any) -> Page:
    return Page(report(folder, **options).page.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_suite(tmp_path_factory.mktemp("suites") / "small", widths=(32, 64), depths=(1, 2), seeds=7)
    analyze(folder, permutations=199)
    return folder


@pytest.fixture(scope="module")
def page(suite: Path) -> Page:
    return page_of(suite)


def test_the_page_asks_for_nothing_from_anywhere(page: Page) -> None:
    assert not [attrs for tag, attrs in page.elements if "src" in attrs]
    assert [attrs["href"] for tag, attrs in page.elements if tag == "link"] == ["data:,"]
    links = [attrs["href"] for tag, attrs in page.elements if tag == "a"]
    assert links
    assert all(link.startswith("#") for link in links)
    style = next(text for attrs, text in page.scripts if "--ink" in text)
    assert "url(" not in style
    assert "@import" not in style


def test_every_link_within_the_page_leads_somewhere(page: Page) -> None:
    ids = {attrs.get("id") for _, attrs in page.elements}
    assert {attrs["href"][1:] for tag, attrs in page.elements if tag == "a"} <= ids


def test_a_page_is_a_few_megabytes_at_most(suite: Path, page: Page) -> None:
    assert (suite / "report.html").stat().st_size < 3_000_000


def test_the_answer_is_the_sentences_of_the_summary(suite: Path, page: Page) -> None:
    sentences = json.loads((suite / "analysis" / "summary.json").read_text())["sentences"]
    for sentence in sentences:
        numbers = re.findall(r"[-+]?\d+\.\d+", sentence["text"])
        assert all(number in page.text for number in numbers), sentence["text"]


def test_every_panel_states_its_numbers_in_words(page: Page) -> None:
    charts = page.with_class("chart")
    assert len(charts) == len(page.data["panels"])
    for chart in charts:
        assert chart["role"] == "img"
        assert re.search(r"\d|too few", chart["aria-label"]), chart


def test_every_table_can_be_saved_as_it_is_on_disk(suite: Path, page: Page) -> None:
    saved = page.data["saved"]
    assert set(saved) == {
        "runs.csv",
        "results.csv",
        "relate.csv",
        "controls.csv",
        "trends.csv",
        "phases.csv",
        "diagnosis.csv",
        "effects.csv",
        "properties.csv",
        "doses.csv",
        "attribution.csv",
    }
    for name, text in saved.items():
        path = suite / name if (suite / name).exists() else suite / "analysis" / name
        assert text.encode() == path.read_bytes()


def test_panels_name_their_table_and_hold_no_data_of_their_own(page: Page) -> None:
    data = page.data
    for panel in data["panels"].values():
        named = [table for table in panel["spec"]["data"] if table["name"] == panel["table"]]
        assert len(named) == 1
        assert "values" not in named[0]
        assert panel["table"] == "models" or data["tables"][panel["table"]]
        assert len(json.dumps(panel["spec"])) < 40_000


def test_failures_stand_with_their_reasons(page: Page) -> None:
    assert "failed-0" in page.text
    assert "loss is nan at step 1,240" in page.text


def test_settings_versions_and_hashes_come_from_the_runs_own_records(page: Page) -> None:
    assert "b252e4f086f24671" in page.text
    assert "2.13.0" in page.text
    assert "collapselab analyze small --outcome val_loss --permutations 199 --seed 0" in page.text


def test_a_reader_of_the_paper_finds_its_figures_and_its_table_again(suite: Path, page: Page) -> None:
    assert "(Wu & Papyan 2024, arXiv:2405.17767) these are the panels of Figures 1 to 3" in page.text
    assert "(Wu & Papyan 2024, arXiv:2405.17767) this is Table 1" in page.text


def test_a_signature_that_cannot_be_judged_says_why(page: Page) -> None:
    assert "They may still be over-fitted" in page.text


def test_a_suite_is_made_again_from_its_recipe(suite: Path, tmp_path: Path) -> None:
    assert "suite run" not in " ".join(provenance(load_report_data(suite)).commands)
    SuiteRecord(name="small", scale="full", recipe={}).write(suite / "suite.json")
    commands = provenance(load_report_data(suite)).commands
    (suite / "suite.json").unlink()
    assert commands[0] == "collapselab suite run small"


def test_text_of_others_is_escaped_everywhere(tmp_path: Path) -> None:
    folder = write_suite(
        tmp_path / "suite", widths=(32,), depths=(1, 2), decays=(0.0,), seeds=4, name=HOSTILE, why=f"{HOSTILE} & \u2028 more", inside=False
    )  # fmt: skip
    analyze(folder, permutations=99)
    text = report(folder).page.read_text(encoding="utf-8")
    assert HOSTILE not in text
    page = Page(text)
    assert len(page.scripts) == 4, "a style, the data, Vega and the page's own script; no further one began"
    assert any(run.startswith(HOSTILE) for run in page.data["models"]["name"]), "the name itself is kept"


def test_a_folder_without_results_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError):
        report(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_suite_that_has_not_started_says_so_in_place(tmp_path: Path) -> None:
    SuiteRecord(name="small", scale="full", recipe={}).write(tmp_path / "suite.json")
    page = page_of(tmp_path)
    assert "no runs yet" in page.text
    assert "There are no tables yet" in page.text


def test_only_failures_are_listed_with_their_reasons(tmp_path: Path) -> None:
    RUNS.write(tmp_path / "runs.csv", [failed(f"failed-{i}", "out of memory at step 3.") for i in range(3)])
    RESULTS.write(tmp_path / "results.csv", [])
    page = page_of(tmp_path)
    assert "None of the 3 models has a validation loss" in page.text
    assert page.text.count("out of memory at step 3.") == 3


def test_one_run_is_drawn_and_what_it_cannot_say_is_said(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    runs = one_run(rng, "alone", 64, 2, 0.0, 0)
    RESULTS.write(tmp_path / "results.csv", results_of(rng, runs, ("cdnv", "agreement"), inside=False))
    RUNS.write(tmp_path / "runs.csv", runs)
    page = page_of(tmp_path)
    assert "With scale held fixed these tables say nothing" in page.text
    assert {"collapse-agreement", "training-agreement"} <= set(page.data["panels"])
    assert "All models have the same width" in page.text


def test_a_metric_that_was_not_measured_leaves_its_place_and_no_other(tmp_path: Path) -> None:
    metrics = tuple(metric for metric in METRICS if METRICS[metric].in_paper and metric != "cosine_cv")
    folder = write_suite(
        tmp_path / "suite", widths=(32, 64), depths=(1,), decays=(0.0,), seeds=4, metrics=metrics, inside=False
    )
    analyze(folder, permutations=99)
    panels = page_of(folder).data["panels"]
    assert "collapse-cosine_cv" not in panels
    assert {f"collapse-{metric}" for metric in metrics} <= set(panels)


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RunError):
        report(tmp_path / "nowhere")


def test_the_page_is_the_same_every_time(suite: Path, page: Page, tmp_path: Path) -> None:
    again = report(suite, out=tmp_path / "again.html").page
    assert again.read_bytes() == (suite / "report.html").read_bytes()


def test_a_metric_that_only_one_architecture_has_is_drawn(tmp_path: Path) -> None:
    folder = write_suite(tmp_path / "suite", widths=(32, 64), depths=(1,), decays=(0.0,), seeds=1, failures=0)
    wide = {run["run"] for run in RUNS.read(folder / "runs.csv") if run["width"] == 64}
    assert wide
    rows = [
        replace(row, value=None, null=None, why="not there.") if row.metric == "cdnv_k2" and row.run in wide else row
        for row in RESULTS.read(folder / "results.csv")
    ]
    RESULTS.write(folder / "results.csv", rows)
    assert "cdnv_k2" in report(folder).page.read_text(encoding="utf-8")
