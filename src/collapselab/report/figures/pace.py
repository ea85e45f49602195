"""The same comparison at equal steps and at equal training loss: arms change how fast a model learns."""

from collapselab.report.charts.forest import Line, axis_words, forest_chart, forest_table
from collapselab.report.charts.panels import Figure, Panel
from collapselab.report.data import View
from collapselab.report.figures.effects import outcome_rows
from collapselab.report.words import outcome_name

TITLE = "At equal steps and at equal training loss"


def pace(view: View) -> Figure:
    """Two marks for each arm: at the end, and where both runs of a pair have the same training loss."""
    rows = [row for row in outcome_rows(view) if not row.sham]
    known = [row for row in rows if row.equal_loss_effect is not None]
    if not known:
        why = next((row.equal_loss_why for row in rows if row.equal_loss_why), None)
        return Figure("pace", TITLE, missing=f"Not drawn: {why}" if why else "There are no arms.")
    caption = (
        "Circles: at the end of training. Diamonds: at the lowest training loss that both runs of a pair reach, the "
        "faster one interpolated between its checkpoints. Where the diamond is at 0 and the circle is not, the arm "
        "changes the pace and not what is learned."
    )
    lines = []
    for row in known:
        lines.append(Line(row.label, "equal steps", row.effect or 0.0, row.low, row.high, row.n))
        equal = (row.equal_loss_effect or 0.0, row.equal_loss_low, row.equal_loss_high, row.equal_loss_n or 0)
        lines.append(Line(row.label, "equal training loss", *equal))
    caption += axis_words(lines, known[0].margin)
    name = outcome_name(view.story.outcome)
    chart, height = forest_chart("pace", lines, f"Δ {name}", band=known[0].margin)
    numbers = (
        f"Effects on {name}: " + "; ".join(f"{line.arm} at {line.kind} {line.effect:+.3g}" for line in lines) + "."
    )
    panel = Panel("pace-outcome", chart, "pace", numbers, height=height)
    return Figure("pace", TITLE, caption, [panel], tables={"pace": forest_table(lines)})
