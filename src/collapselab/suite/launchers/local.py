"""Runs on this machine: so many processes side by side, each doing one run after the other.

A process that dies (out of memory, a kill) takes nothing with it: its locks fall, a new one is started and goes on from
what was saved. A run at which the process dies three times is recorded as failed. The processes stop by themselves when
the one that started them is gone.
"""

import multiprocessing
import os
import re
import signal
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, final

from collapselab.disk import disk_errors
from collapselab.errors import ConfigError, Interrupted, RunError
from collapselab.records.options import Options
from collapselab.signals import StopRequest, interruptible, stop_requests
from collapselab.suite.folder import SuiteFolder
from collapselab.suite.job import Outcome, perform, reason, record_failure
from collapselab.suite.plan import Entry

TRIES = 3
PRELOADED = ["collapselab.training.train", "collapselab.measurement.measure", "collapselab.models.load"]
"""What takes seconds to import: once for all processes, not once for each."""

BUSY_SECONDS, WATCH_SECONDS = 5.0, 1.0
"""How long until a run that another process had is asked for again; how often a process looks for its parent."""


@final
class Worker:
    """A process that does runs, and the pipe to it.

    How a process ended is read from its fork server, once: of two threads that ask at the same time the second finds
    nothing left and takes 255 for the answer. To start a process asks too, of all others. So all of them take one lock.
    """

    _asking = threading.Lock()

    def __init__(self, context: Any, name: str, *arguments: object) -> None:
        self._pipe: Connection
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=work, args=(theirs, *arguments), name=name)
        with self._asking:
            self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        return int(self._process.pid)

    def alive(self) -> bool:
        with self._asking:
            return bool(self._process.is_alive())

    def ended(self) -> int:
        """Its exit status, once it has ended; negative for the signal that killed it."""
        wait([self._process.sentinel])
        with self._asking:
            self._process.join()
            return int(self._process.exitcode)

    def asked(self, entry: Entry, options: Options) -> Outcome | None:
        """What it says of the run; None if it died."""
        try:
            self._pipe.send((entry, options))
            wait([self._pipe, self._process.sentinel])
            if self._pipe.poll():
                answer: Outcome = self._pipe.recv()
                return answer
        except (EOFError, OSError, ValueError):
            pass
        return None

    def dismiss(self) -> None:
        """Let it end, and wait until it has."""
        with suppress(OSError):  # it ended by itself meanwhile
            self._pipe.send(None)
        self.ended()

    def stop(self, *, kill: bool = False) -> None:
        """Ask it to stop, or end it. Safe in a signal's handler: it takes no lock, and the dead do not mind."""
        (self._process.kill if kill else self._process.terminate)()


@final
class Crew:
    """Processes of this machine that do the runs of a suite."""

    def __init__(
        self,
        folder: SuiteFolder,
        options: Options,
        *,
        jobs: int = 1,
        device: str = "auto",
        retry: bool = False,
        start_method: str = "forkserver",
    ) -> None:
        self.folder, self.options, self.jobs, self.device, self.retry = folder, options, jobs, device, retry
        self.threads = threads_each(jobs)
        self.context: Any = multiprocessing.get_context(start_method)
        self.context.set_forkserver_preload(PRELOADED)
        self.outcomes: dict[str, Outcome] = {}
        self.trouble: RunError | None = None
        self._todo: deque[Entry] = deque()
        self._later: dict[str, float] = {}
        self._deaths: Counter[str] = Counter()
        self._guard, self._stopping = threading.Lock(), threading.Event()
        self._workers: dict[int, Worker] = {}  # by slot: one that died makes room for the next

    def run(self, entries: list[Entry], watch: Callable[[], None]) -> dict[str, Outcome]:
        """Do all entries; `watch` is called about every second. The outcome of each run, by name.

        Interrupted where a signal stopped it, after every process has saved what it was at.
        """
        self._todo.extend(entries)
        slots = [threading.Thread(target=self._slot, args=(number,), daemon=True) for number in range(self.jobs)]
        with stop_requests() as request:
            for slot in slots:
                slot.start()
            try:
                self._watch(slots, request, watch)
            except BaseException as error:  # at the second signal nobody waits for what is being saved
                self._stop(kill=isinstance(error, Interrupted))
                for slot in slots:
                    slot.join()
                raise
        if self.trouble is not None:
            raise self.trouble
        if request.number is not None:
            left = len(entries) - sum(outcome.result in ("done", "failed") for outcome in self.outcomes.values())
            raise Interrupted(
                f"{self.folder.path}: stopped with {left:,} of {len(entries):,} runs to go. Everything is saved; the "
                "same command goes on.",
                request.number,
            )
        return self.outcomes

    def _watch(self, slots: list[threading.Thread], request: StopRequest, watch: Callable[[], None]) -> None:
        """Until all is done. The first signal is passed on once, and every process saves."""
        for slot in slots:
            while slot.is_alive():
                slot.join(WATCH_SECONDS)
                if request.number is not None and not self._stopping.is_set():
                    self._stop()
                watch()

    def _slot(self, number: int) -> None:
        """One process after another, until nothing is left to do."""
        worker: Worker | None = None
        try:
            while (entry := self._next()) is not None:
                if worker is None or not worker.alive():
                    worker = self._started(number)
                outcome = worker.asked(entry, self.options)
                self._noted(entry, outcome if outcome is not None else worker.ended())
        except Exception as error:  # noqa: BLE001  whatever it is, the suite does not end as if all were done
            with self._guard:
                self._give_up(f"{self.folder.path}: {reason(error)}")
        if worker is not None:
            worker.dismiss()

    def _next(self) -> Entry | None:
        """The next run, waiting for one that another process has; None when there are none."""
        while not self._stopping.is_set():
            with self._guard:
                now = time.monotonic()
                for _ in range(len(self._todo)):
                    entry = self._todo.popleft()
                    if self._later.get(entry.name, 0) <= now:
                        return entry
                    self._todo.append(entry)
                if not self._todo:
                    return None
            self._stopping.wait(0.2)
        return None

    def _started(self, number: int) -> Worker:
        arguments = (str(self.folder.path), self.threads, self._device(number), self.retry)
        with self._guard:
            worker = Worker(self.context, f"suite {number}", *arguments)
            self._workers[number] = worker
            if self._stopping.is_set():  # the signal came too early for this one
                worker.stop()
        return worker

    def _device(self, number: int) -> str:
        import torch

        several = self.device == "auto" and torch.cuda.device_count() > 1
        return f"cuda:{number % torch.cuda.device_count()}" if several else self.device

    def _noted(self, entry: Entry, outcome: Outcome | int) -> None:
        """Keep what became of the run: the outcome, or the exit status of the process that died at it."""
        with self._guard:
            if isinstance(outcome, int):
                if self._stopping.is_set():
                    return
                self._deaths[entry.name] += 1
                if self._deaths[entry.name] < TRIES:
                    self._todo.appendleft(entry)
                    return
                outcome = self._dead(entry, outcome)
            if outcome.result == "stopped":
                if outcome.why is not None:
                    self._give_up(outcome.why)
                return
            if outcome.result == "busy":
                self._later[entry.name] = time.monotonic() + BUSY_SECONDS
                self._todo.append(entry)
            self.outcomes[entry.name] = outcome

    def _dead(self, entry: Entry, code: int) -> Outcome:
        cause = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
        hint = "; often memory ran out" if code == -signal.SIGKILL else ""
        why = f"its process {cause}, {TRIES} times{hint}. It said: {self.folder.log(entry.name)}"
        return record_failure(self.folder, entry, self.options, why)

    def _give_up(self, why: str) -> None:
        """End the suite, with the first reason that there was."""
        if self.trouble is None:
            self.trouble = RunError(why)
            self._stop()

    def _stop(self, *, kill: bool = False) -> None:
        self._stopping.set()
        for worker in list(self._workers.values()):
            worker.stop(kill=kill)


def threads_each(jobs: int) -> int:
    """The processors that this process may use, divided among this many jobs."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(allowed, asked_threads() or allowed) // jobs)


def asked_threads() -> int | None:
    """OMP_NUM_THREADS as OpenMP reads it: in a list such as 4,2 the first number is that of the outermost level."""
    text = os.environ.get("OMP_NUM_THREADS", "").strip()
    if not text:
        return None
    if not re.fullmatch(r"0*[1-9][0-9]{0,8}\s*(,\s*[0-9]{1,9}\s*)*", text):
        raise ConfigError(
            f"OMP_NUM_THREADS: {text!r} is not a number of threads. Set it to a whole number from 1 on, or unset it."
        )
    return int(text.partition(",")[0])


def work(pipe: Connection, path: str, threads: int, device: str, retry: bool) -> None:
    """The life of a process: take a run, do it, say how it went, until there is none or a signal comes."""
    os.setsid()  # Ctrl-C reaches the one who started us, and it passes it on once
    import torch

    torch.set_num_threads(threads)
    folder = SuiteFolder(path)
    threading.Thread(target=_stop_without_parent, args=(os.getppid(),), daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(EOFError, Interrupted), interruptible(signal.SIGTERM):
        while (asked := pipe.recv()) is not None:
            pipe.send(_performed(folder, *asked, device=device, retry=retry))


def _performed(folder: SuiteFolder, entry: Entry, options: Options, *, device: str, retry: bool) -> Outcome:
    """How a run went; "stopped" with the reason where it could not even be recorded, as on a full disk."""
    log = folder.log(entry.name)
    try:
        with disk_errors(log), _said_to(log):
            return perform(folder, entry, options, device=device, retry=retry)
    except Exception as error:  # noqa: BLE001  the reason belongs to the one who asked
        return Outcome(entry.name, "stopped", reason(error))


def _stop_without_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(WATCH_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def _said_to(path: Path) -> Iterator[None]:
    """All that this process prints goes to the file."""
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
