"""The figures: what they draw is what the tables say, and they are valid, readable and whole as files."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import pytest

from collapselab.analysis.analyze import analyze
from collapselab.analysis.subsets import ALL, WITHIN
from collapselab.records.tables import RESULTS, RUNS
from collapselab.report import export
from collapselab.report.charts import panels, style
from collapselab.report.charts.axes import log_ticks, null_level, null_of
from collapselab.report.charts.forest import NARROW, ForestLine, forest_chart, forest_table
from collapselab.report.charts.panels import Panel, bare_spec, drawn_panel
from collapselab.report.charts.style import Spec
from collapselab.report.data import load_report_data
from collapselab.report.export import composed, write_figures
from collapselab.report.report import Contents, contents
from collapselab.report.view import lines
from collapselab.report.words import TEST_WORDS
from report.suites import write_suite


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Contents:
    folder = write_suite(tmp_path_factory.mktemp("suites") / "small", widths=(32, 64), depths=(1, 2), seeds=7)
    analyze(folder, permutations=499)
    return contents(load_report_data(folder))


def test_every_kind_of_panel_is_valid_vega_lite(shown: Contents) -> None:
    of_a_kind = {
        (figure.key, panel.metric == ""): panel for figure in shown.figures.values() for panel in figure.panels
    }
    assert of_a_kind
    for panel in of_a_kind.values():
        with alt.data_transformers.enable("default", consolidate_datasets=False):
            panel.chart.to_dict(validate=True)


def test_a_metric_is_below_and_the_outcome_at_the_side(shown: Contents) -> None:
    """As in the paper; also among seeds."""
    for key, side in (("collapse", "val_loss"), ("seeds", "outcome")):
        panels = shown.figures[key].panels
        assert panels
        for panel in panels:
            points = panel.chart.to_dict(validate=False)["layer"][-1]["encoding"]
            assert points["y"]["field"] == side, panel.key
            assert points["x"]["field"] == (panel.metric if key == "collapse" else "value"), panel.key


def test_the_forest_has_both_correlations_and_the_corrected_verdict(shown: Contents) -> None:
    rows = lines(shown.tables["forest"])
    assert [line["kind"] == "all models" for line in rows] == [False, True] * len(shown.data.main)
    for line in rows:
        across = line["kind"] == "all models"
        relation = shown.data.relation(str(line["arm"]).split()[1], ALL if across else WITHIN)
        assert relation is not None
        assert line["effect"] == pytest.approx(relation.r, rel=1e-5)
        assert line["low"] == (None if relation.low is None else pytest.approx(relation.low, rel=1e-5))
        assert across or line["kind"] == TEST_WORDS[relation.verdict]


def test_a_dot_is_what_the_regulariser_makes_of_one_architecture(shown: Contents) -> None:
    """A difference where values are on a linear axis, a factor where they span decades; at the end of the runs alone."""
    pairs = lines(shown.tables["pairs"])
    assert len(pairs) == 4, "of two widths and two depths"
    assert len({(line["wide"], line["deep"]) for line in pairs}) == 4
    assert "cdnv_k2" in shown.data.logarithmic
    for line in pairs:
        weak, strong = line["lognorm_cv weak"], line["lognorm_cv strong"]
        assert line["lognorm_cv change"] == pytest.approx(strong - weak, abs=1e-6)
        assert line["cdnv_k2 change"] == pytest.approx(line["cdnv_k2 strong"] / line["cdnv_k2 weak"], rel=1e-4)


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
    figures = contents(load_report_data(folder)).figures
    drawn = {
        key: json.dumps(
            next(panel.chart.to_dict(validate=False) for panel in figures[key].panels if panel.metric == "cdnv_k2")
        )
        for key in ("collapse", "training")
    }
    assert '"type": "log"' in drawn["collapse"]
    assert '"type": "symlog"' in drawn["training"], "of both signs"


def test_a_null_that_would_flatten_the_values_is_named_in_the_heading_and_not_drawn(shown: Contents) -> None:
    level = null_of(shown.data, "duality_cos_cv")
    assert level is not None
    near, far = level * np.array([0.6, 0.8, 1.2]), level * np.array([0.01, 0.02, 0.03])
    drawn, words = null_level(shown.data, "duality_cos_cv", near, log=False)
    assert "shuffled labels" in json.dumps([layer.to_dict(validate=False) for layer in drawn])
    assert [layer.mark.type for layer in drawn] == ["rule", "text"]
    assert words == ""
    assert null_level(shown.data, "duality_cos_cv", far, log=False) == ([], f"shuffled labels: {level:.3g}")
    assert null_level(shown.data, "duality_cos_cv", far, log=False, across=True)[0] == []


def test_a_null_that_has_no_logarithm_is_named_in_the_heading(shown: Contents) -> None:
    level = null_of(shown.data, "logdist_uncentred_cv")
    assert level is not None
    assert level < 0
    values = np.array([0.01, 0.1, 1.0])
    words = f"shuffled labels: \u2212{abs(level):.3g}"
    assert null_level(shown.data, "logdist_uncentred_cv", values, log=True) == ([], words)


def test_below_a_panel_the_null_is_named_on_the_side_with_more_room(shown: Contents) -> None:
    level = null_of(shown.data, "norm_cv")
    assert level is not None
    for values, align in (([1.0, 2.0, 3.0], "left"), ([0.3, 0.5, 1.0], "right")):
        (rule, name), _ = null_level(shown.data, "norm_cv", level * np.array(values), log=False, across=True)
        assert (rule.mark.type, name.mark.type, name.mark.align) == ("rule", "text", align)
        assert rule.to_dict(validate=False)["encoding"]["x"]["field"] == "level"


def test_families_of_one_width_have_a_colour_each(tmp_path: Path) -> None:
    folder = write_suite(tmp_path / "suite", widths=(32,), depths=(1,), decays=(0.0,), seeds=4, inside=False)
    one = contents(load_report_data(folder))
    assert one.figures["collapse"].legend[0] == "width"
    runs = [{**run, "family": f"family {i % 2}", "width": 32} for i, run in enumerate(RUNS.read(folder / "runs.csv"))]
    RUNS.write(folder / "runs.csv", runs)
    drawn = contents(load_report_data(folder))
    assert drawn.keys.families == ["family 0", "family 1"]
    for key in ("collapse", "training"):
        figure = drawn.figures[key]
        assert figure.legend[0] == "family"
        colours = [layer["encoding"].get("color", {}) for layer in bare_spec(figure.panels[0], legends=True)["layer"]]
        (named,) = {(colour["field"], *colour["scale"]["range"]) for colour in colours if "field" in colour}
        assert named == ("family", "var(--c0)", "var(--c1)")


def test_views_are_numbered_by_their_place_and_other_names_stay() -> None:
    spec: dict[str, Any] = {
        "layer": [{"name": "view_58"}, {"name": "mine"}, {"name": "view_7"}],
        "params": [{"name": "brush", "views": ["view_7", "mine"]}, {"name": "shown"}],
    }
    assert panels.number_views(spec) == 3
    assert [layer["name"] for layer in spec["layer"]] == ["view_1", "mine", "view_2"]
    assert spec["params"][0]["views"] == ["view_2", "mine"]
    assert panels.number_views(spec, 5) == 7
    assert [layer["name"] for layer in spec["layer"]] == ["view_5", "mine", "view_6"]


def test_no_two_layers_of_a_file_share_a_name(shown: Contents, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one name they would share scales: a panel was drawn 90,000 pixels wide."""

    def named(panel: Panel, *, legends: bool = False) -> Spec:
        spec = bare_spec(panel, legends=legends)
        layers = spec.get("layer", [spec])
        if not any("name" in layer for layer in layers):
            layers[0]["name"] = "view_1"  # as versions of Altair do that name layers
        return spec

    monkeypatch.setattr(export, "bare_spec", named)
    figure = shown.figures["collapse"]
    units = export.composed(figure, shown.tables, shown.keys)["concat"]
    names = [layer["name"] for unit in units for layer in unit.get("layer", [unit]) if "name" in layer]
    assert len(names) >= len(units) > 3
    assert len(set(names)) == len(names)


def test_a_long_name_has_its_words_below_it_where_a_panel_is_narrow() -> None:
    short = [ForestLine("within:+0.1", "reached", -0.1, -0.2, -0.05, 8, "reached")]
    long = [*short, ForestLine("uniform_means:+0.1 + within:+0.1", "not reached", 0.1, 0.05, 0.2, 8, "not reached")]

    def is_stacked(lines: list[ForestLine], room: int | None) -> bool:
        places = forest_table(lines, room=room)
        apart = [words - name for words, name in zip(places["words_at"], places["name_at"], strict=True)]
        _, height = forest_chart("manipulation", lines, "Δ", room=room)
        _, plain = forest_chart("manipulation", lines, "Δ")
        assert (height > plain) == (min(apart) > 0)
        return min(apart) > 0

    assert is_stacked(long, NARROW)
    assert not is_stacked(short, NARROW)
    assert not is_stacked(long, None)


def test_a_verdict_is_once_in_the_legend_of_a_forest() -> None:
    arms = [ForestLine("a", "helps", -0.1, -0.2, -0.05, 8), ForestLine("b", "harms", 0.1, 0.05, 0.2, 8)]
    chart, _ = forest_chart("effects", arms, "Δ")
    drawn = chart.to_dict(validate=False)
    channels = [
        (layer["mark"]["type"], name)
        for layer in drawn["layer"]
        for name, channel in layer["encoding"].items()
        if isinstance(channel, dict)
        and channel.get("field") == "kind"
        and "scale" in channel
        and channel.get("legend", {}) is not None
    ]
    assert {mark for mark, _ in channels} == {"point"}, "the intervals have the colours, and no legend of their own"


def test_few_values_far_from_all_others_do_not_flatten_them(tmp_path: Path) -> None:
    """Both ways from 0 where they have no logarithm; and no line, which would be of something else."""
    folder = write_suite(tmp_path / "suite", widths=(32, 64), depths=(1,), decays=(0.0,), seeds=4, inside=False)
    rows = RESULTS.read(folder / "results.csv")
    first = next(row for row in rows if (row.metric, row.checkpoint) == ("logdist_uncentred_cv", "4"))
    far = [replace(row, value=90.0, low=89.0, high=91.0) if row == first else row for row in rows]
    RESULTS.write(folder / "results.csv", far)
    analyze(folder, permutations=99)
    figure = contents(load_report_data(folder)).figures["collapse"]
    drawn = {panel.metric: json.dumps(panel.chart.to_dict(validate=False)) for panel in figure.panels}
    assert '"type": "symlog"' in drawn["logdist_uncentred_cv"]
    assert '"regression"' not in drawn["logdist_uncentred_cv"]
    assert '"regression"' in drawn["lognorm_cv"]


@pytest.mark.parametrize(("low", "high", "few"), [(1e-4, 1.0, 1), (0.03, 0.4, 3), (1e-12, 1e3, 1)])
def test_logarithmic_axes_have_few_ticks_that_cover_the_values(low: float, high: float, few: int) -> None:
    ticks = log_ticks(low, high)
    inside = [tick for tick in ticks if low <= tick <= high]
    assert 3 <= len(inside) <= 9
    assert ticks[0] <= low
    assert len(ticks) % few == 0


def test_every_figure_is_written_as_svg_and_pdf(shown: Contents, tmp_path: Path) -> None:
    few = Contents(
        shown.data,
        {key: shown.figures[key] for key in ("collapse", "training", "seeds", "forest")},
        shown.tables,
        shown.keys,
    )
    paths = write_figures(tmp_path, few.figures.values(), few.tables, few.keys)
    assert {path.name for path in paths} == {f"{key}.{kind}" for key in few.figures for kind in ("svg", "pdf")}
    for path in paths:
        start = path.read_bytes()[:5]
        assert start == (b"%PDF-" if path.suffix == ".pdf" else b"<svg ")
    write_figures(tmp_path / "again", few.figures.values(), few.tables, few.keys)
    for path in (path for path in paths if path.suffix == ".svg"):
        assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes(), path.name
    text = (tmp_path / "collapse.svg").read_text()
    assert "var(--" not in text, "a file has the colours themselves"
    assert "R² " in text
    assert re.search(r">width<", text), "and its legend"
    assert re.search(r">width<", (tmp_path / "training.svg").read_text())
    for path in tmp_path.glob("*.svg"):
        wide = re.search(r'width="([\d.]+)"', path.read_text())
        assert wide is not None
        assert float(wide[1]) <= 7.7 * 96, "a page of text holds it, and its type can be read"
    assert "all models" in (tmp_path / "forest.svg").read_text(), "the legend of verdicts"
    write_figures(tmp_path / "alone", [few.figures["collapse"]], few.tables, few.keys)
    assert (tmp_path / "alone" / "collapse.svg").read_text() == text, "a file does not depend on those drawn before it"


def test_a_file_draws_every_model_that_the_page_draws(shown: Contents) -> None:
    spec = composed(shown.figures["collapse"], shown.tables, shown.keys)
    assert len(spec["datasets"]["models"]) == len(shown.tables["models"]["id"])
    assert len(spec["concat"]) == len(shown.data.main)


def contrast(ink: str, ground: str) -> float:
    """The ratio of luminances of WCAG 2: 1 is none, 4.5 enough for text."""
    high, low = sorted((luminance(ink), luminance(ground)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    channels = [value / 255 for value in [int(colour[i : i + 2], 16) for i in (1, 3, 5)]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_words_stand_out_from_what_they_are_written_on(dark: bool) -> None:
    colours = style.variables(6, dark=dark)
    for ground in ("paper", "ground"):
        for ink in ("ink", "soft", "accent"):
            assert contrast(colours[ink], colours[ground]) >= 4.5, (ink, ground)
    for kind in ("with", "against", "mixed", "unshown"):
        assert contrast(colours[kind], colours[f"{kind}-ground"]) >= 4.5, kind
    shaded = style._blend(colours["paper"], colours["accent"], 0.5)
    assert contrast(colours["ink"], shaded) >= 4.5, "numbers on the darkest square of deciders"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("widths", [1, 2, 6, 9])
def test_every_width_stands_out_and_they_darken_in_order(widths: int, dark: bool) -> None:
    paper = (style.DARK if dark else style.LIGHT)["paper"]
    contrasts = [contrast(colour, paper) for colour in style.width_colours(widths, dark=dark)]
    assert min(contrasts) >= 2.4
    assert contrasts == sorted(contrasts, reverse=dark), "one lightness after another, for every kind of colour vision"


def test_contrast_is_that_of_wcag() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)
