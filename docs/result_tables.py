"""The tables of docs/results in the repository: packed from the folder of a suite, and unpacked for an analysis.

A packed suite is `tables/NAME/`: its tables compressed, `suite.json` with what was registered before the first run, and
`made.json` with the sha256 of every table, the versions that made it, its corpora and its time. What differs from one
machine to the next without any number being different is left out: seconds, and the folders of the corpora.
"""

import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import torch
import transformers

from collapselab import __version__
from collapselab.errors import DamagedError
from collapselab.records.suite import SuiteRecord
from collapselab.records.tables import TABLES, RowsByTable, read_tables, write_tables

HERE = Path(__file__).parent / "results"
PACKED = ("runs", "results", "contexts")
"""Of these, those that the suite has."""


def pack(suite: Path, name: str) -> Path:
    """Put the tables of a suite that has run into the repository."""
    folder, stored = HERE / "tables" / name, read_tables(suite)
    folder.mkdir(parents=True, exist_ok=True)
    runs, seconds = _without_machine(stored.runs)
    rows: RowsByTable = {**stored.tables, "runs": runs}
    contents = {
        table: TABLES[table].content(rows[table], folder / TABLES[table].file) for table in PACKED if rows.get(table)
    }
    for table, content in contents.items():
        (folder / f"{TABLES[table].file}.gz").write_bytes(gzip.compress(content, 9, mtime=0))
    record = SuiteRecord.find(suite / "suite.json")
    if record is None:
        raise DamagedError(f"{suite}: no suite.json, so this is no suite that has run.")
    _portable(record).write(folder / "suite.json")
    facts = {
        "sha256": {TABLES[table].file: hashlib.sha256(content).hexdigest() for table, content in contents.items()},
        "runs": len({run["run"] for run in runs}),
        "training_seconds": round(seconds),
        "versions": {"collapselab": __version__, "torch": torch.__version__, "transformers": transformers.__version__},
        "corpora": sorted({str(run.get("corpus")) for run in runs}),
    }
    (folder / "made.json").write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n", "utf-8")
    return folder


def packed_tables(facts: dict[str, Any]) -> list[str]:
    """The tables that `made.json` of a packed suite names."""
    return [table for table in PACKED if TABLES[table].file in facts["sha256"]]


def unpack(name: str, folder: Path) -> dict[str, Any]:
    """Lay the tables of a packed suite into a folder that `analyze` and `report` take; what `made.json` says."""
    packed = HERE / "tables" / name
    facts: dict[str, Any] = json.loads((packed / "made.json").read_text("utf-8"))
    rows: RowsByTable = {}
    for table in packed_tables(facts):
        content = gzip.decompress((packed / f"{TABLES[table].file}.gz").read_bytes())
        if hashlib.sha256(content).hexdigest() != facts["sha256"][TABLES[table].file]:
            raise DamagedError(f"{packed / TABLES[table].file}.gz: not the table that made.json was written for.")
        rows[table] = TABLES[table].parse(content, packed / TABLES[table].file)
    folder.mkdir(parents=True, exist_ok=True)
    write_tables(folder, rows, made_from=[])
    (folder / "suite.json").write_bytes((packed / "suite.json").read_bytes())
    return facts


def _without_machine(runs: list[Any]) -> tuple[list[Any], float]:
    """The runs without seconds and without the folders of their corpora, and the seconds of all."""
    seconds: dict[str, float] = {}
    kept = []
    for run in runs:
        seconds[run["run"]] = max(seconds.get(run["run"], 0.0), run["seconds"] or 0.0)
        corpus = str(run.get("corpus") or "")
        label, _, digest = corpus.rpartition(" ")
        kept.append({**run, "seconds": None, "corpus": f"{label.rpartition('-')[0] or label} {digest}".strip()})
    return kept, sum(seconds.values())


def _portable(record: SuiteRecord) -> SuiteRecord:
    """suite.json with every path as its recipe has it: texts/FOLDER/FILE."""

    def shortened(value: Any) -> Any:
        if isinstance(value, str) and value.startswith("/"):
            return "/".join(["texts", *Path(value).parts[-2:]])
        if isinstance(value, list):
            return [shortened(item) for item in value]
        return {key: shortened(item) for key, item in value.items()} if isinstance(value, dict) else value

    return record.model_copy(update={"recipe": shortened(record.recipe)})
