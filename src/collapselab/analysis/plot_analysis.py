"""An analysis in a notebook: its sentences as HTML, and its tables as charts that hold their own data."""

from collections.abc import Mapping, Sequence
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from collapselab.analysis.words import Sentence

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

STEP, WIDTH = 16, 320
VERDICTS = {
    "as predicted": "#00694e",
    "opposite direction": "#a83c00",
    "no direction predicted": "#7a5b00",
    "not shown": "#59636e",
    "description": "#0b61a4",
    "too few runs": "#9aa4ae",
}
"""Colours that colour-blind readers can distinguish, by the code of the verdict."""


class _Drawn(NamedTuple):
    """The columns of a table that a chart shows."""

    value: str
    title: str
    line: str
    panel: str


DRAWN = {
    "relate": _Drawn("r", "correlation with the outcome", "metric", "subset"),
    "effects": _Drawn("effect", "outcome minus that of the control", "label", "metric"),
}
"""Tables that can be drawn."""


def plot(table: str, frames: Mapping[str, "pd.DataFrame"], outcome: str) -> "alt.FacetChart":
    """Estimates with their intervals, a panel for each subset; KeyError for a table that has none."""
    import altair as alt

    if table not in DRAWN:
        raise KeyError(f"{table}: not a table that can be drawn. There are {', '.join(DRAWN)}.")
    drawn = DRAWN[table]
    rows = frames[table]
    rows = rows[rows[drawn.value].notna()]
    if table == "effects":  # metrics have units of their own
        rows = rows[rows["role"] == "outcome"]
    if rows.empty:
        raise KeyError(f"{table}: no row of it has a number. The sentences say why: analysis.sentences.")
    columns = {"estimate": drawn.value, "panel": drawn.panel, "line": drawn.line, "low": "low", "high": "high"}
    shown = rows[list(columns.values())].set_axis(list(columns), axis=1)
    shown = shown.assign(judged=[str(code) if isinstance(code, str) else "none" for code in rows["verdict"]])
    shown = shown.drop_duplicates(["panel", "line"], keep="last")  # a metric on two scales is judged on the last
    others = sorted(set(shown["judged"]) - VERDICTS.keys())
    scale = alt.Scale(domain=[*VERDICTS, *others], range=[*VERDICTS.values(), *["#7d8790"] * len(others)])
    base = alt.Chart(shown).encode(
        y=alt.Y("line:N", sort=list(dict.fromkeys(shown["line"])), title=None),
        color=alt.Color("judged:N", scale=scale, title="verdict"),
    )
    intervals = base.mark_rule().encode(x=alt.X("low:Q", title=drawn.title), x2="high:Q")
    tooltip = ["line:N", "estimate:Q", "low:Q", "high:Q", "judged:N"]
    points = base.mark_point(filled=True, size=45).encode(x=alt.X("estimate:Q"), tooltip=tooltip)
    layered = alt.layer(intervals, points).properties(width=WIDTH, height=alt.Step(STEP))
    chart: alt.FacetChart = layered.facet(column=alt.Column("panel:N", title=None)).properties(
        title=f"{table}: {outcome}"
    )
    return chart


def analysis_html(title: str, sentences: Sequence[Sentence], counts: Mapping[str, int]) -> str:
    """The sentences by topic, and how many rows each table has."""
    parts = [f"<p><b>{escape(title)}</b></p>"]
    for topic, of_topic in groupby(sentences, key=lambda sentence: sentence.topic):
        items = "".join(f"<li>{escape(sentence.text)}</li>" for sentence in of_topic)
        parts.append(f"<p><i>{escape(topic)}</i></p><ul>{items}</ul>")
    tables = ", ".join(f"{name} ({count:,})" for name, count in counts.items())
    return "".join([*parts, f"<p>tables: {escape(tables)}</p>"])
