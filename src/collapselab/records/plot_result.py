"""A metric of one result as a chart: from layer to layer, over bins of counts, or as one value beside its null."""

from typing import TYPE_CHECKING

from collapselab.core.metrics import METRICS
from collapselab.errors import did_you_mean

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

WIDTH, HEIGHT = 360, 220


def plot(name: str, frame: "pd.DataFrame", metric: str) -> "alt.Chart":
    """The chart; KeyError, with the nearest name, for a metric without a value."""
    import altair as alt

    rows = frame[(frame["metric"] == metric) & (frame["split"] == "train") & frame["value"].notna()]
    if rows.empty:
        known = METRICS if metric not in METRICS else ()
        raise KeyError(f"{metric}: no value of that name. {did_you_mean(metric, known)}".rstrip())
    layers, bins = rows[rows["bin"] == "all"], rows[rows["bin"] != "all"]
    if layers["layer"].nunique() > 1:
        places, along = layers.assign(place=layers["layer"]), "layer"
        order = [*sorted(set(layers["layer"]) - {"last"}, key=int), "last"]
    elif len(bins):
        places, along = bins.assign(place=bins["bin"]), "samples of the class"
        order = sorted(bins["bin"], key=lambda text: int(text.split("-")[0]))
    else:
        places, along, order = rows.assign(place=name), "model", [name]
    long = places.melt(id_vars="place", value_vars=["value", "null"], var_name="labels", value_name=metric).dropna()
    long["labels"] = long["labels"].map({"value": "as they are", "null": "shuffled"})
    chart: alt.Chart = alt.Chart(long, title=name).mark_line(point=True)
    return chart.encode(
        x=alt.X("place:N", sort=order, title=along),
        y=alt.Y(f"{metric}:Q", scale=alt.Scale(zero=False)),
        color=alt.Color("labels:N", title="labels"),
    ).properties(width=WIDTH, height=HEIGHT)
