"""The manipulation check: did every arm move the metric that it is for, and more than its sham?"""

from collapselab.analysis.effects import Effect
from collapselab.analysis.verdict import Role
from collapselab.report.charts.forest import NARROW, ForestLine, forest_chart, forest_table
from collapselab.report.charts.panels import Figure, Panel
from collapselab.report.data import View

TITLE = "Did the interventions reach their property?"
NO_ARMS = "No two runs differ in an intervention, a head or an optimiser alone."


def manipulation(view: View) -> Figure:
    """A panel for each metric that arms must move: the effects of the arms, and of shams of the same interventions."""
    rows = view.story.analysis.effects if view.story.analysis else ()
    targets = [row for row in rows if row.role is Role.TARGET and row.effect is not None]
    if not targets:
        return Figure("manipulation", TITLE, missing=NO_ARMS)
    caption = (
        "Effect of each arm on the metric that it must move, arm minus control in pairs, with its 95 % interval. "
        "An arm has reached its property (filled) where that is two standard deviations of the pairs or more in the "
        "right direction, a quarter of the range over widths, and more than its sham moves it (squares)."
    )
    tables, panels = {}, []
    metrics = list(dict.fromkeys(row.metric for row in targets))
    room = NARROW if len(metrics) > 1 else None  # a single panel is wide
    for metric in metrics:
        made_for = [row for row in targets if row.metric == metric]
        names = {(row.where, row.arm) for row in made_for}
        shams = [row for row in rows if row.sham and row.metric == metric and (row.where, row.arm) in names]
        lines = [_line(row) for row in (*made_for, *shams) if row.effect is not None]
        tables[f"manipulation {metric}"] = forest_table(lines, room=room)
        chart, height = forest_chart(f"manipulation {metric}", lines, f"Δ {metric}", room=room)
        said = "; ".join(f"{line.arm} {line.effect:+.3g} ({line.kind})" for line in lines)
        numbers = f"Effects on {metric}: {said}."
        key = f"manipulation-{metric}"
        panels.append(Panel(key, chart, f"manipulation {metric}", numbers, metric, height=height))
    return Figure("manipulation", TITLE, caption, panels, tables=tables)


def _line(row: Effect) -> ForestLine:
    kind = "sham" if row.sham else {True: "reached", False: "not reached", None: "too few runs"}[row.reached]
    return ForestLine(row.label, kind, row.effect or 0.0, row.low, row.high, row.n, "" if row.sham else kind)
