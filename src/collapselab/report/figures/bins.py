"""Each metric over classes of different frequency, where that was measured."""

from typing import Any

import altair as alt

from collapselab.records.tables import Row
from collapselab.report.charts.curves import LAST, bin_start, curves, latest
from collapselab.report.charts.panels import Figure
from collapselab.report.view import View


def bins(view: View) -> Figure:
    """Each metric over bins of how often the classes occur, of every run at its last measured checkpoint."""
    title, story = "From rare classes to frequent ones", view.story
    rows = [row for row in story.rows if row.layer == LAST and row.split == "train" and row.value is not None]
    measured = {(row.run, row.checkpoint) for row in rows if row.bin != "all"}
    if not measured:
        return Figure("bins", title, missing="Classes were not separated by frequency (`--bins N` does).")
    chosen = latest(story, measured)
    order = sorted({row.bin for row in rows if row.bin != "all"}, key=bin_start)
    caption = "A line is a run; along it the classes are those that occur this many times in training, and no others."
    lines: list[tuple[Any, Row]] = [
        (row.bin, row) for row in rows if (row.run, row.checkpoint) in chosen and row.bin != "all"
    ]
    axis = alt.X(
        "place:N", sort=order, title="occurrences of the class", axis=alt.Axis(labelAngle=-35, labelOverlap=False)
    )
    return curves(view, "bins", title, caption, lines=lines, axis=axis, chosen=chosen)
