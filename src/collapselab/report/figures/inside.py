"""Inside the model, where measured: metrics over layers and class frequencies, under steering, and agreeing deciders.

A line is a run, at its last checkpoint that has the measurement.
"""

from collections import defaultdict

import altair as alt
import pandas as pd

from collapselab.analysis.words import many
from collapselab.records.tables import DeciderRow, PushRow, Row, bin_start
from collapselab.report.charts.axes import value_axis, whole_ticks
from collapselab.report.charts.panels import (
    Figure,
    Panel,
    colour_legend,
    direction,
    line_dash,
    model_colour,
    run_curves,
    width_colour,
)
from collapselab.report.data import Latest
from collapselab.report.view import Columns, Line, View, columns
from collapselab.report.words import metric_name

LAST, ALL = "last", "all"
Places = list[tuple[int | str, Row]]
"""Results with their layer or their bin of classes."""


def layers(view: View) -> Figure | str:
    """Draw each metric from block to block, for every run at its last measured checkpoint."""
    rows = [row for row in view.data.rows if row.bin == ALL and row.split == "train" and row.value is not None]
    measured = {(row.run, row.checkpoint) for row in rows if row.layer != LAST}
    if not measured:
        return "No layer but the last was measured (`--layers all` measures every one)."
    chosen = view.data.latest(measured)
    places: Places = []
    for row in rows:
        if run := chosen.get((row.run, row.checkpoint)):
            if row.layer != LAST:
                places.append((int(row.layer), row))
            elif run["depth"] is not None:  # the output layer's input comes after the last block
                places.append((int(run["depth"]) + 1, row))
    ticks = alt.Axis(format="d", values=whole_ticks(int(place) for place, _ in places))
    axis = alt.X("place:Q", title="layer", axis=ticks, scale=alt.Scale(zero=False))
    caption = "A line is a run. Its last dot is the vector that enters the output layer, after the final norm."
    return _curves(view, "layers", caption, places, axis, chosen)


def bins(view: View) -> Figure | str:
    """Draw each metric over bins of class frequency, for every run at its last measured checkpoint."""
    rows = [row for row in view.data.rows if row.layer == LAST and row.split == "train" and row.value is not None]
    rows = [row for row in rows if row.bin != ALL]
    if not rows:
        return "Classes were not separated by frequency (`--bins N` does)."
    chosen = view.data.latest({(row.run, row.checkpoint) for row in rows})
    caption = "A line is a run; each point covers only the classes with this many occurrences in training."
    places: Places = [(row.bin, row) for row in rows if (row.run, row.checkpoint) in chosen]
    axis = alt.X(
        "place:N", sort=sorted({row.bin for row in rows}, key=bin_start), title="occurrences of the class",
        axis=alt.Axis(labelAngle=-35, labelOverlap=False),
    )  # fmt: skip
    return _curves(view, "bins", caption, places, axis, chosen)


def _curves(view: View, key: str, caption: str, places: Places, axis: alt.X, chosen: Latest) -> Figure:
    """The figure with a panel for every main metric that varies along `axis`."""
    tables, panels = {}, []
    varying = {row.metric for _, row in places if (row.layer, row.bin) != (LAST, ALL)}
    for metric in [metric for metric in view.data.main if metric in varying]:
        points = [
            view.of_run(chosen[row.run, row.checkpoint])
            | {"place": place, "value": row.value, "null": row.null, "classes": row.classes}
            for place, row in places
            if row.metric == metric
        ]
        tables[f"{key} {metric}"] = columns(points)
        panels.append(_curve(key, view, metric, pd.DataFrame(points), axis))
    return Figure(caption, panels, () if view.single else (colour_legend(view.keys),), tables=tables)


def _curve(key: str, view: View, metric: str, points: pd.DataFrame, axis: alt.X) -> Panel:
    values = points["value"]
    log = bool(len(values) and values.min() > 0 and values.max() >= 10 * values.min())
    base = alt.Chart(alt.NamedData(f"{key} {metric}"))
    y = value_axis("value", values.to_numpy(dtype=float) if log else None, alt.Y).title(metric)
    hover = [alt.Tooltip("run:N"), alt.Tooltip("place:N", title="layer" if key == "layers" else "occurrences"),
             alt.Tooltip("classes:Q", format=","), alt.Tooltip("value:Q", title=metric, format=".4~g"),
             alt.Tooltip("null:Q", title="shuffled labels", format=".4~g")]  # fmt: skip
    chart = run_curves(base, {"x": axis, "y": y, "color": model_colour(view.keys)}, ["run:N"], hover)
    medians = points.groupby("place")["value"].median()
    if key == "bins":
        medians = medians.sort_index(key=lambda places: places.map(bin_start))
    words = ", ".join(f"{place} {value:.3g}" for place, value in medians.items())
    numbers = f"{metric_name(metric)} ({metric}), median of {points['run'].nunique()} runs by {key}: {words}."
    height = 140 if view.single else 190
    note = direction(view.data, metric)
    return Panel(f"{key}-{metric}", chart, f"{key} {metric}", numbers, metric, note=note, height=height)


SHOWN = {"loss": "loss minus loss at α = 0", "ece": "calibration error", "agreement": "agreement"}
"""Columns of the table `push` that are drawn, with the titles of their axes."""
HEADS = {"own": "output layer", "centres": "nearest class mean"}


def push(view: View) -> Figure | str:
    """Draw the table `push` against α, for every run at its last measured checkpoint."""
    rows: list[PushRow] = view.data.tables.tables.get("push", [])
    if not rows:
        return "Features were not moved (`--push default` does)."
    chosen = view.data.latest({(row.run, row.checkpoint) for row in rows})
    caption = (
        "Every validation feature h moves to h + α (Σ p_c μ_c − h), toward the class means that the model itself "
        "expects (α > 0) or away from them. A line is a run; dashed, the head that chooses by the nearest class mean. "
        "Nothing is trained."
    )
    rows = [row for row in rows if (row.run, row.checkpoint) in chosen]
    start = {(row.run, row.head): row.loss for row in rows if row.alpha == 0}
    tables, panels = {}, []
    for name, title in SHOWN.items():
        points: list[Line] = []
        for row in rows:
            value = getattr(row, name)
            if name == "loss" and value is not None:
                first = start.get((row.run, row.head))
                value = None if first is None else value - first
            if value is not None:
                about: Line = {"alpha": row.alpha, "value": value, "head": HEADS.get(row.head, row.head)}
                points.append(view.of_run(chosen[row.run, row.checkpoint]) | about)
        if points:
            tables[f"push {name}"] = columns(points)
            panels.append(_push_panel(view, name, title, pd.DataFrame(points)))
    return Figure(caption, panels, ("width",), tables=tables)


def _push_panel(view: View, name: str, title: str, points: pd.DataFrame) -> Panel:
    shared = {
        "x": alt.X("alpha:Q", title="α"),
        "y": alt.Y("value:Q", title=title, scale=alt.Scale(zero=False)),
        "color": width_colour(view.keys),
    }
    hover = [alt.Tooltip("run:N"), alt.Tooltip("head:N"), alt.Tooltip("alpha:Q", title="α"),
             alt.Tooltip("value:Q", title=name, format=".4~g")]  # fmt: skip
    base = alt.Chart(alt.NamedData(f"push {name}"))
    chart = run_curves(base, shared, ["run:N"], hover, strokeDash=line_dash("head", *HEADS.values()))
    own = points[points["head"] == HEADS["own"]]
    words = ", ".join(f"α {alpha:g} {value:.3g}" for alpha, value in own.groupby("alpha")["value"].median().items())
    numbers = f"{title}, median of {own['run'].nunique()} runs: {words}."
    return Panel(f"push-{name}", chart, f"push {name}", numbers, name=title.capitalize())


CELL = 30
MOST_PANELS = 4
NAMES = {"token": "next token", "head": "output layer"}
Shares = dict[tuple[str, str], float]


def deciders(view: View) -> Figure | str:
    """Draw the table `deciders` as squares: models of one depth together, each at its last measured checkpoint."""
    rows: list[DeciderRow] = view.data.tables.tables.get("deciders", [])
    if not rows:
        return "Deciders were not compared (`--layers all --deciders` does)."
    chosen = view.data.latest({(row.run, row.checkpoint) for row in rows})
    caption = (
        "Share of validation tokens on which two deciders choose the same class: the next token itself (agreement with "
        "it is accuracy), the output layer, the nearest class centre of each layer, and the logit lens, which reads a "
        "layer through the final norm and the output layer. Mean over runs of the same layers."
    )
    by_run: dict[str, Shares] = defaultdict(dict)
    for row in rows:
        if (row.run, row.checkpoint) in chosen:
            by_run[row.run][row.first, row.second] = row.agreement
    groups: dict[tuple[str, ...], list[Shares]] = defaultdict(list)
    for shares in by_run.values():
        groups[tuple(dict.fromkeys(name for pair in shares for name in pair))].append(shares)
    tables, panels = {}, []
    for names in sorted(groups, key=len)[-MOST_PANELS:]:
        table = f"deciders {len(names)}"
        tables[table] = _agreements(names, groups[names])
        blocks = sum(name.startswith("lens") for name in names)
        title = f"{many(blocks, 'block')}, {many(len(groups[names]), 'run')}"
        panels.append(_matrix(names, table, title, tables[table]))
    return Figure(caption, panels, tables=tables)


def _agreements(names: tuple[str, ...], runs: list[Shares]) -> Columns:
    lines: list[Line] = []
    for i, down in enumerate(names):
        for across in names[:i]:
            values = [shares[across, down] for shares in runs if (across, down) in shares]
            share = sum(values) / len(values) if values else None
            lines.append({
                "down": NAMES.get(down, down), "across": NAMES.get(across, across), "share": share,
                "text": "–" if share is None else f"{share:.2f}",
            })  # fmt: skip
    return columns(lines)


def _matrix(names: tuple[str, ...], table: str, title: str, content: Columns) -> Panel:
    shown = [NAMES.get(name, name) for name in names]
    number = f"indexof({shown!r}, datum.value) + 1"
    cells = alt.Chart(alt.NamedData(table))
    place = {
        "x": alt.X("across:N", sort=shown, title=None, scale=alt.Scale(domain=shown[:-1]),
                   axis=alt.Axis(labelAngle=0, labelExpr=number, domain=False, ticks=False, orient="top")),
        "y": alt.Y("down:N", sort=shown, title=None, scale=alt.Scale(domain=shown),
                   axis=alt.Axis(labelExpr=f"({number}) + '  ' + datum.value", domain=False, ticks=False,
                                 labelLimit=200)),
    }  # fmt: skip
    hover = [alt.Tooltip("down:N", title="one"), alt.Tooltip("across:N", title="other"),
             alt.Tooltip("share:Q", title="agree on", format=".3f")]  # fmt: skip
    # At half the opacity text is still readable on the colour.
    shade = alt.Opacity("share:Q", scale=alt.Scale(domain=[0, 1], range=[0, 0.5]), legend=None)
    tiles = cells.mark_rect(color="var(--accent)", cornerRadius=3).encode(**place, opacity=shade, tooltip=hover)
    words = cells.mark_text(fontSize=10).encode(**place, text="text:N")
    pairs = zip(content["down"], content["across"], content["text"], strict=True)
    said = "; ".join(f"{down} with {across} {text}" for down, across, text in pairs)
    chart = alt.layer(tiles, words)
    key = table.replace(" ", "-")
    return Panel(key, chart, table, f"{title}: {said}.", height=CELL * len(names) + 24, name=title)
