"""What an unfinished measurement has gathered so far, on disk, so that the same command goes on where it stopped.

    <folder>/plan.json                          what is measured: never mixed with anything else
             train-03.safetensors               what a finished group of blocks gathered
             train-04.part-0.safetensors, -1    how far the group in hand has come, the last two times it was saved

Every file is whole or absent and carries a checksum; a damaged one is dropped for the one before.
"""

import json
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, final

import torch

from collapselab.core.storage import load_tensors, save_tensors
from collapselab.disk import locked, written_whole
from collapselab.measurement.distributed import Processes
from collapselab.measurement.sums import Gathered

SAVE_SECONDS, SAVE_FACTOR = 60.0, 20
"""Time between two savings of the group in hand: a minute, or twenty times what a saving takes, if that is more."""

KIND = "a part of a measurement"


@final
class Store:
    """The folder of one unfinished measurement. Processes share it, and each keeps the groups that are its own.

    `together` are processes whose parts only make sense at the same step, as those of moments sharded by class do:
    they save together and go on from the last step that all of them have.
    """

    def __init__(self, folder: str | Path, together: Processes | None = None) -> None:
        self.folder = Path(folder)
        self.together = together or Processes()
        self._generation = 0
        self._due = time.monotonic() + SAVE_SECONDS

    @contextmanager
    def opened(self, *, rank: int = 0) -> Iterator[None]:
        """Keep a second process with the same task out. The system lets go when this one ends, however it ends."""
        busy = f"{self.folder}: another process is at this measurement. Wait for it."
        with locked(self.folder / f".lock-{rank}", busy=busy):
            yield

    def plan(self, plan: dict[str, Any]) -> dict[str, Any]:
        """The plan that was made when the measurement began, `plan` if that is now."""
        path = self.folder / "plan.json"
        if path.exists():
            stored: dict[str, Any] = json.loads(path.read_text())
            return stored
        with written_whole(path) as temporary:
            temporary.write_text(json.dumps(plan, indent=1))
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
        """Save the group in hand if the last saving is long enough ago."""
        start = time.monotonic()
        if not self.together.from_first(start >= self._due):
            return
        self._write(self._parts(split, group)[self._generation], gathered)
        self._generation = 1 - self._generation
        now = time.monotonic()
        self._due = now + max(SAVE_SECONDS, SAVE_FACTOR * (now - start))

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
