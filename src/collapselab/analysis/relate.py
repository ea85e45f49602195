"""Relations: every metric against the outcome, over all models, over every regime, and within cells of seeds.

Within cells scale is held fixed: one cell is the seeds study of the paper; several are pooled by subtracting each
cell's mean. These rows are judged: the paper's seven metrics are the one confirmatory family, all others explore in a
family of their own. All other rows are descriptions, with intervals and without a verdict: across models size and
training differ too, single cells are parts of what was judged already, and a ratio whose denominator may change its
sign has no direction.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, final

import numpy as np
from scipy.linalg import orth
from scipy.stats import rankdata

from collapselab.analysis.attainable import LEVEL, permutations_can_show, why_no_permutation
from collapselab.analysis.intervals import (
    Interval,
    clustered_interval,
    clustered_slope_interval,
    fisher_interval,
    left_out,
    slope_interval,
)
from collapselab.analysis.models import NOT_TESTED, Floats, Models, Variable
from collapselab.analysis.related import RELATED
from collapselab.analysis.resampling import POWER, Codes, centred, detectable, effect_in_z, permutation_test
from collapselab.analysis.subsets import Subset, SubsetKind, count_of, subsets
from collapselab.analysis.verdict import (
    Cause,
    Corrected,
    Goes,
    Reason,
    Verdict,
    direction_of,
    is_shown,
    judged,
    verdict_of,
)
from collapselab.analysis.words import relation_column

FEWEST = 3
"""Models beyond one a cell that a correlation needs: with two models it is always 1 or -1."""
DESCRIBED = {
    SubsetKind.ALL: "a description: these models differ in size and training too.",
    SubsetKind.REGIME: "a description: these models differ in size too.",
    SubsetKind.CELL: "a description: one of the cells that are judged together.",
}
"""Why a subset is described and not judged."""


@final
@dataclass(frozen=True)
class Relation:
    """One metric against the outcome over one subset; a row of `relate.csv`."""

    subset: str
    """`all models`, `regime …`, `within cells`, or `seeds of …` for one cell among several."""
    metric: str
    """Id in the catalogue."""
    outcome: str
    """What it is related to."""
    n: int
    """Models."""
    r: float | None = None
    """Pearson's correlation, within cells where the subset says so."""
    r2: float | None = None
    """Its square."""
    rho: float | None = None
    """Spearman's."""
    low: float | None = None
    """Lower end of the 95 % interval of r: Fisher's z; where models are not independent, from clusters left out in
    turn."""
    high: float | None = None
    """Upper end."""
    p_permutation: float | None = None
    """Two-sided, from permuting seeds; empty where models differ in more than their seed."""
    p_holm: float | None = None
    """Corrected by Holm over the family, within cells; the verdict goes by it."""
    p_bh: float | None = None
    """Corrected by Benjamini and Hochberg."""
    transform: str = "raw"
    """`raw` or `log`; a metric that the catalogue has as `log` is judged there, and its raw row describes."""
    family: str = "exploration"
    """`paper`: its seven metrics; within cells they are the one confirmatory family. `exploration`: all others of
    tokens. `contexts`: metrics of contexts."""
    cells: int = 1
    """Cells whose means were subtracted; 1 for none."""
    architectures: int = 1
    """How many there are among the models."""
    missing: int = 0
    """Models left out for a missing value."""
    goes: Goes | None = None
    """`with`: more collapse, better outcome, by the sign of r alone; `against`; empty where none is predicted."""
    verdict: str | None = None
    """`verdict_code` in words; empty for `cannot tell` and `description`."""
    detectable_r: float | None = None
    """Within cells: the smallest |r| found with 80 % power at 5 %."""
    detectable_r_corrected: float | None = None
    """The same at Holm's first step."""
    why: str | None = None
    """Why there are no numbers, no p, or no verdict."""
    verdict_code: Verdict = Verdict.CANNOT_TELL
    """`as predicted`, `opposite direction`, `no direction predicted`, `not shown`; `cannot tell`: no result could have
    been significant with so few models; `description`: not judged."""
    why_code: Cause | None = None
    """`not a test`, `too few`, `no variation`, `missing` or `no fit`."""
    subset_kind: SubsetKind = SubsetKind.ALL
    """`all models`, `one regime`, `within cells` or `one cell`."""
    slope: float | None = None
    """Change of the outcome with one standard deviation of the metric among these models (within cells, where the
    subset says so)."""
    slope_low: float | None = None
    """Lower end of its 95 % interval."""
    slope_high: float | None = None
    """Upper end."""
    p_westfall_young: float | None = None
    """Corrected by Westfall and Young's step-down over the family, from the same permutations; beside Holm."""
    shared_seeds: int | None = None
    """Within cells: seeds that several cells share, which are permuted in all of them at once; empty where none is."""


def relate(models: Models, *, permutations: int = 10_000, seed: int = 0) -> list[Relation]:
    """Every metric against the outcome over every subset, with corrected p-values."""
    return [
        relation
        for subset in subsets(models)
        for relation in relate_subset(models, subset, permutations=permutations, seed=seed)
    ]


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
        filled = _filled(models, chosen, variables, blank, permutations=permutations, seed=seed)
        relations.update(zip(numbers, filled, strict=True))
    if len(patterns) > 1:
        relations = _without_split_families(relations, patterns.values())
    return judged(
        [relations[number] for number in sorted(relations)],
        family=lambda row: row.family,
        p=_judged_p,
        with_verdict=lambda row, corrected: _powered(_with_verdict(models, row, corrected), corrected.family_size),
    )


def _without_split_families(relations: dict[int, Relation], patterns: Iterable[list[int]]) -> dict[int, Relation]:
    """Without Westfall and Young's p where some metrics of a family lack other models: those see other permutations."""
    by_pattern = [
        {relations[i].family for i in numbers if relations[i].p_westfall_young is not None} for numbers in patterns
    ]
    split = {family for family in set().union(*by_pattern) if sum(family in families for families in by_pattern) > 1}
    return {i: replace(row, p_westfall_young=None) if row.family in split else row for i, row in relations.items()}


def _judged_p(row: Relation) -> float | None:
    """The p that is corrected; of ratios too, which are of the family although they have no verdict."""
    if row.subset_kind is not SubsetKind.WITHIN or row.transform != RELATED[row.metric].transform:
        return None
    return row.p_permutation


def _blank(models: Models, subset: Subset, chosen: Subset, variable: Variable) -> Relation:
    return Relation(
        subset=subset.name,
        metric=variable.metric,
        outcome=models.outcome,
        n=len(chosen.members),
        transform=variable.transform,
        family=variable.family,
        cells=count_of(chosen.cells),
        architectures=models.trained["architecture"].iloc[chosen.members].nunique(),
        missing=len(subset.members) - len(chosen.members),
        subset_kind=subset.kind,
        shared_seeds=count_of(chosen.units) if chosen.shares_units and subset.kind is SubsetKind.WITHIN else None,
    )


def _filled(
    models: Models, chosen: Subset, variables: list[Variable], blank: list[Relation], *, permutations: int, seed: int
) -> list[Relation]:
    x = np.stack([variable.values[chosen.members] for variable in variables], axis=1)
    y = models.trained[models.outcome].to_numpy(dtype=float)[chosen.members]
    reasons = [_reason(chosen, relation, x[:, i], y) for i, relation in enumerate(blank)]
    tested = [i for i, reason in enumerate(reasons) if reason is None]
    filled = [replace(row, **reason.columns) if reason else row for row, reason in zip(blank, reasons, strict=True)]
    if not tested:
        return filled
    groups = _families([blank[i] for i in tested])
    statistics = _statistics(chosen, x[:, tested], y, groups, permutations=permutations, seed=seed)
    for values, i in zip(statistics, tested, strict=True):
        goes = direction_of(values["r"] or 0.0, models.expected(blank[i].metric))
        row = replace(blank[i], **values, goes=goes)
        if described := variables[i].why_description or _why_described(chosen):
            filled[i] = replace(row, **described.columns, verdict_code=Verdict.DESCRIPTION)
        elif untested := _why_no_p(chosen, row):
            filled[i] = replace(row, **untested.columns, goes=None)
        else:
            filled[i] = row
    return filled


def _families(rows: Sequence[Relation]) -> list[list[int]]:
    """Which of these rows are corrected together."""
    families: dict[str, list[int]] = {}
    for i, row in enumerate(rows):
        if row.transform == RELATED[row.metric].transform:
            families.setdefault(row.family, []).append(i)
    return list(families.values())


def _why_described(chosen: Subset) -> Reason | None:
    text = DESCRIBED.get(chosen.kind)
    return Reason(Cause.NOT_A_TEST, text) if text else None


def _why_no_p(chosen: Subset, relation: Relation) -> Reason | None:
    """Why a correlation that can be computed has no p and no verdict; None where it has."""
    units = chosen.units_per_cell
    if permutations_can_show(units):
        return None
    return Reason(
        Cause.TOO_FEW, why_no_permutation(units, "seeds, each in several cells," if chosen.shares_units else "models")
    )


def _reason(chosen: Subset, relation: Relation, x: Floats, y: Floats) -> Reason | None:
    if relation.metric in NOT_TESTED:
        return Reason(Cause.NOT_A_TEST, NOT_TESTED[relation.metric])
    if chosen.freedom < FEWEST:
        models = f"{relation.n} models" + (f" in {relation.cells} cells" if relation.cells > 1 else "")
        text = f"{models}: too few for a correlation." if relation.n else "no two models to compare."
        return Reason(Cause.TOO_FEW, text)
    for name, values in ((relation.metric, x), (relation.outcome, y)):
        if np.abs(centred(values, chosen.cells)).max() <= 1e-12 * np.abs(values).max():
            where = " within every cell" if relation.cells > 1 else ""
            return Reason(Cause.NO_VARIATION, f"{name} is the same in all {relation.n} models{where}.")
    return None


def _statistics(
    chosen: Subset, x: Floats, y: Floats, groups: list[list[int]], *, permutations: int, seed: int
) -> list[dict[str, Any]]:
    """The columns of each row, by name; None where there is none."""
    r, rho = correlation(x, y, chosen.cells), rank_correlation(x, y, chosen.cells)
    spread = np.sqrt((centred(y, chosen.cells) ** 2).sum() / (chosen.freedom - 1))
    columns = {"r": r, "r2": r**2, "rho": rho, "slope": r * spread}
    intervals = [_intervals(chosen, x[:, i], y, float(r[i]), float(spread)) for i in range(len(r))]
    columns |= {name: np.array([getattr(pair, kind)[end] for pair in intervals]) for name, kind, end in _ENDS}
    if chosen.kind in (SubsetKind.WITHIN, SubsetKind.CELL) and permutations_can_show(chosen.units_per_cell):
        test = permutation_test(
            x, y, chosen.cells, permutations=permutations, seed=seed, blocks=chosen.blocks, groups=groups
        )
        columns["p_permutation"] = test.p
        if chosen.kind is SubsetKind.WITHIN:
            freedom = 1 / test.deviation**2 if chosen.shares_units else np.full(len(r), chosen.freedom - 1)
            columns |= {"p_westfall_young": test.corrected, "detectable_r": _detectable(freedom)}
    return [{name: _known(values[i]) for name, values in columns.items()} for i in range(len(r))]


def correlation(x: Floats, y: Floats, cells: Codes) -> Floats:
    """Pearson correlation within cells of each column of x with y: of what is left without each cell's mean."""
    x, y = centred(x, cells), centred(y, cells)
    r: Floats = (y @ x) / np.sqrt((x**2).sum(0) * (y**2).sum())
    return np.clip(r, -1, 1)


def rank_correlation(x: Floats, y: Floats, cells: Codes) -> Floats:
    """Spearman correlation within cells: ranks are of a model among those of its cell."""
    ranks_x, ranks_y = np.empty_like(x), np.empty_like(y)
    for cell in np.unique(cells):
        members = cells == cell
        ranks_x[members], ranks_y[members] = rankdata(x[members], axis=0), rankdata(y[members])
    return correlation(ranks_x, ranks_y, cells)


@final
class _Intervals(NamedTuple):
    r: Interval
    slope: Interval


_ENDS = (("low", "r", 0), ("high", "r", 1), ("slope_low", "slope", 0), ("slope_high", "slope", 1))


def _intervals(chosen: Subset, x: Floats, y: Floats, r: float, spread: float) -> _Intervals:
    """Of r, and of the slope by standard deviations of x, of which `spread` is what r = 1 would give."""
    x, y = centred(x, chosen.cells), centred(y, chosen.cells)
    if count_of(chosen.units) == len(chosen.members):
        return _Intervals(fisher_interval(r, chosen.freedom - 3), slope_interval(r * spread, r, chosen.freedom - 2))
    scale = np.sqrt((x @ x) / (chosen.freedom - 1))
    without = left_out(x / scale, y, orth(np.eye(count_of(chosen.cells))[chosen.cells]), chosen.units)
    return _Intervals(clustered_interval(r, without.correlations), clustered_slope_interval(r * spread, without.slopes))


def _detectable(freedom: Floats, *, alpha: float = LEVEL) -> Floats:
    """`freedom` is n - k for n models of k cells; where they share seeds, the smaller number that says as much."""
    return np.array([detectable(value, cells=0, alpha=alpha) for value in freedom])


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _with_verdict(models: Models, relation: Relation, corrected: Corrected) -> Relation:
    tested = replace(relation, p_holm=corrected.holm, p_bh=corrected.bh)
    if relation.verdict_code is Verdict.DESCRIPTION:
        return tested
    code = verdict_of(relation.goes, shown=is_shown(tested))
    words = relation_column(code, outcome=models.outcome, better=models.better)
    return replace(tested, verdict=words, verdict_code=code)


def _powered(relation: Relation, family_size: int) -> Relation:
    """With the |r| that Holm's first step finds, from the one that a single test does."""
    if relation.detectable_r is None:
        return relation
    single = np.array([effect_in_z(LEVEL, POWER) / np.arctanh(relation.detectable_r)]) ** 2 + 2
    strict = _detectable(single, alpha=LEVEL / family_size)
    return replace(relation, detectable_r_corrected=_known(float(strict[0])))
