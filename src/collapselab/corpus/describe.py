"""Description of a corpus for `collapselab corpus show`: its numbers, its largest classes and its token frequencies."""

from pathlib import Path
from typing import NotRequired, TypedDict

import torch
from pydantic import JsonValue

from collapselab.corpus.blocks import Corpus, Split
from collapselab.corpus.markov import read_chain
from collapselab.corpus.token_kinds import KINDS, TokenKind, token_kinds
from collapselab.disk import written_whole
from collapselab.records.corpus import MARKOV, SPLITS, SplitRecord

LARGEST = 12
"""Classes in the list of the largest ones."""
BEGINS = {
    "block": "at the start of every block; this position is not sampled",
    "document": "before every document",
    "none": "none",
}


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
    """Write the chart of token frequency against rank as an SVG."""
    with written_whole(path) as temporary:
        corpus.plot().configure(font="sans-serif").save(str(temporary), format="svg")
