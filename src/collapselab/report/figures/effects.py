"""What every arm does to the outcome: its effect, beside that of its sham.

The band is that of effects that are of no interest.
"""

from collections.abc import Iterable, Sequence

from collapselab.analysis.effects import Effect
from collapselab.analysis.verdict import Role, Verdict
from collapselab.report.charts.forest import ForestLine, axis_words, forest_chart, forest_table
from collapselab.report.charts.panels import Figure, Panel
from collapselab.report.data import View
from collapselab.report.figures.manipulation import NO_ARMS
from collapselab.report.words import outcome_name

EFFECTS = "Effects on the outcome"
SHAMS = "Shams beside treatments"


def effects(view: View) -> Figure:
    """A line for each arm: its effect, its interval and the verdict."""
    rows = [row for row in _outcome_rows(view) if not row.sham]
    if not rows:
        return Figure("effects", EFFECTS, missing=NO_ARMS)
    band = rows[0].margin
    band_words = f" Band: ±{band:.2g}, smaller than any effect of interest." if band is not None else ""
    registered = "registered before the first run" if rows[0].registered else "exploratory"
    caption = (
        f"Arm minus control in pairs of one seed, with the 95 % interval ({registered}). Verdicts are of tests "
        f"that are corrected over all arms. Of an arm that did not reach its property nothing is said.{band_words}"
    )
    lines = [_verdict_line(row) for row in rows]
    said = (f"{line.arm} {line.effect:+.3g}, {line.kind}" for line in lines)
    return _figure("effects", EFFECTS, caption, view, lines, said, band)


def shams(view: View) -> Figure:
    """The effect on the outcome of every arm that has a sham of its dose, and of that sham."""
    rows = _outcome_rows(view)
    of_dose = {(row.where, row.arm, row.dose): row for row in rows if row.sham}
    pairs = [(row, of_dose[row.key[:3]]) for row in rows if not row.sham and row.key[:3] in of_dose]
    if not pairs:
        return Figure("shams", SHAMS, missing="No arm has a sham of the same dose.")
    caption = (
        "The same force with labels permuted within the batch is the sham (squares). What a sham does to the outcome "
        "is not an effect of the property."
    )
    lines = [
        ForestLine(row.label, kind, arm.effect or 0.0, arm.low, arm.high, arm.n)
        for row, sham in pairs
        for kind, arm in (("treatment", row), ("sham", sham))
    ]
    said = (f"{line.arm}, {line.kind} {line.effect:+.3g}" for line in lines)
    return _figure("shams", SHAMS, caption, view, lines, said, rows[0].margin)


def _outcome_rows(view: View) -> list[Effect]:
    """The effects on the outcome, of arms and shams."""
    rows = view.story.analysis.effects if view.story.analysis else ()
    return [row for row in rows if row.role is Role.OUTCOME and row.effect is not None]


def _verdict_line(row: Effect) -> ForestLine:
    verdict = str(row.verdict or Verdict.TOO_FEW)
    p = row.p_equivalence if row.verdict is Verdict.EQUIVALENT else row.p_holm
    silent = p is None or row.verdict in (Verdict.DID_NOT_REACH, Verdict.TOO_FEW)
    words = verdict if silent else f"{verdict}, p {p:.2g}"
    return ForestLine(row.label, verdict, row.effect or 0.0, row.low, row.high, row.n, words)


def _figure(
    key: str, title: str, caption: str, view: View, lines: Sequence[ForestLine], said: Iterable[str], band: float | None
) -> Figure:
    """The lines as one forest, and what they say in words; `band` is half the width of effects of no interest."""
    name = outcome_name(view.story.outcome)
    chart, height = forest_chart(key, lines, f"Δ {name}", band=band)
    panel = Panel(f"{key}-outcome", chart, key, f"Effects on {name}: {'; '.join(said)}.", height=height)
    return Figure(key, title, caption + axis_words(lines, band), [panel], tables={key: forest_table(lines)})
