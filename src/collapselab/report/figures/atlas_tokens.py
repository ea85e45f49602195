"""Atlas of tokens: which next tokens have collapsed in every model, and which in none.

Values of classes are not compared between models, whose features have other sizes; their ranks are. A token is compared
by its text, so that models of several tokenizers have the tokens in common that all of them have.
"""

import altair as alt
import pandas as pd

from collapselab.records.tables import CLASSES
from collapselab.report.charts.panels import Figure, Panel
from collapselab.report.charts.style import DEPTH_OF_HEAT
from collapselab.report.data import Line, View, columns
from collapselab.report.figures.atlas import NOT_COLLECTED, is_atlas

LEAST_COUNT = 5
"""Samples of a class whose own CDNV is a number worth ranking."""
FREQUENT, ENDS = 200, 12
"""Of the most frequent tokens that all models have, these many of either end are shown."""


def atlas_tokens(view: View) -> Figure:
    """Ranks of the tokens that all models have, by each class's own CDNV: the most and the least collapsed."""
    title, story = "Tokens compared", view.story
    if not is_atlas(story):
        return Figure("atlas_tokens", title, missing=NOT_COLLECTED)
    chunks = story.tables.tables.get("classes", [])
    ranks = _ranks(view, CLASSES.frame(chunks)) if chunks else pd.DataFrame()
    if ranks.empty:
        return Figure("atlas_tokens", title, missing="Of no model there is a table of classes (`measure --classes`).")
    common = _common(ranks)
    if common.empty:
        return Figure("atlas_tokens", title, missing=f"No token is in all models with {LEAST_COUNT} samples or more.")
    models = common["run"].nunique()
    caption = (
        f"Of the {FREQUENT} most frequent tokens that all {models} models have with at least {LEAST_COUNT} samples, "
        "the most collapsed and the least, by mean rank. Darker is more collapsed: a lower class-distance normalised "
        "variance among the classes of the same model."
    )
    return Figure("atlas_tokens", title, caption, [_panel(common)], tables={"atlas tokens": columns(_lines(common))})


def _ranks(view: View, classes: pd.DataFrame) -> pd.DataFrame:
    """Of each model at its last checkpoint: the tokens with enough samples, and the share of classes below each."""
    last = view.story.latest(set(zip(classes["run"], classes["checkpoint"], strict=True)))
    kept = classes[(classes["layer"] == "last") & (classes["split"] == "train") & classes["text"].notna()]
    kept = kept[(kept["count"] >= LEAST_COUNT) & kept["cdnv"].notna()]
    kept = kept[[key in last for key in zip(kept["run"], kept["checkpoint"], strict=True)]]
    kept = kept.drop_duplicates(["run", "text"])  # several tokens may have one text
    rank = kept.groupby("run")["cdnv"].rank(pct=True)
    return kept.assign(rank=1 - rank)[["run", "text", "count", "cdnv", "rank"]]


def _common(ranks: pd.DataFrame) -> pd.DataFrame:
    everywhere = ranks.groupby("text")["run"].nunique() == ranks["run"].nunique()
    common = ranks[ranks["text"].isin(everywhere.index[everywhere])]
    frequent = common.groupby("text")["count"].sum().astype(float).nlargest(FREQUENT).index
    means = common[common["text"].isin(frequent)].groupby("text")["rank"].mean().sort_values(ascending=False)
    chosen = list(means.index) if len(means) <= 2 * ENDS else [*means.index[:ENDS], *means.index[-ENDS:]]
    order = {text: place for place, text in enumerate(chosen)}
    return common[common["text"].isin(chosen)].assign(order=lambda rows: rows["text"].map(order)).sort_values("order")


def shown_text(text: str) -> str:
    """A token as it can be read: spaces and line breaks as signs."""
    return "".join({" ": "␣", "\n": "⏎", "\t": "⇥"}.get(sign, sign if sign.isprintable() else "�") for sign in text)


def _lines(common: pd.DataFrame) -> list[Line]:
    return [
        {"run": row["run"], "token": shown_text(row["text"]), "order": row["order"], "rank": row["rank"],
         "cdnv": row["cdnv"], "count": int(row["count"]),
         "level": min(DEPTH_OF_HEAT - 1, int(row["rank"] * DEPTH_OF_HEAT))}
        for row in common.to_dict("records")
    ]  # fmt: skip


def _panel(common: pd.DataFrame) -> Panel:
    levels = list(range(DEPTH_OF_HEAT))
    colour = alt.Color("level:O", scale=alt.Scale(domain=levels, range=[f"var(--h{level})" for level in levels]))
    data = alt.Chart(alt.NamedData("atlas tokens"))
    order = alt.EncodingSortField("order", op="min")
    y = alt.Y("token:N", sort=order, title=None, axis=alt.Axis(labelLimit=120, labelOverlap=False))
    x = alt.X("run:N", title=None, axis=alt.Axis(labelAngle=-35, labelLimit=140, labelOverlap=False))
    hover = [alt.Tooltip("token:N"), alt.Tooltip("run:N", title="model"), alt.Tooltip("count:Q", format=","),
             alt.Tooltip("cdnv:Q", format=".4~g"),
             alt.Tooltip("rank:Q", title="share of classes above", format=".0%")]  # fmt: skip
    chart = alt.layer(data.mark_rect(stroke="var(--paper)").encode(x=x, y=y, color=colour, tooltip=hover))
    texts = list(dict.fromkeys(common["text"].map(shown_text)))
    words = (
        f"Most collapsed in {common['run'].nunique()} models: {', '.join(texts[:5])}; least: {', '.join(texts[-5:])}."
    )
    return Panel("atlas_tokens", chart, "atlas tokens", words, name="Most collapsed above, least below",
                 height=20 * len(texts) + 90)  # fmt: skip
