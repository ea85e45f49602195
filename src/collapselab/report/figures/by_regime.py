"""Each metric against the outcome, one small panel for every training regime (small multiples).

Strips of a metric share both axes, so that what differs between regimes is seen beside what differs within them.
"""

import json

import altair as alt

from collapselab.report.charts.axes import drawn_values, logarithmic_values
from collapselab.report.charts.panels import (
    Figure,
    Panel,
    colour_legend,
    depth_size,
    extent,
    model_colour,
    tooltip,
    with_links,
)
from collapselab.report.charts.style import WHERE_CHOSEN, WHERE_SHOWN
from collapselab.report.data import View
from collapselab.report.figures.generalisation import known_models, least_squares_line
from collapselab.report.words import metric_name, outcome_column, outcome_name

HEIGHT, LAST = 74, 104
"""Of a strip, and of the last one, which has the metric's axis."""
FEWEST = 2


def by_regime(view: View) -> Figure:
    """A card for each main metric, with a strip for each regime."""
    title, trainings = f"Against {outcome_name(view.story.outcome)}, by training regime", view.keys.trainings
    if len(trainings) < FEWEST:
        return Figure("by_regime", title, missing="All models are of one training regime.")
    caption = (
        "A strip for each training regime, with the same axes: a point is a trained model, the line the least-squares "
        "fit within the regime. What moves from strip to strip is the training, what moves inside one is not."
    )
    panels = [
        _strip(view, metric, training, first=place == 0, last=place == len(trainings) - 1)
        for metric in view.story.main
        for place, training in enumerate(trainings)
    ]
    return Figure("by_regime", title, caption, panels, (colour_legend(view.keys), "depth"))


def _strip(view: View, metric: str, training: str, *, first: bool, last: bool) -> Panel:
    story, outcome = view.story, view.story.outcome
    on_log = logarithmic_values(story, metric)
    log = on_log is not None and bool((on_log > 0).all())
    x = alt.X(
        f"{metric}:Q",
        title=metric if last else None,
        scale=_scale(drawn_values(story, metric), log=log),
        axis=alt.Axis(labels=last, ticks=last, tickCount=4),
    )
    losses = drawn_values(story, outcome)
    y = alt.Y(f"{outcome_column(outcome)}:Q", title=None, scale=_scale(losses, log=False), axis=alt.Axis(tickCount=3))
    inside = f"datum.trained && datum.source === 0 && datum.training === {json.dumps(training)}"
    models = known_models(metric, outcome).transform_filter(inside)
    points = models.mark_point(filled=True, opacity=0.85).encode(
        x=x, y=y, color=model_colour(view.keys), size=depth_size(view.keys),
        opacity=alt.condition(WHERE_CHOSEN, alt.value(0.85), alt.value(0.07)), tooltip=tooltip(outcome, [metric]),
    )  # fmt: skip
    name = alt.Chart(alt.NamedData("models")).transform_filter(WHERE_SHOWN).transform_filter(inside)
    name = name.transform_aggregate(models="count()").mark_text(
        align="left", baseline="bottom", color="var(--ink)", fontSize=10.5
    )
    name = name.encode(x=alt.value(0), y=alt.value(-2), text=alt.value(training))
    chart = with_links(alt.layer(least_squares_line(models, metric, outcome, log=log), points, name))
    start = f"{metric_name(metric)} ({metric}), {training}" if first else training
    count = _count(view, metric, training)
    return Panel(
        f"by_regime-{metric}-{view.keys.trainings.index(training)}", chart, "models",
        f"{start}: {count:,} models; all regimes {extent(story, metric)}.", metric if first else "",
        height=LAST if last else HEIGHT,
    )  # fmt: skip


def _scale(values: object, *, log: bool) -> alt.Scale:
    low, high = float(min(values)), float(max(values))  # type: ignore[call-overload]
    return alt.Scale(type="log" if log else "linear", domain=[low, high], nice=False, zero=False, padding=6)


def _count(view: View, metric: str, training: str) -> int:
    lines = zip(
        view.models["training"], view.models["trained"], view.models["source"], view.models[metric], strict=True
    )
    return sum(
        label == training and bool(trained) and source == 0 and value is not None
        for label, trained, source, value in lines
    )
