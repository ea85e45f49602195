"""Families: which tests are corrected together, how many there are of each, and how many false claims to expect.

Each family holds its level of 5 %: where nothing is there, it makes a claim in one of twenty tables. An analysis has
many families, so the summary says how many false claims to expect from all of them. The headline counts only claims of
confirmatory families that survive Holm's correction over the confirmatory families: the paper's seven metrics for each
question, and the effects of arms on the outcome. All others explore.

A family's size is declared here or is the number of tests that were made. It never depends on the size of the
catalogue: adding a metric leaves all verdicts of the others as they are.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from collapselab.analysis.resampling import LEVEL, holm
from collapselab.analysis.verdict import Role

FAMILY_SIZES = {"paper": 7}
"""Tests of the families that are declared beforehand, however many of their metrics were measured. Trends test the
outcome with them; their correction by the largest statistic leaves the smallest possible p as it is. The size of every
other family (`exploration`, `contexts`) is the number of tests in the table."""
Tables = Mapping[str, Sequence[Any]]


class Family(NamedTuple):
    """One family of tests."""

    table: str
    key: Hashable

    @property
    def confirmatory(self) -> bool:
        """Whether the headline may claim what this family shows."""
        return self == EFFECTS or "paper" in (self.key if isinstance(self.key, tuple) else (self.key,))


FIXED_SCALE = Family("relate", ("within cells", "paper"))
EFFECTS = Family("effects", (Role.OUTCOME, False))

TESTS: dict[str, Callable[[Any], tuple[Hashable, float | None]]] = {
    "relate": lambda row: ((row.subset, row.family), row.p_holm),
    "controls": lambda row: (row.family, row.p_holm if row.partial_r is not None else None),
    "trends": lambda row: ((row.axis, row.where, row.family), row.p_corrected),
    "effects": lambda row: ((row.role, row.sham), row.p_holm if row.verdict is not None else None),
    "doses": lambda row: (row.metric, row.p_holm),
}
"""The family of a row of each table, and the p of its test, corrected within the family; None without a test.

`properties` is left out: its sentences are about metrics that disagree, which needs two errors in opposite directions.
`attribution` is left out because it needs an effect on the outcome: it is no more often wrong than `effects`.
"""


def family_p(tables: Tables) -> dict[Family, float]:
    """Return the smallest corrected p of every family with a test: the p of the claim that anything in it is true."""
    smallest: dict[Family, float] = {}
    for table, test_of in TESTS.items():
        for key, p in map(test_of, tables.get(table, ())):
            if p is not None:
                family = Family(table, key)
                smallest[family] = min(p, smallest.get(family, 1.0))
    return smallest


def surviving(tables: Tables) -> set[Family]:
    """Return the confirmatory families that claim something after Holm's correction over all confirmatory ones."""
    families = {family: p for family, p in family_p(tables).items() if family.confirmatory}
    return {family for family, p in zip(families, holm(list(families.values())), strict=True) if p < LEVEL}


def error_words(tables: Tables) -> str | None:
    """The sentence about false claims; None where nothing was tested."""
    families = family_p(tables)
    if not families:
        return None
    claiming = sum(p < LEVEL for p in families.values())
    confirmatory = sum(family.confirmatory for family in families)
    return (
        f"Of {len(families)} families of tests at the {100 * LEVEL:g} % level, {len(families) * LEVEL:.2g} are "
        f"expected to claim something if nothing is true; {claiming} do. Of the claims of {confirmatory} confirmatory "
        f"ones, Holm's correction over families leaves {len(surviving(tables))}."
    )


def smallest_permutation_p(sizes: Iterable[int]) -> float:
    """The smallest two-sided p from permuting within groups of these sizes: the order found and its mirror image."""
    return min(1.0, 2 / math.prod(math.factorial(size) for size in sizes))


def why_no_permutation(sizes: list[int], noun: str, *, tests: int) -> str | None:
    """Why groups of these sizes are too few for a family of that many tests; None where they are enough."""
    if smallest_permutation_p(sizes) * tests <= LEVEL:
        return None
    groups = f" in {len(sizes)} cells" if len(sizes) > 1 else ""
    needed = next(models for models in range(2, 100) if smallest_permutation_p([models]) * tests <= LEVEL)
    return f"too few {noun}: {needed} in one cell needed to test {tests} metrics, {sum(sizes)}{groups} found."
