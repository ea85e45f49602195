"""Relations: every metric against the outcome, over all models, over every regime, and within cells of seeds.

Within cells scale is held fixed: one cell is the seeds study of the paper; several are pooled by subtracting each
cell's mean. The paper's seven metrics are the family of the main tests; other metrics and all logarithms explore, in a
family of their own. Both corrections are within a subset and a family.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from collapselab.analysis.attainable import LEVEL, permutations_can_show, why_no_permutation
from collapselab.analysis.models import NOT_TESTED, Floats, Models, Variable
from collapselab.analysis.resampling import (
    bootstrap_interval,
    centred,
    correlation,
    detectable,
    models_needed,
    permutation_p,
    rank_correlation,
)
from collapselab.analysis.subsets import Subset, SubsetKind, count_of, subsets, within_cells
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
from collapselab.analysis.words import (
    CANNOT_TELL,
    NO_DIRECTION,
    NOT_MEASURED,
    OPPOSITE,
    PREDICTED,
    Sentence,
    by_metric,
    count_shown,
    many,
    metric_label,
    relation_column,
    relation_words,
)

FEWEST = 3
"""Models beyond one a cell that a correlation needs: with two models it is always 1 or -1."""


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
    """Lower end of the 95 % bootstrap interval of r."""
    high: float | None = None
    """Upper end."""
    p_permutation: float | None = None
    """Two-sided."""
    p_holm: float | None = None
    """Corrected by Holm, within subset and family."""
    p_bh: float | None = None
    """Corrected by Benjamini and Hochberg."""
    transform: str = "raw"
    """`raw` or `log`."""
    family: str = "exploration"
    """`paper` or `exploration`."""
    cells: int = 1
    """Cells whose means were subtracted; 1 for none."""
    architectures: int = 1
    """How many there are among the models."""
    missing: int = 0
    """Models left out for a missing value."""
    goes: Goes | None = None
    """`with`: more collapse, better outcome, by the sign of r alone; `against`; empty where no direction is predicted,
    or no verdict is given."""
    verdict: str | None = None
    """`verdict_code` in words; empty for `cannot tell`."""
    detectable_r: float | None = None
    """Within cells: the smallest |r| found with 80 % power at 5 %."""
    detectable_r_corrected: float | None = None
    """The same at Holm's first step."""
    models_needed: int | None = None
    """Seeds of one cell that would find this r with that power."""
    why: str | None = None
    """Why there are no numbers, or no p and no verdict."""
    verdict_code: Verdict = Verdict.CANNOT_TELL
    """`as predicted`, `opposite direction`, `no direction predicted`, `not shown` or `cannot tell`."""
    why_code: Cause | None = None
    """`not a test`, `too few`, `no variation`, `missing` or `no fit`."""
    subset_kind: SubsetKind = SubsetKind.ALL
    """`all models`, `one regime`, `within cells` or `one cell`."""


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
    return judged(
        [relations[number] for number in sorted(relations)],
        family=lambda row: row.family,
        p=lambda row: row.p_permutation,
        with_verdict=lambda row, corrected: _powered(_with_verdict(models, row, corrected), corrected.family_size),
    )


def _blank(models: Models, subset: Subset, chosen: Subset, variable: Variable) -> Relation:
    return Relation(
        subset=subset.name,
        metric=variable.metric,
        outcome=models.outcome,
        n=len(chosen.members),
        transform=variable.transform,
        family="paper" if variable.in_paper else "exploration",
        cells=count_of(chosen.cells),
        architectures=models.trained["architecture"].iloc[chosen.members].nunique(),
        missing=len(subset.members) - len(chosen.members),
        subset_kind=subset.kind,
    )


def _filled(
    models: Models, chosen: Subset, variables: list[Variable], blank: list[Relation], *, permutations: int, seed: int
) -> list[Relation]:
    x = np.stack([variable.values[chosen.members] for variable in variables], axis=1)
    y = models.trained[models.outcome].to_numpy(dtype=float)[chosen.members]
    reasons = [_reason(chosen, relation, x[:, i], y) for i, relation in enumerate(blank)]
    tested = [i for i, reason in enumerate(reasons) if reason is None]
    filled = [replace(row, **reason.columns) if reason else row for row, reason in zip(blank, reasons, strict=True)]
    if tested:
        statistics = _statistics(chosen, x[:, tested], y, permutations=permutations, seed=seed)
        for column, i in enumerate(tested):
            r, r2, rho, low, high, p = (_known(values[column]) for values in statistics)
            row = replace(blank[i], r=r, r2=r2, rho=rho, low=low, high=high, p_permutation=p)
            untested = _why_no_p(chosen, row)
            filled[i] = replace(row, **untested.columns) if untested else row
    return filled


def _why_no_p(chosen: Subset, relation: Relation) -> Reason | None:
    """Why a correlation that can be computed has no p and no verdict; None where it has."""
    units = chosen.units_per_cell
    if permutations_can_show(units):
        return None
    noun = "architectures" if sum(units) == relation.architectures > 1 else "models"
    return Reason(Cause.TOO_FEW, why_no_permutation(units, noun))


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


def _statistics(chosen: Subset, x: Floats, y: Floats, *, permutations: int, seed: int) -> tuple[Floats, ...]:
    """For each column of x: r, R², rho, the ends of the interval of r, and p; NaN where there is none."""
    x, y = centred(x, chosen.cells), centred(y, chosen.cells)
    r = correlation(x, y, chosen.cells)
    draws = chosen.freedom if count_of(chosen.cells) > 1 else None  # what is centred in small cells repeats itself
    low, high = bootstrap_interval(x, y, chosen.units, draws=draws, resamples=permutations, seed=seed)
    p = np.full_like(r, np.nan)
    if permutations_can_show(chosen.units_per_cell):
        p = permutation_p(x, y, chosen.cells, permutations=permutations, seed=seed)
    return r, r**2, rank_correlation(x, y, chosen.cells), low, high, p


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _with_verdict(models: Models, relation: Relation, corrected: Corrected) -> Relation:
    assert relation.r is not None
    tested = replace(relation, p_holm=corrected.holm, p_bh=corrected.bh)
    goes = direction_of(relation.r, models.expected(relation.metric))
    code = verdict_of(goes, shown=is_shown(tested))
    words = relation_column(code, outcome=models.outcome, better=models.better)
    return replace(tested, goes=goes, verdict=words, verdict_code=code)


def _powered(relation: Relation, family_size: int) -> Relation:
    if relation.subset_kind is not SubsetKind.WITHIN or relation.r is None:
        return relation
    return replace(
        relation,
        detectable_r=_known(detectable(relation.n, cells=relation.cells)),
        detectable_r_corrected=_known(detectable(relation.n, cells=relation.cells, alpha=LEVEL / family_size)),
        models_needed=models_needed(relation.r),
    )


def sentences(models: Models, relations: Sequence[Relation]) -> Iterable[Sentence]:
    """Across models, which is a description; then with scale held fixed."""
    yield from (Sentence("across models", "relate", text) for text in _across_models(models, relations))
    yield from (Sentence("scale held fixed", "relate", text) for text in _fixed_scale(models, relations))


def _across_models(models: Models, relations: Sequence[Relation]) -> Iterable[str]:
    rows = _main(row for row in relations if row.subset_kind is SubsetKind.ALL)
    if not rows:
        yield f"No metric can be related to {models.outcome} across all models; relate.csv says why for each."
        return
    strongest = max(rows, key=lambda row: abs(row.r or 0.0))
    if all(row.verdict_code is Verdict.CANNOT_TELL for row in rows):
        yield (
            f"Across all models: {CANNOT_TELL}; {rows[0].why} The strongest correlation with {models.outcome} is "
            f"{_named(strongest)}; it describes these models and no others."
        )
        return
    parts = {
        Verdict.AS_PREDICTED: f"these correlate with a better {models.outcome} {PREDICTED}",
        Verdict.OPPOSITE: f"significant {OPPOSITE}",
        Verdict.NO_DIRECTION: f"significant, where {NO_DIRECTION}",
        Verdict.NOT_SHOWN: "not shown",
        Verdict.CANNOT_TELL: CANNOT_TELL,
    }
    listed = {
        code: ", ".join(f"{row.metric} (r {row.r:+.2f})" for row in rows if row.verdict_code is code) for code in parts
    }
    listed[Verdict.AS_PREDICTED] = listed[Verdict.AS_PREDICTED] or "none"
    yield (
        f"Across all models, which differ in size and training, "
        f"{'; '.join(f'{parts[code]}: {metrics}' for code, metrics in listed.items() if metrics)}. The strongest is "
        f"{_named(strongest)}. Models that share an architecture or a run are not independent: this describes them "
        "and says nothing of collapse apart from scale."
    )
    regimes = _main(row for row in relations if row.subset_kind is SubsetKind.REGIME)
    if regimes and all(row.verdict_code is Verdict.CANNOT_TELL for row in regimes):
        yield f"Within regimes, where size still differs: {CANNOT_TELL}; {regimes[0].why}"
    elif regimes:
        counts = "; ".join(_over_regimes(of_metric) for of_metric in by_metric(regimes))
        yield f"Within regimes, where size still differs, number of regimes shown after Holm's correction: {counts}."


def _over_regimes(rows: Sequence[Relation]) -> str:
    values = [row.r for row in rows if row.r is not None]
    shown, directions = count_shown(rows)
    untested = sum(row.verdict_code is Verdict.CANNOT_TELL for row in rows)
    aside = f" ({CANNOT_TELL} in {untested})" if untested else ""
    return f"{rows[0].metric} {shown} of {len(rows)}{directions}{aside}, r {min(values):+.2f} to {max(values):+.2f}"


def _fixed_scale(models: Models, relations: Sequence[Relation]) -> Iterable[str]:
    rows = [row for row in relations if row.subset_kind is SubsetKind.WITHIN]
    main = _main(rows)
    if not main:
        reason = next((row.why for row in rows if row.why), NOT_MEASURED)
        yield f"With scale held fixed these tables say nothing: {reason} Train the same model with several seeds."
        return
    tested = [row for row in main if row.verdict_code is not Verdict.CANNOT_TELL]
    untested = "; ".join(_named(row) for row in main if row.verdict_code is Verdict.CANNOT_TELL)
    if not tested:
        yield f"With scale held fixed: {CANNOT_TELL}; {main[0].why} Train the same model with more seeds."
        yield f"Correlations among seeds that no test can judge: {untested}."
        return
    first = max(tested, key=lambda row: row.n)
    rest = [row for row in tested if row.verdict_code is Verdict.NOT_SHOWN]
    where = "one cell" if first.cells == 1 else f"{first.cells} cells, each cell's mean subtracted"
    shown = "; ".join(_shown_words(models, row) for row in tested if row not in rest) or "none"
    yield (
        f"With scale held fixed ({first.n} models of {where}, that differ in their seed alone), shown after Holm's "
        f"correction over {many(len(tested), 'metric')}: {shown}."
    )
    if rest:
        against = f", and its sign is {OPPOSITE}"
        listed = "; ".join(
            f"{_named(row)}, p {row.p_permutation:.2g}{against if row.goes is Goes.AGAINST else ''}" for row in rest
        )
        yield f"Not shown there, p before correction: {listed}."
    if untested:
        yield f"Of too few models, so {CANNOT_TELL}: {untested}."
    yield from _power(first, rest)
    if first.cells == 1:
        cell = models.trained["cell"].iloc[within_cells(models.trained).members[0]]
        yield f"All of that is one architecture in one regime ({cell}): whether it holds elsewhere is not known."
    explored = [row for row in rows if row.family == "exploration" and is_shown(row)]
    if explored:
        listed = "; ".join(_shown_words(models, row) for row in explored)
        yield f"Exploring further metrics and logarithms, corrected among themselves: {listed}."


def _shown_words(models: Models, row: Relation) -> str:
    words = relation_words(row.verdict_code, outcome=models.outcome, better=models.better)
    return f"{_named(row)}, Holm p {row.p_holm:.2g}, {words}"


def _power(first: Relation, rest: Sequence[Relation]) -> Iterable[str]:
    if first.detectable_r is None or first.detectable_r_corrected is None:
        yield "There are too few models to say what they could have found."
        return
    text = (
        f"{first.n} models find |r| of {first.detectable_r:.2f} with 80 % power, {first.detectable_r_corrected:.2f} at "
        "the strictest step of the correction; a smaller effect may be there unseen"
    )
    needed = ", ".join(f"{row.metric} {row.models_needed:,}" for row in rest if row.models_needed)
    yield f"{text}. Seeds in one cell that the correlations seen would need: {needed}." if needed else f"{text}."


def _main(rows: Iterable[Relation]) -> list[Relation]:
    """The rows of the paper's metrics that have a number; where there are none, of all metrics on their raw scale."""
    known = [row for row in rows if row.r is not None and row.transform == "raw"]
    return [row for row in known if row.family == "paper"] or known


def _named(row: Relation) -> str:
    interval = "" if row.low is None or row.high is None else f" [{row.low:+.2f}, {row.high:+.2f}]"
    return f"{metric_label(row)} (r {row.r:+.2f}{interval})"
