"""How often each verdict is wrong where there is nothing to find, and how often it finds what was planted.

An entry is one verdict that the analysis can give: `claims` makes a table, with the effect or without it, and says
whether the verdict was given. `INTERVALS` are the same for intervals, whose `covers` says whether the truth was inside.
The entries are in simulations/, a file for each statement. `python docs/error_rates.py [NAME…]` runs the entries (or
these alone), each at its full size, and keeps the counts in error_rates.json, from which `make docs` makes the tables
of statistics.md. `--tables N` makes fewer. A test runs every entry at small size.
"""

import argparse
import json
import sys
import zlib
from pathlib import Path

import numpy as np
from scipy.stats import binom, binomtest
from simulations import INTERVALS, VERDICTS
from simulations.entry import Interval, Verdict

RESULTS = Path(__file__).with_name("error_rates.json")
LEVEL = 0.05
COVERAGE = 0.95
Counts = dict[str, dict[str, tuple[int, int]]]
"""By entry, and in it by `null`, `planted` or `covered`: how often, and in how many tables."""


def run(name: str, entry: Verdict | Interval, tables: int | None = None) -> dict[str, tuple[int, int]]:
    """The counts of one entry; the same name and number of tables give the same ones."""
    size = tables or entry.tables
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    if isinstance(entry, Interval):
        return {"covered": (sum(bool(entry.covers(rng)) for _ in range(size)), size)}
    few = max(1, size // 4)
    return {
        "null": (sum(bool(entry.claims(rng, False)) for _ in range(size)), size),
        "planted": (sum(bool(entry.claims(rng, True)) for _ in range(few)), few),
    }


def is_too_often(wrong: int, tables: int) -> bool:
    """Whether a rate of 5 % could hardly give this many: less than once in a thousand."""
    return bool(binom.sf(wrong - 1, tables, LEVEL) < 0.001)


def is_too_seldom(covered: int, tables: int) -> bool:
    """Whether a coverage of 95 % could hardly give this few; 93 % is let pass, as small tables allow no better."""
    return bool(binom.cdf(covered, tables, COVERAGE - 0.02) < 0.001)


def stored() -> Counts:
    """What was counted last, by entry."""
    return json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}


def verdict_table() -> str:
    """A row a verdict: its rate of false claims with the 95 % interval of the simulation, and its power."""
    rows = [
        "| verdict | where there is nothing to find | given there | where something is planted | found |",
        "|---|---|---|---|---|",
    ]
    counts = stored()
    for name, entry in VERDICTS.items():
        wrong, right = (counts.get(name, {}).get(kind) for kind in ("null", "planted"))
        rows.append(f"| {entry.says} | {entry.null} | {_rate(wrong)} | {entry.planted} | {_rate(right)} |")
    return "\n".join(rows)


def interval_table() -> str:
    """A row an interval: how often it covers the truth."""
    rows = ["| 95 % interval | tables | covers |", "|---|---|---|"]
    counts = stored()
    for name, entry in INTERVALS.items():
        rows.append(f"| {entry.of} | {entry.tables_are} | {_rate(counts.get(name, {}).get('covered'))} |")
    return "\n".join(rows)


def _rate(counts: tuple[int, int] | None) -> str:
    if counts is None:
        return "not yet counted"
    count, tables = counts
    low, high = binomtest(count, tables).proportion_ci(method="wilson")
    return f"{100 * count / tables:.1f} % [{100 * low:.1f}, {100 * high:.1f}] of {tables:,}"


def main() -> int:
    """Run the entries that are named, or all, and keep their counts."""
    entries: dict[str, Verdict | Interval] = {**VERDICTS, **INTERVALS}
    parser = argparse.ArgumentParser(
        description="How often each verdict of the analysis is wrong, and how often right."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"any of {', '.join(entries)}")
    parser.add_argument("--tables", type=int, help="tables of each entry, in place of its full size")
    given = parser.parse_args()
    if unknown := [name for name in given.names if name not in entries]:
        parser.error(f"{unknown[0]} is not an entry. Entries: {', '.join(entries)}.")
    for name in given.names or entries:
        needs = getattr(entries[name], "needs", None)
        if needs is not None and not needs.is_file():
            print(f"{name}: {needs} is not there; its counts stay as they are.", file=sys.stderr)
            continue
        counts = run(name, entries[name], given.tables)
        print(name, {kind: f"{count} of {tables}" for kind, (count, tables) in counts.items()}, flush=True)
        latest = stored() | {name: counts}
        ordered = {known: latest[known] for known in entries if known in latest}
        RESULTS.write_text(json.dumps(ordered, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
