"""How far back the model looks: what is left to vary within contexts of n tokens, over n, layers and training.

Models of several corpora have panels of their own for each corpus: what is left depends on the text.
"""

import re
from collections.abc import Iterable
from dataclasses import replace

import altair as alt
import pandas as pd

from collapselab.records.tables import ContextRow
from collapselab.report.charts.axes import whole_ticks
from collapselab.report.charts.panels import Figure, Panel, width_colour
from collapselab.report.data import Keys, Line, View, columns, label
from collapselab.report.story import Latest

TITLE = "How far back"
WITHIN, GAP, LAST = "context_within", "entropy_gap", "last"


def how_far_back(view: View) -> Figure:
    """`context_within` over n, over layers and over training, and the entropy gap against it."""
    rows: list[ContextRow] = [row for row in view.story.tables.tables.get("contexts", []) if row.value is not None]
    within = [row for row in rows if row.metric == WITHIN]
    if not within:
        return Figure("how_far_back", TITLE, missing="Contexts were not measured (`--contexts 1,2,3` does).")
    chosen = view.story.latest({(row.run, row.checkpoint) for row in within})
    caption = (
        "context_within is the share of variance that is left among tokens with the same last n tokens: near 0 from "
        "the n on that the model looks back to. A line is a run at its last measured checkpoint; dashed, what "
        "exchanged contexts give. Then the same from layer to layer and along training, the numbers being n, and the "
        "gap between cross-entropy and the entropy of what follows these contexts."
    )
    corpora = _runs_by_corpus(view, {row.run for row in rows})
    panels: list[Drawn] = []
    for number, (corpus, runs) in enumerate(corpora.items()):
        drawn = _panels([row for row in rows if row.run in runs], view, chosen)
        panels += [_of_corpus(panel, lines, number, corpus) for panel, lines in drawn] if len(corpora) > 1 else drawn
    tables = {panel.table: columns(lines) for panel, lines in panels}
    return Figure("how_far_back", TITLE, caption, [panel for panel, _ in panels], ("width",), tables=tables)


Drawn = tuple[Panel, list[Line]]
"""A panel and the lines of the table that it draws."""


def _panels(rows: list[ContextRow], view: View, chosen: Latest) -> list[Drawn]:
    """Of models of one corpus."""
    within = [row for row in rows if row.metric == WITHIN]
    now = [row for row in within if (row.run, row.checkpoint) in chosen]
    panels = [_over_n([row for row in now if row.layer == LAST], view.keys, chosen)]
    if any(row.layer != LAST for row in now):
        panels.append(_over_layers(now, view.keys, chosen))
    last = [row for row in within if row.layer == LAST]
    if len({row.checkpoint for row in last}) > 1:
        panels.append(_over_training(last, view))
    return panels + _gaps([row for row in rows if row.layer == LAST], view)


def _runs_by_corpus(view: View, measured: set[str]) -> dict[str, set[str]]:
    """The measured runs of each corpus, by what it is called, without its hashes where the name is enough."""
    corpora: dict[str, set[str]] = {}
    for run in view.story.runs:
        if run["run"] in measured:
            corpora.setdefault(str(run.get("corpus", "")), set()).add(run["run"])
    names = {corpus: re.sub(r"(-[0-9a-f]{8})? [0-9a-f]{16}$", "", corpus) for corpus in corpora}
    unique = len(set(names.values())) == len(names)
    return {names[corpus] if unique else corpus: runs for corpus, runs in corpora.items()}


def _of_corpus(panel: Panel, lines: Iterable[Line], number: int, corpus: str) -> Drawn:
    """One of several: its table has a name of its own, and its note says which text."""
    table = f"{panel.table} {number}"
    chart = panel.chart.copy()
    chart.data = alt.NamedData(table)
    for layer in getattr(chart, "layer", ()):
        layer.data = alt.Undefined
    return replace(panel, key=f"{panel.key}-{number}", chart=chart, table=table, note=f"on {corpus}"), list(lines)


def _over_n(rows: list[ContextRow], keys: Keys, chosen: Latest) -> Drawn:
    lines: list[Line] = []
    for row in rows:
        shared: Line = {"n": row.n, "run": row.run, "contexts": row.contexts, "wide": _width(row, chosen)}
        lines.append(shared | {"value": row.value, "what": "measured"})
        if row.null is not None:
            lines.append(shared | {"value": row.null, "what": "exchanged"})
    dashes = alt.StrokeDash(
        "what:N", legend=None, scale=alt.Scale(domain=["measured", "exchanged"], range=[[1, 0], [4, 3]])
    )
    ticks = alt.Axis(format="d", values=whole_ticks(row.n for row in rows))
    along = alt.X("n:Q", title="n, tokens back", axis=ticks)
    shared_axes = {"x": along, "y": _share(), "color": width_colour(keys)}
    data = alt.Chart(alt.NamedData("contexts n"))
    drawn = data.mark_line(strokeWidth=1.3, opacity=0.7).encode(**shared_axes, strokeDash=dashes, detail="run:N")
    dots = data.mark_point(filled=True, size=20, opacity=0.85).encode(**shared_axes, tooltip=_hover("n"))
    numbers = f"{WITHIN} over n, median of {len({row.run for row in rows})} runs: {_medians(rows, 'n')}."
    return Panel("contexts-n", alt.layer(drawn, dots), "contexts n", numbers, name="over the length of contexts"), lines


def _over_layers(rows: list[ContextRow], keys: Keys, chosen: Latest) -> Drawn:
    lines: list[Line] = []
    places: list[int] = []
    for row in rows:
        depth = chosen[row.run, row.checkpoint]["depth"]
        if row.layer != LAST or depth is not None:
            place = int(row.layer) if row.layer != LAST else int(depth or 0) + 1
            places.append(place)
            lines.append(_line(row, place, _width(row, chosen)))
    numbers = f"{WITHIN} from layer to layer, a line for each run and n; the last dot enters the output layer."
    ticks = alt.Axis(format="d", values=whole_ticks(places)) if places else alt.Axis()
    return _by_length("contexts layers", keys, ("layer", ticks), "over layers", numbers), lines


def _over_training(rows: list[ContextRow], view: View) -> Drawn:
    runs: Latest = {(run["run"], run["checkpoint"]): run for run in view.story.runs}
    lines: list[Line] = [
        _line(row, epoch, _width(row, runs))
        for row in rows
        if (row.run, row.checkpoint) in runs and (epoch := runs[row.run, row.checkpoint]["epoch"]) is not None
    ]
    numbers = f"{WITHIN} along training, a line for each run and n."
    return _by_length("contexts training", view.keys, ("epoch", alt.Axis()), "over training", numbers), lines


def _line(row: ContextRow, place: float, width: str) -> Line:
    shared: Line = {"n": row.n, "value": row.value, "run": row.run, "contexts": row.contexts}
    return shared | {"place": place, "wide": width}


def _by_length(table: str, keys: Keys, along: tuple[str, alt.Axis], name: str, numbers: str) -> Panel:
    """Colour is the width, as in the other panels; the numbers on a line are its n."""
    data, (title, ticks) = alt.Chart(alt.NamedData(table)), along
    shared = {
        "x": alt.X("place:Q", title=title, axis=ticks, scale=alt.Scale(zero=False)),
        "y": _share(),
        "color": width_colour(keys),
    }
    lines = data.mark_line(strokeWidth=1.3, opacity=0.7).encode(**shared, detail=["run:N", "n:O"])
    dots = data.mark_text(fontSize=9, dy=-5).encode(**shared, text="n:N", tooltip=_hover("place"))
    return Panel(table.replace(" ", "-"), alt.layer(lines, dots), table, numbers, name=name)


def _gaps(rows: list[ContextRow], view: View) -> list[Drawn]:
    """A point for each checkpoint and n that has both numbers."""
    within = {(row.run, row.checkpoint, row.n): row for row in rows if row.metric == WITHIN}
    widths = {(run["run"], run["checkpoint"]): run["width"] for run in view.story.runs}
    lines: list[Line] = []
    for gap in (row for row in rows if row.metric == GAP):
        beside = within.get((gap.run, gap.checkpoint, gap.n))
        width = widths.get((gap.run, gap.checkpoint))
        if beside is not None:
            lines.append(
                {"n": gap.n, "within": beside.value, "value": gap.value, "run": gap.run, "contexts": gap.contexts,
                 "wide": label(None if width is None else float(width))}
            )  # fmt: skip
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


def _share() -> alt.Y:
    return alt.Y("value:Q", title=WITHIN, scale=alt.Scale(zero=True))


def _hover(place: str) -> list[alt.Tooltip]:
    return [alt.Tooltip("run:N"), alt.Tooltip("n:O"), alt.Tooltip(f"{place}:Q"),
            alt.Tooltip("contexts:Q", format=","), alt.Tooltip("value:Q", format=".4~g")]  # fmt: skip


def _width(row: ContextRow, chosen: Latest) -> str:
    width = chosen[row.run, row.checkpoint]["width"]
    return label(None if width is None else float(width))


def _medians(rows: list[ContextRow], by: str) -> str:
    frame = pd.DataFrame([{by: getattr(row, by), "value": row.value} for row in rows])
    return ", ".join(f"{place} {value:.3g}" for place, value in frame.groupby(by)["value"].median().items())
