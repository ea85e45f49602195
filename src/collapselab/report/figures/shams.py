"""Shams beside their treatments: how much of an effect the same penalty has with shuffled labels."""

from collapselab.report.charts.forest import Line, axis_words, forest_chart, forest_table
from collapselab.report.charts.panels import Figure, Panel
from collapselab.report.data import View
from collapselab.report.figures.effects import outcome_rows
from collapselab.report.words import outcome_name

TITLE = "Shams beside treatments"


def shams(view: View) -> Figure:
    """The effect on the outcome of every arm that has a sham of its dose, and of that sham."""
    rows = outcome_rows(view)
    of_dose = {(row.where, row.arm, row.dose): row for row in rows if row.sham}
    pairs = [(row, of_dose[row.key[:3]]) for row in rows if not row.sham and row.key[:3] in of_dose]
    if not pairs:
        return Figure("shams", TITLE, missing="No arm has a sham of the same dose.")
    caption = (
        "The same force with labels permuted within the batch is the sham (squares). What a sham does to the outcome "
        "is not an effect of the property."
    )
    lines = [
        Line(row.label, kind, arm.effect or 0.0, arm.low, arm.high, arm.n)
        for row, sham in pairs
        for kind, arm in (("treatment", row), ("sham", sham))
    ]
    caption += axis_words(lines, rows[0].margin)
    name = outcome_name(view.story.outcome)
    chart, height = forest_chart("shams", lines, f"Δ {name}", band=rows[0].margin)
    numbers = f"Effects on {name}: " + "; ".join(f"{line.arm}, {line.kind} {line.effect:+.3g}" for line in lines) + "."
    panel = Panel("shams-outcome", chart, "shams", numbers, height=height)
    return Figure("shams", TITLE, caption, [panel], tables={"shams": forest_table(lines)})
