"""How often each class occurs in the corpus of the runs."""

from pathlib import Path

import altair as alt

from collapselab.corpus.blocks import Corpus
from collapselab.errors import UserError
from collapselab.report.charts.panels import Figure, Panel
from collapselab.report.data import View, columns
from collapselab.report.provenance import corpus_of

TITLE = "How often classes occur"
POINTS = 600
"""Ranks that are drawn, evenly spaced on the logarithmic axis."""


def classes(view: View) -> Figure:
    """The classes of the corpus that was asked for, else of the one that the runs name, if it is still there."""
    corpus = view.corpus or corpus_of(view.story)
    if corpus is None:
        return Figure("classes", TITLE, missing="The corpus was not found (`--corpus DIR` names it).")
    return class_frequencies(corpus, asked_for=view.corpus is not None)


def class_frequencies(corpus: Path, *, asked_for: bool = True) -> Figure:
    """How often each class is the next token, by rank; a corpus that was not named by the user may be damaged."""
    try:
        counts = Corpus(corpus).train.counts.sort(descending=True).values
    except UserError as error:
        if asked_for:
            raise
        return Figure("classes", TITLE, missing=str(error))
    seen, total = int((counts > 0).sum()), int(counts.sum())
    ranks = sorted({round(seen ** (step / (POINTS - 1))) for step in range(POINTS)}) if seen else []
    table = columns([{"rank": rank, "count": int(counts[rank - 1])} for rank in ranks])
    decades = [10.0**power for power in range(len(str(total)))]
    x = alt.X("rank:Q", scale=alt.Scale(type="log", nice=False), title="rank of the class",
              axis=alt.Axis(values=decades, format="~s"))  # fmt: skip
    y = alt.Y("count:Q", scale=alt.Scale(type="log"), title="times it is the next token",
              axis=alt.Axis(values=decades, format="~s"))  # fmt: skip
    points = alt.Chart(alt.NamedData("classes")).mark_point(filled=True, size=16, color="var(--accent)", opacity=0.8)
    half = int((counts.cumsum(0) * 2 < total).sum()) + 1
    once = int((counts == 1).sum())
    words = (
        f"{seen:,} classes in {total:,} training tokens; the most frequent {half:,} make up half of them, {once:,} "
        "occur once."
    )
    panel = Panel("classes-rank", points.encode(x=x, y=y, tooltip=["rank:Q", "count:Q"]), "classes", words)
    return Figure("classes", TITLE, words, [panel], tables={"classes": table})
