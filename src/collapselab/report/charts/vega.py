"""Specs: a panel as the page draws it, without what the page itself says better: legends and the words of bubbles."""

from typing import Any

from collapselab.report.charts import style
from collapselab.report.charts.panels import Panel


def drawn_panel(panel: Panel, *, log: bool) -> dict[str, Any]:
    """A panel as Vega, which needs no compiling where it is read; the configuration is the same in all."""
    import vl_convert

    spec, hover = _hovering(bare_spec(panel))
    drawn = vl_convert.vegalite_to_vega(
        {**spec, "width": "container", "height": panel.height, "config": style.config()}
    )
    for name in ("$schema", "config"):
        drawn.pop(name, None)
    return {
        "spec": drawn, "table": panel.table, "metric": panel.metric, "signals": _signals(spec), "hover": hover,
        "log": log,
    }  # fmt: skip


def _hovering(spec: dict[str, Any]) -> tuple[dict[str, Any], list[list[str]]]:
    """The panel without the words of its bubbles, and those: field, title and format.

    Vega would write the words of every mark whenever it draws one; the page writes those of the one pointed at.
    """
    hover: dict[str, list[str]] = {}
    layers = []
    for layer in spec.get("layer", [spec]):
        encoding = dict(layer.get("encoding", {}))
        for tip in encoding.pop("tooltip", []):
            hover[tip["field"]] = [tip["field"], tip.get("title", tip["field"]), tip.get("format", "")]
        hovered = "tooltip" in layer.get("encoding", {})
        mark = {**layer["mark"], "tooltip": {"content": "data"}} if hovered else layer["mark"]
        layers.append({**layer, "mark": mark, "encoding": encoding})
    return ({**spec, "layer": layers} if "layer" in spec else layers[0]), list(hover.values())


def _signals(spec: dict[str, Any]) -> list[str]:
    return [param["name"] for param in spec.get("params", [])]


def drawn_config() -> dict[str, Any]:
    """The configuration of every panel, as Vega."""
    import vl_convert

    empty = {"data": {"values": []}, "mark": "point", "config": style.config()}
    config: dict[str, Any] = vl_convert.vegalite_to_vega(empty)["config"]
    return config


def bare_spec(panel: Panel, *, legends: bool = False) -> dict[str, Any]:
    """The panel as Vega-Lite, without data, size or configuration, and without legends but where they are asked for."""
    import altair as alt

    with alt.data_transformers.enable("default", consolidate_datasets=False):
        spec: dict[str, Any] = panel.chart.to_dict(
            validate=False
        )  # a test validates every kind of panel; here it would take seconds
    for name in ("$schema", "config"):
        spec.pop(name, None)
    return spec if legends else _without_legends(spec)


def _without_legends(part: Any) -> Any:
    if isinstance(part, list):
        return [_without_legends(element) for element in part]
    if not isinstance(part, dict):
        return part
    bare = {name: _without_legends(element) for name, element in part.items()}
    for channel in ("color", "size", "shape", "stroke", "fill"):
        encoded = bare.get("encoding", {}).get(channel, {})
        for definition in (encoded, encoded.get("condition", {})):
            if "field" in definition:
                definition["legend"] = None
    return bare
