"""runs.csv and results.csv, from the folders of the runs alone.

A row stands in the tables if its run is what its name says: the settings in run.json must give the hash in the folder's
name, and a measurement must be of that run, that checkpoint and that corpus. What does not fit is left out, and said.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from collapselab.disk import disk_errors
from collapselab.errors import DamagedError, RunError, UserError
from collapselab.records.result import Result
from collapselab.records.run import Checkpoint, RunFolder, RunRecord, identity
from collapselab.records.tables import Row, Run, write_results, write_runs
from collapselab.records.versions import outdated
from collapselab.suite.folder import SuiteFolder

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
    if not folder.path.is_dir():
        raise RunError(f"{folder.path}: no such folder. Run a suite first: collapselab suite run SUITE")
    with folder.locked("tables", wait=True):
        tables = read_tables(folder)
        with disk_errors(folder.path):
            write_runs(folder.path / "runs.csv", tables.runs)
            write_results(folder.path / "results.csv", tables.results)
    return tables


def read_tables(folder: SuiteFolder) -> Tables:
    """The rows that the folders of the runs hold, in the order of their names."""
    tables = Tables()
    failures = {failure["run"]: failure for failure in folder.failures()}
    names = {path.parent.name for path in folder.path.glob("*/run.json")}
    for name in sorted(names | failures.keys()):
        try:
            rows = _checkpoint_rows(folder.run(name), tables) if name in names else []
        except UserError as error:
            tables.refused.append(str(error))
            continue
        if name in failures:
            _add_failure(rows, failures[name], tables)
        tables.runs += rows
    return tables


def _checkpoint_rows(path: Path, tables: Tables) -> list[Run]:
    folder = RunFolder(path)
    record = folder.record()
    assert record is not None
    _check_identity(path, record)
    rows = []
    for checkpoint in record.plan.checkpoints:
        try:
            known = folder.checkpoint(checkpoint, verify=False)
        except DamagedError as error:
            raise DamagedError(f"{error} Delete that folder; `suite run` makes it again.") from error
        if known is None:
            continue
        rows.append(_run_row(path.name, record, known))
        measurement = path / "measure" / f"{checkpoint}.json"
        if measurement.exists():
            tables.results += _measured_rows(measurement, path.name, checkpoint, record, tables)
    return rows


def _check_identity(path: Path, record: RunRecord) -> None:
    found = identity(record.settings, record.corpus.hash)
    for what, claimed in (("run.json says", record.hash), ("its folder's name says", path.name[-8:])):
        if claimed != found:
            raise RunError(
                f"{path}: its settings have the hash {found}, but {what} {claimed}. Its rows are refused; move the "
                "folder away, or put back what was changed."
            )


def _run_row(name: str, record: RunRecord, known: Checkpoint) -> Run:
    planned, settings = record.plan, record.settings
    return {
        **_setting_columns(name, settings, corpus=record.corpus.path, corpus_hash=record.corpus.hash),
        "checkpoint": known.checkpoint,
        "epochs": planned.steps * planned.batch / planned.blocks if settings["steps"] else settings["epochs"],
        "epoch": known.epoch,
        "parameters": record.model.parameters,
        "tokens": known.tokens,
        "train_loss": known.train_loss,
        "val_loss": known.val_loss,
        "val_accuracy": known.val_accuracy,
        "perplexity": known.perplexity,
        "seconds": known.seconds,
        "why": None,
    }


def _setting_columns(name: str, settings: Mapping[str, Any], *, corpus: str, corpus_hash: str | None) -> Run:
    further = {key: value for key, value in settings.items() if key not in NOT_COLUMNS}
    return {
        "run": name,
        **{key: settings[key] for key in ("family", "width", "depth", "weight_decay", "lr", "seed")},
        **further,
        "corpus": f"{Path(corpus).name} {corpus_hash}",
    }


def _measured_rows(path: Path, run: str, checkpoint: str, record: RunRecord, tables: Tables) -> list[Row]:
    try:
        result = Result.load(path)
    except DamagedError as error:
        tables.refused.append(f"{error} Its rows are refused; `suite run` measures again.")
        return []
    wanted = {"run": run, "checkpoint": checkpoint, "corpus_hash": record.corpus.hash}
    for key, value in wanted.items():
        if result.facts.get(key) != value:
            tables.refused.append(f"{path}: its {key} is {result.facts.get(key)}, not {value}. Its rows are refused.")
            return []
    if why := outdated((row.metric, row.version) for row in result.rows):
        tables.refused.append(f"{path}: {why}. Its rows are left out; `suite run` measures again.")
        return []
    return result.rows


def _add_failure(rows: list[Run], failure: dict[str, Any], tables: Tables) -> None:
    """The reason, in the row of the checkpoint that could not be finished; a row of its own where there is none."""
    if "settings" not in failure:
        tables.refused.append(f"{failure['run']}: {failure['why']}")
        return
    why = f"{failure['stage']} failed: {failure['why']}"
    for row in rows:
        if row["checkpoint"] == failure["checkpoint"]:
            row["why"] = why
            return
    rows.append(
        {
            **_setting_columns(
                failure["run"],
                failure["settings"],
                corpus=failure["corpus"]["path"],
                corpus_hash=failure["corpus"]["hash"],
            ),
            "checkpoint": failure["checkpoint"],
            "epochs": failure["epochs"],
            "epoch": None,
            "parameters": failure["parameters"],
            **dict.fromkeys(("tokens", "train_loss", "val_loss", "val_accuracy", "perplexity", "seconds")),
            "why": why,
        }
    )
