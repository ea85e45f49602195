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
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkContext, ForkServerContext
from typing import final

from collapselab.disk import disk_errors
from collapselab.errors import STOPPING, ConfigError, Interrupted, RunError, StopRequest, interruptible, stop_requests
from collapselab.records.options import Options
from collapselab.suite.folder import SuiteFolder
from collapselab.suite.job import LaunchRequest, RunOutcome, output_to, perform, reason, record_failure, threads_each
from collapselab.suite.plan import AnyEntry

MAX_TRIES = 3
PRELOADED = ["collapselab.training.train", "collapselab.measurement.measure", "collapselab.models.load"]
"""What takes seconds to import: once for all processes, not once for each."""

BUSY_SECONDS = 5.0
"""How long until a run that another process was performing is tried again."""

UPDATE_SECONDS = 1.0
PARENT_SECONDS = 1.0
"""How often a process checks that its parent is alive."""


@final
class LocalLauncher:
    """Performs the runs in processes of this machine, and waits for them."""

    waits = True

    def check(self, request: LaunchRequest) -> None:
        if request.jobs < 1:
            raise ConfigError(f"jobs must be ≥ 1, got {request.jobs}")
        threads_each(request.jobs)

    def submit(self, request: LaunchRequest, entries: list[AnyEntry], update: Callable[[], None]) -> dict[str, str]:
        ProcessPool(request).run(entries, update)
        return {}

    def script(self, request: LaunchRequest, entries: list[AnyEntry]) -> None:
        """None: it starts processes, and submits nothing."""

    def states(self, folder: SuiteFolder) -> dict[str, str]:
        return {}  # no queue: a run that is performed now shows by its lock

    def cancel(self, folder: SuiteFolder) -> int:
        return 0  # its runs are stopped with Ctrl-C where they were started


@final
class ProcessPool:
    """The processes of one `suite run`: each is replaced when it dies, and all take runs from one list."""

    def __init__(self, request: LaunchRequest) -> None:
        self.request, self.folder, self.options = request, request.folder, request.suite.measure
        self.threads = threads_each(request.jobs)
        fork_server = multiprocessing.get_context("forkserver")
        fork_server.set_forkserver_preload(PRELOADED)
        fork = request.start_method == "fork"
        self.context: ForkContext | ForkServerContext = multiprocessing.get_context("fork") if fork else fork_server
        self.outcomes: dict[str, RunOutcome] = {}
        self.trouble: RunError | None = None
        self._todo: deque[AnyEntry] = deque()
        self._later: dict[str, float] = {}
        self._deaths: Counter[str] = Counter()
        self._guard, self._stopping = threading.Lock(), threading.Event()
        self._workers: dict[int, Worker] = {}  # by slot: a new one replaces one that died

    def run(self, entries: list[AnyEntry], update: Callable[[], None]) -> dict[str, RunOutcome]:
        """Perform all runs, calling `update` about every second. Return the outcome of each, by name.

        Interrupted where a signal stopped it, after every process has saved its run.
        """
        self._todo.extend(entries)
        slots = [threading.Thread(target=self._slot, args=(n,), daemon=True) for n in range(self.request.jobs)]
        with stop_requests() as request:
            for slot in slots:
                slot.start()
            try:
                self._wait(slots, request, update)
            except BaseException as error:  # a second signal does not wait for what is being saved
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
                "same command continues.",
                request.number,
            )
        return self.outcomes

    def _wait(self, slots: list[threading.Thread], request: StopRequest, update: Callable[[], None]) -> None:
        """Wait until no run is left. The first signal is passed on once, and every process saves."""
        for slot in slots:
            while slot.is_alive():
                slot.join(UPDATE_SECONDS)
                if request.number is not None and not self._stopping.is_set():
                    self._stop()
                update()

    def _slot(self, number: int) -> None:
        """Start one process after another, as each dies, until no run is left."""
        worker: Worker | None = None
        try:
            while (entry := self._next()) is not None:
                if worker is None or not worker.is_alive():
                    worker = self._start_worker(number)
                outcome = worker.perform(entry, self.options)
                self._note(entry, outcome if outcome is not None else worker.wait())
        except Exception as error:  # noqa: BLE001  an error in a thread must not look like the end of the suite
            with self._guard:
                self._give_up(f"{self.folder.path}: {reason(error)}")
        if worker is not None:
            worker.dismiss()

    def _next(self) -> AnyEntry | None:
        """The next run, waiting for one that another process performs; None when there are none."""
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

    def _start_worker(self, number: int) -> "Worker":
        import torch

        device, gpus = self.request.device, torch.cuda.device_count()
        if device == "auto" and gpus > 1:
            device = f"cuda:{number % gpus}"
        with self._guard:
            arguments = (str(self.folder.path), self.threads, device, self.request.retry_failed, self.request.report_to)
            worker = self._workers[number] = Worker(self.context, *arguments)
            if self._stopping.is_set():  # the signal came before the worker was in the list
                worker.stop()
        return worker

    def _note(self, entry: AnyEntry, outcome: RunOutcome | int) -> None:
        """Keep the outcome of the run; try it again where its process died, with this exit status."""
        with self._guard:
            if isinstance(outcome, int):
                if self._stopping.is_set():
                    return
                self._deaths[entry.name] += 1
                if self._deaths[entry.name] < MAX_TRIES:
                    self._todo.appendleft(entry)
                    return
                cause = f"was killed by {signal.Signals(-outcome).name}" if outcome < 0 else f"ended with {outcome}"
                hint = "; often memory ran out" if outcome == -signal.SIGKILL else ""
                why = f"its process {cause}, {MAX_TRIES} times{hint}. Its output is in {self.folder.log(entry.name)}"
                outcome = record_failure(self.folder, entry, self.options, why)
            if outcome.result == "stopped":
                if outcome.why is not None:
                    self._give_up(outcome.why)
                return
            if outcome.result == "busy":
                self._later[entry.name] = time.monotonic() + BUSY_SECONDS
                self._todo.append(entry)
            self.outcomes[entry.name] = outcome

    def _give_up(self, why: str) -> None:
        """Stop all processes; the first reason is shown."""
        if self.trouble is None:
            self.trouble = RunError(why)
            self._stop()

    def _stop(self, *, kill: bool = False) -> None:
        self._stopping.set()
        for worker in list(self._workers.values()):
            worker.stop(kill=kill)


@final
class Worker:
    """A process that performs runs, and the pipe to it.

    The fork server tells only once how a process ended: of two threads that ask at the same time the second would read
    255. Starting a process asks about all others too, so everything that asks takes one lock.
    """

    _asking = threading.Lock()

    def __init__(self, context: ForkContext | ForkServerContext, *arguments: object) -> None:
        self._pipe: Connection
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=work, args=(theirs, *arguments))
        with self._asking, _signals_blocked():
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
        with suppress(EOFError, OSError, ValueError):
            self._pipe.send((entry, options))
            wait([self._pipe, self._process.sentinel])
            if self._pipe.poll():
                answer: RunOutcome = self._pipe.recv()
                return answer
        return None

    def dismiss(self) -> None:
        """Let it end, and wait until it has."""
        with suppress(OSError):  # it ended by itself meanwhile
            self._pipe.send(None)
        self.wait()

    def stop(self, *, kill: bool = False) -> None:
        """Stop the process, gently or by force. Safe in a signal handler: takes no lock and ignores dead processes."""
        (self._process.kill if kill else self._process.terminate)()


@contextmanager
def _signals_blocked() -> Iterator[None]:
    """Block SIGINT and SIGTERM in this thread; a process that is started inside starts with them blocked."""
    resource_tracker.ensure_running()  # its start would unblock them
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def work(pipe: Connection, path: str, threads: int, device: str, retry: bool, report_to: str) -> None:
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
                    outcome = perform(folder, entry, options, device=device, retry=retry, report_to=report_to)
            except Exception as error:  # noqa: BLE001  such as a full disk: the parent process shows the reason
                outcome = RunOutcome(entry.name, "stopped", reason(error))
            pipe.send(outcome)


def _stop_without_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(PARENT_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
