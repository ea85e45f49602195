"""Read documents from files: text, JSON lines, CSV and Parquet, plain or compressed.

A file that can be read only in part is an error and never gives a shorter corpus. Only one document is in memory at a
time, and its size is limited: a compressed file of a few kilobytes can contain a line of many gigabytes.
"""

import codecs
import csv
import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from collapselab.disk import disk_errors
from collapselab.errors import CorpusError
from collapselab.hub import LFS_POINTER
from collapselab.records.options import END_OF_TEXT as END_OF_TEXT
from collapselab.records.options import Reading as Reading

if TYPE_CHECKING:
    import pyarrow.parquet

PARQUET_ROWS = 1024
JSON_ENDINGS = (".jsonl", ".ndjson", ".json")
CSV = {".csv": ",", ".tsv": "\t"}
"""Separators of tables, by suffix."""


def read_documents(path: Path, reading: Reading) -> Iterator[str]:
    """Read the documents of a file in the format of its suffix. Documents of white space only are dropped."""
    readers = {".parquet": _read_parquet, **dict.fromkeys(JSON_ENDINGS, _read_json), **dict.fromkeys(CSV, _read_csv)}
    return cleaned(readers.get(_ending(path), _read_text)(path, reading))


def cleaned(documents: Iterator[str]) -> Iterator[str]:
    """Strip newlines around documents, and drop documents of white space only."""
    for document in documents:
        stripped = document.strip("\n")
        if stripped and not stripped.isspace():
            yield stripped


def check_file(path: Path) -> None:
    """Raise CorpusError for files that are not text, JSON or Parquet."""
    with _compression_errors(path):
        with path.open("rb") as file:
            problem = file_kind(file.read(HEAD_BYTES), pointers_only=_ending(path) == ".parquet" or is_compressed(path))
        if problem is None and _ending(path) != ".parquet":
            with _opened(path) as file:
                problem = file_kind(file.read(HEAD_BYTES))
    if problem is not None:
        raise CorpusError(f"{path}: {problem}")


def is_compressed(path: Path) -> bool:
    """Return whether reading decompresses the file."""
    return path.suffix in _OPENERS


def column_text(row: Mapping[str, object], where: str, reading: Reading) -> str:
    """Return the text of a row of a table; raise CorpusError if it is missing, not text, or too long."""
    if reading.text_column not in row:
        raise _no_column(where, reading.text_column, list(row))
    text = row[reading.text_column]
    if not isinstance(text, str):
        raise CorpusError(f"{where}: column {reading.text_column!r} contains {type(text).__name__}, not text.")
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        if reading.errors == "replace":
            return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        surrogate = f"\\u{ord(text[error.start]):04x}"
        raise CorpusError(
            f"{where}: column {reading.text_column!r} contains the unpaired surrogate {surrogate}. "
            "Use --errors replace to continue."
        ) from error
    if size > reading.max_document:
        raise _too_long(where, reading)
    return text


def _no_column(where: str, column: str, columns: list[str]) -> CorpusError:
    return CorpusError(
        f"{where}: no column {column!r}. The columns are {', '.join(columns)}; choose one with --text-column."
    )


def _read_text(path: Path, reading: Reading) -> Iterator[str]:
    document, size = io.StringIO(), 0
    for number, line, length in _lines(path, reading):
        if line == reading.separator:
            yield document.getvalue()
            document, size = io.StringIO(), 0
            continue
        size += length
        if size > reading.max_document:
            raise _too_long(f"{path}, line {number:,}", reading)
        document.write(line)
        document.write("\n")
    yield document.getvalue()


def _read_csv(path: Path, reading: Reading) -> Iterator[str]:
    csv.field_size_limit(reading.max_document)
    lines = (f"{line}\n" for _, line, _ in _lines(path, reading))
    rows = csv.reader(lines, delimiter=CSV[_ending(path)], strict=True)
    try:
        header = next(rows, [])
        for row in filter(None, rows):
            if len(row) != len(header):
                raise CorpusError(f"{path}, line {rows.line_num:,}: {len(row)} fields, but {len(header)} columns.")
            yield column_text(dict(zip(header, row, strict=True)), f"{path}, line {rows.line_num:,}", reading)
    except csv.Error as error:
        raise CorpusError(
            f"{path}, line {rows.line_num:,}: not a table ({error}). Rename plain text to .txt."
        ) from error


def _read_json(path: Path, reading: Reading) -> Iterator[str]:
    for number, line, _ in _lines(path, reading):
        if not line or line.isspace():
            continue
        where = f"{path}, line {number:,}"
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise CorpusError(
                f"{where}: invalid JSON ({error.msg} at column {error.colno}). Each line must be one object."
            ) from error
        except (ValueError, RecursionError) as error:  # numbers of thousands of digits; thousands of brackets
            raise CorpusError(f"{where}: JSON that cannot be read ({error}). Each line must be one object.") from error
        if not isinstance(row, dict):
            raise CorpusError(f"{where}: {type(row).__name__}, not an object with a column {reading.text_column!r}.")
        yield column_text(row, where, reading)


def _read_parquet(path: Path, reading: Reading) -> Iterator[str]:
    import pyarrow
    import pyarrow.parquet

    column = reading.text_column
    try:
        with disk_errors(path, reading=True):
            _check_schema(path, pyarrow.parquet.read_schema(path), column)
        # Read as a dictionary, repeated texts take memory once: a small file cannot expand by repetition.
        with pyarrow.parquet.ParquetFile(path, read_dictionary=[column]) as table:
            number = 0
            for batch in table.iter_batches(batch_size=PARQUET_ROWS, columns=[column]):
                for value in batch.column(column):
                    where = f"{path}, row {number:,}"
                    yield column_text({column: _plain(value, where, reading)}, where, reading)
                    number += 1
    except (pyarrow.ArrowException, OSError) as error:
        cause = (str(error).splitlines() or [type(error).__name__])[0]
        raise CorpusError(f"{path}: not a complete Parquet file ({cause}).") from error


def _check_schema(path: Path, schema: "pyarrow.Schema", column: str) -> None:
    from pyarrow import types

    if column not in schema.names:
        raise _no_column(str(path), column, schema.names)
    if schema.names.count(column) > 1:
        raise CorpusError(f"{path}: {schema.names.count(column)} columns are named {column!r} instead of one.")
    kind = schema.field(column).type
    kind = kind.value_type if types.is_dictionary(kind) else kind
    if not (types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)):
        raise CorpusError(f"{path}: column {column!r} contains {kind}, not text. Choose another with --text-column.")


def _plain(value: "pyarrow.Scalar", where: str, reading: Reading) -> str | None:
    """Convert a Parquet text to a string, with invalid bytes refused or replaced; None for a null value."""
    import pyarrow

    value = value.value if isinstance(value, pyarrow.DictionaryScalar) and value.is_valid else value
    if not value.is_valid:
        return None
    raw = value.as_buffer()
    if raw.size > reading.max_document:
        raise _too_long(where, reading)
    try:
        return str(raw.to_pybytes(), "utf-8", reading.errors)
    except UnicodeDecodeError as error:
        raise CorpusError(f"{where}: the text is not UTF-8. Use --errors replace to continue.") from error


def _lines(path: Path, reading: Reading) -> Iterator[tuple[int, str, int]]:
    """Iterate over (number, text without line end, size in bytes) of the lines of a file."""
    position = number = 0
    with _compression_errors(path), _opened(path) as file:
        while raw := file.readline(reading.max_document + 3):
            if not number:
                position = len(raw) - len(raw := raw.removeprefix(codecs.BOM_UTF8))
            number += 1
            if len(raw) > reading.max_document + 2:  # the line end is not part of the document
                raise _too_long(f"{path}, line {number:,}", reading)
            if reading.errors == "strict" and b"\0" in raw:
                where = position + raw.index(b"\0")
                raise CorpusError(
                    f"{path}: zero byte at position {where:,}; this is a binary file, not text. Remove it from the "
                    "folder, or name the text files."
                )
            try:
                line = raw.decode("utf-8", reading.errors)
            except UnicodeDecodeError as error:
                where = position + error.start
                raise CorpusError(
                    f"{path}: byte {raw[error.start]:#04x} at position {where:,} (line {number:,}) is not UTF-8. "
                    "Use --errors replace to continue."
                ) from error
            position += len(raw)
            yield number, line.removesuffix("\n").removesuffix("\r"), len(raw)


def _too_long(where: str, reading: Reading) -> CorpusError:
    limit = reading.max_document / 1e6
    return CorpusError(
        f"{where}: a document is larger than {limit:g} MB. Raise the limit with --max-document (in bytes; memory use "
        "is many times as high), or separate the documents: --separator '' splits at empty lines."
    )


@contextmanager
def _compression_errors(path: Path) -> Iterator[None]:
    """Convert errors of the disk and of decompression to user errors that name the file."""
    try:
        with disk_errors(path, reading=True):
            yield
    except (EOFError, zlib.error, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise CorpusError(f"{path}: the compressed file is damaged or incomplete ({error}).") from error


def _ending(path: Path) -> str:
    return path.with_suffix("").suffix if is_compressed(path) else path.suffix


def _opened(path: Path) -> io.BufferedIOBase:
    return _OPENERS[path.suffix](path) if is_compressed(path) else path.open("rb")


def _open_zstd(path: Path) -> io.BufferedIOBase:
    import pyarrow

    # It refuses a file that is cut off or goes on after its frames, which zstandard reads without an error.
    return io.BufferedReader(pyarrow.input_stream(str(path), compression="zstd"))


_OPENERS: dict[str, Callable[[Path], io.BufferedIOBase]] = {".gz": gzip.GzipFile, ".zst": _open_zstd}


HEAD_BYTES = 512

_OTHER = "Remove it from the folder, or name the text files."
_PACKED = "Unpack it, and name the text files."
_KINDS: dict[bytes, tuple[str, str]] = {
    b"\x89PNG\r\n\x1a\n": ("a PNG image", _OTHER),
    b"\xff\xd8\xff": ("a JPEG image", _OTHER),
    b"%PDF-": ("a PDF document", "Extract its text into a file, and name that."),
    b"PK\x03\x04": ("a ZIP archive (or an office document, which is one)", _PACKED),
    b"BZh91AY&SY": ("a bzip2 file", _PACKED),
    b"\xfd7zXZ\x00": ("an xz file", _PACKED),
    b"\x1f\x8b\x08": ("a gzip file", "Rename it to end in .gz."),
    b"\x28\xb5\x2f\xfd": ("a Zstandard file", "Rename it to end in .zst."),
    b"PAR1\x15": ("a Parquet file", "Rename it to end in .parquet."),
    **{
        mark: (f"text in {encoding}", f"Convert it to UTF-8: iconv -f {encoding} -t UTF-8 FILE > NEW.")
        for mark, encoding in (
            (codecs.BOM_UTF32_LE, "UTF-32"),  # begins like that of UTF-16
            (codecs.BOM_UTF32_BE, "UTF-32"),
            (codecs.BOM_UTF16_LE, "UTF-16"),
            (codecs.BOM_UTF16_BE, "UTF-16"),
        )
    },
}


def file_kind(head: bytes, *, pointers_only: bool = False) -> str | None:
    """Return the kind of a file with these first bytes and a remedy, or None if it may be text."""
    if head.startswith(LFS_POINTER):
        return "a git-LFS pointer to a file that was not downloaded. Run: git lfs pull."
    if pointers_only:
        return None
    for beginning, (kind, advice) in _KINDS.items():
        if head.startswith(beginning):
            return f"{kind}, not UTF-8 text. {advice}"
    if 0 < int.from_bytes(head[:8], "little") < 1 << 32 and head[8:10] == b'{"':
        return f"a safetensors file of weights, not UTF-8 text. {_OTHER}"
    return f"a tar archive, not UTF-8 text. {_PACKED}" if head[257:262] == b"ustar" else None
