"""Small multiples by training regime: a strip for each, the same axes, every model in one of them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collapselab.analysis.analyze import analyze
from collapselab.report.charts.panels import bare_spec
from collapselab.report.data import View, keys, models_table
from collapselab.report.figures.by_regime import by_regime
from collapselab.report.figures.generalisation import collapse
from collapselab.report.story import load_story
from report.suites import write_suite


def view_of(folder: Path, **settings: Any) -> View:
    write_suite(folder, widths=(32, 64), depths=(1,), seeds=1, inside=False, failures=0, **settings)
    analyze(folder, permutations=99)
    story = load_story(folder)
    models = models_table([story])
    return View(story, keys(models), models)


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> View:
    return view_of(tmp_path_factory.mktemp("suites") / "several", decays=(0.0, 0.1))


def test_every_metric_has_a_strip_for_every_regime(view: View) -> None:
    figure = by_regime(view)
    assert len(view.keys.trainings) > 1
    assert len(figure.panels) == len(view.story.main) * len(view.keys.trainings)
    assert [card[0].metric for card in figure.cards] == view.story.main
    counted = [int(panel.numbers.split(" models")[0].rsplit(": ", 1)[1]) for panel in figure.cards[0]]
    assert sum(counted) == sum(bool(one) for one in view.models["trained"])
    assert all(counted)


def test_strips_of_a_metric_share_their_axes(view: View) -> None:
    for card in by_regime(view).cards:
        points = [bare_spec(panel)["layer"][1]["encoding"] for panel in card]
        assert len({str(one["x"]["scale"]) for one in points}) == 1
        assert len({str(one["y"]["scale"]) for one in points}) == 1
        assert [one["x"]["axis"]["labels"] for one in points] == [False] * (len(card) - 1) + [True]


def test_the_words_of_a_regime_cannot_leave_their_quotes(view: View) -> None:
    hostile = '1\' epoch " || true || "\\'
    odd = replace(view, keys=replace(view.keys, trainings=[hostile, *view.keys.trainings]))
    filters = bare_spec(by_regime(odd).panels[0])["layer"][1]["transform"]
    assert any('=== "1\' epoch \\" || true || \\"\\\\"' in str(one["filter"]) for one in filters)


def test_one_regime_needs_no_strips(tmp_path: Path) -> None:
    figure = by_regime(view_of(tmp_path / "one", decays=(0.0,)))
    trainings = len(keys(models_table([load_story(tmp_path / "one")])).trainings)
    assert bool(figure.missing) == (trainings == 1)
    assert bool(figure.panels) == (trainings > 1)


def test_many_regimes_are_not_shapes_of_one_panel(view: View) -> None:
    """Three can be told apart; of more, colour and size alone are left."""
    few = replace(view, keys=replace(view.keys, trainings=view.keys.trainings[:2]))
    many = replace(view, keys=replace(view.keys, trainings=["a", "b", "c", "d"]))
    assert collapse(few).legend == ("width", "depth", "training")
    assert collapse(many).legend == ("width", "depth")
    encoded = bare_spec(collapse(many).panels[0], legends=True)["layer"][-1]["encoding"]["shape"]
    assert encoded == {"value": "circle"}
