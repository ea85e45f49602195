"""Inside the model: each metric from layer to layer, and from rare classes to frequent ones, where that was measured.

A line is a run, at its last checkpoint that was measured so.
"""

from dataclasses import replace

import altair as alt
import pandas as pd

from collapselab.records.tables import Row, bin_start
from collapselab.report.charts.axes import value_axis, whole_ticks
from collapselab.report.charts.panels import Figure, Panel, width_colour
from collapselab.report.data import Keys, View, columns, label
from collapselab.report.story import Latest
from collapselab.report.words import metric_name

LAST, ALL = "last", "all"
Places = list[tuple[int | str, Row]]
"""Results with the layer or the bin of classes that they are about."""


def layers(view: View) -> Figure:
    """Each metric from block to block, of every run at its last measured checkpoint."""
    title, story = "From layer to layer", view.story
    rows = [row for row in story.rows if row.bin == ALL and row.split == "train" and row.value is not None]
    measured = {(row.run, row.checkpoint) for row in rows if row.layer != LAST}
    if not measured:
        missing = "No layer but the last was measured (`--layers all` measures every one)."
        return Figure("layers", title, missing=missing)
    chosen = story.latest(measured)
    caption = (
        "A line is a run at its last checkpoint that was measured layer by layer. Its last dot is the vector that "
        "enters the output layer, after the final norm."
    )
    places: Places = []
    for row in rows:
        if run := chosen.get((row.run, row.checkpoint)):
            if row.layer != LAST:
                places.append((int(row.layer), row))
            elif run["depth"] is not None:  # the output layer's input comes after the last block
                places.append((int(run["depth"]) + 1, row))
    ticks = alt.Axis(format="d", values=whole_ticks(int(place) for place, _ in places))
    axis = alt.X("place:Q", title="layer", axis=ticks, scale=alt.Scale(zero=False))
    return _curves(view, Figure("layers", title, caption), places, axis, chosen)


def bins(view: View) -> Figure:
    """Each metric over bins of how often the classes occur, of every run at its last measured checkpoint."""
    title, story = "From rare classes to frequent ones", view.story
    rows = [row for row in story.rows if row.layer == LAST and row.split == "train" and row.value is not None]
    rows = [row for row in rows if row.bin != ALL]
    if not rows:
        return Figure("bins", title, missing="Classes were not separated by frequency (`--bins N` does).")
    chosen = story.latest({(row.run, row.checkpoint) for row in rows})
    caption = "A line is a run; along it the classes are those that occur this many times in training, and no others."
    places: Places = [(row.bin, row) for row in rows if (row.run, row.checkpoint) in chosen]
    axis = alt.X(
        "place:N", sort=sorted({row.bin for row in rows}, key=bin_start), title="occurrences of the class",
        axis=alt.Axis(labelAngle=-35, labelOverlap=False),
    )  # fmt: skip
    return _curves(view, Figure("bins", title, caption), places, axis, chosen)


def _curves(view: View, figure: Figure, places: Places, axis: alt.X, chosen: Latest) -> Figure:
    """The figure with a panel for every main metric that varies along `axis`."""
    tables, panels = {}, []
    varying = {row.metric for _, row in places if (row.layer, row.bin) != (LAST, ALL)}
    for metric in [metric for metric in view.story.main if metric in varying]:
        points = [
            {"place": place, "value": row.value, "run": row.run, "classes": row.classes,
             "wide": label(chosen[row.run, row.checkpoint]["width"]),
             "deep": label(chosen[row.run, row.checkpoint]["depth"])}
            for place, row in places if row.metric == metric
        ]  # fmt: skip
        tables[f"{figure.key} {metric}"] = columns(points)
        panels.append(_curve(figure.key, view.keys, metric, pd.DataFrame(points), axis))
    return replace(figure, panels=panels, legend=("width",), tables=tables)


def _curve(key: str, keys: Keys, metric: str, points: pd.DataFrame, axis: alt.X) -> Panel:
    values = points["value"]
    log = bool(len(values) and values.min() > 0 and values.max() >= 10 * values.min())
    data = alt.Chart(alt.NamedData(f"{key} {metric}"))
    y = value_axis("value", values.to_numpy(dtype=float) if log else None).title(metric)
    shared = {"x": axis, "y": y, "color": width_colour(keys)}
    hover = [alt.Tooltip("run:N"), alt.Tooltip("wide:N", title="width"), alt.Tooltip("deep:N", title="depth"),
             alt.Tooltip("place:N", title="layer" if key == "layers" else "occurrences"),
             alt.Tooltip("classes:Q", format=","), alt.Tooltip("value:Q", title=metric, format=".4~g")]  # fmt: skip
    lines = data.mark_line(strokeWidth=1.3, opacity=0.7).encode(**shared, detail="run:N")
    dots = data.mark_point(filled=True, size=20, opacity=0.85).encode(**shared, tooltip=hover)
    medians = points.groupby("place")["value"].median()
    if key == "bins":
        medians = medians.sort_index(key=lambda places: places.map(bin_start))
    words = ", ".join(f"{place} {value:.3g}" for place, value in medians.items())
    numbers = f"{metric_name(metric)} ({metric}), median of {points['run'].nunique()} runs by {key}: {words}."
    return Panel(f"{key}-{metric}", alt.layer(lines, dots), f"{key} {metric}", numbers, metric)
