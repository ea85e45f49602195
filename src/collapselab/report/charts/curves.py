"""Curves: a metric of each run along something inside the model, at the last checkpoint that was measured so."""

from typing import Any

import altair as alt
import pandas as pd

from collapselab.records.tables import Row, Run
from collapselab.report.charts.axes import value_axis
from collapselab.report.charts.panels import Figure, Panel, width_colour
from collapselab.report.data import Keys, columns, label
from collapselab.report.story import Story
from collapselab.report.view import View
from collapselab.report.words import metric_name

LAST = "last"
Latest = dict[tuple[str, str], Run]
"""Of each run the last measured checkpoint, with its line of the table of runs."""


def latest(story: Story, measured: set[tuple[str, str]]) -> Latest:
    """Of each run the last checkpoint among these, with the run's own line."""
    last: dict[str, Run] = {}
    for run in story.runs:
        if (run["run"], run["checkpoint"]) in measured:
            before = last.get(run["run"])
            if before is None or _epoch(run) >= _epoch(before):
                last[run["run"]] = run
    return {(run["run"], run["checkpoint"]): run for run in last.values()}


def _epoch(run: Run) -> float:
    return 0.0 if run["epoch"] is None else float(run["epoch"])


def bin_start(name: str) -> float:
    """The least number of occurrences in a bin."""
    return float(name.split("-")[0].replace(",", ""))


def curves(
    view: View, key: str, title: str, caption: str, *, lines: list[tuple[Any, Row]], axis: Any, chosen: Latest
) -> Figure:
    """A panel for every main metric that varies along `axis`; `lines` are places on it with their results."""
    tables, panels = {}, []
    along = {row.metric for _, row in lines if (row.layer, row.bin) != (LAST, "all")}
    for metric in [metric for metric in view.story.main if metric in along]:
        points = [
            {"place": place, "value": row.value, "run": row.run, "classes": row.classes,
             "wide": label(_number(chosen[row.run, row.checkpoint]["width"])),
             "deep": label(_number(chosen[row.run, row.checkpoint]["depth"]))}
            for place, row in lines if row.metric == metric and place is not None
        ]  # fmt: skip
        tables[f"{key} {metric}"] = columns(points)
        panels.append(_curve(key, view.keys, metric, pd.DataFrame(points), axis))
    return Figure(key, title, caption, panels, ("width",), tables=tables)


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _curve(key: str, keys: Keys, metric: str, points: pd.DataFrame, axis: Any) -> Panel:
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
    medians = points.groupby("place", sort=False)["value"].median()
    words = ", ".join(f"{place} {value:.3g}" for place, value in medians.sort_index(key=_in_order).items())
    numbers = f"{metric_name(metric)} ({metric}), median of {points['run'].nunique()} runs by {key}: {words}."
    return Panel(f"{key}-{metric}", alt.layer(lines, dots), f"{key} {metric}", numbers, metric)


def _in_order(places: Any) -> Any:
    return places.map(lambda place: bin_start(place) if isinstance(place, str) else place)
