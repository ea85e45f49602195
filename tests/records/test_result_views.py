"""A result as a chart, as a table in a notebook, and in one line."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.test_tokens import facts
from collapselab.errors import DamagedError
from collapselab.records.measurement import Result, Results
from records.test_tables import ROW


def result(*changes: dict[str, object]) -> Result:
    return Result([replace(ROW, **change) for change in changes], facts(model="<b>m</b>"))  # type: ignore[arg-type]


def test_layers_are_drawn_in_their_order_with_the_null() -> None:
    chart = result({"layer": "10"}, {"layer": "2"}, {"layer": "last"}).plot("cdnv").to_dict()
    assert chart["encoding"]["x"]["sort"] == ["2", "10", "last"]
    (values,) = chart["datasets"].values()
    assert len(values) == 6
    assert {value["labels"] for value in values} == {"as they are", "shuffled"}


def test_bins_are_drawn_where_there_are_no_layers_and_else_the_value() -> None:
    chart = result({"bin": "all"}, {"bin": "10-99"}, {"bin": "2-9"}).plot("cdnv").to_dict()
    assert chart["encoding"]["x"]["sort"] == ["2-9", "10-99"]
    assert result({}).plot("cdnv").to_dict()["encoding"]["x"]["title"] == "model"
    with pytest.raises(KeyError, match="cdnv"):
        result({}).plot("cdnw")


def test_a_metric_is_drawn_on_its_own_scale() -> None:
    def scale(metric: str, value: float) -> object:
        one = result({"metric": metric, "value": value, "null": 200.0}, {"metric": metric, "value": 2.0, "layer": "1"})
        charts = (one.plot(metric), Results([one]).plot(metric))
        first, second = (chart.to_dict()["encoding"]["y"]["scale"] for chart in charts)
        assert first == second
        return first

    assert scale("cdnv", 1.5) == {"type": "log"}
    assert scale("cdnv", 0.0) == {"zero": False}, "a logarithm of 0 cannot be drawn"
    assert scale("cdnv_log", 1.5) == {"zero": False}


def test_names_are_escaped_in_a_notebook_and_one_line_is_short() -> None:
    shown = result({})._repr_html_()
    assert "<b>m</b>" not in shown
    assert "&lt;b&gt;m&lt;/b&gt;" in shown
    assert "cdnv" in shown
    assert repr(result({}, {"layer": "1"})) == "Result('<b>m</b>': 2 rows; tables results)"


def test_several_are_drawn_side_by_side_and_over_layers() -> None:
    two = Results([result({}), result({"value": 0.3})])
    chart = two.plot("cdnv").to_dict()
    (values,) = chart["datasets"].values()
    assert {value["cdnv"] for value in values} == {0.1, 0.3, 0.2}
    layers = Results([result({"layer": "10"}, {"layer": "2"}, {"layer": "last"})]).plot("cdnv").to_dict()
    assert layers["encoding"]["x"]["sort"] == ["2", "10", "last"]
    assert layers["encoding"]["color"]["legend"]["labelLimit"] == 0, "checkpoints differ in the last letters"
    assert layers["encoding"]["strokeDash"]["legend"]["symbolType"] == "stroke", "a dot is not dashed"
    for nothing in (Results([]), two):
        with pytest.raises(KeyError, match="cdnw"):
            nothing.plot("cdnw")


def test_several_in_a_notebook_are_columns_and_failures_are_escaped() -> None:
    shown = Results([result({})] * 10, {"<i>bad</i>": "<script>"})._repr_html_()
    assert "<script>" not in shown
    assert "<b>m</b>" not in shown
    assert "&lt;i&gt;bad&lt;/i&gt;" in shown
    assert "and 2 more" in shown
    assert Results([])._repr_html_() == "<p>nothing was measured.</p>"


def test_several_in_one_line() -> None:
    assert repr(Results([])) == "Results(0 measured)"
    four = Results([result({})] * 4, {"x": "why"})
    assert repr(four) == f"Results(4 measured: {', '.join([repr('<b>m</b>')] * 3)} and 1 more; 1 failed)"


def test_frames_have_every_table_of_all() -> None:
    assert len(Results([result({}), result({})]).frames["results"]) == 2
    assert list(result({}).frames) == ["results"]


def test_a_stored_row_without_a_cell_is_refused(tmp_path: Path) -> None:
    result({}).save(tmp_path / "r.json")
    document = json.loads((tmp_path / "r.json").read_text())
    del document["rows"][0]["layer"]
    with pytest.raises(DamagedError, match="layer"):
        Result.of_document(document, tmp_path / "r.json")
