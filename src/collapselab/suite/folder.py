"""A suite's folder: its recipe, its runs, what failed, and which runs are locked.

<suite>/suite.json           the recipe as it was run
        corpora/             those that the suite built
        <run>/               one folder a run: see collapselab.records.run
        failed/<run>.json    why a run could not be finished
        logs/<run>.log       what its process printed
        runs.csv results.csv made from the folders of the runs by `suite collect`; may be deleted
        .locks/<run>         locked while a process performs the run; the system unlocks it when the process ends
"""

import os
import shlex
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path

from pydantic import JsonValue

from collapselab.disk import is_locked, locked
from collapselab.errors import ConfigError, RunError
from collapselab.records.suite import CorpusOfRun, FailureRecord, JobsRecord, Primary, SuiteRecord
from collapselab.suite.plan import Entry
from collapselab.suite.recipe import Suite, is_shipped, load_suite, suite_from
from collapselab.suite.sections import short
from collapselab.training.settings import resolved


class SuiteFolder:
    """The folder of one suite; nothing is read or written before a method is called."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def begin(self, suite: Suite, *, accept_change: bool = False) -> None:
        """Write suite.json, or make sure that the one there is of the same recipe."""
        old = self.record()
        primary = self._registered(old, suite)
        if old is not None:
            before = suite_from(old.recipe, name=old.name, scale=old.scale)  # with what later versions can be asked
            changes = _changes(before.document, suite.document)
            if changes and not accept_change:
                raise RunError(
                    f"{self.path}: was run from another recipe ({'; '.join(changes)}). Name another folder with --out, "
                    "or continue here with --accept-change: all runs are kept, and with other "
                    "measuring options finished runs are measured again."
                )
        elif self.path.is_dir() and any(self.path.glob("[!.]*")) and not any(self.path.glob("*/run.json")):
            raise RunError(f"{self.path}: holds something else, and nothing is overwritten. Name another folder.")
        digest = None if primary is None else primary.hash
        record = SuiteRecord(
            name=suite.name, scale=suite.scale, recipe=suite.document, primary=primary, primary_hash=digest
        )
        if record != old:
            record.write(self.path / "suite.json")

    def _registered(self, old: SuiteRecord | None, suite: Suite) -> Primary | None:
        """What is registered: the recipe's choice before the first run, and from then on what was there."""
        if not any(self.path.glob("*/run.json")):
            return suite.primary
        registered = None if old is None else old.primary
        if registered is not None and registered != suite.primary:
            raise RunError(
                f"{self.path}: its primary was registered before the first run (hash {registered.hash}), and the "
                "recipe has another now. What effects are judged by cannot change once there are runs: put it back, or "
                "name another folder with --out."
            )
        return registered

    def record(self) -> SuiteRecord | None:
        """suite.json, None where there is none."""
        if self.path.exists() and not self.path.is_dir():
            raise RunError(f"{self.path}: a file. Name a folder for the suite.")
        remedy = "Delete it; the runs stay, and the same command continues."
        return SuiteRecord.find(self.path / "suite.json", remedy=remedy)

    def existing_record(self) -> SuiteRecord:
        """suite.json; RunError that says what the folder is instead where there is none."""
        if (record := self.record()) is not None:
            return record
        what = "no suite was run here; it has no suite.json" if self.path.is_dir() else "no such folder"
        raise RunError(f"{self.path}: {what}. Start a suite: collapselab suite run SUITE --out FOLDER")

    def suite(self) -> Suite:
        """The suite that was run here."""
        record = self.existing_record()
        return suite_from(record.recipe, name=record.name, scale=record.scale, where=str(self.path / "suite.json"))

    def run(self, name: str) -> Path:
        return self.path / name

    def log(self, name: str) -> Path:
        return self.path / "logs" / f"{name}.log"

    def locked(self, name: str, *, wait: bool = False) -> AbstractContextManager[None]:
        """Lock a name, here and on machines that share the folder; Busy if another process has locked it, or wait."""
        return locked(self.path / ".locks" / name, wait=wait)

    def is_running(self, name: str) -> bool:
        """Whether a process is performing the run."""
        return is_locked(self.path / ".locks" / name)

    def failure(self, name: str) -> FailureRecord | None:
        """Why a run could not be finished, None where it was not tried, or could."""
        path = self.path / "failed" / f"{name}.json"
        return FailureRecord.find(path, remedy="Delete it; the run is then tried again.")

    def failures(self) -> set[str]:
        """The names of the runs that could not be finished."""
        return {path.stem for path in (self.path / "failed").glob("*.json")}

    def record_failure(self, entry: Entry, *, stage: str, checkpoint: str, why: str) -> None:
        """Keep the reason, with all that the run's row in runs.csv needs."""
        record = FailureRecord(
            run=entry.name,
            stage=stage,
            checkpoint=checkpoint,
            why=" ".join(why.split()),
            when=datetime.now(UTC).isoformat(timespec="seconds"),
            settings=resolved(entry.settings),
            corpus=CorpusOfRun(path=str(entry.corpus.path), hash=entry.corpus.hash),
            parameters=entry.parameters,
            epochs=entry.planned.epoch(entry.planned.steps),
        )
        record.write(self.path / "failed" / f"{entry.name}.json")

    def forget_failure(self, name: str) -> None:
        (self.path / "failed" / f"{name}.json").unlink(missing_ok=True)

    def jobs(self, launcher: str = "slurm") -> dict[str, str]:
        """The id of the last job of each run on a cluster."""
        remedy = "Delete it once no job of this suite is in the queue."
        record = JobsRecord.find(self.path / launcher / "jobs.json", remedy=remedy)
        return {} if record is None else record.jobs

    def record_jobs(self, jobs: dict[str, str], launcher: str = "slurm") -> None:
        """Keep the id of each run's job."""
        JobsRecord(jobs=jobs).write(self.path / launcher / "jobs.json")


def open_suite(
    name: str | Path, *, scale: str | None = None, out: str | Path | None = None
) -> tuple[Suite, SuiteFolder]:
    """The suite and its folder. `name` is a shipped recipe, a YAML file, or the folder of a suite that was run.

    Text that is the name of a shipped recipe means the recipe: `./demo` and Path("demo") are the folder.
    """
    folder = SuiteFolder(name)
    if out is None and not is_shipped(name) and folder.path.is_dir():
        suite = folder.suite()
        if scale is not None and scale != suite.scale:
            raise ConfigError(f"{name}: was run at scale {suite.scale}, not {scale}.")
        return suite, folder
    suite = load_suite(name, scale=scale or "full")
    default = Path("suites") / (suite.name if suite.scale == "full" else f"{suite.name}-{suite.scale}")
    return suite, SuiteFolder(out or default)


def as_argument(folder: Path) -> str:
    """A suite's folder as one types it after `collapselab suite run`, where a bare name is that of a recipe."""
    text = str(folder) if folder.is_absolute() or len(folder.parts) > 1 else f".{os.sep}{folder}"
    return shlex.quote(text)


def _changes(old: JsonValue, new: JsonValue, place: str = "") -> list[str]:
    """What is different, place by place, in all that decides a number."""
    if isinstance(old, dict) and isinstance(new, dict):
        keys = [key for key in dict.fromkeys([*old, *new]) if place or key not in ("question", "resources")]
        return [change for key in keys for change in _changes(old.get(key), new.get(key), f"{place}.{key}".lstrip("."))]
    was, now = ("not there" if value is None else short(value) for value in (old, new))
    return [] if old == new else [f"{place} was {was}, now {now}"]
