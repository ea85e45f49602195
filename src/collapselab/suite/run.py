"""The verbs of a suite: plan, run, status, collect. All go by what is in the folder, so each can be repeated."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import final

from collapselab.errors import ConfigError, RunError
from collapselab.suite.collect import Tables, collect
from collapselab.suite.corpora import build_corpora, corpus_facts
from collapselab.suite.folder import SuiteFolder
from collapselab.suite.job import Outcome
from collapselab.suite.launchers.local import Crew
from collapselab.suite.plan import Entry, SuitePlan, plan_suite
from collapselab.suite.recipe import Suite, is_shipped, load_suite
from collapselab.suite.status import State, run_state

TABLE_SECONDS = 15.0
"""The tables are written anew when a run has ended and at least so long has passed; and at the end."""

LOOK_FACTOR = 100
"""Looking at the runs takes at most this part of the time."""

Watch = Callable[[list[State]], None]


@final
@dataclass(frozen=True)
class Report:
    """How a `suite run` ended."""

    states: list[State]
    tables: Tables

    @property
    def failed(self) -> list[State]:
        return [state for state in self.states if state.stage == "failed"]


def default_folder(suite: Suite) -> Path:
    """Where a suite runs unless another folder is named."""
    return Path("suites") / (suite.name if suite.scale == "full" else f"{suite.name}-{suite.scale}")


def open_suite(
    name: str | Path, *, scale: str | None = None, out: str | Path | None = None
) -> tuple[Suite, SuiteFolder]:
    """The suite and its folder. `name` is a shipped recipe, a YAML file, or the folder of a suite that was run.

    Text that is the name of a shipped recipe means the recipe: `./demo` and Path("demo") are the folder.
    """
    folder = SuiteFolder(name)
    if out is None and not is_shipped(name) and folder.path.is_dir():
        suite = folder.suite()
        if scale is not None and scale != suite.scale:
            raise ConfigError(f"{name}: was run at scale {suite.scale}, not {scale}.")
        return suite, folder
    suite = load_suite(name, scale=scale or "full")
    return suite, SuiteFolder(out or default_folder(suite))


def plan(suite: Suite, folder: SuiteFolder, *, advance: Callable[[int], object] = lambda _: None) -> SuitePlan:
    """What the suite comes to; nothing is built or trained."""
    return plan_suite(suite, corpus_facts(suite, folder.path), advance=advance)


def prepare(suite: Suite, folder: SuiteFolder, *, accept_change: bool = False) -> SuitePlan:
    """Everything before the first run: the recipe kept, the corpora built, all runs checked."""
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
    jobs: int = 1,
    device: str = "auto",
    retry_failed: bool = False,
    accept_change: bool = False,
    watch: Watch | None = None,
    start_method: str = "forkserver",
) -> Report:
    """Train and measure what is missing, on this machine. Repeated, it goes on; another beside it shares the work."""
    if jobs < 1:
        raise ConfigError(f"jobs is {jobs}; at least 1 is needed.")
    crew = Crew(folder, suite.measure, jobs=jobs, device=device, retry=retry_failed, start_method=start_method)
    planned = prepare(suite, folder, accept_change=accept_change)
    keeper = _TableKeeper(folder, planned.entries, suite, crew.outcomes, watch)
    todo = [entry for entry, state in zip(planned.entries, keeper.states(), strict=True) if state.stage != "done"]
    try:
        if todo:
            crew.run(todo, keeper.look)
    finally:
        tables = collect(folder)
    return Report(keeper.states(), tables)


def status(suite: Suite, folder: SuiteFolder, *, jobs: dict[str, str] | None = None) -> list[State]:
    """Where every run stands. `jobs`: what a cluster says of its jobs, by run."""
    if folder.record() is None:
        raise RunError(f"{folder.path}: this suite has not been run here. Start it: collapselab suite run {suite.name}")
    entries = plan(suite, folder).entries
    return [run_state(folder, entry, suite.measure, job=(jobs or {}).get(entry.name)) for entry in entries]


@final
class _TableKeeper:
    """Looks at the suite while it runs: shows the states, and keeps the tables current."""

    def __init__(
        self,
        folder: SuiteFolder,
        entries: list[Entry],
        suite: Suite,
        outcomes: dict[str, Outcome],
        watch: Watch | None,
    ) -> None:
        self.folder, self.entries, self.suite, self.outcomes, self.watch = folder, entries, suite, outcomes, watch
        self._settled: dict[str, State] = {}
        self._written, self._ended, self._due = time.monotonic(), 0, 0.0

    def states(self) -> list[State]:
        return [self._settled.get(entry.name) or self._state(entry) for entry in self.entries]

    def look(self) -> None:
        """As often as it costs next to nothing: looking at ten thousand runs takes its time."""
        start = time.monotonic()
        if start < self._due:
            return
        states = self.states()
        if self.watch is not None:
            self.watch(states)
        ended = sum(outcome.result in ("done", "failed") for outcome in self.outcomes.values())
        if ended > self._ended and time.monotonic() - self._written >= TABLE_SECONDS:
            collect(self.folder)
            self._written, self._ended = time.monotonic(), ended
        self._due = start + LOOK_FACTOR * (time.monotonic() - start)

    def _state(self, entry: Entry) -> State:
        state = run_state(self.folder, entry, self.suite.measure)
        if state.stage == "done":
            self._settled[entry.name] = state
        return state
