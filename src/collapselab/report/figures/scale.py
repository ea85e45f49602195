"""Scale: a metric over width and depth, as heat maps and as lines, and the outcome against the number of parameters.

Heat maps and lines draw one table, `heat`, one training regime at a time; lines are those of the paper's appendix.
"""

import altair as alt
import numpy as np
import pandas as pd

from collapselab.analysis.models import Floats, row_tuples
from collapselab.analysis.regime import Regime
from collapselab.report.charts.axes import if_logarithmic, log_ticks, value_axis
from collapselab.report.charts.panels import Figure, Panel, colour_legend, depth_size, extent, model_colour, tooltip
from collapselab.report.charts.style import DEPTH_OF_HEAT
from collapselab.report.data import Columns, Keys, Line, View, columns, in_order, label
from collapselab.report.story import Story
from collapselab.report.words import metric_name, outcome_column, outcome_name, regime_name, trend_note, trend_words

ALL = "all models"
"""The one regime where no setting but the checkpoint varies."""
MOST = 8
"""Regimes that get a panel of the outcome; the legend of trainings has no more names either."""


def scale(view: View) -> Figure:
    """Heat maps over width and depth, the mean of seeds at the end of each run, one regime at a time."""
    title, story = "Over width and depth", view.story
    table = _heat_table(story)
    if len(set(table.get("wide", []))) < 2 and len(set(table.get("deep", []))) < 2:
        missing = "All models are of one width and one depth."
        return Figure("scale", title, missing=missing, tables={"heat": table})
    caption = (
        "Each cell is a model at the end of its run, the mean where there are several seeds; deeper colour is nearer "
        "to collapse, on one scale for all regimes. A metric without a direction is coloured by its size."
    )
    panels = [_heat_map(story, metric, table) for metric in story.main]
    return Figure(
        "scale", title, caption, panels, tables={"heat": table}, regimes=_regimes(table), regime=_first_regime(table)
    )


def width_lines(view: View) -> Figure:
    """Lines over width, the points larger for deeper models."""
    title, story = "Against width, a line for each depth", view.story
    table = _heat_table(story)
    if len(set(table.get("wide", []))) < 2:
        return Figure("width_lines", title, missing="All models are of one width.")
    caption = (
        "Each point is a model at the end of its run, the mean where there are several seeds; a line joins models of "
        "one depth, and deeper ones have larger points. The training is the one that is chosen above."
    )
    panels = [_lines(story, view.keys, metric, table) for metric in story.main]
    return Figure("width_lines", title, caption, panels, ("depth",), tables={"heat": table})


def loss_and_scale(view: View) -> Figure:
    """Small multiples: one panel a regime, so that none hides another."""
    story, title = view.story, f"{outcome_name(view.story.outcome).capitalize()} against scale"
    known = pd.DataFrame() if story.models is None else story.models.known[["parameters", story.outcome]].dropna()
    if not len(known) or known["parameters"].nunique() < 2:
        return Figure("loss_and_scale", title, missing="All models have one number of parameters, or it is not known.")
    caption = "Each point is a trained model; every panel is one training regime, on the same axes."
    spans = {name: (float(known[name].min()), float(known[name].max())) for name in ("parameters", story.outcome)}
    panels = [_outcome_panel(view, training, spans) for training in view.keys.trainings[:MOST]]
    return Figure("loss_and_scale", title, caption, panels, (colour_legend(view.keys), "depth"))


def _heat_table(story: Story) -> Columns:
    """Models at the end of their runs by regime, width and depth, seeds averaged."""
    if story.models is None:
        return {}
    frame = story.models.trained
    ends = frame[frame["last"]].copy()
    others = [name for name in story.models.varying if name != "epoch"]
    several = story.models.frame["family"].nunique() > 1
    ends["where"] = [
        (f"{family}, " if several else "") + (regime_name(Regime.of(others, values)) if others else ALL)
        for family, values in zip(ends["family"], row_tuples(ends, others), strict=True)
    ]
    means = ends.groupby(["where", "width", "depth"], dropna=False)[story.main].mean().reset_index()
    lines: list[Line] = [
        {"where": line["where"], "wide": label(line["width"]), "deep": label(line["depth"])}
        | {metric: line[metric] for metric in story.main}
        for line in means.to_dict("records")
    ]
    for metric in story.main:
        values = means[metric].to_numpy(dtype=float)
        levels, power = _levels(story, metric, values), _unit(values)
        for line, level, value in zip(lines, levels, values, strict=True):
            line |= {f"{metric} level": level, f"{metric} text": None if level is None else _short(value, power)}
    return columns(lines)


def _unit(values: Floats) -> int:
    """The power of ten that the cells are written in: one that leaves numbers of few digits."""
    sizes = np.abs(values[np.isfinite(values) & (values != 0)])
    if not len(sizes) or (sizes.min() >= 0.1 and sizes.max() < 1000):
        return 0
    return 3 * int(np.floor(np.log10(sizes.max()) / 3))


def _short(value: float, power: int) -> str:
    """Two digits, without an exponent."""
    scaled = value / 10.0**power
    digits = max(0, 1 - int(np.floor(np.log10(abs(scaled))))) if scaled else 0
    return f"{scaled:.{min(digits, 3)}f}"


def _levels(story: Story, metric: str, values: Floats) -> list[int | None]:
    """Where each value is between the farthest from collapse (0) and the nearest."""
    assert story.models is not None
    drawn = np.log(values) if metric in story.logarithmic else values
    if np.isnan(drawn).all():
        return [None] * len(drawn)
    low, high = np.nanmin(drawn), np.nanmax(drawn)
    share = (drawn - low) / (high - low) if high > low else np.where(np.isnan(drawn), np.nan, 0.5)
    if story.models.toward[metric].sign < 0:
        share = 1 - share
    return [None if np.isnan(value) else round(value * (DEPTH_OF_HEAT - 1)) for value in share]


def _heat_map(story: Story, metric: str, table: Columns) -> Panel:
    levels = list(range(DEPTH_OF_HEAT))

    cells = alt.Chart(alt.NamedData("heat")).transform_filter(f"isValid(datum['{metric}']) && datum.where === where")
    place = {
        "x": alt.X(
            "wide:N",
            sort=in_order(table["wide"]),
            title="width",
            axis=alt.Axis(labelAngle=0, domain=False, ticks=False),
        ),
        "y": alt.Y(
            "deep:N", sort=in_order(table["deep"])[::-1], title="depth", axis=alt.Axis(domain=False, ticks=False)
        ),
    }
    ground = alt.Scale(domain=levels, range=[f"var(--h{level})" for level in levels])
    inks = alt.Scale(domain=levels, range=[f"var(--i{level})" for level in levels])
    hover = [alt.Tooltip("wide:N", title="width"), alt.Tooltip("deep:N", title="depth"),
            alt.Tooltip("where:N", title="training"),
            alt.Tooltip(f"{metric}:Q", title=metric, format=".4~g")]  # fmt: skip
    tiles = cells.mark_rect(stroke="var(--paper)", strokeWidth=2, cornerRadius=3).encode(
        **place, color=alt.Color(f"{metric} level:O", scale=ground, legend=None), tooltip=hover
    )
    words = cells.mark_text(fontSize=10).encode(
        **place, text=f"{metric} text:N", color=alt.Color(f"{metric} level:O", scale=inks, legend=None)
    )
    chart = alt.layer(tiles, words).resolve_scale(color="independent")
    chart = chart.add_params(alt.param(name="where", value=_first_regime(table)))
    numbers = f"{metric_name(metric)} ({metric}) over width and depth: values {extent(story, metric)}. "
    numbers += f"{trend_words(story.trends('width', metric))} {trend_words(story.trends('depth', metric))}"
    return Panel(f"scale-{metric}", chart, "heat", numbers.strip(), metric, note=_scale_note(story, metric, table))


def _scale_note(story: Story, metric: str, table: Columns) -> str:
    along = {axis: trend_note(story.trends(axis, metric), meaning=False) for axis in ("width", "depth")}
    power = _unit(np.array(table[metric], dtype=float))
    notes = [f"{axis}: {note}" for axis, note in along.items() if note]
    return "; ".join(notes + ([f"in units of {10.0**power:g}"] if power else []))


def _lines(story: Story, keys: Keys, metric: str, table: Columns) -> Panel:
    widths = in_order(table["wide"])
    data = alt.Chart(alt.NamedData("heat")).transform_filter(f"isValid(datum['{metric}']) && datum.where === where")
    x = alt.X("wide:N", sort=widths, title="width", scale=alt.Scale(type="point", padding=0.4),
              axis=alt.Axis(labelAngle=0, grid=False))  # fmt: skip
    drawn = np.array([value for value in table[metric] if value is not None], dtype=float)
    y = value_axis(metric, if_logarithmic(story, metric, drawn[np.isfinite(drawn)]))
    hover = [alt.Tooltip("wide:N", title="width"), alt.Tooltip("deep:N", title="depth"),
             alt.Tooltip("where:N", title="training"),
             alt.Tooltip(f"{metric}:Q", title=metric, format=".4~g")]  # fmt: skip
    lines = data.mark_line(color="var(--accent)", strokeWidth=1.2, opacity=0.6).encode(x=x, y=y, detail="deep:N")
    dots = data.mark_point(filled=True, color="var(--accent)", opacity=0.8)
    dots = dots.encode(x=x, y=y, size=depth_size(keys), tooltip=hover)
    chart = alt.layer(lines, dots).add_params(alt.param(name="where", value=_first_regime(table)))
    rows = story.trends("width", metric)
    words = f"{metric_name(metric)} ({metric}) against width: values {extent(story, metric)}. {trend_words(rows)}"
    return Panel(f"width_lines-{metric}", chart, "heat", words.strip(), metric, note=trend_note(rows))


def _outcome_panel(view: View, training: str, spans: dict[str, tuple[float, float]]) -> Panel:
    outcome = view.story.outcome
    low, high = spans["parameters"]
    x = alt.X("parameters:Q", title="parameters",
              scale=alt.Scale(type="log", domain=[low / 1.1, high * 1.1], nice=False),
              axis=alt.Axis(values=log_ticks(low, high), format="~s"))  # fmt: skip
    least, most = spans[outcome]
    margin = 0.04 * (most - least) or 0.01
    span = alt.Scale(domain=[least - margin, most + margin], nice=False, zero=False)
    y = alt.Y(f"{outcome_column(outcome)}:Q", title=outcome_name(outcome), scale=span)
    chart = alt.Chart(alt.NamedData("models"))
    mine = chart.transform_filter(alt.FieldEqualPredicate(field="training", equal=training))
    mine = mine.transform_filter(f"datum.source === 0 && datum.compared && isValid(datum.{outcome_column(outcome)})")
    points = mine.mark_point(filled=True, opacity=0.85).encode(
        x=x, y=y, color=model_colour(view.keys), size=depth_size(view.keys), tooltip=tooltip(outcome, [])
    )
    words = f"{outcome_name(outcome)} against parameters, {training}; from {least:.3g} to {most:.3g} in all panels."
    return Panel(f"loss_and_scale-{view.keys.trainings.index(training)}", points, "models", words, name=training)


def _first_regime(table: Columns) -> str:
    """The regime with most cells; of several the last in the order of the list."""
    return max(_regimes(table), key=lambda where: table["where"].count(where), default="")


def _regimes(table: Columns) -> tuple[str, ...]:
    """The regimes of the table, each once, in its order."""
    return tuple(dict.fromkeys(map(str, table.get("where", []))))
