"""Effect on the outcome against effect on a metric, a point for each arm, and what the best plane leaves over."""

from collections.abc import Sequence

import altair as alt
import numpy as np

from collapselab.analysis.arms import comparisons
from collapselab.analysis.attribution import Attributed, intervention_of, points_of, slopes
from collapselab.analysis.models import Models
from collapselab.analysis.verdict import Verdict
from collapselab.analysis.words import amount
from collapselab.report.charts.axes import NUMBER
from collapselab.report.charts.panels import DrawnChart, Figure, Panel
from collapselab.report.data import Columns, Line, View, columns
from collapselab.report.words import outcome_name

TITLE = "Do the effects follow the property?"
COLOURS = 8
"""Interventions with a colour of their own."""


def attribution(view: View) -> Figure:
    """A panel for each metric alone, and one for the two metrics that come nearest to all arms."""
    analysis, models = view.story.analysis, view.story.models
    rows = [row for row in analysis.attribution if row.arms] if analysis else []
    if not rows or models is None:
        return Figure("attribution", TITLE, missing="No arm with a control.")
    name = outcome_name(view.story.outcome)
    caption = (
        f"A point is an arm at a dose: its mean effect on the metric and on {name}; the colour is the intervention, "
        "squares are shams. If the outcome changes through this property alone, all points lie on the line through 0. "
        "The last panel compares the effects with those that the best pair of metrics predicts: points off the "
        "diagonal change the outcome in other ways."
    )
    singles = [row for row in rows if " " not in row.metrics]
    tables: dict[str, Columns] = {}
    panels: list[Panel] = []
    for row in singles:
        points = _points(models, (row.metric,))
        panels.append(_panel(row, points, name, f"Δ {row.metric}", row.slope))
        tables[panels[-1].table] = columns(points)
    pairs = [row for row in rows if " " in row.metrics and row.q is not None]
    if pairs:
        best = min(pairs, key=lambda row: row.q or 0.0)
        points = _points(models, best.metrics.split())
        panels.append(_panel(best, points, name, f"predicted from {best.metrics.replace(' ', ' and ')}", 1.0))
        tables[panels[-1].table] = columns(points)
    return Figure("attribution", TITLE, caption, panels, tables=tables)


def _points(models: Models, metrics: Sequence[str]) -> list[Line]:
    """One metric: its effect in every arm; two: what their plane predicts for the outcome."""
    compared = comparisons(models)
    treated = [comparison for comparison in compared if not comparison.arm.sham]
    fitted = slopes(points_of(treated, metrics, models.outcome)) if len(metrics) > 1 else np.ones(1)
    lines: list[Line] = []
    for comparison in compared:
        x = float(sum(b * comparison.scaled(metric).mean() for b, metric in zip(fitted, metrics, strict=True)))
        y = float(comparison.scaled(models.outcome).mean())
        if np.isfinite([x, y]).all():
            arm = comparison.arm
            kind = "sham" if arm.sham else "arm"
            lines.append({"arm": arm.label, "intervention": intervention_of(comparison), "kind": kind, "x": x, "y": y})
    return lines


def _panel(row: Attributed, points: list[Line], name: str, axis: str, slope: float | None) -> Panel:
    table = f"attribution {row.metrics}"
    listed = "; ".join(f"{point['arm']} ({point['x']:+.3g}, {point['y']:+.3g})" for point in points)
    numbers = f"{axis} and Δ {name}: {listed}. {row.verdict}."
    key, title = f"attribution-{row.metrics.replace(' ', '-')}", row.metrics.replace(" ", " and ")
    return Panel(key, _chart(table, points, axis, name, slope), table, numbers, title, note=_note(row), height=240)


def _note(row: Attributed) -> str:
    if row.verdict is Verdict.TOO_FEW or row.slope is None:
        return f"{row.verdict}: {row.why}" if row.why else str(row.verdict)
    slope = "" if " " in row.metrics else f"slope {amount(row.slope, row.low, row.high, '')}, "
    return f"{row.verdict}; {slope}Q {row.q:.3g}, p {row.q_p:.2g}"


def _chart(table: str, points: list[Line], axis: str, name: str, slope: float | None) -> DrawnChart:
    """Both axes are linear, however far a few arms are from the others: on any other a line through 0 would bend."""
    data = alt.Chart(alt.NamedData(table))
    x = alt.X("x:Q", title=axis, axis=alt.Axis(labelExpr=NUMBER, tickCount=5))
    y = alt.Y("y:Q", title=f"Δ {name}", axis=alt.Axis(labelExpr=NUMBER, tickCount=5))
    origin = alt.Chart(alt.InlineData(values=[{"zero": 0}]))
    layers: list[alt.Chart] = [
        origin.mark_rule(color="var(--soft)", opacity=0.6).encode(x="zero:Q"),
        origin.mark_rule(color="var(--soft)", opacity=0.6).encode(y="zero:Q"),
    ]
    if slope is not None:
        ends = [float(point["x"] or 0) for point in points] + [0.0]
        line = [{"x": end, "y": slope * end} for end in (min(ends), max(ends))]
        layers.append(alt.Chart(alt.InlineData(values=line)).mark_line(color="var(--soft)", strokeDash=[5, 4]).encode(
            x="x:Q", y="y:Q"))  # fmt: skip
    kinds = list(dict.fromkeys(str(point["intervention"]) for point in points))
    colour = alt.Scale(domain=kinds, range=[f"var(--c{place % COLOURS})" for place in range(len(kinds))])
    shape = alt.Scale(domain=["arm", "sham"], range=["circle", "square"])
    hover = [alt.Tooltip("arm:N"), alt.Tooltip("x:Q", title=axis, format="+.3~g"),
             alt.Tooltip("y:Q", title=f"Δ {name}", format="+.3~g")]  # fmt: skip
    marks = data.mark_point(size=60, opacity=1, strokeWidth=2).encode(
        x=x, y=y, tooltip=hover, color=alt.Color("intervention:N", scale=colour), shape=alt.Shape("kind:N", scale=shape)
    )
    return alt.layer(*layers, marks)
