"""The figures: what they draw is what the tables say, and they are valid, readable and whole as files."""

import json
import re
from dataclasses import replace
from pathlib import Path

import altair as alt
import numpy as np
import pytest

from collapselab.analysis.analyze import analyze
from collapselab.analysis.resampling import permuted_correlations
from collapselab.analysis.subsets import WITHIN
from collapselab.records.tables import RESULTS
from collapselab.report.charts import style
from collapselab.report.charts.axes import clear_side, log_ticks, null_level, null_of
from collapselab.report.charts.vega import drawn_panel
from collapselab.report.data import lines
from collapselab.report.export import composed, write_figures
from collapselab.report.page import Contents, contents
from collapselab.report.story import load_story
from report.suites import write_suite


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Contents:
    folder = write_suite(tmp_path_factory.mktemp("suites") / "small", widths=(32, 64), depths=(1, 2), seeds=7)
    analyze(folder, permutations=499)
    return contents(load_story(folder))


def test_every_kind_of_panel_is_valid_vega_lite(shown: Contents) -> None:
    of_a_kind = {
        (figure.key, panel.metric == ""): panel for figure in shown.figures.values() for panel in figure.panels
    }
    assert len(of_a_kind) == 10
    for panel in of_a_kind.values():
        with alt.data_transformers.enable("default", consolidate_datasets=False):
            panel.chart.to_dict(validate=True)


def test_the_permutations_that_are_drawn_are_those_behind_the_p(shown: Contents) -> None:
    """The share of them at least as far from 0 as the r that was found is the very p of the table."""
    assert shown.story.models is not None
    assert shown.story.analysis is not None
    frame = shown.story.models.trained.dropna(subset=["val_loss"])
    frame = frame[frame["last"] & (frame.groupby("cell")["run"].transform("size") > 1)]
    for metric in shown.story.main:
        relation = shown.story.relation(metric, WITHIN)
        assert relation is not None
        assert relation.r is not None
        x, y = frame[metric].to_numpy(float), frame["val_loss"].to_numpy(float)
        chance = permuted_correlations(x, y, np.zeros(len(x), dtype=np.intp), permutations=499, seed=0)
        share = (1 + (np.abs(chance) >= abs(relation.r) * (1 - 1e-9)).sum()) / 500
        assert share == pytest.approx(relation.p_permutation, abs=1e-12)


def test_the_histogram_counts_every_permutation(shown: Contents) -> None:
    for name, table in shown.tables.items():
        if name.startswith("chance "):
            assert sum(table["count"]) == 499
            far = [line["count"] for line in lines(table) if line["far"]]
            metric = name.removeprefix("chance ")
            p = shown.story.relation(metric, WITHIN).p_permutation  # type: ignore[union-attr]
            assert sum(far) <= round(p * 500), "bars that are lit lie beyond the r that was found"


def test_heat_maps_grow_deeper_toward_collapse(shown: Contents) -> None:
    heat = lines(shown.tables["heat"])
    falling = sorted((line["cdnv_k2"], line["cdnv_k2 level"]) for line in heat)
    rising = sorted((line["agreement"], line["agreement level"]) for line in heat)
    assert [level for _, level in falling] == sorted((level for _, level in falling), reverse=True)
    assert [level for _, level in rising] == sorted(level for _, level in rising)
    assert {falling[0][1], falling[-1][1]} == {0, style.DEPTH_OF_HEAT - 1}


def test_pairs_differ_in_the_regulariser_alone(shown: Contents) -> None:
    pairs = lines(shown.tables["pairs"])
    assert {line["level"] for line in pairs} == {"0", "0.1"}
    for number in {line["pair"] for line in pairs}:
        pair = [line for line in pairs if line["pair"] == number]
        assert len(pair) == 2
        assert len({(line["wide"], line["deep"], line["where"]) for line in pair}) == 1


def test_slopes_start_from_their_own_weak_model(shown: Contents) -> None:
    """A change where values are on a linear axis, a factor where they span decades."""
    pairs = lines(shown.tables["pairs"])
    assert "cdnv_k2" in shown.story.logarithmic
    for weak, strong in zip(pairs[::2], pairs[1::2], strict=True):
        assert (weak["pair"], weak["level"], strong["level"]) == (strong["pair"], "0", "0.1")
        assert (weak["lognorm_cv change"], weak["cdnv_k2 change"]) == (0, 1)
        assert strong["lognorm_cv change"] == pytest.approx(strong["lognorm_cv"] - weak["lognorm_cv"], abs=1e-6)
        assert strong["cdnv_k2 change"] == pytest.approx(strong["cdnv_k2"] / weak["cdnv_k2"], rel=1e-4)


def test_every_number_of_a_bubble_has_a_format_that_the_page_can_write(shown: Contents) -> None:
    for panel in shown.panels:
        for _, _, written in drawn_panel(panel, log=False)["hover"]:
            assert re.fullmatch(r"|,|\+?\.\d~?[fg]", written), (panel.key, written)


def test_layers_end_with_what_enters_the_output_layer(shown: Contents) -> None:
    assert {line["place"] for line in lines(shown.tables["layers cdnv_k2"]) if line["deep"] == "2"} == {1, 2, 3}
    assert "layers agreement" not in shown.tables, "decisions are of the last layer alone"


def test_a_metric_that_spans_decades_is_drawn_on_a_logarithmic_axis(shown: Contents) -> None:
    axes = {panel.metric: json.dumps(panel.chart.to_dict(validate=False)) for panel in shown.figures["collapse"].panels}
    assert '"type": "log"' in axes["cdnv_k2"]
    assert '"type": "log"' not in axes["lognorm_cv"]


def test_values_at_initialisation_that_have_no_logarithm_are_drawn_all_the_same(tmp_path: Path) -> None:
    folder = write_suite(tmp_path / "suite", widths=(32, 64), depths=(1,), decays=(0.0,), seeds=4, inside=False)
    rows = [
        replace(row, value=-0.1) if (row.metric, row.checkpoint) == ("cdnv_k2", "0") else row
        for row in RESULTS.read(folder / "results.csv")
    ]
    RESULTS.write(folder / "results.csv", rows)
    analyze(folder, permutations=99)
    figures = contents(load_story(folder)).figures
    drawn = {
        key: json.dumps(
            next(panel.chart.to_dict(validate=False) for panel in figures[key].panels if panel.metric == "cdnv_k2")
        )
        for key in ("collapse", "training")
    }
    assert '"type": "log"' in drawn["collapse"]
    assert '"type": "symlog"' in drawn["training"], "of both signs"


def test_a_null_that_would_flatten_the_values_is_named_at_the_edge(shown: Contents) -> None:
    level = null_of(shown.story, "duality_cos_cv")
    assert level is not None
    near, far = (
        null_level(shown.story, "duality_cos_cv", level * np.array(values), log=False, side="left")
        for values in ([0.6, 0.8, 1.2], [0.01, 0.02, 0.03])
    )
    assert "shuffled labels" in json.dumps([layer.to_dict(validate=False) for layer in near])
    assert [layer.mark.type for layer in near] == ["rule", "text"]
    assert [layer.mark.type for layer in far] == ["text"]
    assert f"{level:.3g} \u2191" in str(far[0].data.values)


def test_a_null_that_has_no_logarithm_is_named_at_the_edge(shown: Contents) -> None:
    level = null_of(shown.story, "logdist_uncentred_cv")
    assert level is not None
    assert level < 0
    values = np.array([0.01, 0.1, 1.0])
    (word,) = null_level(shown.story, "logdist_uncentred_cv", values, log=True, side="left")
    assert f"\u2212{abs(level):.3g} \u2193" in str(word.data.values)


def test_the_null_is_named_where_fewer_models_stand(shown: Contents) -> None:
    assert shown.story.models is not None
    level = null_of(shown.story, "norm_cv")
    assert level is not None
    for losses, side in (([2.0, 2.1, 3.0], "right"), ([2.0, 2.9, 3.0], "left")):
        frame = shown.story.models.frame.head(3).assign(epoch=1.0, val_loss=losses, norm_cv=[level, level, 5 * level])
        frame.loc[:, "norm_cv null"] = level
        if side == "left":
            frame = frame.assign(norm_cv=[5 * level, level, level])
        story = replace(shown.story, models=replace(shown.story.models, frame=frame))
        assert clear_side(story, "norm_cv", log=False) == side


def test_few_values_far_from_all_others_do_not_flatten_them(tmp_path: Path) -> None:
    """Both ways from 0 where they have no logarithm; and no line, which would be of something else."""
    folder = write_suite(tmp_path / "suite", widths=(32, 64), depths=(1,), decays=(0.0,), seeds=4, inside=False)
    rows = RESULTS.read(folder / "results.csv")
    first = next(row for row in rows if (row.metric, row.checkpoint) == ("logdist_uncentred_cv", "1"))
    far = [replace(row, value=90.0, low=89.0, high=91.0) if row == first else row for row in rows]
    RESULTS.write(folder / "results.csv", far)
    analyze(folder, permutations=99)
    figure = contents(load_story(folder)).figures["collapse"]
    drawn = {panel.metric: json.dumps(panel.chart.to_dict(validate=False)) for panel in figure.panels}
    assert '"type": "symlog"' in drawn["logdist_uncentred_cv"]
    assert '"regression"' not in drawn["logdist_uncentred_cv"]
    assert '"regression"' in drawn["lognorm_cv"]
    assert "logarithmic both ways from 0" in figure.caption


@pytest.mark.parametrize(("low", "high", "few"), [(1e-4, 1.0, 1), (0.03, 0.4, 3), (1e-12, 1e3, 1)])
def test_logarithmic_axes_have_few_ticks_that_cover_the_values(low: float, high: float, few: int) -> None:
    ticks = log_ticks(low, high)
    inside = [tick for tick in ticks if low <= tick <= high]
    assert 3 <= len(inside) <= 9
    assert ticks[0] <= low
    assert len(ticks) % few == 0


def test_every_figure_is_written_as_svg_and_pdf(shown: Contents, tmp_path: Path) -> None:
    few = Contents(
        shown.story,
        None,
        {key: shown.figures[key] for key in ("collapse", "training", "seeds", "controls")},
        shown.tables,
        shown.keys,
    )
    paths = write_figures(tmp_path, few)
    assert {path.name for path in paths} == {f"{key}.{kind}" for key in few.figures for kind in ("svg", "pdf")}
    for path in paths:
        start = path.read_bytes()[:5]
        assert start == (b"%PDF-" if path.suffix == ".pdf" else b"<svg ")
    text = (tmp_path / "collapse.svg").read_text()
    assert "var(--" not in text, "a file has the colours themselves"
    assert "R² " in text
    assert re.search(r">width<", text), "and its legend"
    assert re.search(r">width<", (tmp_path / "training.svg").read_text())
    for path in tmp_path.glob("*.svg"):
        wide = re.search(r'width="([\d.]+)"', path.read_text())
        assert wide is not None
        assert float(wide[1]) <= 7.7 * 96, "a page of text holds it, and its type can be read"
    assert "as collapse predicts" in (tmp_path / "controls.svg").read_text()


def test_a_file_draws_every_model_that_the_page_draws(shown: Contents) -> None:
    spec = composed(shown.figures["collapse"], shown)
    assert len(spec["datasets"]["models"]) == len(shown.tables["models"]["id"])
    assert len(spec["concat"]) == len(shown.story.main)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_words_stand_out_from_what_they_are_written_on(dark: bool) -> None:
    colours = style.variables(6, dark=dark)
    for ground in ("paper", "ground"):
        for ink in ("ink", "soft", "accent"):
            assert style.contrast(colours[ink], colours[ground]) >= 4.5, (ink, ground)
    for kind in ("with", "against", "mixed", "unshown"):
        assert style.contrast(colours[kind], colours[f"{kind}-ground"]) >= 4.5, kind
    for level in range(style.DEPTH_OF_HEAT):
        assert style.contrast(colours[f"i{level}"], colours[f"h{level}"]) >= 4.5, level


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("widths", [1, 2, 6, 9])
def test_every_width_stands_out_and_they_darken_in_order(widths: int, dark: bool) -> None:
    paper = (style.DARK if dark else style.LIGHT)["paper"]
    contrasts = [style.contrast(colour, paper) for colour in style.width_colours(widths, dark=dark)]
    assert min(contrasts) >= 2.4
    assert contrasts == sorted(contrasts, reverse=dark), "one lightness after another, for every kind of colour vision"


def test_contrast_is_that_of_wcag() -> None:
    assert style.contrast("#000000", "#ffffff") == pytest.approx(21)
    assert style.contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)
