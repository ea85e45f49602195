"""What every arm does to the outcome, with the band of effects that are of no interest."""

from collapselab.analysis.effects import Effect, Judgement, Role
from collapselab.report.charts.forest import Line, axis_words, forest_chart, forest_table
from collapselab.report.charts.panels import Figure, Panel
from collapselab.report.data import View
from collapselab.report.figures.manipulation import NO_ARMS
from collapselab.report.words import outcome_name

TITLE = "Effects on the outcome"


def outcome_rows(view: View) -> list[Effect]:
    """The effects on the outcome, of arms and shams."""
    rows = view.story.analysis.effects if view.story.analysis else ()
    return [row for row in rows if row.role is Role.OUTCOME and row.effect is not None]


def effects(view: View) -> Figure:
    """A line for each arm: its effect, its interval and the verdict."""
    rows = [row for row in outcome_rows(view) if not row.sham]
    if not rows:
        return Figure("effects", TITLE, missing=NO_ARMS)
    name, band = outcome_name(view.story.outcome), rows[0].margin
    band_words = f" Band: ±{band:.2g}, smaller than any effect of interest." if band is not None else ""
    registered = "registered before the first run" if rows[0].registered else "exploratory"
    caption = (
        f"Arm minus control in pairs of one seed, with the 95 % interval ({registered}). Verdicts are of tests "
        f"that are corrected over all arms. Of an arm that did not reach its property nothing is said.{band_words}"
    )
    lines = [_line(row) for row in rows]
    caption += axis_words(lines, band)
    chart, height = forest_chart("effects", lines, f"Δ {name}", band=band)
    numbers = f"Effects on {name}: " + "; ".join(f"{line.arm} {line.effect:+.3g}, {line.kind}" for line in lines) + "."
    panel = Panel("effects-outcome", chart, "effects", numbers, height=height)
    return Figure("effects", TITLE, caption, [panel], tables={"effects": forest_table(lines)})


def _line(row: Effect) -> Line:
    verdict = str(row.verdict or Judgement.CANNOT_TELL)
    p = row.p_equivalence if row.verdict is Judgement.EQUIVALENT else row.p_holm
    silent = p is None or row.verdict in (Judgement.DID_NOT_REACH, Judgement.CANNOT_TELL)
    words = verdict if silent else f"{verdict}, p {p:.2g}"
    return Line(row.label, verdict, row.effect or 0.0, row.low, row.high, row.n, words)
