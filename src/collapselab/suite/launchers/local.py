"""Runs on this machine: processes side by side, each performing one run after another.

A process that dies (out of memory, a kill) loses only what it had not saved: the system drops its locks, and a new
process continues from what was saved. A run at which the process dies three times is recorded as failed.

Processes come from a fork server, which imports torch once for all of them. A signal to the whole process group, as
clusters and terminals send it, must reach neither the server nor a process that cannot save yet, so both start with
the signals blocked; a process unblocks them when its handler is in place.
"""

import gc
import multiprocessing
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any

from collapselab.disk import disk_errors
from collapselab.errors import STOPPING, ConfigError, Interrupted, RunError, interruptible, stop_requests
from collapselab.records.options import Options
from collapselab.suite.folder import SuiteFolder
from collapselab.suite.job import (
    Launcher,
    LaunchRequest,
    RunOutcome,
    output_to,
    perform,
    reason,
    record_failure,
    threads_each,
)
from collapselab.suite.plan import Entry

MAX_TRIES = 3
PRELOADED = ["collapselab.training.train", "collapselab.measurement.measure", "collapselab.models.load"]
"""What takes seconds to import: once for all processes, not once for each."""

BUSY_SECONDS = 5.0
"""How long until a run that another process was performing is tried again."""

UPDATE_SECONDS = 1.0
PARENT_SECONDS = 1.0
"""How often a process checks that its parent is alive."""


class LocalLauncher(Launcher):
    """Performs the runs in processes of this machine, and waits for them."""

    waits = True  # it has no queue: a run that is performed now shows by its lock

    def check(self, request: LaunchRequest) -> None:
        if request.jobs < 1:
            raise ConfigError(f"jobs must be ≥ 1, got {request.jobs}")
        threads_each(request.jobs)

    def submit(self, request: LaunchRequest, entries: list[Entry], update: Callable[[], None]) -> dict[str, str]:
        ProcessPool(request).run(entries, update)
        return {}


class ProcessPool:
    """The processes of one `suite run`: each is replaced when it dies, and all take runs from one list."""

    def __init__(self, request: LaunchRequest) -> None:
        self.request, self.folder, self.options = request, request.folder, request.suite.measure
        self.context: Any = multiprocessing.get_context(request.start_method)
        self.context.set_forkserver_preload(PRELOADED)
        self.outcomes: dict[str, RunOutcome] = {}
        self._todo: list[Entry] = []
        self._later: dict[str, float] = {}
        self._deaths: Counter[str] = Counter()
        self._workers: dict[int, Worker] = {}  # by slot: a new one replaces one that died
        self._stopping = False

    def run(self, entries: list[Entry], update: Callable[[], None]) -> dict[str, RunOutcome]:
        """Perform all runs, calling `update` about every second. Return the outcome of each, by name.

        Interrupted where a signal stopped it, after every process has saved its run.
        """
        self._todo = list(entries)
        with stop_requests() as request:
            try:
                while self._todo or any(worker.entry for worker in self._workers.values()):
                    if request.number is not None and not self._stopping:
                        self._stop()
                    self._hand_out()
                    self._receive()
                    update()
            except BaseException as error:  # a second signal does not wait for what is being saved
                self._stop(kill=isinstance(error, Interrupted))
                raise
            finally:
                for worker in self._workers.values():
                    worker.dismiss()
        if request.number is not None:
            left = len(entries) - sum(outcome.result in ("done", "failed") for outcome in self.outcomes.values())
            raise Interrupted(
                f"{self.folder.path}: stopped with {left:,} of {len(entries):,} runs to go. Everything is saved; the "
                "same command continues.",
                request.number,
            )
        return self.outcomes

    def _hand_out(self) -> None:
        """Give a run to every process without one; a run that was busy elsewhere has to wait for its time."""
        for slot in range(self.request.jobs):
            if slot in self._workers and self._workers[slot].entry is not None:
                continue
            now = time.monotonic()
            index = next((n for n, entry in enumerate(self._todo) if self._later.get(entry.name, 0) <= now), None)
            if index is None:
                return
            worker = self._workers.get(slot) or self._start_worker(slot)
            worker.begin(self._todo.pop(index), self.options)

    def _start_worker(self, slot: int) -> "Worker":
        import torch

        device, gpus = self.request.device, torch.cuda.device_count()
        if device == "auto" and gpus > 1:
            device = f"cuda:{slot % gpus}"
        how = {"device": device, **self.request.how}
        self._workers[slot] = Worker(self.context, str(self.folder.path), threads_each(self.request.jobs), how)
        return self._workers[slot]

    def _receive(self) -> None:
        """Note what processes have finished, or that they died; wait about a second for the first of them."""
        ready = wait([one for worker in self._workers.values() for one in worker.waitables], UPDATE_SECONDS)
        for slot, worker in list(self._workers.items()):
            if any(one in ready for one in worker.waitables):
                entry, outcome = worker.entry, worker.outcome()
                if isinstance(outcome, int):
                    del self._workers[slot]
                if entry is not None:
                    self._note(entry, outcome)

    def _note(self, entry: Entry, outcome: RunOutcome | int) -> None:
        """Keep the outcome of the run; try it again where its process died, with this exit status."""
        if isinstance(outcome, int):
            if self._stopping:
                return
            self._deaths[entry.name] += 1
            if self._deaths[entry.name] < MAX_TRIES:
                self._todo.insert(0, entry)
                return
            cause = f"was killed by {signal.Signals(-outcome).name}" if outcome < 0 else f"ended with {outcome}"
            hint = "; often memory ran out" if outcome == -signal.SIGKILL else ""
            why = f"its process {cause}, {MAX_TRIES} times{hint}. Its output is in {self.folder.log(entry.name)}"
            outcome = record_failure(self.folder, entry, self.options, why)
        if outcome.result == "stopped":
            raise RunError(str(outcome.why))
        if outcome.result == "busy" and not self._stopping:
            self._later[entry.name] = time.monotonic() + BUSY_SECONDS
            self._todo.append(entry)
        self.outcomes[entry.name] = outcome

    def _stop(self, *, kill: bool = False) -> None:
        self._stopping = True
        self._todo.clear()
        for worker in self._workers.values():
            (worker.process.kill if kill else worker.process.terminate)()


class Worker:
    """A process that performs runs, and the pipe to it."""

    def __init__(self, context: Any, *arguments: object) -> None:
        self.entry: Entry | None = None  # the run that it is performing
        self._pipe: Connection
        self._pipe, theirs = context.Pipe()
        self.process = context.Process(target=work, args=(theirs, *arguments))
        with _signals_blocked():
            self.process.start()
        theirs.close()
        self.waitables = (self._pipe, self.process.sentinel)

    def begin(self, entry: Entry, options: Options) -> None:
        """Let it perform a run."""
        self.entry = entry
        with suppress(OSError):  # it has died, as `outcome` will say
            self._pipe.send((entry, options))

    def outcome(self) -> RunOutcome | int:
        """The outcome of its run; if it has died, its exit status, negative for the signal that killed it."""
        with suppress(EOFError, OSError):
            if self._pipe.poll():
                answer: RunOutcome = self._pipe.recv()
                self.entry = None
                return answer
        self.process.join()
        return int(self.process.exitcode)

    def dismiss(self) -> None:
        """Let it end, and wait until it has."""
        with suppress(OSError):  # it ended by itself meanwhile
            self._pipe.send(None)
        self.process.join()


@contextmanager
def _signals_blocked() -> Iterator[None]:
    """Block SIGINT and SIGTERM in this thread; a process that is started inside starts with them blocked."""
    resource_tracker.ensure_running()  # its start would unblock them
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def work(pipe: Connection, path: str, threads: int, how: dict[str, Any]) -> None:
    """The worker's main function: receive a run, perform it, send the outcome, until there is none or a signal."""
    import torch

    os.setsid()  # Ctrl-C reaches the parent process, which passes it on once
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(threads)
    gc.freeze()  # what is imported stays: the library collects garbage at the start of every run, a third of a second
    folder = SuiteFolder(path)
    with suppress(EOFError, Interrupted), interruptible(signal.SIGTERM):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
        threading.Thread(target=_stop_without_parent, args=(os.getppid(),), daemon=True).start()
        while (task := pipe.recv()) is not None:
            entry, options = task
            log = folder.log(entry.name)
            try:
                with disk_errors(log), output_to(log):
                    outcome = perform(folder, entry, options, **how)
            except Exception as error:  # noqa: BLE001  such as a full disk: the parent process shows the reason
                outcome = RunOutcome(entry.name, "stopped", reason(error))
            pipe.send(outcome)


def _stop_without_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(PARENT_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
