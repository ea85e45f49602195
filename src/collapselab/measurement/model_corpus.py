"""The corpus of a model: text in the tokens of its own tokenizer, built once and kept.

`measure --data SOURCE` has no corpus: each model gets one of its own, with the begin tokens that its tokenizer writes
and blocks that its context holds. It is kept in the user's cache under a hash of the tokenizer, the source and the
recipe, so that checkpoints of one tokenizer share it, and a repeated command finds it: by the files of configuration
and tokenizer (`<hash>.found.json` beside it), since reading those takes the library, which is slow to import.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any, final

from torch import nn

from collapselab.corpus.blocks import Corpus
from collapselab.corpus.build import Recipe, build_corpus
from collapselab.corpus.sources import Documents, Reading, Source, open_source, source_of_texts
from collapselab.corpus.tokenizer import TOKENIZER_FILES, load_tokenizer, tokenizer_hash
from collapselab.disk import folder_written_whole, locked, read_document, sha256, user_cache, write_document
from collapselab.errors import ConfigError, CorpusError, DamagedError, UserError
from collapselab.hub import Pretrained
from collapselab.measurement.compare_tokenizers import tokenizer_name
from collapselab.measurement.model import context_of
from collapselab.messages import hidden_progress, logger
from collapselab.models.find import LocalModel, ModelSource, place_of
from collapselab.records.corpus import CORPUS
from collapselab.records.options import Options, Role, Running

log = logger(__name__)

LONGEST_BLOCK = 512
"""Tokens of a block by default, where the model can read them."""

HELD_OUT = 0.2
"""Share of documents for validation where the source has none and is read only in part, or is a list of texts: NC4
needs decisions enough."""

Text = str | Path | Sequence[str] | Iterable[Mapping[str, object]] | Source
"""Text to measure on: a source by its name, texts, rows with a column of text (as `datasets.Dataset`), or a Source."""


@final
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
            "measure: needs text, as --data SOURCE (such as tinystories) or as --corpus DIR, a corpus that is built; "
            f"found {found}."
        )
    given = {"chat": running.chat, "block": running.block, "tokenizer": tokenizer}
    if unused := [name for name, value in given.items() if value is not None]:
        raise ConfigError(f"{unused[0]}: is for --data; a corpus that is built has its own.")
    return [item if isinstance(item, Corpus) else Corpus(item) for item in corpora]


def open_data(text: Text) -> Source:
    """Return the source of what a user gives as `data`. A string names a source; a list of strings is the texts."""
    if isinstance(text, Source):
        return text
    if isinstance(text, str | Path):
        return open_source([str(text)])
    rows: list[object] = list(text)
    if rows and isinstance(rows[0], Mapping):
        return source_of_texts([_column(row, number, Reading.text_column) for number, row in enumerate(rows)])
    return source_of_texts(rows)


def saved_tokenizer(tokenizer: Any) -> str:
    """Save a tokenizer object to the cache, under the hash of what it does, and return the folder."""
    folder = user_cache("tokenizers") / tokenizer_hash(tokenizer)
    if not folder.is_dir():
        with folder_written_whole(folder) as partial:
            tokenizer.save_pretrained(partial)
    return str(folder)


def common_block(text: Corpus | Data, models: Sequence[ModelSource | nn.Module], running: Running) -> Corpus | Data:
    """Give several models blocks of one size, the smallest context, so that their numbers can be compared."""
    if isinstance(text, Corpus) or text.block is not None or len(models) == 1:
        return text
    blocks = {min(LONGEST_BLOCK, _context(model, running) or LONGEST_BLOCK) for model in models}
    if len(blocks) > 1 and not running.quiet:
        log.warning("The contexts differ: all models get blocks of %s tokens, the smallest.", f"{min(blocks):,}")
    return replace(text, block=min(blocks))


def _context(model: ModelSource | nn.Module, running: Running) -> int | None:
    """The context of a model, from its config.json where it has one, which needs no library to be read."""
    if isinstance(model, nn.Module):
        return context_of(getattr(model, "config", None))
    try:
        if model.path is not None and (model.path / "config.json").is_file():
            return context_of(SimpleNamespace(**json.loads((model.path / "config.json").read_text("utf-8"))))
        from collapselab.models.load import causal_config

        return context_of(causal_config(model, place_of(model), trust_code=running.trust_code))
    except (UserError, ValueError, TypeError):  # the model is refused when it is measured
        return None


def model_corpus(model: ModelSource | nn.Module, text: Corpus | Data, running: Running | None = None) -> Corpus:
    """Return the corpus of this text for this model: the one that is given, the one in the cache, or a new one."""
    running = running or Running()
    if isinstance(text, Corpus):
        return text
    config = None
    if isinstance(model, nn.Module):
        config = getattr(model, "config", None)
        folder = str(getattr(config, "_name_or_path", ""))
        if text.tokenizer is None and not Path(folder or "-").is_dir():
            raise ConfigError(f"{type(model).__name__}: a model in memory has no tokenizer. Give one: tokenizer=…")
        model = ModelSource(folder, LocalModel(Path(folder)))
    with hidden_progress(running.quiet):
        return _built_corpus(model, text, config, trust_code=running.trust_code)


def _built_corpus(model: ModelSource, data: Data, config: object, *, trust_code: bool) -> Corpus:
    """`config` is that of a loaded model; else it is read."""
    from collapselab.models.load import causal_config

    place = place_of(model) if config is None else Pretrained(model.name)
    name = data.tokenizer or tokenizer_name(place)
    if name is None:
        raise CorpusError(
            f"{model.name}: has no tokenizer beside its weights, which would say what its tokens are. Name the right "
            "one: --tokenizer NAME."
        )
    pointer = _pointer_file(place, name, data) if config is None else None
    if pointer is not None and (found := _corpus_of(pointer)) is not None:
        return Corpus(found)
    context = context_of(config or causal_config(model, place, trust_code=trust_code))
    block = data.block or min(LONGEST_BLOCK, context or LONGEST_BLOCK)
    is_small = data.max_tokens is not None or data.source.provenance["kind"] == "texts"
    share = HELD_OUT if is_small else Recipe.validation_share
    recipe = Recipe(tokenizer=name, block=block, max_tokens=data.max_tokens, validation_share=share)
    tokenizer, source = load_tokenizer(name, trust_code=trust_code), data.source
    if data.chat:
        source = in_turns(source, tokenizer, model.name, data.chat)
    folder = data.cache / _key(tokenizer_hash(tokenizer), source, recipe)
    with locked(folder.with_suffix(".lock"), wait=True):
        is_there = (folder / CORPUS).exists()
        corpus = Corpus(folder) if is_there else build_corpus(source, folder, recipe, trust_code=trust_code)
    if pointer is not None:
        write_document(pointer, {"corpus": folder.name})
    return corpus


def in_turns(source: Source, tokenizer: Any, name: str, role: Role = "user") -> Source:
    """The source with each text as what this role says, in the tokenizer's chat template; CorpusError without one.

    The begin token that a template writes is left out: the corpus puts it where the tokenizer would.
    """
    template = getattr(tokenizer, "chat_template", None)
    if not template:
        raise CorpusError(f"{name}: its tokenizer has no chat template. Leave out --chat.")
    begin = getattr(tokenizer, "bos_token", None) or ""

    def turns(documents: Documents) -> Documents:
        def read() -> Iterator[str]:
            for text in documents.open():
                yield turn(text).removeprefix(begin)

        return replace(documents, open=read)

    def turn(text: str) -> str:
        try:
            return str(tokenizer.apply_chat_template([{"role": role, "content": text}], tokenize=False))
        except Exception as error:  # whatever the template raises: it is a program of the model's maker
            words = " ".join(str(error).split())[:200]
            raise CorpusError(
                f"{name}: its chat template does not take a single turn of the {role} ({words}). Take another role, or "
                "leave out --chat."
            ) from error

    digest = hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()
    validation = None if source.validation is None else turns(source.validation)
    return Source(turns(source.train), validation, {**source.provenance, "chat": f"{role} {digest[:16]}"})


def chat_role(corpus: Corpus) -> str | None:
    """Whose turns the texts of a corpus are, None where they are no turns."""
    said = corpus.record.request.source.get("chat")
    return str(said).partition(" ")[0] if said else None


def _pointer_file(place: Pretrained, tokenizer: str, data: Data) -> Path | None:
    """The file that names the corpus of this text for a model with these files; None for what is not a folder here."""
    if not place.is_local or place.gguf_file is not None or place.adapter is not None:
        return None
    files = [place.file / "config.json", *_tokenizer_files(Path(tokenizer))]
    if len(files) == 1:  # a name on the hub, which may mean another tokenizer tomorrow
        return None
    asked = {
        "files": [f"{file.name} {sha256(file)}" for file in files if file.is_file()],
        "source": data.source.provenance, "block": data.block, "max_tokens": data.max_tokens, "chat": data.chat,
        "versions": [version(package) for package in ("collapselab", "transformers", "tokenizers")],
    }  # fmt: skip
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:16]
    return data.cache / f"{digest}.found.json"


def _corpus_of(pointer: Path) -> Path | None:
    """The corpus that the file names, if both are there."""
    try:
        name = str(read_document(pointer).get("corpus"))
    except (FileNotFoundError, DamagedError):
        return None
    is_there = re.fullmatch(r"[0-9a-f]{16}", name) and (pointer.parent / name / CORPUS).is_file()
    return pointer.parent / name if is_there else None


def _tokenizer_files(place: Path) -> list[Path]:
    files = {file for pattern in TOKENIZER_FILES for file in place.glob(pattern)} if place.is_dir() else set()
    return sorted(file for file in files if file.is_file())


def _key(tokenizer: str, source: Source, recipe: Recipe) -> str:
    """A hash of all that decides the bytes of a corpus; the tokenizer counts by what it does, not by its path."""
    asked = {**asdict(recipe), "tokenizer": tokenizer, "source": source.provenance}
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:16]


def _column(row: object, number: int, column: str) -> str:
    if not isinstance(row, Mapping) or not isinstance(row.get(column), str):
        raise ConfigError(f"data: row {number} has no text in a column {column!r}.")
    return str(row[column])
