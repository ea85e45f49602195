"""The kinds of column that our tables have, and what a cell of each may hold."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from collapselab.errors import RunError
from collapselab.records.csv_file import shown

NAME, TEXT, COUNT, NUMBER, AMOUNT, VERSION = "name", "text", "count", "number", "amount", "version"
"""Names (text) and versions (counts) must be there; what is of another kind may be empty. An amount is a number that is
not below 0."""
NUMBERS, COUNTS = (NUMBER, AMOUNT), (COUNT, VERSION)
LARGEST = 2**63 - 1
"""Of a count: what the libraries that read these tables can hold."""


def parse_line(where: str | Path, number: int, line: Mapping[str, str], kinds: Mapping[str, str]) -> dict[str, Any]:
    """The values of a line's cells; RunError names the line and the column of what is wrong."""
    values: dict[str, Any] = {}
    for column, text in line.items():
        try:
            values[column] = _value(kinds[column], column, text)
            check_value(kinds[column], column, values[column])
        except ValueError as error:
            raise RunError(f"{where}, line {number}: {error}") from error
    return values


def check_value(kind: str, column: str, value: Any) -> None:
    """ValueError unless a cell of this kind can hold the value."""
    if value is None:
        if kind in (NAME, VERSION):
            raise ValueError(f"{column} is empty.")
        return
    of_kind: bool = isinstance(value, str if kind in (NAME, TEXT) else int | float if kind in NUMBERS else int)
    if not of_kind or isinstance(value, bool):
        raise ValueError(f"{column} is {shown(value)}, which is {type(value).__name__}.")
    if value == "":
        raise ValueError(f"{column} is empty text; None stands for nothing.")
    if kind in NUMBERS and not abs(value) <= sys.float_info.max:
        raise ValueError(f"{column} is {shown(value)}. Leave it empty and say why.")
    if kind in (*COUNTS, AMOUNT) and value < 0:
        raise ValueError(f"{column} is {shown(value)}, below 0.")
    if kind in COUNTS and value > LARGEST:
        raise ValueError(f"{column} is {shown(value)}, above {LARGEST:,}.")


def refuse_duplicates(keys: Sequence[tuple[str, ...]], where: str | Path, lines: Sequence[int] | None = None) -> None:
    """RunError if two rows are about the same thing."""
    seen: dict[tuple[str, ...], int] = {}
    for number, key in enumerate(keys):
        if key in seen:
            found = f", lines {lines[seen[key]]} and {lines[number]}" if lines else ""
            raise RunError(f"{where}{found}: two rows for {' / '.join(key)}. Each may be there once.")
        seen[key] = number


def _value(kind: str, column: str, text: str) -> Any:
    if not text:
        return None
    if kind in (NAME, TEXT):
        return text
    try:
        if "_" in text:  # Python's own way to group digits; in a table it is a slip
            raise ValueError
        return float(text) if kind in NUMBERS else int(text)
    except ValueError:
        what = "a number" if kind in NUMBERS else "an integer"
        raise ValueError(f"{column} is {shown(text)}, not {what}.") from None
