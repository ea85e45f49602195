"""A table of many rows, as Parquet: the same columns, kinds and checks as `table.py`, column by column.

Its rows go through the program in chunks, each an Arrow table; a list of chunks is to this table what a list of rows is
to the others. A chunk that is on disk is a `StoredChunk`, read when its numbers are needed.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, final

from collapselab.disk import read_bytes, write_bytes
from collapselab.errors import DamagedError, RunError
from collapselab.records.table import COUNTS, TEXTS, Column, Kind, nearest, shown

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

Chunk: TypeAlias = "pa.Table"
"""Rows of a table; a `StoredChunk` is one that is on disk."""
CellValue = str | int | float | None


@final
@dataclass(frozen=True)
class StoredChunk:
    """A Parquet file with the hash that it had when it was written."""

    table: "ColumnTable"
    path: Path
    sha256: str

    def read(self) -> Chunk:
        """Its rows; DamagedError if the file is gone or is another."""
        remedy = "Measure again with --classes, or with what else made it."
        if not self.path.is_file():
            raise DamagedError(f"{self.path}: gone, though the measurement beside it has that table. {remedy}")
        content = read_bytes(self.path)
        if hashlib.sha256(content).hexdigest() != self.sha256:
            raise DamagedError(f"{self.path}: not the table that was written with the measurement beside it. {remedy}")
        (chunk,) = self.table.parse(content, self.path)
        return chunk


@final
@dataclass(frozen=True)
class ColumnTable:
    """One table that is stored as Parquet: `about` says what a row is, `key` names columns that no two rows share."""

    name: str
    about: str
    columns: Mapping[str, Column]
    key: tuple[str, ...]
    required: bool = False

    @property
    def file(self) -> str:
        return f"{self.name}.parquet"

    def chunk(self, columns: Mapping[str, object]) -> Chunk:
        """Rows from arrays, one a column; what is missing is None, or nan in a column of numbers."""
        import pyarrow as pa

        arrays = [
            pa.array(columns[field.name], type=field.type, from_pandas=pa.types.is_floating(field.type))
            for field in self.schema()
        ]
        return pa.Table.from_arrays(arrays, schema=self.schema())

    def whole(self, chunks: Iterable[Chunk]) -> Chunk:
        """All rows as one Arrow table."""
        import pyarrow as pa

        parts = [chunk.read() if isinstance(chunk, StoredChunk) else chunk for chunk in chunks]
        return pa.concat_tables(parts) if parts else self.schema().empty_table()

    def frame(self, chunks: Iterable[Chunk]) -> "pd.DataFrame":
        """The rows as a pandas table; what is missing is NaN."""
        frame: pd.DataFrame = self.whole(chunks).to_pandas()
        counts = [name for name, column in self.columns.items() if column.kind in COUNTS]
        return frame.astype(dict.fromkeys(counts, "Int64"))

    def write(self, path: str | Path, chunks: Iterable[Chunk]) -> str:
        """Write the table, whole or not at all; the sha256 of the file."""
        content = self.content(chunks, path)
        write_bytes(path, content)
        return hashlib.sha256(content).hexdigest()

    def read(self, path: str | Path) -> list[Chunk]:
        """The rows of a file, in one chunk."""
        return self.parse(read_bytes(Path(path)), path)

    def content(self, chunks: Iterable[Chunk], where: str | Path) -> bytes:
        """The bytes of the file that holds these rows."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        whole = self.whole(chunks)
        self.check_row(whole)
        self._refuse_duplicates(whole, where)
        buffer = pa.BufferOutputStream()
        pq.write_table(whole, buffer, compression="zstd")
        content: bytes = buffer.getvalue().to_pybytes()
        return content

    def parse(self, content: bytes, where: str | Path) -> list[Chunk]:
        """The rows of a file with these contents, in one chunk; RunError names the column of what is wrong."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            whole = pq.read_table(pa.BufferReader(content))
        except (pa.ArrowException, OSError) as error:
            raise RunError(f"{where}: not a Parquet file ({str(error)[:200]}).") from error
        try:
            self.check_row(whole)
        except ValueError as error:
            raise RunError(f"{where}: {error}") from error
        self._refuse_duplicates(whole, where)
        return [whole]

    def check_row(self, chunk: Chunk) -> None:
        """ValueError unless a chunk has every column, each with values that it can hold."""
        if isinstance(chunk, StoredChunk):
            return
        for field in self.schema():
            if field.name not in chunk.column_names:
                hint = nearest(field.name, [name for name in chunk.column_names if name not in self.columns])
                raise ValueError(f"no column {field.name!r}.{hint}")
            values = chunk.column(field.name)
            if values.type != field.type:
                raise ValueError(f"column {field.name} is {values.type}; {field.type} is needed.")
            _check_values(self.columns[field.name].kind, field.name, values)
        if strangers := [name for name in chunk.column_names if name not in self.columns]:
            raise ValueError(f"{shown(strangers[0])} is not a column of {self.file}.")

    def cells(self, chunk: Chunk) -> dict[str, list[CellValue]]:
        """The columns of a chunk as lists."""
        columns: dict[str, list[CellValue]] = self.whole([chunk]).to_pydict()
        return columns

    def schema(self) -> "pa.Schema":
        """The names and types of the columns, as Arrow has them."""
        import pyarrow as pa

        def type_of(kind: Kind) -> "pa.DataType":
            return pa.string() if kind in TEXTS else pa.int64() if kind in COUNTS else pa.float64()

        return pa.schema([(name, type_of(column.kind)) for name, column in self.columns.items()])

    def _refuse_duplicates(self, whole: Chunk, where: str | Path) -> None:
        groups = whole.group_by(list(self.key)).aggregate([([], "count_all")])
        if groups.num_rows == whole.num_rows:
            return
        import pyarrow.compute as pc

        twice = groups.filter(pc.greater(groups["count_all"], 1)).slice(0, 1).to_pylist()[0]
        named = " / ".join(str(twice[name]) for name in self.key)
        raise RunError(f"{where}: two rows for {named}. Each may be there once.")


def _check_values(kind: Kind, name: str, values: "pa.ChunkedArray") -> None:
    import pyarrow.compute as pc

    if values.null_count and kind in (Kind.NAME, Kind.VERSION):
        raise ValueError(f"{name} is empty in {values.null_count:,} rows.")
    if not len(values) or values.null_count == len(values):
        return
    if kind in TEXTS:
        if pc.any(pc.equal(values, "")).as_py():
            raise ValueError(f"{name} is empty text; None means nothing.")
        return
    if kind not in COUNTS and not pc.all(pc.is_finite(values)).as_py():
        raise ValueError(f"{name} is not a finite number somewhere. Leave it empty.")
    if kind is not Kind.NUMBER and (least := pc.min(values).as_py()) < 0:
        raise ValueError(f"{name} is {least}, below 0.")
