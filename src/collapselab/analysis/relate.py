"""Relations: every metric against the outcome, over all models, over every regime, and within cells of seeds.

Within cells is where scale is held fixed: one cell is the seeds study of the paper, several are pooled by taking each
cell's mean off. Of a run's checkpoints only the last takes part there, since the others are no further evidence.

The paper's seven metrics are the family of the main tests; other metrics and all logarithms explore, in a family of
their own. Both corrections are within a subset and a family.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from collapselab.analysis.attainable import LEVEL, permutations_can_show, why_no_permutation
from collapselab.analysis.corrections import benjamini_hochberg, holm
from collapselab.analysis.models import NOT_TESTED, Floats, Models, Variable
from collapselab.analysis.resampling import (
    Codes,
    bootstrap_interval,
    centred,
    correlation,
    detectable,
    models_needed,
    permutation_p,
    rank_correlation,
)

FEWEST = 3
"""Models beyond one a cell that a correlation needs: with two models it is always 1 or -1."""
SMALLEST_CELL = 5
"""Seeds that a cell needs to be listed by itself beside the pooled cells."""
ALL, WITHIN = "all models", "within cells"


class Tested(Protocol):
    """A row that a corrected test belongs to."""

    @property
    def p_holm(self) -> float | None: ...


@final
@dataclass(frozen=True)
class Relation:
    """One metric against the outcome over one subset; a row of `relate.csv`."""

    subset: str
    metric: str
    outcome: str
    n: int
    r: float | None = None
    r2: float | None = None
    rho: float | None = None
    low: float | None = None
    high: float | None = None
    p_permutation: float | None = None
    p_holm: float | None = None
    p_bh: float | None = None
    transform: str = "raw"
    family: str = "exploration"
    cells: int = 1
    architectures: int = 1
    missing: int = 0
    goes: str | None = None
    """with: more collapse, better outcome, by the sign of r alone; against: more collapse, worse outcome."""
    verdict: str | None = None
    detectable_r: float | None = None
    """The smallest |r| found with 80 % power at 5 % by this number of models, before correction and at Holm's first
    step."""
    detectable_r_corrected: float | None = None
    models_needed: int | None = None
    """Models of one cell that would find the observed r with that power, before correction."""
    why: str | None = None
    """Why there is no r, or an r without p and verdict."""


@final
@dataclass(frozen=True)
class Subset:
    """Some of the trained models, and the cells whose means are taken off before they are related."""

    name: str
    members: Codes
    cell_labels: Codes
    unit_labels: Codes
    """What is independent, and what the bootstrap draws: architectures; runs where all are of one architecture; models
    where each cell's mean is subtracted."""

    @cached_property
    def cells(self) -> Codes:
        return _codes(self.cell_labels)

    @cached_property
    def units(self) -> Codes:
        return _codes(self.unit_labels)

    @property
    def freedom(self) -> int:
        """Models beyond the first of each cell, and one: what counts as the number of models in one cell."""
        return len(self.members) - _count(self.cells) + 1

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
        return Subset(self.name, self.members[kept], self.cell_labels[kept], self.unit_labels[kept])


def relate(models: Models, *, permutations: int = 10_000, seed: int = 0) -> list[Relation]:
    """Every metric against the outcome over every subset, with corrected p-values."""
    return [
        relation
        for subset in subsets(models)
        for relation in relate_subset(models, subset, permutations=permutations, seed=seed)
    ]


def subsets(models: Models) -> Iterator[Subset]:
    """All models; each regime, if there are several; within cells, pooled; each large cell, if there are several."""
    frame = models.trained
    yield _across(ALL, frame, np.arange(len(frame)))
    regimes = frame["regime"].unique()
    for regime in regimes if len(regimes) > 1 else []:
        yield _across(f"regime {regime}", frame, np.flatnonzero(frame["regime"] == regime))
    pooled = within_cells(frame)
    yield pooled
    cells = _count(pooled.cells)
    for cell in range(cells) if cells > 1 else []:
        members = pooled.members[pooled.cells == cell]
        if len(members) >= SMALLEST_CELL:
            name = frame["cell"].iloc[members[0]]
            yield Subset(f"seeds of {name}", members, np.zeros_like(members), np.arange(len(members)))


def within_cells(frame: pd.DataFrame) -> Subset:
    """The last checkpoints of all models that have a twin of another seed."""
    last = frame[frame["last"]]
    twins = last[last.groupby("cell")["run"].transform("size") > 1]
    members = twins.index.to_numpy(dtype=np.intp)
    return Subset(WITHIN, members, _codes(twins["cell"]), np.arange(len(members)))


def _across(name: str, frame: pd.DataFrame, members: Codes) -> Subset:
    architectures = _codes(frame["architecture"].iloc[members])
    units = architectures if _count(architectures) > 1 else _codes(frame["run"].iloc[members])
    return Subset(name, members, np.zeros(len(members), dtype=np.intp), units)


def _codes(labels: Any) -> Codes:
    return np.asarray(pd.factorize(labels)[0], dtype=np.intp)


def _count(codes: Codes) -> int:
    return int(codes.max()) + 1 if len(codes) else 0


def relate_subset(models: Models, subset: Subset, *, permutations: int, seed: int) -> list[Relation]:
    """Every metric over one subset. A missing value leaves out its model for its metric alone; metrics that lack the
    same models are tested together."""
    outcome = models.trained[models.outcome].to_numpy(dtype=float)[subset.members]
    patterns: dict[bytes, list[int]] = {}
    for number, variable in enumerate(models.variables):
        known = ~np.isnan(variable.values[subset.members]) & ~np.isnan(outcome)
        patterns.setdefault(known.tobytes(), []).append(number)
    relations: dict[int, Relation] = {}
    for pattern, numbers in patterns.items():
        chosen = subset.only(np.frombuffer(pattern, dtype=bool))
        variables = [models.variables[number] for number in numbers]
        blank = [_blank(models, subset, chosen, variable) for variable in variables]
        found = _filled(models, chosen, variables, blank, permutations=permutations, seed=seed)
        relations.update(zip(numbers, found, strict=True))
    return _judged(models, [relations[number] for number in sorted(relations)])


def _blank(models: Models, subset: Subset, chosen: Subset, variable: Variable) -> Relation:
    return Relation(
        subset=subset.name,
        metric=variable.metric,
        outcome=models.outcome,
        n=len(chosen.members),
        transform=variable.transform,
        family="paper" if variable.in_paper else "exploration",
        cells=_count(chosen.cells),
        architectures=models.trained["architecture"].iloc[chosen.members].nunique(),
        missing=len(subset.members) - len(chosen.members),
    )


def _filled(
    models: Models, chosen: Subset, variables: list[Variable], blank: list[Relation], *, permutations: int, seed: int
) -> list[Relation]:
    x = np.stack([variable.values[chosen.members] for variable in variables], axis=1)
    y = models.trained[models.outcome].to_numpy(dtype=float)[chosen.members]
    reasons = [_reason(chosen, relation, x[:, i], y) for i, relation in enumerate(blank)]
    tested = [i for i, reason in enumerate(reasons) if reason is None]
    filled = [replace(relation, why=reason) for relation, reason in zip(blank, reasons, strict=True)]
    if tested:
        numbers = _statistics(chosen, x[:, tested], y, permutations=permutations, seed=seed)
        for column, i in enumerate(tested):
            known: dict[str, Any] = {name: _known(values[column]) for name, values in numbers.items()}
            filled[i] = replace(blank[i], **known, why=_why_no_p(chosen, blank[i]))
    return filled


def _why_no_p(chosen: Subset, relation: Relation) -> str | None:
    """Why a correlation that can be computed has no p and no verdict; None where it has."""
    units = chosen.units_per_cell
    if permutations_can_show(units):
        return None
    return why_no_permutation(units, "architectures" if sum(units) == relation.architectures > 1 else "models")


def _reason(chosen: Subset, relation: Relation, x: Floats, y: Floats) -> str | None:
    if relation.metric in NOT_TESTED:
        return NOT_TESTED[relation.metric]
    if chosen.freedom < FEWEST:
        models = f"{relation.n} models" + (f" in {relation.cells} cells" if relation.cells > 1 else "")
        return f"{models}: too few for a correlation." if relation.n else "no two models to compare."
    for name, values in ((relation.metric, x), (relation.outcome, y)):
        if np.abs(centred(values, chosen.cells)).max() <= 1e-12 * np.abs(values).max():
            where = " within every cell" if relation.cells > 1 else ""
            return f"{name} is the same in all {relation.n} models{where}."
    return None


def _statistics(chosen: Subset, x: Floats, y: Floats, *, permutations: int, seed: int) -> dict[str, Floats]:
    x, y = centred(x, chosen.cells), centred(y, chosen.cells)
    r = correlation(x, y, chosen.cells)
    draws = chosen.freedom if _count(chosen.cells) > 1 else None  # what is centred in small cells repeats itself
    low, high = bootstrap_interval(x, y, chosen.units, draws=draws, resamples=permutations, seed=seed)
    numbers = {"r": r, "r2": r**2, "rho": rank_correlation(x, y, chosen.cells), "low": low, "high": high}
    if permutations_can_show(chosen.units_per_cell):
        numbers["p_permutation"] = permutation_p(x, y, chosen.cells, permutations=permutations, seed=seed)
    return numbers


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _judged(models: Models, relations: list[Relation]) -> list[Relation]:
    for family in ("paper", "exploration"):
        tested = {i: row.p_permutation for i, row in enumerate(relations)
                  if row.family == family and row.p_permutation is not None}  # fmt: skip
        if not tested:
            continue
        p = list(tested.values())
        for i, p_holm, p_bh in zip(tested, holm(p), benjamini_hochberg(p), strict=True):
            corrected = replace(relations[i], p_holm=p_holm, p_bh=p_bh)
            relations[i] = _powered(_with_verdict(models, corrected), family_size=len(tested))
    return relations


def _with_verdict(models: Models, relation: Relation) -> Relation:
    assert relation.r is not None
    assert relation.p_holm is not None
    expected = models.expected(relation.metric)
    goes = None if expected == 0 or relation.r == 0 else "with" if relation.r * expected > 0 else "against"
    return replace(relation, goes=goes, verdict=verdict(goes, models, shown=is_shown(relation)))


CANNOT_TELL = "cannot tell"
"""What is said in place of a verdict where there is none."""


def is_shown(row: Tested) -> bool:
    """Whether a corrected test shows it; a p of 0, which a tiny one is printed as, is shown."""
    return row.p_holm is not None and row.p_holm < LEVEL


def verdict(goes: str | None, models: Models, *, shown: bool) -> str:
    """What a corrected test allows to say, and no more."""
    if not shown:
        return "not shown"
    if goes is None:
        return "related; collapse predicts no direction"
    lower, higher = ("lower", "higher") if models.better < 0 else ("higher", "lower")
    if goes == "with":
        return f"more collapse goes with {lower} {models.outcome}"
    return f"wrong way: more collapse goes with {higher} {models.outcome}"


def _powered(relation: Relation, *, family_size: int) -> Relation:
    if relation.subset != WITHIN or relation.r is None:
        return relation
    return replace(
        relation,
        detectable_r=_known(detectable(relation.n, cells=relation.cells)),
        detectable_r_corrected=_known(detectable(relation.n, cells=relation.cells, alpha=LEVEL / family_size)),
        models_needed=models_needed(relation.r),
    )
