"""Specs: a panel as the page draws it, without what the page itself says better: legends and the words of bubbles."""

from collapselab.report.charts import style
from collapselab.report.charts.panels import Panel
from collapselab.report.charts.style import Spec


def drawn_panel(panel: Panel, *, log: bool) -> Spec:
    """A panel as Vega, which needs no compiling where it is read; the configuration is the same in all."""
    import vl_convert

    spec, hover = _hovering(bare_spec(panel))
    drawn = vl_convert.vegalite_to_vega(
        {**spec, "width": "container", "height": panel.height, "config": style.config()}
    )
    for name in ("$schema", "config"):
        drawn.pop(name, None)
    return {
        "spec": drawn, "table": panel.table, "metric": panel.metric,
        "signals": [param["name"] for param in spec.get("params", [])], "hover": hover, "log": log,
    }  # fmt: skip


def _hovering(spec: Spec) -> tuple[Spec, list[list[str]]]:
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


def drawn_config() -> Spec:
    """The configuration of every panel, as Vega."""
    import vl_convert

    empty = {"data": {"values": []}, "mark": "point", "config": style.config()}
    config: Spec = vl_convert.vegalite_to_vega(empty)["config"]
    return config


def bare_spec(panel: Panel, *, legends: bool = False) -> Spec:
    """The panel as Vega-Lite, without data, size or configuration, and without legends but where they are asked for."""
    import altair as alt

    with alt.data_transformers.enable("default", consolidate_datasets=False):
        # a test validates every kind of panel; here it would take seconds
        spec = panel.chart.to_dict(validate=False)
    for name in ("$schema", "config"):
        spec.pop(name, None)
    if not legends:
        _drop_legends(spec)
    return spec


def _drop_legends(spec: Spec) -> None:
    for channel in ("color", "size", "shape", "stroke", "fill"):
        encoded = spec.get("encoding", {}).get(channel, {})
        for definition in (encoded, encoded.get("condition", {})):
            if "field" in definition:
                definition["legend"] = None
    for layer in spec.get("layer", []):
        _drop_legends(layer)
