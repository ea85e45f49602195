import pytest

from collapselab.corpus.build import Recipe, build_corpus
from collapselab.corpus.sources import open_source
from collapselab.corpus.token_kinds import KINDS, kind_of_text, token_kinds


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (" Lily", "word start"), ("\nOnce", "word start"), ("ing", "continuation"), ("n't", "continuation"),
        (" é", "word start"), ("12", "digit"), (" 3", "digit"), (".", "punctuation"), (' "', "punctuation"),
        ("\n\n", "whitespace"), (" ", "whitespace"), ("\N{REPLACEMENT CHARACTER}", "byte"), ("", "other"), ("a1", "other"),
        ("\x00", "other"),
    ],
)  # fmt: skip
def test_the_kind_of_a_text(text: str, kind: str) -> None:
    assert kind_of_text(text) == kind
    assert kind in KINDS


def test_every_token_of_a_tokenizer_has_a_text_and_a_kind(tmp_path_factory: pytest.TempPathFactory) -> None:
    source = open_source(["storyworld:stories=6,validation=2"])
    corpus = build_corpus(source, tmp_path_factory.mktemp("kinds") / "c", Recipe(tokenizer="bpe:300", block=16))
    named = token_kinds(corpus, corpus.vocabulary + 3)
    assert len(named) == corpus.vocabulary + 3
    assert {one.kind for one in named} <= set(KINDS)
    assert "special" in {one.kind for one in named[: corpus.vocabulary]}
    assert named[-1] == ("", "other"), "a row of the output layer without a token"
    assert sum(one.kind == "word start" and one.text.startswith(" ") for one in named) > 10
