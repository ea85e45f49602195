"""A suite on a terminal: the plan, and the state of each run."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypedDict

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Column, Table

from collapselab.messages import is_quiet
from collapselab.records.options import Options
from collapselab.suite.model_entries import ModelEntry
from collapselab.suite.plan import AnyEntry, Pace, SuitePlan
from collapselab.suite.power import PlannedComparison
from collapselab.suite.run import Watch
from collapselab.suite.status import STAGES, Stage, State

SHOWN = 40
"""Most runs that are listed; the others are counted."""

STAGE_COLOURS = {"training": "cyan", "measuring": "cyan", "stopped": "yellow", "failed": "red", "done": "green"}


class RunFacts(TypedDict):
    """A run of a plan."""

    run: str
    stage: Stage
    parameters: int
    batch: int
    steps: int
    tokens: int
    flops: float
    disk_bytes: int
    checkpoints: list[str]
    seconds: float | None


class TotalFacts(TypedDict):
    """All runs of a plan together."""

    runs: int
    done: int
    checkpoints: int
    tokens: int
    flops: float
    disk_bytes: int
    seconds_left: float | None


class PlanFacts(TypedDict):
    """A plan as plain data."""

    runs: list[RunFacts]
    total: TotalFacts
    warnings: list[str]
    impossible: list[str]
    comparison: PlannedComparison | None


def plan_facts(planned: SuitePlan, states: list[State], options: Options, pace: Pace | None) -> PlanFacts:
    """The plan as plain data: every run, and the totals."""
    runs = [_entry_facts(entry, state, options, pace) for entry, state in zip(planned.entries, states, strict=True)]
    total: TotalFacts = {
        "runs": len(runs),
        "done": sum(run["stage"] == "done" for run in runs),
        "checkpoints": sum(len(run["checkpoints"]) for run in runs),
        "tokens": sum(run["tokens"] for run in runs),
        "flops": sum(run["flops"] for run in runs),
        "disk_bytes": sum(run["disk_bytes"] for run in runs),
        "seconds_left": None if pace is None else sum(run["seconds"] or 0 for run in runs if run["stage"] != "done"),
    }
    return {
        "runs": runs,
        "total": total,
        "warnings": planned.warnings,
        "impossible": planned.impossible,
        "comparison": planned.compared,
    }


def _entry_facts(entry: AnyEntry, state: State, options: Options, pace: Pace | None) -> RunFacts:
    return {
        "run": entry.name,
        "stage": state.stage,
        "parameters": entry.parameters,
        "batch": entry.planned.batch,
        "steps": entry.planned.steps,
        "tokens": entry.planned.tokens,
        "flops": entry.flops,
        "disk_bytes": entry.disk,
        "checkpoints": list(entry.checkpoints),
        "seconds": None if pace is None or isinstance(entry, ModelEntry) else pace.seconds(entry, options),
    }


def plan_table(facts: PlanFacts, *, every: bool = False) -> RenderableType:
    """The plan as a table."""
    table = Table(box=None, header_style="bold")
    for column in ("run", "parameters", "batch", "steps", "tokens", "FLOPs", "checkpoints", "disk", "time", ""):
        words = column in ("run", "checkpoints", "")
        table.add_column(column, justify="left" if words else "right", no_wrap=column == "run")
    runs = facts["runs"]
    for run in runs if every or len(runs) <= SHOWN else runs[: SHOWN // 2]:
        table.add_row(
            escape(run["run"]), f"{run['parameters']:,}", str(run["batch"]), f"{run['steps']:,}",
            amount(run["tokens"]), amount(run["flops"]), escape(_listed(run["checkpoints"])), size(run["disk_bytes"]),
            duration(run["seconds"]), _coloured(run["stage"]),
        )  # fmt: skip
    total = facts["total"]
    parts: list[RenderableType] = [table]
    if len(runs) > len(table.rows):
        parts.append(f"… and {len(runs) - len(table.rows):,} more runs (--all lists them)")
    left = "" if total["seconds_left"] is None else f", about {duration(total['seconds_left'])} on this machine"
    done = f", {total['done']:,} of them done" if total["done"] else ""
    parts.append(
        f"[bold]{total['runs']:,} runs{done}[/bold], {total['checkpoints']:,} checkpoints: {amount(total['tokens'])} "
        f"tokens, {amount(total['flops'])} FLOPs, {size(total['disk_bytes'])} of disk{left}"
    )
    if facts["comparison"] is not None:
        parts += _comparison_parts(facts["comparison"])
    parts += [f"[yellow]{escape(warning)}[/yellow]" for warning in facts["warnings"]]
    parts += [f"[red]{escape(reason)}[/red]" for reason in facts["impossible"]]
    return Group(*parts)


def _comparison_parts(compared: PlannedComparison) -> list[RenderableType]:
    """The pairs of a suite of arms, what they can show, and the smallest p that they can reach."""
    pairs, arms, primary = compared.pairs, compared.arms, compared.properties
    cells = f" in each of {compared.cells} cells" if compared.cells > 1 else ""
    others = len(arms) - (compared.control is not None)
    table = Table(box=None, header_style="bold")
    columns = ("effect (d/s)", "pairs at 0.05", "at 0.01", "equivalence", f"power of {pairs} pairs", "of equivalence")
    for column in columns:
        table.add_column(column, justify="right")
    for row in compared.power:
        needed = (row.pairs_at_5_percent, row.pairs_at_1_percent, row.pairs_for_equivalence)
        powers = (row.power, row.power_of_equivalence)
        shares = ("–" if power is None else f"{power:.0%}" for power in powers)
        table.add_row(f"{row.effect:g}", *map(str, needed), *shares)
    holm = "survives" if compared.survives_holm else f"does not survive ({compared.fewest_pairs} pairs would)"
    return [
        f"[bold]{others} arms × {pairs} seeds{cells}[/bold]: {others * pairs * compared.cells:,} pairs with the "
        f"control. Arms: {escape(', '.join(arms))}",
        "Pairs that find an effect of d/s standard deviations in 80 of 100 suites, and what these pairs find:",
        table,
        f"The smallest p of {pairs} pairs with their signs flipped is {compared.smallest_p:.2g}: it {holm} Holm's "
        f"adjustment over {'1 primary property' if primary == 1 else f'{primary} primary properties'} at 0.05.",
    ]


def status_table(states: list[State], *, every: bool = False) -> RenderableType:
    """The state of each run: first those that are running or failed, then the others, as many as there is room for."""
    jobs = any(state.job for state in states)
    columns = ["", "checkpoints", "step", "loss", "time left", *(["job"] if jobs else []), "why"]
    table = Table(Column("run", no_wrap=True), *columns, box=None, header_style="bold")
    ordered = sorted(states, key=lambda state: STAGES.index(state.stage))
    shown = ordered if every else ordered[:SHOWN]
    for state in shown:
        measured = f"{state.checkpoints_made}/{state.checkpoints} made, {state.checkpoints_measured} measured"
        step = f"{state.step:,}/{state.steps:,}" if state.step else ""
        loss = "" if state.loss is None else f"{state.loss:.3f}"
        left = "" if state.seconds_left is None else duration(state.seconds_left)
        cells = [escape(state.run), _coloured(state.stage), measured, step, loss, left]
        table.add_row(*cells, *([escape(state.job or "")] if jobs else []), escape(state.why or ""))
    parts: list[RenderableType] = [table]
    if len(states) > len(shown):
        parts.append(f"… and {len(states) - len(shown):,} more runs (--all lists them)")
    return Group(*parts, summary(states))


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
        lines: list[str] = []

        def show(states: list[State]) -> None:
            line = summary(states)
            if lines[-1:] != [line]:
                lines.append(line)
                console.print(line, soft_wrap=True)

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


def amount(number: float) -> str:
    """A large number in four characters or so: 12k, 3.4M, 5.6e18."""
    for limit, unit, name in ((1e4, 1, ""), (1e6, 1e3, "k"), (1e9, 1e6, "M"), (1e12, 1e9, "G")):
        if number < limit:
            return f"{number / unit:,.{0 if number / unit >= 100 or not name else 1}f}{name}"
    return f"{number:.1e}"


def size(number: float) -> str:
    """A number of bytes in words: 12.0 kB, 3.4 MB."""
    for limit, unit, name in ((1e6, 1e3, "kB"), (1e9, 1e6, "MB"), (1e12, 1e9, "GB")):
        if number < limit:
            return f"{number / unit:,.1f} {name}"
    return f"{number / 1e12:,.1f} TB"


def _listed(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= 5 else f"{', '.join(names[:2])} … {names[-1]} ({len(names)})"


def _coloured(stage: str) -> str:
    return f"[{STAGE_COLOURS[stage]}]{stage}[/]" if stage in STAGE_COLOURS else stage
