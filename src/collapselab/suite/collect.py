"""runs.csv and results.csv, from the folders of the runs alone.

A row stands in the tables if its run is what its name says: the settings in run.json must give the hash in the folder's
name, and a measurement must be of that run, that checkpoint and that corpus. What does not fit is left out, and said.
"""

import hashlib
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from collapselab.disk import disk_errors
from collapselab.errors import RunError, UserError
from collapselab.records.run import RunFolder
from collapselab.records.tables import Row, Run, check_run, write_results, write_runs
from collapselab.suite.folder import Failure, SuiteFolder
from collapselab.suite.status import read_measurement

NOT_COLUMNS = ("checkpoints", "epochs", "family", "width", "depth", "weight_decay", "lr", "seed")
"""Settings that are no further columns: they have one in every table, or say only what was kept."""


@final
@dataclass
class Tables:
    """The rows of a suite, and what was refused."""

    runs: list[Run] = field(default_factory=list)
    results: list[Row] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


def collect(folder: SuiteFolder) -> Tables:
    """Read the folders of all runs, and write both tables, each whole or not at all."""
    folder.existing_record()  # a folder of anything else keeps its tables
    with folder.locked("tables", wait=True):
        tables = read_tables(folder)
        with disk_errors(folder.path):
            write_runs(folder.path / "runs.csv", tables.runs)
            write_results(folder.path / "results.csv", tables.results)
    return tables


def read_tables(folder: SuiteFolder) -> Tables:
    """The rows that the folders of the runs hold, in the order of their names."""
    tables = Tables()
    failures = {failure.run: failure for failure in folder.failures()}
    names = {path.parent.name for path in folder.path.glob("*/run.json")}
    for name in sorted(names | failures.keys()):
        part = Tables()
        try:
            rows = _checkpoint_rows(folder.run(name), part) if name in names else []
            if name in failures:
                _add_failure(rows, failures[name], part)
            for row in rows:
                check_run(row)
        except UserError as error:
            tables.refused.append(str(error))
            continue
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            tables.refused.append(
                f"{folder.run(name)}: its records are damaged or not ours ({type(error).__name__}: {error}). Its rows "
                "are refused; delete its folder, and `suite run` makes it again."
            )
            continue
        tables.runs += rows
        tables.results += part.results
        tables.refused += part.refused
    return tables


def _checkpoint_rows(path: Path, tables: Tables) -> list[Run]:
    record = RunFolder(path).record()
    assert record is not None
    _check_identity(path, record)
    rows = []
    for checkpoint in record["plan"]["checkpoints"]:
        facts = _training_facts(path / "checkpoints" / checkpoint / "training.json")
        if facts is None:
            continue
        rows.append(_run_row(path.name, record, facts))
        measurement = path / "measure" / f"{checkpoint}.json"
        if measurement.exists():
            tables.results += _measured_rows(measurement, path.name, checkpoint, record, tables)
    return rows


def _check_identity(path: Path, record: dict[str, Any]) -> None:
    said = json.dumps([record["settings"], record["corpus"]["hash"]], sort_keys=True)
    found = hashlib.sha256(said.encode()).hexdigest()[:8]
    for what, claimed in (("run.json says", record["hash"]), ("its folder's name says", path.name[-8:])):
        if claimed != found:
            raise RunError(
                f"{path}: its settings have the hash {found}, but {what} {claimed}. Its rows are refused; move the "
                "folder away, or put back what was changed."
            )


def _training_facts(path: Path) -> dict[str, Any] | None:
    if not path.exists():
        return None
    try:
        facts: dict[str, Any] = json.loads(path.read_text())
    except ValueError as error:
        raise RunError(f"{path}: damaged ({error}). Delete its folder; `suite run` makes it again.") from error
    return facts


def _run_row(name: str, record: dict[str, Any], facts: dict[str, Any]) -> Run:
    planned = record["plan"]
    outcomes = {key: _finite(facts[key]) for key in ("train_loss", "val_loss", "val_accuracy", "perplexity")}
    return {
        **_setting_columns(name, record["settings"], record["corpus"]),
        "checkpoint": facts["checkpoint"],
        "epochs": planned["steps"] * planned["batch"] / planned["blocks"] if record["settings"]["steps"]
                  else record["settings"]["epochs"],
        "epoch": facts["epoch"],
        "parameters": record["model"]["parameters"],
        "tokens": facts["tokens"],
        **outcomes,
        "seconds": facts["seconds"],
        "why": None,
    }  # fmt: skip


def _setting_columns(name: str, settings: dict[str, Any], corpus: dict[str, Any]) -> Run:
    further = {key: value for key, value in settings.items() if key not in NOT_COLUMNS}
    return {
        "run": name,
        **{key: settings[key] for key in ("family", "width", "depth", "weight_decay", "lr", "seed")},
        **further,
        "corpus": f"{Path(corpus['path']).name} {corpus['hash']}",
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _measured_rows(path: Path, run: str, checkpoint: str, record: dict[str, Any], tables: Tables) -> list[Row]:
    document = read_measurement(path)
    if document is None:
        tables.refused.append(f"{path}: damaged. Its rows are refused; `suite run` measures again.")
        return []
    facts, wanted = document["facts"], {"run": run, "checkpoint": checkpoint, "corpus_hash": record["corpus"]["hash"]}
    for key, value in wanted.items():
        if facts.get(key) != value:
            tables.refused.append(f"{path}: its {key} is {facts.get(key)}, not {value}. Its rows are refused.")
            return []
    try:
        return [Row(**row) for row in document["rows"]]
    except (TypeError, ValueError, KeyError) as error:
        tables.refused.append(f"{path}: damaged ({error}). Its rows are refused; delete it and measure again.")
        return []


def _add_failure(rows: list[Run], failure: Failure, tables: Tables) -> None:
    """The reason, in the row of the checkpoint that could not be finished; a row of its own where there is none."""
    record = failure.record
    if record is None:
        tables.refused.append(f"{failure.run}: {failure.why}")
        return
    why = f"{record.stage} failed: {record.why}"
    for row in rows:
        if row["checkpoint"] == record.checkpoint:
            row["why"] = why
            return
    rows.append(
        {
            **_setting_columns(record.run, record.settings, record.corpus.model_dump()),
            "checkpoint": record.checkpoint,
            "epochs": record.epochs,
            "epoch": None,
            "parameters": record.parameters,
            **dict.fromkeys(("tokens", "train_loss", "val_loss", "val_accuracy", "perplexity", "seconds")),
            "why": why,
        }
    )
