"""Axes of a metric: linear or logarithmic, with few readable ticks, and the level with shuffled labels."""

from collections.abc import Iterable
from functools import partial
from typing import TypeVar

import altair as alt
import numpy as np

from collapselab.analysis.models import Floats
from collapselab.report.data import ReportData

Axis = TypeVar("Axis", alt.X, alt.Y)
NUMBER = "replace(format(datum.value, '.4~g'), '-', '\u2212')"
"""Tick labels from the value itself: formats based on the step between ticks write 0.12 as 0.1."""
FEW_DECADES = 1.6
WIDE = 10
"""Values this many times their median are drawn on a logarithmic axis (symmetric about 0 if both signs occur)."""
FAR = 2
"""A level farther from the values than this many times their span is only named: drawing it would flatten them."""
SHUFFLED = "shuffled labels"


def value_axis(metric: str, values: Floats | None, channel: type[Axis]) -> Axis:
    """Return the axis of a metric, under its id; the panel's heading has its name.

    It is logarithmic if `values` are given, and symmetric about 0 if some of them have no logarithm.
    """
    scale, axis = _scale_and_axis(values)
    return channel(f"{metric}:Q", title=metric, scale=scale, axis=axis)


def _scale_and_axis(values: Floats | None) -> tuple[alt.Scale, alt.Axis]:
    if values is None:
        return alt.Scale(zero=False, padding=6), alt.Axis(labelExpr=NUMBER)
    if (values > 0).all():
        ticks = log_ticks(float(values.min()), float(values.max()))
        return alt.Scale(type="log", nice=False, padding=6), alt.Axis(values=ticks)
    scale = alt.Scale(type="symlog", constant=_middle(values), nice=False, padding=6)
    return scale, symlog_axis(_middle(values), float(np.abs(values).max()))


def symlog_axis(middle: float, most: float) -> alt.Axis:
    """Return the axis of a scale that is logarithmic on both sides of 0, from `middle` to `most`."""
    ticks = [tick for tick in log_ticks(middle, most) if tick >= middle]
    return alt.Axis(values=sorted([0.0, *ticks, *(-tick for tick in ticks)]), labelExpr=NUMBER)


def log_ticks(low: float, high: float) -> list[float]:
    """Return the powers of ten between the two, with 2 and 5 times these where there are few."""
    powers = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    factors = (1, 2, 5) if np.log10(high / low) < FEW_DECADES else (1,)
    step = max(1, len(powers) // 6)
    return [float(f"{factor}e{power}") for power in powers[::step] for factor in factors]


def whole_ticks(values: Iterable[int]) -> list[int]:
    """Return whole numbers from the smallest to the largest value, thinned to about eight."""
    low, high = min(values := list(values)), max(values)
    return list(range(low, high + 1, 1 + (high - low) // 8))


def drawn_values(data: ReportData, metric: str, *, from_initialisation: bool = False) -> Floats:
    """Return the finite values of trained models, or of all models."""
    assert data.models is not None
    frame = data.models.frame if from_initialisation else data.models.trained
    return frame[metric].dropna().to_numpy(dtype=float)


def logarithmic_values(data: ReportData, metric: str, *, from_initialisation: bool = False) -> Floats | None:
    """Return the values on a logarithmic axis of all models; None if the axis is linear."""
    return if_logarithmic(data, metric, drawn_values(data, metric, from_initialisation=from_initialisation))


def if_logarithmic(data: ReportData, metric: str, values: Floats) -> Floats | None:
    """Return these values if their axis is logarithmic, else None.

    Values without a logarithm get a symmetric logarithmic axis if a few are far from all others, as in the first steps
    of training.
    """
    if not len(values):
        return None
    wide = np.abs(values).max() >= WIDE * _middle(values) > 0
    return values if metric in data.logarithmic or wide else None


def _middle(values: Floats) -> float:
    return float(f"{np.median(np.abs(values)):.6g}")


def null_level(
    data: ReportData, metric: str, values: Floats, *, log: bool, across: bool = False
) -> tuple[list[alt.Chart], str]:
    """Return the median level with shuffled labels: as a dashed, labelled line or, if it is far away, in words.

    With `across` the metric is along x and the line is upright.
    """
    level = null_of(data, metric)
    if level is None or not len(values):
        return [], ""
    place, places = level, values
    if log and values.min() > 0:
        place, places = float(np.log(max(level, 1e-300))), np.log(values)
    low, high = places.min(), places.max()
    if not low - FAR * (high - low) <= place <= high + FAR * (high - low):
        return [], f"{SHUFFLED}: {level:.3g}".replace("-", "\N{MINUS SIGN}")
    chart = alt.Chart(alt.InlineData(values=[{"level": level, "word": SHUFFLED}]))
    name = partial(chart.mark_text, color="var(--soft)", fontSize=10)
    if across:
        in_left_half = level <= np.median([values.min(), values.max()])
        text = name(align="left" if in_left_half else "right", dx=4 if in_left_half else -4, y=3, baseline="top")
    else:
        text = name(align="right", x="width", baseline="bottom", dy=-3)
    channel = {"x" if across else "y": "level:Q"}
    rule = chart.mark_rule(color="var(--soft)", strokeDash=[5, 4], strokeWidth=1.2)
    return [rule.encode(**channel), text.encode(**channel, text="word:N")], ""


def null_of(data: ReportData, metric: str) -> float | None:
    if data.models is None:
        return None
    nulls = data.models.trained[f"{metric} null"].dropna()
    return float(f"{np.median(nulls):.6g}") if len(nulls) else None
