"""Families: which tests are corrected together, and what is left of their claims after a correction over families.

Each family holds its level of 5 %: where nothing is there, it makes a claim in one of twenty tables. An analysis has
many families, so the summary says how many false claims to expect from all of them together. The headline counts only
claims of confirmatory families that survive Holm's correction over the confirmatory families: the paper's seven metrics
for each question, and the effects of arms on the outcome. All other families explore. A family's size follows from the
design of the suite and from what was registered, never from the size of the catalogue.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple, final

from collapselab.analysis.attainable import LEVEL
from collapselab.analysis.effects import Role
from collapselab.analysis.verdict import holm

Tables = Mapping[str, Sequence[Any]]


@final
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
        f"Families of tests at a level of {100 * LEVEL:g} %: {len(families)}, so {len(families) * LEVEL:.1f} false "
        f"claims are expected if nothing is true; {claiming} claim something. Of the {confirmatory} confirmatory ones, "
        f"{len(surviving(tables))} do after Holm's correction over families."
    )
