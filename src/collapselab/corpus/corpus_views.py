"""A corpus in a notebook: the numbers of its splits, and how often its tokens occur."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from collapselab.records.corpus import SPLITS, CorpusRecord

if TYPE_CHECKING:
    import altair as alt
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

POINTS = 400
"""Ranks that the chart shows, evenly spaced on its logarithmic axis."""


def splits_frame(record: CorpusRecord) -> "pd.DataFrame":
    """A row for each split: documents, tokens, blocks and what else its record counts."""
    import pandas as pd

    numbers = {name: record.numbers(name).model_dump(exclude={"id_type"}, exclude_none=True) for name in SPLITS}
    return pd.DataFrame([{"split": name, **numbers[name]} for name in SPLITS])


def tokens_frame(texts: Sequence[str], counts: Mapping[str, "NDArray[np.int64]"]) -> "pd.DataFrame":
    """A row for each token of the vocabulary: its text, and how often it occurs in each split."""
    import pandas as pd

    return pd.DataFrame({"token": range(len(texts)), "text": texts, **counts})


def frequency_chart(title: str, tokens: "pd.DataFrame") -> "alt.Chart":
    """Occurrences against rank, both on a logarithmic axis, a line for each split."""
    import altair as alt
    import pandas as pd

    ranked = [_ranked(tokens, split) for split in SPLITS]
    chart: alt.Chart = alt.Chart(pd.concat(ranked, ignore_index=True), title=title).mark_line(point=True)
    return chart.encode(
        x=alt.X("rank:Q", scale=alt.Scale(type="log", nice=False), title="rank of the token"),
        y=alt.Y("count:Q", scale=alt.Scale(type="log"), title="occurrences"),
        color=alt.Color("split:N", sort=list(SPLITS)),
        tooltip=["text:N", "count:Q", "rank:Q"],
    ).properties(width=420, height=260)


def _ranked(tokens: "pd.DataFrame", split: str) -> "pd.DataFrame":
    frequent = tokens[tokens[split] > 0].sort_values([split, "token"], ascending=[False, True])
    last = len(frequent)
    ranks = sorted({round(last ** (step / (POINTS - 1))) for step in range(POINTS)}) if last else []
    chosen = frequent.iloc[[rank - 1 for rank in ranks]]
    return chosen.assign(rank=ranks, count=chosen[split], split=split)[["rank", "count", "split", "text"]]


def corpus_html(path: str, record: CorpusRecord) -> str:
    """The path, what it was made of, and a table of the splits."""
    numbers = splits_frame(record).set_index("split").T.rename_axis(None, axis=1)
    table = numbers.to_html(float_format="{:,.0f}".format, na_rep="–", border=0)
    about = f"{record.vocabulary:,} tokens in the vocabulary, blocks of {record.block:,}; hash {record.hash}"
    return f"<p><b>{escape(path)}</b>: {escape(about)}</p>{table}"
