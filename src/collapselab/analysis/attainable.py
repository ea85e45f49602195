"""How many models a statement needs: below that no p and no verdict is given, whatever the numbers look like.

A test can show something only if its smallest possible p is below the level after the correction. For permutations that
p follows from the number of orders. The correction is taken over the whole catalogue: whether a table can say something
depends on its models, and not on how few metrics were measured. Seven models of one cell are enough (5,040 orders), six
are not (720). A regression leaves as many comparisons as it has degrees of freedom, so it needs as many of those as
seven models have.
"""

import math
from collections.abc import Iterable

from collapselab.core.metrics import METRICS

LEVEL = 0.05
TESTS = len(METRICS)
FEWEST_CLUSTERS = 10
"""Architectures that a cluster-robust p or a mixed model needs; with fewer both give a p that is too small."""


def smallest_permutation_p(sizes: Iterable[int]) -> float:
    """The smallest two-sided p from permuting within groups of these sizes: the order found and its mirror image."""
    return min(1.0, 2 / math.prod(math.factorial(size) for size in sizes))


def permutations_can_show(sizes: Iterable[int]) -> bool:
    """Whether the smallest p is below the level after a correction over the catalogue."""
    return smallest_permutation_p(sizes) * TESTS <= LEVEL


FEWEST_MODELS = next(models for models in range(2, 100) if permutations_can_show([models]))
FEWEST_FREEDOM = FEWEST_MODELS - 1
"""Degrees of freedom: what is left of this many models when their mean is subtracted."""


def why_no_permutation(sizes: list[int], noun: str) -> str:
    """The reason, for groups of these sizes that are too few."""
    orders = math.prod(map(math.factorial, sizes))
    cells = f" in {len(sizes)} cells" if len(sizes) > 1 else ""
    return (
        f"{sum(sizes)} {noun}{cells} have {orders:,} orders, so that no p can be below {100 * LEVEL:g} % after a "
        f"correction over {TESTS} metrics. {FEWEST_MODELS} in one cell are enough."
    )
