"""Tokens: how often a class occurs against each number of it, and kinds of tokens; of one model.

What is drawn is thinned out, evenly over frequencies and with the extremes kept; what is counted, searched and listed
is every class.
"""

from collections.abc import Hashable
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from collapselab.analysis.models import Floats
from collapselab.analysis.tokens import SORTABLE, bins
from collapselab.corpus.token_kinds import KINDS
from collapselab.records.table import table_bytes
from collapselab.report.charts.axes import value_axis, value_axis_below
from collapselab.report.charts.panels import Figure, Panel
from collapselab.report.data import Columns, View, columns, plain
from collapselab.report.token_frame import ModelTokens, model_tokens, quoted

MISSING = "Classes were not measured one by one (`--classes` does)."
METRICS = [name for name in SORTABLE if name not in ("count", "samples")]
LOGARITHMIC = ("cdnv", "norm", "variance", "distance", "head_norm")
DRAWN = 900
"""Classes that are drawn in a panel."""
RANGES, EXTREMES, MEDIANS = 60, 3, 12
FEWEST_OF_KIND = 5
"""Classes of a kind; the quartiles of fewer say nothing."""
ALL = "tokens.csv"


def token_frequency(view: View) -> Figure:
    """Each number of a class against how often it occurs, with the medians of all classes."""
    title, tokens = "How often a token occurs, and how far it has collapsed", model_tokens(view.story)
    if tokens is None:
        return Figure("token_frequency", title, missing=MISSING)
    frame = tokens.last.frame
    if frame.empty:
        return Figure("token_frequency", title, missing=f"{tokens.name}: {_left_out(tokens)}.")
    drawn, medians = thinned(frame), bins(frame, MEDIANS)
    caption = (
        f"{tokens.name}, the model with the lowest validation loss of those with a table of classes. A dot is a class: "
        f"{len(drawn):,} of {len(frame):,} are drawn. The line is the median over all {len(frame):,}; "
        f"{_left_out(tokens)}. Search for a token to mark it in every panel and to see its numbers."
    )
    points = columns([_dot(row) for row in drawn.to_dict("records")])
    middle = columns([
        {"count": float(np.sqrt(row["low"] * row["high"])), **{name: row[name] for name in METRICS}}
        for row in medians.to_dict("records")
    ])  # fmt: skip
    known = [name for name in METRICS if frame[name].notna().any()]
    panels = [_frequency_panel(frame, name) for name in known]
    return Figure(
        "token_frequency", title, caption, panels,
        tables={"tokens drawn": points, "token medians": middle}, saved={ALL: _all_tokens(frame)}, search=ALL,
    )  # fmt: skip


def thinned(frame: pd.DataFrame, most: int = DRAWN) -> pd.DataFrame:
    """Some classes, evenly over ranges of frequency, with those at both ends of every number; all, if they are few."""
    if len(frame) <= most:
        return frame
    extremes: set[int] = set()
    for name in METRICS:
        ordered = frame[name].dropna().sort_values(kind="stable").index
        extremes |= {*ordered[:EXTREMES], *ordered[-EXTREMES:]}
    logs = np.log(frame["count"].astype(float))
    place = pd.Series(pd.cut(logs, RANGES, labels=False, include_lowest=True), index=frame.index)
    share = max(1, (most - len(extremes)) // max(1, place.nunique()))
    kept: set[int] = set(extremes)
    for _, group in frame.groupby(place):
        order = group.sort_values(["cdnv", "token"], kind="stable").index
        kept |= set(order[np.linspace(0, len(order) - 1, min(share, len(order))).round().astype(int)])
    return frame[frame.index.isin(kept)].iloc[:most]


def _dot(row: dict[Hashable, Any]) -> dict[str, str | int | float | None]:
    numbers = {name: plain(row[name]) for name in METRICS}
    return {"text": quoted(row["text"]), "kind": str(row["kind"]), "count": plain(row["count"]), **numbers}


def _frequency_panel(frame: pd.DataFrame, name: str) -> Panel:
    known = frame[frame[name].notna()]
    values = known[name].to_numpy(dtype=float)
    log = name in LOGARITHMIC and bool((values > 0).all())
    counts = known["count"].to_numpy(dtype=float)
    x = alt.X("count:Q", title="times it is the next token", scale=_scale(counts, log=True), axis=alt.Axis(format="~s"))
    y = value_axis(name, values if log else None).scale(_scale(values, log=log))
    hover = [alt.Tooltip("text:N", title="token"), alt.Tooltip("kind:N"), alt.Tooltip("count:Q", format=","),
             alt.Tooltip(f"{name}:Q", title=name, format=".4~g")]  # fmt: skip
    dots = alt.Chart(alt.NamedData("tokens drawn")).transform_filter(f"isValid(datum['{name}'])")
    dots = dots.mark_point(filled=True, size=14, opacity=0.45, color="var(--accent)")
    line = alt.Chart(alt.NamedData("token medians")).transform_filter(f"isValid(datum['{name}'])")
    line = line.mark_line(strokeWidth=2, color="var(--ink)")
    marked = alt.Chart(alt.NamedData("tokens found")).transform_filter(f"isValid(datum['{name}'])")
    marked = marked.mark_point(filled=True, size=60, opacity=1, color="var(--against)")
    chart = alt.layer(
        dots.encode(x=x, y=y, tooltip=hover), line.encode(x=x, y=y), marked.encode(x=x, y=y, tooltip=hover)
    )
    rho = known["count"].astype(float).corr(known[name].astype(float), method="spearman")
    words = "no rank correlation" if pd.isna(rho) else f"rank correlation with frequency {rho:+.2f}"
    numbers = f"{name} ({SORTABLE[name]}): {words}, over {len(known):,} classes; median {np.median(values):.3g}."
    return Panel(
        f"token_frequency-{name}", chart, "tokens drawn", numbers, name=name, note=f"{SORTABLE[name]}; {words}"
    )


def _scale(values: Floats, *, log: bool) -> alt.Scale:
    """Of all classes: a token that is searched need not be among the drawn."""
    low, high = float(values.min()), float(values.max())
    return alt.Scale(type="log" if log else "linear", domain=[low, high], nice=False, zero=False, padding=6)


def _all_tokens(frame: pd.DataFrame) -> bytes:
    """Every class, for the reader to search and save."""
    names = ["token", "text", "kind", "count", *METRICS, "nearest"]
    shown = ([plain(row[name]) if name != "text" else quoted(row[name]) for name in names]
             for row in frame.sort_values("count", ascending=False).to_dict("records"))  # fmt: skip
    return table_bytes(names, shown)


def _left_out(tokens: ModelTokens) -> str:
    return f"{tokens.last.left_out:,} classes with fewer than {tokens.last.min_count} samples are left out"


def token_kinds(view: View) -> Figure:
    """The paper's token types: the quartiles of each number over the classes of a kind."""
    title, tokens = "Kinds of tokens", model_tokens(view.story)
    if tokens is None or tokens.last.frame.empty:
        return Figure("token_kinds", title, missing=MISSING)
    frame = tokens.last.frame
    known = [name for name in METRICS if frame[name].notna().any()]
    table = kind_table(frame, known)
    if not table.get("kind"):
        return Figure("token_kinds", title, missing=f"{tokens.name}: no kind has {FEWEST_OF_KIND} classes.")
    kinds = [kind for kind in KINDS if kind in table["kind"]]
    caption = (
        f"{tokens.name}: a bar is the middle half of a kind's classes, the dot their median; beside the kind is how "
        f"many classes it has. {'; '.join(f'{kind}: {KINDS[kind]}' for kind in kinds)}."
    )
    panels = [_kind_panel(name, table, kinds) for name in known]
    return Figure(
        "token_kinds", title, caption, panels, tables={"token kinds": table},
        paper="Wu & Papyan’s tokens by type, for the model here.",
    )  # fmt: skip


def kind_table(frame: pd.DataFrame, names: list[str]) -> Columns:
    """Quartiles of each number, for every kind with enough classes."""
    lines = []
    for kind, group in frame.groupby("kind", sort=False):
        if len(group) < FEWEST_OF_KIND:
            continue
        line: dict[str, str | int | float | None] = {"kind": str(kind), "classes": len(group)}
        for name in names:
            low, middle, high = group[name].astype(float).quantile([0.25, 0.5, 0.75])
            line |= {f"{name} low": plain(low), name: plain(middle), f"{name} high": plain(high)}
        lines.append(line)
    return columns(sorted(lines, key=lambda line: list(KINDS).index(str(line["kind"]))))


def _kind_panel(name: str, table: Columns, kinds: list[str]) -> Panel:
    counts = dict(zip(table["kind"], table["classes"], strict=True))
    labels = "{" + ", ".join(f"'{kind}': '{kind} ({counts[kind]:,})'" for kind in kinds) + "}[datum.value]"
    values = np.array([v for suffix in (" low", "", " high") for v in table[f"{name}{suffix}"] if v is not None], float)
    log = name in LOGARITHMIC and bool(len(values)) and bool((values > 0).all())
    data = alt.Chart(alt.NamedData("token kinds")).transform_filter(f"isValid(datum['{name}'])")
    y = alt.Y(
        "kind:N", sort=kinds, title=None, axis=alt.Axis(labelExpr=labels, labelLimit=150, domain=False, ticks=False)
    )
    x = value_axis_below(f"{name} low", values if log else None).title(name)
    hover = [alt.Tooltip("kind:N"), alt.Tooltip("classes:Q", format=","),
             alt.Tooltip(f"{name}:Q", title="median", format=".4~g"),
             alt.Tooltip(f"{name} low:Q", title="quarter", format=".4~g"),
             alt.Tooltip(f"{name} high:Q", title="three quarters", format=".4~g")]  # fmt: skip
    bars = data.mark_rule(strokeWidth=6, opacity=0.45, color="var(--accent)")
    middle = data.mark_point(filled=True, size=50, opacity=1, color="var(--ink)")
    chart = alt.layer(
        bars.encode(y=y, x=x, x2=f"{name} high:Q", tooltip=hover), middle.encode(y=y, x=f"{name}:Q", tooltip=hover)
    )
    said = ", ".join(
        f"{kind} {value:.3g}" for kind, value in zip(table["kind"], table[name], strict=True) if value is not None
    )
    return Panel(f"token_kinds-{name}", chart, "token kinds", f"Median {name} by kind: {said}.",
                 name=name, note=SORTABLE[name], height=30 * len(kinds) + 40)  # fmt: skip
