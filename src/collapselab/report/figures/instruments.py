"""Effect on the outcome against effect on a metric, a point for each arm: the plot of Mendelian randomisation."""

from collections.abc import Sequence

import altair as alt

from collapselab.analysis.effects import Effect
from collapselab.analysis.instruments import STRONG, Carried, Instrument
from collapselab.analysis.words import amount
from collapselab.report.charts.axes import NUMBER
from collapselab.report.charts.panels import DrawnChart, Figure, Panel
from collapselab.report.data import Line, View, columns
from collapselab.report.words import outcome_name

TITLE = "Is the effect carried by the property?"
KINDS = {"arm": ("var(--accent)", "circle", "var(--accent)"), "weak": ("var(--unshown)", "circle", "var(--paper)"),
         "sham": ("var(--other)", "square", "var(--paper)")}  # fmt: skip


def instruments(view: View) -> Figure:
    """A panel for each main metric that arms move."""
    analysis = view.story.analysis
    rows = [row for row in analysis.instruments if row.arms] if analysis else []
    if not rows or analysis is None:
        return Figure("instruments", TITLE, missing="No arm moves a main metric.")
    name = outcome_name(view.story.outcome)
    caption = (
        f"A point is an arm at a dose: its effect on the metric and on {name}, with 95 % intervals. If the property "
        "carries the effect, all points are on one line through 0, whatever moved it. Drawn is the line through 0 of "
        f"the arms that move the metric with F > {STRONG:g} (filled); hollow circles hardly move it, squares are shams."
    )
    tables, panels = {}, []
    for row in rows:
        points = _points(analysis.effects, row.metric, view.story.outcome)
        table = f"instruments {row.metric}"
        tables[table] = columns(points)
        said = "; ".join(f"{point['arm']} ({point['x']:+.3g}, {point['y']:+.3g})" for point in points)
        numbers = f"Effects on {row.metric} and {name}: {said}. {row.verdict}."
        chart = _chart(table, row, name, points)
        key = f"instruments-{row.metric}"
        panels.append(Panel(key, chart, table, numbers, row.metric, note=_note(row), height=240))
    return Figure("instruments", TITLE, caption, panels, tables=tables)


def _note(row: Instrument) -> str:
    if row.verdict is Carried.CANNOT_TELL or row.slope is None:
        return f"cannot tell: {row.why}" if row.why else "cannot tell"
    return f"{row.verdict}; slope {amount(row.slope, row.low, row.high, '')}, Q {row.q:.3g}"


def _points(rows: Sequence[Effect], metric: str, outcome: str) -> list[Line]:
    """Every arm whose effects on both are known."""
    on_outcome = {row.key: row for row in rows if row.metric == outcome and row.effect is not None}
    points: list[Line] = []
    for x in rows:
        y = on_outcome.get(x.key)
        if x.metric != metric or x.effect is None or y is None:
            continue
        strong = x.effect_in_sd is not None and x.n * x.effect_in_sd**2 > STRONG
        points.append({
            "arm": x.label, "kind": "sham" if x.sham else "arm" if strong else "weak", "x": x.effect, "y": y.effect,
            "x_low": x.low, "x_high": x.high, "y_low": y.low, "y_high": y.high,
        })  # fmt: skip
    return points


def _chart(table: str, row: Instrument, name: str, points: list[Line]) -> DrawnChart:
    """Both axes are linear, however far a few arms are from the others: on any other a line through 0 would bend."""
    data = alt.Chart(alt.NamedData(table))
    x = alt.X("x:Q", title=f"Δ {row.metric}", axis=alt.Axis(labelExpr=NUMBER, tickCount=5))
    y = alt.Y("y:Q", title=f"Δ {name}", axis=alt.Axis(labelExpr=NUMBER, tickCount=5))
    origin = alt.Chart(alt.InlineData(values=[{"zero": 0}]))
    layers: list[alt.Chart] = [
        origin.mark_rule(color="var(--soft)", opacity=0.6).encode(x="zero:Q"),
        origin.mark_rule(color="var(--soft)", opacity=0.6).encode(y="zero:Q"),
    ]
    if row.slope is not None:
        ends = [float(point["x"] or 0) for point in points] + [0.0]
        line = [{"x": end, "y": row.slope * end} for end in (min(ends), max(ends))]
        layers.append(alt.Chart(alt.InlineData(values=line)).mark_line(color="var(--soft)", strokeDash=[5, 4]).encode(
            x="x:Q", y="y:Q"))  # fmt: skip
    colour, shape, fill = (alt.Scale(domain=list(KINDS), range=[KINDS[kind][i] for kind in KINDS]) for i in range(3))
    bars = data.mark_rule(opacity=0.45)
    hover = [alt.Tooltip("arm:N"), alt.Tooltip("x:Q", title=f"Δ {row.metric}", format="+.3~g"),
             alt.Tooltip("y:Q", title=f"Δ {name}", format="+.3~g")]  # fmt: skip
    layers += [
        bars.encode(x="x_low:Q", x2="x_high:Q", y=y, color=alt.Color("kind:N", scale=colour)),
        bars.encode(x=x, y="y_low:Q", y2="y_high:Q", color=alt.Color("kind:N", scale=colour)),
        data.mark_point(size=50, opacity=1, strokeWidth=1.5).encode(
            x=x, y=y, tooltip=hover, stroke=alt.Stroke("kind:N", scale=colour),
            shape=alt.Shape("kind:N", scale=shape), fill=alt.Fill("kind:N", scale=fill)),
    ]  # fmt: skip
    return alt.layer(*layers)
