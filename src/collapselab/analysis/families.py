"""Families: which tests are corrected together, and how many false claims a whole analysis lets one expect.

Each family holds its level of 5 %: where nothing is there, it makes a claim in one of twenty tables. An analysis has
many families, so the summary says how many false claims are to be expected of all of them together. A family's size
follows from the design of the suite and from what was registered, never from the size of the catalogue.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from collapselab.analysis.attainable import LEVEL

FAMILIES: dict[str, Callable[[Any], Hashable | None]] = {
    "relate": lambda row: (row.subset, row.family) if row.p_holm is not None else None,
    "controls": lambda row: row.family if row.p_holm is not None and row.partial_r is not None else None,
    "trends": lambda row: (row.axis, row.where, row.family) if row.p_corrected is not None else None,
    "effects": lambda row: (row.role, row.sham) if row.verdict is not None and row.p_holm is not None else None,
    "doses": lambda row: row.arm if row.p_holm is not None else None,
    "attribution": lambda row: "attribution" if row.q_p is not None else None,
}
"""Of a row of each table, the family of its test; None for a row without a test.

`properties` is left out: its sentences are about metrics that disagree, which needs two errors in opposite directions.
"""


def count_families(tables: Mapping[str, Sequence[Any]]) -> int:
    """Families with at least one test."""
    families = {
        (name, family)
        for name, family_of in FAMILIES.items()
        for row in tables.get(name, ())
        if (family := family_of(row)) is not None
    }
    return len(families)


def expected_words(tables: Mapping[str, Sequence[Any]]) -> str | None:
    """The sentence about false claims; None where nothing was tested."""
    families = count_families(tables)
    if not families:
        return None
    expected = f"{families * LEVEL:.1f}"
    noun = "family" if families == 1 else "families"
    return (
        f"{families} {noun} of tests, each at a level of {100 * LEVEL:g} %: if nothing at all were true, about "
        f"{expected} of them would make a false claim."
    )
