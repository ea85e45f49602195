"""One run by several processes, through torchrun: as many as the run has GPUs.

The process that has the run's lock starts them, passes a signal on and waits; the first of them says what went wrong.
"""

import os
import pickle
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import FrameType

from collapselab.errors import Interrupted, RunError, UserError
from collapselab.records.options import Options
from collapselab.suite.folder import SuiteFolder
from collapselab.suite.plan import Entry


def do_together(
    folder: SuiteFolder, entry: Entry, options: Options, device: str, unmade: list[str], unmeasured: list[str],
    *, processes: int,
) -> None:  # fmt: skip
    """Train and measure in so many processes. RunError with what the first of them said; Interrupted by SIGTERM."""
    with tempfile.TemporaryDirectory() as place:
        task, reason = Path(place) / "task.pickle", Path(place) / "reason.txt"
        task.write_bytes(pickle.dumps((str(folder.path), entry, options, device, unmade, unmeasured)))
        command = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
        child = subprocess.Popen([sys.executable, *command, "-m", __name__, str(task)])
        stopped = _waited(child)
        if stopped:
            raise Interrupted(f"{entry.name}: stopped. Everything is saved; the same command goes on.", stopped)
        if child.returncode:
            said = reason.read_text() if reason.exists() else f"torchrun ended with status {child.returncode}."
            raise RunError(said)


def _waited(child: "subprocess.Popen[bytes]") -> int:
    """Wait for the child, passing SIGTERM on; the signal, 0 if there was none."""
    received = 0

    def pass_on(number: int, _: FrameType | None) -> None:
        nonlocal received
        received = number
        child.terminate()

    before = signal.signal(signal.SIGTERM, pass_on)
    try:
        child.wait()
    finally:
        signal.signal(signal.SIGTERM, before)
    return received


def main(task: Path) -> None:
    """One of the processes."""
    from collapselab.suite.job import do_alone

    path, entry, options, device, unmade, unmeasured = pickle.loads(task.read_bytes())  # our own, a moment ago
    try:
        do_alone(SuiteFolder(path), entry, options, device, unmade, unmeasured)
    except Interrupted as error:
        sys.exit(128 + error.signal)
    except UserError as error:
        if os.environ.get("RANK", "0") == "0":
            (task.parent / "reason.txt").write_text(str(error))
        sys.exit(2)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
