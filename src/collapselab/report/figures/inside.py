"""Inside the model, where that was measured: over its layers, over how often classes occur, and the corpus itself."""

from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd

from collapselab.corpus.blocks import Corpus
from collapselab.errors import UserError
from collapselab.records.tables import Row
from collapselab.report.charts.axes import value_axis
from collapselab.report.charts.panels import Figure, Panel, width_colour
from collapselab.report.data import Columns, Keys, columns, label
from collapselab.report.story import Story
from collapselab.report.words import metric_name

LAST = "last"
POINTS = 600
"""Ranks that are drawn, evenly spaced on the logarithmic axis."""


def layers(story: Story, keys: Keys) -> tuple[Figure, dict[str, Columns]]:
    """Each metric from block to block, of every run at its last measured checkpoint."""
    title = "From layer to layer"
    rows = [row for row in story.rows if row.bin == "all" and row.split == "train" and row.value is not None]
    measured = {(row.run, row.checkpoint) for row in rows if row.layer != LAST}
    if not measured:
        return Figure(
            "layers", title, missing="No layer but the last was measured (`--layers all` measures every one)."
        ), {}
    chosen = _latest(story, measured)
    caption = (
        "A line is a run at its last checkpoint that was measured layer by layer. Its last dot is the vector that "
        "enters the output layer, after the final norm."
    )
    lines = [(_depth(row, chosen), row) for row in rows if (row.run, row.checkpoint) in chosen]
    return _curves("layers", title, caption, story, keys, lines, alt.X("place:Q", title="layer", axis=alt.Axis(
        format="d", tickMinStep=1), scale=alt.Scale(zero=False)), chosen)  # fmt: skip


def bins(story: Story, keys: Keys) -> tuple[Figure, dict[str, Columns]]:
    """Each metric over bins of how often the classes occur, of every run at its last measured checkpoint."""
    title = "From rare classes to frequent ones"
    rows = [row for row in story.rows if row.layer == LAST and row.split == "train" and row.value is not None]
    measured = {(row.run, row.checkpoint) for row in rows if row.bin != "all"}
    if not measured:
        return Figure("bins", title, missing="Classes were not told apart by frequency (`--bins N` does)."), {}
    chosen = _latest(story, measured)
    found = sorted({row.bin for row in rows if row.bin != "all"}, key=_low)
    caption = "A line is a run; along it the classes are those that occur so many times in training, and no others."
    lines: list[tuple[Any, Row]] = [
        (row.bin, row) for row in rows if (row.run, row.checkpoint) in chosen and row.bin != "all"
    ]
    axis = alt.X(
        "place:N", sort=found, title="occurrences of the class", axis=alt.Axis(labelAngle=-35, labelOverlap=False)
    )
    return _curves("bins", title, caption, story, keys, lines, axis, chosen)


def _latest(story: Story, measured: set[tuple[str, str]]) -> dict[tuple[str, str], dict[str, Any]]:
    """Of each run the last checkpoint among these, with the run's own line."""
    latest: dict[str, dict[str, Any]] = {}
    for run in story.runs:
        if (run["run"], run["checkpoint"]) in measured:
            before = latest.get(run["run"])
            if before is None or _epoch(run) >= _epoch(before):
                latest[run["run"]] = run
    return {(run["run"], run["checkpoint"]): run for run in latest.values()}


def _epoch(run: dict[str, Any]) -> float:
    return 0.0 if run["epoch"] is None else float(run["epoch"])


def _depth(row: Row, chosen: dict[tuple[str, str], dict[str, Any]]) -> int | None:
    """The layer's number; the output layer's input comes after the last block."""
    if row.layer != LAST:
        return int(row.layer)
    depth = chosen[row.run, row.checkpoint]["depth"]
    return None if depth is None else int(depth) + 1


def _low(name: str) -> float:
    return float(name.split("-")[0].replace(",", ""))


def _curves(
    key: str, title: str, caption: str, story: Story, keys: Keys, lines: list[tuple[Any, Row]], axis: Any, chosen: Any
) -> tuple[Figure, dict[str, Columns]]:
    tables, panels = {}, []
    along = {row.metric for _, row in lines if (row.layer, row.bin) != (LAST, "all")}
    for metric in [metric for metric in story.main if metric in along]:
        told = [
            {"place": place, "value": row.value, "run": row.run, "classes": row.classes,
             "wide": label(_number(chosen[row.run, row.checkpoint]["width"])),
             "deep": label(_number(chosen[row.run, row.checkpoint]["depth"]))}
            for place, row in lines if row.metric == metric and place is not None
        ]  # fmt: skip
        tables[f"{key} {metric}"] = columns(told)
        panels.append(_curve(key, keys, metric, pd.DataFrame(told), axis))
    return Figure(key, title, caption, panels, ("width",)), tables


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _curve(key: str, keys: Keys, metric: str, told: pd.DataFrame, axis: Any) -> Panel:
    values = told["value"]
    log = bool(len(values) and values.min() > 0 and values.max() >= 10 * values.min())
    data = alt.Chart(alt.NamedData(f"{key} {metric}"))
    y = value_axis("value", values.to_numpy(dtype=float) if log else None).title(metric)
    shared = {"x": axis, "y": y, "color": width_colour(keys)}
    hover = [alt.Tooltip("run:N"), alt.Tooltip("wide:N", title="width"), alt.Tooltip("deep:N", title="depth"),
             alt.Tooltip("place:N", title="layer" if key == "layers" else "occurrences"),
             alt.Tooltip("classes:Q", format=","), alt.Tooltip("value:Q", title=metric, format=".4~g")]  # fmt: skip
    lines = data.mark_line(strokeWidth=1.3, opacity=0.7).encode(**shared, detail="run:N")
    dots = data.mark_point(filled=True, size=20, opacity=0.85).encode(**shared, tooltip=hover)
    medians = told.groupby("place", sort=False)["value"].median()
    words = ", ".join(f"{place} {value:.3g}" for place, value in medians.sort_index(key=_in_order).items())
    numbers = f"{metric_name(metric)} ({metric}), median of {told['run'].nunique()} runs by {key}: {words}."
    return Panel(f"{key}-{metric}", alt.layer(lines, dots), f"{key} {metric}", numbers, metric)


def _in_order(places: Any) -> Any:
    return places.map(lambda place: _low(place) if isinstance(place, str) else place)


def classes(corpus: Path | None, *, asked_for: bool = True) -> tuple[Figure, dict[str, Columns]]:
    """How often each class is the next token, by rank; a corpus that nobody asked for may be damaged, which is said."""
    title = "How often classes occur"
    if corpus is None:
        return Figure("classes", title, missing="The corpus is not at hand (`--corpus DIR` names it)."), {}
    try:
        counts = Corpus(corpus).train.counts.sort(descending=True).values
    except UserError as error:
        if asked_for:
            raise
        return Figure("classes", title, missing=str(error)), {}
    seen, total = int((counts > 0).sum()), int(counts.sum())
    ranks = sorted({round(seen ** (step / (POINTS - 1))) for step in range(POINTS)}) if seen else []
    table = columns([{"rank": rank, "count": int(counts[rank - 1])} for rank in ranks])
    decades = [10.0**power for power in range(len(str(total)))]
    x = alt.X("rank:Q", scale=alt.Scale(type="log", nice=False), title="rank of the class",
              axis=alt.Axis(values=decades, format="~s"))  # fmt: skip
    y = alt.Y("count:Q", scale=alt.Scale(type="log"), title="times it is the next token",
              axis=alt.Axis(values=decades, format="~s"))  # fmt: skip
    points = alt.Chart(alt.NamedData("classes")).mark_point(filled=True, size=16, color="var(--accent)", opacity=0.8)
    half = int((counts.cumsum(0) * 2 < total).sum()) + 1
    once = int((counts == 1).sum())
    words = (
        f"{seen:,} classes in {total:,} training tokens; the most frequent {half:,} make up half of them, {once:,} "
        "occur once."
    )
    panel = Panel("classes-rank", points.encode(x=x, y=y, tooltip=["rank:Q", "count:Q"]), "classes", words)
    return Figure("classes", title, words, [panel]), {"classes": table}
