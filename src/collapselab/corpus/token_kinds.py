"""Text and kind of every token of a vocabulary.

Tokenizers make the space before a word part of the word's token, and some decoders drop it at the start of a text. Here
it is always part of the text: " Lily" starts a word, "ily" continues one.
"""

import unicodedata
from typing import NamedTuple

from collapselab.corpus.blocks import Corpus

KINDS = {
    "word start": "letters after a space: a word, or the start of one",
    "continuation": "letters without a space before them: the rest of a word, or a word at the start of a text",
    "digit": "digits, with or without a space before them",
    "punctuation": "punctuation and symbols only",
    "whitespace": "spaces, tabs and line breaks only",
    "special": "a special token, such as the end of a text",
    "byte": "part of a character that has several bytes",
    "other": "anything else: mixtures, empty tokens, and rows of the output layer without a token",
}
"""Description of each kind of token."""

SPACE = "\N{LOWER ONE EIGHTH BLOCK}"
"""SentencePiece's symbol for the space before a word (▁); its decoders drop it at the start of a text."""

IN_WORDS = "'’-"
"""Characters that may occur inside a word."""


class TokenKind(NamedTuple):
    """Text and kind of a token."""

    text: str
    kind: str


def token_kinds(corpus: Corpus, classes: int | None = None) -> list[TokenKind]:
    """Return the kind of every token of the corpus; with `classes`, of every row of an output layer of that size."""
    backend = corpus.tokenizer().backend_tokenizer
    special = {token for token, added in backend.get_added_tokens_decoder().items() if added.special}
    tokens = [[token] for token in range(corpus.vocabulary)]
    texts: list[str] = backend.decode_batch(tokens, skip_special_tokens=False)
    named = []
    for token, text in enumerate(texts):
        piece = backend.id_to_token(token) or ""
        whole = f" {text}" if piece.startswith(SPACE) and not text.startswith(" ") else text
        named.append(TokenKind(whole, "special" if token in special else kind_of_text(whole)))
    rows = corpus.vocabulary if classes is None else classes
    return (named + [TokenKind("", "other")] * (rows - len(named)))[:rows]


def kind_of_text(text: str) -> str:
    """Return the kind of a token that is not special, by its text."""
    if "\N{REPLACEMENT CHARACTER}" in text:
        return "byte"
    bare = text.strip()
    if not bare:
        return "whitespace" if text else "other"
    if bare.isnumeric():
        return "digit"
    if all(unicodedata.category(sign)[0] in "PS" for sign in bare):
        return "punctuation"
    if all(unicodedata.category(sign)[0] in "LM" or sign in IN_WORDS for sign in bare):
        return "word start" if text[0].isspace() else "continuation"
    return "other"
