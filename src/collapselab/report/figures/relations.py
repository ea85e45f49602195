"""Each metric against the outcome, across models. Panels are linked: they mark and filter the same models."""

import altair as alt

from collapselab.analysis.models import Floats
from collapselab.report.charts.axes import far_null, logarithmic_values, null_level_below, null_of, value_axis_below
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
from collapselab.report.data import Keys, View
from collapselab.report.story import Story
from collapselab.report.words import metric_name, outcome_column, outcome_name

BRUSH = "brush"
PAPER = "In the paper (Wu & Papyan 2024, arXiv:2405.17767) these are the panels of Figures 1 to 3, for its 230 models."
WITH_A_MOUSE = "[pointerdown[event.pointerType != 'touch'], window:pointerup] > window:pointermove!"
"""A finger scrolls; there the form above the panels marks models."""
MOST_SHAPES = 3
"""More regimes than that cannot be distinguished by shape in one panel."""
NOT_MEASURED = "No metric was measured here."


def collapse(view: View) -> Figure:
    """Each main metric against the outcome: the paper's panels."""
    story = view.story
    panels = [_against_outcome(view, metric, key="collapse") for metric in story.main]
    return Figure(
        "collapse",
        f"Each metric against {outcome_name(story.outcome)}",
        _reading(story, story.main),
        panels,
        legend(view.keys),
        "" if panels else NOT_MEASURED,
        PAPER if story.outcome == "val_loss" else "",
        filters=True,
    )


def further(view: View) -> Figure:
    """The same for all other metrics."""
    panels = [_against_outcome(view, metric, key="further") for metric in view.story.further]
    title = f"Further metrics against {outcome_name(view.story.outcome)}"
    return Figure(
        "further", title, "Drawn as the panels above.", panels, legend(view.keys), "" if panels else NOT_MEASURED
    )


def _reading(story: Story, metrics: list[str]) -> str:
    """How to read the panels: no more than is in them."""
    parts = ["Each point is a run at its last checkpoint, without interventions; the line is a least-squares fit."]
    if any(null_of(story, metric) is not None for metric in metrics):
        parts.append("Dashed is the median level with shuffled labels; one far off is in the heading.")
    else:
        parts.append("Levels with shuffled labels were not measured.")
    if any(metric in story.logarithmic for metric in metrics):
        parts.append("A metric with a logarithmic axis is related on its logarithm: line, r and R² are of that.")
    if any(_both_ways(story, metric) for metric in metrics):
        parts.append("Where both signs span decades, the axis is logarithmic both ways from 0, without a line.")
    parts.append(
        "Runs differ in size or training too, so this is descriptive: it does not separate collapse from scale."
    )
    return " ".join(parts)


def _both_ways(story: Story, metric: str) -> bool:
    return metric not in story.logarithmic and logarithmic_values(story, metric) is not None


def _against_outcome(view: View, metric: str, *, key: str) -> Panel:
    story, outcome, values_on_log = view.story, view.story.outcome, logarithmic_values(view.story, metric)
    log = values_on_log is not None
    x = value_axis_below(metric, values_on_log)
    y = alt.Y(f"{outcome_column(outcome)}:Q", title=outcome_name(outcome), scale=alt.Scale(zero=False))
    hover = tooltip(outcome, [metric])
    values, outcomes = _both_known(story, metric)
    layers = [*null_level_below(story, metric, values, outcomes, log=log)]
    if view.beside is not None:
        others = known_models(metric, outcome).transform_filter("datum.compared && datum.source !== 0")
        ghosts = others.mark_point(filled=False, color="var(--other)", opacity=0.55, size=22, strokeWidth=1)
        layers.append(ghosts.encode(x=x, y=y, tooltip=hover))
    if not _both_ways(story, metric):
        mine = known_models(metric, outcome).transform_filter("datum.compared && datum.source === 0")
        layers.append(least_squares_line(mine, metric, outcome, log=log))
    points = _points(story, view.keys, metric).encode(x=x, y=y, tooltip=hover)
    layers.append(points.add_params(alt.selection_interval(name=BRUSH, on=WITH_A_MOUSE, zoom=False)))
    chart = with_links(alt.layer(*layers)).add_params(alt.param(name="others", value=False))
    return Panel(
        f"{key}-{metric}", chart, "models", _numbers(story, metric), metric,
        note=joined(direction(story, metric), far_null(story, metric, values, log=log)),
        fit=_fit_words(story, metric),
    )  # fmt: skip


def _both_known(story: Story, metric: str) -> tuple[Floats, Floats]:
    """Return metric and outcome of the compared models that have both."""
    assert story.models is not None
    known = story.models.frame.loc[story.models.compared, [metric, story.outcome]].dropna().to_numpy(dtype=float)
    return known[:, 0], known[:, 1]


def _points(story: Story, keys: Keys, metric: str) -> alt.Chart:
    """The compared models as filled points; on request the others (earlier checkpoints, arms) as rings."""
    drawable = f"datum['{metric}'] > 0" if metric in story.logarithmic else "true"
    mine = known_models(metric, story.outcome).transform_filter(
        f"datum.source === 0 && (datum.compared || (others && {drawable}))"
    )
    points: alt.Chart = mine.mark_point(filled=True).encode(
        color=model_colour(keys), size=depth_size(keys),
        stroke=model_colour(keys, alt.Stroke),
        shape=alt.condition("datum.compared", training_shape(keys), alt.value("circle"))
        if _has_shapes(keys)
        else alt.value("circle"),
        fillOpacity=alt.condition("datum.compared", alt.value(1), alt.value(0)),
        strokeWidth=alt.condition("datum.compared", alt.value(0), alt.value(1.6)),
        opacity=alt.condition(WHERE_CHOSEN, alt.value(0.85), alt.value(0.07)),
    )  # fmt: skip
    return points


def _has_shapes(keys: Keys) -> bool:
    return len(keys.trainings) <= MOST_SHAPES


def legend(keys: Keys) -> tuple[str, ...]:
    """What the points mean."""
    return (colour_legend(keys), "depth", *(["training"] if _has_shapes(keys) else []))


def has_others(story: Story) -> bool:
    """Return whether there are checkpoints or arms that the panels leave out by default."""
    return story.models is not None and bool((~story.models.compared & story.models.frame[story.outcome].notna()).any())


def known_models(metric: str, outcome: str) -> alt.Chart:
    """The models that have both numbers, as far as the page shows them."""
    chart = alt.Chart(alt.NamedData("models")).transform_filter(f"isValid(datum['{metric}'])")
    return chart.transform_filter(f"isValid(datum.{outcome_column(outcome)})").transform_filter(WHERE_SHOWN)


def least_squares_line(models: alt.Chart, metric: str, outcome: str, *, log: bool) -> alt.Chart:
    """The line of least squares, of the logarithm where that is what is drawn."""
    models = models.transform_calculate(drawn=f"log(datum['{metric}'])" if log else f"datum['{metric}']")
    line = models.transform_filter("isFinite(datum.drawn)").transform_regression("drawn", outcome_column(outcome))
    line = line.transform_calculate(**{metric: "exp(datum.drawn)" if log else "datum.drawn"})
    line = line.mark_line(color="var(--ink)", strokeWidth=1.4, opacity=0.75, clip=True)
    fit: alt.Chart = line.encode(x=f"{metric}:Q", y=f"{outcome_column(outcome)}:Q")
    return fit


def _numbers(story: Story, metric: str) -> str:
    relation = story.relation(metric)
    start = f"{metric_name(metric)} ({metric}) against {outcome_name(story.outcome)}"
    if relation is None or relation.r is None or relation.r2 is None:
        why = relation.why if relation and relation.why else "not related."
        return f"{start}: values {extent(story, metric)}; no R²: {why}"
    text = f"{start} for {relation.n:,} runs: r {relation.r:+.2f}, R² {relation.r2:.2f}"
    if relation.transform == "log":
        text += ", of the logarithm"
    level = null_of(story, metric)
    null = "" if level is None else f", with shuffled labels {level:.3g}"
    return f"{text}; values {extent(story, metric)}{null}."


def _fit_words(story: Story, metric: str) -> str:
    relation = story.relation(metric)
    if relation is None or relation.r2 is None:
        return "no R²"
    log = " of the logarithm" if relation.transform == "log" else ""
    return f"R² {relation.r2:.2f}{log}, {relation.n} runs"
