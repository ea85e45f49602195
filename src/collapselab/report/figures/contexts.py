"""How far back the model looks: the variance that remains within contexts of n tokens, over n, layers and training.

Each corpus has its own panels: the remaining variance depends on the text.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

import altair as alt
import pandas as pd

from collapselab.records.tables import ContextRow
from collapselab.report.charts.axes import whole_ticks
from collapselab.report.charts.panels import DrawnChart, Figure, Panel, line_dash, run_curves, width_colour
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
        several = len(corpora) > 1
        own = [row for row in rows if row.run in runs]
        for panel, lines in _panels(own, view, chosen, f" {number}" if several else ""):
            panels.append(replace(panel, note=f"on {corpus}" if several else ""))
            tables[panel.table] = columns(lines)
    return Figure(caption, panels, ("width",), tables=tables)


def _runs_by_corpus(view: View, measured: set[str]) -> dict[str, set[str]]:
    """Return the measured runs of each corpus, by its name, with hashes only where names coincide."""
    corpora: dict[str, set[str]] = {}
    for run in view.data.runs:
        if run["run"] in measured:
            corpora.setdefault(str(run.get("corpus", "")), set()).add(run["run"])
    names = {corpus: re.sub(r"(-[0-9a-f]{8})? [0-9a-f]{16}$", "", corpus) for corpus in corpora}
    unique = len(set(names.values())) == len(names)
    return {names[corpus] if unique else corpus: runs for corpus, runs in corpora.items()}


def _panels(rows: list[ContextRow], view: View, chosen: Latest, number: str) -> Iterator[Drawn]:
    """Yield the panels of the models of one corpus, which `number` tells apart."""
    within = [row for row in rows if row.metric == WITHIN]
    last = [row for row in within if row.layer == LAST]
    latest = [row for row in within if (row.run, row.checkpoint) in chosen]
    runs: Latest = {(run["run"], run["checkpoint"]): run for run in view.data.runs}
    yield _over_n([row for row in latest if row.layer == LAST], view, chosen, number)
    depth = {key: run["depth"] for key, run in chosen.items()}
    layers = [
        (row, int(row.layer) if row.layer != LAST else int(depth[row.run, row.checkpoint] or 0) + 1)
        for row in latest
        if row.layer != LAST or depth[row.run, row.checkpoint] is not None
    ]
    if any(row.layer != LAST for row in latest):
        ticks = alt.Axis(format="d", values=whole_ticks(place for _, place in layers))
        yield _by_length(f"contexts layers{number}", view, runs, layers, alt.X("place:Q", title="layer", axis=ticks))
    training = [(row, epoch) for row in last if (epoch := runs[row.run, row.checkpoint]["epoch"]) is not None]
    if len({row.checkpoint for row in last}) > 1:
        yield _by_length(f"contexts training{number}", view, runs, training, alt.X("place:Q", title="epoch"))
    yield from _gaps([row for row in rows if row.layer == LAST], view, runs, number)


def _over_n(rows: list[ContextRow], view: View, chosen: Latest, number: str) -> Drawn:
    lines: list[Line] = []
    for row in rows:
        about = view.of_run(chosen[row.run, row.checkpoint]) | {"n": row.n, "contexts": row.contexts}
        lines.append(about | {"value": row.value, "what": "measured"})
        if row.null is not None:
            lines.append(about | {"value": row.null, "what": "exchanged"})
    along = alt.X("n:Q", title="n, tokens back", axis=alt.Axis(format="d", values=whole_ticks(row.n for row in rows)))
    base = alt.Chart(alt.NamedData(f"contexts n{number}"))
    dashes = line_dash("what", "measured", "exchanged")
    chart = run_curves(base, _axes(view, along), ["run:N"], _hover("n"), strokeDash=dashes)
    medians = pd.DataFrame([(row.n, row.value) for row in rows], columns=["n", "value"]).groupby("n")["value"].median()
    words = ", ".join(f"{n} {value:.3g}" for n, value in medians.items())
    numbers = f"{WITHIN} over n, median of {len({row.run for row in rows})} runs: {words}."
    return _panel(f"contexts n{number}", chart, numbers, "over the length of contexts"), lines


def _by_length(table: str, view: View, runs: Latest, places: Sequence[tuple[ContextRow, float]], x: alt.X) -> Drawn:
    """Draw a line for each run and n; colour is the width, as in the other panels, and the numbers on a line its n."""
    lines: list[Line] = [
        view.of_run(runs[row.run, row.checkpoint]) | _numbers(row) | {"place": place} for row, place in places
    ]
    shared = _axes(view, x.scale(zero=False))
    base = alt.Chart(alt.NamedData(table))
    curves = base.mark_line(strokeWidth=1.3, opacity=0.7).encode(**shared, detail=["run:N", "n:O"])
    dots = base.mark_text(fontSize=9, dy=-5).encode(**shared, text="n:N", tooltip=_hover("place"))
    name = f"over {table.split()[1]}"
    return _panel(table, alt.layer(curves, dots), f"{WITHIN} {name}, a line for each run and n.", name), lines


def _gaps(rows: list[ContextRow], view: View, runs: Latest, number: str) -> Iterator[Drawn]:
    """Draw a point for each checkpoint and n that has both numbers."""
    within = {(row.run, row.checkpoint, row.n): row.value for row in rows if row.metric == WITHIN}
    lines: list[Line] = [
        view.of_run(runs[gap.run, gap.checkpoint]) | _numbers(gap) | {"within": within[gap.run, gap.checkpoint, gap.n]}
        for gap in rows
        if gap.metric == GAP and (gap.run, gap.checkpoint, gap.n) in within
    ]
    if lines:
        table = f"contexts gap{number}"
        drawn = alt.Chart(alt.NamedData(table)).mark_point(filled=True, size=26, opacity=0.8)
        chart = drawn.encode(
            x=alt.X("within:Q", title=WITHIN, scale=alt.Scale(zero=False)),
            y=alt.Y("value:Q", title="entropy gap, nats", scale=alt.Scale(zero=False)),
            color=width_colour(view.keys),
            tooltip=_hover("within"),
        )
        numbers = f"Entropy gap against {WITHIN}: {len(lines)} points, one for each checkpoint and n."
        yield _panel(table, chart, numbers, "entropy gap against collapse"), lines


def _panel(table: str, chart: DrawnChart, numbers: str, name: str) -> Panel:
    return Panel(table.replace(" ", "-"), chart, table, numbers, name=name)


def _numbers(row: ContextRow) -> Line:
    return {"n": row.n, "value": row.value, "contexts": row.contexts}


def _axes(view: View, x: alt.X) -> dict[str, object]:
    y = alt.Y("value:Q", title=WITHIN, scale=alt.Scale(zero=True))
    return {"x": x, "y": y, "color": width_colour(view.keys)}


def _hover(place: str) -> list[alt.Tooltip]:
    return [alt.Tooltip("run:N"), alt.Tooltip("n:O"), alt.Tooltip(f"{place}:Q"),
            alt.Tooltip("contexts:Q", format=","), alt.Tooltip("value:Q", format=".4~g")]  # fmt: skip
