"""A process of this machine that performs runs one after another, and the pipe that controls it.

The process prints into the log of the run, saves and ends at SIGTERM, and ends when the process that started it is
gone.
"""

import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkContext, ForkServerContext
from pathlib import Path
from typing import final

from collapselab.disk import disk_errors
from collapselab.errors import Interrupted
from collapselab.records.options import Options
from collapselab.signals import interruptible
from collapselab.suite.folder import SuiteFolder
from collapselab.suite.job import RunOutcome, perform, reason
from collapselab.suite.plan import AnyEntry

ProcessContext = ForkContext | ForkServerContext
PARENT_SECONDS = 1.0
"""How often a process checks that its parent is alive."""


@final
class Worker:
    """A process that performs runs, and the pipe to it.

    How a process ended is read from its fork server, once: of two threads that ask at the same time the second finds
    nothing left and takes 255 for the answer. To start a process asks too, of all others. So all of them take one lock.
    """

    _asking = threading.Lock()

    def __init__(self, context: ProcessContext, name: str, *arguments: object) -> None:
        self._pipe: Connection
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=work, args=(theirs, *arguments), name=name)
        with self._asking:
            self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None, "it was started when it was made"
        return self._process.pid

    def is_alive(self) -> bool:
        with self._asking:
            return self._process.is_alive()

    def wait(self) -> int:
        """Wait until it has ended. Its exit status, negative for the signal that killed it."""
        wait([self._process.sentinel])
        with self._asking:
            self._process.join()
            assert self._process.exitcode is not None, "it has ended"
            return self._process.exitcode

    def perform(self, entry: AnyEntry, options: Options) -> RunOutcome | None:
        """Let it perform the run, and wait. The outcome; None if the process died."""
        try:
            self._pipe.send((entry, options))
            wait([self._pipe, self._process.sentinel])
            if self._pipe.poll():
                answer: RunOutcome = self._pipe.recv()
                return answer
        except (EOFError, OSError, ValueError):
            pass
        return None

    def dismiss(self) -> None:
        """Let it end, and wait until it has."""
        with suppress(OSError):  # it ended by itself meanwhile
            self._pipe.send(None)
        self.wait()

    def stop(self, *, kill: bool = False) -> None:
        """Ask it to stop, or end it. Safe in a signal's handler: it takes no lock, and a dead process is no error."""
        (self._process.kill if kill else self._process.terminate)()


def work(pipe: Connection, path: str, threads: int, device: str, retry: bool, report_to: str = "none") -> None:
    """What the process does: receive a run, perform it, send the outcome, until there is none or a signal comes."""
    if hasattr(os, "setsid"):  # not on Windows
        os.setsid()  # Ctrl-C reaches the parent process, which passes it on once
    import torch

    torch.set_num_threads(threads)
    gc.freeze()  # what is imported stays: the library collects garbage at the start of every run, a third of a second
    folder = SuiteFolder(path)
    threading.Thread(target=_stop_without_parent, args=(os.getppid(),), daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(EOFError, Interrupted), interruptible(signal.SIGTERM):
        while (task := pipe.recv()) is not None:
            pipe.send(_outcome(folder, *task, device=device, retry=retry, report_to=report_to))


def _outcome(
    folder: SuiteFolder, entry: AnyEntry, options: Options, *, device: str, retry: bool, report_to: str
) -> RunOutcome:
    """The outcome of a run; "stopped" with the reason where it could not even be recorded, as on a full disk."""
    log = folder.log(entry.name)
    try:
        with disk_errors(log), _output_to(log):
            return perform(folder, entry, options, device=device, retry=retry, report_to=report_to)
    except Exception as error:  # noqa: BLE001  the parent process shows the reason
        return RunOutcome(entry.name, "stopped", reason(error))


def _stop_without_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(PARENT_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def _output_to(path: Path) -> Iterator[None]:
    """Append everything that this process prints to the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        before = [os.dup(number) for number in (1, 2)]
        try:
            for number in (1, 2):
                os.dup2(file.fileno(), number)
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for number, old in zip((1, 2), before, strict=True):
                os.dup2(old, number)
                os.close(old)
