"""The verbs of a suite by its name: a shipped recipe, a YAML file, or the folder of a suite that was run.

`suites/NAME` is the folder of a recipe where no other is given.
"""

from pathlib import Path
from typing import Any

from collapselab.suite import run as suites
from collapselab.suite.collect import SuiteTables, collect
from collapselab.suite.plan import SuitePlan
from collapselab.suite.run import SuiteRun, open_suite
from collapselab.suite.status import State


def suite_plan(name: str | Path, *, scale: str | None = None, out: str | Path | None = None) -> SuitePlan:
    """All runs of a suite with their sizes and costs, and warnings; nothing is built or trained.

    >>> from collapselab import suite_plan
    >>> plan = suite_plan("demo")
    >>> plan.entries[0].settings.width, plan.impossible
    (16, [])
    """
    return suites.plan(*open_suite(name, scale=scale, out=out))


def run_suite(name: str | Path, *, scale: str | None = None, out: str | Path | None = None, **options: Any) -> SuiteRun:
    """Train and measure what is missing of a suite; `options` are those of `suite.run.run`, such as `jobs`.

    >>> from collapselab import run_suite
    >>> done = run_suite("demo", scale="small", out="suites/tiny")
    >>> {state.stage for state in done.states}, done.failed
    ({'done'}, [])
    """
    return suites.run(*open_suite(name, scale=scale, out=out), **options)


def suite_status(name: str | Path, *, scale: str | None = None, out: str | Path | None = None) -> list[State]:
    """The state of every run of a suite.

    >>> from collapselab import suite_status
    >>> {state.stage for state in suite_status("suites/tiny")}
    {'done'}
    """
    suite, folder = open_suite(name, scale=scale, out=out)
    return suites.status(suite, folder, jobs=suites.job_states(folder))


def collect_suite(name: str | Path, *, scale: str | None = None, out: str | Path | None = None) -> SuiteTables:
    """Rebuild the tables of a suite from the folders of its runs.

    >>> from collapselab import collect_suite
    >>> sorted({run["checkpoint"] for run in collect_suite("suites/tiny").runs})
    ['0', '1']
    """
    return collect(open_suite(name, scale=scale, out=out)[1])


def cancel_suite(name: str | Path, *, scale: str | None = None, out: str | Path | None = None) -> int:
    """Cancel the jobs of a suite that are in a cluster's queue; how many there were."""
    return suites.cancel(open_suite(name, scale=scale, out=out)[1])
