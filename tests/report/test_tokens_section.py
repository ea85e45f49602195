"""The page's section *Tokens*: of every class counted and searched, a part drawn; texts of tokens are hostile."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collapselab.analysis.analyze import analyze
from collapselab.analysis.tokens import bins
from collapselab.records.table import parse_table
from collapselab.records.tables import CLASSES
from collapselab.report.charts.panels import Figure
from collapselab.report.data import load_report_data
from collapselab.report.figures import FIGURES
from collapselab.report.figures.tokens import (
    ALL,
    DRAWN,
    METRICS,
    model_tokens,
    quoted,
    thinned,
    token_ends,
    token_frequency,
)
from collapselab.report.report import contents, render
from collapselab.report.view import Keys, View, lines
from report.suites import write_suite
from report.test_report import Page

HOSTILE = "</script><img src=x onerror=alert(1)>"
TEXTS = [" Lily", " Tim", HOSTILE, '"><b>', "\u202egnp.exe", "=1+1", "{{ 7*7 }}", "\x1b[31mred", "a'b", "\n"]
KINDS = ["word start", "continuation", "punctuation", "digit"]


def classes(run: str, checkpoint: str, number: int, *, seed: int = 0, factor: float = 1.0) -> Any:
    rng = np.random.default_rng(seed)
    texts = [*TEXTS, *(f" word{i}" for i in range(number - len(TEXTS)))]
    counts = np.maximum(10, (1e5 / np.arange(1, number + 1)).astype(int))
    kinds = ["word start", "word start", *(KINDS[i % 4] for i in range(number - 2))]
    numbers = {name: rng.lognormal(size=number) for name in METRICS} | {"agreement": rng.random(number)}
    return CLASSES.chunk(
        {
            "run": [run] * number, "checkpoint": [checkpoint] * number, "split": ["train"] * number,
            "layer": ["last"] * number, "token": np.arange(number), "text": texts, "kind": kinds, "count": counts,
            "nearest": np.roll(np.arange(number), 1), "samples": np.ones(number, dtype=int),
            **numbers, "cdnv": numbers["cdnv"] * factor,
        }
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_suite(
        tmp_path_factory.mktemp("tokens") / "suite", widths=(32, 64), depths=(1,), decays=(0.0,), seeds=2, inside=False
    )
    runs = ("01x0032-wd0-s0", "01x0064-wd0-s0")
    chunks = [
        classes(run, ckpt, 3000, seed=int(ckpt), factor=f) for run in runs for ckpt, f in (("0", 8.0), ("4", 1.0))
    ]
    CLASSES.write(folder / "classes.parquet", chunks)
    analyze(folder, permutations=99)
    return folder


def view(folder: Path) -> View:
    return View(load_report_data(folder), Keys(["32", "64"], ["1"], []), {})


def test_without_classes_the_section_is_left_out(tmp_path: Path) -> None:
    folder = write_suite(tmp_path / "suite", widths=(32,), depths=(1,), decays=(0.0,), seeds=2, inside=False)
    analyze(folder, permutations=99)
    for key in (key for key, entry in FIGURES.items() if entry.section == "tokens"):
        assert "--classes" in str(FIGURES[key].draw(view(folder)))
    page = render(contents(load_report_data(folder)))
    assert 'id="tokens"' not in page


def test_the_model_is_the_one_with_the_lowest_loss(folder: Path) -> None:
    data = load_report_data(folder)
    tokens = model_tokens(data)
    assert tokens is not None
    losses = {run["run"]: run["val_loss"] for run in data.runs if run["checkpoint"] == "4"}
    measured = {run: loss for run, loss in losses.items() if run in ("01x0032-wd0-s0", "01x0064-wd0-s0")}
    assert tokens.name == data.labels[min(measured, key=lambda run: measured[run] or 0.0)]


def test_what_is_drawn_is_thinned_and_what_is_counted_is_not(folder: Path) -> None:
    figure, ends = token_frequency(view(folder)), token_ends(view(folder))
    assert isinstance(figure, Figure)
    assert isinstance(ends, Figure)
    assert len(figure.tables["tokens drawn"]["text"]) <= DRAWN
    assert len(figure.tables["tokens drawn"]["text"]) > DRAWN / 3
    assert f"of {3000:,} are drawn" in figure.caption
    names, rows = parse_table(ends.saved[ALL], ALL)
    assert len(list(rows)) == 3000
    assert set(METRICS) <= set(names)
    frame = model_tokens(load_report_data(folder)).frame  # type: ignore[union-attr]
    kept = thinned(frame)
    assert set(frame["count"].nlargest(50)) <= set(kept["count"]), "every frequent class"
    assert kept["count"].min() == frame["count"].min()
    medians = lines(figure.tables["token medians"])
    assert len(medians) > 4
    rarest = bins(frame, 12).iloc[0]
    own = frame[(frame["count"] >= rarest["low"]) & (frame["count"] <= rarest["high"])]
    assert len(own) == rarest["classes"] > 500, "of all classes, not of those that are drawn"
    assert medians[0]["cdnv"] == pytest.approx(float(own["cdnv"].median()), rel=1e-5)


def test_the_ends_are_listed_for_all_tokens_and_for_each_kind(folder: Path) -> None:
    figure = token_ends(view(folder))
    assert isinstance(figure, Figure)
    (ends,) = figure.lists
    assert ends.rows[0][0] == "all kinds\n(3,000 classes)"
    assert sorted(row[0].split("\n")[0] for row in ends.rows[1:]) == sorted(KINDS)
    assert all(len(row[1].split("\n")) == len(row[2].split("\n")) == 5 for row in ends.rows)


def test_a_token_is_shown_without_what_a_browser_or_a_reader_could_be_fooled_by() -> None:
    assert quoted("\u202egnp.exe") == "'\\u202egnp.exe'"
    assert quoted("\x1b[31mred") == "'\\x1b[31mred'"
    assert len(quoted("x" * 10_000)) <= 40


def test_texts_of_tokens_never_become_markup(folder: Path) -> None:
    page = render(contents(load_report_data(folder)))
    assert HOSTILE not in page
    assert "<img src=x" not in page
    assert "\u202e" not in page
    assert 'id="tokens"' in page
    assert repr(HOSTILE)[:30] in Page(page).data["saved"][ALL]
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="(.*?)"', page)
    assert "unsafe-eval" not in policy
    assert "script-src &#39;sha256-" in policy or "script-src 'sha256-" in policy


@pytest.mark.slow
def test_fifty_thousand_classes_make_a_page_of_a_few_megabytes(tmp_path: Path) -> None:
    folder = write_suite(tmp_path / "suite", widths=(32,), depths=(1,), decays=(0.0,), seeds=2, inside=False)
    CLASSES.write(folder / "classes.parquet", [classes("01x0032-wd0-s0", "4", 50_257)])
    analyze(folder, permutations=99)
    figure = token_frequency(view(folder))
    assert isinstance(figure, Figure)
    assert len(figure.tables["tokens drawn"]["text"]) <= DRAWN
    assert f"of {50_257:,} are drawn" in figure.caption
    assert len(render(contents(load_report_data(folder)))) < 7_000_000
