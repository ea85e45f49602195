"""One run by several processes, through torchrun: as many as the run has GPUs.

The process that has the run's lock starts them, passes a signal on and waits. The first of them writes what went wrong
into a file.
"""

import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from collapselab.errors import Interrupted, RunError, UserError
from collapselab.signals import stop_requests
from collapselab.suite.job import RunTask, train_and_measure

WATCH_SECONDS = 0.2


def torchrun(processes: int) -> Callable[[RunTask], None]:
    """A method of `perform` that trains and measures in this many processes.

    It raises RunError with what the first of them wrote, and Interrupted at SIGTERM.
    """

    def method(task: RunTask) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path, reason = Path(folder) / "task.pickle", Path(folder) / "reason.txt"
            path.write_bytes(pickle.dumps(task))
            command = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
            child = subprocess.Popen([sys.executable, *command, "-m", __name__, str(path)])
            if (stopped := _wait(child)) is not None:
                message = f"{task.entry.name}: stopped. Everything is saved; the same command continues."
                raise Interrupted(message, stopped)
            if child.returncode:
                words = reason.read_text() if reason.exists() else f"torchrun ended with status {child.returncode}."
                raise RunError(words)

    return method


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


def main(path: Path) -> None:
    """What each of the processes does, with the task in the file `path`."""
    task: RunTask = pickle.loads(path.read_bytes())  # written by `torchrun` a moment ago
    try:
        train_and_measure(task)
    except Interrupted as error:
        sys.exit(128 + error.signal)
    except UserError as error:
        if os.environ.get("RANK", "0") == "0":
            (path.parent / "reason.txt").write_text(str(error))
        sys.exit(2)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
