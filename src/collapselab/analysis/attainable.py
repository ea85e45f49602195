"""How many models a statement needs: below that no p and no verdict is given, whatever the numbers look like.

A test can show something only if its smallest possible p is below the level after the correction over its family. For
permutations that p follows from the number of orders: six models of one cell have 720, which is enough for the paper's
seven metrics. The size of a family is declared here or is the number of tests that were made, and never depends on how
many metrics the catalogue has: adding one leaves all verdicts of the others as they are.
"""

import math
from collections.abc import Iterable

LEVEL = 0.05
FAMILY_SIZES = {"paper": 7}
"""Tests of the families that are declared beforehand, however many of their metrics were measured. Trends test the
outcome with them; their correction by the largest statistic leaves the smallest possible p as it is. The size of every
other family (`exploration`, `contexts`) is the number of tests in the table."""
FEWEST_FREEDOM = 6
"""Degrees of freedom that a regression must leave."""


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
