"""Fixed scale: models that differ only in their seed, beside the correlations across all models.

A forest point is filled if its interval excludes 0, so that filling and interval always agree; its colour is the
corrected verdict.
"""

import altair as alt
import numpy as np

from collapselab.analysis.models import RELATED
from collapselab.analysis.relate import Relation
from collapselab.analysis.resampling import centred
from collapselab.analysis.subsets import WITHIN, within_cells
from collapselab.analysis.verdict import Verdict
from collapselab.analysis.words import says_nothing
from collapselab.report.charts.axes import NUMBER
from collapselab.report.charts.panels import Figure, Panel
from collapselab.report.data import ReportData
from collapselab.report.view import Columns, Line, View, columns, plain
from collapselab.report.words import TEST_WORDS, metric_name, outcome_name, property_code

PAPER = (
    "In the paper (Wu & Papyan 2024, arXiv:2405.17767) this is Table 1, for 21 models of depth 2 and width 768: R² and "
    "p of each metric, before correction."
)


def seeds(view: View) -> Figure | str:
    """Draw each metric against the outcome within cells of seeds."""
    data = view.data
    relations = [row for metric in data.main if (row := data.relation(metric, WITHIN)) is not None]
    tested = [row for row in relations if row.r is not None]
    if not tested or data.analysis is None:
        return says_nothing(relations)
    relation = tested[0]
    several = relation.cells > 1
    caption = (
        f"Models of {f'{relation.cells} cells' if several else 'one cell'} that differ only in their "
        f"seed{', each cell’s mean subtracted' if several else ''}. p is the proportion of "
        f"{data.analysis.permutations:,} permutations of the outcome{' within cells' if several else ''} whose r is as "
        "far from 0; Holm p corrects it for all panels together."
    )
    tables = {f"seeds {one.metric}": _models_in_cells(data, one) for one in tested}
    panels = [_scatter(data, one, several=several) for one in tested]
    paper = PAPER if data.outcome == "val_loss" else ""
    return Figure(caption, panels, paper=paper, tables=tables)


def _models_in_cells(data: ReportData, relation: Relation) -> Columns:
    assert data.models is not None
    metric, trained = relation.metric, data.models.trained
    known, subset = trained[[metric, data.outcome]].notna().all(axis=1).to_numpy(), within_cells(trained)
    chosen = subset.only(known[subset.members])
    frame = trained.iloc[chosen.members]
    x, y = (frame[name].to_numpy(dtype=float) for name in (metric, data.outcome))
    if relation.transform == "log":
        x = np.log(x)
    if len(np.unique(chosen.cells)) > 1:
        x, y = centred(x, chosen.cells), centred(y, chosen.cells)
    models = [
        {"run": data.labels[run], "seed": plain(seed), "cell": cell, "outcome": b, "value": a}
        for run, seed, cell, a, b in zip(frame["run"], frame["seed"], frame["cell"], x, y, strict=True)
    ]
    return columns(models)


def _scatter(data: ReportData, relation: Relation, *, several: bool) -> Panel:
    metric = relation.metric
    models = alt.Chart(alt.NamedData(f"seeds {metric}"))
    off = " − mean of cell" if several else ""
    scale = "log " if RELATED[metric].transform == "log" else ""
    x = alt.X("value:Q", title=f"{scale}{metric}{off}", scale=alt.Scale(zero=False),
              axis=alt.Axis(labelExpr=NUMBER, tickCount=4))  # fmt: skip
    y = alt.Y("outcome:Q", title=f"{outcome_name(data.outcome)}{off}", scale=alt.Scale(zero=False),
              axis=alt.Axis(labelExpr=NUMBER, tickCount=4))  # fmt: skip
    hover = [alt.Tooltip("run:N"), alt.Tooltip("seed:N"), alt.Tooltip("cell:N"),
            alt.Tooltip("outcome:Q", title=outcome_name(data.outcome), format=".4f"),
            alt.Tooltip("value:Q", title=metric, format=".4~g")]  # fmt: skip
    line = models.transform_regression("value", "outcome").mark_line(color="var(--ink)", strokeWidth=1.4, opacity=0.75)
    points = models.mark_point(filled=True, size=42, color="var(--accent)", opacity=0.8)
    chart = alt.layer(line.encode(x=x, y=y), points.encode(x=x, y=y, tooltip=hover))
    note = f"R² {relation.r2:.2f}; too few models for a p-value"
    if relation.p_permutation is not None:
        note = f"R² {relation.r2:.2f}, p {relation.p_permutation:.2g}, Holm p {relation.p_holm:.2g}"
    words = _panel_words(data, relation)
    return Panel(f"seeds-{metric}", chart, f"seeds {metric}", words, metric, note=note, height=170)


def _panel_words(data: ReportData, relation: Relation) -> str:
    interval = f" [{relation.low:+.2f}, {relation.high:+.2f}]" if relation.low is not None else ""
    start = (
        f"{metric_name(relation.metric)} ({relation.metric}) against {outcome_name(relation.outcome)} in {relation.n} "
        f"models that differ in their seed alone: r {relation.r:+.2f}{interval}, R² {relation.r2:.2f}"
    )
    if relation.p_permutation is None:
        return f"{start}; no verdict: {relation.why}"
    p = f"permutation p {relation.p_permutation:.2g}, after Holm {relation.p_holm:.2g}"
    return f"{start}, {p}: {TEST_WORDS[relation.verdict]}."


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


def forest(view: View) -> Figure | str:
    """Draw one row for each metric: r across models above, r among seeds below."""
    data = view.data
    pairs = [(metric, data.relation(metric), data.relation(metric, WITHIN)) for metric in data.main]
    known = [(metric, across, fixed) for metric, across, fixed in pairs if fixed is not None and fixed.r is not None]
    if not known:
        return "No two models differ only in their seed, so there is no r at fixed scale."
    lines = [
        _line(data, metric, row, where)
        for metric, across, fixed in known for where, row in ((BETWEEN, across), (FIXED, fixed))
        if row is not None and row.r is not None
    ]  # fmt: skip
    caption = (
        f"r of each metric with {outcome_name(data.outcome)}, with its 95 % interval: above, square, {BETWEEN}, where "
        f"size or training also differ; below, round, {FIXED}, where only the seed differs. Filled: the interval "
        "excludes 0. Colour is the verdict after correction. Points on different sides of 0 are a reversal."
    )
    panel = _forest_panel(data, [metric for metric, _, _ in known], lines)
    return Figure(caption, [panel], ("answers",), tables={"forest": columns(lines)})


def _line(data: ReportData, metric: str, row: Relation, where: str) -> Line:
    left_out = row.low is not None and row.high is not None and (row.low > 0 or row.high < 0)
    answer = TEST_WORDS[row.verdict]
    return {
        "row": data.main.index(metric), "metric": metric, "name": f"{property_code(metric)} {metric}",
        "where": where, "r": row.r, "low": row.low, "high": row.high, "models": row.n, "answer": answer,
        "filled": int(left_out),
    }  # fmt: skip


def _forest_panel(data: ReportData, metrics: list[str], lines: list[Line]) -> Panel:
    base = alt.Chart(alt.NamedData("forest"))
    y = alt.Y("row:O", title=None, axis=None, scale=alt.Scale(domain=[data.main.index(m) for m in metrics], padding=0))
    x = alt.X("r:Q", title=f"correlation with {outcome_name(data.outcome)}", scale=alt.Scale(domain=[-1, 1]),
              axis=alt.Axis(values=[-1, -0.5, 0, 0.5, 1], labelExpr=NUMBER))  # fmt: skip
    colour = alt.Scale(domain=list(TEST_WORDS.values()), range=[VERDICT_COLOURS[verdict] for verdict in TEST_WORDS])
    zero = alt.Chart(alt.InlineData(values=[{"r": 0}])).mark_rule(color="var(--soft)").encode(x="r:Q")
    layers: list[alt.Chart] = [zero]
    named = base.transform_filter(f"datum.where === '{FIXED}'")
    names = named.mark_text(align="left", x=2, dy=-ROW / 2 + 7, fontSize=10.5, color="var(--soft)")
    hover = [alt.Tooltip("name:N", title="metric"), alt.Tooltip("where:N", title="compared"),
             alt.Tooltip("r:Q", format="+.3f"), alt.Tooltip("low:Q", format="+.2f"),
             alt.Tooltip("high:Q", format="+.2f"), alt.Tooltip("models:Q"),
             alt.Tooltip("answer:N", title="verdict")]  # fmt: skip
    for where, shape, offset in ((BETWEEN, "square", 3), (FIXED, "circle", 11)):
        part = base.transform_filter(f"datum.where === '{where}'")
        bar = part.mark_rule(strokeWidth=1.6, opacity=0.8, yOffset=offset)
        dot = part.mark_point(shape=shape, size=48, strokeWidth=1.6, opacity=1, yOffset=offset)
        layers.append(bar.encode(x="low:Q", x2="high:Q", y=y, color=alt.Color("answer:N", title=None, scale=colour)))
        layers.append(dot.encode(
            x=x, y=y, tooltip=hover,
            stroke=alt.Stroke("answer:N", title=None, scale=colour),
            fill=alt.Fill("answer:N", title=None, scale=colour),
            fillOpacity=alt.condition("datum.filled === 1", alt.value(1), alt.value(0)),
        ))  # fmt: skip
    layers.append(names.encode(y=y, text="name:N"))
    parts = []
    for line in lines:
        interval = "" if line["low"] is None else f" [{line['low']:+.2f}, {line['high']:+.2f}]"
        parts.append(f"{line['name']} {line['where']} {line['r']:+.2f}{interval}, {line['answer']}")
    words = f"Correlations: {'; '.join(parts)}."
    return Panel("forest-all", alt.layer(*layers), "forest", words, height=ROW * len(metrics) + 10)
