"""What is related to an outcome, by name: metrics of tokens and, for each length, metrics of contexts.

The analysis and the report look metrics up here and not in the catalogue of tokens. Metrics of contexts are a family of
their own: where they were measured, the corrections of the others stay as they were.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, final

from collapselab.core.context_metrics import CONTEXT_METRICS
from collapselab.core.metrics import METRICS, Direction, Metric, Transform
from collapselab.records.outcomes import ContextColumn, context_columns

Family = Literal["paper", "exploration", "contexts"]
"""Metrics that are corrected together: the paper's seven, for the main tests; all others of tokens; contexts."""

CONTEXTS = "contexts"
"""The property that metrics of contexts are about."""


@final
@dataclass(frozen=True)
class Related:
    """What the analysis has to know of a metric; the words are those of `Metric`."""

    name: str
    property: str
    family: Family
    direction: Direction | None
    transform: Transform
    ideal: float | None = None
    ideal_function: Callable[[int, int], float | None] | None = None
    parts: tuple[str, str] | None = None
    in_paper: bool = False

    def ideal_at(self, *, classes: int, dim: int) -> float | None:
        return self.ideal if self.ideal_function is None else self.ideal_function(classes, dim)


def _of_tokens(metric: Metric) -> Related:
    return Related(
        metric.id,
        metric.property,
        "paper" if metric.in_paper else "exploration",
        metric.direction,
        metric.transform,
        metric.ideal,
        metric.ideal_function,
        metric.parts,
        metric.in_paper,
    )


def _of_contexts(name: str, key: ContextColumn) -> Related:
    metric = CONTEXT_METRICS[key.metric]
    return Related(name, CONTEXTS, "contexts", metric.direction, metric.transform, metric.least)


RELATED: dict[str, Related] = {
    **{name: _of_tokens(metric) for name, metric in METRICS.items()},
    **{name: _of_contexts(name, key) for name, key in context_columns().items()},
}
"""Every metric by its name: first those of tokens in the order of the catalogue, then those of contexts."""
