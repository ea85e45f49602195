"""Axes of a metric: linear or logarithmic, with few readable ticks, and the level that shuffled labels give."""

from typing import Any, Literal

import altair as alt
import numpy as np
from numpy.typing import NDArray

from collapselab.report.story import Story

Floats = NDArray[np.float64]
FEW_DECADES = 1.6
WIDE = 30
"""Along training, values so many times as large as their median are drawn on a logarithmic axis, of both signs too."""
FAR = 2
"""A level so many times the values' own span away from them is named at the edge: to draw it would flatten them."""


def value_axis(metric: str, values: Floats | None = None) -> Any:
    """The axis of a metric, under its id: its name in words is the panel's heading. Logarithmic where the values that
    it is to hold are given; in both directions from 0 where some of them have no logarithm."""
    title: dict[str, Any] = {"shorthand": f"{metric}:Q", "title": metric}
    if values is None:
        return alt.Y(**title, scale=alt.Scale(zero=False, padding=6), axis=alt.Axis(format="~r"))
    if (values > 0).all():
        axis = alt.Axis(values=log_ticks(float(values.min()), float(values.max())))
        return alt.Y(**title, scale=alt.Scale(type="log", nice=False, padding=6), axis=axis)
    middle, ticks = _middle(values), [0.0]
    for tick in log_ticks(middle, float(np.abs(values).max())):
        ticks += [tick, -tick] if tick >= middle else []
    scale = alt.Scale(type="symlog", constant=middle, nice=False, padding=6)
    return alt.Y(**title, scale=scale, axis=alt.Axis(values=sorted(ticks), format="~r"))


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten between the two, with 2 and 5 between them where there are few."""
    powers = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    factors = (1, 2, 5) if np.log10(high / low) < FEW_DECADES else (1,)
    step = max(1, len(powers) // 6)
    return [float(f"{factor}e{power}") for power in powers[::step] for factor in factors]


def drawn_values(story: Story, metric: str, *, from_initialisation: bool = False) -> Floats:
    """The known values of trained models, or of all."""
    assert story.models is not None
    frame = story.models.frame if from_initialisation else story.models.trained
    return frame[metric].dropna().to_numpy(dtype=float)


def logarithmic_values(story: Story, metric: str) -> Floats | None:
    """What a logarithmic axis has to hold; None where the axis is linear."""
    return drawn_values(story, metric) if metric in story.logarithmic else None


def logarithmic_values_from_initialisation(story: Story, metric: str) -> Floats | None:
    """The same along training, where the first values may be far from all others, and of any sign."""
    values = drawn_values(story, metric, from_initialisation=True)
    wide = len(values) and np.abs(values).max() >= WIDE * _middle(values) > 0
    return values if metric in story.logarithmic or wide else None


def _middle(values: Floats) -> float:
    return float(f"{np.median(np.abs(values)):.6g}")


def null_level(
    story: Story, metric: str, values: Floats, *, log: bool, side: Literal["left", "right"]
) -> list[Any]:  # fmt: skip
    """The median of the metric with shuffled labels as a dashed line, where it was measured and can be drawn beside
    these values. Its label stands at the side where models are far from it."""
    level = null_of(story, metric)
    if level is None or not len(values) or (log and level <= 0 < values.min()):
        return []
    away = _away(level, values, log=log)
    word = f"shuffled labels{f': {level:.3g} ' + ('↑' if away > 0 else '↓') if abs(away) > FAR else ''}"
    data = alt.InlineData(values=[{"level": level, "word": word}])
    text: dict[str, Any] = {
        "color": "var(--soft)",
        "align": side,
        "fontSize": 10,
        "x": 3 if side == "left" else "width",
    }
    if abs(away) > FAR:
        edge: dict[str, Any] = (
            {"y": 2, "baseline": "top"} if away > 0 else {"y": "height", "dy": -4, "baseline": "bottom"}
        )
        return [alt.Chart(data).mark_text(**text, **edge).encode(text="word:N")]
    rule = alt.Chart(data).mark_rule(color="var(--soft)", strokeDash=[5, 4], strokeWidth=1.2).encode(y="level:Q")
    return [rule, alt.Chart(data).mark_text(**text, baseline="bottom", dy=-3).encode(y="level:Q", text="word:N")]


def _away(level: float, values: Floats, *, log: bool) -> float:
    """How far the level is above (or, negative, below) the values, in spans of theirs as they are drawn."""
    if log:
        middle = _middle(values)
        level, values = np.arcsinh(level / middle), np.arcsinh(values / middle)
        if (values > 0).all():
            level, values = np.log(np.sinh(level)), np.log(np.sinh(values))
    low, high = values.min(), values.max()
    beyond = max(level - high, 0) + min(level - low, 0)
    return float(beyond / (high - low)) if high > low else 0.0


def null_of(story: Story, metric: str) -> float | None:
    if story.models is None:
        return None
    nulls = story.models.trained[f"{metric} null"].dropna()
    return float(f"{np.median(nulls):.6g}") if len(nulls) else None
