"""A table of comma-separated values: how it is written, and how it is read strictly.

A file is read once, as bytes, so that what is parsed is what was hashed. What is wrong in it is an error that names the
line and the column.
"""

import csv
import io
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path

from collapselab.disk import disk_errors, written_whole
from collapselab.errors import RunError

LONGEST = 60
"""Characters of a cell that a message shows."""

Lines = list[tuple[int, list[str]]]
"""The cells of every line, with its number in the file."""


def table_bytes(columns: Sequence[str], lines: Iterable[Iterable[object]]) -> bytes:
    """A table as the bytes of its file; None is empty, a float has the digits that give the same float back."""
    return "".join(",".join(map(_written, row)) + "\n" for row in (columns, *lines)).encode()


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write a file whole or not at all; one that holds these bytes already is left alone."""
    path = Path(path)
    if path.is_file() and read_bytes(path) == content:
        return
    with written_whole(path) as temporary:
        temporary.write_bytes(content)


def read_bytes(path: Path) -> bytes:
    """The contents of a table's file; RunError if it is not there."""
    if not path.is_file():
        raise RunError(f"{path}: no such file.")
    with disk_errors(path, reading=True):
        return path.read_bytes()


def parse_table(content: bytes, where: str | Path) -> tuple[list[str], Lines]:
    """The names of the columns, and the lines."""
    try:
        reader = csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True)
        header = next(reader, [])
        lines = [(reader.line_num, line) for line in reader if line]
    except (UnicodeDecodeError, csv.Error) as error:
        raise RunError(f"{where}: not a table of comma-separated values ({error}).") from error
    if not header:
        raise RunError(f"{where}: empty; not even the names of the columns are there.")
    if twice := [column for column in header if header.count(column) > 1]:
        raise RunError(f"{where}: column {shown(twice[0])} is there twice.")
    for number, line in lines:
        if len(line) != len(header):
            raise RunError(f"{where}, line {number}: {len(line)} fields in a table of {len(header)} columns.")
    return header, lines


def require_columns(where: str | Path, header: Sequence[str], columns: Sequence[str]) -> None:
    """RunError that names the first of these columns that the table lacks."""
    for column in columns:
        if column not in header:
            strangers = [name for name in header if name not in columns]
            raise RunError(f"{where}: no column {column!r}.{nearest(column, strangers)}")


def nearest(name: str, candidates: Iterable[str]) -> str:
    """A hint at the name that was probably meant; empty if there is none."""
    near = get_close_matches(name, list(candidates), n=1)
    return f" The nearest is {near[0]!r}." if near else ""


def shown(text: object) -> str:
    """A value as a message shows it, shortened if it is long."""
    whole = repr(text)
    return whole if len(whole) <= LONGEST else f"{whole[:LONGEST]} … ({len(whole):,} characters)"


def _written(value: object) -> str:
    """A cell as it is in the file. The library's writer leaves a carriage return bare, and its reader breaks there."""
    text = "" if value is None else repr(float(value)) if isinstance(value, float) else str(value)
    return '"' + text.replace('"', '""') + '"' if any(sign in text for sign in ',"\r\n') else text
