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

from collapselab.analysis.models import Models, repeated, seed_columns
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
    """What is independent: architectures; runs where all are of one architecture; where each cell's mean is subtracted,
    seeds, which are one unit in all cells that share them."""

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
        """How many independent units can be permuted: in each cell, or where cells share them, in each block."""
        if self.blocks is not None:
            return [block.shape[1] for block in self.blocks]
        pairs = np.unique(np.stack([self.cells, self.units]), axis=1)
        return [int(count) for count in np.bincount(pairs[0])]

    @property
    def shares_units(self) -> bool:
        """Whether cells share units: seeds that were used in several."""
        return count_of(self.cells) > 1 and count_of(self.units) < len(self.units)

    @cached_property
    def blocks(self) -> list[Codes] | None:
        """Where cells share seeds: matrices (cells, seeds) of places among the members, whose columns are exchangeable.

        The seeds of a block were used in the same cells, so that one order of them gives an order in each of the cells.
        """
        if not self.shares_units:
            return None
        return exchangeable(self.cells, self.units)

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
    """The last checkpoints of all models that have a twin of another seed; a run that repeats another takes no part."""
    last = frame[frame["last"]]
    last = last[~repeated(last)]
    twins = last[last.groupby("cell")["run"].transform("size") > 1]
    members = twins.index.to_numpy(dtype=np.intp)
    return Subset(SubsetKind.WITHIN, WITHIN, members, codes_of(twins["cell"]), _seeds(twins))


def _seeds(twins: pd.DataFrame) -> Codes:
    """The seed of every model, the same number in all cells; one of its own where it is unknown."""
    columns = seed_columns(twins)
    unknown = twins[columns].isna().all(axis=1)
    labels = [
        f"run {run}" if alone else str(values)
        for run, alone, *values in zip(twins["run"], unknown, *(twins[name] for name in columns), strict=True)
    ]
    return codes_of(pd.Series(labels, dtype=object))


def _across(kind: SubsetKind, name: str, frame: pd.DataFrame, members: Codes) -> Subset:
    architectures = codes_of(frame["architecture"].iloc[members])
    units = architectures if count_of(architectures) > 1 else codes_of(frame["run"].iloc[members])
    return Subset(kind, name, members, np.zeros(len(members), dtype=np.intp), units)


def exchangeable(cells: Codes, units: Codes) -> list[Codes]:
    """Matrices (cells, units) of places, whose columns may change places: units that are in the same cells."""
    places = {(cell, unit): place for place, (cell, unit) in enumerate(zip(cells, units, strict=True))}
    used: dict[tuple[int, ...], list[int]] = {}
    for unit in range(count_of(units)):
        used.setdefault(tuple(sorted(cells[units == unit])), []).append(unit)
    return [np.array([[places[cell, unit] for unit in group] for cell in together]) for together, group in used.items()]


def codes_of(labels: pd.Series | Codes) -> Codes:
    """Labels as the numbers 0, 1, …, in the order of their first appearance; what has none is one label more."""
    return np.asarray(pd.factorize(labels, use_na_sentinel=False)[0], dtype=np.intp)


def count_of(codes: Codes) -> int:
    """How many different codes there are."""
    return int(codes.max()) + 1 if len(codes) else 0
