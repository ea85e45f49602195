"""The page's section *Tokens*: of every class counted and searched, a part drawn; texts of tokens are hostile."""

import base64
import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collapselab.analysis.analyze import analyze
from collapselab.analysis.tokens import bins
from collapselab.records.table import parse_table
from collapselab.records.tables import CLASSES
from collapselab.report.data import Keys, View, lines
from collapselab.report.figures import FIGURES
from collapselab.report.figures.token_lists import first_names, token_ends, token_moves
from collapselab.report.figures.tokens import DRAWN, METRICS, thinned, token_frequency, token_kinds
from collapselab.report.report import contents, render
from collapselab.report.story import load_story
from collapselab.report.token_frame import model_tokens, quoted
from report.suites import write_suite

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
    return View(load_story(folder), Keys(["32", "64"], ["1"], []), {})


def test_without_classes_the_section_is_left_out(tmp_path: Path) -> None:
    folder = write_suite(tmp_path / "suite", widths=(32,), depths=(1,), decays=(0.0,), seeds=2, inside=False)
    analyze(folder, permutations=99)
    for key in (key for key, entry in FIGURES.items() if entry.section == "tokens"):
        assert "--classes" in FIGURES[key].draw(view(folder)).missing
    page = render(contents(load_story(folder)))
    assert 'id="tokens"' not in page


def test_the_model_is_the_one_with_the_lowest_loss(folder: Path) -> None:
    story = load_story(folder)
    tokens = model_tokens(story)
    assert tokens is not None
    losses = {run["run"]: run["val_loss"] for run in story.runs if run["checkpoint"] == "4"}
    measured = {run: loss for run, loss in losses.items() if run in ("01x0032-wd0-s0", "01x0064-wd0-s0")}
    assert tokens.run == min(measured, key=lambda run: measured[run] or 0.0)
    assert tokens.last.name.endswith(" 4")
    assert tokens.initial is not None


def test_what_is_drawn_is_thinned_and_what_is_counted_is_not(folder: Path) -> None:
    figure = token_frequency(view(folder))
    assert len(figure.tables["tokens drawn"]["text"]) <= DRAWN
    assert len(figure.tables["tokens drawn"]["text"]) > DRAWN / 3
    assert f"of {3000:,} are drawn" in figure.caption
    names, rows = parse_table(figure.saved["tokens.csv"], "tokens.csv")
    assert len(list(rows)) == 3000
    assert set(METRICS) <= set(names)
    frame = model_tokens(load_story(folder)).last.frame  # type: ignore[union-attr]
    kept = thinned(frame)
    for name in METRICS:
        assert frame[name].idxmax() in kept.index
        assert frame[name].idxmin() in kept.index
    medians = lines(figure.tables["token medians"])
    assert len(medians) > 4
    rarest = bins(frame, 12).iloc[0]
    own = frame[(frame["count"] >= rarest["low"]) & (frame["count"] <= rarest["high"])]
    assert len(own) == rarest["classes"] > 500, "of all classes, not of those that are drawn"
    assert medians[0]["cdnv"] == pytest.approx(float(own["cdnv"].median()), rel=1e-5)


def test_kinds_have_the_quartiles_of_their_classes(folder: Path) -> None:
    figure = token_kinds(view(folder))
    frame = model_tokens(load_story(folder)).last.frame  # type: ignore[union-attr]
    table = {line["kind"]: line for line in lines(figure.tables["token kinds"])}
    assert set(table) == set(KINDS)
    for kind, line in table.items():
        values = frame.loc[frame["kind"] == kind, "cdnv"]
        assert line["classes"] == len(values)
        assert line["cdnv"] == pytest.approx(values.median(), rel=1e-5)
        assert line["cdnv high"] == pytest.approx(values.quantile(0.75), rel=1e-5)


def test_names_ends_and_moves_are_listed(folder: Path) -> None:
    (names,) = first_names(view(folder)).lists
    assert [row[0] for row in names.rows] == ["' Lily'", "' Tim'"]
    (ends,) = token_ends(view(folder)).lists
    assert sorted(row[0] for row in ends.rows) == sorted(KINDS)
    assert all(len(row[2].split("\n")) == len(row[3].split("\n")) == 5 for row in ends.rows)
    cdnv, norm = token_moves(view(folder)).lists
    assert len(cdnv.rows) == len(norm.rows) == 15
    assert re.match(r"cdnv: median ratio 0\.1", cdnv.caption), "it fell eightfold"


def test_a_token_is_shown_without_what_a_browser_or_a_reader_could_be_fooled_by() -> None:
    assert quoted("\u202egnp.exe") == "'\\u202egnp.exe'"
    assert quoted("\x1b[31mred") == "'\\x1b[31mred'"
    assert len(quoted("x" * 10_000)) <= 40


def test_texts_of_tokens_never_become_markup(folder: Path) -> None:
    page = render(contents(load_story(folder)))
    assert HOSTILE not in page
    assert "<img src=x" not in page
    assert "\u202e" not in page
    assert 'id="tokens"' in page
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1])  # type: ignore[index]
    stored = gzip.decompress(base64.b64decode(data["saved"]["tokens.csv"])).decode()
    assert repr(HOSTILE)[:30] in stored
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="(.*?)"', page)
    assert "unsafe-eval" not in policy
    assert "script-src &#39;sha256-" in policy or "script-src 'sha256-" in policy


def test_fifty_thousand_classes_make_a_page_of_a_few_megabytes(tmp_path: Path) -> None:
    folder = write_suite(tmp_path / "suite", widths=(32,), depths=(1,), decays=(0.0,), seeds=2, inside=False)
    CLASSES.write(folder / "classes.parquet", [classes("01x0032-wd0-s0", "4", 50_257)])
    analyze(folder, permutations=99)
    figure = token_frequency(view(folder))
    assert len(figure.tables["tokens drawn"]["text"]) <= DRAWN
    assert f"of {50_257:,} are drawn" in figure.caption
    assert len(gzip.compress(figure.saved["tokens.csv"])) < 6_000_000
