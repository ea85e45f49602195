"""Subsets: over which models a metric is related to the outcome, and what is independent among them.

Within cells scale is held fixed: each cell's mean is subtracted. Of a run's checkpoints only the last takes part there,
since the others are no further evidence, and of interventions and heads only controls and shams, since a single arm can
have most of the variance.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from collapselab.analysis.models import Models, repeated, seed_columns, untreated
from collapselab.analysis.resampling import Codes

ALL, WITHIN = "all models", "within cells"
"""The subsets: models that differ in anything, and models that differ in their seed alone."""


@dataclass(frozen=True)
class Subset:
    """Some of the trained models, and the cells whose means are subtracted before they are related."""

    name: str
    """`ALL` or `WITHIN`."""
    members: Codes
    cell_labels: Codes
    unit_labels: Codes
    """What is independent: architectures; runs where all are of one architecture; where each cell's mean is subtracted,
    seeds, which are one unit in all cells that share them and in all runs of a cell."""
    data_labels: Codes | None = None
    """Where seeds and data seeds are crossed, the data seed: a second factor beside the seed."""

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
        """How many independent units can be permuted: in each cell, or where runs share them, in each block."""
        if self.factors:
            return [block.shape[1] for blocks in self.factors for block in blocks]
        return [int(count) for count in np.bincount(self.cells)]

    @property
    def lacks_combinations(self) -> bool:
        """Whether seeds and data seeds are crossed, and some cell lacks runs of some of their combinations."""
        if self.data_labels is None:
            return False
        runs = pd.DataFrame({"cell": self.cells, "seed": self.unit_labels, "data": self.data_labels}).groupby("cell")
        return bool((runs["seed"].nunique() * runs["data"].nunique() > runs.size()).any())

    @cached_property
    def factors(self) -> list[list[Codes]]:
        """Where runs share seeds: matrices (runs, seeds) of places among the members, whose columns are exchangeable.

        The seeds of a block were used in the same cells, so that one order of them gives an order in each of the cells.
        Crossed data seeds are a second factor, in one order for all seeds.
        """
        if self.data_labels is not None:
            first, second = self.units, codes_of(self.data_labels)
            total = len(self.members)
            return [exchangeable(self.cells * total + second, first), exchangeable(self.cells * total + first, second)]
        return [exchangeable(self.cells, self.units)] if count_of(self.units) < len(self.units) else []

    def only(self, known: NDArray[np.bool_]) -> "Subset":
        """The members that are known, without those that are then alone in their cell: they say nothing."""
        kept = np.flatnonzero(known)
        sizes = np.bincount(self.cells[kept], minlength=1)
        kept = kept[sizes[self.cells[kept]] > 1]
        data = None if self.data_labels is None else self.data_labels[kept]
        return Subset(self.name, self.members[kept], self.cell_labels[kept], self.unit_labels[kept], data)


def subsets(models: Models) -> Iterator[Subset]:
    """Yield all compared models, and the seeds of one cell, pooled over cells."""
    frame = models.trained
    members = np.flatnonzero(models.compared[models.frame["epoch"] != 0])
    architectures = codes_of(frame["architecture"].iloc[members])
    units = architectures if count_of(architectures) > 1 else codes_of(frame["run"].iloc[members])
    yield Subset(ALL, members, np.zeros(len(members), dtype=np.intp), units)
    yield within_cells(frame)


def within_cells(frame: pd.DataFrame) -> Subset:
    """The last checkpoints of controls and shams that have a twin of another seed; a run that repeats another takes no
    part."""
    last = frame[frame["last"] & untreated(frame, shams=True)]
    last = last[~repeated(last)]
    twins = last[last.groupby("cell")["run"].transform("size") > 1]
    members = twins.index.to_numpy(dtype=np.intp)
    return Subset(WITHIN, members, codes_of(twins["cell"]), *_seeds(twins))


def _seeds(twins: pd.DataFrame) -> tuple[Codes, Codes | None]:
    """The units of these models, and the second factor where seeds and data seeds are crossed.

    Runs that share an initialisation or a data order are one unit. A run of unknown seeds is a unit of its own; without
    a data seed the order of the data follows from the seed.
    """
    seeds, orders = [], []
    for run, seed, *further in twins[["run", *seed_columns(twins)]].itertuples(index=False, name=None):
        seeds.append(f"run {run}" if pd.isna(seed) else f"{float(seed)}")
        orders.append(" ".join(f"{float(value)}" for value in further if not pd.isna(value)) or seeds[-1])
    pairs = pd.DataFrame({"seed": seeds, "order": orders}, dtype=object).drop_duplicates()
    forked, shared = pairs["seed"].duplicated().any(), pairs["order"].duplicated().any()
    of_seeds, of_orders = (codes_of(pd.Series(labels, dtype=object)) for labels in (seeds, orders))
    return (of_orders if shared and not forked else of_seeds), (of_orders if shared and forked else None)


def exchangeable(cells: Codes, units: Codes) -> list[Codes]:
    """Matrices (runs, units) of places, whose columns may change places: units that have as many runs in each cell."""
    used: dict[tuple[int, ...], list[Codes]] = {}
    for unit in range(count_of(units)):
        places = np.flatnonzero(units == unit)
        places = places[np.argsort(cells[places], kind="stable")]
        used.setdefault(tuple(cells[places]), []).append(places)
    return [np.stack(columns, axis=1) for columns in used.values()]


def codes_of(labels: pd.Series | Codes) -> Codes:
    """Labels as the numbers 0, 1, …, in the order of their first appearance; what has none is one label more."""
    return np.asarray(pd.factorize(labels, use_na_sentinel=False)[0], dtype=np.intp)


def count_of(codes: Codes) -> int:
    """How many different codes there are."""
    return int(codes.max()) + 1 if len(codes) else 0
