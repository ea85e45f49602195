"""Regularisation: what its strongest level does against its weakest, in otherwise equal models.

Sizes differ far more than regularisers do: drawn as they are, all pairs would look level. So only the difference within
a pair is drawn, a dot each, by width: differences within a width may be alike, and a width is what the test counts."""

import altair as alt
import pandas as pd

from collapselab.analysis.models import ARCHITECTURE
from collapselab.analysis.regime import Regime
from collapselab.analysis.trends import REGULARISERS
from collapselab.report.charts.axes import NUMBER
from collapselab.report.charts.panels import Figure, Panel, depth_size, width_colour
from collapselab.report.charts.style import SHAPES
from collapselab.report.data import Columns, Keys, Line, View, columns, label
from collapselab.report.story import Story
from collapselab.report.words import outcome_column, outcome_name, regime_name, setting_name, trend_note, trend_words


def regularisation(view: View) -> Figure:
    """Dots: the strongest level less the weakest, all else equal, seeds averaged, at the end of each run."""
    title, story = "Under regularisation", view.story
    column = _regulariser(story)
    if column is None:
        return Figure("regularisation", title, missing="No regulariser differs between otherwise equal runs.")
    table, levels = _pairs(story, column)
    weak, strong = levels
    caption = (
        f"A dot is the difference that {setting_name(column)} {strong} makes against {weak} in one architecture at the "
        "end of its runs, all else equal; as a factor where values span decades. Grey line: no difference. A width, "
        "not a dot, is what the test counts."
    )
    trainings = list(dict.fromkeys(map(str, table["where"])))[: len(SHAPES)]
    if len(trainings) > 1:
        shapes = ", ".join(f"{shape} {name}" for shape, name in zip(SHAPES, trainings, strict=False))
        caption += f" Shape is the training: {shapes}."
    panels = [_differences(story, view.keys, metric, column, trainings) for metric in [*story.main, story.outcome]]
    return Figure("regularisation", title, caption, panels, ("width", "depth"), tables={"pairs": table})


def _regulariser(story: Story) -> str | None:
    if story.analysis is None:
        return None
    axes = [row.axis for row in story.analysis.trends if row.axis in REGULARISERS and row.groups]
    return axes[0] if axes else None


def _pairs(story: Story, column: str) -> tuple[Columns, tuple[str, str]]:
    assert story.models is not None
    finished = story.models.trained[story.models.trained["last"]]
    frame = finished.assign(**{column: pd.to_numeric(finished[column], errors="coerce")})
    values = sorted(frame[column].dropna().unique())
    ends = {value: f"{value:g}" for value in (values[0], values[-1])}
    others = [*ARCHITECTURE, *(name for name in story.models.varying if name != column)]
    measured = [*story.main, story.outcome]
    means = (
        frame[frame[column].isin(list(ends))].groupby([*others, column], dropna=False)[measured].mean().reset_index()
    )
    lines: list[Line] = []
    settings = others[len(ARCHITECTURE) :]
    for number, (_, pair) in enumerate(means.groupby(others, dropna=False)):
        if len(pair) != 2:
            continue
        weak, strong = (line for _, line in pair.sort_values(column).iterrows())
        where = regime_name(Regime.of(settings, (strong[name] for name in settings))) if settings else ""
        lines.append({"pair": number, "wide": label(strong["width"]), "deep": label(strong["depth"]), "where": where})
        for name in measured:
            key = outcome_column(name)
            lines[-1][f"{key} weak"], lines[-1][f"{key} strong"] = weak[name], strong[name]
            factor = name in story.logarithmic
            lines[-1][f"{key} change"] = strong[name] / weak[name] if factor else strong[name] - weak[name]
    return columns(lines), (ends[values[0]], ends[values[-1]])


def _differences(story: Story, keys: Keys, metric: str, column: str, trainings: list[str]) -> Panel:
    key = outcome_column(metric)
    pairs = alt.Chart(alt.NamedData("pairs")).transform_filter(f"isValid(datum['{key} change'])")
    name = outcome_name(metric) if metric == story.outcome else metric
    factor = metric in story.logarithmic
    scale = alt.Scale(type="log", nice=False, padding=8) if factor else alt.Scale(padding=8)
    x = alt.X(f"{key} change:Q", title=f"{'×' if factor else 'Δ'} {name}", scale=scale,
              axis=alt.Axis(labelExpr=NUMBER, tickCount=4))  # fmt: skip
    y = alt.Y("wide:N", sort=keys.widths, title="width", axis=alt.Axis(domain=False, ticks=False))
    hover = [alt.Tooltip("wide:N", title="width"), alt.Tooltip("deep:N", title="depth"),
             alt.Tooltip("where:N", title="training"),
             alt.Tooltip(f"{key} weak:Q", title="weak", format=".4~g"),
             alt.Tooltip(f"{key} strong:Q", title="strong", format=".4~g"),
             alt.Tooltip(f"{key} change:Q", title="factor" if factor else "difference", format=".3~g")]  # fmt: skip
    none = alt.Chart(alt.InlineData(values=[{"none": 1 if factor else 0}]))
    level = none.mark_rule(color="var(--soft)", strokeWidth=1.2).encode(x="none:Q")
    shape = alt.Shape("where:N", title="training", scale=alt.Scale(domain=trainings, range=list(SHAPES)))
    dots = pairs.mark_point(filled=True, opacity=0.75).encode(
        x=x, y=y, color=width_colour(keys), size=depth_size(keys), shape=shape, tooltip=hover
    )
    words = f"Difference of {name} under {setting_name(column)}. {trend_words(story.trends(column, metric))}"
    return Panel(
        f"regularisation-{key}", alt.layer(level, dots), "pairs", words, metric,
        note=trend_note(story.trends(column, metric)),
    )  # fmt: skip
