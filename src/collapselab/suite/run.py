"""The verbs of a suite: plan, run, status, cancel. All start from what is in the folder, so each can be repeated.

The first five take a suite and its folder; `suite_plan`, `run_suite` and the others below take the name of a suite: a
shipped recipe, a YAML file, or the folder of a suite that was run.
"""

import time
from pathlib import Path
from typing import Any, NamedTuple

from collapselab.errors import ConfigError, RunError
from collapselab.suite.collect import collect
from collapselab.suite.folder import SuiteFolder, open_suite
from collapselab.suite.job import LaunchRequest
from collapselab.suite.launchers import find_launcher, launchers
from collapselab.suite.plan import Entry, SuitePlan, build_corpora, corpus_facts, plan_suite
from collapselab.suite.recipe import Suite
from collapselab.suite.status import State, Watch, run_state
from collapselab.trackers import check_tracker

TABLE_SECONDS = 15.0
"""While a suite runs, the tables are written at most this often, when a run has ended; and once at the end."""

UPDATE_FACTOR = 100
"""Reading the states of all runs takes at most this part of the time."""


class SuiteRun(NamedTuple):
    """What a `suite run` did: the state of every run, and the jobs where the launcher did not wait."""

    states: list[State]
    refused: list[str]
    """Why rows of the tables were refused."""
    jobs: dict[str, str]
    """The id of each job that was submitted, by run; empty where the launcher waited."""
    waited: bool

    @property
    def failed(self) -> list[State]:
        return [state for state in self.states if state.stage == "failed"]


def plan(suite: Suite, folder: SuiteFolder) -> SuitePlan:
    """All runs with their sizes and costs; nothing is built or trained."""
    return plan_suite(suite, corpus_facts(suite, folder.path))


def prepare(suite: Suite, folder: SuiteFolder, *, accept_change: bool = False) -> SuitePlan:
    """Do everything that comes before the first run: keep the recipe, build the corpora, check all runs."""
    folder.begin(suite, accept_change=accept_change)
    with folder.locked("corpora", wait=True):
        corpora = build_corpora(suite, folder.path)
    planned = plan_suite(suite, corpora)
    if planned.impossible:
        raise ConfigError(f"{suite.name}: " + "; ".join(planned.impossible))
    return planned


def run(
    suite: Suite,
    folder: SuiteFolder,
    *,
    launcher: str = "local",
    jobs: int = 1,
    device: str = "auto",
    retry_failed: bool = False,
    accept_change: bool = False,
    watch: Watch | None = None,
    start_method: str = "forkserver",
    report_to: str = "none",
) -> SuiteRun:
    """Train and measure what is missing, where `launcher` does it: prepare, submit, wait, collect.

    Repeated, it continues; a second one on the same folder shares the work. `report_to` names a tracker that gets every
    run.
    """
    check_tracker(report_to)
    request = LaunchRequest(suite, folder, jobs, device, retry_failed, start_method, report_to)
    chosen = find_launcher(launcher)
    chosen.check(request)
    planned = prepare(suite, folder, accept_change=accept_change)
    monitor = _Monitor(suite, folder, planned.entries, watch)
    missing = monitor.missing(retry_failed=retry_failed)
    if not chosen.waits:
        with folder.locked(launcher, wait=True):
            queued = chosen.states(folder)
            free = [entry for entry in missing if entry.name not in queued and not folder.is_running(entry.name)]
            submitted = chosen.submit(request, free, monitor.update) if free else {}
            if submitted:
                folder.record_jobs(folder.jobs(launcher) | submitted, launcher)
        return SuiteRun(monitor.states(), [], submitted, waited=False)
    try:
        if missing:
            chosen.submit(request, missing, monitor.update)
    finally:
        refused = collect(folder).refused
    return SuiteRun(monitor.states(), refused, {}, waited=True)


def status(suite: Suite, folder: SuiteFolder, *, jobs: dict[str, str] | None = None) -> list[State]:
    """The state of every run. `jobs`: the states of their jobs, from `job_states`."""
    if folder.record() is None:
        raise RunError(f"{folder.path}: this suite has not been run here. Start it: collapselab suite run {suite.name}")
    entries = plan_suite(suite, corpus_facts(suite, folder.path), check=False).entries
    jobs = jobs or {}
    return [run_state(folder, one, suite.measure, job=jobs.get(one.name), thorough=False) for one in entries]


def job_states(folder: SuiteFolder) -> dict[str, str]:
    """The suite's jobs in the queues of all launchers: run → id and state."""
    return {run: state for make in launchers().values() for run, state in make().states(folder).items()}


def cancel(folder: SuiteFolder) -> int:
    """Cancel the suite's jobs in the queues of all launchers; how many there were."""
    return sum(make().cancel(folder) for make in launchers().values())


class _Monitor:
    """Reads the states of the runs while they are performed, shows them, and keeps the tables current."""

    def __init__(self, suite: Suite, folder: SuiteFolder, entries: list[Entry], watch: Watch | None) -> None:
        self.suite, self.folder, self.entries, self.watch = suite, folder, entries, watch
        self._done: dict[str, State] = {}
        self._collected, self._due, self._unwritten = time.monotonic(), 0.0, False

    def missing(self, *, retry_failed: bool) -> list[Entry]:
        """The runs that are not finished; without those that failed, unless they are to be tried again."""
        left_out = {"done"} if retry_failed else {"done", "failed"}
        return [entry for entry, state in zip(self.entries, self.states(), strict=True) if state.stage not in left_out]

    def states(self) -> list[State]:
        states = [self._done.get(one.name) or run_state(self.folder, one, self.suite.measure) for one in self.entries]
        self._done = {state.run: state for state in states if state.stage == "done"}
        return states

    def update(self) -> None:
        """Show the states, and collect where a run is done; nothing if the last time was too short ago."""
        start, done = time.monotonic(), len(self._done)
        if start < self._due:
            return
        states = self.states()
        if self.watch is not None:
            self.watch(states)
        self._unwritten |= len(self._done) > done
        if self._unwritten and start - self._collected >= TABLE_SECONDS:
            collect(self.folder)
            self._collected, self._unwritten = time.monotonic(), False
        self._due = start + UPDATE_FACTOR * (time.monotonic() - start)


def suite_plan(name: str | Path, *, scale: str | None = None, out: str | Path | None = None) -> SuitePlan:
    """All runs of a suite with their sizes and costs, and warnings; nothing is built or trained.

    >>> from collapselab import suite_plan
    >>> plan = suite_plan("demo")
    >>> plan.entries[0].settings.width, plan.impossible
    (16, [])
    """
    return plan(*open_suite(name, scale=scale, out=out))


def run_suite(name: str | Path, *, scale: str | None = None, out: str | Path | None = None, **options: Any) -> SuiteRun:
    """Train and measure what is missing of a suite; `options` are those of `suite.run.run`, such as `jobs`.

    >>> from collapselab import run_suite
    >>> done = run_suite("demo", scale="small", out="suites/tiny")
    >>> {state.stage for state in done.states}, done.failed
    ({'done'}, [])
    """
    return run(*open_suite(name, scale=scale, out=out), **options)


def suite_status(name: str | Path, *, scale: str | None = None, out: str | Path | None = None) -> list[State]:
    """The state of every run of a suite.

    >>> from collapselab import suite_status
    >>> {state.stage for state in suite_status("suites/tiny")}
    {'done'}
    """
    suite, folder = open_suite(name, scale=scale, out=out)
    return status(suite, folder, jobs=job_states(folder))


def cancel_suite(name: str | Path, *, scale: str | None = None, out: str | Path | None = None) -> int:
    """Cancel the jobs of a suite that are in a cluster's queue; how many there were.

    >>> from collapselab import cancel_suite
    >>> cancel_suite("suites/tiny")  # it ran here
    0
    """
    return cancel(open_suite(name, scale=scale, out=out)[1])
