"""Results as a notebook shows them: HTML tables, and a metric as a chart that holds its own data."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from collapselab.core.metrics import METRICS
from collapselab.errors import did_you_mean
from collapselab.records.tables import bin_start

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

WIDTH, HEIGHT = 360, 220


def plot(name: str, frame: "pd.DataFrame", metric: str) -> "alt.Chart":
    """The chart of one model; KeyError, with the nearest name, for a metric without a value."""
    import altair as alt

    rows = _rows(frame, metric)
    layers, bins = rows[rows["bin"] == "all"], rows[rows["bin"] != "all"]
    if layers["layer"].nunique() > 1:
        places, along, order = layers.assign(place=layers["layer"]), "layer", _layer_order(layers)
    elif len(bins):
        places, along = bins.assign(place=bins["bin"]), "samples of the class"
        order = sorted(bins["bin"], key=bin_start)
    else:
        places, along, order = rows.assign(place=name), "model", [name]
    long = _with_null(places, ["place"], metric)
    chart: alt.Chart = alt.Chart(long, title=name).mark_line(point=True)
    return chart.encode(
        x=alt.X("place:N", sort=order, title=along, axis=alt.Axis(labelAngle=0)),
        y=_axis(metric, long[metric]),
        color=alt.Color("labels:N", title="labels"),
        tooltip=["place:N", "labels:N", f"{metric}:Q"],
    ).properties(width=WIDTH, height=HEIGHT)


def plot_several(measured: Sequence[tuple[str, "pd.DataFrame"]], metric: str) -> "alt.Chart":
    """The chart of several models: a line each over the layers where these were measured, else a point each."""
    import altair as alt
    import pandas as pd

    if not measured:
        raise KeyError(f"{metric}: no value of that name. Nothing was measured.")
    frame = pd.concat([frame.assign(model=title) for title, frame in measured], ignore_index=True)
    rows = _rows(frame, metric)
    rows = rows[rows["bin"] == "all"]
    models = list(dict.fromkeys(rows["model"]))
    if rows["layer"].nunique() > 1:
        long = _with_null(rows, ["layer", "model"], metric)
        x = alt.X("layer:N", sort=_layer_order(rows), title="layer", axis=alt.Axis(labelAngle=0))
        names = alt.Legend(title="model", labelLimit=0)  # a run's checkpoints differ in the last letters
        lines = alt.Legend(
            title="labels", symbolType="stroke", symbolFillColor="transparent", symbolStrokeColor="black"
        )
        colour, dash = alt.Color("model:N", sort=models, legend=names), alt.StrokeDash("labels:N", legend=lines)
    else:
        long = _with_null(rows, ["model"], metric)
        x = alt.X("model:N", sort=models, title="model", axis=alt.Axis(labelLimit=0))
        colour, dash = alt.Color("labels:N", title="labels"), alt.StrokeDash("labels:N", legend=None)
    chart: alt.Chart = alt.Chart(long, title=metric).mark_line(point=True)
    tooltip = ["model:N", "labels:N", f"{metric}:Q"]
    return chart.encode(x=x, y=_axis(metric, long[metric]), color=colour, strokeDash=dash, tooltip=tooltip).properties(
        width=WIDTH, height=HEIGHT
    )


def _rows(frame: "pd.DataFrame", metric: str) -> "pd.DataFrame":
    rows = frame[(frame["metric"] == metric) & (frame["split"] == "train") & frame["value"].notna()]
    if rows.empty:
        known = METRICS if metric not in METRICS else ()
        raise KeyError(f"{metric}: no value of that name. {did_you_mean(metric, known)}".rstrip())
    return rows


def _layer_order(rows: "pd.DataFrame") -> list[str]:
    return [*sorted(set(rows["layer"]) - {"last"}, key=int), "last"]


def _with_null(rows: "pd.DataFrame", places: list[str], metric: str) -> "pd.DataFrame":
    """A row for the value and one for its null, where there is one."""
    long = rows.melt(id_vars=places, value_vars=["value", "null"], var_name="labels", value_name=metric).dropna()
    return long.assign(labels=long["labels"].map({"value": "as they are", "null": "shuffled"}))


def _axis(metric: str, values: "pd.Series[float]") -> "alt.Y":
    """The values on the metric's own scale: a null a hundred times as large would press all others onto the axis."""
    import altair as alt

    logarithmic = metric in METRICS and METRICS[metric].transform == "log" and bool((values > 0).all())
    return alt.Y(f"{metric}:Q", scale=alt.Scale(type="log") if logarithmic else alt.Scale(zero=False))


MOST_COLUMNS = 8
"""Models side by side that a page has room for; the frame has them all."""


def result_html(title: str, frame: "pd.DataFrame", tables: Sequence[str]) -> str:
    """One model: every metric of the last layer beside its null."""
    columns = ["metric", "value", "null", "classes", "tokens"]
    table = _last_layer(frame)[columns].to_html(index=False, float_format="{:.4g}".format, na_rep="–", border=0)
    return f"<p><b>{escape(title)}</b></p>{table}<p>tables: {escape(', '.join(tables))}</p>"


def results_html(measured: Sequence[tuple[str, "pd.DataFrame"]], failures: Mapping[str, str]) -> str:
    """Several models: a column each, up to `MOST_COLUMNS`, and below them what could not be measured."""
    import pandas as pd

    shown = measured[:MOST_COLUMNS]
    columns = [_last_layer(frame).set_index("metric")["value"].rename(title) for title, frame in shown]
    parts = []
    if columns:
        table = pd.concat(columns, axis=1).rename_axis("metric").reset_index()
        parts.append(table.to_html(index=False, float_format="{:.4g}".format, na_rep="–", border=0))
    if left := len(measured) - len(shown):
        parts.append(f"<p>and {left:,} more: <code>to_frame()</code> has them all.</p>")
    parts += [f"<p><b>{escape(name)}</b>: {escape(why)}</p>" for name, why in failures.items()]
    return "".join(parts) or "<p>nothing was measured.</p>"


def _last_layer(frame: "pd.DataFrame") -> "pd.DataFrame":
    return frame[(frame["layer"] == "last") & (frame["bin"] == "all") & (frame["split"] == "train")]
