"""Scale: a metric over width and depth as a heat map, one training regime at a time."""

import altair as alt
import numpy as np

from collapselab.analysis.models import Floats, row_tuples
from collapselab.analysis.regime import Regime
from collapselab.report.charts.panels import Figure, Panel, extent
from collapselab.report.charts.style import DEPTH_OF_HEAT
from collapselab.report.data import Columns, Line, View, columns, in_order, label
from collapselab.report.story import Story
from collapselab.report.words import metric_name, regime_name, trend_note, trend_words

ALL = "all models"
"""The one regime where no setting but the checkpoint varies."""


def scale(view: View) -> Figure:
    """Heat maps over width and depth, the mean of seeds at the end of each run, one regime at a time."""
    title, story = "Over width and depth", view.story
    table = heat_table(story)
    if len(set(table.get("wide", []))) < 2 and len(set(table.get("deep", []))) < 2:
        missing = "All models are of one width and one depth."
        return Figure("scale", title, missing=missing, tables={"heat": table})
    caption = (
        "Each cell is a model at the end of its run, the mean where there are several seeds; deeper colour is nearer "
        "to collapse, on one scale for all regimes. A metric without a direction is coloured by its size."
    )
    panels = [_heat_map(story, metric, table) for metric in story.main]
    return Figure(
        "scale", title, caption, panels, tables={"heat": table}, regimes=regimes(table), regime=first_regime(table)
    )


def heat_table(story: Story) -> Columns:
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
        levels, power = _levels(story, metric, values), unit(values)
        for line, level, value in zip(lines, levels, values, strict=True):
            line |= {f"{metric} level": level, f"{metric} text": None if level is None else _short(value, power)}
    return columns(lines)


def unit(values: Floats) -> int:
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
    chart = chart.add_params(alt.param(name="where", value=first_regime(table)))
    numbers = f"{metric_name(metric)} ({metric}) over width and depth: values {extent(story, metric)}. "
    numbers += f"{trend_words(story.trends('width', metric))} {trend_words(story.trends('depth', metric))}"
    return Panel(f"scale-{metric}", chart, "heat", numbers.strip(), metric, note=_scale_note(story, metric, table))


def _scale_note(story: Story, metric: str, table: Columns) -> str:
    along = {axis: trend_note(story.trends(axis, metric), meaning=False) for axis in ("width", "depth")}
    power = unit(np.array(table[metric], dtype=float))
    notes = [f"{axis}: {note}" for axis, note in along.items() if note]
    return "; ".join(notes + ([f"in units of {10.0**power:g}"] if power else []))


def first_regime(table: Columns) -> str:
    """The regime with most cells; of several the last in the order of the list."""
    return max(regimes(table), key=lambda where: table["where"].count(where), default="")


def regimes(table: Columns) -> tuple[str, ...]:
    """The regimes of the table, each once, in its order."""
    return tuple(dict.fromkeys(map(str, table.get("where", []))))
