"""The outcome against the number of parameters, a panel for each training regime on the same axes."""

import altair as alt
import pandas as pd

from collapselab.report.charts.axes import log_ticks
from collapselab.report.charts.panels import Figure, Panel, colour_legend, depth_size, model_colour, tooltip
from collapselab.report.data import View
from collapselab.report.words import outcome_column, outcome_name

MOST = 8
"""Regimes that get a panel; the legend of trainings has no more names either."""


def loss_and_scale(view: View) -> Figure:
    """Small multiples: one panel a regime, so that none hides another."""
    story, title = view.story, f"{outcome_name(view.story.outcome).capitalize()} against scale"
    known = pd.DataFrame() if story.models is None else story.models.known[["parameters", story.outcome]].dropna()
    if not len(known) or known["parameters"].nunique() < 2:
        return Figure("loss_and_scale", title, missing="All models have one number of parameters, or it is not known.")
    caption = "Each point is a trained model; every panel is one training regime, on the same axes."
    spans = {name: (float(known[name].min()), float(known[name].max())) for name in ("parameters", story.outcome)}
    panels = [_panel(view, training, spans) for training in view.keys.trainings[:MOST]]
    return Figure("loss_and_scale", title, caption, panels, (colour_legend(view.keys), "depth"))


def _panel(view: View, training: str, spans: dict[str, tuple[float, float]]) -> Panel:
    outcome = view.story.outcome
    low, high = spans["parameters"]
    x = alt.X("parameters:Q", title="parameters",
              scale=alt.Scale(type="log", domain=[low / 1.1, high * 1.1], nice=False),
              axis=alt.Axis(values=log_ticks(low, high), format="~s"))  # fmt: skip
    least, most = spans[outcome]
    margin = 0.04 * (most - least) or 0.01
    span = alt.Scale(domain=[least - margin, most + margin], nice=False, zero=False)
    y = alt.Y(f"{outcome_column(outcome)}:Q", title=outcome_name(outcome), scale=span)
    chart = alt.Chart(alt.NamedData("models"))
    mine = chart.transform_filter(alt.FieldEqualPredicate(field="training", equal=training))
    mine = mine.transform_filter(f"datum.source === 0 && datum.trained && isValid(datum.{outcome_column(outcome)})")
    points = mine.mark_point(filled=True, opacity=0.85).encode(
        x=x, y=y, color=model_colour(view.keys), size=depth_size(view.keys), tooltip=tooltip(outcome, [])
    )
    words = f"{outcome_name(outcome)} against parameters, {training}; from {least:.3g} to {most:.3g} in all panels."
    return Panel(f"loss_and_scale-{view.keys.trainings.index(training)}", points, "models", words, name=training)
