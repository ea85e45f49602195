"""The sums of an unfinished measurement on disk, so that the same command continues where it stopped.

    <folder>/plan.json                          what is measured: never mixed with anything else
             train-03.safetensors               the sums of a finished group of blocks
             train-04.part-0.safetensors, -1    the sums of the present group, the last two times they were saved

Every file is whole or absent and has a checksum; in place of a damaged one the file before it is used. Without the
plan, which says how the blocks are cut into batches, the others are useless: the measurement starts from the beginning.
"""

import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import final

from collapselab.core.storage import load_tensors, save_tensors
from collapselab.disk import is_locked, locked, read_document, remove_folder, sweep, write_document
from collapselab.errors import DamagedError, DiskError, Interrupted, StopRequest, stop_requests
from collapselab.measurement.collector import Collectors
from collapselab.measurement.distributed import Processes
from collapselab.messages import logger

log = logger(__name__)

SAVE_SECONDS, SAVE_FACTOR = 60.0, 20
"""Time between two savings of the present group: a minute, or twenty times what a saving takes, if that is more."""

KIND = "a part of a measurement"

TASK = ("run", "checkpoint", "model_hash", "corpus_hash", "options")
"""The facts that decide the numbers of a measurement."""


@final
class ResumeFolder:
    """The folder of one unfinished measurement. Processes share it, and each writes its own groups.

    `together` are processes that must be at the same step, as where moments are sharded by class: they save together
    and continue from the last step that all of them have saved. A `temporary` folder is gone when the measurement
    ends or is stopped.
    """

    def __init__(self, folder: str | Path, together: Processes | None = None, *, temporary: bool = False) -> None:
        self.folder, self.temporary = Path(folder), temporary
        self.together = together or Processes()
        self._generation = 0
        self._due = time.monotonic() + SAVE_SECONDS
        self._request = StopRequest()

    @contextmanager
    def lock(self, *, rank: int = 0) -> Iterator[None]:
        """Keep other processes out of this measurement; the lock ends with this process, however that ends."""
        busy = f"{self.folder}: another process is at this measurement. Wait for it."
        with locked(self.folder / f".lock-{rank}", busy=busy):
            yield

    @contextmanager
    def stoppable(self) -> Iterator[None]:
        """While the block runs, SIGTERM and Ctrl-C let the batch finish and its sums be saved before they stop it."""
        if self.temporary:
            yield
            return
        with stop_requests() as self._request:
            yield
        if self._request.number is not None:  # it came after the last batch, when all groups are written
            raise self._stopped(self._request.number)

    def batch(self, plan: Mapping[str, object], batch: int) -> int:
        """The blocks of a batch that the measurement began with; `batch`, and the plan is written, if it begins now."""
        path, plan = self.folder / "plan.json", {**plan, "batch": batch}
        sweep(self.folder.parent)
        try:
            stored = read_document(path)
            if set(stored) >= set(plan) and isinstance(stored["batch"], int):
                return stored["batch"]
            log.warning("%s: not a plan of this version. The measurement starts from the beginning.", path)
        except FileNotFoundError:
            pass
        except DamagedError as error:
            log.warning("%s The measurement starts from the beginning.", error)
        for part in self.folder.glob("*.safetensors"):
            part.unlink(missing_ok=True)
        write_document(path, plan)
        return batch

    def write_group(self, split: str, group: int, collected: Collectors) -> None:
        """Write the state of a finished group, and delete those that were saved on the way to it."""
        self._write(self._finished(split, group), collected)
        self.together.gather(None)  # all have written before any deletes
        for part in self._parts(split, group):
            part.unlink(missing_ok=True)

    def read_group(self, split: str, group: int, empty: Collectors) -> Collectors | None:
        """The collectors of a finished group, None if it is not finished; `empty` ones are loaded."""
        collected = self._read(self._finished(split, group), empty)
        return collected if all(self.together.gather(collected is not None)) else None

    def save_if_due(self, split: str, group: int, collected: Collectors) -> None:
        """Save the unfinished group if the last saving is long enough ago; if a signal came, save and stop."""
        start = time.monotonic()
        requests = self.together.gather((start >= self._due, self._request.number))
        number = next((number for _, number in requests if number is not None), None)
        if not requests[0][0] and number is None:
            return
        self._write(self._parts(split, group)[self._generation], collected)
        if number is not None:
            raise self._stopped(number)
        self._generation = 1 - self._generation
        now = time.monotonic()
        self._due = now + max(SAVE_SECONDS, SAVE_FACTOR * (now - start))

    def _stopped(self, number: int) -> Interrupted:
        name = signal.Signals(number).name
        return Interrupted(
            f"stopped by {name}. What is collected is in {self.folder}; the same command continues.", number
        )

    def read_unfinished(self, split: str, group: int, empty: Collectors) -> Collectors:
        """The collectors of the present group when they were last saved; the empty ones if they never were."""
        saved = [self._read(part, empty.empty()) for part in self._parts(split, group)]
        batches = {part.batches: number for number, part in enumerate(saved) if part is not None}
        common = set.intersection(*map(set, self.together.gather(list(batches))))
        if not common:
            return empty
        latest = batches[max(common)]
        self._generation = 1 - latest  # the next saving does not overwrite it
        return saved[latest] or empty

    def remove(self) -> None:
        """Delete the folder: the measurement is finished."""
        remove_folder(self.folder)

    def _finished(self, split: str, group: int) -> Path:
        return self.folder / f"{split}-{group:02}.safetensors"

    def _parts(self, split: str, group: int) -> list[Path]:
        return [self.folder / f"{split}-{group:02}.part-{generation}.safetensors" for generation in (0, 1)]

    def _write(self, path: Path, collected: Collectors) -> None:
        save_tensors(path, collected.state(), kind=KIND, facts={"batches": collected.batches})

    def _read(self, path: Path, empty: Collectors) -> Collectors | None:
        try:
            stored, facts = load_tensors(path, kind=KIND)
            batches = facts["batches"]
            assert isinstance(batches, int)
            return empty.load(stored, batches=batches)
        except FileNotFoundError:
            return None
        except ValueError as error:
            log.warning("%s Continuing without it.", error)
            path.unlink(missing_ok=True)
            return None


def remove_finished(state: str | Path, facts: Mapping[str, object]) -> None:
    """Delete from a state folder the sums of a result that is finished: a kill can come between the two."""
    sweep(state)
    for path in Path(state).glob("*/plan.json"):
        try:
            plan = read_document(path)
        except (FileNotFoundError, DamagedError, DiskError):
            continue
        is_its = all(name in plan and plan[name] == facts.get(name) for name in TASK)
        if is_its and not any(map(is_locked, path.parent.glob(".lock-*"))):
            remove_folder(path.parent)
