"""The sums of an unfinished measurement on disk, so that the same command continues where it stopped.

    <folder>/plan.json                          what is measured, and the blocks of a batch
             train-03.safetensors               the sums of a group of blocks, as far as it was when they were saved

Every file is whole or absent and has a checksum; a group whose file is damaged is collected again. Without the plan,
which says how the blocks are cut into batches, the others are useless: the measurement starts from the beginning.
"""

import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from collapselab.core.storage import load_tensors, save_tensors
from collapselab.disk import locked, read_document, remove_folder, sweep, write_document
from collapselab.errors import DamagedError, Interrupted, StopRequest, stop_requests
from collapselab.measurement.collector import Collectors
from collapselab.measurement.distributed import Processes
from collapselab.messages import logger

log = logger(__name__)

SAVE_SECONDS, SAVE_FACTOR = 60.0, 20
"""Time between two savings: a minute, or twenty times what a saving takes, if that is more."""

KIND = "a part of a measurement"


class ResumeFolder:
    """The folder of one unfinished measurement. Processes share it, and each writes its own groups.

    `together` are processes that must be at the same step, as where moments are sharded by class: they save together.
    A `temporary` folder is gone when the measurement ends or is stopped.
    """

    def __init__(self, folder: str | Path, together: Processes | None = None, *, temporary: bool = False) -> None:
        self.folder, self.temporary = Path(folder), temporary
        self.together = together or Processes()
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
        path = self.folder / "plan.json"
        try:
            stored = read_document(path)["batch"]
            assert isinstance(stored, int)
            return stored
        except FileNotFoundError:
            pass
        except DamagedError as error:
            log.warning("%s The measurement starts from the beginning.", error)
        for part in self.folder.glob("*.safetensors"):
            part.unlink(missing_ok=True)
        write_document(path, {**plan, "batch": batch})
        return batch

    def read(self, split: str, group: int, empty: Collectors) -> Collectors:
        """The collectors of a group as they were last saved, by all processes that must be at the same step."""
        collected, path = empty.empty(), self._path(split, group)
        try:
            tensors, facts = load_tensors(path, kind=KIND)
            collected.load(tensors, batches=int(str(facts["batches"])))
        except FileNotFoundError:
            pass
        except ValueError as error:
            log.warning("%s Continuing without it.", error)
            path.unlink(missing_ok=True)
        return collected if len(set(self.together.gather(collected.batches))) == 1 else empty.empty()

    def write(self, split: str, group: int, collected: Collectors) -> None:
        """Write the state of a group, in place of an earlier one."""
        save_tensors(self._path(split, group), collected.state(), kind=KIND, facts={"batches": collected.batches})

    def save_if_due(self, split: str, group: int, collected: Collectors) -> None:
        """Save the unfinished group if the last saving is long enough ago; if a signal came, save and stop."""
        start = time.monotonic()
        requests = self.together.gather((start >= self._due, self._request.number))
        number = next((number for _, number in requests if number is not None), None)
        if not requests[0][0] and number is None:
            return
        self.write(split, group, collected)
        if number is not None:
            raise self._stopped(number)
        now = time.monotonic()
        self._due = now + max(SAVE_SECONDS, SAVE_FACTOR * (now - start))

    def remove(self) -> None:
        """Delete the folder, and what a kill has left of others: the measurement is finished."""
        sweep(self.folder.parent)
        remove_folder(self.folder)

    def _stopped(self, number: int) -> Interrupted:
        name = signal.Signals(number).name
        return Interrupted(
            f"stopped by {name}. What is collected is in {self.folder}; the same command continues.", number
        )

    def _path(self, split: str, group: int) -> Path:
        return self.folder / f"{split}-{group:02}.safetensors"
