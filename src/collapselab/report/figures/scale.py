"""Metrics against width, one training regime at a time."""

import altair as alt
import numpy as np

from collapselab.analysis.models import Regime, row_tuples
from collapselab.report.charts.axes import if_logarithmic, value_axis
from collapselab.report.charts.panels import Figure, Panel, depth_size, extent
from collapselab.report.data import ReportData
from collapselab.report.view import Columns, Keys, Line, View, columns, in_order, label
from collapselab.report.words import metric_name, regime_name, trend_note

TABLE = "sizes"


def width_lines(view: View) -> Figure | str:
    """Draw each metric over width, the mean of seeds at the end of each run; deeper models have larger points."""
    data = view.data
    table = _size_table(data)
    if len(set(table.get("wide", []))) < 2:
        return "All models have the same width."
    caption = (
        "Each point is a model at the end of its run, the mean where there are several seeds; a line joins models of "
        "one depth, and deeper ones have larger points."
    )
    regimes = tuple(dict.fromkeys(map(str, table["where"])))
    first = max(regimes, key=lambda where: table["where"].count(where))  # the regime with the most models
    panels = [_lines(data, view.keys, metric, table, first) for metric in data.main]
    return Figure(caption, panels, ("depth",), tables={TABLE: table}, regimes=regimes, regime=first)


def _size_table(data: ReportData) -> Columns:
    """Return the models at the end of their runs by regime, width and depth, averaged over seeds."""
    if data.models is None:
        return {}
    frame = data.models.trained
    ends = frame[frame["last"]].copy()
    others = [name for name in data.models.varying if name != "epoch"]
    several = data.models.frame["family"].nunique() > 1
    ends["where"] = [
        (f"{family}, " if several else "") + (regime_name(Regime.of(others, values)) if others else "all models")
        for family, values in zip(ends["family"], row_tuples(ends, others), strict=True)
    ]
    means = ends.groupby(["where", "width", "depth"], dropna=False)[data.main].mean().reset_index()
    lines: list[Line] = [
        {"where": line["where"], "wide": label(line["width"]), "deep": label(line["depth"])}
        | {metric: line[metric] for metric in data.main}
        for line in means.to_dict("records")
    ]
    return columns(lines)


def _lines(data: ReportData, keys: Keys, metric: str, table: Columns, regime: str) -> Panel:
    base = alt.Chart(alt.NamedData(TABLE)).transform_filter(f"isValid(datum['{metric}']) && datum.where === where")
    x = alt.X("wide:N", sort=in_order(table["wide"]), title="width", scale=alt.Scale(type="point", padding=0.4),
              axis=alt.Axis(labelAngle=0, grid=False))  # fmt: skip
    drawn = np.array([value for value in table[metric] if value is not None], dtype=float)
    y = value_axis(metric, if_logarithmic(data, metric, drawn[np.isfinite(drawn)]), alt.Y)
    hover = [alt.Tooltip("wide:N", title="width"), alt.Tooltip("deep:N", title="depth"),
             alt.Tooltip("where:N", title="training"),
             alt.Tooltip(f"{metric}:Q", title=metric, format=".4~g")]  # fmt: skip
    lines = base.mark_line(color="var(--accent)", strokeWidth=1.2, opacity=0.6).encode(x=x, y=y, detail="deep:N")
    dots = base.mark_point(filled=True, color="var(--accent)", opacity=0.8)
    dots = dots.encode(x=x, y=y, size=depth_size(keys), tooltip=hover)
    chart = alt.layer(lines, dots).add_params(alt.param(name="where", value=regime))
    rows = data.trends("width", metric)
    words = f"{metric_name(metric)} ({metric}) against width: values {extent(data, metric)}. {trend_note(rows)}"
    return Panel(f"width_lines-{metric}", chart, TABLE, words.strip(), metric, note=trend_note(rows))
