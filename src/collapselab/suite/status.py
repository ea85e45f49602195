"""The state of each run, read from its folder (queued, training, measuring, stopped, failed or done), and tables of
states and plans on a terminal.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from collapselab import __version__
from collapselab.errors import DamagedError
from collapselab.messages import is_quiet
from collapselab.records.facts import Facts
from collapselab.records.options import Options
from collapselab.records.outcomes import SUITE_OUTCOMES
from collapselab.records.run import Checkpoint, RunFolder
from collapselab.suite.folder import SuiteFolder
from collapselab.suite.plan import Entry, PlannedComparison, SuitePlan
from collapselab.training.settings import Plan

Stage = Literal["queued", "training", "measuring", "stopped", "failed", "done"]
STAGES: tuple[Stage, ...] = ("training", "measuring", "failed", "stopped", "queued", "done")
"""In the order in which they are shown."""
FACTS_SIZE = 1 << 16
"""Characters at the beginning of a measurement that hold its facts."""

SHOWN = 40
"""Most runs that are listed; the others are counted."""

STAGE_COLOURS = {"training": "cyan", "measuring": "cyan", "stopped": "yellow", "failed": "red", "done": "green"}


@dataclass(frozen=True)
class State:
    """How far a run is. `stopped`: started, and no process performs it; the next `suite run` continues it."""

    run: str
    stage: Stage
    checkpoints: int
    checkpoints_made: int
    checkpoints_measured: int
    step: int
    steps: int
    loss: float | None = None
    seconds_left: float | None = None
    why: str | None = None
    job: str | None = None


Watch = Callable[[list[State]], None]


def run_state(
    folder: SuiteFolder, entry: Entry, options: Options, *, job: str | None = None, thorough: bool = True
) -> State:
    """Return the state of one run; `thorough` as in `missing`."""
    unmade, unmeasured = missing(folder, entry, options, thorough=thorough)
    count, steps, path = len(entry.checkpoints), entry.planned.steps, folder.run(entry.name)
    step, loss, left = _progress(path, entry.planned) if unmade else (steps, None, None)
    failure = folder.failure(entry.name)
    if not unmade and not unmeasured:
        stage: Stage = "done"
    elif folder.is_running(entry.name):
        stage = "training" if unmade else "measuring"
    elif failure is not None:
        stage = "failed"
    else:
        stage = "stopped" if path.is_dir() else "queued"
    why = failure.why if failure is not None and stage == "failed" else None
    left = left if stage == "training" else None
    return State(
        entry.name, stage, count, count - len(unmade), count - len(unmeasured), step, steps, loss, left, why, job
    )


def missing(
    folder: SuiteFolder, entry: Entry, options: Options, *, thorough: bool = True
) -> tuple[list[str], list[str]]:
    """Return the checkpoints of a run that are not made yet, and those that are not measured with these options.

    `thorough` reads measurements whole, which takes seconds in a large suite; else the facts at their beginning decide.
    """
    run = RunFolder(folder.run(entry.name))
    unmade = [name for name in entry.checkpoints if not (run.exists() and _is_made(run, name, entry.name[-8:]))]
    unmeasured = [
        name
        for name in entry.checkpoints
        if not _is_measured(Checkpoint(run, name).measurement, entry.corpus.hash, options, thorough=thorough)
    ]
    return unmade, unmeasured


def _is_made(run: RunFolder, name: str, identity: str) -> bool:
    """Whether a checkpoint is there and of this run; one that is damaged is found when it is measured."""
    try:
        record = run.checkpoint(name, verify=False)
    except DamagedError:
        return Checkpoint(run, name).exists()
    return record is not None and record.run in (None, identity)


def _is_measured(path: Path, corpus_hash: str | None, options: Options, *, thorough: bool) -> bool:
    facts = None if thorough else _stored_facts(path)
    if facts is None:
        from collapselab.records.measurement import Result

        try:
            result = Result.load(path)
        except (FileNotFoundError, DamagedError):
            return False
        if result.outdated() is not None:
            return False
        facts = result.facts
    measured, wanted = facts["options"], options.facts()
    if wanted.get("outcomes") == SUITE_OUTCOMES and "outcomes" not in measured:
        wanted = {name: value for name, value in wanted.items() if name != "outcomes"}  # version 0.1 had no default
    return bool(measured == wanted and facts["corpus_hash"] == corpus_hash)


def _stored_facts(path: Path) -> Facts | None:
    """The facts that a measurement's file begins with; None where they are not there, or of another version."""
    try:
        with path.open(encoding="utf-8") as file:
            head = file.read(FACTS_SIZE)
        facts: Facts = json.JSONDecoder().raw_decode(head, head.index('"facts": ') + len('"facts": '))[0]
        return facts if facts["versions"]["collapselab"] == __version__ else None  # others may define metrics otherwise
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _progress(path: Path, planned: Plan) -> tuple[int, float | None, float | None]:
    """The last logged step, its loss, and the seconds that the remaining steps take at the speed of the last one."""
    logged = [entry for entry in RunFolder(path).read_log() if "loss" in entry]
    if not logged:
        return 0, None, None
    rate = logged[-1].get("tokens_per_second")
    left = (planned.tokens - logged[-1]["tokens"]) / rate if rate else None
    return min(logged[-1]["step"], planned.steps), logged[-1]["loss"], left


def plan_facts(planned: SuitePlan, states: list[State], options: Options, pace: float | None) -> dict[str, Any]:
    """Return the plan as plain data: every run, and the totals."""
    runs: list[dict[str, Any]] = [
        {
            "run": entry.name,
            "stage": state.stage,
            "parameters": entry.parameters,
            "batch": entry.planned.batch,
            "steps": entry.planned.steps,
            "tokens": entry.planned.tokens,
            "flops": entry.flops,
            "disk_bytes": entry.disk,
            "checkpoints": list(entry.checkpoints),
            "seconds": None if pace is None else entry.seconds(pace, options),
        }
        for entry, state in zip(planned.entries, states, strict=True)
    ]
    total = {
        "runs": len(runs),
        "done": sum(run["stage"] == "done" for run in runs),
        "checkpoints": sum(len(run["checkpoints"]) for run in runs),
        **{name: sum(run[name] for run in runs) for name in ("tokens", "flops", "disk_bytes")},
        "seconds_left": None if pace is None else sum(run["seconds"] or 0 for run in runs if run["stage"] != "done"),
    }
    return {
        "runs": runs,
        "total": total,
        "warnings": planned.warnings,
        "impossible": planned.impossible,
        "comparison": planned.compared,
    }


def plan_table(facts: dict[str, Any], *, every: bool = False) -> RenderableType:
    """Return the plan as a table."""
    table = _table("run", "parameters>", "batch>", "steps>", "tokens>", "FLOPs>", "checkpoints", "disk>", "time>", "")
    runs = facts["runs"]
    for run in runs if every or len(runs) <= SHOWN else runs[: SHOWN // 2]:
        names = run["checkpoints"]
        listed = ", ".join(names) if len(names) <= 5 else f"{names[0]} … {names[-1]} ({len(names)})"
        table.add_row(
            escape(run["run"]), f"{run['parameters']:,}", str(run["batch"]), f"{run['steps']:,}",
            amount(run["tokens"]), amount(run["flops"]), escape(listed), size(run["disk_bytes"]),
            duration(run["seconds"]), _coloured(run["stage"]),
        )  # fmt: skip
    total = facts["total"]
    left = "" if total["seconds_left"] is None else f", about {duration(total['seconds_left'])} on this machine"
    done = f", {total['done']:,} of them done" if total["done"] else ""
    return Group(
        table,
        *_more(len(runs) - len(table.rows)),
        f"[bold]{total['runs']:,} runs{done}[/bold], {total['checkpoints']:,} checkpoints: {amount(total['tokens'])} "
        f"tokens, {amount(total['flops'])} FLOPs, {size(total['disk_bytes'])} of disk{left}",
        *([] if facts["comparison"] is None else _comparison_parts(facts["comparison"])),
        *(f"[yellow]{escape(warning)}[/yellow]" for warning in facts["warnings"]),
        *(f"[red]{escape(reason)}[/red]" for reason in facts["impossible"]),
    )


def _comparison_parts(compared: PlannedComparison) -> list[RenderableType]:
    """The pairs of a suite of arms, what they can show, and the smallest p that they can reach."""
    pairs, arms, properties = compared.pairs, compared.arms, compared.properties
    cells = f" in each of {compared.cells} cells" if compared.cells > 1 else ""
    others = len(arms) - (compared.control is not None)
    columns = ("effect (d/s)", "pairs at 0.05", "equivalence", f"power of {pairs} pairs", "of equivalence")
    table = _table(*(f"{column}>" for column in columns))
    for row in compared.power:
        powers = ("–" if power is None else f"{power:.0%}" for power in (row.power, row.power_of_equivalence))
        table.add_row(f"{row.effect:g}", str(row.pairs_at_5_percent), str(row.pairs_for_equivalence), *powers)
    fewest = compared.fewest_pairs
    holm = "survives" if pairs >= fewest else f"does not survive ({fewest} pairs would)"
    return [
        f"[bold]{others} arms × {pairs} seeds{cells}[/bold]: {others * pairs * compared.cells:,} pairs with the "
        f"control. Arms: {escape(', '.join(arms))}",
        "Pairs that find an effect of d/s standard deviations in 80 of 100 suites, and what these pairs find:",
        table,
        f"The smallest p of {pairs} pairs with their signs flipped is {compared.smallest_p:.2g}: it {holm} Holm's "
        f"adjustment over {properties} primary {'property' if properties == 1 else 'properties'} at 0.05.",
    ]


def status_table(states: list[State], *, every: bool = False) -> RenderableType:
    """The state of each run: first those that are running or failed, then the others, as many as there is room for."""
    table = _table("run", "", "checkpoints", "step", "loss", "time left", "job", "why")
    ordered = sorted(states, key=lambda state: STAGES.index(state.stage))
    for state in ordered if every else ordered[:SHOWN]:
        table.add_row(
            escape(state.run),
            _coloured(state.stage),
            f"{state.checkpoints_made}/{state.checkpoints} made, {state.checkpoints_measured} measured",
            f"{state.step:,}/{state.steps:,}" if state.step else "",
            "" if state.loss is None else f"{state.loss:.3f}",
            "" if state.seconds_left is None else duration(state.seconds_left),
            escape(state.job or ""),
            escape(state.why or ""),
        )
    return Group(table, *_more(len(states) - len(table.rows)), summary(states))


def _table(*columns: str) -> Table:
    """A table without lines; columns of numbers have a > after their names."""
    table = Table(box=None, header_style="bold")
    for column in columns:
        justify: Literal["left", "right"] = "right" if column.endswith(">") else "left"
        table.add_column(column.removesuffix(">"), justify=justify, no_wrap=column == "run")
    return table


def _more(count: int) -> list[str]:
    return [f"… and {count:,} more runs (--all lists them)"] if count else []


def summary(states: list[State]) -> str:
    """How many runs are in each stage."""
    counts = Counter(state.stage for state in states)
    listed = [f"{counts[stage]:,} {stage}" for stage in reversed(STAGES) if counts[stage]]
    return f"{len(states):,} runs: {', '.join(listed)}"


@contextmanager
def shown_live(*, quiet: bool = False) -> Iterator[Watch | None]:
    """On a terminal, the table as it changes; elsewhere, a line at every change."""
    console = Console(stderr=True)
    if quiet or is_quiet():
        yield None
    elif console.is_terminal:
        with Live(console=console, refresh_per_second=2, transient=True) as live:
            yield lambda states: live.update(status_table(states))
    else:
        last = ""

        def show(states: list[State]) -> None:
            nonlocal last
            if last != (last := summary(states)):
                console.print(last, soft_wrap=True)

        yield show


def wide_console() -> Console:
    """Standard output, wide enough for the tables where it is no terminal, which would have a width."""
    console = Console()
    return console if console.is_terminal else Console(width=160)


def duration(seconds: float | None) -> str:
    """A time in words: 40 s, 12 min, 3.5 h, 2.1 days."""
    if seconds is None:
        return "–"
    for limit, unit, name in ((120, 1, "s"), (7200, 60, "min"), (172800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / unit:.{0 if unit < 3600 else 1}f} {name}"
    return f"{seconds / 86400:,.1f} days"


def amount(number: float, units: tuple[str, ...] = ("", "k", "M", "G")) -> str:
    """A large number in four characters or so: 12k, 3.4M, 5.6e18."""
    for power, unit in enumerate(units):
        scaled = number / 1000**power
        if scaled < (10_000 if power == 0 else 1000):
            return f"{scaled:,.{0 if scaled >= 100 or not power else 1}f}{unit}"
    return f"{number:.1e}"


def size(number: float) -> str:
    """A number of bytes in words: 12.0 kB, 3.4 MB."""
    return amount(number, (" B", " kB", " MB", " GB", " TB"))


def _coloured(stage: str) -> str:
    return f"[{STAGE_COLOURS[stage]}]{stage}[/]" if stage in STAGE_COLOURS else stage
