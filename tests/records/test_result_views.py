"""A result as a chart, as a table in a notebook, and in one line."""

from dataclasses import replace

import pytest

from analysis.test_tokens import facts
from collapselab.records.measurement import Result
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
    with pytest.raises(KeyError, match="Did you mean cdnv?"):
        result({}).plot("cdnw")


def test_names_are_escaped_in_a_notebook_and_one_line_is_short() -> None:
    shown = result({})._repr_html_()
    assert "<b>m</b>" not in shown
    assert "&lt;b&gt;m&lt;/b&gt;" in shown
    assert "cdnv" in shown
    assert repr(result({}, {"layer": "1"})) == "Result('<b>m</b>': 2 rows; tables results)"
