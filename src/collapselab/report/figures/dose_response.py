"""The outcome against the signed dose of an intervention, with the isotonic fit."""

import altair as alt

from collapselab.analysis.doses import Response
from collapselab.report.charts.axes import NUMBER
from collapselab.report.charts.panels import DrawnChart, Figure, Panel
from collapselab.report.data import View, columns
from collapselab.report.words import outcome_name

TITLE = "Dose and response"


def dose_response(view: View) -> Figure:
    """A panel for each arm with two doses or more beside its control."""
    known = view.story.analysis.responses if view.story.analysis else ()
    rows = [row for row in known if row.metric == view.story.outcome]
    made_for = {(row.where, row.arm): row.metric for row in known if row.metric != view.story.outcome}
    if not rows:
        return Figure("dose_response", TITLE, missing="No arm has two doses or more beside its control.")
    caption = (
        "Mean effect with its 95 % interval, over the seeds that have every dose; 0 is the control. The line is the "
        "nearest that only rises or only falls; the p is that of Page's test within seeds."
    )
    name = outcome_name(view.story.outcome)
    tables, panels = {}, []
    for number, key in enumerate(dict.fromkeys(row.key for row in rows)):
        along = [row for row in rows if row.key == key]
        table = f"doses {number}"
        tables[table] = columns([
            {"dose": row.dose, "effect": row.effect, "low": row.low, "high": row.high, "fitted": row.fitted,
             "n": row.n} for row in along
        ])  # fmt: skip
        numbers = f"Δ {name} by dose of {along[0].arm}: "
        numbers += ", ".join(f"{row.dose:+g} {row.effect:+.3g}" for row in along)
        panels.append(Panel(f"dose-{number}", _chart(table, along, name), table, f"{numbers}. {_verdict(along[0])}.",
                            made_for.get(key[:2], "")))  # fmt: skip
    return Figure("dose_response", TITLE, caption, panels, tables=tables)


def _verdict(row: Response) -> str:
    if row.p_holm is None:
        return f"Cannot tell: {row.n} seeds"
    return f"{(row.trend or 'no trend shown').capitalize()}, p {row.p_holm:.2g}, {row.n} seeds"


def _chart(table: str, rows: list[Response], name: str) -> DrawnChart:
    data = alt.Chart(alt.NamedData(table))
    x = alt.X("dose:Q", title="dose", axis=alt.Axis(values=[row.dose for row in rows], labelExpr=NUMBER))
    y = alt.Y("effect:Q", title=f"Δ {name}", axis=alt.Axis(labelExpr=NUMBER))
    zero = alt.Chart(alt.InlineData(values=[{"zero": 0}])).mark_rule(color="var(--soft)").encode(y="zero:Q")
    fit = data.mark_line(color="var(--soft)", strokeDash=[4, 3], strokeWidth=1.4).encode(x=x, y="fitted:Q")
    bars = data.transform_filter("isValid(datum.low)").mark_rule(color="var(--accent)", strokeWidth=1.6)
    hover = [alt.Tooltip("dose:Q"), alt.Tooltip("effect:Q", format="+.4~g"), alt.Tooltip("low:Q", format="+.3~g"),
             alt.Tooltip("high:Q", format="+.3~g"), alt.Tooltip("n:Q", title="seeds")]  # fmt: skip
    dots = data.mark_point(filled=True, size=50, color="var(--accent)", opacity=1).encode(x=x, y=y, tooltip=hover)
    where = f" ({rows[0].where})" if rows[0].where else ""
    title = alt.TitleParams(f"{rows[0].arm}{where}", subtitle=_verdict(rows[0]))
    return alt.layer(zero, fit, bars.encode(x=x, y="low:Q", y2="high:Q"), dots).properties(title=title)
