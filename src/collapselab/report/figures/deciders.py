"""How often two deciders agree: output layer, nearest centres and logit lens of every layer, where measured."""

from collections import defaultdict

import altair as alt

from collapselab.analysis.words import many
from collapselab.records.tables import DeciderRow
from collapselab.report.charts.panels import Figure, Panel
from collapselab.report.charts.style import DEPTH_OF_HEAT
from collapselab.report.data import Columns, Line, View, columns

TITLE = "Which deciders agree"
CELL = 30
MOST_PANELS = 4
NAMES = {"token": "next token", "head": "output layer"}
Shares = dict[tuple[str, str], float]


def deciders(view: View) -> Figure:
    """The table `deciders` as squares: models of one depth together, each at its last measured checkpoint."""
    rows: list[DeciderRow] = view.story.tables.tables.get("deciders", [])
    if not rows:
        return Figure("deciders", TITLE, missing="Deciders were not compared (`--layers all --deciders` does).")
    chosen = view.story.latest({(row.run, row.checkpoint) for row in rows})
    caption = (
        "Share of validation tokens on which two deciders choose the same class: the next token itself (agreement with "
        "it is accuracy), the output layer, the nearest class centre of each layer, and the logit lens, which reads a "
        "layer through the final norm and the output layer. Mean over runs of the same layers."
    )
    groups: dict[tuple[str, ...], dict[str, Shares]] = defaultdict(dict)
    for run, shares in _by_run([row for row in rows if (row.run, row.checkpoint) in chosen]).items():
        groups[tuple(dict.fromkeys(name for pair in shares for name in pair))][run] = shares
    tables, panels = {}, []
    for names in sorted(groups, key=len)[-MOST_PANELS:]:
        runs = groups[names]
        table = _table(names, runs)
        blocks = sum(name.startswith("lens") for name in names)
        title = f"{many(blocks, 'block')}, {many(len(runs), 'run')}"
        tables[f"deciders {len(names)}"] = table
        panels.append(_panel(names, f"deciders {len(names)}", title, table))
    return Figure("deciders", TITLE, caption, panels, tables=tables)


def _by_run(rows: list[DeciderRow]) -> dict[str, Shares]:
    runs: dict[str, Shares] = defaultdict(dict)
    for row in rows:
        runs[row.run][row.first, row.second] = row.agreement
    return runs


def _table(names: tuple[str, ...], runs: dict[str, Shares]) -> Columns:
    lines: list[Line] = []
    for i, down in enumerate(names):
        for across in names[:i]:
            values = [shares[across, down] for shares in runs.values() if (across, down) in shares]
            share = sum(values) / len(values) if values else None
            lines.append({
                "down": NAMES.get(down, down), "across": NAMES.get(across, across), "share": share,
                "level": None if share is None else round(share * (DEPTH_OF_HEAT - 1)),
                "text": "–" if share is None else f"{share:.2f}",
            })  # fmt: skip
    return columns(lines)


def _panel(names: tuple[str, ...], table: str, title: str, content: Columns) -> Panel:
    levels, shown = list(range(DEPTH_OF_HEAT)), [NAMES.get(name, name) for name in names]
    numbers = f"indexof({shown!r}, datum.value) + 1"
    cells = alt.Chart(alt.NamedData(table))
    place = {
        "x": alt.X("across:N", sort=shown, title=None, scale=alt.Scale(domain=shown[:-1]),
                   axis=alt.Axis(labelAngle=0, labelExpr=numbers, domain=False, ticks=False, orient="top")),
        "y": alt.Y("down:N", sort=shown, title=None, scale=alt.Scale(domain=shown),
                   axis=alt.Axis(labelExpr=f"({numbers}) + '  ' + datum.value", domain=False, ticks=False,
                                 labelLimit=200)),
    }  # fmt: skip
    ground = alt.Scale(domain=levels, range=[f"var(--h{level})" for level in levels])
    inks = alt.Scale(domain=levels, range=[f"var(--i{level})" for level in levels])
    hover = [alt.Tooltip("down:N", title="one"), alt.Tooltip("across:N", title="other"),
             alt.Tooltip("share:Q", title="agree on", format=".3f")]  # fmt: skip
    tiles = cells.mark_rect(stroke="var(--paper)", strokeWidth=2, cornerRadius=3).encode(
        **place, color=alt.Color("level:O", scale=ground, legend=None), tooltip=hover
    )
    words = cells.mark_text(fontSize=10).encode(
        **place, text="text:N", color=alt.Color("level:O", scale=inks, legend=None)
    )
    said = "; ".join(
        f"{down} with {across} {text}"
        for down, across, text in zip(content["down"], content["across"], content["text"], strict=True)
    )
    chart = alt.layer(tiles, words).resolve_scale(color="independent")
    key = table.replace(" ", "-")
    return Panel(key, chart, table, f"{title}: {said}.", height=CELL * len(names) + 24, name=title)
