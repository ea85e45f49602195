"""A suite's folder: its recipe, its runs, what failed, and who is at what.

<suite>/suite.json           the recipe as it was run
        corpora/             those that the suite built
        <run>/               one folder a run: see collapselab.records.run
        failed/<run>.json    why a run could not be finished
        logs/<run>.log       what its process said
        runs.csv results.csv derived from the folders of the runs; delete and rebuild at will
        .locks/<run>         held while a process is at the run; the system lets go when it ends, however it ends
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, final

from collapselab.disk import is_locked, locked, written_whole
from collapselab.errors import RunError
from collapselab.suite.plan import Entry
from collapselab.suite.recipe import Suite, suite_from
from collapselab.training.settings import resolved

FORMAT = 1


@final
class SuiteFolder:
    """The folder of one suite; nothing is read or written before a method is called."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def begin(self, suite: Suite, *, accept_change: bool = False) -> None:
        """Write suite.json, or make sure that the one there is of the same recipe."""
        old = self.record()
        if old is not None:
            changes = _changes(_deciding(old["recipe"]), _deciding(json.loads(json.dumps(suite.document))))
            if changes and not accept_change:
                raise RunError(
                    f"{self.path}: was run from another recipe ({'; '.join(changes)}). Name another folder with --out, "
                    "or go on here with --accept-change: runs that are in both stay, the others are kept too, and "
                    "with other measuring options finished runs are measured anew."
                )
        elif self.path.is_dir() and not self._empty() and not any(self.path.glob("*/run.json")):
            raise RunError(f"{self.path}: holds something else, and nothing is overwritten. Name another folder.")
        record = {"format": FORMAT, "name": suite.name, "scale": suite.scale, "recipe": suite.document}
        if record != old:
            with written_whole(self.path / "suite.json") as temporary:
                temporary.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")

    def _empty(self) -> bool:
        return all(one.name.startswith(".") for one in self.path.iterdir())

    def record(self) -> dict[str, Any] | None:
        """suite.json, None where there is none."""
        path = self.path / "suite.json"
        if self.path.exists() and not self.path.is_dir():
            raise RunError(f"{self.path}: a file. Name a folder for the suite.")
        if not path.exists():
            return None
        try:
            record: dict[str, Any] = json.loads(path.read_text())
        except ValueError as error:
            raise RunError(
                f"{path}: damaged ({error}). Delete it; the runs stay, and the same command goes on."
            ) from error
        if not isinstance(record, dict) or record.get("format") != FORMAT:
            raise RunError(f"{path}: not one that this version reads. Name another folder.")
        return record

    def suite(self) -> Suite:
        """The suite that was run here."""
        record = self.record()
        if record is None:
            raise RunError(
                f"{self.path}: no suite was run here. Start one: collapselab suite run SUITE --out {self.path}"
            )
        return suite_from(record["recipe"], name=record["name"], scale=record["scale"])

    def run(self, name: str) -> Path:
        return self.path / name

    def log(self, name: str) -> Path:
        return self.path / "logs" / f"{name}.log"

    @contextmanager
    def locked(self, name: str, *, wait: bool = False) -> Iterator[None]:
        """Keep other processes out, here and on machines that share the folder; Busy if one is in, or wait for it."""
        with locked(self.path / ".locks" / name, wait=wait):
            yield

    def in_hand(self, name: str) -> bool:
        """Whether a process is at the run."""
        return is_locked(self.path / ".locks" / name)

    def failure(self, name: str) -> dict[str, Any] | None:
        """Why a run could not be finished, None where it was not tried, or could."""
        try:
            found: dict[str, Any] = json.loads((self.path / "failed" / f"{name}.json").read_text())
        except FileNotFoundError:
            return None
        except ValueError as error:
            return {"run": name, "stage": "unknown", "why": f"the record of its failure is damaged ({error})."}
        return found

    def failures(self) -> list[dict[str, Any]]:
        found = (self.failure(path.stem) for path in sorted((self.path / "failed").glob("*.json")))
        return [one for one in found if one is not None]

    def record_failure(self, entry: Entry, *, stage: str, checkpoint: str, why: str) -> None:
        """Keep the reason, with all that the run's row in runs.csv needs."""
        record = {
            "run": entry.name,
            "stage": stage,
            "checkpoint": checkpoint,
            "why": " ".join(why.split()),
            "when": datetime.now(UTC).isoformat(timespec="seconds"),
            "settings": resolved(entry.settings),
            "corpus": {"path": str(entry.corpus.path), "hash": entry.corpus.hash},
            "parameters": entry.parameters,
            "epochs": entry.planned.epoch(entry.planned.steps),
        }
        with written_whole(self.path / "failed" / f"{entry.name}.json") as temporary:
            temporary.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")

    def forget_failure(self, name: str) -> None:
        (self.path / "failed" / f"{name}.json").unlink(missing_ok=True)


def _deciding(recipe: dict[str, Any]) -> dict[str, Any]:
    """The sections that decide numbers."""
    return {section: values for section, values in recipe.items() if section not in ("question", "resources")}


def _changes(old: Any, new: Any, place: str = "") -> list[str]:
    """What is different, place by place."""
    if isinstance(old, dict) and isinstance(new, dict):
        return [
            change
            for key in dict.fromkeys([*old, *new])
            for change in _changes(old.get(key), new.get(key), f"{place}.{key}".removeprefix("."))
        ]
    return [] if old == new else [f"{place} was {_said(old)}, now {_said(new)}"]


def _said(value: Any) -> str:
    text = "not there" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:76]} …"
