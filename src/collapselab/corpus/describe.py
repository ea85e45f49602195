"""Description of a corpus for `collapselab corpus show`: its numbers, its largest classes and its token frequencies."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NotRequired, TypedDict

import torch
from pydantic import JsonValue

from collapselab.corpus.blocks import Corpus, Split, log_spaced_ranks
from collapselab.corpus.markov import Chain, read_chain
from collapselab.corpus.token_kinds import KINDS, TokenKind, token_kinds
from collapselab.disk import written_whole
from collapselab.records.corpus import MARKOV, SPLITS, SplitRecord

if TYPE_CHECKING:
    import altair as alt

# Okabe and Ito's palette, safe for colour-blind readers, in the order of KINDS.
COLOURS = ["#0072B2", "#56B4E9", "#CC79A7", "#009E73", "#F0E442", "#E69F00", "#D55E00", "#999999"]
LARGEST = 12
"""Classes in the list of the largest ones."""
BEGINS = {
    "block": "at the start of every block; this position is not sampled",
    "document": "before every document",
    "none": "none",
}
POINTS = 1200
"""Ranks in a chart."""


class LargeClass(TypedDict):
    """One of the classes with the most samples."""

    token: int
    text: str
    count: int
    share: float


class ChainNumbers(TypedDict):
    """Properties of a markov source; entropies in nats."""

    entropy_rate: float
    least_loss: float
    """The lowest expected loss of any model on blocks of this length."""
    entropies: list[float]
    """Entropy of the next token given the last 0, 1, … tokens."""
    contexts: int
    visited: int
    """Contexts with a positive stationary probability."""
    distributions: int
    supports: int


class Description(TypedDict):
    """The JSON document of `corpus show --json`."""

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
    """Only for a markov source."""


def description(corpus: Corpus) -> Description:
    """Return the numbers of both splits, the largest classes, and the counts of each kind of token."""
    tokens = token_kinds(corpus)
    result: Description = {
        "path": str(corpus.path),
        "hash": corpus.hash,
        "vocabulary": corpus.vocabulary,
        "block": corpus.block,
        "packing": corpus.record.request.packing,
        "begin": BEGINS[corpus.record.begin or ("document" if corpus.record.boundary == "begin" else "none")],
        "source": corpus.record.request.source,
        "tokenizer": corpus.record.request.tokenizer,
        "splits": {name: _numbers(corpus.splits[name], corpus.record.numbers(name)) for name in SPLITS},
        "largest_classes": _largest(corpus.train, tokens),
        "kinds": _kind_counts(corpus.train, tokens),
    }
    if MARKOV in corpus.record.files:
        chain = read_chain(corpus.path)
        result["chain"] = {
            "entropy_rate": chain.entropy_rate,
            "least_loss": chain.optimum(corpus.block),
            "entropies": chain.entropies,
            "contexts": chain.settings.contexts,
            "visited": int((chain.stationary > 0).sum()),
            "distributions": len(chain.successors),
            "supports": int(chain.supports.max()) + 1,
        }
    return result


def _numbers(split: Split, record: SplitRecord) -> dict[str, int]:
    return record.model_dump(exclude={"id_type"}, exclude_none=True) | {
        "classes_seen_once": int((split.counts == 1).sum()),
        "labels": int(split.counts.sum()),
        "classes": int((split.counts > 0).sum()),
    }


def _largest(split: Split, tokens: list[TokenKind]) -> list[LargeClass]:
    counts, classes = split.counts.sort(descending=True, stable=True)
    total = int(split.counts.sum())
    return [
        {"token": int(label), "text": tokens[int(label)].text, "count": int(count), "share": int(count) / total}
        for count, label in zip(counts[:LARGEST], classes[:LARGEST], strict=True)
        if count
    ]


def _kind_counts(split: Split, tokens: list[TokenKind]) -> dict[str, dict[str, int]]:
    counts = split.token_counts
    members = {kind: torch.tensor([token.kind == kind for token in tokens]) for kind in KINDS}
    return {
        kind: {"types": int((counts[member] > 0).sum()), "tokens": int(counts[member].sum())}
        for kind, member in members.items()
    }


def draw(corpus: Corpus, path: str | Path) -> None:
    """Write an SVG with token frequency against rank, and the shares of the kinds among types and tokens.

    For a markov source it also has the frequency of contexts, and the entropy of the next token by context length.
    """
    import altair as alt

    tokens = token_kinds(corpus)
    scale = alt.Scale(domain=list(KINDS), range=COLOURS)
    colour = alt.Color("kind:N", scale=scale, title=None, legend=alt.Legend(orient="top"))
    ranks = (
        alt.Chart(alt.InlineData(values=_ranked(corpus.train, tokens)))
        .mark_point(filled=True, size=18, opacity=0.8)
        .encode(
            x=alt.X("rank:Q", scale=alt.Scale(type="log", nice=False), title="rank of the token"),
            y=alt.Y("count:Q", scale=alt.Scale(type="log"), title="occurrences in training"),
            color=colour,
        )
        .properties(width=420, height=300, title="How often tokens occur")
    )
    shares = (
        alt.Chart(alt.InlineData(values=_bars(_kind_counts(corpus.train, tokens))))
        .mark_bar()
        .encode(
            x=alt.X("share:Q", axis=alt.Axis(format="%"), title="share", stack="zero", scale=alt.Scale(domain=[0, 1])),
            y=alt.Y("of:N", title=None, sort=["types", "tokens"]),
            color=colour,
            order=alt.Order("order:Q"),
        )
        .properties(width=260, height=120, title="How types and tokens divide")
    )
    rows = [alt.hconcat(ranks, shares)]
    if MARKOV in corpus.record.files:
        rows.append(_chain_panels(read_chain(corpus.path)))
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

    shares = sorted((float(share) for share in chain.stationary if share > 0), reverse=True)
    points = [{"rank": rank, "share": shares[rank - 1]} for rank in log_spaced_ranks(len(shares), POINTS)]
    contexts = (
        alt.Chart(alt.InlineData(values=points))
        .mark_point(filled=True, size=18, color=COLOURS[0])
        .encode(
            x=alt.X("rank:Q", scale=alt.Scale(type="log", nice=False), title="rank of the context"),
            y=alt.Y("share:Q", scale=alt.Scale(type="log"), title="share of tokens"),
        )
        .properties(width=420, height=220, title=f"How often contexts of {chain.settings.order} tokens occur")
    )
    values = [{"tokens": n, "entropy": value} for n, value in enumerate(chain.entropies)]
    entropies = (
        alt.Chart(alt.InlineData(values=values))
        .mark_line(point=True, color=COLOURS[1])
        .encode(
            x=alt.X("tokens:O", title="last tokens that are known", axis=alt.Axis(labelAngle=0)),
            y=alt.Y("entropy:Q", title="nats", scale=alt.Scale(zero=True)),
        )
        .properties(width=260, height=220, title="Entropy of the next token")
    )
    return alt.hconcat(contexts, entropies)


def _ranked(split: Split, tokens: list[TokenKind]) -> list[dict[str, JsonValue]]:
    counts, classes = split.token_counts.sort(descending=True, stable=True)
    total = int((counts > 0).sum())
    rows: list[dict[str, JsonValue]] = []
    for rank in log_spaced_ranks(total, POINTS):
        token = tokens[int(classes[rank - 1])]
        rows.append({"rank": rank, "count": int(counts[rank - 1]), "kind": token.kind, "text": token.text})
    frequent_first = [kind for kind, _ in Counter(row["kind"] for row in rows).most_common()]
    return sorted(rows, key=lambda row: frequent_first.index(row["kind"]))  # rare kinds are drawn on top


def _bars(shares: dict[str, dict[str, int]]) -> list[dict[str, JsonValue]]:
    rows: list[dict[str, JsonValue]] = []
    for of in ("types", "tokens"):
        total = sum(share[of] for share in shares.values())
        for order, (kind, share) in enumerate(shares.items()):
            rows.append({"of": of, "kind": kind, "share": share[of] / total, "order": order})
    return rows
