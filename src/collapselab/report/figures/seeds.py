"""Seeds alone: models that differ in nothing else, metric by metric."""

import altair as alt
import numpy as np

from collapselab.analysis.relate import Relation
from collapselab.analysis.related import RELATED
from collapselab.analysis.resampling import centred
from collapselab.analysis.subsets import within_cells
from collapselab.analysis.words import relation_words, says_nothing
from collapselab.report.charts.axes import NUMBER
from collapselab.report.charts.panels import Figure, Numbers, Panel
from collapselab.report.data import Columns, View, columns, plain
from collapselab.report.story import Story
from collapselab.report.words import metric_name, outcome_name

PAPER = (
    "In the paper (Wu & Papyan 2024, arXiv:2405.17767) this is Table 1, for 21 models of depth 2 and width 768: R² and "
    "p of each metric, before correction."
)


def seeds(view: View) -> Figure:
    """Each metric against the outcome within cells of seeds."""
    title, story = "Seeds alone", view.story
    relations = [row for metric in story.main if (row := story.at_fixed_scale(metric)) is not None]
    tested = [row for row in relations if row.r is not None]
    if not tested or story.analysis is None:
        return Figure("seeds", title, missing=says_nothing(relations))
    relation = tested[0]
    several = relation.cells > 1
    caption = (
        f"Models of {f'{relation.cells} cells' if several else 'one cell'} that differ in their seed alone"
        f"{', each cell’s mean subtracted' if several else ''}. p is the share of {story.analysis.permutations:,} "
        f"permutations of the outcome{' within cells' if several else ''} whose r is as far from 0; Holm p corrects it "
        "for all panels together."
    )
    tables: dict[str, Columns] = {}
    panels = []
    for relation in tested:
        tables |= _tables(story, relation)
        panels.append(_scatter(story, relation, several=several))
    paper = PAPER if story.outcome == "val_loss" else ""
    return Figure("seeds", title, caption, panels, paper=paper, tables=tables, numbers=_in_numbers(story, tested))


def _in_numbers(story: Story, relations: list[Relation]) -> Numbers:
    return Numbers(
        f"The same in numbers: {outcome_name(story.outcome)} and each metric among {relations[0].n} models that differ "
        "in their seed alone",
        ("r [95 %]", "R²", "p", "Holm p"),
        [(row.metric, _row_numbers(row), _verdict_words(story, row)) for row in relations],
    )


def _row_numbers(row: Relation) -> tuple[str, ...]:
    interval = "" if row.low is None else f" [{row.low:+.2f}, {row.high:+.2f}]"
    p_values = ("–" if p is None else f"{p:.2g}" for p in (row.p_permutation, row.p_holm))
    return (f"{row.r:+.2f}{interval}", f"{row.r2:.4f}", *p_values)


def _verdict_words(story: Story, row: Relation) -> str:
    assert story.models is not None
    return relation_words(row.verdict, outcome=row.outcome, better=story.models.better)


def _tables(story: Story, relation: Relation) -> dict[str, Columns]:
    """The models within cells."""
    assert story.models is not None
    metric, trained = relation.metric, story.models.trained
    known, subset = trained[[metric, story.outcome]].notna().all(axis=1).to_numpy(), within_cells(trained)
    chosen = subset.only(known[subset.members])
    frame = trained.iloc[chosen.members]
    x, y = (frame[name].to_numpy(dtype=float) for name in (metric, story.outcome))
    if relation.transform == "log":
        x = np.log(x)
    if len(np.unique(chosen.cells)) > 1:
        x, y = centred(x, chosen.cells), centred(y, chosen.cells)
    models = [
        {"run": run, "seed": plain(seed), "cell": cell, "outcome": b, "value": a}
        for run, seed, cell, a, b in zip(frame["run"], frame["seed"], frame["cell"], x, y, strict=True)
    ]
    return {f"seeds {metric}": columns(models)}


def _scatter(story: Story, relation: Relation, *, several: bool) -> Panel:
    metric = relation.metric
    models = alt.Chart(alt.NamedData(f"seeds {metric}"))
    off = " − mean of cell" if several else ""
    scale = "log " if RELATED[metric].transform == "log" else ""
    x = alt.X("value:Q", title=f"{scale}{metric}{off}", scale=alt.Scale(zero=False),
              axis=alt.Axis(labelExpr=NUMBER, tickCount=4))  # fmt: skip
    y = alt.Y("outcome:Q", title=f"{outcome_name(story.outcome)}{off}", scale=alt.Scale(zero=False),
              axis=alt.Axis(labelExpr=NUMBER, tickCount=4))  # fmt: skip
    hover = [alt.Tooltip("run:N"), alt.Tooltip("seed:N"), alt.Tooltip("cell:N"),
            alt.Tooltip("outcome:Q", title=outcome_name(story.outcome), format=".4f"),
            alt.Tooltip("value:Q", title=metric, format=".4~g")]  # fmt: skip
    line = models.transform_regression("value", "outcome").mark_line(color="var(--ink)", strokeWidth=1.4, opacity=0.75)
    points = models.mark_point(filled=True, size=42, color="var(--accent)", opacity=0.8)
    chart = alt.layer(line.encode(x=x, y=y), points.encode(x=x, y=y, tooltip=hover))
    note = f"R² {relation.r2:.2f}; too few models for a p"
    if relation.p_permutation is not None:
        note = f"R² {relation.r2:.2f}, p {relation.p_permutation:.2g}, Holm p {relation.p_holm:.2g}"
    words = _panel_words(story, relation)
    return Panel(f"seeds-{metric}", chart, f"seeds {metric}", words, metric, note=note, height=170)


def _panel_words(story: Story, relation: Relation) -> str:
    interval = f" [{relation.low:+.2f}, {relation.high:+.2f}]" if relation.low is not None else ""
    start = (
        f"{metric_name(relation.metric)} ({relation.metric}) against {outcome_name(relation.outcome)} in {relation.n} "
        f"models that differ in their seed alone: r {relation.r:+.2f}{interval}, R² {relation.r2:.2f}"
    )
    if relation.p_permutation is None:
        return f"{start}; no verdict: {relation.why}"
    p = f"permutation p {relation.p_permutation:.2g}, after Holm {relation.p_holm:.2g}"
    return f"{start}, {p}: {_verdict_words(story, relation)}."
