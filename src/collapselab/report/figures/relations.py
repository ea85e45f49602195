"""Each metric against the outcome across models, and any two numbers of the models against each other.

Panels are linked: marking and filtering apply to all of them.
"""

import altair as alt

from collapselab.analysis.models import Floats
from collapselab.report.charts.axes import NUMBER, if_logarithmic, null_level, null_of, value_axis
from collapselab.report.charts.panels import (
    Figure,
    Panel,
    colour_legend,
    depth_size,
    direction,
    extent,
    joined,
    model_colour,
    tooltip,
    training_shape,
    with_links,
)
from collapselab.report.charts.style import WHERE_CHOSEN, WHERE_SHOWN
from collapselab.report.data import ReportData
from collapselab.report.view import Keys, View
from collapselab.report.words import metric_name, outcome_column, outcome_name

PAPER = " In the paper (Wu & Papyan 2024, arXiv:2405.17767) these are the panels of Figures 1 to 3, for its 230 models."
WITH_A_MOUSE = "[pointerdown[event.pointerType != 'touch'], window:pointerup] > window:pointermove!"
"""Mouse only: on a touch screen a finger scrolls, and the form above the panels marks models."""
MOST_SHAPES = 3
"""Largest number of regimes that shapes can distinguish in one panel."""


NAMED = 15
"""Up to this many models have their names beside the points; otherwise names are shown on hovering."""
SIZES = {"parameters": "parameters", "tokens": "training tokens", "width": "width", "depth": "depth",
         "vocabulary": "vocabulary", "step": "training step"}  # fmt: skip
OUTCOMES = ("val_loss", "bits_per_byte", "val_accuracy", "perplexity")


def collapse(view: View) -> Figure | str:
    """Draw each main metric against the outcome, as in the paper's panels."""
    data = view.data
    if not data.main:
        return "No metric was measured."
    panels = [_against_outcome(view, metric) for metric in data.main]
    caption = (
        "Each point is a run at its last checkpoint, without interventions. The line is a least-squares fit; on a "
        "logarithmic axis, line, r and R² are those of the metric’s logarithm, and an axis that is logarithmic on both "
        "sides of 0 has no line. Dashed: the median level with shuffled labels, or in the heading if it is far away. "
        "Runs also differ in size or training, so this is descriptive: it does not separate collapse from scale."
    )
    caption += PAPER if data.outcome == "val_loss" else ""
    shapes = ("training",) if _has_shapes(view.keys) else ()
    return Figure(caption, panels, (colour_legend(view.keys), "depth", *shapes), filters=True)


def _compared(data: ReportData, metric: str) -> Floats:
    """Return the values of the compared models that have an outcome; they decide on the axis."""
    assert data.models is not None
    known = data.models.frame.loc[data.models.compared, [metric, data.outcome]].dropna()
    return known[metric].to_numpy(dtype=float)


def _against_outcome(view: View, metric: str) -> Panel:
    data, outcome, values = view.data, view.data.outcome, _compared(view.data, metric)
    values_on_log = if_logarithmic(data, metric, values)
    log = values_on_log is not None
    x = value_axis(metric, values_on_log, alt.X)
    y = alt.Y(f"{outcome_column(outcome)}:Q", title=outcome_name(outcome), scale=alt.Scale(zero=False))
    hover = tooltip(outcome, [metric])
    null, far_null = null_level(data, metric, values, log=log, across=True)
    layers = [*null]
    if not log or metric in data.logarithmic:
        layers.append(least_squares_line(known_models(metric, outcome), metric, outcome, log=log))
    points = known_models(metric, outcome).mark_point(filled=True).encode(
        x=x, y=y, tooltip=hover, color=model_colour(view.keys), size=depth_size(view.keys),
        shape=training_shape(view.keys) if _has_shapes(view.keys) else alt.value("circle"),
        opacity=alt.condition(WHERE_CHOSEN, alt.value(0.85), alt.value(0.07)),
    )  # fmt: skip
    layers.append(points.add_params(alt.selection_interval(name="brush", on=WITH_A_MOUSE, zoom=False)))
    return Panel(
        f"collapse-{metric}", with_links(alt.layer(*layers)), "models", _numbers(data, metric), metric,
        note=joined(direction(data, metric), far_null),
        fit=_fit_words(data, metric),
    )  # fmt: skip


def _has_shapes(keys: Keys) -> bool:
    return len(keys.trainings) <= MOST_SHAPES


def known_models(metric: str, outcome: str) -> alt.Chart:
    """Filter the compared models (the last checkpoints of untreated runs) that have both numbers and are shown."""
    chart = alt.Chart(alt.NamedData("models")).transform_filter(f"datum.compared && isValid(datum['{metric}'])")
    return chart.transform_filter(f"isValid(datum.{outcome_column(outcome)})").transform_filter(WHERE_SHOWN)


def least_squares_line(models: alt.Chart, metric: str, outcome: str, *, log: bool) -> alt.Chart:
    """Draw the least-squares line, on the logarithm if the axis is logarithmic."""
    models = models.transform_calculate(drawn=f"log(datum['{metric}'])" if log else f"datum['{metric}']")
    line = models.transform_filter("isFinite(datum.drawn)").transform_regression("drawn", outcome_column(outcome))
    line = line.transform_calculate(**{metric: "exp(datum.drawn)" if log else "datum.drawn"})
    line = line.mark_line(color="var(--ink)", strokeWidth=1.4, opacity=0.75, clip=True)
    fit: alt.Chart = line.encode(x=f"{metric}:Q", y=f"{outcome_column(outcome)}:Q")
    return fit


def _numbers(data: ReportData, metric: str) -> str:
    relation, level = data.relation(metric), null_of(data, metric)
    r = f"r {relation.r:+.2f}, " if relation and relation.r is not None else ""
    null = "" if level is None else f", with shuffled labels {level:.3g}"
    start = f"{metric_name(metric)} ({metric}) against {outcome_name(data.outcome)}"
    return f"{start}: {r}{_fit_words(data, metric)}; values {extent(data, metric)}{null}."


def _fit_words(data: ReportData, metric: str) -> str:
    relation = data.relation(metric)
    if relation is None or relation.r2 is None:
        return "no R²"
    log = " of the logarithm" if relation.transform == "log" else ""
    return f"R² {relation.r2:.2f}{log}, {relation.n} runs"


def explore(view: View) -> Figure | str:
    """Draw one scatter plot of all models whose axes the reader chooses."""
    if not view.data.main:
        return "No metric was measured."
    outcome = outcome_column(view.data.outcome)
    names = {name: title for name, title in SIZES.items() if name in view.models}
    names |= {name: outcome_name(name) for name in OUTCOMES if name in view.models}
    names |= {outcome: outcome_name(view.data.outcome)}
    names |= {metric: f"{metric}: {metric_name(metric)}" for metric in (*view.data.main, *view.data.further)}
    known = {name: title for name, title in names.items() if any(value is not None for value in view.models[name])}
    first = ("agreement" if "agreement" in known else view.data.main[0], outcome)
    base = alt.Chart(alt.NamedData("models")).transform_filter("datum.last")
    base = base.transform_filter(WHERE_SHOWN).transform_filter("isValid(datum[xname]) && isValid(datum[yname])")
    place = {}
    for axis, channel in (("x", alt.X), ("y", alt.Y)):
        # A signal cannot change the type of a scale, so logarithmic axes plot logarithms.
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
