"""What the report takes from beside the tables: the corpus and the runs' own records."""

from pathlib import Path

import pytest

from collapselab.corpus.blocks import Corpus
from collapselab.corpus.build import Recipe, build_corpus
from collapselab.corpus.sources import open_source
from collapselab.records.tables import DECIDERS, PUSH, DeciderRow, PushRow
from collapselab.report.data import Keys, View, lines, plain
from collapselab.report.figures.classes import class_frequencies
from collapselab.report.figures.deciders import deciders
from collapselab.report.figures.push import push
from collapselab.report.provenance import corpus_of, provenance
from collapselab.report.report import report
from collapselab.report.story import load_story
from report.suites import name_corpus, write_suite


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus") / "storyworld"
    build_corpus(
        open_source(["storyworld:stories=60,validation=8,seed=1"]), folder, Recipe(tokenizer="bpe:300", block=32)
    )
    return folder


def test_class_frequencies_are_those_of_the_corpus(corpus: Path) -> None:
    figure = class_frequencies(corpus)
    counts = sorted(Corpus(corpus).train.counts.tolist(), reverse=True)
    for line in lines(figure.tables["classes"]):
        assert line["count"] == counts[line["rank"] - 1]
    assert f"{sum(count > 0 for count in counts):,} classes in {sum(counts):,} training tokens" in figure.caption
    half = next(n for n in range(1, len(counts) + 1) if 2 * sum(counts[:n]) >= sum(counts))
    assert f"the most frequent {half:,} make up half" in figure.caption


def test_the_corpus_of_the_runs_is_found_by_their_records(corpus: Path, tmp_path: Path) -> None:
    folder = write_suite(
        tmp_path / "suite", widths=(32,), depths=(1,), decays=(0.0,), seeds=2, metrics=("agreement",), inside=False
    )
    story = load_story(folder)
    assert corpus_of(story) is None, "their records name one that is not there"
    name_corpus(folder, corpus)
    assert corpus_of(story) == corpus


def test_settings_that_differ_are_counted(tmp_path: Path) -> None:
    folder = write_suite(
        tmp_path / "suite", widths=(32, 64), depths=(1,), decays=(0.0,), seeds=2, metrics=("agreement",), inside=False
    )
    (folder / "01x0032-wd0-s0" / "run.json").write_text("{ half a rec")
    facts = provenance(load_story(folder))
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
    view = View(load_story(folder), Keys([], [], []), {})
    assert "--push default" in push(view).missing
    rows = [
        PushRow(run, "4", head, alpha, None, 100, 3.0 + alpha**2, 0.1, 0.2, 0.3 + alpha)
        for run in ("01x0032-wd0-s0", "01x0064-wd0-s0")
        for head in ("own", "centres")
        for alpha in (-0.3, 0.0, 0.3)
    ]
    PUSH.write(folder / "push.csv", rows)
    drawn = push(View(load_story(folder), Keys(["32", "64"], ["1"], []), {}))
    assert [panel.key for panel in drawn.panels] == ["push-loss", "push-ece", "push-agreement"]
    losses = [line["value"] for line in lines(drawn.tables["push loss"])]
    assert losses == pytest.approx([0.09, 0, 0.09] * 4)
    assert "median of 2 runs: α -0.3 0, α 0 0.3, α 0.3 0.6" in drawn.panels[2].numbers
    assert "push-agreement" in report(folder).page.read_text(encoding="utf-8")


def test_deciders_are_drawn_as_a_square_for_each_depth(tmp_path: Path) -> None:
    folder = write_suite(tmp_path / "suite")
    assert "--deciders" in deciders(View(load_story(folder), Keys([], [], []), {})).missing
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
    drawn = deciders(View(load_story(folder), Keys(["32", "64"], ["1"], []), {}))
    (panel,) = drawn.panels
    assert panel.heading == "1 block, 2 runs"
    cells = {(line["down"], line["across"]): line for line in lines(drawn.tables["deciders 5"])}
    assert len(cells) == 10
    assert cells["output layer", "next token"]["share"] == pytest.approx((10 + 30) / 2 / 200)
    assert cells["lens 1", "nearest last"]["text"] == "0.40"
    report(folder)
    assert "Which deciders agree" in (folder / "report.html").read_text()
