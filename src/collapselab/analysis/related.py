"""What is related to an outcome, by name: metrics of tokens and, for each length, metrics of contexts.

The analysis and the report look metrics up here and not in the catalogue of tokens. Metrics of contexts are a family of
their own: where they were measured, the corrections of the others stay as they were.
"""

from dataclasses import dataclass
from typing import Literal, final

import numpy as np
from numpy.typing import NDArray

from collapselab.core.catalogue import CONTEXT_METRICS, METRICS, Direction, Ideal, Metric, Transform, ideal_at
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
    ideal: Ideal = None
    parts: tuple[str, str] | None = None
    in_paper: bool = False

    def ideal_at(self, *, classes: int, dim: int) -> float | None:
        return ideal_at(self.ideal, classes, dim)


def _of_tokens(metric: Metric) -> Related:
    return Related(
        metric.id,
        metric.property,
        "paper" if metric.in_paper else "exploration",
        metric.direction,
        metric.transform,
        metric.ideal,
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


@final
@dataclass(frozen=True)
class Toward:
    """-1: the value falls toward collapse; 1: it rises; 0: unknown, for the reason given."""

    sign: int
    why: str


def toward(metric: Related, values: NDArray[np.float64], ideals: NDArray[np.float64]) -> Toward:
    """The direction of a metric for models with these values and ideals, as they collapse.

    The catalogue says so for most metrics. Two kinds need the values. One that *approaches* its ideal falls if all
    models are above it and rises if all are below. One that falls to 0 and yet has negative values is a ratio whose
    denominator changed its sign: it has no direction here.
    """
    known = values[~np.isnan(values)]
    if metric.direction == "falls" and metric.ideal == 0 and (known < 0).any():
        return Toward(0, "falls to 0, and some values are below it: the denominator of the ratio changed its sign")
    if metric.direction == "falls":
        return Toward(-1, "falls, by the catalogue")
    if metric.direction == "rises":
        return Toward(1, "rises, by the catalogue")
    if metric.direction == "approaches":
        return _side(values - ideals)
    return Toward(0, "no direction in the catalogue")


def _side(above: NDArray[np.float64]) -> Toward:
    above, what = above[~np.isnan(above)], "approaches its ideal"
    if not len(above):
        return Toward(0, f"{what}, which is not known here")
    if (above > 0).all():
        return Toward(-1, f"{what}, from above")
    if (above < 0).all():
        return Toward(1, f"{what}, from below")
    return Toward(0, f"{what}, and values are on both sides of it")
