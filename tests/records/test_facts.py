"""The facts of a result: every key typed and explained, checked when a file is read, open to other versions."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from collapselab.disk import write_document
from collapselab.errors import DamagedError, UserError
from collapselab.records.measurement import Key, Result
from collapselab.records.tables import CLASSES
from records.test_tables import ROW

FACTS: dict[str, Any] = {
    "model": "models/mine", "run": "models/mine", "checkpoint": "-", "in_a_run": False, "model_hash": "00ff",
    "corpus": "corpora/mine", "corpus_hash": "ff00", "options": {"layers": "last", "tokens": None, "null": True},
    "splits": {
        "train": {"blocks": 2, "tokens": 60, "blocks_cut_off": 0},
        "validation": {"blocks": 1, "tokens": 30, "blocks_cut_off": 0, "loss": 5.5, "accuracy": 0.1, "perplexity": None},
    },
    "classes": 300, "context": None, "dtype": "float32", "device": "cpu", "batch": 2, "processes": 1,
    "versions": {"torch": "2.13"}, "seconds": {"train": 1.0, "all": 2.0},
}  # fmt: skip
"""What the first version wrote."""


def loaded(path: Path, document: dict[str, Any]) -> Result:
    path.write_text(json.dumps({"facts": document, "rows": []}))
    return Result.load(path)


def test_facts_of_the_first_version_open_and_keys_of_a_later_one_survive(tmp_path: Path) -> None:
    assert loaded(tmp_path / "old.json", FACTS).facts == FACTS
    splits = {**FACTS["splits"], "train": {**FACTS["splits"]["train"], "documents": 3}}
    later = {**FACTS, "splits": splits, "effects": {"a": [1, 2]}}
    result = loaded(tmp_path / "later.json", later)
    result.save(tmp_path / "again.json")
    assert Result.load(tmp_path / "again.json").facts == later


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"classes": "300"}, "facts.classes"),
        ({"splits": {"train": {"blocks": 2.5, "tokens": 1, "blocks_cut_off": 0}}}, "facts.splits.train.blocks"),
        ({"warnings": [{"code": "loss"}]}, "facts.warnings.0.text"),
        ({"halves": {"train/last/all/cdnv": [[1.0]]}}, "facts.halves"),
    ],
)
def test_a_fact_of_another_type_is_refused_by_its_name(tmp_path: Path, change: dict[str, Any], where: str) -> None:
    with pytest.raises(DamagedError, match=where):
        loaded(tmp_path / "result.json", {**FACTS, **change})


def test_halves_are_pairs_again_when_they_are_read(tmp_path: Path) -> None:
    name = Key("train", "last", "all", "cdnv").name
    assert name == "train/last/all/cdnv"
    result = Result([ROW], {**FACTS, "halves": {name: [(0.5, 0.25)]}})  # type: ignore[typeddict-item]
    result.save(tmp_path / "result.json")
    assert Result.load(tmp_path / "result.json") == result


@pytest.mark.parametrize("change", [{}, {"layer": None}, {"token": 10**30}, {"count": float(10**30)}])
def test_a_table_in_a_document_has_values_that_its_columns_can_hold(tmp_path: Path, change: dict[str, Any]) -> None:
    cells = {field.name: "a" if pa.types.is_string(field.type) else 1 for field in CLASSES.schema} | change
    classes = {name: [cell] for name, cell in cells.items()}
    path = tmp_path / "result.json"
    write_document(path, {"format": 2, "facts": FACTS, "rows": [], "tables": {"classes": [classes]}})
    if not change:
        assert Result.load(path).frame("classes")["token"].tolist() == [1]
        return
    with pytest.raises(UserError, match=r"result\.json"):
        Result.load(path)
