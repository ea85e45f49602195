"""A table of many rows, as Parquet: the same columns, kinds and checks as `table.py`, column by column.

Its rows go through the program in chunks, each an Arrow table; a list of chunks is to this table what a list of rows is
to the others. A chunk that is on disk is a `StoredChunk`, read when its numbers are needed.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

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

        arrays = [_array(columns[field.name], field.type) for field in self.schema()]
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
            whole = pq.ParquetFile(pa.BufferReader(content)).read()
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
        if _all_different([whole.column(name) for name in self.key]):
            return
        groups = whole.group_by(list(self.key)).aggregate([([], "count_all")])
        if groups.num_rows == whole.num_rows:
            return
        import pyarrow.compute as pc

        twice = groups.filter(pc.greater(groups["count_all"], 1)).slice(0, 1).to_pylist()[0]
        named = " / ".join(str(twice[name]) for name in self.key)
        raise RunError(f"{where}: two rows for {named}. Each may be there once.")


def _array(values: object, type: "pa.DataType") -> "pa.Array":
    """A column as Arrow has it. What measurements make goes around `pa.array`, whose first call imports pandas."""
    import pyarrow as pa

    rows = len(values) if isinstance(values, list | np.ndarray) else 0
    if isinstance(values, list) and all(value is None for value in values):
        return pa.nulls(rows, type)
    if isinstance(values, list) and pa.types.is_string(type) and all(isinstance(v, str | None) for v in values):
        words = [(value or "").encode() for value in values]
        ends = np.cumsum([0, *map(len, words)])
        if ends[-1] <= np.iinfo(np.int32).max:
            present = _bits(np.array([value is not None for value in values]))
            return pa.Array.from_buffers(
                type, rows, [present, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(b"".join(words))]
            )
    if isinstance(values, np.ndarray) and values.dtype == type.to_pandas_dtype() and values.ndim == 1:
        present = _bits(~np.isnan(values)) if pa.types.is_floating(type) else None
        return pa.Array.from_buffers(type, rows, [present, pa.py_buffer(np.ascontiguousarray(values))])
    return pa.array(values, type=type, from_pandas=pa.types.is_floating(type))


def _bits(present: NDArray[np.bool_]) -> "pa.Buffer | None":
    """Which values are there, as Arrow marks them; None where all are."""
    import pyarrow as pa

    return None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little"))


def _all_different(columns: "list[pa.ChunkedArray]") -> bool:
    """Whether no two rows are alike in these columns; also False where that takes too large numbers to tell."""
    numbers, distinct = np.zeros(len(columns[0]), dtype=np.int64), 1
    for column in columns:
        encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
        distinct *= max(1, len(encoded.dictionary))
        if distinct > np.iinfo(np.int64).max:
            return False
        places = np.frombuffer(encoded.indices.buffers()[1] or b"", dtype=np.int32)
        numbers = numbers * len(encoded.dictionary) + places[encoded.offset : encoded.offset + len(encoded)]
    return len(np.unique(numbers)) == len(numbers)


def _check_values(kind: Kind, name: str, values: "pa.ChunkedArray") -> None:
    import pyarrow.compute as pc

    if values.null_count and kind in (Kind.NAME, Kind.VERSION):
        raise ValueError(f"{name} is empty in {values.null_count:,} rows.")
    if not len(values) or values.null_count == len(values):
        return
    if kind in TEXTS:
        if pc.min(pc.binary_length(values)).as_py() == 0:
            raise ValueError(f"{name} is empty text; None means nothing.")
        return
    if kind not in COUNTS and not pc.all(pc.is_finite(values)).as_py():
        raise ValueError(f"{name} is not a finite number somewhere. Leave it empty.")
    if kind is not Kind.NUMBER and (least := pc.min(values).as_py()) < 0:
        raise ValueError(f"{name} is {least}, below 0.")
