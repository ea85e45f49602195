"""Development: a metric along the training of every run, from initialisation on."""

import altair as alt

from collapselab.report.charts.axes import (
    NUMBER,
    drawn_values,
    far_null,
    log_ticks,
    logarithmic_values,
    null_level,
    null_of,
    value_axis,
)
from collapselab.report.charts.panels import (
    Figure,
    Panel,
    colour_legend,
    direction,
    joined,
    model_colour,
    tooltip,
    with_links,
)
from collapselab.report.charts.style import WHERE_CHOSEN, WHERE_SHOWN
from collapselab.report.data import Keys, View
from collapselab.report.story import Story
from collapselab.report.words import metric_name, trend_note, trend_words

DECADES = 100
"""Checkpoints whose last is this many times as late as the first are drawn on a logarithmic axis."""


def training(view: View) -> Figure:
    """Each metric along the checkpoints of each run, from initialisation on where that was measured."""
    story = view.story
    title = "Along training"
    if story.models is None or story.models.frame["epoch"].nunique() < 2:
        return Figure("training", title, missing="Every run was measured at one checkpoint only.")
    caption = "A line is a run, a dot a checkpoint; a dot without a line is a run with one checkpoint. "
    if (story.models.frame["epoch"] == 0).any():
        caption += "Hollow dots at epoch 0 are the models before training. "
    else:
        caption += "The models before training were not measured. "
    if any(null_of(story, metric) is not None for metric in story.main):
        caption += "Dashed is the median level of trained models with shuffled labels; one far off is in the heading."
    panels = [_along_training(story, view.keys, metric) for metric in story.main]
    return Figure("training", title, caption, panels, (colour_legend(view.keys),))


def _along_training(story: Story, keys: Keys, metric: str) -> Panel:
    known = alt.Chart(alt.NamedData("models")).transform_filter(f"datum.source === 0 && isValid(datum['{metric}'])")
    known = known.transform_filter(WHERE_SHOWN)
    scale, axis = _epochs(story)
    x = alt.X("epoch:Q", title="epoch", scale=scale, axis=axis)
    values_on_log = logarithmic_values(story, metric, from_initialisation=True)
    y = value_axis(metric, values_on_log)
    lit = alt.condition(WHERE_CHOSEN, alt.value(0.7), alt.value(0.05))
    lines = known.mark_line(strokeWidth=1.3).encode(x=x, y=y, color=model_colour(keys), detail="run:N", opacity=lit)
    inside = alt.condition("datum.trained", model_colour(keys, alt.Fill), alt.value("var(--paper)"))
    dots = known.mark_point(size=20, strokeWidth=1.3).encode(
        x=x, y=y, stroke=model_colour(keys, alt.Stroke), fill=inside,
        opacity=lit, tooltip=tooltip(story.outcome, [metric]),
    )  # fmt: skip
    values = drawn_values(story, metric, from_initialisation=True)
    log = values_on_log is not None
    null = null_level(story, metric, values, log=log, side="right")
    note = trend_note(story.trends("epoch", metric)) or direction(story, metric)
    return Panel(
        f"training-{metric}", with_links(alt.layer(*null, lines, dots)), "models",
        _along(story, metric), metric, note=joined(note, far_null(story, metric, values, log=log)),
    )  # fmt: skip


def _epochs(story: Story) -> tuple[alt.Scale, alt.Axis]:
    """Logarithmic from the first checkpoint after initialisation on where checkpoints are spaced so."""
    assert story.models is not None
    epochs = story.models.frame["epoch"]
    later = epochs[epochs > 0]
    if len(later) and later.max() >= DECADES * later.min():
        first, last = float(later.min()), float(later.max())
        ticks = [0.0, *(tick for tick in log_ticks(first, last) if first <= tick <= last)]
        axis = alt.Axis(labelExpr=NUMBER, values=ticks, labelOverlap=True)
        return alt.Scale(type="symlog", constant=first, nice=False), axis
    return alt.Scale(zero=True, nice=True), alt.Axis(labelExpr=NUMBER, tickCount=5)


def _along(story: Story, metric: str) -> str:
    assert story.models is not None
    frame = story.models.frame.dropna(subset=["epoch", metric])
    first, last = frame["epoch"].min(), frame["epoch"].max()
    at = {epoch: frame.loc[frame["epoch"] == epoch, metric].median() for epoch in (first, last)}
    return (
        f"{metric_name(metric)} ({metric}) along training of {frame['run'].nunique():,} runs: median {at[first]:.3g} "
        f"at epoch {first:g}, {at[last]:.3g} at epoch {last:g}. {trend_words(story.trends('epoch', metric))}"
    )
