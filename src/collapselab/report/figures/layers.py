"""Each metric from layer to layer, where that was measured."""

import altair as alt

from collapselab.records.tables import Row
from collapselab.report.charts.curves import LAST, Latest, curves, latest
from collapselab.report.charts.panels import Figure
from collapselab.report.view import View


def layers(view: View) -> Figure:
    """Each metric from block to block, of every run at its last measured checkpoint."""
    title, story = "From layer to layer", view.story
    rows = [row for row in story.rows if row.bin == "all" and row.split == "train" and row.value is not None]
    measured = {(row.run, row.checkpoint) for row in rows if row.layer != LAST}
    if not measured:
        missing = "No layer but the last was measured (`--layers all` measures every one)."
        return Figure("layers", title, missing=missing)
    chosen = latest(story, measured)
    caption = (
        "A line is a run at its last checkpoint that was measured layer by layer. Its last dot is the vector that "
        "enters the output layer, after the final norm."
    )
    lines = [(_depth(row, chosen), row) for row in rows if (row.run, row.checkpoint) in chosen]
    axis = alt.X("place:Q", title="layer", axis=alt.Axis(format="d", tickMinStep=1), scale=alt.Scale(zero=False))
    return curves(view, "layers", title, caption, lines=lines, axis=axis, chosen=chosen)


def _depth(row: Row, chosen: Latest) -> int | None:
    """The layer's number; the output layer's input comes after the last block."""
    if row.layer != LAST:
        return int(row.layer)
    depth = chosen[row.run, row.checkpoint]["depth"]
    return None if depth is None else int(depth) + 1
