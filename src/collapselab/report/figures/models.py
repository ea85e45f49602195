"""Collected models: any number of each against any other, along the training of each, and through its depth.

Models of several corpora have panels of their own for each corpus. Losses of several tokenizers are in bits per byte.
Training is measured in tokens; where these are not known of every model, as a share of the last step of each, since a
step of one model is not that of another.
"""

from dataclasses import replace

import altair as alt
import pandas as pd

from collapselab.core.catalogue import METRICS
from collapselab.report.charts.axes import NUMBER, WIDE, log_ticks, value_axis
from collapselab.report.charts.panels import Figure, Panel, model_colour, run_curves, tooltip, with_links
from collapselab.report.charts.style import CATEGORIES, WHERE_CHOSEN, WHERE_SHOWN
from collapselab.report.data import Kind
from collapselab.report.view import Columns, Line, View, columns, lines, plain
from collapselab.report.words import metric_name, outcome_column, outcome_name

NOT_COLLECTED = "No models were collected here (`collapselab collect`)."
NAMED = 15
"""Models whose names are written beside their points; of more they are shown on hovering."""
SHARE, EPOCH = "share of the last step", "epoch"
LAST, ALL = "last", "all"
SIZES = {"parameters": "parameters", "tokens": "training tokens", "width": "width", "depth": "depth",
         "vocabulary": "vocabulary", "step": "training step"}  # fmt: skip
OUTCOMES = ("val_loss", "bits_per_byte", "val_accuracy", "perplexity")


def explore(view: View) -> Figure | str:
    """One scatter of all models whose axes the reader chooses."""
    if not view.data.main:
        return "No metric was measured here."
    outcome = outcome_column(view.data.outcome)
    names = {name: title for name, title in SIZES.items() if name in view.models}
    names |= {name: outcome_name(name) for name in OUTCOMES if name in view.models}
    names |= {outcome: outcome_name(view.data.outcome)}
    names |= {metric: f"{metric}: {metric_name(metric)}" for metric in (*view.data.main, *view.data.further)}
    known = {name: title for name, title in names.items() if any(value is not None for value in view.models[name])}
    first = ("agreement" if "agreement" in known else view.data.main[0], outcome)
    base = alt.Chart(alt.NamedData("models")).transform_filter("datum.source === 0 && datum.last")
    base = base.transform_filter(WHERE_SHOWN).transform_filter("isValid(datum[xname]) && isValid(datum[yname])")
    place = {}
    for axis, channel in (("x", alt.X), ("y", alt.Y)):
        # a signal cannot change the type of a scale: where it is to be logarithmic, logarithms are drawn
        base = base.transform_calculate(axis, f"{axis}log ? log(datum[{axis}name]) / LN10 : datum[{axis}name]")
        number = NUMBER.replace("datum.value", f"({axis}log ? pow(10, datum.value) : datum.value)")
        number = number.replace(".4~g", ".2~g")
        place[axis] = channel(f"{axis}:Q", title=None, scale=alt.Scale(zero=False, padding=16),
                              axis=alt.Axis(labelExpr=number, tickCount=5))  # fmt: skip
    lit = alt.condition(WHERE_CHOSEN, alt.value(0.9), alt.value(0.1))
    dots = base.mark_point(filled=True, size=90).encode(
        **place, color=model_colour(view.keys), opacity=lit, tooltip=tooltip(view.data.outcome, view.data.main)
    )
    layers = [dots]
    if sum(map(bool, view.models["last"])) <= NAMED:
        names_beside = base.mark_text(align="left", dx=9, fontSize=10.5, color="var(--soft)")
        layers.append(names_beside.encode(**place, text="run:N"))
    chart = with_links(alt.layer(*layers))
    chart = chart.add_params(alt.param(name="xname", value=first[0]), alt.param(name="yname", value=first[1]))
    chart = chart.add_params(alt.param(name="xlog", value=False), alt.param(name="ylog", value=False))
    numbers = f"{len(view.models['last'])} models; at first {known[first[1]]} against {known[first[0]]}."
    panel = Panel("explore-axes", chart, "models", numbers, height=380)
    caption = "A point is a model at its last checkpoint. Numbers that span decades have a logarithmic axis."
    return Figure(caption, [panel], ("family",) if view.keys.by_family else ("width",), axes=known, axis=first)


def atlas_training(view: View) -> Figure | str:
    """Each metric along the training of every model that was measured at several steps."""
    known = _collected(view)
    if known.empty:
        return NOT_COLLECTED
    known = known[known["progress"].notna()]
    known = known[known.groupby("run")["progress"].transform("nunique") > 1]
    if known.empty:
        return "Every model was measured at one step only."
    known, along = _along(known)
    caption = f"A line is a model, a dot one of its checkpoints. Across: {along}."
    names = [outcome_column(view.data.outcome), *view.data.main]
    return _with_panels("atlas_training", caption, view, known, names, along)


def atlas_layers(view: View) -> Figure | str:
    """Each metric through the relative depth of every model at its last checkpoint."""
    known = _collected(view)
    if known.empty:
        return NOT_COLLECTED
    rows = _layer_rows(view, known[known["last"]])
    if rows.empty:
        return "No layer but the last was measured (`--layers all` measures every one)."
    caption = "Across is the share of a model’s blocks; at 1 is the vector that enters the output layer."
    names = [metric for metric in view.data.main if metric in rows]
    return _with_panels("atlas_layers", caption, view, rows, names, "share of the depth")


def _collected(view: View) -> pd.DataFrame:
    """The models of the data, with `series` and `progress`; empty where none were collected."""
    frame = pd.DataFrame(lines(view.models))
    if frame.empty or view.data.kind is Kind.SUITE:
        return pd.DataFrame()
    frame = frame[frame["source"] == 0].reset_index(drop=True)
    for name in ("step", "corpus"):
        frame[name] = frame.get(name)
    by = frame["run"] if frame["run"].nunique() <= len(CATEGORIES) else frame["family"].fillna("?")
    frequent = list(by.value_counts().index[: len(CATEGORIES) - 1])
    many = by.nunique() > len(CATEGORIES)
    frame["series"] = [name if not many or name in frequent else "other" for name in by]
    steps = pd.to_numeric(frame["step"])
    frame["progress"] = steps.where(steps.notna(), pd.to_numeric(frame["epoch"]))
    return frame


def _along(known: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """The models with `x`, and what that is: tokens where all are known, else steps of one model, else their share."""
    if known["tokens"].notna().all() and known["tokens"].nunique() > 1:
        return known.assign(x=known["tokens"].astype(float)), "training tokens"
    progress = known["progress"].astype(float)
    if known["run"].nunique() == 1:
        return known.assign(x=progress), "training step" if known["step"].notna().all() else EPOCH
    return known.assign(x=progress / progress.groupby(known["run"]).transform("max")), SHARE


def _layer_rows(view: View, known: pd.DataFrame) -> pd.DataFrame:
    """A line for each model and layer, with its metrics as columns."""
    models = {(model["name"], model["checkpoint"]): model for model in known.to_dict("records")}
    places: dict[tuple[str, str, float], dict[str, object]] = {}
    below: set[tuple[str, str]] = set()
    for row in view.data.rows:
        model = models.get((row.run, row.checkpoint))
        if model is None or model["depth"] is None or (row.bin, row.split) != (ALL, "train") or row.value is None:
            continue
        if row.layer != LAST:
            below.add((row.run, row.checkpoint))
        x = 1.0 if row.layer == LAST else int(row.layer) / (model["depth"] + 1)
        about = {name: model[name] for name in ("run", "checkpoint", "series", "corpus")}
        line = places.setdefault((row.run, row.checkpoint, x), about | {"x": x, "layer": row.layer})
        line[row.metric] = row.value
    return pd.DataFrame([line for key, line in places.items() if key[:2] in below])


def _with_panels(key: str, caption: str, view: View, frame: pd.DataFrame, names: list[str], along: str) -> Figure:
    """A panel for each name that has values, for each corpus one; their table is under the figure's key."""
    tables: dict[str, Columns] = {}
    panels = []
    series = sorted(set(frame["series"]) - {"other"}) + ["other"] * ("other" in set(frame["series"]))
    frame = frame.assign(along=along)
    corpora = list(dict.fromkeys(frame["corpus"])) if frame["corpus"].notna().any() else [None]
    for number, corpus in enumerate(corpora):
        part = frame if corpus is None else frame[frame["corpus"] == corpus]
        table = key if len(corpora) == 1 else f"{key} {number + 1}"
        cells: list[Line] = [
            {str(column): plain(value) for column, value in line.items()} for line in part.to_dict("records")
        ]
        tables[table] = columns(cells)
        for name in names:
            if name in part and part[name].notna().any():
                panel = _panel(view, table, part, name, series)
                panels.append(replace(panel, note=f"on {corpus}") if len(corpora) > 1 else panel)
    return Figure(caption, panels, tables=tables, series=tuple(series))


def _panel(view: View, table: str, part: pd.DataFrame, name: str, series: list[str]) -> Panel:
    """A line for each model; a metric has its own heading, the outcome is none of the catalogue."""
    data, along = view.data, str(part["along"].iloc[0])
    values = part[name].dropna().to_numpy(dtype=float)
    wide = len(values) and values.min() > 0 and values.max() >= WIDE * values.min()
    log = wide and (name in data.logarithmic or name not in data.main)
    title = outcome_name(data.outcome) if name == outcome_column(data.outcome) else name
    colours = ["var(--other)" if one == "other" else f"var(--c{place})" for place, one in enumerate(series)]
    shared = {
        "x": _across(part, along),
        "y": value_axis(name, values if log else None, alt.Y).title(title),
        "color": alt.Color("series:N", title=None, scale=alt.Scale(domain=series, range=colours)),
    }
    hover = [alt.Tooltip("run:N", title="model"), alt.Tooltip("checkpoint:N"), alt.Tooltip("x:Q", title=along),
             alt.Tooltip(f"{name}:Q", format=".4~g")]  # fmt: skip
    base = alt.Chart(alt.NamedData(table)).transform_filter(f"isValid(datum['{name}'])")
    ends = part.dropna(subset=[name]).sort_values("x").groupby("run")[name].agg(["first", "last"])
    words = ", ".join(f"{run} {first:.3g} to {last:.3g}" for run, first, last in ends.itertuples())
    metric = name if name in METRICS else ""
    start = f"{metric_name(name)} ({name})" if metric else outcome_name(name)
    numbers = f"{start} along {along} of {len(ends)} models, from the first to the last: {words}."
    key, heading = f"{table.replace(' ', '-')}-{name}", "" if metric else title.capitalize()
    return Panel(key, run_curves(base, shared, ["run:N"], hover), table, numbers, metric, name=heading)


def _across(part: pd.DataFrame, along: str) -> alt.X:
    if along not in (SHARE, EPOCH, "training step", "training tokens"):
        return alt.X("x:Q", title=along, scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(labelExpr=NUMBER))
    scale, axis = alt.Scale(nice=True), alt.Axis(format="~g" if along in (SHARE, EPOCH) else "~s", tickCount=4)
    later = part.loc[part["x"] > 0, "x"]
    if len(later) and later.max() >= WIDE * later.min():
        scale = alt.Scale(type="symlog", constant=float(later.min()), nice=False)
        ticks = [tick for tick in log_ticks(float(later.min()), float(later.max())) if later.min() <= tick]
        axis = alt.Axis(format=axis.format, values=[0, *ticks])
    return alt.X("x:Q", title=along, scale=scale, axis=axis)
