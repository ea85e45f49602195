"""Interventions: manipulation checks, effects on the outcome, and whether the effect follows the property.

Effects are arm minus control in pairs; the shaded band is the range of effects of no interest.
"""

from collections.abc import Sequence

import altair as alt
import numpy as np

from collapselab.analysis.arms import comparisons
from collapselab.analysis.attribution import Attributed, intervention_of, points_of, slopes
from collapselab.analysis.effects import Effect
from collapselab.analysis.models import Models
from collapselab.analysis.verdict import Role, Verdict
from collapselab.analysis.words import amount
from collapselab.report.charts.axes import NUMBER
from collapselab.report.charts.forest import NARROW, ForestLine, forest_figure, forest_panel, forest_table
from collapselab.report.charts.panels import DrawnChart, Figure, Panel
from collapselab.report.charts.style import CATEGORIES
from collapselab.report.view import Columns, Line, View, columns
from collapselab.report.words import outcome_name

NO_ARMS = "No two runs differ only in an intervention, a head or an optimiser."


def effects(view: View) -> Figure | str:
    """Draw a line for each arm: its effect, its interval and the verdict."""
    rows = [row for row in _outcome_rows(view) if not row.sham]
    if not rows:
        return NO_ARMS
    band = rows[0].margin
    band_words = f" Band: ±{band:.2g}, smaller than any effect of interest." if band is not None else ""
    registered = "registered before the first run" if rows[0].registered else "exploratory"
    caption = (
        f"Arm minus control in pairs of one seed, with the 95 % interval ({registered}). Verdicts come from tests "
        f"corrected over all arms. An arm that did not reach its property has no verdict.{band_words}"
    )
    lines = [_verdict_line(row) for row in rows]
    return forest_figure("effects", caption, f"Δ {outcome_name(view.data.outcome)}", lines, band)


def shams(view: View) -> Figure | str:
    """Draw the effect on the outcome of every arm that has a sham of its dose, and of that sham."""
    rows = _outcome_rows(view)
    of_dose = {(row.where, row.arm, row.dose): row for row in rows if row.sham}
    pairs = [(row, of_dose[row.key[:3]]) for row in rows if not row.sham and row.key[:3] in of_dose]
    if not pairs:
        return "No arm has a sham of the same dose."
    caption = (
        "The same force with labels permuted within the batch is the sham (squares). What a sham does to the outcome "
        "is not an effect of the property."
    )
    lines = [
        ForestLine(row.label, kind, arm.effect or 0.0, arm.low, arm.high, arm.n)
        for row, sham in pairs
        for kind, arm in (("treatment", row), ("sham", sham))
    ]
    return forest_figure("shams", caption, f"Δ {outcome_name(view.data.outcome)}", lines, rows[0].margin)


def _outcome_rows(view: View) -> list[Effect]:
    """Return the effects of arms and shams on the outcome."""
    rows = view.data.analysis.tables["effects"] if view.data.analysis else ()
    return [row for row in rows if row.role is Role.OUTCOME and row.effect is not None]


def _verdict_line(row: Effect) -> ForestLine:
    verdict = str(row.verdict or Verdict.TOO_FEW)
    p = row.p_equivalence if row.verdict is Verdict.EQUIVALENT else row.p_holm
    silent = p is None or row.verdict in (Verdict.DID_NOT_REACH, Verdict.TOO_FEW)
    words = verdict if silent else f"{verdict}, p {p:.2g}"
    return ForestLine(row.label, verdict, row.effect or 0.0, row.low, row.high, row.n, words)


def manipulation(view: View) -> Figure | str:
    """Draw a panel for each target metric: the effects of the arms, and of shams of the same interventions."""
    rows = view.data.analysis.tables["effects"] if view.data.analysis else ()
    targets = [row for row in rows if row.role is Role.TARGET and row.effect is not None]
    if not targets:
        return NO_ARMS
    caption = (
        "Effect of each arm on the metric that it must move, arm minus control in pairs, with its 95 % interval. An "
        "arm has reached its property (filled) if the effect is at least two standard deviations of the pairs in the "
        "right direction, and larger than that of its sham (squares)."
    )
    tables, panels = {}, []
    metrics = list(dict.fromkeys(row.metric for row in targets))
    room = NARROW if len(metrics) > 1 else None  # a single panel is wide
    for metric in metrics:
        made_for = [row for row in targets if row.metric == metric]
        names = {(row.where, row.arm) for row in made_for}
        shams = [row for row in rows if row.sham and row.metric == metric and (row.where, row.arm) in names]
        lines = []
        for row in (row for row in (*made_for, *shams) if row.effect is not None):
            kind = "sham" if row.sham else {True: "reached", False: "not reached", None: "too few runs"}[row.reached]
            words = "" if row.sham else kind
            lines.append(ForestLine(row.label, kind, row.effect, row.low, row.high, row.n, words))
        tables[f"manipulation {metric}"] = forest_table(lines, room=room)
        panels.append(forest_panel(f"manipulation {metric}", lines, f"Δ {metric}", metric=metric, room=room))
    return Figure(caption, panels, tables=tables)


def attribution(view: View) -> Figure | str:
    """Draw a panel for each single metric, and one for the pair of metrics that fits all arms best."""
    analysis, models = view.data.analysis, view.data.models
    rows = [row for row in analysis.tables["attribution"] if row.arms] if analysis else []
    if not rows or models is None:
        return "No arm with a control."
    name = outcome_name(view.data.outcome)
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
        panels.append(_plane_panel(row, points, name, f"Δ {row.metric}", row.slope))
        tables[panels[-1].table] = columns(points)
    pairs = [row for row in rows if " " in row.metrics and row.q is not None]
    if pairs:
        best = min(pairs, key=lambda row: row.q or 0.0)
        points = _points(models, best.metrics.split())
        panels.append(_plane_panel(best, points, name, f"predicted from {best.metrics.replace(' ', ' and ')}", 1.0))
        tables[panels[-1].table] = columns(points)
    return Figure(caption, panels, tables=tables)


def _points(models: Models, metrics: Sequence[str]) -> list[Line]:
    """Return the effects of every arm: on one metric, or of two metrics as their plane predicts the outcome."""
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


def _plane_panel(row: Attributed, points: list[Line], name: str, axis: str, slope: float | None) -> Panel:
    table = f"attribution {row.metrics}"
    listed = "; ".join(f"{point['arm']} ({point['x']:+.3g}, {point['y']:+.3g})" for point in points)
    numbers = f"{axis} and Δ {name}: {listed}. {row.verdict}."
    key, title = f"attribution-{row.metrics.replace(' ', '-')}", row.metrics.replace(" ", " and ")
    return Panel(
        key, _plane_chart(table, points, axis, name, slope), table, numbers, title, note=_plane_note(row), height=240
    )


def _plane_note(row: Attributed) -> str:
    if row.verdict is Verdict.TOO_FEW or row.slope is None:
        return f"{row.verdict}: {row.why}" if row.why else str(row.verdict)
    slope = "" if " " in row.metrics else f"slope {amount(row.slope, row.low, row.high, '')}, "
    return f"{row.verdict}; {slope}Q {row.q:.3g}, p {row.q_p:.2g}"


def _plane_chart(table: str, points: list[Line], axis: str, name: str, slope: float | None) -> DrawnChart:
    """Both axes are linear, even if a few arms are far from the others: otherwise a line through 0 would bend."""
    base = alt.Chart(alt.NamedData(table))
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
    colour = alt.Scale(domain=kinds, range=[f"var(--c{place % len(CATEGORIES)})" for place in range(len(kinds))])
    shape = alt.Scale(domain=["arm", "sham"], range=["circle", "square"])
    hover = [alt.Tooltip("arm:N"), alt.Tooltip("x:Q", title=axis, format="+.3~g"),
             alt.Tooltip("y:Q", title=f"Δ {name}", format="+.3~g")]  # fmt: skip
    marks = base.mark_point(size=60, opacity=1, strokeWidth=2).encode(
        x=x, y=y, tooltip=hover, color=alt.Color("intervention:N", scale=colour), shape=alt.Shape("kind:N", scale=shape)
    )
    return alt.layer(*layers, marks)
