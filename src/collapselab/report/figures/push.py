"""Loss, calibration and agreement against how far features are moved toward class means, where that was measured."""

import altair as alt
import pandas as pd

from collapselab.records.tables import PushRow
from collapselab.report.charts.panels import Figure, Panel, width_colour
from collapselab.report.data import Keys, Line, View, columns, label
from collapselab.report.story import Latest

TITLE = "Features moved toward their class means"
SHOWN = {"loss": "loss less that at α = 0", "ece": "calibration error", "agreement": "agreement"}
"""What is drawn, with the title of its axis."""

POINT = ["alpha", "value", "head", "run", "wide"]
HEADS = {"own": "output layer", "centres": "nearest class mean"}


def push(view: View) -> Figure:
    """The numbers of the table `push` against α, of every run at its last measured checkpoint."""
    rows: list[PushRow] = view.story.tables.tables.get("push", [])
    if not rows:
        return Figure("push", TITLE, missing="Features were not moved (`--push default` does).")
    chosen = view.story.latest({(row.run, row.checkpoint) for row in rows})
    caption = (
        "Every validation feature h moves to h + α (Σ p_c μ_c − h), toward the class means that the model itself "
        "expects (α > 0) or away from them. A line is a run at its last measured checkpoint; dashed, the head that "
        "chooses by the nearest class mean. Nothing is trained."
    )
    shown = [row for row in rows if (row.run, row.checkpoint) in chosen]
    tables, panels = {}, []
    for name, title in SHOWN.items():
        points = [point for row in shown if (point := _point(row, name, shown, chosen)) is not None]
        tables[f"push {name}"] = columns(points)
        panels.append(_panel(view.keys, name, title, pd.DataFrame(points, columns=POINT)))
    return Figure("push", TITLE, caption, panels, ("width",), tables=tables)


def _point(row: PushRow, name: str, rows: list[PushRow], chosen: Latest) -> Line | None:
    value = getattr(row, name)
    if name == "loss":
        same = (other.loss for other in rows if (other.run, other.head, other.alpha) == (row.run, row.head, 0))
        start = next(same, None)
        value = None if value is None or start is None else value - start
    if value is None:
        return None
    width = chosen[row.run, row.checkpoint]["width"]
    return {
        "alpha": row.alpha,
        "value": value,
        "head": HEADS.get(row.head, row.head),
        "run": row.run,
        "wide": label(None if width is None else float(width)),
    }


def _panel(keys: Keys, name: str, title: str, points: pd.DataFrame) -> Panel:
    data = alt.Chart(alt.NamedData(f"push {name}"))
    shared = {
        "x": alt.X("alpha:Q", title="α"),
        "y": alt.Y("value:Q", title=title, scale=alt.Scale(zero=False)),
        "color": width_colour(keys),
    }
    dashes = alt.StrokeDash("head:N", legend=None, scale=alt.Scale(domain=list(HEADS.values()), range=[[1, 0], [4, 3]]))
    hover = [alt.Tooltip("run:N"), alt.Tooltip("wide:N", title="width"), alt.Tooltip("head:N"),
             alt.Tooltip("alpha:Q", title="α"), alt.Tooltip("value:Q", title=name, format=".4~g")]  # fmt: skip
    lines = data.mark_line(strokeWidth=1.3, opacity=0.7).encode(**shared, strokeDash=dashes, detail="run:N")
    dots = data.mark_point(filled=True, size=20, opacity=0.85).encode(**shared, tooltip=hover)
    own = points[points["head"] == HEADS["own"]]
    medians = own.groupby("alpha")["value"].median()
    words = ", ".join(f"α {alpha:g} {value:.3g}" for alpha, value in medians.items())
    numbers = f"{title}, median of {own['run'].nunique()} runs: {words}."
    return Panel(f"push-{name}", alt.layer(lines, dots), f"push {name}", numbers)
