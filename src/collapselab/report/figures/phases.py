"""When each property appears: the main break of every series along training, with its interval."""

import altair as alt
import numpy as np

from collapselab.analysis.phases import LOSSES, Phase
from collapselab.analysis.segments import FEWEST
from collapselab.report.charts.axes import log_ticks
from collapselab.report.charts.panels import Figure, Panel, width_colour
from collapselab.report.data import Columns, View, columns, label

TITLE = "When each property comes"


def phases(view: View) -> Figure:
    """A line for each metric: where the slope of its series changes most, run by run."""
    analysis = view.story.analysis
    rows: list[Phase] = analysis.tables["phases"] if analysis else []
    if not rows:
        missing = f"No run has {FEWEST} checkpoints after initialisation (`checkpoints: log:12` keeps that many)."
        return Figure("phases", TITLE, missing=missing)
    if not any(row.main for row in rows):
        return Figure("phases", TITLE, missing="Along training every series is a line in the logarithm of tokens.")
    table, names = _table(view, rows)
    caption = (
        "The series of each metric along the checkpoints of a run is fitted by a line in the logarithm of training "
        "tokens whose slope may change; the number of breaks is chosen by BIC. A dot is the break with the largest "
        "change of slope, the bar its 95 % interval. Series without a break have no dot."
    )
    return Figure("phases", TITLE, caption, [_panel(view, names, table)], ("width",), tables={"phases": table})


def _table(view: View, rows: list[Phase]) -> tuple[Columns, list[str]]:
    widths = {run["run"]: run["width"] for run in view.story.runs}
    drawn = [
        {"metric": row.metric, "run": row.run, "time": row.time, "low": row.low, "high": row.high, "breaks": row.breaks,
         "order": str(row.order) if row.share_before is not None else "–", "wide": label(widths.get(row.run))}
        for row in rows if row.main
    ]  # fmt: skip
    medians = {name: np.median([row["time"] for row in drawn if row["metric"] == name]) for name in
               dict.fromkeys(str(row["metric"]) for row in drawn)}  # fmt: skip
    names = sorted(medians, key=lambda name: (name not in LOSSES, medians[name]))
    return columns(drawn), names


def _panel(view: View, names: list[str], table: Columns) -> Panel:
    ends = [float(str(value)) for name in ("low", "high") for value in table[name] if value is not None]
    scale = alt.Scale(type="log", nice=False, padding=10)
    axis = alt.Axis(values=log_ticks(min(ends), max(ends)), format="~s")
    data = alt.Chart(alt.NamedData("phases"))
    y = alt.Y("metric:N", sort=names, title=None, scale=alt.Scale(domain=names), axis=alt.Axis(labelLimit=200))
    hover = [alt.Tooltip("run:N"), alt.Tooltip("metric:N"), alt.Tooltip("time:Q", title="break at", format=".3~g"),
             alt.Tooltip("low:Q", title="from", format=".3~g"), alt.Tooltip("high:Q", title="to", format=".3~g"),
             alt.Tooltip("breaks:Q", title="breaks", format=","), alt.Tooltip("order:N", title="order")]  # fmt: skip
    bars = data.mark_rule(strokeWidth=3, opacity=0.35).encode(
        y=y, x=alt.X("low:Q", scale=scale, axis=axis, title="training tokens, or epochs"), x2="high:Q",
        color=width_colour(view.keys), tooltip=hover,
    )  # fmt: skip
    dots = data.mark_point(filled=True, size=45, opacity=0.9).encode(
        y=y, x="time:Q", color=width_colour(view.keys), tooltip=hover
    )
    said = "; ".join(
        f"{name} {np.median([t for t, m in zip(table['time'], table['metric'], strict=True) if m == name]):.3g}"
        for name in names
    )
    return Panel("phases-all", alt.layer(bars, dots), "phases", f"Median time of the main break: {said}.",
                 height=26 * len(names) + 50)  # fmt: skip
