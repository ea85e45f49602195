"""A run's folder: what it is, how far it got, and from where it can go on.

    <run>/run.json                 the complete configuration and provenance
          checkpoints/<epoch>/     a standard Hugging Face folder, and training.json with step, losses and a checksum
          log.jsonl                one line a logged step, one a checkpoint
          state/<step>.safetensors what resuming needs, the last two; gone when the run is finished
          .lock                    held while a process trains

A run is finished when every planned checkpoint is there.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, final

from torch import Tensor

from collapselab.core.storage import load_tensors, save_tensors
from collapselab.disk import locked, sha256, sweep, written_whole
from collapselab.errors import RunError

FORMAT = 1
STATE = "training state"
KEPT_STATES = 2


@final
class RunFolder:
    """The folder of one run; nothing is read or written before a method is called."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.name = self.path.resolve().name

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes out while the block runs. The system lets go when this process ends, however it ends."""
        if self.path.exists() and not self.path.is_dir():
            raise RunError(f"{self.path}: a file. Name a folder for the run.")
        if self.path.is_dir() and any(self.path.iterdir()) and not (self.path / ".lock").exists():
            raise RunError(f"{self.path}: holds something else, and nothing is overwritten. Name another folder.")
        busy = f"{self.path}: another process is training this run. Wait for it, or stop it."
        with locked(self.path / ".lock", busy=busy):
            yield

    def record(self) -> dict[str, Any] | None:
        """run.json, None where there is none yet."""
        path = self.path / "run.json"
        if not path.exists():
            return None
        try:
            record: dict[str, Any] = json.loads(path.read_text())
        except ValueError as error:
            raise RunError(f"{path}: damaged ({error}). Name another folder, or delete this one.") from error
        if not isinstance(record, dict) or record.get("format") != FORMAT:
            raise RunError(f"{path}: not one that this version reads. Name another folder, or delete this one.")
        return record

    def begin(self, record: dict[str, Any]) -> None:
        """Write run.json, or make sure that the one there is of the same run."""
        old = self.record()
        if old is None:
            with written_whole(self.path / "run.json") as temporary:
                temporary.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
            return
        new = json.loads(json.dumps(record))
        before, now = (one["settings"] | {"corpus": one["corpus"]["hash"]} for one in (old, new))
        changed = [name for name in sorted(before.keys() | now.keys()) if before.get(name) != now.get(name)]
        if changed:
            told = "; ".join(f"{name} was {before.get(name)!r}, now {now.get(name)!r}" for name in changed)
            raise RunError(f"{self.path}: holds a run with other settings ({told}). Name another folder for this one.")

    def checkpoint(self, name: str) -> Path:
        return self.path / "checkpoints" / name

    def checkpoint_facts(self, name: str) -> dict[str, Any] | None:
        """What training.json says of a checkpoint, None where it is not there or its weights are not those written."""
        folder = self.checkpoint(name)
        try:
            facts: dict[str, Any] = json.loads((folder / "training.json").read_text())
            if sha256(folder / "model.safetensors") == facts["sha256"]:
                return facts
        except (OSError, ValueError, KeyError) as error:
            if not folder.exists():
                return None
            self.say(f"checkpoint {name} is damaged ({error}); it is made again.")
        else:
            self.say(f"checkpoint {name} is damaged (its weights do not match their checksum); it is made again.")
        return None

    def save_state(self, step: int, tensors: dict[str, Tensor], facts: dict[str, object]) -> None:
        save_tensors(self._state(step), tensors, kind=STATE, facts=facts)
        for old in self._states()[KEPT_STATES:]:
            self._state(old).unlink(missing_ok=True)

    def load_state(self, *, up_to: int) -> tuple[int, Mapping[str, Tensor], dict[str, Any]]:
        """The last whole state that is not after step `up_to`; step 0 and nothing where there is none."""
        for step in self._states():
            if step > up_to:
                continue
            try:
                return step, *load_tensors(self._state(step), kind=STATE)
            except ValueError as error:
                self.say(f"{error} Going back to the one before.")
        return 0, {}, {}

    def drop_states(self) -> None:
        """Remove all states, and their folder unless it holds something that is not ours."""
        place = self._state(0).parent
        sweep(place)
        for step in self._states():
            self._state(step).unlink(missing_ok=True)
        if place.is_dir() and not any(place.iterdir()):
            place.rmdir()

    def log(self, entry: dict[str, Any]) -> None:
        with (self.path / "log.jsonl").open("a") as file:
            file.write(json.dumps(entry) + "\n")

    def rewind_log(self, step: int, missing: set[str]) -> None:
        """Forget what was logged after a step, and of checkpoints that are made again."""
        path = self.path / "log.jsonl"
        if path.exists():
            kept = [line for line in path.read_text().splitlines() if _is_kept(line, step, missing)]
            with written_whole(path) as temporary:
                temporary.write_text("".join(line + "\n" for line in kept))

    def read_log(self) -> list[dict[str, Any]]:
        path = self.path / "log.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def say(self, text: str) -> None:
        print(f"{self.name}: {text}", file=sys.stderr)

    def _state(self, step: int) -> Path:
        return self.path / "state" / f"{step}.safetensors"

    def _states(self) -> list[int]:
        """Steps with a state, the last first."""
        found = [path.stem for path in (self.path / "state").glob("*.safetensors")]
        return sorted((int(step) for step in found if step.isdecimal()), reverse=True)


def _is_kept(line: str, step: int, missing: set[str]) -> bool:
    try:
        entry = json.loads(line)
    except ValueError:  # the line during which the process was killed
        return False
    return bool(entry["step"] <= step and entry.get("checkpoint") not in missing)
