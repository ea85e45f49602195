"""Training: each metric along the checkpoints of every run, and the effect of regularisation at the end.

Metrics differ far more between sizes than between regularisers, so absolute values would hide the latter. Only the
difference within each pair is drawn, as one dot, by width: the test counts widths.
"""

import altair as alt
import pandas as pd

from collapselab.analysis.models import ARCHITECTURE, Regime
from collapselab.analysis.trends import REGULARISERS
from collapselab.report.charts.axes import (
    NUMBER,
    drawn_values,
    log_ticks,
    logarithmic_values,
    null_level,
    value_axis,
)
from collapselab.report.charts.panels import (
    Figure,
    Panel,
    colour_legend,
    depth_size,
    direction,
    joined,
    model_colour,
    tooltip,
    width_colour,
    with_links,
)
from collapselab.report.charts.style import SHAPES, WHERE_CHOSEN, WHERE_SHOWN
from collapselab.report.data import ReportData, is_collected
from collapselab.report.view import Columns, Keys, Line, View, columns, label
from collapselab.report.words import metric_name, outcome_column, outcome_name, regime_name, setting_name, trend_note

TIMES = {"tokens": "training tokens", "step": "step", "epoch": "epoch"}
"""Columns that can be the time axis, with their titles."""
DECADES = 100
"""The time axis is logarithmic if the last checkpoint is this many times as late as the first."""


def training(view: View) -> Figure | str:
    """Draw each metric along the checkpoints of each run, from initialisation on if that was measured."""
    data = view.data
    if data.models is None or data.models.frame[_time(data)].nunique() < 2:
        return "Every run was measured at one checkpoint only."
    caption = (
        "A line is a run, a dot a checkpoint; a dot without a line is a run with one checkpoint. Hollow dots at epoch "
        "0 are models before training, where they were measured. Dashed: the median level of trained models with "
        "shuffled labels; one far away is in the heading."
    )
    panels = [_along_training(data, view.keys, metric) for metric in data.main]
    return Figure(caption, panels, (colour_legend(view.keys),))


def _along_training(data: ReportData, keys: Keys, metric: str) -> Panel:
    known = alt.Chart(alt.NamedData("models")).transform_filter(f"isValid(datum['{metric}'])")
    known = known.transform_filter(WHERE_SHOWN)
    scale, axis = _times(data)
    x = alt.X(f"{_time(data)}:Q", title=TIMES[_time(data)], scale=scale, axis=axis)
    values_on_log = logarithmic_values(data, metric, from_initialisation=True)
    y = value_axis(metric, values_on_log, alt.Y)
    lit = alt.condition(WHERE_CHOSEN, alt.value(0.7), alt.value(0.05))
    lines = known.mark_line(strokeWidth=1.3).encode(x=x, y=y, color=model_colour(keys), detail="run:N", opacity=lit)
    inside = alt.condition("datum.trained", model_colour(keys, alt.Fill), alt.value("var(--paper)"))
    dots = known.mark_point(size=20, strokeWidth=1.3).encode(
        x=x, y=y, stroke=model_colour(keys, alt.Stroke), fill=inside,
        opacity=lit, tooltip=tooltip(data.outcome, [metric]),
    )  # fmt: skip
    values = drawn_values(data, metric, from_initialisation=True)
    log = values_on_log is not None
    null, far_null = null_level(data, metric, values, log=log)
    note = trend_note(data.trends("epoch", metric)) or direction(data, metric)
    return Panel(
        f"training-{metric}", with_links(alt.layer(*null, lines, dots)), "models",
        _along(data, metric), metric, note=joined(note, far_null),
    )  # fmt: skip


def _time(data: ReportData) -> str:
    """Return the time axis: epochs; for models of the hub, tokens if known for all, else steps."""
    assert data.models is not None
    frame = data.models.frame
    known = [name for name in TIMES if name in frame and frame[name].notna().all() and frame[name].nunique() > 1]
    return next((name for name in known if name == "epoch" or is_collected(data.runs)), "epoch")


def _times(data: ReportData) -> tuple[alt.Scale, alt.Axis]:
    """Return scale and axis of time, logarithmic after initialisation if checkpoints are spaced so."""
    assert data.models is not None
    times = data.models.frame[_time(data)]
    later = times[times > 0]
    if len(later) and later.max() >= DECADES * later.min():
        first, last = float(later.min()), float(later.max())
        ticks = [0.0, *(tick for tick in log_ticks(first, last) if first <= tick <= last)]
        axis = alt.Axis(labelExpr=NUMBER, values=ticks, labelOverlap=True)
        return alt.Scale(type="symlog", constant=first, nice=False), axis
    return alt.Scale(zero=True, nice=True), alt.Axis(labelExpr=NUMBER, tickCount=5)


def _along(data: ReportData, metric: str) -> str:
    assert data.models is not None
    time = _time(data)
    frame = data.models.frame.dropna(subset=[time, metric])
    first, last = frame[time].min(), frame[time].max()
    at = {value: frame.loc[frame[time] == value, metric].median() for value in (first, last)}
    return (
        f"{metric_name(metric)} ({metric}) along training of {frame['run'].nunique():,} runs: median {at[first]:.3g} "
        f"at {TIMES[time]} {first:g}, {at[last]:.3g} at {TIMES[time]} {last:g}. "
        f"{trend_note(data.trends('epoch', metric))}"
    )


def regularisation(view: View) -> Figure | str:
    """Draw a dot for the strongest level minus the weakest, all else equal, averaged over seeds, at the end of each
    run.
    """
    data = view.data
    rows = data.analysis.tables["trends"] if data.analysis else []
    column = next((row.axis for row in rows if row.axis in REGULARISERS and row.groups), None)
    if column is None:
        return "No regulariser differs between otherwise equal runs."
    table, levels = _pairs(data, column)
    weak, strong = levels
    caption = (
        f"A dot is the difference between {setting_name(column)} {strong} and {weak} in one architecture at the end of "
        "its runs, all else equal; as a factor where values span decades. Grey line: no difference. The test counts "
        "widths, not dots."
    )
    trainings = list(dict.fromkeys(map(str, table["where"])))[: len(SHAPES)]
    if len(trainings) > 1:
        shapes = ", ".join(f"{shape} {name}" for shape, name in zip(SHAPES, trainings, strict=False))
        caption += f" Shape is the training: {shapes}."
    panels = [_differences(data, view.keys, metric, column, trainings) for metric in [*data.main, data.outcome]]
    return Figure(caption, panels, ("width", "depth"), tables={"pairs": table})


def _pairs(data: ReportData, column: str) -> tuple[Columns, tuple[str, str]]:
    assert data.models is not None
    finished = data.models.trained[data.models.trained["last"]]
    frame = finished.assign(**{column: pd.to_numeric(finished[column], errors="coerce")})
    values = sorted(frame[column].dropna().unique())
    ends = {value: f"{value:g}" for value in (values[0], values[-1])}
    others = [*ARCHITECTURE, *(name for name in data.models.varying if name != column)]
    measured = [*data.main, data.outcome]
    means = (
        frame[frame[column].isin(list(ends))].groupby([*others, column], dropna=False)[measured].mean().reset_index()
    )
    lines: list[Line] = []
    settings = others[len(ARCHITECTURE) :]
    for number, (_, pair) in enumerate(means.groupby(others, dropna=False)):
        if len(pair) != 2:
            continue
        weak, strong = (line for _, line in pair.sort_values(column).iterrows())
        where = regime_name(Regime.of(settings, (strong[name] for name in settings))) if settings else ""
        lines.append({"pair": number, "wide": label(strong["width"]), "deep": label(strong["depth"]), "where": where})
        for name in measured:
            key = outcome_column(name)
            lines[-1][f"{key} weak"], lines[-1][f"{key} strong"] = weak[name], strong[name]
            factor = name in data.logarithmic
            lines[-1][f"{key} change"] = strong[name] / weak[name] if factor else strong[name] - weak[name]
    return columns(lines), (ends[values[0]], ends[values[-1]])


def _differences(data: ReportData, keys: Keys, metric: str, column: str, trainings: list[str]) -> Panel:
    key = outcome_column(metric)
    pairs = alt.Chart(alt.NamedData("pairs")).transform_filter(f"isValid(datum['{key} change'])")
    name = outcome_name(metric) if metric == data.outcome else metric
    factor = metric in data.logarithmic
    scale = alt.Scale(type="log", nice=False, padding=8) if factor else alt.Scale(padding=8)
    x = alt.X(f"{key} change:Q", title=f"{'×' if factor else 'Δ'} {name}", scale=scale,
              axis=alt.Axis(labelExpr=NUMBER, tickCount=4))  # fmt: skip
    y = alt.Y("wide:N", sort=keys.widths, title="width", axis=alt.Axis(domain=False, ticks=False))
    hover = [alt.Tooltip("wide:N", title="width"), alt.Tooltip("deep:N", title="depth"),
             alt.Tooltip("where:N", title="training"),
             alt.Tooltip(f"{key} weak:Q", title="weak", format=".4~g"),
             alt.Tooltip(f"{key} strong:Q", title="strong", format=".4~g"),
             alt.Tooltip(f"{key} change:Q", title="factor" if factor else "difference", format=".3~g")]  # fmt: skip
    none = alt.Chart(alt.InlineData(values=[{"none": 1 if factor else 0}]))
    level = none.mark_rule(color="var(--soft)", strokeWidth=1.2).encode(x="none:Q")
    shape = alt.Shape("where:N", title="training", scale=alt.Scale(domain=trainings, range=list(SHAPES)))
    dots = pairs.mark_point(filled=True, opacity=0.75).encode(
        x=x, y=y, color=width_colour(keys), size=depth_size(keys), shape=shape, tooltip=hover
    )
    words = f"Difference of {name} under {setting_name(column)}. {trend_note(data.trends(column, metric))}"
    return Panel(
        f"regularisation-{key}", alt.layer(level, dots), "pairs", words, metric,
        note=trend_note(data.trends(column, metric)),
    )  # fmt: skip
