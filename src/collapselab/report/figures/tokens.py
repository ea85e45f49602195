"""Tokens of the model with the lowest validation loss: its classes by frequency, and the extremes of each kind.

The drawn points are a sample that is even over ranks of frequency; what is counted, searched and listed is every
class. Texts of tokens are untrusted: `quoted` escapes whatever is not printable in them, and the page
inserts the rest as text, never as HTML.
"""

from typing import TYPE_CHECKING

import altair as alt
import numpy as np
import pandas as pd

from collapselab.analysis.models import Floats
from collapselab.analysis.tokens import LEAST_COUNT, SORTABLE, TokenTable, bins, tokens_of_frame
from collapselab.corpus.token_kinds import KINDS
from collapselab.records.table import ColumnTable, table_bytes
from collapselab.records.tables import CLASSES
from collapselab.report.charts.axes import value_axis
from collapselab.report.charts.panels import Figure, Listing, Panel
from collapselab.report.data import ReportData
from collapselab.report.view import View, columns, plain

if TYPE_CHECKING:
    import pyarrow as pa

MISSING = "Single classes were not measured (`--classes` does)."
METRICS = [name for name in SORTABLE if name not in ("count", "samples")]
LOGARITHMIC = ("cdnv", "norm", "variance", "distance", "head_norm")
DRAWN, MEDIANS = 1200, 12
"""Maximal number of classes that a panel draws, and number of points of its median line."""
ALL = "tokens.csv"
LONGEST = 40
"""Number of characters of a token that are shown."""
TOP = 5


def model_tokens(data: ReportData) -> TokenTable | None:
    """Return the classes of the model with the lowest validation loss at its last checkpoint; None without such a
    table.
    """
    chunks = data.tables.tables.get("classes", [])
    if not chunks:
        return None
    assert isinstance(CLASSES, ColumnTable)
    whole: pa.Table = CLASSES.whole(chunks)
    groups = whole.group_by(["run", "checkpoint"]).aggregate([])
    latest = data.latest(set(zip(groups["run"].to_pylist(), groups["checkpoint"].to_pylist(), strict=True)))
    known = {key: run["val_loss"] for key, run in latest.items()}
    best = min(known, key=lambda key: (known[key] is None, known[key]), default=None)
    if best is None:
        return None
    import pyarrow.compute as pc

    wanted = dict(zip(("run", "checkpoint", "split", "layer"), (*best, "train", "last"), strict=True))
    for column, value in wanted.items():
        whole = whole.filter(pc.equal(whole[column], value))
    return tokens_of_frame(data.labels.get(best[0], best[0]), CLASSES.frame([whole]), min_count=LEAST_COUNT)


def quoted(text: object) -> str:
    """Return a token in quotes, which make spaces visible; unprintable characters are escaped, long tokens cut."""
    whole = repr(str(text))
    return whole if len(whole) <= LONGEST else f"{whole[: LONGEST - 1]}…"


def token_ends(view: View) -> Figure | str:
    """Draw the tokens of each kind with the smallest and the largest CDNV, and a search over all."""
    tokens = model_tokens(view.data)
    if tokens is None or tokens.frame["cdnv"].notna().sum() < 2 * TOP:
        return MISSING if tokens is None else "Too few classes have a CDNV."
    caption = (
        f"{quoted(tokens.name)}: tokens by the mean CDNV of their class with all others, which is small for collapsed "
        "classes. Frequent tokens follow more kinds of text, which also increases their variance."
    )
    known = tokens.frame.dropna(subset=["cdnv"]).sort_values(["cdnv", "token"])
    groups = [("all kinds", known), *((kind, known[known["kind"] == kind]) for kind in KINDS)]
    rows = [
        (f"{kind}\n({len(group):,} classes)", _named(group.head(TOP)), _named(group.tail(TOP).iloc[::-1]))
        for kind, group in groups
        if len(group) >= 2 * TOP
    ]
    names = ["token", "text", "kind", "count", *METRICS, "nearest"]
    by_count = tokens.frame.sort_values("count", ascending=False).assign(text=tokens.frame["text"].map(quoted))
    every = table_bytes(names, ([plain(value) for value in row] for row in by_count[names].itertuples(index=False)))
    listing = Listing(("kind", "most collapsed", "least collapsed"), rows)
    return Figure(caption, lists=[listing], saved={ALL: every}, search=ALL)


def _named(group: pd.DataFrame) -> str:
    rows = zip(group["text"], group["cdnv"], group["count"], strict=True)
    return "\n".join(f"{quoted(text)} {cdnv:.3g} ({count:,})" for text, cdnv, count in rows)


def token_frequency(view: View) -> Figure | str:
    """Draw each number of a class against its frequency, with the median over all classes."""
    tokens = model_tokens(view.data)
    if tokens is None:
        return MISSING
    frame, left_out = tokens.frame, f"{tokens.left_out:,} classes with fewer than {tokens.min_count} samples left out"
    if frame.empty:
        return f"{quoted(tokens.name)}: {left_out}."
    drawn, medians = thinned(frame), bins(frame, MEDIANS)
    caption = (
        f"{quoted(tokens.name)}: a dot is a class; {len(drawn):,} of {len(frame):,} are drawn, {left_out}. The line "
        "is the median over all. The search above marks a token in every panel."
    )
    shown = drawn[["text", "kind", "count", *METRICS]].assign(text=drawn["text"].map(quoted))
    points = {str(name): [plain(value) for value in shown[name]] for name in shown}
    middle = columns([
        {"count": float(np.sqrt(row["low"] * row["high"])), **{name: row[name] for name in METRICS}}
        for row in medians.to_dict("records")
    ])  # fmt: skip
    panels = [_frequency_panel(frame, name) for name in METRICS if frame[name].notna().any()]
    return Figure(caption, panels, tables={"tokens drawn": points, "token medians": middle})


def thinned(frame: pd.DataFrame) -> pd.DataFrame:
    """Return all classes if they are few, else a sample that is even over the logarithm of their rank."""
    ranks = np.geomspace(1, len(frame), DRAWN).round().astype(int) - 1
    ordered = frame.sort_values(["count", "token"], ascending=[False, True])
    return frame if len(frame) <= DRAWN else ordered.iloc[np.unique(ranks)]


def _frequency_panel(frame: pd.DataFrame, name: str) -> Panel:
    known = frame[frame[name].notna()]
    values = known[name].to_numpy(dtype=float)
    log = name in LOGARITHMIC and bool((values > 0).all())
    counts = known["count"].to_numpy(dtype=float)
    x = alt.X("count:Q", title="occurrences as next token", scale=_scale(counts, log=True), axis=alt.Axis(format="~s"))
    y = value_axis(name, values if log else None, alt.Y).scale(_scale(values, log=log))
    hover = [alt.Tooltip("text:N", title="token"), alt.Tooltip("kind:N"), alt.Tooltip("count:Q", format=","),
             alt.Tooltip(f"{name}:Q", title=name, format=".4~g")]  # fmt: skip

    def known_in(table: str) -> alt.Chart:
        return alt.Chart(alt.NamedData(table)).transform_filter(f"isValid(datum['{name}'])")

    dots = known_in("tokens drawn").mark_point(filled=True, size=14, opacity=0.45, color="var(--accent)")
    line = known_in("token medians").mark_line(strokeWidth=2, color="var(--ink)")
    marked = known_in("tokens found").mark_point(filled=True, size=60, opacity=1, color="var(--against)")
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
    """Return a scale over all classes, since the search can mark tokens that are not drawn."""
    low, high = float(values.min()), float(values.max())
    return alt.Scale(type="log" if log else "linear", domain=[low, high], nice=False, zero=False, padding=6)
