"""Forest plot: one line for each arm or metric, with its effect and interval, its name above and its verdict at the
right.

A line may have two marks, such as a treatment and its sham; `lines` of one arm share a row.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import altair as alt
import numpy as np

from collapselab.analysis.verdict import Verdict
from collapselab.report.charts.axes import NUMBER, WIDE, symlog_axis
from collapselab.report.charts.panels import DrawnChart, Figure, Panel
from collapselab.report.view import Columns, columns
from collapselab.report.words import TEST_WORDS

HEIGHT, STACKED_HEIGHT = 36, 50
"""Height of a line; of a line with its verdict below the name."""
NARROW = 34
"""Characters that fit on a line of a panel among several."""


@dataclass(frozen=True)
class ForestMark:
    """How a kind of line is drawn."""

    colour: str
    shape: str
    hollow: bool = False


MARKS = {
    "helps": ForestMark("with", "circle"),
    "harms": ForestMark("against", "triangle-up"),
    "equivalent": ForestMark("accent", "square"),
    "undecided": ForestMark("unshown", "circle", hollow=True),
    "did not reach": ForestMark("other", "cross", hollow=True),
    "too few runs": ForestMark("unshown", "diamond", hollow=True),
    "reached": ForestMark("with", "circle"),
    "not reached": ForestMark("against", "cross", hollow=True),
    "treatment": ForestMark("accent", "circle"),
    "sham": ForestMark("other", "square", hollow=True),
    TEST_WORDS[Verdict.AS_PREDICTED]: ForestMark("with", "circle"),
    TEST_WORDS[Verdict.OPPOSITE]: ForestMark("against", "circle"),
    TEST_WORDS[Verdict.NO_DIRECTION]: ForestMark("mixed", "circle"),
    TEST_WORDS[Verdict.NOT_SHOWN]: ForestMark("unshown", "circle", hollow=True),
    TEST_WORDS[Verdict.DESCRIPTION]: ForestMark("soft", "circle", hollow=True),
    "all models": ForestMark("other", "square", hollow=True),
}


@dataclass(frozen=True)
class ForestLine:
    """An effect or a correlation to be drawn: its arm or metric, its kind, and the text at its right."""

    arm: str
    kind: str
    effect: float
    low: float | None
    high: float | None
    n: int
    words: str = ""


def forest_figure(
    table: str, caption: str, title: str, lines: Sequence[ForestLine], band: float | None = None
) -> Figure:
    """Return the lines as one forest. `band` is the largest effect, of either sign, that is of no interest."""
    if effect_scale(_drawn(lines), band)[0].to_dict().get("type") is not None:
        caption += " The axis is logarithmic in both directions from 0."
    return Figure(caption, [forest_panel(table, lines, title, band=band)], tables={table: forest_table(lines)})


def forest_panel(
    table: str,
    lines: Sequence[ForestLine],
    title: str,
    *,
    metric: str = "",
    band: float | None = None,
    room: int | None = None,
) -> Panel:
    """Return the forest of a table, which `forest_table` makes of the same lines."""
    chart, height = forest_chart(table, lines, title, band=band, room=room)
    said = "; ".join(f"{line.arm} {line.effect:+.3g}, {line.kind}" for line in lines)
    return Panel(table.replace(" ", "-"), chart, table, f"{title}: {said}.", metric, height=height)


def forest_table(lines: Sequence[ForestLine], *, room: int | None = None) -> Columns:
    """Return the lines as a table, with the marks of one arm below each other. `room` as for `forest_chart`."""
    stacked = _is_stacked(lines, room)
    arms = list(dict.fromkeys(line.arm for line in lines))
    seen: dict[str, int] = {}
    rows = []
    for line in lines:
        number = seen[line.arm] = seen.get(line.arm, -1) + 1
        order = arms.index(line.arm)
        rows.append({
            "label": line.arm if not number else None, "name_at": order - (0.3 if stacked else 0.16),
            "words_at": order - (0.05 if stacked else 0.16), "at": order + (0.2 if stacked else 0.16) + 0.26 * number,
            "arm": line.arm, "kind": line.kind, "effect": line.effect, "low": line.low, "high": line.high, "n": line.n,
            "words": line.words,
        })  # fmt: skip
    return columns(rows)


def forest_chart(
    table: str, lines: Sequence[ForestLine], title: str, *, band: float | None = None, room: int | None = None
) -> tuple[DrawnChart, int]:
    """Return the chart of a forest and its height.

    `room` is the number of characters on a line of a narrow panel.
    """
    base = alt.Chart(alt.NamedData(table))
    arms = len({line.arm for line in lines})
    several = len(lines) > arms
    place = alt.Scale(domain=[arms - (0.3 if several else 0.5), -0.55], nice=False, zero=False)
    y = alt.Y("at:Q", axis=None, scale=place)
    scale, axis = effect_scale(_drawn(lines), band)
    x = alt.X("effect:Q", title=title, scale=scale, axis=axis)
    kinds = list(dict.fromkeys(line.kind for line in lines))
    zero = alt.Chart(alt.InlineData(values=[{"zero": 0}])).mark_rule(color="var(--soft)").encode(x="zero:Q")
    bars = base.mark_rule(strokeWidth=1.6, opacity=0.8).encode(
        x="low:Q", x2="high:Q", y=y, color=alt.Color("kind:N", scale=_scale(kinds, "colour"), legend=None)
    )  # the legend explains the marks
    hover = [alt.Tooltip("arm:N"), alt.Tooltip("kind:N", title="is"), alt.Tooltip("effect:Q", format="+.4~g"),
             alt.Tooltip("low:Q", format="+.3~g"), alt.Tooltip("high:Q", format="+.3~g"),
             alt.Tooltip("n:Q")]  # fmt: skip
    dots = base.mark_point(size=55, strokeWidth=1.6, opacity=1).encode(
        x=x, y=y, tooltip=hover,
        stroke=alt.Stroke("kind:N", title=None, scale=_scale(kinds, "colour")),
        shape=alt.Shape("kind:N", title=None, scale=_scale(kinds, "shape")),
        fill=alt.Fill("kind:N", title=None, scale=_scale(kinds, "fill")),
    )  # fmt: skip
    at = alt.Y("name_at:Q", axis=None, scale=place)
    named = base.transform_filter("isValid(datum.label)")
    names = named.mark_text(align="left", x=2, fontSize=10.5).encode(y=at, text="label:N")
    words = named.mark_text(align="right", x="width", fontSize=10.5, color="var(--soft)").encode(
        y=alt.Y("words_at:Q", axis=None, scale=place), text="words:N"
    )
    has_intervals = any(line.low is not None for line in lines)  # a field without a number is a warning in the console
    layers = [zero, *([bars] if has_intervals else []), dots, names, words]
    if band is not None:
        area = alt.Chart(alt.InlineData(values=[{"from": -band, "to": band}]))
        layers.insert(0, area.mark_rect(color="var(--accent)", opacity=0.13).encode(x="from:Q", x2="to:Q"))
    height = STACKED_HEIGHT if _is_stacked(lines, room) else HEIGHT
    return alt.layer(*layers), (height + (10 if several else 0)) * arms + 44


def _is_stacked(lines: Sequence[ForestLine], room: int | None) -> bool:
    """Return whether a name and its verdict would overlap."""
    return room is not None and any(len(line.arm) + len(line.words) > room for line in lines)


def _drawn(lines: Sequence[ForestLine]) -> list[float | None]:
    return [value for line in lines for value in (line.effect, line.low, line.high)]


def effect_scale(values: Iterable[float | None], band: float | None = None) -> tuple[alt.Scale, alt.Axis]:
    """Return scale and axis of effects: linear, or symmetric logarithmic if a few effects are far larger than most."""
    known = np.abs([value for value in (*values, band) if value is not None])
    middle = float(f"{np.median(known):.2g}") if len(known) else 0.0
    if not middle or known.max() < WIDE * middle:
        return alt.Scale(), alt.Axis(labelExpr=NUMBER, tickCount=5)
    return alt.Scale(type="symlog", constant=middle), symlog_axis(middle, float(known.max()))


def _scale(kinds: Sequence[str], what: str) -> alt.Scale:
    marks = [MARKS[kind] for kind in kinds]
    ranges = {
        "colour": [f"var(--{mark.colour})" for mark in marks],
        "shape": [mark.shape for mark in marks],
        "fill": ["var(--paper)" if mark.hollow else f"var(--{mark.colour})" for mark in marks],
    }
    return alt.Scale(domain=list(kinds), range=ranges[what])
