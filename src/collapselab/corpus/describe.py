"""What is in a corpus, for a person to see: its numbers, its largest classes, and how often its tokens occur.

Tokens are of four kinds, as in the token analysis of Linguistic Collapse: lower-case words, capitalised words,
punctuation and all else (digits, pieces of words in mixed case, bytes).
"""

import unicodedata
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NotRequired, TypedDict

import torch
from pydantic import JsonValue

from collapselab.corpus.blocks import Corpus, Split
from collapselab.corpus.markov import Chain, read_chain
from collapselab.disk import written_whole
from collapselab.records.corpus import MARKOV, SPLITS, SplitRecord

if TYPE_CHECKING:
    import altair as alt

KINDS = ["lower-case word", "capitalised word", "punctuation", "other"]
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#999999"]  # Okabe and Ito: also colour-blind readers can distinguish them
LARGEST = 12
BEGINS = {
    "block": "at the head of every block; its position is no sample",
    "document": "before every document",
    "none": "none",
}
POINTS = 1200
"""Ranks that are drawn, evenly spaced on the logarithmic axis."""


class LargeClass(TypedDict):
    """One of the classes with the most samples."""

    token: int
    text: str
    count: int
    share: float


class ChainNumbers(TypedDict):
    """What is known of a markov source; entropies in nats."""

    entropy_rate: float
    least_loss: float
    """Of any model, on blocks of this length."""
    entropies: list[float]
    """Of the next token after the last 0, 1, … tokens."""
    contexts: int
    visited: int
    """Contexts that occur at all."""
    distributions: int
    supports: int


class Description(TypedDict):
    """What is in a corpus, as `corpus show --json` prints it."""

    path: str
    hash: str
    vocabulary: int
    block: int
    packing: str
    begin: str
    source: dict[str, JsonValue]
    tokenizer: str
    splits: dict[str, dict[str, int]]
    largest_classes: list[LargeClass]
    kinds: dict[str, dict[str, int]]
    chain: NotRequired[ChainNumbers]
    """Of a markov source alone."""


def kind_of(text: str) -> str:
    """The kind of a token, by its text without the space before it."""
    word = text.strip()
    if word.isalpha() and word.islower():
        return KINDS[0]
    if word.isalpha() and word[0].isupper():
        return KINDS[1]
    if (
        word
        and all(unicodedata.category(character)[0] in "PS" for character in word)
        and "\N{REPLACEMENT CHARACTER}" not in word
    ):
        return KINDS[2]
    return KINDS[3]


def description(corpus: Corpus) -> Description:
    """Numbers of both splits, the largest classes, and the share of each kind of token."""
    texts = corpus.token_texts()
    kinds = [kind_of(text) for text in texts]
    chain = _chain(corpus)
    known: Description = {
        "path": str(corpus.path),
        "hash": corpus.hash,
        "vocabulary": corpus.vocabulary,
        "block": corpus.block,
        "packing": corpus.record.request.packing,
        "begin": BEGINS[corpus.record.begin or ("document" if corpus.record.boundary == "begin" else "none")],
        "source": corpus.record.request.source,
        "tokenizer": corpus.record.request.tokenizer,
        "splits": {name: _numbers(corpus.splits[name], corpus.record.numbers(name)) for name in SPLITS},
        "largest_classes": _largest(corpus.train, texts),
        "kinds": _shares(corpus.train, kinds),
    }
    return known if chain is None else {**known, "chain": _chain_numbers(chain, corpus.block)}


def _chain(corpus: Corpus) -> Chain | None:
    return read_chain(corpus.path) if MARKOV in corpus.record.files else None


def _chain_numbers(chain: Chain, block: int) -> ChainNumbers:
    return {
        "entropy_rate": chain.entropy_rate,
        "least_loss": chain.optimum(block),
        "entropies": chain.entropies,
        "contexts": chain.settings.contexts,
        "visited": int((chain.stationary > 0).sum()),
        "distributions": len(chain.successors),
        "supports": int(chain.supports.max()) + 1,
    }


def _numbers(split: Split, record: SplitRecord) -> dict[str, int]:
    return record.model_dump(exclude={"id_type"}, exclude_none=True) | {
        "classes_seen_once": int((split.counts == 1).sum()),
        "labels": int(split.counts.sum()),
        "classes": int((split.counts > 0).sum()),
    }


def _largest(split: Split, texts: list[str]) -> list[LargeClass]:
    counts, tokens = split.counts.sort(descending=True, stable=True)
    total = int(split.counts.sum())
    return [
        {"token": int(token), "text": texts[int(token)], "count": int(count), "share": int(count) / total}
        for count, token in zip(counts[:LARGEST], tokens[:LARGEST], strict=True)
        if count
    ]


def _shares(split: Split, kinds: list[str]) -> dict[str, dict[str, int]]:
    counts = split.token_counts
    members = {kind: torch.tensor([token_kind == kind for token_kind in kinds]) for kind in KINDS}
    return {
        kind: {"types": int((counts[member] > 0).sum()), "tokens": int(counts[member].sum())}
        for kind, member in members.items()
    }


def draw(corpus: Corpus, path: str | Path) -> None:
    """An SVG: frequency against rank by kind of token, and how types and tokens divide among the kinds.

    Of a markov source also how often contexts occur, and how much is known after how many tokens.
    """
    import altair as alt

    texts = corpus.token_texts()
    kinds = [kind_of(text) for text in texts]
    scale = alt.Scale(domain=KINDS, range=COLOURS)
    colour = alt.Color("kind:N", scale=scale, title=None, legend=alt.Legend(orient="top"))
    ranks = (
        alt.Chart(alt.InlineData(values=_ranked(corpus.train, texts, kinds)))
        .mark_point(filled=True, size=18, opacity=0.8)
        .encode(
            x=alt.X("rank:Q", scale=alt.Scale(type="log", nice=False), title="rank of the token"),
            y=alt.Y("count:Q", scale=alt.Scale(type="log"), title="occurrences in training"),
            color=colour,
        )
        .properties(width=420, height=300, title="How often tokens occur")
    )
    shares = (
        alt.Chart(alt.InlineData(values=_bars(_shares(corpus.train, kinds))))
        .mark_bar()
        .encode(
            x=alt.X("share:Q", axis=alt.Axis(format="%"), title="share", stack="zero", scale=alt.Scale(domain=[0, 1])),
            y=alt.Y("of:N", title=None, sort=["types", "tokens"]),
            color=colour,
            order=alt.Order("order:Q"),
        )
        .properties(width=260, height=120, title="How types and tokens divide")
    )
    chain = _chain(corpus)
    rows = [alt.hconcat(ranks, shares), *([] if chain is None else [_chain_panels(chain)])]
    chart = (
        alt.vconcat(*rows)
        .configure(font="sans-serif")
        .configure_axis(labelFontSize=12, titleFontSize=13, gridOpacity=0.35)
        .configure_legend(labelFontSize=12)
    )
    with written_whole(path) as temporary:
        chart.save(str(temporary), format="svg")


def _chain_panels(chain: Chain) -> "alt.HConcatChart":
    import altair as alt

    often = sorted((float(share) for share in chain.stationary if share > 0), reverse=True)
    places = sorted({round(len(often) ** (step / (POINTS - 1))) for step in range(POINTS)})
    contexts = (
        alt.Chart(alt.InlineData(values=[{"rank": place, "share": often[place - 1]} for place in places]))
        .mark_point(filled=True, size=18, color=COLOURS[0])
        .encode(
            x=alt.X("rank:Q", scale=alt.Scale(type="log", nice=False), title="rank of the context"),
            y=alt.Y("share:Q", scale=alt.Scale(type="log"), title="share of tokens"),
        )
        .properties(width=420, height=220, title=f"How often contexts of {chain.settings.order} tokens occur")
    )
    known = [{"tokens": n, "entropy": value} for n, value in enumerate(chain.entropies)]
    entropies = (
        alt.Chart(alt.InlineData(values=known))
        .mark_line(point=True, color=COLOURS[1])
        .encode(
            x=alt.X("tokens:O", title="last tokens that are known", axis=alt.Axis(labelAngle=0)),
            y=alt.Y("entropy:Q", title="nats", scale=alt.Scale(zero=True)),
        )
        .properties(width=260, height=220, title="Entropy of the next token")
    )
    return alt.hconcat(contexts, entropies)


def _ranked(split: Split, texts: list[str], kinds: list[str]) -> list[dict[str, JsonValue]]:
    counts, tokens = split.token_counts.sort(descending=True, stable=True)
    total = int((counts > 0).sum())
    rows: list[dict[str, JsonValue]] = []
    for rank in sorted({round(total ** (step / (POINTS - 1))) for step in range(POINTS)}):
        token = int(tokens[rank - 1])
        rows.append({"rank": rank, "count": int(counts[rank - 1]), "kind": kinds[token], "text": texts[token]})
    frequent_first = [kind for kind, _ in Counter(row["kind"] for row in rows).most_common()]
    return sorted(rows, key=lambda row: frequent_first.index(row["kind"]))  # rare kinds are drawn on top


def _bars(shares: dict[str, dict[str, int]]) -> list[dict[str, JsonValue]]:
    rows: list[dict[str, JsonValue]] = []
    for of in ("types", "tokens"):
        total = sum(share[of] for share in shares.values())
        for order, (kind, share) in enumerate(shares.items()):
            rows.append({"of": of, "kind": kind, "share": share[of] / total, "order": order})
    return rows
