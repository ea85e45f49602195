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
from typing import Any, Literal, final, get_args

from collapselab.corpus.blocks import Corpus
from collapselab.corpus.build import Recipe, build_corpus
from collapselab.corpus.sources import Documents, Reading, Source, open_source, source_of_texts
from collapselab.corpus.tokenizer import TOKENIZER_FILES, load_tokenizer, tokenizer_hash
from collapselab.disk import locked, read_document, sha256, user_cache, write_document
from collapselab.errors import ConfigError, CorpusError, DamagedError
from collapselab.hub import Pretrained
from collapselab.measurement.compare_tokenizers import tokenizer_name
from collapselab.measurement.model import context_of
from collapselab.models.find import ModelSource, place_of
from collapselab.records.corpus import CORPUS
from collapselab.records.table import shown

LONGEST_BLOCK = 512
"""Tokens of a block by default, where the model can read them."""

Role = Literal["user", "assistant"]
ROLES: tuple[Role, ...] = get_args(Role)
"""Whose turn a text can be with `--chat`. A user's, where nothing else is said: the model reads it as it reads its
users; an assistant's: as what it would write itself."""

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
    cache: Path = field(default_factory=lambda: user_cache("corpora"))


def open_data(text: Text) -> Source:
    """The source behind what a user gives as `data`. A string names a source; a list of strings is the texts."""
    if isinstance(text, Source):
        return text
    if isinstance(text, str | Path):
        return open_source([str(text)])
    rows: list[object] = list(text)
    if rows and isinstance(rows[0], Mapping):
        return source_of_texts([_column(row, number, Reading.text_column) for number, row in enumerate(rows)])
    return source_of_texts(rows)


def model_corpus(model: ModelSource, data: Data, *, trust_code: bool = False) -> Corpus:
    """The corpus of this text for this model: the one in the cache, or a new one."""
    from collapselab.models.load import causal_config

    place = place_of(model)
    name = tokenizer_name(place)
    if name is None:
        raise CorpusError(
            f"{model.name}: has no tokenizer beside its weights, which would say what its tokens are. Build a corpus "
            "with the right one (collapselab corpus build TEXT --tokenizer …) and give it with --corpus."
        )
    pointer = _pointer_file(place, name, data)
    if pointer is not None and (folder := _corpus_of(pointer)) is not None:
        return Corpus(folder)
    context = context_of(causal_config(model, place, trust_code=trust_code))
    block = data.block or min(LONGEST_BLOCK, context or LONGEST_BLOCK)
    is_small = data.max_tokens is not None or data.source.provenance["kind"] == "texts"
    share = HELD_OUT if is_small else Recipe.validation_share
    recipe = Recipe(tokenizer=name, block=block, max_tokens=data.max_tokens, validation_share=share)
    source = (
        in_turns(data.source, load_tokenizer(name, trust_code=trust_code), model.name, data.chat)
        if data.chat
        else data.source
    )
    folder = data.cache / _key(_tokenizer_of(name, trust_code=trust_code), source, recipe)
    with locked(folder.with_suffix(".lock"), wait=True):
        is_there = (folder / CORPUS).exists()
        corpus = Corpus(folder) if is_there else build_corpus(source, folder, recipe, trust_code=trust_code)
    if pointer is not None:
        write_document(pointer, {"corpus": folder.name})
    return corpus


def role_of(chat: bool | str) -> Role | None:
    """Whose turn each text is: a user's where `chat` is True, none where it is False."""
    if isinstance(chat, bool):
        return ROLES[0] if chat else None
    if chat not in ROLES:
        raise ConfigError(f"chat: {shown(chat)} is not a role. It is {' or '.join(ROLES)}.")
    return chat


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


_hashes: dict[tuple[str, ...], str] = {}
"""Hashes of tokenizers by those of their files: checkpoints of a sweep share one, and to load it takes a tenth of a
second."""


def _tokenizer_of(name: str, *, trust_code: bool) -> str:
    key = tuple(f"{file.name} {sha256(file)}" for file in _tokenizer_files(Path(name)))
    if not key or key not in _hashes:
        known = tokenizer_hash(load_tokenizer(name, trust_code=trust_code))
        if not key:
            return known
        _hashes[key] = known
    return _hashes[key]


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
