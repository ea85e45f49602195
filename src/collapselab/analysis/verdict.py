"""Verdicts: what a corrected test allows to say of one row of a table, and why there is sometimes nothing to say.

Families are tests that are corrected together. Each holds its level of 5 %: where nothing is there, it makes a claim in
one of twenty tables. An analysis has many families, so the summary says how many false claims to expect from all of
them. The headline counts only claims of confirmatory families that survive Holm's correction over the confirmatory
families: the paper's seven metrics for each question, and the effects of arms on the outcome. All others explore. A
family's size is declared here or is the number of tests that were made. It never depends on the size of the catalogue:
adding a metric leaves all verdicts of the others as they are.

A verdict is a code, never a sentence: `words.py` has the sentences. A row without a value, or with a value and no test,
has a reason: a code for programs and a text for people.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple, final

import numpy as np

LEVEL = 0.05
RISES, FALLS = "rises", "falls"
"""Directions in which a value changes, as the tables have them."""


@final
class Verdict(StrEnum):
    """What a corrected test allows to say, and no more."""

    AS_PREDICTED = "as predicted"
    """Significant, in the direction that collapse predicts; of an outcome: it gets better."""
    OPPOSITE = "opposite direction"
    """Significant in the opposite direction; of an outcome: it gets worse."""
    NO_DIRECTION = "no direction predicted"
    """Significant, where collapse predicts no direction."""
    NOT_SHOWN = "not shown"
    """Tested and not significant, which does not mean absent."""
    DESCRIPTION = "description"
    """A number about these models that no test judges: its error rate is not known, or it has no direction."""
    HELPS = "helps"
    HARMS = "harms"
    EQUIVALENT = "equivalent"
    """Smaller than the smallest effect that matters."""
    UNDECIDED = "undecided"
    """Neither shown to be there nor shown to be that small."""
    DID_NOT_REACH = "did not reach"
    """The arm did not move the property that it is for."""
    TOWARD = "toward"
    """At least one metric of the property is shown to move toward collapse, and none away."""
    AWAY = "away"
    """At least one is shown to move away from collapse, and none toward it."""
    IN_CONFLICT = "in conflict"
    """Some metrics are shown to move toward collapse and others away."""
    ATTRIBUTED = "attributed"
    """The effect follows this metric, whichever intervention is left out."""
    NOT_ALONE = "not these properties alone"
    """The arms are off the line or plane: they change the outcome in other ways too."""
    INSEPARABLE = "cannot be attributed"
    """The metrics move together, or the arms hardly move one of them."""
    TOO_FEW = "too few runs"
    """No test was made: no result could have been significant, or the numbers that it needs are missing or do not vary.
    The row's reason says which, and how many runs are needed."""


Words = tuple[Verdict, Verdict, Verdict, Verdict]
"""The verdicts that a kind of statement can give on an effect: significant, with the expected sign; with the opposite
sign; where no sign is expected; not significant."""
RELATION = (Verdict.AS_PREDICTED, Verdict.OPPOSITE, Verdict.NO_DIRECTION, Verdict.NOT_SHOWN)
EFFECT = (Verdict.HELPS, Verdict.HARMS, Verdict.UNDECIDED, Verdict.UNDECIDED)
MOVEMENT = (Verdict.TOWARD, Verdict.AWAY, Verdict.NOT_SHOWN, Verdict.NOT_SHOWN)
ATTRIBUTION = (Verdict.ATTRIBUTED, Verdict.ATTRIBUTED, Verdict.ATTRIBUTED, Verdict.UNDECIDED)


@final
class Role(StrEnum):
    """What a row about an arm is for."""

    OUTCOME = "outcome"
    FURTHER = "further outcome"
    """An outcome beside that of the analysis: registered ones, and the gap."""
    TARGET = "target"
    """The metric that this arm must move."""
    PRIMARY = "primary"
    """One of the main metrics."""
    EXPLORATORY = "exploratory"


@final
class Direction(StrEnum):
    """The direction of a correlation, by its sign alone."""

    WITH = "with"
    """More collapse, better outcome."""
    AGAINST = "against"
    """More collapse, worse outcome."""


@final
class Cause(StrEnum):
    """Why a row has no value, or a value without a test."""

    NOT_A_TEST = "not a test"
    """The metric says nothing of its own about the outcome."""
    TOO_FEW = "too few"
    """Too few models, cells, architectures, groups or degrees of freedom."""
    NO_VARIATION = "no variation"
    """Metric or outcome is the same in all models, or the controls determine it."""
    MISSING = "missing"
    """A column that the statement needs is incomplete."""
    REVERSED = "reversed"
    """At equal training loss the gap changes the other way."""
    NO_FIT = "no fit"
    """The model of the statement cannot be fitted to these numbers."""


@final
class Reason(NamedTuple):
    """Why a row has no value, no test or no claim: a code for programs, a text for people, and the verdict instead."""

    code: Cause | None
    text: str | None
    verdict: Verdict = Verdict.TOO_FEW

    @property
    def columns(self) -> dict[str, Any]:
        return {"verdict": self.verdict, "why": self.text, "why_code": self.code}


def too_few(count: int, nouns: str, needed: int) -> Reason:
    """The reason of a test that needs more: `too few pairs: 6 needed, 5 found.`"""
    return Reason(Cause.TOO_FEW, f"too few {nouns}: {needed} needed, {count} found.")


@final
class Estimate(NamedTuple):
    """An effect and its corrected test, as `judge` needs them."""

    effect: float = 0.0
    p: float | None = None
    """Corrected over its family."""
    sign: int = 0
    """Of an effect as collapse predicts it, or of a better outcome; 0 where none is predicted."""
    p_equivalence: float | None = None
    """Corrected, of the test that the effect is smaller than any of interest."""
    reason: Reason | None = None
    """Forbids the test."""
    doubts: Mapping[Verdict, Reason] = {}
    """Forbid a claim, by the claim."""


def judge(estimate: Estimate, words: Words) -> dict[str, Any]:
    """Return the verdict on an estimate in these words, and the reason where one forbids the test or the claim."""
    (expected, opposite, undirected, verdict), reason = words, estimate.reason
    if reason is None and estimate.p is None:
        reason = Reason(None, None)
    elif estimate.p_equivalence is not None and estimate.p_equivalence < LEVEL:
        verdict = Verdict.EQUIVALENT
    elif estimate.p is not None and estimate.p < LEVEL:
        direction = direction_of(estimate.effect, estimate.sign)
        verdict = {Direction.WITH: expected, Direction.AGAINST: opposite, None: undirected}[direction]
    return (reason or estimate.doubts.get(verdict) or Reason(None, None, verdict)).columns


def direction_of(effect: float, expected: int) -> Direction | None:
    """The direction of an effect whose sign is `expected` where more collapse means a better outcome; None for 0."""
    if expected == 0 or effect == 0:
        return None
    return Direction.WITH if effect * expected > 0 else Direction.AGAINST


@final
class Corrected(NamedTuple):
    """A p after the corrections over its family, and the number of tests in that family."""

    holm: float
    family_size: int


def corrections(tests: Iterable[tuple[Hashable, float | None]]) -> dict[int, Corrected]:
    """The corrected p of every test that has one, by its place; a test is given as its family and its p."""
    families: dict[Hashable, dict[int, float]] = {}
    for place, (family, p) in enumerate(tests):
        if p is not None:
            families.setdefault(family, {})[place] = p
    found = {}
    for tested in families.values():
        for place, p_holm in zip(tested, holm(list(tested.values())), strict=True):
            found[place] = Corrected(p_holm, len(tested))
    return found


def holm(p: Sequence[float]) -> list[float]:
    """Holm's adjusted p: the i-th smallest of n times n - i, never smaller than the one before, at most 1.

    statsmodels' `multipletests` collects the whole program's garbage at every call, which takes 0.2 s beside torch and
    would double the time of an analysis; a test compares the two.
    """
    values = np.asarray(p, dtype=float)
    order = np.argsort(values)
    stepped = np.maximum.accumulate(values[order] * np.arange(len(values), 0, -1))
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(stepped, 1.0)
    return [float(value) for value in adjusted]


FAMILY_SIZES = {"paper": 7}
"""Tests of the families that are declared beforehand, however many of their metrics were measured. Trends test the
outcome with them; their correction by the largest statistic leaves the smallest possible p as it is. The size of every
other family (`exploration`, `contexts`) is the number of tests in the table."""
MIN_FREEDOM = 6
"""Degrees of freedom that a regression must leave."""
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
