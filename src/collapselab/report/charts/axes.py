"""Axes of a metric: linear or logarithmic, with few readable ticks, and the level that shuffled labels give."""

from collections.abc import Iterable
from functools import partial
from typing import Literal

import altair as alt
import numpy as np

from collapselab.analysis.models import Floats
from collapselab.report.story import Story

NUMBER = "replace(format(datum.value, '.4~g'), '-', '\u2212')"
"""A tick as it is: formats that take their digits from the step between ticks write 0.12 as 0.1."""
FEW_DECADES = 1.6
MOST_WHOLE = 8
"""Ticks of an axis of whole numbers."""
WIDE = 10
"""Values this many times as large as their median are drawn on a logarithmic axis, of both signs too."""
FAR = 2
"""A level this many times the values' own span away from them is only named: to draw it would flatten them."""
SHUFFLED = "shuffled labels"
NAME_WIDTH, NAME_HEIGHT = 0.5, 0.12
"""Of that name, as shares of a panel."""


def value_axis(metric: str, values: Floats | None = None) -> alt.Y:
    """The axis of a metric, under its id: its name in words is the panel's heading. Logarithmic where the values that
    it is to hold are given; in both directions from 0 where some of them have no logarithm."""
    scale, axis = _scale_and_axis(values)
    return alt.Y(f"{metric}:Q", title=metric, scale=scale, axis=axis)


def value_axis_below(metric: str, values: Floats | None = None) -> alt.X:
    """The same along x, as in the paper: the metric below, the outcome at the side."""
    scale, axis = _scale_and_axis(values)
    return alt.X(f"{metric}:Q", title=metric, scale=scale, axis=axis)


def _scale_and_axis(values: Floats | None) -> tuple[alt.Scale, alt.Axis]:
    if values is None:
        return alt.Scale(zero=False, padding=6), alt.Axis(labelExpr=NUMBER)
    if (values > 0).all():
        ticks = log_ticks(float(values.min()), float(values.max()))
        return alt.Scale(type="log", nice=False, padding=6), alt.Axis(values=ticks)
    middle, ticks = _middle(values), [0.0]
    for tick in log_ticks(middle, float(np.abs(values).max())):
        ticks += [tick, -tick] if tick >= middle else []
    scale = alt.Scale(type="symlog", constant=middle, nice=False, padding=6)
    return scale, alt.Axis(values=sorted(ticks), labelExpr=NUMBER)


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten between the two, with 2 and 5 between them where there are few."""
    powers = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    factors = (1, 2, 5) if np.log10(high / low) < FEW_DECADES else (1,)
    step = max(1, len(powers) // 6)
    return [float(f"{factor}e{power}") for power in powers[::step] for factor in factors]


def whole_ticks(values: Iterable[int]) -> list[int]:
    """Whole numbers from the least to the largest, thinned to at most `MOST_WHOLE`."""
    low, high = min(values := list(values)), max(values)
    return list(range(low, high + 1, 1 + (high - low) // MOST_WHOLE))


def drawn_values(story: Story, metric: str, *, from_initialisation: bool = False) -> Floats:
    """The known values of trained models, or of all."""
    assert story.models is not None
    frame = story.models.frame if from_initialisation else story.models.trained
    return frame[metric].dropna().to_numpy(dtype=float)


def logarithmic_values(story: Story, metric: str, *, from_initialisation: bool = False) -> Floats | None:
    """What a logarithmic axis has to hold; None where the axis is linear. Values that have no logarithm get one too
    where a few of them are far from all others, as in the first steps of training."""
    values = drawn_values(story, metric, from_initialisation=from_initialisation)
    wide = len(values) and np.abs(values).max() >= WIDE * _middle(values) > 0
    return values if metric in story.logarithmic or wide else None


def _middle(values: Floats) -> float:
    return float(f"{np.median(np.abs(values)):.6g}")


def null_level(
    story: Story, metric: str, values: Floats, *, log: bool, side: Literal["left", "right"]
) -> list[alt.Chart]:
    """The median of the metric with shuffled labels as a dashed line with its name at one side, where it was measured
    and can be drawn beside these values; `far_null` has the words of one that cannot."""
    level = null_of(story, metric)
    if level is None or not len(values) or abs(_away(level, values, log=log)) > FAR:
        return []
    chart = alt.Chart(alt.InlineData(values=[{"level": level, "word": SHUFFLED}]))
    name = partial(chart.mark_text, color="var(--soft)", align=side, fontSize=10, x=3 if side == "left" else "width")
    rule = chart.mark_rule(color="var(--soft)", strokeDash=[5, 4], strokeWidth=1.2).encode(y="level:Q")
    return [rule, name(baseline="bottom", dy=-3).encode(y="level:Q", text="word:N")]


def null_level_below(story: Story, metric: str, values: Floats, outcomes: Floats, *, log: bool) -> list[alt.Chart]:
    """The same where the metric is along x: an upright line with its name at the end where it covers fewer models."""
    level = null_of(story, metric)
    if level is None or not len(values) or abs(_away(level, values, log=log)) > FAR:
        return []
    chart = alt.Chart(alt.InlineData(values=[{"level": level, "word": SHUFFLED}]))
    rule = chart.mark_rule(color="var(--soft)", strokeDash=[5, 4], strokeWidth=1.2).encode(x="level:Q")
    side = _clear_side(level, values, log=log)
    at_head = _covered(level, values, -outcomes, side, log=log) < _covered(level, values, outcomes, side, log=log)
    name = partial(chart.mark_text, color="var(--soft)", fontSize=10, align=side, dx=4 if side == "left" else -4)
    placed = name(y=3, baseline="top") if at_head else name(y="height", dy=-4, baseline="bottom")
    return [rule, placed.encode(x="level:Q", text="word:N")]


def far_null(story: Story, metric: str, values: Floats, *, log: bool) -> str:
    """The level with shuffled labels in words, where it is too far from these values to be drawn beside them."""
    level = null_of(story, metric)
    if level is None or not len(values) or abs(_away(level, values, log=log)) <= FAR:
        return ""
    return f"{SHUFFLED}: {level:.3g}".replace("-", "\N{MINUS SIGN}")


def _covered(level: float, values: Floats, outcomes: Floats, side: Literal["left", "right"], *, log: bool) -> int:
    """How many models the name of a level would cover at the lower end of its line."""
    place, places = _as_drawn(np.array([level]), values, log=log)[0], _as_drawn(values, values, log=log)
    beside = (places - place) * (1 if side == "left" else -1)
    finite = places[np.isfinite(places)]
    width = NAME_WIDTH * (max(place, finite.max(initial=place)) - min(place, finite.min(initial=place)))
    low = outcomes <= outcomes.min() + NAME_HEIGHT * np.ptp(outcomes)
    return int((low & (beside >= 0) & (beside <= width)).sum())


def _clear_side(level: float, values: Floats, *, log: bool) -> Literal["left", "right"]:
    """How the name of a level is set: to the right of its line where that is in the left half of the panel."""
    place, places = _as_drawn(np.array([level]), values, log=log)[0], _as_drawn(values, values, log=log)
    low, high = min(place, places.min()), max(place, places.max())
    return "left" if place <= (low + high) / 2 else "right"


def _as_drawn(values: Floats, among: Floats, *, log: bool) -> Floats:
    """Places on the axis of the values that they are among: the values, their logarithms, or both ways from 0."""
    if not log:
        return values
    if (among > 0).all():
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(values > 0, np.log(values), -np.inf)
    return np.asarray(np.arcsinh(values / _middle(among)))


def _away(level: float, values: Floats, *, log: bool) -> float:
    """How far the level is above (or, negative, below) the values, in spans of theirs as they are drawn."""
    place, places = _as_drawn(np.array([level]), values, log=log)[0], _as_drawn(values, values, log=log)
    low, high = places.min(), places.max()
    beyond = max(place - high, 0) + min(place - low, 0)
    return float(beyond / (high - low)) if high > low else float(np.inf * beyond if np.isinf(beyond) else 0)


def null_of(story: Story, metric: str) -> float | None:
    if story.models is None:
        return None
    nulls = story.models.trained[f"{metric} null"].dropna()
    return float(f"{np.median(nulls):.6g}") if len(nulls) else None
