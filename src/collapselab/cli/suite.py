"""`collapselab suite`: plan, run and follow a suite of models, and collect its tables; `collapselab demo`."""

import json
import os
import sys
import time
import webbrowser
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from collapselab.cli.options import DEVICE_HELP, Commands, JsonOption, generated, suite_names
from collapselab.records.options import SuiteOptions

if TYPE_CHECKING:
    from collapselab.suite.status import State

app = typer.Typer(
    cls=Commands,
    help="Plan, run and follow a suite: many models trained and measured by one recipe.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

SuiteArgument = Annotated[
    str,
    typer.Argument(
        metavar="SUITE",
        help="A shipped recipe (see `suite list`), a YAML file, or the folder of a suite, such as `./demo`.",
        autocompletion=suite_names,
    ),
]
ScaleOption = Annotated[
    Literal["full", "small"] | None,
    typer.Option(help="`small` asks the same question in minutes. [default: full]", show_default=False),
]
OutOption = Annotated[
    Path | None,
    typer.Option(help="Folder of the suite. [default: suites/NAME or suites/NAME-small]", show_default=False),
]
AllOption = Annotated[bool, typer.Option("--all", help="List every run.")]


@app.command("list")
def list_suites(as_json: JsonOption = False) -> None:
    """List the shipped recipes, each with the question it asks.

    Example: `collapselab suite list`
    """
    from collapselab.suite.recipe import load_suite, shipped_recipes

    suites = [load_suite(name) for name in shipped_recipes()]
    if as_json:
        known = [{"name": suite.name, "question": suite.question, "runs": len(suite.runs)} for suite in suites]
        print(json.dumps(known))
        return
    table = Table("suite", "runs", "question", box=None, header_style="bold")
    for suite in suites:
        table.add_row(escape(suite.name), f"{len(suite.runs):,}", escape(suite.question))
    console = Console()
    console.print(table)
    console.print("See the cost of a suite: collapselab suite plan demo", soft_wrap=True)


@app.command()
def plan(
    suite: SuiteArgument,
    scale: ScaleOption = None,
    out: OutOption = None,
    timing: Annotated[bool, typer.Option(help="Time a few steps to estimate the duration on this machine.")] = True,
    device: Annotated[str, typer.Option(help=DEVICE_HELP)] = "auto",
    every: AllOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show the cost of a suite on this machine (tokens, FLOPs, disk, time), what is already done, and warnings.

    Example: `collapselab suite plan scale --scale small`
    """
    from collapselab.suite.folder import open_suite
    from collapselab.suite.plan import pace
    from collapselab.suite.run import plan as planned_suite
    from collapselab.suite.status import plan_facts, plan_table, run_state, wide_console

    opened, folder = open_suite(suite, scale=scale, out=out)
    console = Console(stderr=True)
    with console.status(f"planning {len(opened.runs):,} runs …"):
        planned = planned_suite(opened, folder)
        states = [run_state(folder, entry, opened.measure) for entry in planned.entries]
    measured = None
    if timing and planned.entries:
        with console.status("timing a few steps …"):
            measured = pace(planned.entries, device=device)
    facts = plan_facts(planned, states, opened.measure, measured)
    if as_json:
        about = {"suite": opened.name, "scale": opened.scale, "question": opened.question, "out": str(folder.path)}
        print(json.dumps({**about, **facts}, ensure_ascii=False, default=asdict))
    else:
        Console().print(f"[bold]{escape(opened.name)}[/bold]: {escape(opened.question)}", soft_wrap=True)
        wide_console().print(plan_table(facts, every=every))
        if any(entry.corpus.hash is None for entry in planned.entries):
            Console().print(
                "The corpus is not built yet: token counts are estimates, and the hash in each run's name will change."
            )
        Console().print(escape(f"Run it: collapselab suite run {suite} → {folder.path}"), soft_wrap=True)
    if planned.impossible:
        raise typer.Exit(2)


@app.command()
@generated(SuiteOptions)
def run(
    suite: SuiteArgument,
    scale: ScaleOption = None,
    out: OutOption = None,
    as_json: JsonOption = False,
    **options: Any,
) -> None:
    """Train and measure the runs that are missing, and update `runs.csv` and `results.csv`.

    If it is stopped, the same command continues. Several commands on one folder share the work.

    In a few minutes: `collapselab suite run demo --jobs 2`

    On a cluster: `collapselab suite run paper --launcher slurm`
    """
    from collapselab.suite import run as suites
    from collapselab.suite.folder import open_suite
    from collapselab.suite.status import shown_live, status_table, wide_console

    opened, folder = open_suite(suite, scale=scale, out=out)
    with shown_live() as watch:
        done = suites.run(opened, folder, watch=watch, **options)
    if not done.waited:
        submitted = f"{folder.path}: {len(done.jobs):,} jobs submitted"
        follow = f"Follow them: collapselab suite status {suite} --follow"
        print(json.dumps({"out": str(folder.path), "jobs": done.jobs}) if as_json else f"{submitted}. {follow}")
        return
    if as_json:
        print(json.dumps({"out": str(folder.path), "runs": [asdict(state) for state in done.states]}))
    else:
        wide_console().print(status_table(done.states))
        made = f"{folder.path}: runs.csv, results.csv. Next: collapselab analyze {folder.path}"
        Console().print(escape(made), soft_wrap=True)
    _report_refused(done.refused)
    if done.failed:
        failed = f"{len(done.failed):,} run{'' if len(done.failed) == 1 else 's'} failed"
        print(f"{failed}; try again with --retry-failed.", file=sys.stderr)
    if done.failed or done.refused:
        raise typer.Exit(1)


@app.command()
def status(
    suite: SuiteArgument,
    scale: ScaleOption = None,
    out: OutOption = None,
    follow: Annotated[bool, typer.Option("--follow", help="Update the table until all runs have finished.")] = False,
    every: AllOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show the state of every run: queued, training (step, loss, time left), measuring, done, or failed and why.

    Example: `collapselab suite status demo --follow`
    """
    from collapselab.suite import run as suites
    from collapselab.suite.folder import open_suite
    from collapselab.suite.status import shown_live, status_table, wide_console

    opened, folder = open_suite(suite, scale=scale, out=out)

    def current_states() -> "list[State]":
        return suites.status(opened, folder, jobs=suites.job_states(folder))

    states = current_states()
    if follow:
        with shown_live() as watch:
            while any(state.stage in ("queued", "training", "measuring", "stopped") for state in states):
                if watch is not None:
                    watch(states)
                time.sleep(2)
                states = current_states()
    if as_json:
        print(json.dumps({"out": str(folder.path), "runs": [asdict(state) for state in states]}, ensure_ascii=False))
    else:
        wide_console().print(status_table(states, every=every))


@app.command()
def collect(
    suite: SuiteArgument,
    scale: ScaleOption = None,
    out: OutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Rebuild `runs.csv` and `results.csv` from the folders of the runs; inconsistent records are refused.

    Example: `collapselab suite collect suites/demo`
    """
    from collapselab.suite.collect import collect as collect_tables
    from collapselab.suite.folder import SuiteFolder, open_suite
    from collapselab.suite.recipe import is_shipped

    named = out is None and not is_shipped(suite) and Path(suite).is_dir()
    folder = SuiteFolder(suite) if named else open_suite(suite, scale=scale, out=out)[1]
    tables = collect_tables(folder)
    counts = {
        "runs": len({run["run"] for run in tables.runs}),
        "checkpoints": len(tables.runs),
        "results": len(tables.results),
    }
    if as_json:
        print(json.dumps({"out": str(folder.path), **counts, "refused": tables.refused}, ensure_ascii=False))
    else:
        print(f"{folder.path}: {', '.join(f'{count:,} {what}' for what, count in counts.items())}.")
    _report_refused(tables.refused)
    if tables.refused:
        raise typer.Exit(1)


@app.command()
def cancel(suite: SuiteArgument, scale: ScaleOption = None, out: OutOption = None) -> None:
    """Cancel the jobs of a suite in the queue of a cluster. What they have saved is kept.

    Example: `collapselab suite cancel paper`
    """
    from collapselab.suite import run as suites
    from collapselab.suite.folder import open_suite

    _, folder = open_suite(suite, scale=scale, out=out)
    print(f"{folder.path}: {suites.cancel(folder):,} jobs cancelled.")


def demo(
    out: Annotated[
        Path, typer.Option(help="Folder of everything that is made. [default: ./demo]", show_default=False)
    ] = Path("demo"),
    jobs: Annotated[
        int | None, typer.Option(help="Processes that run side by side. [default: one per processor, at most 2]")
    ] = None,
    open_page: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in a browser if there is a desktop.")
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Build a corpus, train and measure 26 small models, analyse them and draw the page: offline, about four minutes.

    If it is stopped, the same command continues. Once it has finished, the same command prints the result again.

    Example: `collapselab demo --out demo`
    """
    print(f"Everything is written to {out}. About four minutes on two idle cores.", file=sys.stderr, flush=True)
    from collapselab.demo import run_demo
    from collapselab.suite.folder import as_argument

    made = run_demo(out, jobs=jobs)
    if as_json:
        print(json.dumps(made.to_json(), ensure_ascii=False))
    else:
        for sentence in made.sentences:
            Console().print(escape(sentence), end="\n\n", highlight=False)
        print(made.page.resolve(), flush=True)
        desktop = sys.platform in ("darwin", "win32") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
        if open_page and desktop and sys.stdout.isatty():
            webbrowser.open(made.page.resolve().as_uri())
    if made.failures:
        again = f"collapselab suite run {as_argument(made.folder)} --retry-failed"
        print(f"{len(made.failures):,} failed:", *made.failures, sep="\n  ", file=sys.stderr)
        print(f"Try them again: {again}, then repeat this command.", file=sys.stderr)
        raise typer.Exit(1)


def _report_refused(refused: list[str]) -> None:
    for reason in refused:
        print(reason, file=sys.stderr)
