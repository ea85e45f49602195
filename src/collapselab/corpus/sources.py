"""Sources of documents: embedded stories and chains, files, and data sets of the Hugging Face hub.

To add a source, write a function of its name and add it to `SOURCES` under the prefix of its name.

A source has a stream of training documents and possibly one of validation documents. Streams can be opened repeatedly
(a tokenizer is trained in a first pass) and are never in memory as a whole. Newlines around documents are stripped,
and documents of white space only are dropped. If files contain only one document, it is split into paragraphs, or into
a first and a last part, so that there is a validation split.
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

from collapselab.corpus import markov, storyworld
from collapselab.corpus.readers import (
    END_OF_TEXT,
    Reading,
    check_file,
    cleaned,
    column_text,
    is_compressed,
    read_documents,
)
from collapselab.disk import disk_errors, sha256
from collapselab.errors import CorpusError, did_you_mean
from collapselab.hub import hub_answers
from collapselab.messages import logger

log = logger(__name__)

__all__ = ["END_OF_TEXT", "Documents", "Reading", "Source", "open_source"]

ALIASES = {"tinystories": "hf:roneneldan/TinyStories"}
VALIDATION_SHARE = 0.02
MIN_PARAGRAPHS = 10
"""Expected number of paragraphs that each split must have for paragraphs to be documents."""


@dataclass(frozen=True)
class Documents:
    """A stream of documents that can be opened repeatedly.

    `total` is its length in `unit`s for the progress bar, None if unknown.
    """

    open: Callable[[], Iterator[str]]
    total: int | None
    unit: str
    size: Callable[[str], int] = lambda document: 1


@dataclass(frozen=True)
class Source:
    """Training documents, validation documents if the source has a validation split, and their provenance."""

    train: Documents
    validation: Documents | None
    provenance: dict[str, JsonValue]
    words: tuple[str, ...] | None = None
    """All words of a source that defines its own tokens, by id; only the tokenizer `words` can encode it."""
    joined: bool = False
    """Whether documents are pieces of one text, with no separator between them."""
    write: Callable[[Path], None] | None = None
    """Writes further files of the source to the folder of its corpus."""
    folder: str | None = None
    """Name of the folder that all files are from. It is not in `provenance`: moved files are the same text."""

    @property
    def split(self) -> str | None:
        """How one text was split into documents; None if it was not split."""
        words = self.provenance.get("split")
        return None if words is None else str(words)


def open_source(
    names: list[str],
    *,
    validation: list[str] | None = None,
    reading: Reading | None = None,
    validation_share: float = VALIDATION_SHARE,
) -> Source:
    """Open a source by name: `storyworld[:…]`, `markov[:…]`, `hf:NAME[:CONFIG]`, an alias, or files and folders.

    >>> from collapselab import open_source
    >>> source = open_source(["storyworld:stories=20,validation=4"])
    >>> len(list(source.train.open()))
    20

    `validation_share` is the part that is held out if the files contain only one text.
    """
    reading, asked = reading or Reading(), names
    first = ALIASES.get(names[0], names[0])
    open_named = SOURCES.get(first.partition(":")[0])
    if open_named is not None and len(names) > 1:
        raise CorpusError(f"{names[0]}: cannot be combined with {', '.join(names[1:])}. Give it alone.")
    if open_named is None and not validation and (splits := _splits_of_folder(names)):
        names, validation = splits
    source = _files(names, reading) if open_named is None else open_named(first, reading)
    if open_named is None and len(asked) == 1 and Path(asked[0]).is_dir():
        source = replace(source, folder=Path(asked[0]).resolve().name)
    if (reading.split or reading.revision) and source.provenance["kind"] != "hub":
        raise CorpusError(f"{names[0]}: only a data set of the hub (hf:NAME) has a split or revision to choose.")
    if validation:
        given = _files(validation, reading)
        if source.words is not None:
            raise CorpusError(f"{names[0]}: defines its own tokens, so other files cannot be its validation split.")
        if _file_hashes(source) & _file_hashes(given):
            log.warning("%s: the same file is training and validation data; use held-out text.", validation[0])
        return replace(
            source, validation=given.train, provenance={**source.provenance, "validation": given.provenance["files"]}
        )
    is_splittable = source.provenance["kind"] == "files" and reading.separator is not None
    return _split_one_text(source, validation_share) if is_splittable else source


def _storyworld(name: str, reading: Reading) -> Source:
    settings = {"stories": 20000, "seed": 0, "validation": 1000}
    for part in filter(None, name.partition(":")[2].split(",")):
        key, _, value = part.partition("=")
        if key not in settings or not re.fullmatch("[0-9]{1,18}", value):
            raise CorpusError(
                f"{name}: {part!r} is an unknown setting or has an invalid number. Write "
                "storyworld:stories=20000,seed=0,validation=1000."
            )
        settings[key] = int(value)
    if not settings["stories"] or not settings["validation"]:
        raise CorpusError(f"{name}: stories and validation must be ≥ 1.")

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
        raise CorpusError(f"{name}: no data set is named. Write hf:NAME or hf:NAME:CONFIG, or ./{name} for a folder.")
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
        raise CorpusError(f"{name}: no split {training!r}. The splits are {', '.join(splits)}.")

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
    """Return a source of documents that are in memory."""
    if not given:
        raise CorpusError("data: an empty list of texts.")
    texts: list[str] = []
    digest = hashlib.sha256()
    for number, text in enumerate(given):
        if not isinstance(text, str):
            raise CorpusError(f"data: text {number} is {type(text).__name__}, not a string.")
        texts.append(text)
        digest.update(f"{len(text)} {text}".encode("utf-8", "surrogatepass"))
    provenance: dict[str, JsonValue] = {"kind": "texts", "documents": len(texts), "sha256": digest.hexdigest()}
    return Source(Documents(lambda: cleaned(iter(texts)), len(texts), "documents"), None, provenance)


SPLIT_NAMES = re.compile(r"(?:(?P<train>train)|validation|valid|val|dev)(?![A-Za-z])")
"""Prefixes of the names of files that are one split of a folder."""

SOURCES: dict[str, Callable[[str, Reading], Source]] = {"storyworld": _storyworld, "markov": _markov, "hf": _hub}


def _files(names: list[str], reading: Reading) -> Source:
    paths = [path for name in names for path in _expanded(name)]
    if not paths:
        raise CorpusError("no source was named.")
    files: list[JsonValue] = []
    for path in paths:
        check_file(path)
    for path in paths:
        with disk_errors(path, reading=True):
            files.append({"name": path.name, "bytes": path.stat().st_size, "sha256": sha256(path)})
    compressed = any(is_compressed(path) or path.suffix == ".parquet" for path in paths)
    total = None if compressed else sum(path.stat().st_size for path in paths)
    provenance: dict[str, JsonValue] = {
        "kind": "files",
        "files": files,
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


def _file_hashes(source: Source) -> set[JsonValue]:
    files = source.provenance.get("files")
    return {file["sha256"] for file in files if isinstance(file, dict)} if isinstance(files, list) else set()


def _splits_of_folder(names: list[str]) -> tuple[list[str], list[str]] | None:
    """Return the files of each split if the names of all files in a folder say it, as in train.txt, validation.txt."""
    if len(names) != 1 or not Path(names[0]).is_dir():
        return None
    files = _expanded(names[0])
    split = {file: SPLIT_NAMES.match(file.name) for file in files}
    if not all(split.values()):
        return None
    training = [str(file) for file, match in split.items() if match and match["train"]]
    held_out = [str(file) for file in files if str(file) not in training]
    return (training, held_out) if training and held_out else None


def _expanded(name: str) -> list[Path]:
    """Return a file, or all files below a folder."""
    path = Path(name)
    with disk_errors(path, reading=True):
        if path.is_dir():
            found_files = (Path(parent) / file for parent, _, files in os.walk(path, onerror=_raise) for file in files)
            files = sorted(file for file in found_files if file.is_file() and not file.name.startswith("."))
            if not files:
                raise CorpusError(f"{path}: the folder is empty.")
            return files
        if not path.exists():
            known = ", ".join([*SOURCES, *ALIASES])
            hint = did_you_mean(name, [source.partition(":")[0] for source in (*SOURCES, *ALIASES)])
            raise CorpusError(f"{name}: no such file. A source is a file, a folder, or one of {known}. {hint}".rstrip())
        if not path.is_file():
            raise CorpusError(f"{name}: neither a file nor a folder. Save its output to a file first.")
        if not path.stat().st_size:
            raise CorpusError(f"{path}: the file is empty.")
    return [path]


def _raise(error: OSError) -> NoReturn:
    """Raise for folders without read permission, which `os.walk` and `rglob` skip by default."""
    raise error


def _split_one_text(source: Source, share: float) -> Source:
    """Split a source with only one document into its paragraphs, or into a first and a last part."""
    texts = list(islice(source.train.open(), 2))
    if len(texts) != 1 or not 0 < share < 1:
        return source
    text = texts[0]
    count = sum(1 for _ in _paragraphs(text))
    if count * min(share, 1 - share) >= MIN_PARAGRAPHS:
        words = f"one text; its {count:,} paragraphs, between empty lines, are the documents"
        paragraphs = replace(
            source.train, open=lambda: (part for text in source.train.open() for part in _paragraphs(text))
        )
        return replace(source, train=paragraphs, provenance={**source.provenance, "split": words})
    cut = _cut(text, share)
    if not text[:cut].strip() or not text[cut:].strip():
        return source
    words = f"one text; its last {1 - cut / len(text):.1%} are held out for validation"
    first, last = (_part(source.train, slice(*ends), text) for ends in ((0, cut), (cut, None)))
    return replace(source, train=first, validation=last, provenance={**source.provenance, "split": words})


def _paragraphs(text: str) -> Iterator[str]:
    return cleaned(iter(re.split(r"\n(?:[ \t]*\n)+", text)))


def _cut(text: str, share: float) -> int:
    """Return where the held-out end of a text starts: near the share, after a line or else after a word.

    At least half of the text must be before it.
    """
    target = round(len(text) * (1 - share))
    for separator in ("\n", " "):
        positions = [text.rfind(separator, 0, target) + 1, text.find(separator, target) + 1]
        positions = [position for position in positions if len(text) <= 2 * position < 2 * len(text)]
        if positions:
            return min(positions, key=lambda position: abs(position - target))
    return target


def _part(documents: Documents, part: slice, text: str) -> Documents:
    total = len(text[part].encode())
    return replace(documents, open=lambda: cleaned(text[part] for text in documents.open()), total=total)
