"""One run by several processes, through torchrun: as many as the run has GPUs.

The process that has the run's lock starts them, passes a signal on and waits; the first of them says what went wrong.
"""

import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

from collapselab.errors import Interrupted, RunError, UserError
from collapselab.records.options import Options
from collapselab.signals import stop_requests
from collapselab.suite.folder import SuiteFolder
from collapselab.suite.plan import Entry

WATCH_SECONDS = 0.2


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
        stopped = _wait(child)
        if stopped:
            raise Interrupted(f"{entry.name}: stopped. Everything is saved; the same command goes on.", stopped)
        if child.returncode:
            said = reason.read_text() if reason.exists() else f"torchrun ended with status {child.returncode}."
            raise RunError(said)


def _wait(child: "subprocess.Popen[bytes]") -> int | None:
    """Wait for the child, passing a first signal on; the signal, None if there was none."""
    passed_on = False
    try:
        with stop_requests() as request:
            while True:
                try:
                    child.wait(WATCH_SECONDS)
                    return request.number
                except subprocess.TimeoutExpired:
                    if request.number is not None and not passed_on:
                        passed_on = True
                        child.terminate()
    finally:
        if child.poll() is None:  # a second signal
            child.kill()


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
