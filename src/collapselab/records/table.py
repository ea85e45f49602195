"""A table as a file: what its columns hold, which rows it may have, and how it is written and read strictly.

A table that is wrong without notice makes a statement that is wrong without notice. So every column must be there
under its name, every number is finite, and no two rows share a key. A value that is missing is an empty cell.
"""

import csv
import io
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar, final

from collapselab.disk import read_bytes, write_bytes
from collapselab.errors import RunError

if TYPE_CHECKING:
    import pandas as pd

LONGEST = 60
"""Characters of a cell that a message shows."""

Lines = list[tuple[int, list[str]]]
"""The cells of every line, with its number in the file."""


def table_bytes(columns: Sequence[str], lines: Iterable[Iterable[object]]) -> bytes:
    """A table as the bytes of its file; None is empty, a float has the digits that give the same float back."""
    return "".join(",".join(map(_written, row)) + "\n" for row in (columns, *lines)).encode()


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


LARGEST = 2**63 - 1
"""Of a count: what the libraries that read these tables can hold."""

Cell = str | int | float | None
Cells = Mapping[str, Cell]
RowT = TypeVar("RowT")


class Kind(StrEnum):
    """What the cells of a column hold. Names and versions are never empty; cells of the other kinds may be."""

    NAME = "name"
    TEXT = "text"
    COUNT = "count"
    VERSION = "version"
    NUMBER = "number"
    AMOUNT = "amount"
    """A number that is not below 0."""


TEXTS, COUNTS, NUMBERS = (Kind.NAME, Kind.TEXT), (Kind.COUNT, Kind.VERSION), (Kind.NUMBER, Kind.AMOUNT)


@final
@dataclass(frozen=True)
class Column:
    """What the cells of a column hold, and what they mean; the documentation of files is made from it."""

    kind: Kind
    meaning: str
    later: bool = False
    """Whether tables of earlier versions lack it; it is empty there."""


@final
@dataclass(frozen=True)
class Table(Generic[RowT]):
    """One table: `about` says what a row is, `key` names the columns that no two rows share.

    `row` makes a row of its cells, given by name: a TypedDict, or a frozen dataclass that checks its own cells. Dicts
    may have further columns where `further` says after which column they go; `further_kind` says of each what it holds,
    text unless it says otherwise. `check` finds
    two rows that must not be in one table, and says why. A folder of tables always has those that are `required`.
    """

    name: str
    about: str
    columns: Mapping[str, Column]
    key: tuple[str, ...]
    row: Callable[..., RowT]
    further: str | None = None
    further_kind: Callable[[str], Kind] = lambda name: Kind.TEXT
    required: bool = False
    check: Callable[[Sequence[RowT]], tuple[int, int, str] | None] = lambda rows: None
    upgraded: Callable[[dict[str, Cell]], dict[str, Cell]] = lambda cells: cells
    """Converts the cells of a row that an earlier version wrote."""

    @property
    def file(self) -> str:
        return f"{self.name}.csv"

    def write(self, path: str | Path, rows: Iterable[RowT]) -> None:
        """Write the table, whole or not at all."""
        write_bytes(path, self.content(rows, path))

    def read(self, path: str | Path) -> list[RowT]:
        """The rows of a file; RunError names the line and column of what is wrong."""
        return self.parse(read_bytes(Path(path)), path)

    def content(self, rows: Iterable[RowT], where: str | Path) -> bytes:
        """The bytes of the file that holds these rows."""
        rows = list(rows)
        for row in rows:
            self.check_row(row)
        lines = [self.cells(row) for row in rows]
        self._refuse_duplicates(lines, where)
        columns = self._ordered(lines)
        return table_bytes(columns, ([cells.get(column) for column in columns] for cells in lines))

    def parse(self, content: bytes, where: str | Path) -> list[RowT]:
        """The rows of a file with these contents."""
        header, lines = parse_table(content, where)
        require_columns(where, header, tuple(name for name, column in self.columns.items() if not column.later))
        unknown = [column for column in header if column not in self.columns]
        if unknown and self.further is None:
            hint = nearest(unknown[0], self.columns)
            raise RunError(f"{where}: {shown(unknown[0])} is not a column of {self.file}.{hint}")
        kinds = [self.columns[name].kind if name in self.columns else self.further_kind(name) for name in header]
        rows = []
        for number, line in lines:
            try:
                cells = dict(zip(header, map(cell_of, kinds, header, line), strict=True))
                row = self.row(**self.upgraded(cells))
                self.check_row(row)
                rows.append(row)
            except ValueError as error:
                raise RunError(f"{where}, line {number}: {error}") from error
        numbers = [number for number, _ in lines]
        self._refuse_duplicates([self.cells(row) for row in rows], where, numbers)
        if (conflict := self.check(rows)) is not None:
            first, second, why = conflict
            raise RunError(f"{where}, lines {numbers[first]} and {numbers[second]}: {why}")
        return rows

    def check_row(self, row: RowT) -> None:
        """ValueError unless a dict has every column, each with a value that it can hold."""
        if not isinstance(row, Mapping):
            return
        cells = self.cells(row)
        for name, column in self.columns.items():
            if name not in cells and column.later:
                continue
            if name not in cells:
                whose = cells.get(self.key[0])
                raise ValueError(f"{whose}: no {name}; a row of {self.file} has every column, None where unknown.")
            check_cell(column.kind, name, cells[name])

    def cells(self, row: RowT) -> Cells:
        """The cells of a row by the names of their columns."""
        return row if isinstance(row, Mapping) else vars(row)

    def frame(self, rows: Iterable[RowT]) -> "pd.DataFrame":
        """The rows as a pandas table; what is missing is NaN."""
        import pandas as pd

        lines = [self.cells(row) for row in rows]
        frame = pd.DataFrame(lines, columns=self._ordered(lines))
        types = {name: _FRAME_TYPES[column.kind] for name, column in self.columns.items() if column.kind not in TEXTS}
        return frame.astype(types)

    def _ordered(self, lines: Iterable[Cells]) -> list[str]:
        """The columns as they are written, further ones in their place."""
        further = dict.fromkeys(column for cells in lines for column in cells if column not in self.columns)
        if self.further is None:
            return list(self.columns)
        place = list(self.columns).index(self.further) + 1
        return [*list(self.columns)[:place], *further, *list(self.columns)[place:]]

    def _refuse_duplicates(
        self, lines: Sequence[Cells], where: str | Path, numbers: Sequence[int] | None = None
    ) -> None:
        seen: dict[tuple[Cell, ...], int] = {}
        for place, cells in enumerate(lines):
            key = tuple(cells[column] for column in self.key)
            if key in seen:
                which = f", lines {numbers[seen[key]]} and {numbers[place]}" if numbers else ""
                named = " / ".join(map(str, key))
                raise RunError(f"{where}{which}: two rows for {named}. Each may be there once.")
            seen[key] = place


_FRAME_TYPES = {Kind.COUNT: "Int64", Kind.VERSION: "Int64", Kind.NUMBER: "float64", Kind.AMOUNT: "float64"}


def check_cell(kind: Kind, column: str, value: Cell) -> None:
    """ValueError unless a cell of this kind can hold the value."""
    if value is None:
        if kind in (Kind.NAME, Kind.VERSION):
            raise ValueError(f"{column} is empty.")
        return
    allowed = str if kind in TEXTS else int | float if kind in NUMBERS else int
    if not isinstance(value, allowed) or isinstance(value, bool):
        raise ValueError(f"{column} is {shown(value)}, which is {type(value).__name__}.")
    if isinstance(value, str):
        if not value:
            raise ValueError(f"{column} is empty text; None means nothing.")
        return
    if kind in NUMBERS and not abs(value) <= sys.float_info.max:
        raise ValueError(f"{column} is {shown(value)}. Leave it empty and say why.")
    if kind is not Kind.NUMBER and value < 0:
        raise ValueError(f"{column} is {shown(value)}, below 0.")
    if kind in COUNTS and value > LARGEST:
        raise ValueError(f"{column} is {shown(value)}, above {LARGEST:,}.")


def cell_of(kind: Kind, column: str, text: str) -> Cell:
    """The value of a cell's text; ValueError where it is not of the column's kind."""
    if not text:
        return None
    if kind in TEXTS:
        return text
    try:
        if "_" in text:  # Python's own way to group digits; in a table it is a mistake
            raise ValueError
        return float(text) if kind in NUMBERS else int(text)
    except ValueError:
        what = "a number" if kind in NUMBERS else "an integer"
        raise ValueError(f"{column} is {shown(text)}, not {what}.") from None
