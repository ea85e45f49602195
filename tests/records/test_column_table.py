"""A table that is stored as Parquet: what it holds comes back, and what it must not hold is refused."""

from pathlib import Path
from typing import Any, TypedDict

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from collapselab.errors import DamagedError, RunError
from collapselab.records.table import Amount, ColumnTable, Count, Name, Number, StoredChunk
from collapselab.records.tables import CLASSES, HASHES, TABLES, read_tables, write_tables
from records.test_tables import ROW, RUN


class Pet(TypedDict):
    name: Name
    text: Name | None
    legs: Count | None
    height: Amount | None
    mood: Number | None


TABLE = ColumnTable("pets", Pet, key=("name",))
PETS: dict[str, list[Any]] = {
    "name": ["a", "b"], "text": ["wu,f\n", None], "legs": [4, None], "height": [0.5, float("nan")], "mood": [-1.0, 0.25],
}  # fmt: skip


def test_rows_come_back_from_disk_and_chunks_add_up(tmp_path: Path) -> None:
    first, second = TABLE.chunk(PETS), TABLE.chunk(PETS | {"name": ["c", "d"]})
    digest = TABLE.write(tmp_path / "pets.parquet", [first, second])
    (whole,) = TABLE.read(tmp_path / "pets.parquet")
    assert whole.equals(pa.concat_tables([first, second]))
    assert StoredChunk(TABLE, tmp_path / "pets.parquet", digest).read().equals(whole)
    frame = TABLE.frame([first, second])
    assert list(frame["name"]) == ["a", "b", "c", "d"]
    assert frame["height"].isna().tolist() == [False, True] * 2
    assert str(frame["legs"].dtype) == "Int64"
    assert TABLE.content([first, second], "x") == TABLE.content([whole], "x"), "the same rows have the same bytes"
    assert len(TABLE.frame([])) == 0


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"name": ["a", "a"]}, " a"),
        ({"name": ["a", None]}, "name.* string"),
        ({"mood": [float("inf"), 0.0]}, "mood.* double"),
    ],
)
def test_what_a_column_cannot_hold_is_refused(change: dict[str, Any], why: str) -> None:
    with pytest.raises((ValueError, RunError), match=why):
        TABLE.content([TABLE.chunk(PETS | change)], "pets")


def test_files_of_another_kind_are_refused_by_column(tmp_path: Path) -> None:
    path = tmp_path / "pets.parquet"
    path.write_bytes(b"PAR1 nonsense")
    with pytest.raises(RunError, match="pets.parquet"):
        TABLE.read(path)
    whole = TABLE.chunk(PETS)
    pq.write_table(whole.rename_columns(["name", "txt", "legs", "height", "mood"]), path)
    with pytest.raises(RunError, match="'text'.* txt"):
        TABLE.read(path)
    pq.write_table(whole.append_column("more", pa.array([1, 2])), path)
    with pytest.raises(RunError, match="'more'"):
        TABLE.read(path)
    pq.write_table(whole.set_column(2, "legs", pa.array(["4", "2"])), path)
    with pytest.raises(RunError, match="legs.* int64"):
        TABLE.read(path)


def test_a_stored_chunk_that_is_gone_or_another_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "pets.parquet"
    chunk = StoredChunk(TABLE, path, TABLE.write(path, [TABLE.chunk(PETS)]))
    TABLE.write(path, [TABLE.chunk(PETS | {"legs": [3, 3]})])
    with pytest.raises(DamagedError, match="pets.parquet"):
        chunk.read()
    path.unlink()
    with pytest.raises(DamagedError, match="pets.parquet"):
        chunk.read()


def test_it_is_written_hashed_and_read_with_the_tables_of_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TABLES, "pets", TABLE)
    tables = {"runs": [RUN], "results": [ROW], "pets": [TABLE.chunk(PETS)]}
    write_tables(tmp_path, tables, made_from=[])
    (read,) = read_tables(tmp_path).tables["pets"]
    assert read.equals(TABLE.chunk(PETS))
    assert "pets.parquet" in (tmp_path / HASHES).read_text()
    TABLE.write(tmp_path / "pets.parquet", [TABLE.chunk(PETS | {"legs": [3, 3]})])
    with pytest.raises(DamagedError, match=r"pets\.parquet"):
        read_tables(tmp_path)


def test_the_table_of_classes_has_the_columns_of_the_contract() -> None:
    assert TABLES["classes"] is CLASSES
    assert ", ".join(CLASSES.columns) == (
        "run, checkpoint, split, layer, token, text, kind, count, norm, variance, cdnv, cosine, nearest, distance, "
        "duality_cos, head_norm, samples, agreement, accuracy, loss"
    )
