"""Tables as files: CSV for short tables, Parquet for long ones, with typed columns that are validated when read.

An error in a table would lead to a wrong conclusion without notice. So every column must be present, every number
finite and every key unique. A missing value is an empty cell.

The columns of a table are the annotated fields of its row, a TypedDict or a pydantic dataclass. A `NotRequired` field
is a column that was added later and that tables of earlier versions lack.

The rows of a `ColumnTable` are processed in chunks, each an Arrow table. A chunk on disk is a `StoredChunk`, which is
read when it is needed.
"""

import csv
import hashlib
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Generic,
    NotRequired,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from collapselab.disk import read_bytes, write_bytes
from collapselab.errors import DamagedError, RunError, did_you_mean

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

Name = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(ge=0, le=2**63 - 1)]
"""A count that fits into 64 bits, as pandas and Arrow need it."""
Number = Annotated[float, Field(allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]

Cell = str | int | float | None
Cells = Mapping[str, Cell]
RowT = TypeVar("RowT")
Lines = list[tuple[int, list[str]]]
"""The number of each line in the file, and its cells."""
Chunk = Any
"""An Arrow table, or a `StoredChunk`."""

SHOWN_LENGTH = 60
"""Maximum number of characters of a cell in a message."""


def row_type(columns: Mapping[str, Any], *, total: bool = True) -> Any:
    """Return a TypedDict with these columns; `total` requires every row to have all of them."""
    make: Any = TypedDict  # mypy accepts literal fields only.
    return make("Row", dict(columns), total=total)


def base_type(hint: Any) -> type:
    """Return the plain type of the cells of a column: str, int or float."""
    while get_origin(hint) is not None:
        hint = get_args(hint)[0]
    return hint if isinstance(hint, type) else type(hint)  # what is left of a Literal is one of its values


@dataclass(frozen=True)
class _AnyTable(Generic[RowT]):
    """A table; the docstring of `row` says what a row is, and the columns `key` identify a row."""

    name: str
    row: Callable[..., RowT]
    key: tuple[str, ...]
    suffix: ClassVar[str]

    @property
    def file(self) -> str:
        return f"{self.name}{self.suffix}"

    @property
    def about(self) -> str:
        """The first sentence of the row's docstring."""
        return str(self.row.__doc__).partition("\n")[0]

    @cached_property
    def columns(self) -> dict[str, Any]:
        """The type of each column."""
        hints = get_type_hints(self.row, include_extras=True)
        return {name: get_args(hint)[0] if get_origin(hint) is NotRequired else hint for name, hint in hints.items()}

    def write(self, path: str | Path, rows: Iterable[RowT]) -> str:
        """Write the table atomically and return the sha256 of the file."""
        content = self.content(rows, path)
        write_bytes(path, content)
        return hashlib.sha256(content).hexdigest()

    def read(self, path: str | Path) -> list[RowT]:
        """Read the rows of a file; RunError names the line and column of the first error."""
        return self.parse(read_bytes(Path(path)), path)

    def content(self, rows: Iterable[RowT], where: str | Path) -> bytes:
        """Return the bytes of the file that holds these rows."""
        raise NotImplementedError

    def parse(self, content: bytes, where: str | Path) -> list[RowT]:
        """Return the rows of a file with these contents."""
        raise NotImplementedError

    def check_columns(self, where: str | Path, header: Sequence[str], *, further: bool = False) -> None:
        """Raise RunError if a column of the first version is missing, or a column is unknown and not `further`."""
        later = getattr(self.row, "__optional_keys__", ())
        require_columns(where, header, [name for name in self.columns if name not in later])
        unknown = [column for column in header if column not in self.columns]
        if unknown and not further:
            hint = did_you_mean(unknown[0], self.columns)
            raise RunError(f"{where}: {shown(unknown[0])} is not a column of {self.file}. {hint}".rstrip())


@dataclass(frozen=True)
class Table(_AnyTable[RowT]):
    """A table that is stored as CSV.

    `further` allows columns that the row does not declare and names the column that they follow; `further_type` returns
    the type of such a column. `conflict` describes rows that must not be in the same table. `upgraded` converts the
    cells of a row written by an earlier version.
    """

    further: str | None = None
    further_type: Callable[[str], Any] = lambda name: Name
    conflict: Callable[[Sequence[RowT]], Sequence[str]] = lambda rows: ()
    upgraded: Callable[[dict[str, Any]], dict[str, Any]] = lambda cells: cells
    suffix: ClassVar[str] = ".csv"

    @cached_property
    def _row_adapter(self) -> TypeAdapter[RowT]:
        row: Any = self.row
        return TypeAdapter(row)

    def content(self, rows: Iterable[RowT], where: str | Path) -> bytes:
        rows = list(rows)
        for row in rows:
            self.check_row(row)
        lines = [self.cells(row) for row in rows]
        self._refuse_duplicates(enumerate(lines, start=2), where)
        columns = self._ordered(lines)
        return table_bytes(columns, ([cells.get(column) for column in columns] for cells in lines))

    def parse(self, content: bytes, where: str | Path) -> list[RowT]:
        header, lines = parse_table(content, where)
        self.check_columns(where, header, further=self.further is not None)
        numbers = [number for number, _ in lines]
        cells = [
            self.upgraded({name: text or None for name, text in zip(header, line, strict=True)}) for _, line in lines
        ]
        further: dict[str, Any] = {name: self.further_type(name) | None for name in header if name not in self.columns}
        row: Any = row_type(self.columns | further, total=False) if further else self.row
        try:
            rows: list[RowT] = TypeAdapter(list[row]).validate_python(cells, strict=False)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            number, *column = first["loc"]
            cell = f"{column[0]} is {shown(first['input'] or '')}: " if column else ""
            reason = first["msg"].removeprefix("Value error, ")
            raise RunError(f"{where}, line {numbers[int(number)]}: {cell}{reason}") from error
        self._refuse_duplicates(zip(numbers, map(self.cells, rows), strict=True), where)
        if conflicts := self.conflict(rows):
            raise RunError(f"{where}: {conflicts[0]}")
        return rows

    def check_row(self, row: RowT) -> None:
        """Raise ValueError unless a row has every column, each with a valid value."""
        self._row_adapter.validate_python(row, strict=True)

    def cells(self, row: RowT) -> Cells:
        """Return the cells of a row by the names of their columns."""
        return row if isinstance(row, Mapping) else {name: getattr(row, name) for name in self.columns}

    def frame(self, rows: Iterable[RowT]) -> "pd.DataFrame":
        """Return the rows as a pandas table; what is missing is NaN."""
        import pandas as pd

        lines = [self.cells(row) for row in rows]
        bases = {name: base_type(hint) for name, hint in self.columns.items()}
        types = {name: "Int64" if base is int else "float64" for name, base in bases.items() if base is not str}
        return pd.DataFrame(lines, columns=self._ordered(lines)).astype(types)

    def _ordered(self, lines: Iterable[Cells]) -> list[str]:
        """Return the columns in order, with further ones after the column named by `further`."""
        columns = list(self.columns)
        further = dict.fromkeys(column for cells in lines for column in cells if column not in self.columns)
        at = columns.index(self.further) + 1 if self.further else len(columns)
        return [*columns[:at], *further, *columns[at:]]

    def _refuse_duplicates(self, lines: Iterable[tuple[int, Cells]], where: str | Path) -> None:
        seen: dict[tuple[Cell, ...], int] = {}
        for number, cells in lines:
            key = tuple(cells[column] for column in self.key)
            if (first := seen.setdefault(key, number)) != number:
                raise RunError(f"{where}, lines {first} and {number}: two rows for {' / '.join(map(str, key))}.")


@dataclass(frozen=True)
class ColumnTable(_AnyTable[Chunk]):
    """A table that is stored as Parquet and processed in chunks."""

    suffix: ClassVar[str] = ".parquet"

    @cached_property
    def schema(self) -> "pa.Schema":
        """The columns as an Arrow schema."""
        import pyarrow as pa

        types = {str: pa.string(), int: pa.int64(), float: pa.float64()}
        fields = self.columns.items()
        return pa.schema(
            [pa.field(n, types[base_type(hint)], nullable=type(None) in get_args(hint)) for n, hint in fields]
        )

    def chunk(self, columns: Mapping[str, object]) -> Chunk:
        """Return a chunk made of one array per column; a missing value is None, or nan in a column of floats."""
        import pyarrow as pa

        arrays = [pa.array(columns[f.name], f.type, from_pandas=pa.types.is_floating(f.type)) for f in self.schema]
        return pa.Table.from_arrays(arrays, names=self.schema.names)

    def whole(self, chunks: Iterable[Chunk]) -> Chunk:
        """Return all rows as one Arrow table."""
        import pyarrow as pa

        parts = [chunk.read() if isinstance(chunk, StoredChunk) else chunk for chunk in chunks]
        return pa.concat_tables(parts) if parts else self.chunk({name: [] for name in self.columns})

    def frame(self, chunks: Iterable[Chunk]) -> "pd.DataFrame":
        """Return the rows as a pandas table; what is missing is NaN."""
        frame: pd.DataFrame = self.whole(chunks).to_pandas()
        return frame.astype({name: "Int64" for name, hint in self.columns.items() if base_type(hint) is int})

    def content(self, rows: Iterable[Chunk], where: str | Path) -> bytes:
        import pyarrow.parquet as pq

        whole, buffer = self.whole(rows), io.BytesIO()
        self.check(whole, where)
        pq.write_table(whole, buffer, compression="zstd")
        return buffer.getvalue()

    def parse(self, content: bytes, where: str | Path) -> list[Chunk]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            whole = pq.ParquetFile(pa.BufferReader(content)).read()
        except (pa.ArrowException, OSError) as error:
            raise RunError(f"{where}: not a Parquet file ({str(error)[:200]}).") from error
        self.check(whole, where)
        return [whole]

    def check_row(self, chunk: Chunk) -> None:
        """Raise RunError unless a chunk has every column, each with valid values."""
        if not isinstance(chunk, StoredChunk):
            self.check(chunk, self.file)

    def cells(self, chunk: Chunk) -> dict[str, list[Cell]]:
        """Return the columns of a chunk as lists."""
        columns: dict[str, list[Cell]] = self.whole([chunk]).to_pydict()
        return columns

    def check(self, whole: Chunk, where: str | Path) -> None:
        """Raise RunError naming the file unless the table has every column, with possible values, and each row once."""
        import pyarrow as pa
        import pyarrow.compute as pc

        self.check_columns(where, whole.column_names)
        for field in self.schema:
            values = whole.column(field.name)
            if (
                values.type != field.type
                or (values.null_count and not field.nullable)
                or (pa.types.is_floating(field.type) and pc.all(pc.is_finite(values)).as_py() is False)
            ):
                needed = f"finite values of type {field.type}{'' if field.nullable else ' in every row'}"
                raise RunError(f"{where}: column {field.name} must have {needed}.")
        groups = whole.group_by(list(self.key)).aggregate([([], "count_all")])
        if groups.num_rows < whole.num_rows:
            twice = groups.filter(pc.greater(groups["count_all"], 1)).slice(0, 1).to_pylist()[0]
            raise RunError(f"{where}: two rows for {' / '.join(str(twice[name]) for name in self.key)}.")


@dataclass(frozen=True)
class StoredChunk:
    """A Parquet file with the hash that it had when it was written."""

    table: ColumnTable
    path: Path
    sha256: str

    def read(self) -> Chunk:
        """Read the rows; DamagedError if the file is missing or has changed."""
        remedy = "Measure again with --classes, or with the option that made this table."
        if not self.path.is_file():
            raise DamagedError(f"{self.path}: missing, but the measurement beside it refers to it. {remedy}")
        content = read_bytes(self.path)
        if hashlib.sha256(content).hexdigest() != self.sha256:
            raise DamagedError(f"{self.path}: not the table written with the measurement beside it. {remedy}")
        return self.table.parse(content, self.path)[0]


def table_bytes(columns: Sequence[str], lines: Iterable[Iterable[object]]) -> bytes:
    """Return the bytes of a CSV file; None is an empty cell, and a float has all digits needed to restore it."""
    return "".join(",".join(map(_written, row)) + "\n" for row in (columns, *lines)).encode()


def _written(value: object) -> str:
    """Return a cell as text. Python's CSV writer would not quote a carriage return, on which its reader fails."""
    text = "" if value is None else repr(float(value)) if isinstance(value, float) else str(value)
    return '"' + text.replace('"', '""') + '"' if any(sign in text for sign in ',"\r\n') else text


def parse_table(content: bytes, where: str | Path) -> tuple[list[str], Lines]:
    """Return the names of the columns and the lines of a CSV file."""
    try:
        reader = csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True)
        header = next(reader, [])
        lines = [(reader.line_num, line) for line in reader if line]
    except (UnicodeDecodeError, csv.Error) as error:
        raise RunError(f"{where}: not a CSV file ({error}).") from error
    if not header:
        raise RunError(f"{where}: empty; a CSV file with a header is needed.")
    if twice := [column for column in header if header.count(column) > 1]:
        raise RunError(f"{where}: column {shown(twice[0])} occurs twice.")
    for number, line in lines:
        if len(line) != len(header):
            raise RunError(f"{where}, line {number}: has {len(line)} cells, but the table has {len(header)} columns.")
    return header, lines


def require_columns(where: str | Path, header: Sequence[str], columns: Sequence[str]) -> None:
    """Raise RunError that names the first of these columns that the header lacks."""
    for column in columns:
        if column not in header:
            hint = did_you_mean(column, (name for name in header if name not in columns))
            raise RunError(f"{where}: no column {column!r}. {hint}".rstrip())


def shown(text: object) -> str:
    """Return a value for a message, shortened if it is long."""
    whole = repr(text)
    return whole if len(whole) <= SHOWN_LENGTH else f"{whole[:SHOWN_LENGTH]} … ({len(whole):,} characters)"
