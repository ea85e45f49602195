"""Where documents come from: embedded stories and chains, files of several kinds, data sets of the Hugging Face hub.

A further source is a function of its name and an entry of `SOURCES`, under what its name begins with.

A source is a training stream of documents and perhaps a validation stream. Streams can be opened again and again (a
tokenizer is trained in a first reading) and are never held in memory as a whole. A document is its text without the
newlines around it; documents of white space alone are dropped. Files that hold one text in all are split, so that
there is something to validate on: into paragraphs, or into a beginning and an end.
"""

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import NoReturn

from pydantic import JsonValue

from collapselab.corpus import markov
from collapselab.corpus.readers import (
    END_OF_TEXT,
    Reading,
    check_file,
    cleaned,
    column_text,
    is_compressed,
    read_documents,
)
from collapselab.corpus.storyworld import stories as storyworld
from collapselab.disk import disk_errors, sha256
from collapselab.errors import CorpusError
from collapselab.hub import hub_answers

__all__ = ["END_OF_TEXT", "Documents", "Reading", "Source", "open_source"]

ALIASES = {"tinystories": "hf:roneneldan/TinyStories"}
VALIDATION_SHARE = 0.02
ENOUGH = 10
"""Paragraphs that either split must have, as expected, for paragraphs to be documents."""


@dataclass(frozen=True)
class Documents:
    """A stream of documents that can be opened again; `total` counts `unit`s for the progress bar, None if unknown."""

    open: Callable[[], Iterator[str]]
    total: int | None
    unit: str
    size: Callable[[str], int] = lambda document: 1


@dataclass(frozen=True)
class Source:
    """Training documents, validation documents where the source has its own, and where they come from."""

    train: Documents
    validation: Documents | None
    provenance: dict[str, JsonValue]
    words: tuple[str, ...] | None = None
    """All words of a source that has tokens of its own, by their ids: it is built with the tokenizer `words` alone."""
    joined: bool = False
    """Whether documents are pieces of one text, with no mark between them."""
    write: Callable[[Path], None] | None = None
    """Puts what else is known of the source into the folder of its corpus."""

    @property
    def split(self) -> str | None:
        """How one text was split into documents, in words; None where documents are as they came."""
        words = self.provenance.get("split")
        return None if words is None else str(words)


def open_source(
    names: list[str],
    *,
    validation: list[str] | None = None,
    reading: Reading | None = None,
    validation_share: float = VALIDATION_SHARE,
) -> Source:
    """The source of that name: `storyworld[:…]`, `markov[:…]`, `hf:NAME[:CONFIG]`, an alias, or files and folders.

    >>> from collapselab import open_source
    >>> source = open_source(["storyworld:stories=20,validation=4"])
    >>> len(list(source.train.open()))
    20

    `validation_share` is the part of one text that is held out, where all the files hold is one text.
    """
    reading = reading or Reading()
    first = ALIASES.get(names[0], names[0])
    open_named = SOURCES.get(first.partition(":")[0])
    if open_named is not None and len(names) > 1:
        raise CorpusError(f"{names[0]}: cannot be joined with {', '.join(names[1:])}. Name it alone.")
    if open_named is None and not validation and (splits := _splits_of_folder(names)):
        names, validation = splits
    source = _files(names, reading) if open_named is None else open_named(first, reading)
    if (reading.split or reading.revision) and source.provenance["kind"] != "hub":
        raise CorpusError(f"{names[0]}: has no split or revision to choose; only a data set of the hub (hf:NAME) has.")
    if validation:
        given = _files(validation, reading)
        if source.words is not None:
            raise CorpusError(f"{names[0]}: has tokens of its own; no other text can validate it.")
        return Source(source.train, given.train, {**source.provenance, "validation": given.provenance["files"]})
    is_splittable = source.provenance["kind"] == "files" and reading.separator is not None
    return _split_one_text(source, validation_share) if is_splittable else source


def _storyworld(name: str, reading: Reading) -> Source:
    settings = {"stories": 20000, "seed": 0, "validation": 1000}
    for part in filter(None, name.partition(":")[2].split(",")):
        key, _, value = part.partition("=")
        if key not in settings or not re.fullmatch("[0-9]{1,18}", value):
            raise CorpusError(
                f"{name}: {part!r} is not a setting, or not a number of at most 18 digits. Write "
                "storyworld:stories=20000,seed=0,validation=1000."
            )
        settings[key] = int(value)
    if not settings["stories"] or not settings["validation"]:
        raise CorpusError(f"{name}: at least one story of each split is needed.")

    def documents(split: str, count: int) -> Documents:
        return Documents(lambda: storyworld.stories(count, seed=settings["seed"], split=split), count, "stories")

    return Source(
        documents("train", settings["stories"]),
        documents("validation", settings["validation"]),
        {"kind": "storyworld", **settings},
    )


def _markov(name: str, reading: Reading) -> Source:
    settings = markov.Settings.parsed(name)
    chain = markov.Chain.drawn(settings)

    def documents(split: str, tokens: int) -> Documents:
        return Documents(lambda: chain.documents(split), tokens, "tokens", lambda text: text.count(" ") + 1)

    return Source(
        documents("train", settings.tokens),
        documents("validation", settings.validation),
        {"kind": "markov", **asdict(settings)},
        words=markov.words(settings),
        joined=True,
        write=chain.write,
    )


def _hub(name: str, reading: Reading) -> Source:
    try:
        import datasets
    except ImportError as error:
        raise CorpusError(f"{name}: data sets need the extra `hub`: pip install 'collapselab[hub]'.") from error
    path, _, config = name.removeprefix("hf").removeprefix(":").partition(":")
    if not path:
        raise CorpusError(f"{name}: names no data set. Write hf:NAME or hf:NAME:CONFIG; a folder is ./{name}.")
    try:
        if not Path(path).exists() and not hub_answers():
            raise ConnectionError("the hub cannot be reached")
        splits = datasets.load_dataset(path, config or None, revision=reading.revision, streaming=True)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        cause = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CorpusError(
            f"{name}: cannot be loaded ({cause}). Without a network, give files instead: "
            "collapselab corpus build train.txt --validation validation.txt …"
        ) from error
    training = reading.split or "train"
    if training not in splits:
        raise CorpusError(f"{name}: has no split {training}; it has {', '.join(splits)}.")

    def documents(split: str) -> Documents:
        def read() -> Iterator[str]:
            for number, row in enumerate(splits[split]):
                yield column_text(row, f"{name}, {split} row {number}", reading)

        return Documents(lambda: cleaned(read()), None, "documents")

    provenance: dict[str, JsonValue] = {
        "kind": "hub",
        "name": path,
        "config": config or None,
        "column": reading.text_column,
        **{key: value for key in ("split", "revision") if (value := getattr(reading, key)) is not None},
    }
    has_validation = reading.split is None and "validation" in splits
    return Source(documents(training), documents("validation") if has_validation else None, provenance)


def source_of_texts(given: Sequence[object]) -> Source:
    """Documents that are in memory already."""
    texts = [text for text in given if isinstance(text, str)]
    if not given:
        raise CorpusError("data: an empty list of texts.")
    for number, text in enumerate(given):
        if not isinstance(text, str):
            raise CorpusError(f"data: text {number} is {type(text).__name__}, not a string.")
    digest = hashlib.sha256()
    for text in texts:
        digest.update(f"{len(text)} {text}".encode("utf-8", "surrogatepass"))
    provenance: dict[str, JsonValue] = {"kind": "texts", "documents": len(texts), "sha256": digest.hexdigest()}
    return Source(Documents(lambda: cleaned(iter(texts)), len(texts), "documents"), None, provenance)


SPLIT_NAMES = re.compile(r"(?:(?P<train>train)|validation|valid|val|dev)(?![A-Za-z])")
"""How the names of files begin that are one split of a folder."""

SOURCES: dict[str, Callable[[str, Reading], Source]] = {"storyworld": _storyworld, "markov": _markov, "hf": _hub}


def _files(names: list[str], reading: Reading) -> Source:
    paths = [path for name in names for path in _expanded(name)]
    if not paths:
        raise CorpusError("no source was named.")
    for path in paths:
        check_file(path)

    compressed = any(is_compressed(path) or path.suffix == ".parquet" for path in paths)
    total = None if compressed else sum(path.stat().st_size for path in paths)
    provenance: dict[str, JsonValue] = {
        "kind": "files",
        "files": [_file_facts(path) for path in paths],
        "separator": reading.separator,
        "column": reading.text_column,
        "errors": reading.errors,
    }
    documents = Documents(
        lambda: chain.from_iterable(read_documents(path, reading) for path in paths),
        total,
        "bytes",
        lambda text: len(text.encode()) + 1,
    )
    return Source(documents, None, provenance)


def _splits_of_folder(names: list[str]) -> tuple[list[str], list[str]] | None:
    """The files of a folder that all say by their names which split they are, as in train.txt and validation.txt."""
    if len(names) != 1 or not Path(names[0]).is_dir():
        return None
    files = _expanded(names[0])
    split = {file: SPLIT_NAMES.match(file.name) for file in files}
    if not all(split.values()):
        return None
    training = [str(file) for file, match in split.items() if match and match["train"]]
    held_out = [str(file) for file in files if str(file) not in training]
    return (training, held_out) if training and held_out else None


def _file_facts(path: Path) -> dict[str, JsonValue]:
    with disk_errors(path, reading=True):
        return {"name": path.name, "bytes": path.stat().st_size, "sha256": sha256(path)}


def _expanded(name: str) -> list[Path]:
    path = Path(name)
    with disk_errors(path, reading=True):
        if path.is_dir():
            files = sorted(file for file in _walk(path) if file.is_file() and not file.name.startswith("."))
            if not files:
                raise CorpusError(f"{path}: the folder is empty.")
            return files
        if not path.exists():
            known = ", ".join([*SOURCES, *ALIASES])
            raise CorpusError(f"{name}: no such file. A source is a file, a folder, or one of {known}.")
        if not path.is_file():
            raise CorpusError(f"{name}: neither a file nor a folder. Save what it gives in a file first.")
        if not path.stat().st_size:
            raise CorpusError(f"{path}: the file is empty.")
    return [path]


def _walk(folder: Path) -> Iterator[Path]:
    """All files below a folder; one that may not be read is an error, where `rglob` would leave it out."""

    def refuse(error: OSError) -> NoReturn:
        raise error

    for place, _, files in os.walk(folder, onerror=refuse):
        yield from (Path(place) / file for file in files)


def _split_one_text(source: Source, share: float) -> Source:
    """The source as it is, or, where it holds one text in all, its paragraphs, or its beginning and its end."""
    texts = list(islice(source.train.open(), 2))
    if len(texts) != 1 or not 0 < share < 1:
        return source
    text = texts[0]
    count = sum(1 for _ in _paragraphs(text))
    if count * min(share, 1 - share) >= ENOUGH:
        words = f"one text; its {count:,} paragraphs, between empty lines, are the documents"
        paragraphs = replace(
            source.train, open=lambda: (part for text in source.train.open() for part in _paragraphs(text))
        )
        return Source(paragraphs, None, {**source.provenance, "split": words})
    cut = _cut(text, share)
    if not text[:cut].strip() or not text[cut:].strip():
        return source
    words = f"one text; its last {1 - cut / len(text):.1%} are held out for validation"
    begin, end = (_part(source.train, slice(*ends), text) for ends in ((0, cut), (cut, None)))
    return Source(begin, end, {**source.provenance, "split": words})


def _paragraphs(text: str) -> Iterator[str]:
    return cleaned(iter(re.split(r"\n(?:[ \t]*\n)+", text)))


def _cut(text: str, share: float) -> int:
    """Where the held-out end of a text begins: after a line, else after a word, near the share.

    The end of a line is taken only if half of the text or more is before it.
    """
    wanted = round(len(text) * (1 - share))
    for mark in ("\n", " "):
        places = [text.rfind(mark, 0, wanted) + 1, text.find(mark, wanted) + 1]
        places = [place for place in places if len(text) <= 2 * place < 2 * len(text)]
        if places:
            return min(places, key=lambda place: abs(place - wanted))
    return wanted


def _part(documents: Documents, part: slice, text: str) -> Documents:
    total = len(text[part].encode())
    return replace(documents, open=lambda: cleaned(text[part] for text in documents.open()), total=total)
