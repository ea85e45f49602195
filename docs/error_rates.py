"""How often each verdict is wrong where there is nothing to find, and how often it finds what was planted.

An entry is one verdict that the analysis can give: `claims` makes a table, with the effect or without it, and says
whether the verdict was given. `INTERVALS` are the same for intervals, whose `covers` says whether the truth was inside.
The entries are in simulations/, a file for each statement. error_rates.json keeps the counts, with the number of tables
that each entry should have (`full_size`; a quarter of it with an effect), and `make docs` makes the tables of
statistics.md from it.

    python docs/error_rates.py [NAME…]         counts these entries, or all, up to their full size, from where they are
    python docs/error_rates.py --tables 100    up to 100 tables each
    python docs/error_rates.py --again NAME    from nothing, as after a change of the test

Every table has a number and is the same whenever it is drawn. A test runs every entry at small size.
"""

import argparse
import json
import sys
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from scipy.stats import binom, binomtest
from simulations import INTERVALS, VERDICTS
from simulations.entry import Claim, Interval

RESULTS = Path(__file__).with_name("error_rates.json")
LEVEL = 0.05
COVERAGE = 0.95
FULL = "full_size"
Counts = dict[str, dict[str, tuple[int, int]]]
"""By entry, and in it by `null`, `planted` or `covered`: how often, and in how many tables."""


BATCH = 20
"""Tables after which the counts are kept."""


def run(name: str, entry: Claim | Interval, tables: int | None = None) -> dict[str, tuple[int, int]]:
    """The counts of one entry, from nothing."""
    counts: dict[str, tuple[int, int]] = {}
    while not is_complete(counts, entry, tables):
        counts = more(name, entry, counts, tables)
    return counts


def is_complete(counts: dict[str, tuple[int, int]], entry: Claim | Interval, tables: int | None = None) -> bool:
    """Whether as many tables were counted as there should be."""
    return all(counts.get(kind, (0, 0))[1] >= size for kind, (_, size) in _kinds(entry, tables).items())


def more(
    name: str, entry: Claim | Interval, counts: dict[str, tuple[int, int]], tables: int | None = None
) -> dict[str, tuple[int, int]]:
    """The counts of an entry after a batch more of tables."""
    counts = dict(counts)
    for kind, (holds, size) in _kinds(entry, tables).items():
        count, start = counts.get(kind, (0, 0))
        end = max(start, min(size, start + BATCH))
        rngs = (np.random.default_rng([zlib.crc32(f"{name}, {kind}".encode()), table]) for table in range(start, end))
        counts[kind] = (count + sum(bool(holds(rng)) for rng in rngs), end)
    return counts


def _kinds(entry: Claim | Interval, tables: int | None) -> dict[str, tuple[Callable[[np.random.Generator], bool], int]]:
    """What is counted of an entry: how one table is judged, and how many there should be."""
    size = tables or entry.tables
    if isinstance(entry, Interval):
        return {"covered": (entry.covers, size)}
    kinds = {"null": (lambda rng: entry.claims(rng, False), size)}
    if entry.planted:
        kinds["planted"] = (lambda rng: entry.claims(rng, True), max(1, size // 4))
    return kinds


def is_too_often(wrong: int, tables: int) -> bool:
    """Whether a rate of 5 % could hardly give this many: less than once in a thousand."""
    return bool(binom.sf(wrong - 1, tables, LEVEL) < 0.001)


def is_above_level(wrong: int, tables: int) -> bool:
    """Whether the 95 % interval of a rate that was counted at full size is above 5 %."""
    return float(binomtest(wrong, tables).proportion_ci(method="wilson").low) > LEVEL


def is_too_seldom(covered: int, tables: int) -> bool:
    """Whether a coverage of 95 % could hardly give this few; 93 % is let pass, as small tables allow no better."""
    return bool(binom.cdf(covered, tables, COVERAGE - 0.02) < 0.001)


def stored() -> Counts:
    """What was counted last, by entry."""
    kept = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    return {name: {kind: count for kind, count in counts.items() if kind != FULL} for name, counts in kept.items()}


def store(counts: Counts, entries: Mapping[str, Claim | Interval]) -> None:
    """Keep these counts, in the order of the entries."""
    ordered = {name: {**counts[name], FULL: entry.tables} for name, entry in entries.items() if name in counts}
    RESULTS.write_text(json.dumps(ordered, indent=1) + "\n")


def verdict_table() -> str:
    """A row a verdict: its rate of false claims with the 95 % interval of the simulation, and its power."""
    rows = [
        "|verdict|where nothing is to be found|given, %|found where planted, %|",
        "|---|---|---|---|",
    ]
    counts = stored()
    for name, entry in VERDICTS.items():
        wrong, right = (counts.get(name, {}).get(kind) for kind in ("null", "planted"))
        power = _rate(right).partition(" ")[0] if entry.planted else "–"
        rows.append(f"|{entry.says}|{entry.null}|{_rate(wrong)}{_mark(name, entry)}|{power}|")
    return "\n".join(rows)


def interval_table() -> str:
    """A row an interval: how often it covers the truth."""
    rows = ["|95 % interval|tables|covers, %|", "|---|---|---|"]
    counts = stored()
    for name, entry in INTERVALS.items():
        rows.append(f"|{entry.of}|{entry.tables_are}|{_rate(counts.get(name, {}).get('covered'))}{_mark(name, entry)}|")
    return "\n".join(rows)


def _mark(name: str, entry: Claim | Interval) -> str:
    """A star where fewer tables were counted than there should be."""
    return "" if is_complete(stored().get(name, {}), entry) else r" \*"


def _rate(counts: tuple[int, int] | None) -> str:
    if counts is None:
        return "not yet counted"
    count, tables = counts
    low, high = binomtest(count, tables).proportion_ci(method="wilson")
    return f"{100 * count / tables:.1f} ({100 * low:.1f}–{100 * high:.1f})"


def main(arguments: list[str] | None = None) -> int:
    """Count the entries that are named, or all, and keep the counts."""
    entries: dict[str, Claim | Interval] = {**VERDICTS, **INTERVALS}
    parser = argparse.ArgumentParser(
        description="How often each verdict of the analysis is wrong, and how often right."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"any of {', '.join(entries)}".replace("%", "%%"))
    parser.add_argument("--tables", type=int, help="tables of each entry, in place of its full size")
    parser.add_argument("--again", action="store_true", help="forget what was counted of these entries")
    given = parser.parse_args(arguments)
    if unknown := [name for name in given.names if name not in entries]:
        parser.error(f"{unknown[0]} is not an entry. Entries: {', '.join(entries)}.")
    for name in given.names or entries:
        entry = entries[name]
        needs = getattr(entry, "needs", None)
        if needs is not None and not needs.is_file():
            print(f"{name}: {needs} is not there; its counts stay as they are.", file=sys.stderr)
            continue
        counts = {} if given.again else stored().get(name, {})
        while not is_complete(counts, entry, given.tables):
            counts = more(name, entry, counts, given.tables)
            store(stored() | {name: counts}, entries)
        print(name, {kind: f"{count} of {tables}" for kind, (count, tables) in counts.items()}, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
