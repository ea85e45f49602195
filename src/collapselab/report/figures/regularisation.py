"""Regularisation: what its strongest level does against its weakest, in otherwise equal models.

Sizes differ far more than regularisers do: drawn as they are, all pairs would look level. So each slope starts from the
value of its own weak model, and only the change is drawn."""

import altair as alt
import pandas as pd

from collapselab.analysis.models import ARCHITECTURE
from collapselab.analysis.regime import Regime
from collapselab.analysis.trends import REGULARISERS
from collapselab.report.charts.axes import NUMBER
from collapselab.report.charts.panels import Figure, Panel, width_colour
from collapselab.report.data import Columns, Keys, Line, View, columns, label
from collapselab.report.story import Story
from collapselab.report.words import outcome_name, regime_name, setting_name, trend_note, trend_words


def regularisation(view: View) -> Figure:
    """Paired slopes: the strongest level against the weakest, all else equal, seeds averaged."""
    title, story = "Under regularisation", view.story
    column = _regulariser(story)
    if column is None:
        return Figure("regularisation", title, missing="No regulariser differs between otherwise equal runs.")
    table, levels = _pairs(story, column)
    weak, strong = levels
    caption = (
        f"A line joins two models that differ in {setting_name(column)} alone: {weak} left, {strong} right. Each "
        "starts from the value of its own weak model: what is drawn is the change, as a factor where values span "
        "decades. Grey: no change."
    )
    panels = [_slopes(story, view.keys, metric, column, levels) for metric in [*story.main, story.outcome]]
    return Figure("regularisation", title, caption, panels, ("width",), tables={"pairs": table})


def _regulariser(story: Story) -> str | None:
    if story.analysis is None:
        return None
    axes = [row.axis for row in story.analysis.trends if row.axis in REGULARISERS and row.groups]
    return axes[0] if axes else None


def _pairs(story: Story, column: str) -> tuple[Columns, tuple[str, str]]:
    assert story.models is not None
    frame = story.models.trained.assign(**{column: pd.to_numeric(story.models.trained[column], errors="coerce")})
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
        weak = pair.sort_values(column).iloc[0]
        for line in pair.to_dict("records"):
            where = regime_name(Regime.of(settings, (line[name] for name in settings))) if settings else ""
            lines.append({"pair": number, "level": ends[line[column]], "wide": label(line["width"]),
                          "deep": label(line["depth"]), "where": where})  # fmt: skip
            lines[-1] |= {name: line[name] for name in measured}
            for name in measured:
                change = line[name] / weak[name] if name in story.logarithmic else line[name] - weak[name]
                lines[-1][f"{name} change"] = change
    return columns(lines), (ends[values[0]], ends[values[-1]])


def _slopes(story: Story, keys: Keys, metric: str, column: str, levels: tuple[str, str]) -> Panel:
    pairs = alt.Chart(alt.NamedData("pairs")).transform_filter(f"isValid(datum['{metric} change'])")
    name = outcome_name(metric) if metric == story.outcome else metric
    factor = metric in story.logarithmic
    scale = alt.Scale(type="log", nice=False, padding=6) if factor else alt.Scale(zero=False, padding=6)
    axis = alt.Y(f"{metric} change:Q", title=f"{'×' if factor else 'Δ'} {name}", scale=scale,
                 axis=alt.Axis(labelExpr=NUMBER, tickCount=5))  # fmt: skip
    x = alt.X("level:N", sort=list(levels), title=setting_name(column), axis=alt.Axis(labelAngle=0, grid=False),
              scale=alt.Scale(type="point", padding=0.25))  # fmt: skip
    shared = {"x": x, "y": axis, "color": width_colour(keys)}
    hover = [alt.Tooltip("wide:N", title="width"), alt.Tooltip("deep:N", title="depth"),
            alt.Tooltip("where:N", title="training"), alt.Tooltip("level:N", title=setting_name(column)),
            alt.Tooltip(f"{metric}:Q", title=name, format=".4~g"),
            alt.Tooltip(f"{metric} change:Q", title="factor" if factor else "change", format=".3~g")]  # fmt: skip
    none = alt.Chart(alt.InlineData(values=[{"none": 1 if factor else 0}]))
    level = none.mark_rule(color="var(--soft)", strokeWidth=1.2).encode(y="none:Q")
    lines = pairs.mark_line(strokeWidth=1.2, opacity=0.6).encode(**shared, detail="pair:N")
    dots = pairs.mark_point(filled=True, size=18, opacity=0.8).encode(**shared, tooltip=hover)
    words = f"Change of {name} under {setting_name(column)}. {trend_words(story.trends(column, metric))}"
    return Panel(
        f"regularisation-{metric}", alt.layer(level, lines, dots), "pairs", words, metric,
        note=trend_note(story.trends(column, metric)),
    )  # fmt: skip
