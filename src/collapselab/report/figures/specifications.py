"""The specification curve: what a metric says of the outcome when one thing after another is held fixed."""

from typing import Any

import altair as alt

from collapselab.analysis.controls import SEEDS, Control
from collapselab.analysis.relate import CANNOT_TELL
from collapselab.report.charts.axes import NUMBER
from collapselab.report.charts.panels import Figure, Panel
from collapselab.report.data import Columns, columns
from collapselab.report.story import Story
from collapselab.report.words import metric_name, outcome_name

SPECIFICATIONS = {
    "nothing": "nothing",
    "log parameters": "log parameters",
    "width, depth and regime as factors": "width, depth, regime",
    "architecture and regime": "architecture + regime",
    "architecture, regime and their interactions": "… and interactions",
    "training loss": "training loss",
    "mixed model": "mixed model",
    SEEDS: "seeds alone",
}
"""What is held fixed, in the few words that fit a panel; in the order of the curve."""
ANSWERS = {
    "with": "shown, as collapse predicts",
    "against": "shown, the wrong way",
    "neither": "shown, no way predicted",
    "open": "not shown",
    "few": "cannot tell: too few models",
}
SHAPES = {"with": "circle", "against": "triangle-down", "neither": "diamond", "open": "circle", "few": "cross"}
COLOURS = {"with": "var(--with)", "against": "var(--against)", "neither": "var(--mixed)", "open": "var(--unshown)",
           "few": "var(--unshown)"}  # fmt: skip


def specifications(story: Story) -> tuple[Figure, dict[str, Columns]]:
    """The specification curve: the partial correlation of each metric under one control after another."""
    title = "Specification curve: one control after another"
    rows = [row for row in (story.analysis.controls if story.analysis else []) if row.transform == "raw"]
    known = [metric for metric in story.main if any(r.metric == metric and r.partial_r is not None for r in rows)]
    if not known:
        reason = next((row.why for row in rows if row.why), "no metric was measured.")
        return Figure("controls", title, missing=f"No specification could be fitted: {reason}"), {}
    caption = (
        f"Partial correlation with {outcome_name(story.outcome)} when what the line names is held fixed, with its 95 % "
        "interval. Filled: shown after Holm’s correction; a triangle goes the wrong way. The last line compares seeds "
        "alone."
    )
    tables, panels = {}, []
    for metric in known:
        chosen = [row for row in rows if row.metric == metric and row.controls in SPECIFICATIONS]
        tables[f"controls {metric}"] = _curve(chosen)
        panels.append(_curve_panel(metric, chosen))
    return Figure("controls", title, caption, panels, ("answers",)), tables


def _curve(rows: list[Control]) -> Columns:
    return columns([
        {"order": list(SPECIFICATIONS).index(row.controls), "label": SPECIFICATIONS[row.controls], "r": row.partial_r,
         "low": row.low, "high": row.high, "n": row.n, "answer": _answer(row), "verdict": row.verdict or row.why,
         "missing": "no answer" if row.partial_r is None else None}
        for row in rows
    ])  # fmt: skip


def _answer(row: Control) -> str:
    if row.partial_r is None:
        return ""
    if row.verdict is None:
        return ANSWERS["few"]
    return ANSWERS["open"] if row.verdict == "not shown" else ANSWERS[row.goes or "neither"]


def _curve_panel(metric: str, rows: list[Control]) -> Panel:
    curve = alt.Chart(alt.NamedData(f"controls {metric}"))
    y = alt.Y("order:O", title=None, axis=None, scale=alt.Scale(domain=list(range(len(SPECIFICATIONS)))))
    zero = alt.Chart(alt.InlineData(values=[{"r": 0}])).mark_rule(color="var(--soft)").encode(x="r:Q")
    found = curve.transform_filter("isValid(datum.r)")
    bars = found.mark_rule(strokeWidth=1.6, opacity=0.8, yOffset=7).encode(
        x="low:Q", x2="high:Q", y=y, color=alt.Color("answer:N", title=None, scale=_scale(COLOURS))
    )
    small: dict[str, Any] = {"dy": -6, "fontSize": 10.5, "color": "var(--soft)"}
    names = curve.mark_text(align="left", x=2, **small).encode(y=y, text="label:N")
    unanswered = curve.transform_filter("isValid(datum.missing)")
    absent = unanswered.mark_text(align="right", x="width", fontStyle="italic", **small).encode(y=y, text="missing:N")
    chart = alt.layer(zero, bars, _dots(found, y), names, absent)
    return Panel(
        f"controls-{metric}", chart, f"controls {metric}", _numbers(metric, rows), metric,
        height=32 * len(SPECIFICATIONS),
    )  # fmt: skip


def _dots(found: Any, y: Any) -> Any:
    """Hollow where nothing is shown; a shape of its own for what goes the wrong way."""
    x = alt.X("r:Q", title="partial correlation", scale=alt.Scale(domain=[-1, 1]),
              axis=alt.Axis(values=[-1, -0.5, 0, 0.5, 1], labelExpr=NUMBER))  # fmt: skip
    told = [alt.Tooltip("label:N", title="held fixed"), alt.Tooltip("r:Q", title="partial r", format="+.3f"),
            alt.Tooltip("low:Q", format="+.2f"), alt.Tooltip("high:Q", format="+.2f"),
            alt.Tooltip("n:Q", title="models"), alt.Tooltip("verdict:N")]  # fmt: skip
    return found.mark_point(size=55, strokeWidth=1.6, opacity=1, yOffset=7).encode(
        x=x, y=y, tooltip=told,
        stroke=alt.Stroke("answer:N", title=None, scale=_scale(COLOURS)),
        shape=alt.Shape("answer:N", title=None, scale=_scale(SHAPES)),
        fill=alt.Fill("answer:N", title=None, scale=_scale(COLOURS | dict.fromkeys(("open", "few"), "var(--paper)"))),
    )  # fmt: skip


def _scale(of_answers: dict[str, str]) -> Any:
    return alt.Scale(domain=list(ANSWERS.values()), range=[of_answers[answer] for answer in ANSWERS])


def _numbers(metric: str, rows: list[Control]) -> str:
    told = "; ".join(
        f"{SPECIFICATIONS[row.controls]}: {row.why}" if row.partial_r is None
        else f"{SPECIFICATIONS[row.controls]} {row.partial_r:+.2f} ({row.verdict or CANNOT_TELL})"
        for row in rows
    )  # fmt: skip
    return f"Partial correlations of {metric_name(metric)} ({metric}): {told}"
