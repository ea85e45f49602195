"""Where documents come from: the embedded stories, files of several kinds, data sets of the Hugging Face hub.

A source is a training stream of documents and perhaps a validation stream. Streams can be opened again and again (a
tokenizer is trained in a first reading) and are never held in memory as a whole. A document is its text without the
newlines around it; documents of white space alone are dropped.
"""

import gzip
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zstandard

from collapselab.corpus.storyworld import stories as storyworld
from collapselab.disk import sha256
from collapselab.errors import CorpusError

END_OF_TEXT = "<|endoftext|>"
ALIASES = {"tinystories": "hf:roneneldan/TinyStories"}


@dataclass(frozen=True)
class Documents:
    """A stream of documents that can be opened anew; `total` counts `unit`s for the progress bar, None if unknown."""

    open: Callable[[], Iterator[str]]
    total: int | None
    unit: str
    size: Callable[[str], int] = lambda document: 1


@dataclass(frozen=True)
class Source:
    """Training documents, validation documents where the source has its own, and where they come from."""

    train: Documents
    validation: Documents | None
    provenance: dict[str, Any]


@dataclass(frozen=True)
class Reading:
    """How files are read: the column of tables, what separates documents of text, what to do with broken bytes."""

    text_column: str = "text"
    separator: str | None = END_OF_TEXT
    errors: str = "strict"


def open_source(names: list[str], *, validation: list[str] | None = None, reading: Reading | None = None) -> Source:
    """The source of that name: `storyworld[:stories=N,seed=S]`, `hf:NAME[:CONFIG]`, an alias, or files and folders."""
    reading = reading or Reading()
    first = ALIASES.get(names[0], names[0])
    if first.partition(":")[0] == "storyworld" or first.startswith("hf:"):
        if len(names) > 1:
            raise CorpusError(f"{names[0]}: stands alone; it cannot be joined with {', '.join(names[1:])}.")
        source = _storyworld(first) if first.startswith("storyworld") else _hub(first, reading)
    else:
        source = _files(names, reading)
    if validation:
        given = _files(validation, reading)
        return Source(source.train, given.train, {**source.provenance, "validation": given.provenance["files"]})
    return source


def _storyworld(name: str) -> Source:
    settings = {"stories": 20000, "seed": 0, "validation": 1000}
    for part in filter(None, name.partition(":")[2].split(",")):
        key, _, value = part.partition("=")
        if key not in settings or not value.isdigit():
            raise CorpusError(
                f"{name}: {part!r} is not a setting. Write storyworld:stories=20000,seed=0,validation=1000."
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


def _hub(name: str, reading: Reading) -> Source:
    try:
        import datasets
    except ImportError as error:
        raise CorpusError(f"{name}: data sets need the extra `hub`: pip install 'collapselab[hub]'.") from error
    path, _, config = name.removeprefix("hf:").partition(":")
    try:
        splits = datasets.load_dataset(path, config or None, streaming=True)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        cause = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CorpusError(
            f"{name}: cannot be loaded ({cause}). Without a network, give files instead: "
            "collapselab corpus build train.txt --validation validation.txt …"
        ) from error
    if "train" not in splits:
        raise CorpusError(f"{name}: has no split train; it has {', '.join(splits)}.")

    def documents(split: str) -> Documents:
        def read() -> Iterator[str]:
            for number, row in enumerate(splits[split]):
                yield _column(row, reading.text_column, f"{name}, {split} row {number}")

        return Documents(lambda: _clean(read()), None, "documents")

    provenance = {"kind": "hub", "name": path, "config": config or None, "column": reading.text_column}
    return Source(documents("train"), documents("validation") if "validation" in splits else None, provenance)


def _files(names: list[str], reading: Reading) -> Source:
    paths = [path for name in names for path in _expanded(name)]
    if not paths:
        raise CorpusError("no source was named.")

    def read() -> Iterator[str]:
        for path in paths:
            yield from _clean(_read(path, reading))

    hashes = [{"name": path.name, "bytes": path.stat().st_size, "sha256": sha256(path)} for path in paths]
    compressed = any(path.suffix in _OPENERS or ".parquet" in path.suffixes for path in paths)
    total = None if compressed else sum(path.stat().st_size for path in paths)
    provenance = {
        "kind": "files",
        "files": hashes,
        "separator": reading.separator,
        "column": reading.text_column,
        "errors": reading.errors,
    }
    return Source(Documents(read, total, "bytes", lambda text: len(text.encode()) + 1), None, provenance)


def _expanded(name: str) -> list[Path]:
    path = Path(name)
    if path.is_dir():
        found = sorted(entry for entry in path.rglob("*") if entry.is_file() and not entry.name.startswith("."))
        if not found:
            raise CorpusError(f"{path}: the folder is empty.")
        return found
    if not path.is_file():
        known = f"storyworld, {', '.join(ALIASES)}, hf:NAME"
        raise CorpusError(f"{name}: no such file. A source is a file, a folder, or one of {known}.")
    if not path.stat().st_size:
        raise CorpusError(f"{path}: the file is empty.")
    return [path]


def _clean(documents: Iterator[str]) -> Iterator[str]:
    for document in documents:
        stripped = document.strip("\n")
        if stripped and not stripped.isspace():
            yield stripped


def _read(path: Path, reading: Reading) -> Iterator[str]:
    kind = path.with_suffix("").suffix if path.suffix in _OPENERS else path.suffix
    if kind == ".parquet":
        return _read_parquet(path, reading)
    if kind in (".jsonl", ".ndjson", ".json"):
        return _read_json(path, reading)
    return _read_text(path, reading)


def _read_text(path: Path, reading: Reading) -> Iterator[str]:
    lines: list[str] = []
    for _, line in _lines(path, reading.errors):
        if reading.separator is not None and line == reading.separator:
            yield "\n".join(lines)
            lines = []
        else:
            lines.append(line)
    yield "\n".join(lines)


def _read_json(path: Path, reading: Reading) -> Iterator[str]:
    for number, line in _lines(path, reading.errors):
        if not line or line.isspace():
            continue
        where = f"{path}, line {number:,}"
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise CorpusError(
                f"{where}: not JSON ({error.msg} at column {error.colno}). One object a line is needed."
            ) from error
        if not isinstance(row, dict):
            raise CorpusError(f"{where}: {type(row).__name__}, not an object with a column {reading.text_column!r}.")
        yield _column(row, reading.text_column, where)


def _read_parquet(path: Path, reading: Reading) -> Iterator[str]:
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.ParquetFile(path)
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise CorpusError(f"{path}: not a whole Parquet file ({str(error).splitlines()[0]}).") from error
    if reading.text_column not in table.schema_arrow.names:
        raise _no_column(str(path), reading.text_column, table.schema_arrow.names)
    for number, batch in enumerate(table.iter_batches(batch_size=1024, columns=[reading.text_column])):
        for offset, text in enumerate(batch.column(0).to_pylist()):
            yield _column({reading.text_column: text}, reading.text_column, f"{path}, row {1024 * number + offset:,}")


def _column(row: dict[str, Any], column: str, where: str) -> str:
    if column not in row:
        raise _no_column(where, column, list(row))
    text = row[column]
    if not isinstance(text, str):
        raise CorpusError(f"{where}: column {column!r} holds {type(text).__name__}, not text.")
    return text


def _no_column(where: str, column: str, columns: list[str]) -> CorpusError:
    return CorpusError(f"{where}: no column {column!r}. There are {', '.join(columns)}; choose one with --text-column.")


def _lines(path: Path, errors: str) -> Iterator[tuple[int, str]]:
    """Numbered lines without their ends; bytes that are not UTF-8 are an error that says where they are."""
    position = 0
    with _opened(path) as file:
        for number, raw in enumerate(_guarded(file, path), start=1):
            if b"\0" in raw and errors == "strict":
                where = position + raw.index(b"\0")
                raise CorpusError(f"{path}: a zero byte at {where:,}: this is a binary file, not text.")
            try:
                line = raw.decode("utf-8", errors)
            except UnicodeDecodeError as error:
                where = position + error.start
                raise CorpusError(
                    f"{path}: byte {raw[error.start]:#04x} at position {where:,} (line {number:,}) is not UTF-8. "
                    "Go on with --errors replace."
                ) from error
            position += len(raw)
            yield number, line.removesuffix("\n").removesuffix("\r")


def _guarded(file: Any, path: Path) -> Iterator[bytes]:
    try:
        yield from file
    except (EOFError, gzip.BadGzipFile, zstandard.ZstdError) as error:
        raise CorpusError(f"{path}: the compressed file is damaged or cut short ({error}).") from error


def _opened(path: Path) -> Any:
    return _OPENERS[path.suffix](path) if path.suffix in _OPENERS else path.open("rb")


_OPENERS: dict[str, Callable[[Path], Any]] = {
    ".gz": gzip.GzipFile,
    ".zst": lambda path: io.BufferedReader(zstandard.open(path, "rb")),
}
