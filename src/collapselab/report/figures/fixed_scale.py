"""Fixed scale: models that differ only in their seed, beside the correlations across all models.

A mark of the forest shows the verdict after correction, which can differ from what its interval alone would say.
"""

import altair as alt
import numpy as np

from collapselab.analysis.models import RELATED
from collapselab.analysis.relate import Relation, says_nothing
from collapselab.analysis.resampling import centred
from collapselab.analysis.subsets import WITHIN, within_cells
from collapselab.report.charts.axes import NUMBER
from collapselab.report.charts.forest import ForestLine, forest_figure
from collapselab.report.charts.panels import Figure, Panel
from collapselab.report.data import ReportData
from collapselab.report.view import Columns, View, columns, plain
from collapselab.report.words import TEST_WORDS, metric_name, outcome_name, property_code

PAPER = (
    " In the paper (Wu & Papyan 2024, arXiv:2405.17767) this is Table 1, for 21 models of depth 2 and width 768: R² "
    "and p of each metric, before correction."
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
    return Figure(caption + (PAPER if data.outcome == "val_loss" else ""), panels, tables=tables)


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
    numbers = (
        f"{metric_name(metric)} ({metric}) against {outcome_name(data.outcome)} in {relation.n} models that differ "
        f"only in their seed: r {relation.r:+.2f}, {note}; {TEST_WORDS[relation.verdict]}."
    )
    return Panel(f"seeds-{metric}", chart, f"seeds {metric}", numbers, metric, note=note, height=170)


def forest(view: View) -> Figure | str:
    """Draw one row for each metric: r among seeds, and r across models."""
    data, lines = view.data, []
    for metric in data.main:
        across, fixed = data.relation(metric), data.relation(metric, WITHIN)
        if fixed is None or fixed.r is None:
            continue
        name, words = f"{property_code(metric)} {metric}", TEST_WORDS[fixed.verdict]
        lines.append(ForestLine(name, words, fixed.r, fixed.low, fixed.high, fixed.n, words))
        if across is not None and across.r is not None:
            lines.append(ForestLine(name, "all models", across.r, across.low, across.high, across.n))
    if not lines:
        return "No two models differ only in their seed, so there is no r at fixed scale."
    outcome = outcome_name(data.outcome)
    caption = (
        f"r of each metric with {outcome}, with its 95 % interval: above, at fixed scale, where only the seed differs, "
        "with the verdict after correction; below, square, across all models, where size or training also differ. "
        "Marks on different sides of 0 are a reversal."
    )
    return forest_figure("forest", caption, f"correlation with {outcome}", lines)
