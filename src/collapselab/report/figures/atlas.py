"""Atlas: collected models side by side, each as a point at its last checkpoint, along its training, through its depth.

Models of several corpora have panels of their own for each corpus. Losses of several tokenizers are in bits per byte.
Training is measured in tokens; where these are not known of every model, as a share of the last step of each, since a
step of one model is not that of another.
"""

from collections.abc import Callable
from dataclasses import replace

import altair as alt
import pandas as pd

from collapselab.core.catalogue import METRICS
from collapselab.report.charts.axes import NUMBER, WIDE, log_ticks, value_axis
from collapselab.report.charts.panels import DrawnChart, Figure, Panel
from collapselab.report.charts.style import CATEGORIES, SHAPES
from collapselab.report.data import Columns, Line, View, columns, lines, plain
from collapselab.report.story import Story
from collapselab.report.words import metric_name, outcome_column, outcome_name

Draw = Callable[[Story, str, pd.DataFrame, str, tuple[str, ...]], Panel]
"""What draws a panel: of a story, the name of a table, its lines, a metric or the outcome, and the coloured series."""

NOT_COLLECTED = "No models were collected here (`collapselab collect`)."
NAMED = 12
"""Models whose names are written beside their points where colours are families; of more they are shown on hovering."""
SHARE, EPOCH = "share of the last step", "epoch"
NEAR = 1.5
"""A null this many spans of the values away from them is not drawn: it would flatten them."""
LAST, ALL = "last", "all"


def is_atlas(story: Story) -> bool:
    """Whether the folder holds collected models: they say their vocabulary."""
    return any(run.get("vocabulary") is not None for run in story.runs)


def atlas_models(view: View) -> Figure:
    """Each metric, and the outcome, over the number of parameters; a point is a model at its last checkpoint."""
    story, title = view.story, "Models as points"
    known = _collected(view)
    if known.empty:
        return Figure("atlas_models", title, missing=NOT_COLLECTED)
    known = known[known["last"] & known["parameters"].notna()]
    if known.empty:
        return Figure(
            "atlas_models", title, missing="The parameters of no model are known (`collect --facts` says them)."
        )
    series = _series(known)
    tokenizers = sorted(known["tokenizer"].dropna().unique())
    caption = (
        "A point is a model at its last checkpoint. A grey dash is the same model’s value with shuffled labels, where "
        "that is near enough to be drawn."
    )
    if len(tokenizers) > 1:
        caption += (
            f" The shape is the tokenizer, of which there are {len(tokenizers)}: classes are the tokens of each, so "
            "that values are of other classes, and of another number of them."
        )
    figure = Figure("atlas_models", title, caption, series=tuple(series))
    names = [outcome_column(story.outcome), *story.main]
    return _with_panels(figure, view, known, names, _point_panel)


def atlas_training(view: View) -> Figure:
    """Each metric along the training of every model that was measured at several steps."""
    title = "Along the training of each model"
    known = _collected(view)
    if known.empty:
        return Figure("atlas_training", title, missing=NOT_COLLECTED)
    known = known[known["progress"].notna()]
    known = known[known.groupby("run")["progress"].transform("nunique") > 1]
    if known.empty:
        return Figure("atlas_training", title, missing="Every model was measured at one step only.")
    known, along = _along(known)
    caption = f"A line is a model, a dot one of its checkpoints. Across: {along}."
    figure = Figure("atlas_training", title, caption, series=tuple(_series(known)))
    names = [outcome_column(view.story.outcome), *view.story.main]
    return _with_panels(figure, view, known.assign(along=along), names, _training_panel)


def atlas_layers(view: View) -> Figure:
    """Each metric through the relative depth of every model at its last checkpoint."""
    title = "Layers side by side"
    known = _collected(view)
    if known.empty:
        return Figure("atlas_layers", title, missing=NOT_COLLECTED)
    rows = _layer_rows(view, known[known["last"]])
    if rows.empty:
        missing = "No layer but the last was measured (`measure --layers all` measures every one)."
        return Figure("atlas_layers", title, missing=missing)
    caption = "Across is the share of a model’s blocks; at 1 is the vector that enters the output layer."
    figure = Figure("atlas_layers", title, caption, series=tuple(_series(rows)))
    names = [metric for metric in view.story.main if metric in rows]
    return _with_panels(figure, view, rows, names, _layer_panel)


def _collected(view: View) -> pd.DataFrame:
    """The models of the story, with `series`, `label` and `progress`; empty where none were collected."""
    frame = pd.DataFrame(lines(view.models))
    if frame.empty or not is_atlas(view.story) or "vocabulary" not in frame:
        return pd.DataFrame()
    frame = frame[frame["source"] == 0].reset_index(drop=True)
    for name in ("step", "tokenizer", "corpus"):
        frame[name] = frame.get(name)
    runs = list(dict.fromkeys(frame["run"]))
    by = frame["run"] if len(runs) <= len(CATEGORIES) else frame["family"].fillna("?")
    frequent = list(by.value_counts().index[: len(CATEGORIES) - 1])
    many = by.nunique() > len(CATEGORIES)
    frame["series"] = [name if not many or name in frequent else "other" for name in by]
    frame["label"] = frame["run"]
    steps = pd.to_numeric(frame["step"])
    frame["progress"] = steps.where(steps.notna(), pd.to_numeric(frame["epoch"]))
    return frame


def _series(frame: pd.DataFrame) -> list[str]:
    """The names that colours stand for, in their order, the rest last."""
    names = sorted(set(frame["series"]) - {"other"})
    return [*names, *(["other"] if "other" in set(frame["series"]) else [])]


def _along(known: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """The models with `x`, and what that is: tokens where all are known, else steps of one model, else their share."""
    if known["tokens"].notna().all() and known["tokens"].nunique() > 1:
        return known.assign(x=known["tokens"].astype(float)), "training tokens"
    if known["run"].nunique() == 1:
        return known.assign(x=known["progress"].astype(float)), "training step" if known[
            "step"
        ].notna().all() else EPOCH
    share = known["progress"].astype(float) / known.groupby("run")["progress"].transform("max").astype(float)
    return known.assign(x=share), SHARE


def _layer_rows(view: View, known: pd.DataFrame) -> pd.DataFrame:
    """A line for each model and layer, with its metrics as columns."""
    labels = {(row["run"], row["checkpoint"]): row for row in known.to_dict("records")}
    places: dict[tuple[str, str, float], dict[str, object]] = {}
    below: set[tuple[str, str]] = set()
    for row in view.story.rows:
        label = labels.get((row.run, row.checkpoint))
        depth = None if label is None else _number(label["deep"])
        if label is None or depth is None or (row.bin, row.split) != (ALL, "train") or row.value is None:
            continue
        if row.layer != LAST:
            below.add((row.run, row.checkpoint))
        x = 1.0 if row.layer == LAST else int(row.layer) / (depth + 1)
        line = places.setdefault((row.run, row.checkpoint, x), {
            "run": row.run, "checkpoint": row.checkpoint, "series": label["series"], "corpus": label["corpus"], "x": x,
            "layer": row.layer,
        })  # fmt: skip
        line[row.metric] = row.value
    return pd.DataFrame([line for key, line in places.items() if key[:2] in below])


def _number(text: object) -> float | None:
    try:
        return float(str(text))
    except ValueError:
        return None


def _with_panels(figure: Figure, view: View, frame: pd.DataFrame, names: list[str], draw: Draw) -> Figure:
    """A panel for each name that has values, for each corpus one; their table is under the figure's key."""
    tables: dict[str, Columns] = {}
    panels = []
    corpora = list(dict.fromkeys(frame["corpus"])) if frame["corpus"].notna().any() else [None]
    for number, corpus in enumerate(corpora):
        part = frame if corpus is None else frame[frame["corpus"] == corpus]
        table = figure.key if len(corpora) == 1 else f"{figure.key} {number + 1}"
        shown = [name for name in names if name in part and part[name].notna().any()]
        cells: list[Line] = [
            {str(column): plain(value) for column, value in line.items()} for line in part.to_dict("records")
        ]
        tables[table] = columns(cells)
        for name in shown:
            panel: Panel = draw(view.story, table, part, name, figure.series)
            panels.append(replace(panel, note=f"on {corpus}") if len(corpora) > 1 else panel)
    return replace(figure, panels=panels, tables=tables)


def _colour(series: tuple[str, ...]) -> alt.Color:
    colours = ["var(--other)" if name == "other" else f"var(--c{place})" for place, name in enumerate(series)]
    return alt.Color("series:N", title=None, scale=alt.Scale(domain=list(series), range=colours))


def _panel(chart: DrawnChart, table: str, name: str, numbers: str) -> Panel:
    """A panel; a metric has its own heading, the outcome is none of the catalogue."""
    key = f"{table.replace(' ', '-')}-{name}"
    if name in METRICS:
        return Panel(key, chart, table, numbers, name)
    return Panel(key, chart, table, numbers, name=outcome_name(name).capitalize())


def _values_on_log(story: Story, part: pd.DataFrame, name: str) -> "pd.Series | None":
    values = part[name].dropna().astype(float)
    wide = len(values) and values.min() > 0 and values.max() >= WIDE * values.min()
    return values if wide and (name in story.logarithmic or name not in story.main) else None


def _near(values: "pd.Series", *, log: bool) -> tuple[float, float]:
    """The range in which a null is drawn beside these values."""
    known = values.dropna().astype(float)
    low, high = float(known.min()), float(known.max())
    if log:
        factor = max(high / low, 1.1) ** NEAR
        return low / factor, high * factor
    span = max(high - low, 1e-9 * abs(high), 1e-12)
    return low - NEAR * span, high + NEAR * span


def _y(story: Story, part: pd.DataFrame, name: str) -> alt.Y:
    values = _values_on_log(story, part, name)
    title = outcome_name(story.outcome) if name == outcome_column(story.outcome) else name
    return value_axis(name, None if values is None else values.to_numpy(dtype=float)).title(title)


def _hover(name: str) -> list[alt.Tooltip]:
    shown = [("run", "model", "N"), ("checkpoint", "checkpoint", "N"), ("family", "family", "N"),
             ("wide", "width", "N"), ("deep", "depth", "N"), ("tokenizer", "tokenizer", "N")]  # fmt: skip
    tips = [alt.Tooltip(f"{field}:{kind}", title=title) for field, title, kind in shown]
    counts = [alt.Tooltip(f"{field}:Q", format=",") for field in ("parameters", "tokens", "vocabulary")]
    return [*tips, *counts, alt.Tooltip(f"{name}:Q", format=".4~g")]


def _point_panel(story: Story, table: str, part: pd.DataFrame, name: str, series: tuple[str, ...]) -> Panel:
    data = alt.Chart(alt.NamedData(table)).transform_filter(f"isValid(datum['{name}'])")
    scale = alt.Scale(type="log", nice=False, padding=14)
    x = alt.X("parameters:Q", title="parameters", scale=scale, axis=alt.Axis(format="~s", tickCount=4))
    y = _y(story, part, name)
    tokenizers = sorted(part["tokenizer"].dropna().unique())
    shape = alt.Shape("tokenizer:N", scale=alt.Scale(domain=tokenizers, range=[*SHAPES] * (1 + len(tokenizers) // 8)))
    dots = data.mark_point(filled=True, size=60, opacity=0.9).encode(
        x=x, y=y, color=_colour(series), tooltip=_hover(name), **({"shape": shape} if len(tokenizers) > 1 else {})
    )
    layers = []
    low, high = _near(part[name], log=_values_on_log(story, part, name) is not None)
    if f"{name} null" in part and part[f"{name} null"].astype(float).between(low, high).any():
        within = f"isValid(datum['{name} null']) && inrange(datum['{name} null'], [{low!r}, {high!r}])"
        dashes = data.transform_filter(within).mark_tick(
            orient="horizontal", color="var(--soft)", thickness=1.5, size=14
        )
        layers.append(dashes.encode(x=x, y=f"{name} null:Q"))
    layers.append(dots)
    if len(part) <= NAMED and not (part["series"] == part["run"]).all():
        names = data.mark_text(align="left", dx=7, fontSize=9.5, color="var(--soft)").encode(x=x, y=y, text="label:N")
        layers.append(names)
    values = part[["run", name]].dropna()
    words = ", ".join(f"{run} {value:.3g}" for run, value in values.itertuples(index=False))
    numbers = f"{metric_name(name)} ({name}) of {len(values)} models: {words}."
    return _panel(alt.layer(*layers), table, name, numbers)


def _training_panel(story: Story, table: str, part: pd.DataFrame, name: str, series: tuple[str, ...]) -> Panel:
    along = str(part["along"].iloc[0])
    later = part.loc[part["x"] > 0, "x"]
    wide = len(later) and later.max() >= WIDE * later.min()
    scale, axis = alt.Scale(nice=True), alt.Axis(format="~g" if along in (SHARE, EPOCH) else "~s", tickCount=4)
    if wide:
        scale = alt.Scale(type="symlog", constant=float(later.min()), nice=False)
        ticks = [tick for tick in log_ticks(float(later.min()), float(later.max())) if later.min() <= tick]
        axis = alt.Axis(format=axis.format, values=[0, *ticks])
    x = alt.X("x:Q", title=along, scale=scale, axis=axis)
    return _lines(story, table, part, name, series, x, f"along {along}")


def _layer_panel(story: Story, table: str, part: pd.DataFrame, name: str, series: tuple[str, ...]) -> Panel:
    x = alt.X("x:Q", title="share of the depth", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(labelExpr=NUMBER))
    return _lines(story, table, part, name, series, x, "through the depth")


def _lines(
    story: Story, table: str, part: pd.DataFrame, name: str, series: tuple[str, ...], x: alt.X, where: str
) -> Panel:
    data = alt.Chart(alt.NamedData(table)).transform_filter(f"isValid(datum['{name}'])")
    shared = {"x": x, "y": _y(story, part, name), "color": _colour(series)}
    strokes = data.mark_line(strokeWidth=1.4, opacity=0.75).encode(**shared, detail="run:N")
    hover = [tip for tip in _hover(name) if tip.shorthand.split(":")[0] in part]
    dots = data.mark_point(filled=True, size=24, opacity=0.9).encode(**shared, tooltip=hover)
    ends = part.dropna(subset=[name]).sort_values("x").groupby("run")[name].agg(["first", "last"])
    words = ", ".join(f"{run} {first:.3g} to {last:.3g}" for run, first, last in ends.itertuples())
    numbers = f"{metric_name(name)} ({name}) {where} of {len(ends)} models, from the first to the last: {words}."
    return _panel(alt.layer(strokes, dots), table, name, numbers)
