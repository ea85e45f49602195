"""A real Chromium. These tests run when they are asked for, `pytest -m browser`, and then fail where there is none."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import golden_words
from collapselab.analysis.analyze import analyze
from collapselab.report.report import report
from report.measured import measure_models, result_of
from report.suites import write_suite

HOSTILE = "<img src=x onerror=alert(1)>"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "browser: needs Chromium and selenium; runs with -m browser")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "browser" in config.option.markexpr:
        return
    asked_for = [item for item in items if "browser" in item.keywords]
    config.hook.pytest_deselected(items=asked_for)
    items[:] = [item for item in items if item not in asked_for]


@pytest.fixture(scope="session")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """230 trained models, and their initialisations."""
    folder = write_suite(
        tmp_path_factory.mktemp("suites") / "two-hundred-and-thirty",
        widths=(64, 128, 256, 512, 768, 1024), depths=(1, 2, 4, 8, 12), decays=(0.0, 0.1), seeds=17, failures=2,
    )  # fmt: skip
    analyze(folder, permutations=199)
    return folder


@pytest.fixture(scope="session")
def page(suite: Path) -> Path:
    return report(suite).page


@pytest.fixture(scope="session")
def large_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300 runs of 30 sizes at five strengths of weight decay, each measured at four checkpoints."""
    folder = write_suite(
        tmp_path_factory.mktemp("suites") / "three-hundred",
        widths=(64, 128, 256, 512, 768, 1024), depths=(1, 2, 4, 8, 12), decays=(0.0, 0.1, 0.2, 0.3, 0.4), seeds=151,
        failures=0,
    )  # fmt: skip
    analyze(folder, permutations=99)
    return report(folder).page


@pytest.fixture(scope="session")
def arms_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Interventions, whose tables have the longest names."""
    folder = tmp_path_factory.mktemp("arms")
    golden_words.of_planted_arms(folder)
    return report(folder).page


@pytest.fixture(scope="session")
def hostile_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_suite(
        tmp_path_factory.mktemp("hostile"), widths=(32,), depths=(1, 2), decays=(0.0,), seeds=4, name=HOSTILE,
        why=HOSTILE, inside=False,
    )  # fmt: skip
    analyze(folder, permutations=99)
    return report(folder).page


@pytest.fixture(scope="session")
def one_depth_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_suite(
        tmp_path_factory.mktemp("suites") / "one-depth", widths=(32, 64), depths=(2,), decays=(0.0,), seeds=2,
        inside=False, failures=0,
    )  # fmt: skip
    analyze(folder, permutations=99)
    return report(folder).page


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return measure_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="session")
def model_page(results: Path) -> Path:
    return report(result_of(results, 16)).page


@pytest.fixture(scope="session")
def models_page(results: Path) -> Path:
    return report(results).page


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if browser is None or driver is None:
        pytest.fail("no Chromium: `apt-get install chromium chromium-driver`.")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars", "--disable-gpu"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    started = webdriver.Chrome(options=options, service=Service(driver))
    started.set_script_timeout(60)
    yield started
    started.quit()
