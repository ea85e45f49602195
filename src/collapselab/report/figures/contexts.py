"""How far back the model looks: the variance that remains within contexts of n tokens, over n, layers and training.

Each corpus has its own panels: the remaining variance depends on the text.
"""

import re
from dataclasses import replace

import altair as alt
import pandas as pd

from collapselab.records.tables import ContextRow
from collapselab.report.charts.axes import whole_ticks
from collapselab.report.charts.panels import Figure, Panel, line_dash, run_curves, width_colour
from collapselab.report.data import Latest
from collapselab.report.view import Line, View, columns

WITHIN, GAP, LAST = "context_within", "entropy_gap", "last"
Drawn = tuple[Panel, list[Line]]
"""A panel and the rows of its table."""


def how_far_back(view: View) -> Figure | str:
    """Draw `context_within` over n, over layers and over training, and against the entropy gap."""
    rows: list[ContextRow] = [row for row in view.data.tables.tables.get("contexts", []) if row.value is not None]
    within = [row for row in rows if row.metric == WITHIN]
    if not within:
        return "Contexts were not measured (`--contexts 1,2,3` does)."
    chosen = view.data.latest({(row.run, row.checkpoint) for row in within})
    caption = (
        "context_within is the share of variance that remains among tokens with the same last n tokens. A line is a "
        "run at its last measured checkpoint; dashed: with exchanged contexts. Then the same over layers and training "
        "(the numbers are n), and the gap between the cross-entropy and the entropy of the next token given these "
        "contexts."
    )
    corpora = _runs_by_corpus(view, {row.run for row in rows})
    panels, tables = [], {}
    for number, (corpus, runs) in enumerate(corpora.items()):
        for panel, lines in _panels([row for row in rows if row.run in runs], view, chosen):
            if len(corpora) > 1:
                panel = _of_corpus(panel, number, corpus)
            panels.append(panel)
            tables[panel.table] = columns(lines)
    return Figure(caption, panels, ("width",), tables=tables)


def _panels(rows: list[ContextRow], view: View, chosen: Latest) -> list[Drawn]:
    """Return the panels of the models of one corpus."""
    within = [row for row in rows if row.metric == WITHIN]
    now = [row for row in within if (row.run, row.checkpoint) in chosen]
    panels = [_over_n([row for row in now if row.layer == LAST], view, chosen)]
    if any(row.layer != LAST for row in now):
        panels.append(_over_layers(now, view, chosen))
    last = [row for row in within if row.layer == LAST]
    if len({row.checkpoint for row in last}) > 1:
        panels.append(_over_training(last, view))
    return panels + _gaps([row for row in rows if row.layer == LAST], view)


def _runs_by_corpus(view: View, measured: set[str]) -> dict[str, set[str]]:
    """Return the measured runs of each corpus, by its name, with hashes only where names coincide."""
    corpora: dict[str, set[str]] = {}
    for run in view.data.runs:
        if run["run"] in measured:
            corpora.setdefault(str(run.get("corpus", "")), set()).add(run["run"])
    names = {corpus: re.sub(r"(-[0-9a-f]{8})? [0-9a-f]{16}$", "", corpus) for corpus in corpora}
    unique = len(set(names.values())) == len(names)
    return {names[corpus] if unique else corpus: runs for corpus, runs in corpora.items()}


def _of_corpus(panel: Panel, number: int, corpus: str) -> Panel:
    """Rename the table of one of several panels, and name the text in its note."""
    table = f"{panel.table} {number}"
    chart = panel.chart.copy()
    chart.data = alt.NamedData(table)
    for layer in getattr(chart, "layer", ()):
        layer.data = alt.Undefined
    return replace(panel, key=f"{panel.key}-{number}", chart=chart, table=table, note=f"on {corpus}")


def _over_n(rows: list[ContextRow], view: View, chosen: Latest) -> Drawn:
    lines: list[Line] = []
    for row in rows:
        about = view.of_run(chosen[row.run, row.checkpoint]) | {"n": row.n, "contexts": row.contexts}
        lines.append(about | {"value": row.value, "what": "measured"})
        if row.null is not None:
            lines.append(about | {"value": row.null, "what": "exchanged"})
    along = alt.X("n:Q", title="n, tokens back", axis=alt.Axis(format="d", values=whole_ticks(row.n for row in rows)))
    base = alt.Chart(alt.NamedData("contexts n"))
    dashes = line_dash("what", "measured", "exchanged")
    chart = run_curves(base, _axes(view, along), ["run:N"], _hover("n"), strokeDash=dashes)
    medians = pd.DataFrame([(row.n, row.value) for row in rows], columns=["n", "value"]).groupby("n")["value"].median()
    words = ", ".join(f"{n} {value:.3g}" for n, value in medians.items())
    numbers = f"{WITHIN} over n, median of {len({row.run for row in rows})} runs: {words}."
    return Panel("contexts-n", chart, "contexts n", numbers, name="over the length of contexts"), lines


def _over_layers(rows: list[ContextRow], view: View, chosen: Latest) -> Drawn:
    lines: list[Line] = []
    for row in rows:
        run = chosen[row.run, row.checkpoint]
        if row.layer != LAST or run["depth"] is not None:
            place = int(row.layer) if row.layer != LAST else int(run["depth"] or 0) + 1
            lines.append(view.of_run(run) | _numbers(row) | {"place": place})
    numbers = f"{WITHIN} from layer to layer, a line for each run and n; the last dot enters the output layer."
    ticks = alt.Axis(format="d", values=whole_ticks(int(str(line["place"])) for line in lines)) if lines else alt.Axis()
    return _by_length("contexts layers", view, ("layer", ticks), "over layers", numbers), lines


def _over_training(rows: list[ContextRow], view: View) -> Drawn:
    runs: Latest = {(run["run"], run["checkpoint"]): run for run in view.data.runs}
    lines: list[Line] = [
        view.of_run(run) | _numbers(row) | {"place": run["epoch"]}
        for row in rows
        if (run := runs.get((row.run, row.checkpoint))) is not None and run["epoch"] is not None
    ]
    numbers = f"{WITHIN} along training, a line for each run and n."
    return _by_length("contexts training", view, ("epoch", alt.Axis()), "over training", numbers), lines


def _numbers(row: ContextRow) -> Line:
    return {"n": row.n, "value": row.value, "contexts": row.contexts}


def _by_length(table: str, view: View, along: tuple[str, alt.Axis], name: str, numbers: str) -> Panel:
    """Colour is the width, as in the other panels; the numbers on a line are its n."""
    title, ticks = along
    base = alt.Chart(alt.NamedData(table))
    shared = _axes(view, alt.X("place:Q", title=title, axis=ticks, scale=alt.Scale(zero=False)))
    lines = base.mark_line(strokeWidth=1.3, opacity=0.7).encode(**shared, detail=["run:N", "n:O"])
    dots = base.mark_text(fontSize=9, dy=-5).encode(**shared, text="n:N", tooltip=_hover("place"))
    return Panel(table.replace(" ", "-"), alt.layer(lines, dots), table, numbers, name=name)


def _gaps(rows: list[ContextRow], view: View) -> list[Drawn]:
    """Draw a point for each checkpoint and n that has both numbers."""
    within = {(row.run, row.checkpoint, row.n): row.value for row in rows if row.metric == WITHIN}
    runs = {(run["run"], run["checkpoint"]): run for run in view.data.runs}
    lines: list[Line] = [
        view.of_run(runs[gap.run, gap.checkpoint]) | _numbers(gap) | {"within": within[gap.run, gap.checkpoint, gap.n]}
        for gap in rows
        if gap.metric == GAP and (gap.run, gap.checkpoint, gap.n) in within and (gap.run, gap.checkpoint) in runs
    ]
    if not lines:
        return []
    chart = alt.Chart(alt.NamedData("contexts gap")).mark_point(filled=True, size=26, opacity=0.8)
    drawn = chart.encode(
        x=alt.X("within:Q", title=WITHIN, scale=alt.Scale(zero=False)),
        y=alt.Y("value:Q", title="entropy gap, nats", scale=alt.Scale(zero=False)),
        color=width_colour(view.keys),
        tooltip=_hover("within"),
    )
    numbers = f"Entropy gap against {WITHIN}: {len(lines)} points, one for each checkpoint and n."
    return [(Panel("contexts-gap", drawn, "contexts gap", numbers, name="entropy gap against collapse"), lines)]


def _axes(view: View, x: alt.X) -> dict[str, object]:
    y = alt.Y("value:Q", title=WITHIN, scale=alt.Scale(zero=True))
    return {"x": x, "y": y, "color": width_colour(view.keys)}


def _hover(place: str) -> list[alt.Tooltip]:
    return [alt.Tooltip("run:N"), alt.Tooltip("n:O"), alt.Tooltip(f"{place}:Q"),
            alt.Tooltip("contexts:Q", format=","), alt.Tooltip("value:Q", format=".4~g")]  # fmt: skip
