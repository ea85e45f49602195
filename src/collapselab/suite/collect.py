"""The tables of a suite, from the folders of the runs alone.

A row is in the tables if its run is the one in its name: the settings in run.json must give the hash in the folder's
name, and a measurement must be of that run, that checkpoint and that corpus. Other rows are refused, with the reason.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import JsonValue

from collapselab.disk import disk_errors, sha256
from collapselab.errors import DamagedError, RunError, UserError
from collapselab.records.measurement import Result
from collapselab.records.outcomes import BEST_LOSS, ContextColumn, direction
from collapselab.records.run import Checkpoint, CheckpointRecord, RunFolder, RunRecord, TrainedOn, identity
from collapselab.records.suite import CorpusOfRun, FailureRecord
from collapselab.records.tables import RUNS, ContextRow, Row, RowsByTable, Run, newest_versions, write_tables
from collapselab.suite.folder import SuiteFolder, open_suite

RECORDS = ("*/run.json", "*/checkpoints/*/training.json", "*/measure/*.json", "*/measure/*.parquet", "failed/*.json")
"""What the tables are made from."""
NOT_COLUMNS = ("checkpoints", "epochs", "family", "width", "depth", "weight_decay", "lr", "seed")
"""Settings that get no column of their own: every table has one, or they decide only which checkpoints are kept."""
OF_CHECKPOINT = {
    "epoch", "tokens", "train_loss", "train_loss_running", "val_loss", "val_accuracy", "perplexity", "seconds",
    "clipped"
}  # fmt: skip
"""Columns of `runs.csv` that the record of a checkpoint has under the same names."""


@dataclass
class SuiteTables:
    """The rows of a suite's tables, by the name of the table, and why others were refused."""

    rows: RowsByTable = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)

    def add(self, tables: RowsByTable) -> None:
        for name, rows in tables.items():
            self.rows.setdefault(name, []).extend(rows)

    @property
    def runs(self) -> list[Run]:
        return self.rows.get("runs", [])

    @property
    def results(self) -> list[Row]:
        return self.rows.get("results", [])


def collect(folder: SuiteFolder) -> SuiteTables:
    """Read the folders of all runs, and write every table, each whole or not at all."""
    folder.existing_record()  # a folder of anything else keeps its tables
    with folder.locked("tables", wait=True):
        tables = collected_rows(folder)
        with disk_errors(folder.path):
            made_from = [(path.relative_to(folder.path).as_posix(), sha256(path)) for path in _records(folder.path)]
            write_tables(folder.path, tables.rows, made_from=made_from)
    return tables


def collect_suite(name: str | Path, *, scale: str | None = None, out: str | Path | None = None) -> SuiteTables:
    """Rebuild the tables of a suite from the folders of its runs.

    >>> from collapselab import collect_suite
    >>> sorted({run["checkpoint"] for run in collect_suite("suites/tiny").runs})
    ['0', '1']
    """
    return collect(open_suite(name, scale=scale, out=out)[1])


def _records(folder: Path) -> list[Path]:
    """The files behind the tables; not those in a folder that another process is writing, or a killed one left."""
    files = (file for pattern in RECORDS for file in folder.glob(pattern))
    there = (file for file in files if file.is_file())
    return sorted(file for file in there if not any(part.startswith(".") for part in file.relative_to(folder).parts))


def collected_rows(folder: SuiteFolder) -> SuiteTables:
    """The rows from the folders of all runs, in the order of their names."""
    tables = SuiteTables()
    names = {path.parent.name for path in folder.path.glob("*/run.json")}
    for path in sorted({path.parent.parent for path in folder.path.glob("*/checkpoints/*")}):
        if path.name not in names:
            tables.refused.append(f"{path}: it has no run.json. Its rows are left out; `suite run` makes it again.")
    for name in sorted(names | folder.failures()):
        part = SuiteTables()
        try:
            rows = _checkpoint_rows(folder.run(name), part) if name in names else []
            if (failure := folder.failure(name)) is not None:
                _add_failure(rows, failure)
            for row in rows:
                RUNS.check_row(row)
        except (UserError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            where = f"{folder.run(name)}: its records are damaged or of another program ({error!r}). Delete that folder"
            why = str(error) if isinstance(error, UserError) else f"{where}, and `suite run` makes it again."
            tables.refused.append(why)
            continue
        tables.add({"runs": rows, **part.rows})
        tables.refused += part.refused
    tables.rows["results"], older = newest_versions(tables.results)
    tables.refused += older
    return tables


def _checkpoint_rows(path: Path, tables: SuiteTables) -> list[Run]:
    folder = RunFolder(path)
    record = folder.record()
    assert record is not None
    digest = identity(record.settings, record.corpus.hash)
    for what, claimed in (("run.json says", record.hash), ("its folder's name says", path.name[-8:])):
        if claimed != digest:
            raise RunError(f"{path}: its settings have the hash {digest}, but {what} {claimed}. Its rows are refused.")
    rows: list[Run] = []
    best: float | None = None
    for checkpoint in record.plan.checkpoints:
        known = folder.checkpoint(checkpoint, verify=False)
        if known is None:
            continue
        if known.run not in (None, record.hash):
            raise DamagedError(f"{path}: its checkpoint {checkpoint} is of another run, {known.run}.")
        row = run_row(path.name, record, known)
        measurement = Checkpoint(folder, checkpoint).measurement
        result = _measured(measurement, path.name, checkpoint, record, tables) if measurement.exists() else None
        if result is not None:
            tables.add(result.loaded_tables())
            outcomes = {name: outcome["value"] for name, outcome in result.facts.get("outcomes", {}).items()}
            row = RUNS.row(**outcomes | row, **_context_columns(result))
        best = min((loss for loss in (best, known.val_loss) if loss is not None), default=None)
        rows.append(RUNS.row(**row, **{BEST_LOSS: best}))
    return rows


def _context_columns(result: Result) -> dict[str, float | None]:
    """Metrics of contexts at the last layer that collapse moves one way, as columns: `context_within_2`."""
    rows: list[ContextRow] = result.tables.get("contexts", [])
    named = {ContextColumn(row.metric, row.n).name: row.value for row in rows if row.layer == "last"}
    return {name: value for name, value in named.items() if direction(name) is not None}


def run_row(name: str, record: RunRecord, known: CheckpointRecord) -> Run:
    """A checkpoint's row of runs.csv, from the records of its run."""
    planned, settings = record.plan, record.settings
    gap = {} if known.train_loss is None or known.val_loss is None else {"gap": known.val_loss - known.train_loss}
    return RUNS.row(
        **_setting_columns(name, settings, record.corpus),
        checkpoint=known.checkpoint,
        epochs=planned.steps * planned.batch / planned.blocks if settings["steps"] else settings["epochs"],
        parameters=record.model.parameters,
        **known.model_dump(include=OF_CHECKPOINT),
        **gap,
        why=None,
    )


def _setting_columns(
    name: str, settings: Mapping[str, JsonValue], corpus: TrainedOn | CorpusOfRun
) -> dict[str, JsonValue]:
    further = {
        key: " ".join(map(str, value)) if isinstance(value, list) else value
        for key, value in settings.items()
        if key not in NOT_COLUMNS
    }
    named = {key: settings[key] for key in ("family", "width", "depth", "weight_decay", "lr", "seed")}
    return {"run": name, **named, **further, "corpus": f"{Path(corpus.path).name} {corpus.hash}"}


def _measured(path: Path, run: str, checkpoint: str, record: RunRecord, tables: SuiteTables) -> Result | None:
    """The measurement in a file; None where it is refused."""
    try:
        result = Result.load(path)
        result.loaded_tables()
    except DamagedError as error:
        tables.refused.append(f"{error} Its rows are refused; `suite run` measures again.")
        return None
    facts, expected = result.facts, (run, checkpoint, record.corpus.hash)
    found = (facts["run"], facts["checkpoint"], facts["corpus_hash"])
    for key, is_, value in zip(("run", "checkpoint", "corpus_hash"), found, expected, strict=True):
        if is_ != value:
            tables.refused.append(f"{path}: its {key} is {is_}, not {value}. Its rows are refused.")
            return None
    if why := result.outdated():
        tables.refused.append(f"{path}: {why}. Its rows are left out; `suite run` measures again.")
        return None
    return result


def _add_failure(rows: list[Run], record: FailureRecord) -> None:
    """Put the reason into the row of the checkpoint that could not be finished; add a row where there is none."""
    why = f"{record.stage} failed: {record.why}"
    if (row := next((row for row in rows if row["checkpoint"] == record.checkpoint), None)) is not None:
        row["why"] = why
        return
    rows.append(
        RUNS.row(
            **_setting_columns(record.run, record.settings, record.corpus),
            checkpoint=record.checkpoint,
            epochs=record.epochs,
            parameters=record.parameters,
            **dict.fromkeys(OF_CHECKPOINT),
            why=why,
        )
    )
