"""Runs on this machine: processes side by side, each performing one run after another.

A process that dies (out of memory, a kill) loses only what it had not saved: the system drops its locks, and a new
process is started that continues from what was saved. A run at which the process dies three times is recorded as
failed.
"""

import multiprocessing
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import final

from collapselab.errors import ConfigError, Interrupted, RunError
from collapselab.records.options import Options
from collapselab.signals import StopRequest, stop_requests
from collapselab.suite.folder import SuiteFolder
from collapselab.suite.job import LaunchRequest, RunOutcome, StartMethod, reason, record_failure, threads_each
from collapselab.suite.plan import AnyEntry
from collapselab.suite.worker import ProcessContext, Worker

TRIES = 3
PRELOADED = ["collapselab.training.train", "collapselab.measurement.measure", "collapselab.models.load"]
"""What takes seconds to import: once for all processes, not once for each."""

BUSY_SECONDS = 5.0
"""How long until a run that another process was performing is tried again."""

UPDATE_SECONDS = 1.0


@final
class LocalLauncher:
    """Performs the runs in processes of this machine, and waits for them."""

    waits = True

    def check(self, request: LaunchRequest) -> None:
        if request.jobs < 1:
            raise ConfigError(f"jobs is {request.jobs}; at least 1 is needed.")
        threads_each(request.jobs)

    def submit(self, request: LaunchRequest, entries: list[AnyEntry], update: Callable[[], None]) -> dict[str, str]:
        crew = Crew(
            request.folder,
            request.suite.measure,
            jobs=request.jobs,
            device=request.device,
            retry=request.retry_failed,
            start_method=request.start_method,
            report_to=request.report_to,
        )
        crew.run(entries, update)
        return {}

    def script(self, request: LaunchRequest, entries: list[AnyEntry]) -> None:
        """None: it starts processes, and submits nothing."""

    def states(self, folder: SuiteFolder) -> dict[str, str]:
        return {}  # it has no queue: a run that is performed now shows by its lock

    def cancel(self, folder: SuiteFolder) -> int:
        return 0  # its runs are stopped with Ctrl-C where they were started


@final
class Crew:
    """The processes of one `suite run`: `jobs` of them, each replaced when it dies, all taking runs from one list."""

    def __init__(
        self,
        folder: SuiteFolder,
        options: Options,
        *,
        jobs: int = 1,
        device: str = "auto",
        retry: bool = False,
        start_method: StartMethod = "forkserver",
        report_to: str = "none",
    ) -> None:
        self.folder, self.options, self.jobs, self.device, self.retry = folder, options, jobs, device, retry
        self.report_to = report_to
        self.threads = threads_each(jobs)
        fork_server = multiprocessing.get_context("forkserver")
        fork_server.set_forkserver_preload(PRELOADED)
        self.context: ProcessContext = multiprocessing.get_context("fork") if start_method == "fork" else fork_server
        self.outcomes: dict[str, RunOutcome] = {}
        self.trouble: RunError | None = None
        self._todo: deque[AnyEntry] = deque()
        self._later: dict[str, float] = {}
        self._deaths: Counter[str] = Counter()
        self._guard, self._stopping = threading.Lock(), threading.Event()
        self._workers: dict[int, Worker] = {}  # by slot: a new one takes the place of one that died

    def run(self, entries: list[AnyEntry], update: Callable[[], None]) -> dict[str, RunOutcome]:
        """Perform all runs, calling `update` about every second. The outcome of each, by name.

        Interrupted where a signal stopped it, after every process has saved its run.
        """
        self._todo.extend(entries)
        slots = [threading.Thread(target=self._slot, args=(number,), daemon=True) for number in range(self.jobs)]
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

    def _start_worker(self, number: int) -> Worker:
        arguments = (str(self.folder.path), self.threads, self._device(number), self.retry, self.report_to)
        with self._guard:
            worker = Worker(self.context, f"suite {number}", *arguments)
            self._workers[number] = worker
            if self._stopping.is_set():  # the signal came before it was in the list
                worker.stop()
        return worker

    def _device(self, number: int) -> str:
        import torch

        several = self.device == "auto" and torch.cuda.device_count() > 1
        return f"cuda:{number % torch.cuda.device_count()}" if several else self.device

    def _note(self, entry: AnyEntry, outcome: RunOutcome | int) -> None:
        """Keep the outcome of the run; try it again where its process died, with this exit status."""
        with self._guard:
            if isinstance(outcome, int):
                if self._stopping.is_set():
                    return
                self._deaths[entry.name] += 1
                if self._deaths[entry.name] < TRIES:
                    self._todo.appendleft(entry)
                    return
                outcome = self._record_deaths(entry, outcome)
            if outcome.result == "stopped":
                if outcome.why is not None:
                    self._give_up(outcome.why)
                return
            if outcome.result == "busy":
                self._later[entry.name] = time.monotonic() + BUSY_SECONDS
                self._todo.append(entry)
            self.outcomes[entry.name] = outcome

    def _record_deaths(self, entry: AnyEntry, code: int) -> RunOutcome:
        cause = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
        hint = "; often memory ran out" if code == -signal.SIGKILL else ""
        why = f"its process {cause}, {TRIES} times{hint}. Its output is in {self.folder.log(entry.name)}"
        return record_failure(self.folder, entry, self.options, why)

    def _give_up(self, why: str) -> None:
        """Stop all processes; the first reason is shown."""
        if self.trouble is None:
            self.trouble = RunError(why)
            self._stop()

    def _stop(self, *, kill: bool = False) -> None:
        self._stopping.set()
        for worker in list(self._workers.values()):
            worker.stop(kill=kill)
