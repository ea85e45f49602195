"""Each metric against width, a line for each depth, as in the paper's appendix; one training regime at a time."""

import altair as alt
import numpy as np

from collapselab.report.charts.axes import if_logarithmic, value_axis
from collapselab.report.charts.panels import Figure, Panel, depth_size, extent
from collapselab.report.data import Columns, Keys, View, in_order
from collapselab.report.figures.heat_maps import first_regime, heat_table
from collapselab.report.story import Story
from collapselab.report.words import metric_name, trend_note, trend_words


def width_lines(view: View) -> Figure:
    """Lines over width, the points larger for deeper models."""
    title, story = "Against width, a line for each depth", view.story
    table = heat_table(story)
    if len(set(table.get("wide", []))) < 2:
        return Figure("width_lines", title, missing="All models are of one width.")
    caption = (
        "Each point is a model at the end of its run, the mean where there are several seeds; a line joins models of "
        "one depth, and deeper ones have larger points. The training is the one that is chosen above."
    )
    panels = [_lines(story, view.keys, metric, table) for metric in story.main]
    return Figure("width_lines", title, caption, panels, ("depth",), tables={"heat": table})


def _lines(story: Story, keys: Keys, metric: str, table: Columns) -> Panel:
    widths = in_order(table["wide"])
    data = alt.Chart(alt.NamedData("heat")).transform_filter(f"isValid(datum['{metric}']) && datum.where === where")
    x = alt.X("wide:N", sort=widths, title="width", scale=alt.Scale(type="point", padding=0.4),
              axis=alt.Axis(labelAngle=0, grid=False))  # fmt: skip
    drawn = np.array([value for value in table[metric] if value is not None], dtype=float)
    y = value_axis(metric, if_logarithmic(story, metric, drawn[np.isfinite(drawn)]))
    hover = [alt.Tooltip("wide:N", title="width"), alt.Tooltip("deep:N", title="depth"),
             alt.Tooltip("where:N", title="training"),
             alt.Tooltip(f"{metric}:Q", title=metric, format=".4~g")]  # fmt: skip
    lines = data.mark_line(color="var(--accent)", strokeWidth=1.2, opacity=0.6).encode(x=x, y=y, detail="deep:N")
    dots = data.mark_point(filled=True, color="var(--accent)", opacity=0.8)
    dots = dots.encode(x=x, y=y, size=depth_size(keys), tooltip=hover)
    chart = alt.layer(lines, dots).add_params(alt.param(name="where", value=first_regime(table)))
    rows = story.trends("width", metric)
    words = f"{metric_name(metric)} ({metric}) against width: values {extent(story, metric)}. {trend_words(rows)}"
    return Panel(f"width_lines-{metric}", chart, "heat", words.strip(), metric, note=trend_note(rows))
