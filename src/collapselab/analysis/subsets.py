"""Subsets: over which models a metric is related to the outcome, and what is independent among them.

Within cells scale is held fixed: each cell's mean is subtracted. Of a run's checkpoints only the last takes part there,
since the others are no further evidence.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from collapselab.analysis.models import Models
from collapselab.analysis.resampling import Codes

SMALLEST_CELL = 5
"""Seeds that a cell needs to be listed by itself beside the pooled cells."""


@final
class SubsetKind(StrEnum):
    """What the models of a subset have in common."""

    ALL = "all models"
    REGIME = "one regime"
    WITHIN = "within cells"
    CELL = "one cell"


ALL, WITHIN = SubsetKind.ALL.value, SubsetKind.WITHIN.value
"""The names of the two subsets of which there is one each."""


@final
@dataclass(frozen=True)
class Subset:
    """Some of the trained models, and the cells whose means are subtracted before they are related."""

    kind: SubsetKind
    name: str
    members: Codes
    cell_labels: Codes
    unit_labels: Codes
    """What is independent, and what the bootstrap draws: architectures; runs where all are of one architecture; models
    where each cell's mean is subtracted."""

    @cached_property
    def cells(self) -> Codes:
        return codes_of(self.cell_labels)

    @cached_property
    def units(self) -> Codes:
        return codes_of(self.unit_labels)

    @property
    def freedom(self) -> int:
        """Models beyond the first of each cell, and one: what counts as the number of models in one cell."""
        return len(self.members) - count_of(self.cells) + 1

    @property
    def units_per_cell(self) -> list[int]:
        """How many independent units each cell has: what can be permuted."""
        pairs = np.unique(np.stack([self.cells, self.units]), axis=1)
        return [int(count) for count in np.bincount(pairs[0])]

    def only(self, known: NDArray[np.bool_]) -> "Subset":
        """The members that are known, without those that are then alone in their cell: they say nothing."""
        kept = np.flatnonzero(known)
        sizes = np.bincount(self.cells[kept], minlength=1)
        kept = kept[sizes[self.cells[kept]] > 1]
        return Subset(self.kind, self.name, self.members[kept], self.cell_labels[kept], self.unit_labels[kept])


def subsets(models: Models) -> Iterator[Subset]:
    """All models; each regime, if there are several; within cells, pooled; each large cell, if there are several."""
    frame = models.trained
    yield _across(SubsetKind.ALL, ALL, frame, np.arange(len(frame)))
    regimes = frame["regime"].unique()
    for regime in regimes if len(regimes) > 1 else []:
        yield _across(SubsetKind.REGIME, f"regime {regime}", frame, np.flatnonzero(frame["regime"] == regime))
    pooled = within_cells(frame)
    yield pooled
    cells = count_of(pooled.cells)
    for cell in range(cells) if cells > 1 else []:
        members = pooled.members[pooled.cells == cell]
        if len(members) >= SMALLEST_CELL:
            name = frame["cell"].iloc[members[0]]
            yield Subset(SubsetKind.CELL, f"seeds of {name}", members, np.zeros_like(members), np.arange(len(members)))


def within_cells(frame: pd.DataFrame) -> Subset:
    """The last checkpoints of all models that have a twin of another seed."""
    last = frame[frame["last"]]
    twins = last[last.groupby("cell")["run"].transform("size") > 1]
    members = twins.index.to_numpy(dtype=np.intp)
    return Subset(SubsetKind.WITHIN, WITHIN, members, codes_of(twins["cell"]), np.arange(len(members)))


def _across(kind: SubsetKind, name: str, frame: pd.DataFrame, members: Codes) -> Subset:
    architectures = codes_of(frame["architecture"].iloc[members])
    units = architectures if count_of(architectures) > 1 else codes_of(frame["run"].iloc[members])
    return Subset(kind, name, members, np.zeros(len(members), dtype=np.intp), units)


def codes_of(labels: pd.Series | Codes) -> Codes:
    """Labels as the numbers 0, 1, …, in the order of their first appearance."""
    return np.asarray(pd.factorize(labels)[0], dtype=np.intp)


def count_of(codes: Codes) -> int:
    """How many different codes there are."""
    return int(codes.max()) + 1 if len(codes) else 0
