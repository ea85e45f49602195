"""Names of metrics of contexts: `context_within_2` is `context_within` of the last 2 tokens, at the last layer.

The name is a column of `runs.csv`, an outcome of `analyze`, and a metric of its tables. It is looked up, never taken
apart.
"""

from functools import cache
from typing import NamedTuple, final

LONGEST_CONTEXT = 64


@final
class ContextColumn(NamedTuple):
    """A metric of contexts and their length."""

    metric: str
    """Id in the catalogue of contexts."""
    n: int
    """Tokens of a context."""

    @property
    def name(self) -> str:
        return f"{self.metric}_{self.n}"


@cache
def context_columns() -> dict[str, ContextColumn]:
    """Every metric of contexts at every length, by name."""
    from collapselab.core.context_metrics import CONTEXT_METRICS  # torch, which most callers do not need

    keys = (ContextColumn(metric, n) for metric in CONTEXT_METRICS for n in range(1, LONGEST_CONTEXT + 1))
    return {key.name: key for key in keys}
