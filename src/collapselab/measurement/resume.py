"""What an unfinished measurement has gathered so far, on disk, so that the same command goes on where it stopped.

    <folder>/plan.json                          what is measured: never mixed with anything else
             train-03.safetensors               what a finished group of blocks gathered
             train-04.part-0.safetensors, -1    how far the group in hand has come, the last two times it was saved

Every file is whole or absent and carries a checksum; a damaged one is dropped for the one before. Without the plan,
which says how the blocks are cut into batches, nothing else is of use: the measurement then starts from the beginning.
"""

import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, final

import torch

from collapselab.core.storage import load_tensors, save_tensors
from collapselab.disk import locked, read_document, write_document
from collapselab.errors import DamagedError, Interrupted
from collapselab.measurement.distributed import Processes
from collapselab.measurement.sums import Gathered
from collapselab.signals import StopRequest, stop_requests

SAVE_SECONDS, SAVE_FACTOR = 60.0, 20
"""Time between two savings of the group in hand: a minute, or twenty times what a saving takes, if that is more."""

KIND = "a part of a measurement"


@final
class Store:
    """The folder of one unfinished measurement. Processes share it, and each keeps the groups that are its own.

    `together` are processes whose parts only make sense at the same step, as those of moments sharded by class do:
    they save together and go on from the last step that all of them have. A `temporary` one does not outlive the
    measurement: stopped, nothing of it is left.
    """

    def __init__(self, folder: str | Path, together: Processes | None = None, *, temporary: bool = False) -> None:
        self.folder, self.temporary = Path(folder), temporary
        self.together = together or Processes()
        self._generation = 0
        self._due = time.monotonic() + SAVE_SECONDS
        self._request = StopRequest()

    @contextmanager
    def opened(self, *, rank: int = 0) -> Iterator[None]:
        """Keep a second process with the same task out. The system lets go when this one ends, however it ends."""
        busy = f"{self.folder}: another process is at this measurement. Wait for it."
        with locked(self.folder / f".lock-{rank}", busy=busy):
            yield

    @contextmanager
    def stoppable(self) -> Iterator[None]:
        """While the block runs, SIGTERM or Ctrl-C lets the batch finish; what is collected is saved, then it stops."""
        if self.temporary:
            yield
            return
        with stop_requests() as self._request:
            yield
        if self._request.number is not None:  # it came after the last batch, all groups of which are kept
            raise self._stopped(self._request.number)

    def plan(self, plan: dict[str, Any]) -> dict[str, Any]:
        """The plan that was made when the measurement began, `plan` if that is now."""
        path = self.folder / "plan.json"
        try:
            stored = read_document(path)
            if set(stored) >= set(plan):
                return stored
            print(f"{path}: not a plan of this version. The measurement starts from the beginning.", file=sys.stderr)
        except FileNotFoundError:
            pass
        except DamagedError as error:
            print(f"{error} The measurement starts from the beginning.", file=sys.stderr)
        for part in self.folder.glob("*.safetensors"):
            part.unlink(missing_ok=True)
        write_document(path, plan)
        return plan

    def keep(self, split: str, group: int, gathered: Gathered) -> None:
        """Write what a finished group gathered; what was saved on the way to it goes."""
        self._write(self._finished(split, group), gathered)
        self.together.everyone(None)  # all have written before anyone deletes
        for part in self._parts(split, group):
            part.unlink(missing_ok=True)

    def kept(self, split: str, group: int, device: str | torch.device = "cpu") -> Gathered | None:
        """What a finished group gathered, None if it is not finished."""
        found = self._read(self._finished(split, group), device)
        return found if all(self.together.everyone(found is not None)) else None

    def save_if_due(self, split: str, group: int, gathered: Gathered) -> None:
        """Save the unfinished group if the last saving is long enough ago; or if a signal came, and stop."""
        start = time.monotonic()
        wishes = self.together.everyone((start >= self._due, self._request.number))
        number = next((number for _, number in wishes if number is not None), None)
        if not wishes[0][0] and number is None:
            return
        self._write(self._parts(split, group)[self._generation], gathered)
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

    def saved(self, split: str, group: int, device: str | torch.device = "cpu") -> Gathered:
        """How far the group in hand had come; nothing gathered if it was not begun."""
        found = [self._read(part, device) for part in self._parts(split, group)]
        batches = {part.batches: number for number, part in enumerate(found) if part is not None}
        common = set.intersection(*map(set, self.together.everyone(list(batches))))
        if not common:
            return Gathered()
        latest = batches[max(common)]
        self._generation = 1 - latest  # the next one does not go over it
        return found[latest] or Gathered()

    def remove(self) -> None:
        """The measurement is done: nothing is left to go on from."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _finished(self, split: str, group: int) -> Path:
        return self.folder / f"{split}-{group:02}.safetensors"

    def _parts(self, split: str, group: int) -> list[Path]:
        return [self.folder / f"{split}-{group:02}.part-{generation}.safetensors" for generation in (0, 1)]

    def _write(self, path: Path, gathered: Gathered) -> None:
        save_tensors(path, gathered.tensors(), kind=KIND, facts=gathered.facts())

    def _read(self, path: Path, device: str | torch.device) -> Gathered | None:
        try:
            return Gathered.from_tensors(*load_tensors(path, kind=KIND), device)
        except FileNotFoundError:
            return None
        except ValueError as error:
            print(f"{error} Going on without it.", file=sys.stderr)
            path.unlink(missing_ok=True)
            return None
