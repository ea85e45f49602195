"""The rank correlation of each metric with every other, across trained models."""

import json

import altair as alt
import numpy as np

from collapselab.report.charts.panels import Figure, Panel
from collapselab.report.charts.style import DEPTH_OF_HEAT
from collapselab.report.data import Columns, Line, View, columns
from collapselab.report.story import Story
from collapselab.report.words import outcome_name

FEWEST = 4
"""Models with both numbers; the correlation of fewer is no more than an accident."""
CELL = 30


def metric_map(view: View) -> Figure:
    """A square of numbers: what two metrics that move together say is no second piece of evidence."""
    title, story = "Metrics that move together", view.story
    names = [] if story.models is None else [*story.main, story.outcome]
    table = _table(story, names)
    if not any(value is not None for value in table.get("rho", [])):
        return Figure("metric_map", title, missing="Too few models have two metrics each.")
    caption = (
        "Spearman’s correlation of every metric with every other and with the outcome, across runs at their "
        "last checkpoint and without interventions, in hundredths; deeper colour is farther from 0. Metrics that move "
        "together are one piece of evidence, not several."
    )
    return Figure("metric_map", title, caption, [_panel(story, names, table)], tables={"metric map": table})


def _table(story: Story, names: list[str]) -> Columns:
    if story.models is None:
        return {}
    frame = story.models.frame.loc[story.models.compared, names].astype(float)
    correlations = frame.corr(method="spearman", min_periods=FEWEST).to_numpy(dtype=float)
    lines: list[Line] = []
    for i, down in enumerate(names):
        for j, across in enumerate(names[: i + 1]):
            rho = float(correlations[i, j])
            known = bool(np.isfinite(rho))
            lines.append({
                "down": down, "across": across, "rho": rho if known else None,
                "level": round(abs(rho) * (DEPTH_OF_HEAT - 1)) if known else None,
                "text": f"{100 * rho:.0f}".replace("-", "\N{MINUS SIGN}") if known else "–",
            })  # fmt: skip
    return columns(lines)


def _panel(story: Story, names: list[str], table: Columns) -> Panel:
    levels = list(range(DEPTH_OF_HEAT))
    label = f"datum.value === {json.dumps(story.outcome)} ? {json.dumps(outcome_name(story.outcome))} : datum.value"
    numbers = f"indexof({names!r}, datum.value) + 1"
    cells = alt.Chart(alt.NamedData("metric map"))
    place = {
        "x": alt.X("across:N", sort=names, title=None, scale=alt.Scale(domain=names),
                   axis=alt.Axis(labelAngle=0, labelExpr=numbers, domain=False, ticks=False, orient="top")),
        "y": alt.Y("down:N", sort=names, title=None, scale=alt.Scale(domain=names),
                   axis=alt.Axis(labelExpr=f"({numbers}) + '  ' + ({label})", domain=False, ticks=False,
                                 labelLimit=200)),
    }  # fmt: skip
    ground = alt.Scale(domain=levels, range=[f"var(--h{level})" for level in levels])
    inks = alt.Scale(domain=levels, range=[f"var(--i{level})" for level in levels])
    hover = [alt.Tooltip("down:N", title="one"), alt.Tooltip("across:N", title="other"),
             alt.Tooltip("rho:Q", title="Spearman", format="+.3f")]  # fmt: skip
    tiles = cells.mark_rect(stroke="var(--paper)", strokeWidth=2, cornerRadius=3).encode(
        **place, color=alt.Color("level:O", scale=ground, legend=None), tooltip=hover
    )
    words = cells.mark_text(fontSize=10).encode(
        **place, text="text:N", color=alt.Color("level:O", scale=inks, legend=None)
    )
    pairs = zip(table["down"], table["across"], table["text"], strict=True)
    said = "; ".join(f"{down} with {across} {text}" for down, across, text in pairs if down != across)
    chart = alt.layer(tiles, words).resolve_scale(color="independent")
    return Panel(
        "metric_map-all", chart, "metric map", f"Spearman’s correlations: {said}.", height=CELL * len(names) + 24
    )
