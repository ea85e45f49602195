"""The corpus of a model: text in the tokens of its own tokenizer, built once and kept.

`measure --data SOURCE` has no corpus: each model gets one of its own, with the begin tokens that its tokenizer writes
and blocks that its context holds. It is kept in the user's cache under a hash of the tokenizer, the source and the
recipe, so that checkpoints of one tokenizer share it, and a repeated command finds it.

A given corpus must have the model's tokenizer, or the ids mean nothing to it. Most models run on ids of another one
without an error, so the two tokenizers are compared by what they do (`tokenizer_hash`) before anything is measured.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from filecmp import cmpfiles
from pathlib import Path
from typing import Any

from torch import nn

from collapselab.corpus.blocks import Corpus
from collapselab.corpus.build import Recipe, build_corpus
from collapselab.corpus.sources import Documents, Reading, Source, open_source, source_of_texts
from collapselab.corpus.tokenizer import PROBES, TOKENIZER_FILES, FastTokenizer, load_tokenizer, tokenizer_hash
from collapselab.disk import folder_written_whole, locked, user_cache
from collapselab.errors import ConfigError, CorpusError, UserError
from collapselab.hub import Pretrained
from collapselab.measurement.model import context_of
from collapselab.messages import hidden_progress, logger
from collapselab.models.find import ModelSource, place_of
from collapselab.records.corpus import CORPUS, read_corpus_record
from collapselab.records.options import Options, Role, Running

log = logger(__name__)

LONGEST_BLOCK = 512
"""Tokens of a block by default, where the model can read them."""

HELD_OUT = 0.2
"""Share of documents for validation where the source has none and is read only in part, or is a list of texts: NC4
needs decisions enough."""

IDS_SHOWN, TEXT_SHOWN = 8, 40
"""Token ids and characters of an example in a message."""

Text = str | Path | Sequence[str] | Iterable[Mapping[str, object]] | Source
"""Text to measure on: a source by its name, texts, rows with a column of text (as `datasets.Dataset`), or a Source."""


@dataclass(frozen=True)
class Data:
    """Text to measure on, before it is known for which tokenizer, and how it becomes a corpus."""

    source: Source
    block: int | None = None
    max_tokens: int | None = None
    chat: Role | None = None
    """Whose turn of a conversation each text is, in the model's chat template; None: plain text."""
    tokenizer: str | None = None
    """Where the tokenizer is, if not beside the model."""
    cache: Path = field(default_factory=lambda: user_cache("corpora"))


def opened_texts(
    corpus: str | Path | Corpus | Sequence[str | Path | Corpus] | None,
    data: Text | None,
    options: Options,
    running: Running,
    *,
    tokenizer: object = None,
) -> list[Corpus] | list[Data]:
    """Return the corpora, or the text that one is made of for each model; ConfigError unless one of them is given."""
    corpora = [] if corpus is None else [corpus] if isinstance(corpus, str | Path | Corpus) else list(corpus)
    if data is not None and not corpora:
        name = tokenizer if tokenizer is None or isinstance(tokenizer, str | Path) else saved_tokenizer(tokenizer)
        limit = running.max_tokens or options.tokens
        return [Data(open_data(data), running.block, limit, running.chat, None if name is None else str(name))]
    if not corpora or data is not None:
        found = "both" if corpora else "neither"
        raise ConfigError(
            "measure needs either --data SOURCE (text, such as tinystories) or --corpus DIR (a corpus that was built), "
            f"got {found}."
        )
    given = {"chat": running.chat, "block": running.block, "tokenizer": tokenizer}
    if unused := [name for name, value in given.items() if value is not None]:
        raise ConfigError(f"{unused[0]} needs --data; a corpus that was built has its own.")
    return [item if isinstance(item, Corpus) else Corpus(item) for item in corpora]


def open_data(text: Text) -> Source:
    """Return the source of what a user gives as `data`. A string names a source; a list of strings is the texts."""
    if isinstance(text, Source):
        return text
    if isinstance(text, str | Path):
        return open_source([str(text)])
    rows: list[Any] = list(text)
    if rows and isinstance(rows[0], Mapping):
        column = Reading.text_column
        for number, row in enumerate(rows):
            if not isinstance(row, Mapping) or not isinstance(row.get(column), str):
                raise ConfigError(f"data: row {number} has no text in a column {column!r}.")
        rows = [row[column] for row in rows]
    return source_of_texts(rows)


def saved_tokenizer(tokenizer: Any) -> str:
    """Save a tokenizer object to the cache, under the hash of what it does, and return the folder."""
    folder = user_cache("tokenizers") / tokenizer_hash(tokenizer)
    if not folder.is_dir():
        with folder_written_whole(folder) as partial:
            tokenizer.save_pretrained(partial)
    return str(folder)


def common_block(text: Data, models: Sequence[ModelSource | nn.Module], running: Running) -> Data:
    """Give several models blocks of one size, the smallest context, so that their numbers can be compared."""
    if text.block is not None or len(models) == 1:
        return text
    blocks = {min(LONGEST_BLOCK, _context(model, running) or LONGEST_BLOCK) for model in models}
    if len(blocks) > 1 and not running.quiet:
        log.warning("The contexts differ: all models get blocks of %s tokens, the smallest.", f"{min(blocks):,}")
    return replace(text, block=min(blocks))


def _context(model: ModelSource | nn.Module, running: Running) -> int | None:
    if isinstance(model, nn.Module):
        return context_of(getattr(model, "config", None))
    from collapselab.models.load import causal_config

    try:
        return context_of(causal_config(model, place_of(model), trust_code=running.trust_code))
    except (UserError, ValueError, TypeError):  # the model is refused when it is measured
        return None


def model_corpus(model: ModelSource | nn.Module, text: Data, running: Running | None = None) -> Corpus:
    """Return the corpus of this text for this model: the one in the cache, or a new one."""
    from collapselab.models.load import causal_config

    running = running or Running()
    trust_code = running.trust_code
    if isinstance(model, nn.Module):
        name, config = type(model).__name__, getattr(model, "config", None)
        folder = str(getattr(config, "_name_or_path", "")) or "-"
        tokenizer = text.tokenizer or (folder if Path(folder).is_dir() else None)
        if tokenizer is None:
            raise ConfigError(f"{name}: a model in memory has no tokenizer. Give one: tokenizer=…")
    else:
        name, place = model.name, place_of(model)
        tokenizer = text.tokenizer or tokenizer_name(place)
        if tokenizer is None:
            raise CorpusError(
                f"{name}: has no tokenizer beside its weights, which would say what its tokens are. Name the right "
                "one: --tokenizer NAME."
            )
        config = causal_config(model, place, trust_code=trust_code)
    with hidden_progress(running.quiet):
        return _built_corpus(name, text, tokenizer, context_of(config), trust_code=trust_code)


def _built_corpus(model: str, data: Data, name: str, context: int | None, *, trust_code: bool) -> Corpus:
    block = data.block or min(LONGEST_BLOCK, context or LONGEST_BLOCK)
    is_small = data.max_tokens is not None or data.source.provenance["kind"] == "texts"
    share = HELD_OUT if is_small else Recipe.validation_share
    recipe = Recipe(tokenizer=name, block=block, max_tokens=data.max_tokens, validation_share=share)
    tokenizer, source = load_tokenizer(name, trust_code=trust_code), data.source
    if data.chat:
        source = in_turns(source, tokenizer, model, data.chat)
    # All that decides the bytes of a corpus; the tokenizer counts by what it does, not by its path.
    asked = {**asdict(recipe), "tokenizer": tokenizer_hash(tokenizer), "source": source.provenance}
    folder = data.cache / hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:16]
    with locked(folder.with_suffix(".lock"), wait=True):
        if (folder / CORPUS).exists():  # of an equal tokenizer, perhaps of another name
            recipe = replace(recipe, tokenizer=read_corpus_record(folder).request.tokenizer)
        return build_corpus(source, folder, recipe, trust_code=trust_code)


def in_turns(source: Source, tokenizer: Any, name: str, role: Role = "user") -> Source:
    """The source with each text as what this role says, in the tokenizer's chat template; CorpusError without one.

    The begin token that a template writes is left out: the corpus puts it where the tokenizer would.
    """
    template = getattr(tokenizer, "chat_template", None)
    if not template:
        raise CorpusError(f"{name}: its tokenizer has no chat template. Leave out --chat.")
    begin = getattr(tokenizer, "bos_token", None) or ""

    def turn(text: str) -> str:
        try:
            return str(tokenizer.apply_chat_template([{"role": role, "content": text}], tokenize=False))
        except Exception as error:  # whatever the template raises: it is a program of the model's maker
            words = " ".join(str(error).split())[:200]
            raise CorpusError(
                f"{name}: its chat template does not take a single turn of the {role} ({words}). Take another role, or "
                "leave out --chat."
            ) from error

    def turns(documents: Documents) -> Documents:
        return replace(documents, open=lambda: (turn(text).removeprefix(begin) for text in documents.open()))

    digest = hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()
    validation = None if source.validation is None else turns(source.validation)
    provenance = {**source.provenance, "chat": f"{role} {digest[:16]}"}
    return Source(turns(source.train), validation, provenance, folder=source.folder)


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


def compare_tokenizers(source: ModelSource, place: Pretrained, corpus: Corpus, running: Running) -> Tokenizers:
    """The two tokenizers; CorpusError if they differ, unless `other_tokenizer` allows it.

    A checkpoint of a run has a copy of its corpus's tokenizer. There the files are compared first, since beside a model
    the library may open the same files as another class.
    """
    name, corpus_hash = tokenizer_name(place), corpus.record.tokenizer_hash
    if corpus_hash is None:  # a corpus of an earlier version
        with suppress(CorpusError):
            corpus_hash = tokenizer_hash(corpus.tokenizer())
    if name is None:
        return Tokenizers(None, corpus_hash)
    if source.checkpoint is not None and _is_copy(Path(name), corpus.path / "tokenizer"):
        return Tokenizers(corpus_hash, corpus_hash)
    try:
        tokenizer = load_tokenizer(name, trust_code=running.trust_code)
    except CorpusError as error:
        return Tokenizers(None, corpus_hash, str(error))
    chat = bool(getattr(tokenizer, "chat_template", None))
    tokenizers = Tokenizers(tokenizer_hash(tokenizer), corpus_hash, chat_template=chat)
    if tokenizers.same is False and not running.other_tokenizer:
        raise CorpusError(
            f"{source.name}: its tokenizer is not the one of {corpus.path}. {_example(tokenizer, corpus.tokenizer())} "
            f"Build a corpus with the model's own (collapselab corpus build TEXT --tokenizer {source.name}), or "
            "measure on this one all the same with --other-tokenizer."
        )
    return tokenizers


def tokenizer_name(place: Pretrained) -> str | None:
    """The name by which `load_tokenizer` finds the model's tokenizer, None if there is none beside the model."""
    if place.adapter is not None and _has_tokenizer(place.adapter):
        return str(place.adapter)
    if not place.is_local:
        return f"{place.path}@{place.revision}" if place.revision else place.path
    if place.gguf_file is not None:
        return str(place.file)
    return place.path if _has_tokenizer(place.file) else None


def _has_tokenizer(folder: Path) -> bool:
    return any(True for pattern in TOKENIZER_FILES for _ in folder.glob(pattern))


def _is_copy(folder: Path, original: Path) -> bool:
    """Whether a folder holds every file of a tokenizer, byte for byte."""
    names = [file.name for file in original.iterdir()] if original.is_dir() else []
    return bool(names) and cmpfiles(folder, original, names, shallow=False)[0] == names


def _example(model: FastTokenizer, corpus: FastTokenizer) -> str:
    """The sizes of two tokenizers that differ, and the first text that they encode differently."""
    sizes = f"The model's has {len(model):,} tokens, the corpus's {len(corpus):,}"
    for text in PROBES:
        first, second = (tokenizer.encode(text, add_special_tokens=True) for tokenizer in (model, corpus))
        if first != second:
            at = next((i for i, pair in enumerate(zip(first, second, strict=False)) if pair[0] != pair[1]), 0)
            start = max(0, at - 4)
            shown = (str(ids[start : start + IDS_SHOWN]) for ids in (first, second))
            return f"{sizes}; of {text[:TEXT_SHOWN]!r} they make {' and '.join(shown)}."
    return f"{sizes}; their vocabularies or merges differ."
