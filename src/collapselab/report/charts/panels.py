"""Figures: panels side by side, each of one metric, drawn from named tables in one style.

A panel does not depend on its position. The page draws each into its own frame, so that they adapt to the screen;
a file has them side by side, with a legend, which the page writes itself. `drawn_panel` is what the page draws: Vega
without legends and tooltips.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import altair as alt

from collapselab.report.charts import style
from collapselab.report.charts.style import SHAPES, Spec
from collapselab.report.data import ReportData
from collapselab.report.view import Columns, Keys
from collapselab.report.words import metric_name, outcome_column, outcome_name, property_code, property_name

DrawnChart = alt.Chart | alt.LayerChart | alt.FacetChart
Channel = type[alt.Color] | type[alt.Stroke] | type[alt.Fill]
ARROWS = {-1: "falls toward collapse", 1: "rises toward collapse", 0: ""}


@dataclass(frozen=True)
class Panel:
    """One chart: `table` names its data, `numbers` describes in words what it shows."""

    key: str
    chart: DrawnChart
    table: str
    numbers: str
    metric: str = ""
    note: str = ""
    fit: str = ""
    """R² of the data before any filter; the page keeps it current."""
    height: int = 190
    name: str = ""
    """Heading of a panel that is not about one metric."""

    @property
    def code(self) -> str:
        return property_code(self.metric) if self.metric else ""

    @property
    def heading(self) -> str:
        return metric_name(self.metric) if self.metric else self.name

    @property
    def property(self) -> str:
        return property_name(self.metric)


@dataclass(frozen=True)
class Listing:
    """A table of text under a figure's caption."""

    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


@dataclass(frozen=True)
class Figure:
    """Panels that belong together, and the tables that they draw.

    The entry in `FIGURES` has its key, its title and the sentence that says what to look for. Without panels, `missing`
    says why.
    """

    caption: str = ""
    """How it was made."""
    panels: list[Panel] = field(default_factory=list)
    legend: tuple[str, ...] = ()
    key: str = ""
    title: str = ""
    look: str = ""
    missing: str = ""
    tables: Mapping[str, Columns] = field(default_factory=dict)
    lists: list[Listing] = field(default_factory=list)
    saved: Mapping[str, bytes] = field(default_factory=dict)
    """Further CSV tables by name, which are not in the folder but can be searched and saved on the page."""
    search: str = ""
    """Name of the table of tokens that the search form above the panels searches, if there is one."""
    filters: bool = False
    """Whether the form that filters and marks models is shown above the panels."""
    regimes: tuple[str, ...] = ()
    """Regimes of which the panels draw one at a time; the reader chooses, and `regime` comes first."""
    regime: str = ""
    axes: Mapping[str, str] = field(default_factory=dict)
    """Columns of the table `models` that the reader can choose as axes, with their titles."""
    axis: tuple[str, str] = ("", "")
    """The initial columns along x and y."""


def width_colour(keys: Keys) -> alt.Color:
    return alt.Color("wide:N", title="width", scale=width_scale(keys))


def width_scale(keys: Keys) -> alt.Scale:
    return alt.Scale(domain=keys.widths, range=[f"var(--w{i})" for i in range(len(keys.widths))])


def model_colour(keys: Keys, channel: Channel = alt.Color) -> alt.Color | alt.Stroke | alt.Fill:
    """Return the colour of a model of the table `models`: by width, or by family if widths do not differ."""
    if not keys.by_family:
        return channel("wide:N", title="width", scale=width_scale(keys))
    colours = [f"var(--c{i})" for i in range(len(keys.families))]
    return channel("family:N", title="family", scale=alt.Scale(domain=[*keys.families], range=colours))


def colour_legend(keys: Keys) -> str:
    """What the colour of a model means."""
    return "family" if keys.by_family else "width"


def depth_size(keys: Keys) -> alt.Size:
    """One area for each depth. The scale is ordinal: a point scale has no size for a single depth."""
    return alt.Size(
        "deep:O",
        title="depth",
        sort=keys.depths,
        scale=alt.Scale(type="ordinal", domain=keys.depths, range=depth_areas(len(keys.depths))),
    )


def depth_areas(count: int) -> list[float]:
    return [28 + 112 * i / max(count - 1, 1) if count > 1 else 60 for i in range(count)]


def training_shape(keys: Keys) -> alt.Shape:
    shapes = list(SHAPES[: len(keys.trainings)])
    return alt.Shape("training:N", title="training", scale=alt.Scale(domain=keys.trainings, range=shapes))


def tooltip(outcome: str, metrics: list[str]) -> list[alt.Tooltip]:
    """Return the tooltip of a model."""
    settings = {"run": "run", "checkpoint": "checkpoint", "family": "family", "training": "training"}
    shown = [alt.Tooltip(f"{name}:N", title=title) for name, title in settings.items()]
    shown.append(alt.Tooltip("parameters:Q", title="parameters", format=","))
    shown.append(alt.Tooltip(f"{outcome_column(outcome)}:Q", title=outcome_name(outcome), format=".4f"))
    return shown + [alt.Tooltip(f"{metric}:Q", title=metric, format=".4~g") for metric in metrics]


def run_curves(
    base: alt.Chart, shared: Mapping[str, object], detail: list[str], hover: list[alt.Tooltip], **of_lines: object
) -> DrawnChart:
    """Draw a line for each run and a dot for each of its points."""
    lines = base.mark_line(strokeWidth=1.3, opacity=0.75).encode(**shared, detail=detail, **of_lines)
    dots = base.mark_point(filled=True, size=22, opacity=0.85).encode(**shared, tooltip=hover)
    return alt.layer(lines, dots)


def line_dash(column: str, drawn: str, dashed: str) -> alt.StrokeDash:
    scale = alt.Scale(domain=[drawn, dashed], range=[[1, 0], [4, 3]])
    return alt.StrokeDash(f"{column}:N", legend=None, scale=scale)


def with_links(chart: DrawnChart) -> DrawnChart:
    """Add the two signals by which the page filters and highlights models in every panel."""
    everything = {"all": True}
    return chart.add_params(alt.param(name="shown", value=everything), alt.param(name="chosen", value=everything))


def direction(data: ReportData, metric: str) -> str:
    return ARROWS[data.models.toward[metric]] if data.models else ""


def joined(*parts: str) -> str:
    """Join the parts of a note that are not empty."""
    return " · ".join(filter(None, parts))


def extent(data: ReportData, metric: str) -> str:
    """Return the range of the values, in words."""
    assert data.models is not None
    values = data.models.trained[metric].dropna()
    return f"{values.min():.3g} to {values.max():.3g}" if len(values) else "not known"


def drawn_panel(panel: Panel, *, log: bool) -> Spec:
    """Compile a panel to Vega; the configuration, which all panels share, is left out."""
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
    """Split a panel into the panel without tooltips, and the tooltips: field, title and format.

    Vega would format the tooltips of all marks whenever it draws; the page formats only the one under the pointer.
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
    """Return the configuration of every panel, as Vega."""
    import vl_convert

    empty = {"data": {"values": []}, "mark": "point", "config": style.config()}
    config: Spec = vl_convert.vegalite_to_vega(empty)["config"]
    return config


def bare_spec(panel: Panel, *, legends: bool = False) -> Spec:
    """Return the panel as Vega-Lite, without data, size or configuration, and with legends only on request."""
    import altair as alt

    with alt.data_transformers.enable("default", consolidate_datasets=False):
        # a test validates every kind of panel; validating here would take seconds
        spec = panel.chart.to_dict(validate=False)
    for name in ("$schema", "config"):
        spec.pop(name, None)
    number_views(spec)
    if not legends:
        _drop_legends(spec)
    return spec


def number_views(spec: Spec, first: int = 1) -> int:
    """Number the names of layers by position, starting from `first`; return the next number.

    Some versions of Altair keep counting from chart to chart. Panels of one file need distinct names, as Vega names the
    scales of a layer after it.
    """
    layers = [part for part in (spec, *spec.get("layer", [])) if re.fullmatch(r"view_\d+", part.get("name", ""))]
    names = {layer["name"]: f"view_{number}" for number, layer in enumerate(layers, first)}
    for layer in layers:
        layer["name"] = names[layer["name"]]
    for param in spec.get("params", []):
        if "views" in param:
            param["views"] = [names.get(view, view) for view in param["views"]]
    return first + len(layers)


def _drop_legends(spec: Spec) -> None:
    for channel in ("color", "size", "shape", "stroke", "fill"):
        encoded = spec.get("encoding", {}).get(channel, {})
        for definition in (encoded, encoded.get("condition", {})):
            if "field" in definition:
                definition["legend"] = None
    for layer in spec.get("layer", []):
        _drop_legends(layer)
