"""Between models and at fixed scale: every metric's correlation with the outcome, with interval and slope of both.

What a test at fixed scale could have shown is drawn too: beyond the dashed lines an r is significant by itself, beyond
the dotted ones also as the strictest of all that are tested together. Where cells share seeds there is no such line:
how much the models of a seed have in common, and with it the r that is significant, differs from metric to metric. A
point is filled where its interval leaves out 0, so that filling and interval never disagree; its colour is the verdict
after correction.
"""

from functools import partial

import altair as alt
import numpy as np
from scipy.stats import t as student

from collapselab.analysis.relate import Relation
from collapselab.analysis.subsets import WITHIN
from collapselab.analysis.verdict import LEVEL, Verdict
from collapselab.report.charts.axes import NUMBER
from collapselab.report.charts.panels import Figure, Panel
from collapselab.report.data import Line, View, columns
from collapselab.report.story import Story
from collapselab.report.words import TEST_WORDS, outcome_name, property_code

ROW = 34
BETWEEN, FIXED = "across models", "at fixed scale"
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


def forest(view: View) -> Figure:
    """One row a metric: r across models above, r among seeds below."""
    title, story = "Between models, and at fixed scale", view.story
    pairs = [(metric, story.relation(metric), story.relation(metric, WITHIN)) for metric in story.main]
    known = [(metric, across, fixed) for metric, across, fixed in pairs if fixed is not None and fixed.r is not None]
    if not known:
        return Figure(
            "forest", title, missing="No two models differ in their seed alone: there is no r at fixed scale."
        )
    lines = [
        _line(story, metric, row, where)
        for metric, across, fixed in known for where, row in ((BETWEEN, across), (FIXED, fixed))
        if row is not None and row.r is not None
    ]  # fmt: skip
    for line in lines:
        if line["where"] == FIXED:
            slopes = [
                other["slope"] for other in lines if other["metric"] == line["metric"] and other["slope"] is not None
            ]
            texts = (np.format_float_positional(float(s), 2, fractional=False, sign=True, trim="-") for s in slopes)
            line["slopes"] = " / ".join(texts).replace("-", "\N{MINUS SIGN}")
    caption = (
        f"r of each metric with {outcome_name(story.outcome)}, with its 95 % interval: above, square, {BETWEEN}, where "
        f"size or training differ too; below, round, {FIXED}, where the seed alone does. Filled: the interval leaves "
        "out 0. Colour is the verdict after correction. At the right the slopes, in the same order: the change of "
        f"{outcome_name(story.outcome)} with one standard deviation of the metric among those models. "
    )
    critical = _critical([row for _, _, row in known if row])
    if critical:
        caption += (
            "Beyond the dashed lines an r at fixed scale is significant by itself, beyond the dotted ones after the "
            "strictest correction. "
        )
    caption += "Points on different sides of 0 are a reversal."
    panel = _panel(story, [metric for metric, _, _ in known], lines, critical)
    return Figure("forest", title, caption, [panel], ("answers",), tables={"forest": columns(lines)})


def _line(story: Story, metric: str, row: Relation, where: str) -> Line:
    left_out = row.low is not None and row.high is not None and (row.low > 0 or row.high < 0)
    answer = TEST_WORDS[row.verdict]
    return {
        "row": story.main.index(metric), "metric": metric, "name": f"{property_code(metric)} {metric}",
        "where": where, "r": row.r, "low": row.low, "high": row.high, "models": row.n, "answer": answer,
        "filled": int(left_out), "slope": row.slope, "slopes": None,
    }  # fmt: skip


def _critical(rows: list[Relation]) -> list[Line]:
    """The smallest |r| that is significant at fixed scale: by itself, and at the first step of the correction."""
    freedom = min(row.n for row in rows) - rows[0].cells - 1
    if freedom < 1 or any(row.shared_seeds for row in rows):
        return []
    levels: list[Line] = []
    for kind, level in (("dashed", LEVEL), ("dotted", LEVEL / len(rows))):
        bound = float(student.isf(level / 2, freedom))
        size = bound / np.sqrt(freedom + bound**2)
        levels += [{"r": float(size), "kind": kind}, {"r": float(-size), "kind": kind}]
    return levels


def _panel(story: Story, metrics: list[str], lines: list[Line], critical: list[Line]) -> Panel:
    data = alt.Chart(alt.NamedData("forest"))
    y = alt.Y("row:O", title=None, axis=None, scale=alt.Scale(domain=[story.main.index(m) for m in metrics], padding=0))
    x = alt.X("r:Q", title=f"correlation with {outcome_name(story.outcome)}", scale=alt.Scale(domain=[-1, 1]),
              axis=alt.Axis(values=[-1, -0.5, 0, 0.5, 1], labelExpr=NUMBER))  # fmt: skip
    colour = alt.Scale(domain=list(TEST_WORDS.values()), range=[VERDICT_COLOURS[verdict] for verdict in TEST_WORDS])
    zero = alt.Chart(alt.InlineData(values=[{"r": 0}])).mark_rule(color="var(--soft)").encode(x="r:Q")
    layers: list[alt.Chart] = [zero]
    for kind, dash in (("dashed", [5, 4]), ("dotted", [1.5, 3])):
        bounds = [line for line in critical if line["kind"] == kind]
        if bounds:
            rule = alt.Chart(alt.InlineData(values=bounds)).mark_rule(color="var(--soft)", strokeDash=dash)
            layers.append(rule.encode(x="r:Q"))
    named = data.transform_filter(f"datum.where === '{FIXED}'")
    name = partial(named.mark_text, align="left", x=2, dy=-ROW / 2 + 7, fontSize=10.5)
    halo, names = name(stroke="var(--paper)", strokeWidth=4), name(color="var(--soft)")
    hover = [alt.Tooltip("name:N", title="metric"), alt.Tooltip("where:N", title="compared"),
             alt.Tooltip("r:Q", format="+.3f"), alt.Tooltip("low:Q", format="+.2f"),
             alt.Tooltip("high:Q", format="+.2f"), alt.Tooltip("slope:Q", format="+.3g"),
             alt.Tooltip("models:Q", title="models"),
             alt.Tooltip("answer:N", title="verdict")]  # fmt: skip
    for where, shape, offset in ((BETWEEN, "square", 3), (FIXED, "circle", 11)):
        part = data.transform_filter(f"datum.where === '{where}'")
        bar = part.mark_rule(strokeWidth=1.6, opacity=0.8, yOffset=offset)
        dot = part.mark_point(shape=shape, size=48, strokeWidth=1.6, opacity=1, yOffset=offset)
        layers.append(bar.encode(x="low:Q", x2="high:Q", y=y, color=alt.Color("answer:N", title=None, scale=colour)))
        layers.append(dot.encode(
            x=x, y=y, tooltip=hover,
            stroke=alt.Stroke("answer:N", title=None, scale=colour),
            fill=alt.Fill("answer:N", title=None, scale=colour),
            fillOpacity=alt.condition("datum.filled === 1", alt.value(1), alt.value(0)),
        ))  # fmt: skip
    layers += [text.encode(y=y, text="name:N") for text in (halo, names)]
    slope = partial(named.mark_text, align="right", x="width", dx=-2, dy=-ROW / 2 + 7, fontSize=10.5)
    halo, slopes = slope(stroke="var(--paper)", strokeWidth=4), slope(color="var(--ink)")
    layers += [text.encode(y=y, text="slopes:N") for text in (halo, slopes)]
    return Panel("forest-all", alt.layer(*layers), "forest", _words(lines), height=ROW * len(metrics) + 10)


def _words(lines: list[Line]) -> str:
    parts = []
    for line in lines:
        interval = "" if line["low"] is None else f" [{line['low']:+.2f}, {line['high']:+.2f}]"
        slope = "" if line["slope"] is None else f", slope {line['slope']:+.2g}"
        parts.append(f"{line['name']} {line['where']} {line['r']:+.2f}{interval}{slope}, {line['answer']}")
    return f"Correlations: {'; '.join(parts)}."
