"""A further source of documents is a function and an entry."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from collapselab.corpus.build import Recipe, build_corpus
from collapselab.corpus.sources import SOURCES, Documents, Reading, Source, open_source
from collapselab.errors import CorpusError


def counting(name: str, reading: Reading) -> Source:
    """`counting:N`: the numbers up to N, each a document."""
    last = int(name.partition(":")[2])

    def numbers(start: int) -> Documents:
        def read() -> Iterator[str]:
            return (f"The number {number} comes before {number + 1}." for number in range(start, last))

        return Documents(read, last - start, "numbers")

    return Source(numbers(0), numbers(last // 2), {"kind": "counting", "last": last})


def test_a_further_source_is_a_function_and_an_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SOURCES, "counting", counting)
    corpus = build_corpus(open_source(["counting:40"]), tmp_path / "c", Recipe(tokenizer="bpe:300", block=16))
    assert corpus.record.request.source == {"kind": "counting", "last": 40}
    assert corpus.record.splits.train.documents == 40
    assert corpus.record.splits.validation.documents == 20
    assert corpus.tokenizer().decode(corpus.train[0]).startswith("The number 0 comes before 1.")
    with pytest.raises(CorpusError, match="counting:40: .*other.txt"):
        open_source(["counting:40", "other.txt"])
    with pytest.raises(CorpusError, match="or one of storyworld, markov, hf, counting"):
        open_source(["nowhere.txt"])


def test_the_hub_without_a_name_says_how_to_write_one() -> None:
    pytest.importorskip("datasets", reason="returns where the extra `hub` is installed")
    with pytest.raises(CorpusError, match="hf: .*hf:NAME"):
        open_source(["hf"])
