"""A corpus as a notebook shows it."""

from pathlib import Path

import pytest

from collapselab.corpus.blocks import Corpus
from collapselab.corpus.build import Recipe, build_corpus


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("corpora") / "<b>stories"
    return build_corpus("storyworld:stories=20,validation=4", folder, Recipe(tokenizer="bpe:300", block=64))


def test_names_are_a_source(corpus: Corpus, tmp_path: Path) -> None:
    recipe = Recipe(tokenizer="bpe:300", block=64)
    again = build_corpus(["storyworld:stories=20,validation=4"], tmp_path / "again", recipe)
    assert again.hash == corpus.hash


def test_tables_have_every_token_and_split(corpus: Corpus) -> None:
    tokens, splits = corpus.frames["tokens"], corpus.frames["splits"]
    assert len(tokens) == 300
    assert tokens["train"].tolist() == corpus.train.token_counts.tolist()
    assert splits.set_index("split").loc["train", "blocks"] == len(corpus.train)


def test_frequencies_are_drawn_from_the_most_frequent_on(corpus: Corpus) -> None:
    (values,) = corpus.plot().to_dict()["datasets"].values()
    train = [value for value in values if value["split"] == "train"]
    assert train[0]["rank"] == 1
    assert train[0]["count"] == int(corpus.train.token_counts.max())
    assert [value["count"] for value in train] == sorted((value["count"] for value in train), reverse=True)
    assert train[-1]["rank"] == int((corpus.train.token_counts > 0).sum())


def test_its_path_is_escaped_and_one_line_is_short(corpus: Corpus) -> None:
    shown = corpus._repr_html_()
    assert "<b>stories" not in shown
    assert "&lt;b&gt;stories" in shown
    assert "documents" in shown
    assert repr(corpus).startswith("Corpus('")
    assert repr(corpus).endswith(f"{len(corpus.train)} + {len(corpus.validation)} blocks of 64 tokens; vocabulary 300)")
