"""The specification curve: what a metric says of the outcome when one thing after another is held fixed."""

from functools import partial

import altair as alt

from collapselab.analysis.controls import Control
from collapselab.analysis.verdict import Verdict
from collapselab.analysis.words import NOT_MEASURED, SHOWN, relation_words
from collapselab.report.charts.axes import NUMBER
from collapselab.report.charts.panels import Figure, Panel
from collapselab.report.data import Columns, View, columns
from collapselab.report.story import Story
from collapselab.report.words import NO_ANSWER, TEST_WORDS, control_name, metric_name, outcome_name

VERDICT_SHAPES = {
    Verdict.AS_PREDICTED: "circle",
    Verdict.OPPOSITE: "triangle-down",
    Verdict.NO_DIRECTION: "diamond",
    Verdict.NOT_SHOWN: "circle",
    Verdict.TOO_FEW: "cross",
    Verdict.DESCRIPTION: "square",
}
VERDICT_COLOURS = {
    Verdict.AS_PREDICTED: "var(--with)",
    Verdict.OPPOSITE: "var(--against)",
    Verdict.NO_DIRECTION: "var(--mixed)",
    Verdict.NOT_SHOWN: "var(--unshown)",
    Verdict.TOO_FEW: "var(--unshown)",
    Verdict.DESCRIPTION: "var(--soft)",
}


def specifications(view: View) -> Figure:
    """The specification curve: the partial correlation of each metric under one control after another."""
    title, story = "Specification curve: one control after another", view.story
    rows = [
        row
        for row in (story.analysis.controls if story.analysis else [])
        if row.transform == story.transform(row.metric)
    ]
    known = [metric for metric in story.main if any(r.metric == metric and r.partial_r is not None for r in rows)]
    if not known:
        reason = next((row.why for row in rows if row.why), NOT_MEASURED)
        return Figure("controls", title, missing=f"No specification could be fitted: {reason}")
    caption = (
        f"Partial correlation with {outcome_name(story.outcome)} when what the line names is held fixed, with its 95 % "
        "interval: each line but the last two describes. “All jointly” tests them together, beyond a smooth function "
        "of scale; the last line compares seeds alone. Filled: the interval leaves out 0; where there is none, a "
        "test shows it."
    )
    order = list(dict.fromkeys(row.controls for row in rows))
    tables, panels = {}, []
    for metric in known:
        chosen = [row for row in rows if row.metric == metric]
        tables[f"controls {metric}"] = _curve(story, chosen, order)
        panels.append(_curve_panel(story, metric, chosen, order))
    return Figure("controls", title, caption, panels, ("answers",), tables=tables)


def _curve(story: Story, rows: list[Control], order: list[str]) -> Columns:
    return columns([
        {"order": order.index(row.controls), "label": control_name(row.controls), "r": row.partial_r,
         "low": row.low, "high": row.high, "n": row.n, "filled": int(_leaves_out_zero(row)),
         "answer": "" if row.partial_r is None else TEST_WORDS[row.verdict],
         "verdict": row.why or _verdict_words(story, row), "missing": NO_ANSWER if row.partial_r is None else None}
        for row in rows
    ])  # fmt: skip


def _leaves_out_zero(row: Control) -> bool:
    if row.low is None or row.high is None:
        return row.verdict in SHOWN
    return row.low > 0 or row.high < 0


def _verdict_words(story: Story, row: Control) -> str:
    assert story.models is not None
    return relation_words(row.verdict, outcome=story.outcome, better=story.models.better)


def _curve_panel(story: Story, metric: str, rows: list[Control], order: list[str]) -> Panel:
    curve = alt.Chart(alt.NamedData(f"controls {metric}"))
    y = alt.Y("order:O", title=None, axis=None, scale=alt.Scale(domain=list(range(len(order)))))
    zero = alt.Chart(alt.InlineData(values=[{"r": 0}])).mark_rule(color="var(--soft)").encode(x="r:Q")
    known = curve.transform_filter("isValid(datum.r)")
    bars = known.mark_rule(strokeWidth=1.6, opacity=0.8, yOffset=7).encode(
        x="low:Q", x2="high:Q", y=y, color=alt.Color("answer:N", title=None, scale=_scale(VERDICT_COLOURS))
    )
    small = partial(alt.Chart.mark_text, dy=-6, fontSize=10.5, color="var(--soft)")
    names = small(curve, align="left", x=2).encode(y=y, text="label:N")
    unanswered = curve.transform_filter("isValid(datum.missing)")
    absent = small(unanswered, align="right", x="width", fontStyle="italic").encode(y=y, text="missing:N")
    chart = alt.layer(zero, bars, _dots(known, y), names, absent)
    return Panel(
        f"controls-{metric}", chart, f"controls {metric}", _panel_words(story, metric, rows), metric,
        height=32 * len(order),
    )  # fmt: skip


def _dots(known: alt.Chart, y: alt.Y) -> alt.Chart:
    """Hollow where the interval holds 0; a shape of its own for the opposite direction."""
    x = alt.X("r:Q", title="partial correlation", scale=alt.Scale(domain=[-1, 1]),
              axis=alt.Axis(values=[-1, -0.5, 0, 0.5, 1], labelExpr=NUMBER))  # fmt: skip
    hover = [alt.Tooltip("label:N", title="held fixed"), alt.Tooltip("r:Q", title="partial r", format="+.3f"),
            alt.Tooltip("low:Q", format="+.2f"), alt.Tooltip("high:Q", format="+.2f"),
            alt.Tooltip("n:Q", title="models"), alt.Tooltip("verdict:N")]  # fmt: skip
    dots: alt.Chart = known.mark_point(size=55, strokeWidth=1.6, opacity=1, yOffset=7).encode(
        x=x, y=y, tooltip=hover,
        stroke=alt.Stroke("answer:N", title=None, scale=_scale(VERDICT_COLOURS)),
        shape=alt.Shape("answer:N", title=None, scale=_scale(VERDICT_SHAPES)),
        fill=alt.Fill("answer:N", title=None, scale=_scale(VERDICT_COLOURS)),
        fillOpacity=alt.condition("datum.filled === 1", alt.value(1), alt.value(0)),
    )  # fmt: skip
    return dots


def _scale(of_verdicts: dict[Verdict, str]) -> alt.Scale:
    return alt.Scale(domain=list(TEST_WORDS.values()), range=[of_verdicts[verdict] for verdict in TEST_WORDS])


def _panel_words(story: Story, metric: str, rows: list[Control]) -> str:
    parts = "; ".join(
        f"{control_name(row.controls)}: {row.why}" if row.partial_r is None
        else f"{control_name(row.controls)} {row.partial_r:+.2f} ({_verdict_words(story, row)})"
        for row in rows
    )  # fmt: skip
    return f"Partial correlations of {metric_name(metric)} ({metric}): {parts}"
