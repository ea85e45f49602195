"""Whether a model and a corpus have the same tokenizer: token ids mean the same to both, or the numbers mean nothing.

A corpus of another tokenizer runs through most models without an error, as its ids are below the size of the
vocabulary. So the two are compared by what they do, through `tokenizer_hash`, before anything is measured.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import final

from collapselab.corpus.blocks import Corpus
from collapselab.corpus.tokenizer import PROBES, TOKENIZER_FILES, FastTokenizer, load_tokenizer, tokenizer_hash
from collapselab.errors import CorpusError
from collapselab.hub import Pretrained
from collapselab.models.find import ModelSource
from collapselab.records.facts import TokenizerFacts

IDS_SHOWN, TEXT_SHOWN = 8, 40
"""Token ids and characters of an example in a message."""


@final
@dataclass(frozen=True)
class Tokenizers:
    """The hashes of a model's and a corpus's tokenizer, None where there is none."""

    model: str | None = None
    corpus: str | None = None
    unread: str = ""
    """Why a tokenizer that is there could not be read."""
    chat_template: bool = False
    """Whether the model's tokenizer knows how to write a conversation."""

    @property
    def same(self) -> bool | None:
        return None if self.model is None or self.corpus is None else self.model == self.corpus

    def facts(self) -> TokenizerFacts:
        """As the facts of a result have it."""
        return {"model": self.model, "corpus": self.corpus, "same": self.same}


def compare_tokenizers(
    source: ModelSource, place: Pretrained, corpus: Corpus, *, trust_code: bool, other_tokenizer: bool
) -> Tokenizers:
    """The two tokenizers; CorpusError if they differ, unless `other_tokenizer` allows it.

    A checkpoint of a run has a copy of its corpus's tokenizer. There the files are compared first, since beside a model
    the library may open the same files as another class.
    """
    name = tokenizer_name(place)
    if name is None:
        return Tokenizers(None, _hash_of(corpus))
    if source.checkpoint is not None and _is_copy(Path(name), corpus.path / "tokenizer"):
        known = _hash_of(corpus)
        return Tokenizers(known, known)
    try:
        tokenizer = load_tokenizer(name, trust_code=trust_code)
    except CorpusError as error:
        return Tokenizers(None, _hash_of(corpus), str(error))
    chat = bool(getattr(tokenizer, "chat_template", None))
    tokenizers = Tokenizers(tokenizer_hash(tokenizer), _hash_of(corpus), chat_template=chat)
    if tokenizers.same is False and not other_tokenizer:
        raise _refusal(source, tokenizer, corpus)
    return tokenizers


def tokenizer_name(place: Pretrained) -> str | None:
    """The name by which `load_tokenizer` finds the model's tokenizer, None if there is none beside the model."""
    if place.adapter is not None and any(True for pattern in TOKENIZER_FILES for _ in place.adapter.glob(pattern)):
        return str(place.adapter)
    if not place.is_local:
        return f"{place.path}@{place.revision}" if place.revision else place.path
    if place.gguf_file is not None:
        return str(place.file)
    return place.path if any(True for pattern in TOKENIZER_FILES for _ in place.file.glob(pattern)) else None


def _is_copy(folder: Path, original: Path) -> bool:
    """Whether a folder holds every file of a tokenizer, byte for byte."""
    files = sorted(original.glob("*")) if original.is_dir() else []
    return bool(files) and all(
        (folder / file.name).is_file() and (folder / file.name).read_bytes() == file.read_bytes() for file in files
    )


def _hash_of(corpus: Corpus) -> str | None:
    """The hash in corpus.json, or of the tokenizer beside it for a corpus of an earlier version."""
    if corpus.record.tokenizer_hash is not None:
        return corpus.record.tokenizer_hash
    try:
        return tokenizer_hash(corpus.tokenizer())
    except CorpusError:
        return None


def _refusal(source: ModelSource, tokenizer: FastTokenizer, corpus: Corpus) -> CorpusError:
    own = corpus.tokenizer()
    return CorpusError(
        f"{source.name}: its tokenizer is not the one of {corpus.path}. {_example(tokenizer, own)} Build a corpus with "
        f"the model's own (collapselab corpus build TEXT --tokenizer {source.name}), or measure on this one all the "
        "same with --other-tokenizer."
    )


def _example(model: FastTokenizer, corpus: FastTokenizer) -> str:
    """The sizes of two tokenizers that differ, and the first text that they encode differently."""
    sizes = f"The model's has {len(model):,} tokens, the corpus's {len(corpus):,}"
    for text in PROBES:
        first, second = (tokenizer.encode(text, add_special_tokens=True) for tokenizer in (model, corpus))
        if first != second:
            at = next((i for i, pair in enumerate(zip(first, second, strict=False)) if pair[0] != pair[1]), 0)
            return f"{sizes}; of {_cut(text)!r} they make {_ids(first, at)} and {_ids(second, at)}."
    return f"{sizes}; their vocabularies or merges differ."


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_SHOWN else f"{text[:TEXT_SHOWN]}…"


def _ids(ids: list[int], at: int) -> str:
    """Some of them, with the one at this place."""
    start = max(0, at - IDS_SHOWN + 1)
    shown = [*(["…"] if start else []), *map(str, ids[start : start + IDS_SHOWN])]
    return f"[{', '.join(shown + (['…'] if len(ids) > start + IDS_SHOWN else []))}]"
