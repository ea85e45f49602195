"""Results as a notebook shows them: a table of the last layer's metrics. What users named is escaped."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

MOST_COLUMNS = 8
"""Models side by side that a page has room for; the frame has them all."""


def result_html(title: str, frame: "pd.DataFrame", tables: Sequence[str]) -> str:
    """One model: every metric of the last layer beside its null."""
    columns = ["metric", "value", "null", "classes", "tokens"]
    table = _last_layer(frame)[columns].to_html(index=False, float_format="{:.4g}".format, na_rep="–", border=0)
    return f"<p><b>{escape(title)}</b></p>{table}<p>tables: {escape(', '.join(tables))}</p>"


def results_html(measured: Sequence[tuple[str, "pd.DataFrame"]], failures: Mapping[str, str]) -> str:
    """Several models: a column each, up to `MOST_COLUMNS`, and below them what could not be measured."""
    import pandas as pd

    shown = measured[:MOST_COLUMNS]
    columns = [_last_layer(frame).set_index("metric")["value"].rename(title) for title, frame in shown]
    parts = []
    if columns:
        table = pd.concat(columns, axis=1).rename_axis("metric").reset_index()
        parts.append(table.to_html(index=False, float_format="{:.4g}".format, na_rep="–", border=0))
    if left := len(measured) - len(shown):
        parts.append(f"<p>and {left:,} more: <code>to_frame()</code> has them all.</p>")
    parts += [f"<p><b>{escape(name)}</b>: {escape(why)}</p>" for name, why in failures.items()]
    return "".join(parts) or "<p>nothing was measured.</p>"


def _last_layer(frame: "pd.DataFrame") -> "pd.DataFrame":
    return frame[(frame["layer"] == "last") & (frame["bin"] == "all") & (frame["split"] == "train")]
