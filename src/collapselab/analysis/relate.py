"""Relations: every metric against the outcome, over all models, and within cells of seeds.

Within cells scale is held fixed: one cell is the seeds study of the paper; several are pooled by standardising each
cell, so that none carries the result by its spread. These rows are judged: the paper's seven metrics are the one
confirmatory family, all others explore in a family of their own. All other rows are descriptions, with intervals and
without a verdict: across models size and training differ too, and a ratio whose denominator may change its sign has no
direction.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg import orth

from collapselab.analysis import resampling
from collapselab.analysis.families import FAMILY_SIZES, why_no_permutation
from collapselab.analysis.models import NOT_TESTED, RELATED, Floats, Models, Regime, Variable
from collapselab.analysis.resampling import LEVEL, Codes, Corrected, corrections
from collapselab.analysis.subsets import ALL, WITHIN, Subset, count_of, subsets, within_cells
from collapselab.analysis.verdict import RELATION, Cause, Direction, Estimate, Reason, Verdict, direction_of, judge
from collapselab.analysis.words import (
    REVERSAL,
    SHOWN,
    Sentence,
    amount,
    by_reason,
    label_of,
    listed,
    many,
    regime_words,
)

NOT_MEASURED = "no metric was measured."
MIN_MODELS = 3
"""Models beyond one a cell that a correlation needs: with two models it is always 1 or -1."""
ACROSS = Reason(Cause.NOT_A_TEST, "a description: these models differ in size and training too.", Verdict.DESCRIPTION)


@dataclass(frozen=True)
class Relation:
    """One metric against the outcome over one subset; a row of `relate.csv`."""

    subset: str
    """`all models` or `within cells`."""
    metric: str
    """Id in the catalogue."""
    outcome: str
    """What it is related to."""
    n: int
    """Runs, each at its last checkpoint."""
    r: float | None = None
    """Pearson's correlation, within cells where the subset says so."""
    r2: float | None = None
    """Its square."""
    low: float | None = None
    """Lower end of the 95 % interval of r: Fisher's z; where models are not independent, from clusters left out in
    turn."""
    high: float | None = None
    """Upper end."""
    p_permutation: float | None = None
    """Two-sided, from permuting seeds; empty where models differ in more than their seed."""
    p_holm: float | None = None
    """Corrected by Holm over the family, within cells; the verdict goes by it."""
    transform: str = "raw"
    """`raw` or `log`; a metric that the catalogue has as `log` is judged there, and its raw row describes."""
    family: str = "exploration"
    """`paper`: its seven metrics. `exploration`: all others of tokens. `contexts`: metrics of contexts."""
    cells: int = 1
    """Cells whose means were subtracted; 1 for none."""
    missing: int = 0
    """Models left out for a missing value."""
    goes: Direction | None = None
    """`with`: more collapse, better outcome, by the sign of r alone; `against`; empty where none is predicted."""
    verdict: Verdict = Verdict.TOO_FEW
    """`as predicted`, `opposite direction`, `no direction predicted`, `not shown`, `too few runs` or `description`."""
    detectable_r: float | None = None
    """Within cells: the smallest |r| found with 80 % power at 5 %."""
    detectable_r_corrected: float | None = None
    """The same at Holm's first step."""
    why: str | None = None
    """Why there are no numbers, no p, or no verdict."""
    why_code: Cause | None = None
    """`not a test`, `too few`, `no variation`, `missing` or `no fit`."""
    slope: float | None = None
    """Change of the outcome with one standard deviation of the metric."""
    slope_low: float | None = None
    """Lower end of its 95 % interval."""
    slope_high: float | None = None
    """Upper end."""
    shared_seeds: int | None = None
    """Seeds that several cells share, which are permuted in all of them at once."""
    influential: str | None = None
    """The run without which a shown |r| is less than half or not significant."""
    r_without: float | None = None
    """r without that run."""

    @property
    def label(self) -> str:
        """`cdnv`, or `log cdnv`."""
        return label_of(self.metric, self.transform)

    @property
    def label_with_r(self) -> str:
        """`log cdnv (r +0.44)`, and r without the influential run."""
        without = f"; without run {self.influential}: r {self.r_without:+.2f}" if self.influential else ""
        return f"{self.label} (r {self.r:+.2f}{without})"


def relate(models: Models, *, permutations: int = 10_000, seed: int = 0) -> list[Relation]:
    """Every metric against the outcome over both subsets, with corrected p-values."""
    made = (relate_subset(models, subset, permutations=permutations, seed=seed) for subset in subsets(models))
    return [relation for relations in made for relation in relations]


def relate_subset(models: Models, subset: Subset, *, permutations: int, seed: int) -> list[Relation]:
    """Every metric over one subset. A missing value leaves out its model for its metric alone; metrics that lack the
    same models are tested together."""
    outcome = models.trained[models.outcome].to_numpy(dtype=float)[subset.members]
    tested = (v.metric for v in models.variables if v.metric not in NOT_TESTED and v.why_description is None)
    tests = Counter[str](RELATED[metric].family for metric in tested) | Counter(FAMILY_SIZES)
    patterns: dict[bytes, list[int]] = {}
    for number, variable in enumerate(models.variables):
        known = ~np.isnan(variable.values[subset.members]) & ~np.isnan(outcome)
        patterns.setdefault(known.tobytes(), []).append(number)
    relations: dict[int, Relation] = {}
    for pattern, numbers in patterns.items():
        chosen = subset.only(np.frombuffer(pattern, dtype=bool))
        variables = [models.variables[number] for number in numbers]
        blank = [_blank(models, subset, chosen, variable) for variable in variables]
        measured = _measured(models, chosen, variables, blank, tests, permutations=permutations, seed=seed)
        relations.update(zip(numbers, measured, strict=True))

    def p_of(row: Relation) -> float | None:
        """The p that is corrected; of ratios too, which are of the family although they have no verdict."""
        return row.p_permutation if row.subset == WITHIN and row.transform == RELATED[row.metric].transform else None

    rows = [relations[number] for number in sorted(relations)]
    for number, corrected in corrections((row.family, p_of(row)) for row in rows).items():
        rows[number] = _with_verdict(models, rows[number], corrected)
    weakest = {
        number: _without_one(models, subset, models.variables[number], permutations=permutations, seed=seed)
        for number, row in enumerate(rows)
        if row.verdict in SHOWN
    }
    # One broken run can show several metrics, so these p are corrected too.
    tests_without = ((row.family, weakest[number][2] if number in weakest else None) for number, row in enumerate(rows))
    for number, corrected in corrections(tests_without).items():
        rows[number] = _resting_on(rows[number], *weakest[number][:2], corrected.holm)
    return rows


def _with_verdict(models: Models, row: Relation, corrected: Corrected) -> Relation:
    """The row with its corrected p, its verdict, and the |r| that Holm's first step finds."""
    strict = None
    if row.detectable_r is not None:
        stricter = resampling.effect_in_z(LEVEL / corrected.family_size) / resampling.effect_in_z(LEVEL)
        strict = float(np.tanh(np.arctanh(row.detectable_r) * stricter))
    row = replace(row, p_holm=corrected.holm, detectable_r_corrected=strict)
    if row.verdict is Verdict.DESCRIPTION:
        return row
    return replace(row, **judge(Estimate(row.r or 0.0, corrected.holm, models.expected(row.metric)), RELATION))


def _without_one(
    models: Models, subset: Subset, variable: Variable, *, permutations: int, seed: int
) -> tuple[str, float, float]:
    """The run without which r is weakest, r without it, and the p of that: 1 where the sign changes."""
    x, y = variable.values, models.trained[models.outcome].to_numpy(dtype=float)
    chosen = subset.only(~np.isnan(x[subset.members] + y[subset.members]))
    places, r = np.arange(len(chosen.members)), correlation(x[chosen.members, None], y[chosen.members], chosen.cells)[0]
    others = [chosen.only(places != place) for place in places]
    with np.errstate(invalid="ignore"):
        correlations = [correlation(x[rest.members, None], y[rest.members], rest.cells)[0] for rest in others]
    along = np.nan_to_num(correlations) * np.sign(r)
    place = int(along.argmin())
    rest, p = others[place], 1.0
    if along[place] > 0:
        sides = x[rest.members, None], y[rest.members]
        draws: dict[str, Any] = {"permutations": permutations, "seed": seed, "factors": rest.factors}
        p = float(resampling.permutation_test(*sides, rest.cells, **draws).p[0])
    return str(models.trained["run"].iloc[chosen.members[place]]), float(along[place] * np.sign(r)), p


def _resting_on(row: Relation, run: str, without: float, p: float) -> Relation:
    """The row with its influential run, if r rests on it; not shown, if all of it does."""
    r = row.r or 0.0
    if p < LEVEL and without * np.sign(r) >= abs(r) / 2:
        return row
    row = replace(row, influential=run, r_without=without)
    if p < LEVEL:
        return row
    why = f"it rests on one run: without {run} r is {without:+.2f}, p {p:.2g}."
    return replace(row, **Reason(Cause.TOO_FEW, why, Verdict.NOT_SHOWN).columns)


def _blank(models: Models, subset: Subset, chosen: Subset, variable: Variable) -> Relation:
    return Relation(
        subset.name, variable.metric, models.outcome, len(chosen.members), transform=variable.transform,
        family=RELATED[variable.metric].family, cells=count_of(chosen.cells),
        missing=len(subset.members) - len(chosen.members),
        shared_seeds=count_of(chosen.units) if subset.name == WITHIN and chosen.factors else None,
    )  # fmt: skip


def _measured(
    models: Models, chosen: Subset, variables: list[Variable], blank: list[Relation], tests: Counter[str], *,
    permutations: int, seed: int,
) -> list[Relation]:  # fmt: skip
    """The rows with their numbers, and a reason where there are none, no p or no verdict."""
    x = np.stack([variable.values[chosen.members] for variable in variables], axis=1)
    y = models.trained[models.outcome].to_numpy(dtype=float)[chosen.members]
    reasons = [_reason(chosen, relation, x[:, i], y) for i, relation in enumerate(blank)]
    known = [i for i, reason in enumerate(reasons) if reason is None]
    rows = [replace(row, **reason.columns) if reason else row for row, reason in zip(blank, reasons, strict=True)]
    if not known:
        return rows
    untested = {family: _why_no_p(chosen, tests[family]) for family in {blank[i].family for i in known}}
    columns = _statistics(chosen, x[:, known], y)
    if None in untested.values():
        drawn = resampling.permutation_test(
            x[:, known], y, chosen.cells, permutations=permutations, seed=seed, factors=chosen.factors
        )
        # Models of one cell that say as much: fewer than there are, with several cells or shared seeds.
        as_many = 1 / drawn.deviation**2 + 1 if chosen.factors else np.full(len(known), float(chosen.freedom))
        lost = count_of(chosen.cells) - 1  # the standard deviations of cells
        columns |= {
            "p_permutation": drawn.p,
            "detectable_r": np.array([resampling.detectable(n - lost) for n in as_many]),
        }
    for place, i in enumerate(known):
        values = {name: None if np.isnan(column[place]) else float(column[place]) for name, column in columns.items()}
        why = untested[blank[i].family]
        reason = variables[i].why_description or why
        if why:
            values |= {"p_permutation": None, "detectable_r": None}
        row = replace(blank[i], **values)  # type: ignore[arg-type]
        if reason is None or reason.verdict is Verdict.DESCRIPTION:
            row = replace(row, goes=direction_of(row.r or 0.0, models.expected(row.metric)))
        rows[i] = replace(row, **reason.columns) if reason else row
    return rows


def _why_no_p(chosen: Subset, tests: int) -> Reason | None:
    """Why correlations that can be computed have no p and no verdict in a family of that size; None where they have."""
    if chosen.name == ALL:
        return ACROSS
    if chosen.lacks_combinations:
        text = "seeds and data seeds are crossed, and not every seed has every data seed: they cannot be permuted."
        return Reason(Cause.TOO_FEW, text)
    noun = "seeds that runs share" if chosen.factors else "models"
    why = why_no_permutation(chosen.units_per_cell, noun, tests=tests)
    return Reason(Cause.TOO_FEW, why) if why else None


def _reason(chosen: Subset, relation: Relation, x: Floats, y: Floats) -> Reason | None:
    if relation.metric in NOT_TESTED:
        return Reason(Cause.NOT_A_TEST, NOT_TESTED[relation.metric], Verdict.DESCRIPTION)
    if chosen.freedom < MIN_MODELS:
        return Reason.too_few(relation.n, "models", MIN_MODELS + max(relation.cells, 1) - 1)
    for name, values in ((relation.metric, x), (relation.outcome, y)):
        if np.abs(resampling.centred(values, chosen.cells)).max() <= 1e-12 * np.abs(values).max():
            where = " within every cell" if relation.cells > 1 else ""
            return Reason(Cause.NO_VARIATION, f"{name} is the same in all {relation.n} models{where}.")
    return None


def _statistics(chosen: Subset, x: Floats, y: Floats) -> dict[str, Floats]:
    """The columns that describe, by name; NaN where there is no value."""
    r = correlation(x, y, chosen.cells)
    spread = np.sqrt((resampling.centred(y, chosen.cells) ** 2).sum() / (chosen.freedom - 1))
    ends = np.array([_intervals(chosen, x[:, i], y, float(r[i]), float(spread)) for i in range(len(r))]).T
    names = ("low", "high", "slope_low", "slope_high")
    return {"r": r, "r2": r**2, "slope": r * spread, **dict(zip(names, ends, strict=True))}


def _intervals(chosen: Subset, x: Floats, y: Floats, r: float, spread: float) -> tuple[float, ...]:
    """The ends for r, then those for the slope by standard deviations of x; `spread` is what r = 1 would give."""
    if chosen.data_labels is not None or len(chosen.members) < 3 * count_of(chosen.cells):
        # Leaving out seeds says nothing of data seeds; in standardised cells of two only signs are left.
        return *resampling.NONE, *resampling.NONE
    if count_of(chosen.units) == len(chosen.members):
        freedom = len(chosen.members) - 2 * count_of(chosen.cells)  # a cell's mean and its standard deviation
        return *resampling.fisher_interval(r, freedom - 1), *resampling.slope_interval(r * spread, r, freedom)
    x, y = resampling.standardised(x, chosen.cells), spread * resampling.standardised(y, chosen.cells)
    scale = np.sqrt((x @ x) / (chosen.freedom - 1))
    without = resampling.left_out(x / scale, y, orth(np.eye(count_of(chosen.cells))[chosen.cells]), chosen.units)
    return *resampling.clustered_interval(r, without.correlations), *resampling.clustered_slope_interval(
        r * spread, without.slopes
    )


def correlation(x: Floats, y: Floats, cells: Codes) -> Floats:
    """Pearson correlation within cells of each column of x with y, each cell standardised."""
    x, y = resampling.standardised(x, cells), resampling.standardised(y, cells)
    r: Floats = (y @ x) / np.sqrt((x**2).sum(0) * (y**2).sum())
    return np.clip(r, -1, 1)


def counted(row: Relation) -> str:
    """Say what the rows of a relation are: runs, and how many seeds they share. Checkpoints are never counted."""
    if row.subset == ALL:
        return many(row.n, "run")
    if row.shared_seeds and row.cells == 1:
        return f"{row.n} runs of {many(row.shared_seeds, 'seed')}"
    if row.shared_seeds:
        return f"{many(row.shared_seeds, 'seed')}, each in up to {row.cells} cells ({row.n} runs)"
    return many(row.n, "seed") if row.cells == 1 else f"{row.n} runs in {row.cells} cells"


def sentences(models: Models, relations: Sequence[Relation]) -> Iterable[Sentence]:
    """Reversals; the strongest relation across models, which is a description; then what holds at fixed scale."""
    for across, within in reversals(relations):
        text = (
            f"{within.label} reverses: one standard deviation more comes with {_slope(within)} of "
            f"{within.outcome} at fixed scale (Holm p {within.p_holm:.2g}), and with {_slope(across)} across models."
        )
        yield Sentence(REVERSAL, "relate", text)
    yield from (Sentence("across models", "relate", text) for text in _across_models(models, relations))
    yield from (Sentence("scale held fixed", "relate", text) for text in _at_fixed_scale(models, relations))


def reversals(relations: Sequence[Relation]) -> list[tuple[Relation, Relation]]:
    """Across models and at fixed scale: the pairs of rows that have opposite signs, both beyond doubt.

    At fixed scale a corrected test must show it; across models, where none can, the interval must exclude 0.
    """
    within = {row.metric: row for row in _main(relations, WITHIN) if row.verdict in SHOWN}
    return [
        (row, within[row.metric])
        for row in _main(relations, ALL)
        if row.metric in within and row.low is not None and row.high is not None and row.low * row.high > 0
        if (row.r or 0.0) * (within[row.metric].r or 0.0) < 0
    ]


def _across_models(models: Models, relations: Sequence[Relation]) -> Iterable[str]:
    rows = _strongest_first(_main(relations, ALL))
    if not rows:
        yield f"No metric can be related to {models.outcome} across all models; relate.csv gives the reason for each."
    elif models.trained["cell"].nunique() > 1:
        yield (
            f"Across {counted(rows[0])}, descriptive only: {_slope_words(models, rows[0])}, the strongest relation "
            f"(r {rows[0].r:+.2f})."
        )


def says_nothing(rows: Sequence[Relation]) -> str:
    """Why no relation at fixed scale is known, and what to train where models are missing."""
    reason, cause = next(((row.why, row.why_code) for row in rows if row.why), (NOT_MEASURED, None))
    hint = " Train the same model with several seeds." if cause is Cause.TOO_FEW else ""
    return f"With scale held fixed these tables say nothing: {reason}{hint}"


def _at_fixed_scale(models: Models, relations: Sequence[Relation]) -> Iterable[str]:
    rows = [row for row in relations if row.subset == WITHIN]
    main = _main(rows, WITHIN)
    tested = _strongest_first(row for row in main if row.verdict in (*SHOWN, Verdict.NOT_SHOWN))
    if not main:
        yield says_nothing(rows)
        return
    if not tested:
        why = next((row.why for row in main if row.verdict is Verdict.TOO_FEW), main[0].why)
        yield f"With scale held fixed: no verdict; {why}"
        return
    start, first = f"With scale held fixed ({counted(tested[0])})", tested[0]
    shown = [row for row in tested if row.verdict in SHOWN]
    if not shown:
        yield f"{start}, nothing is shown; the largest relation: {_slope_words(models, first)} (r {first.r:+.2f})."
    for row in shown:
        p = f"r {row.r:+.2f}, Holm p {row.p_holm:.2g}"
        yield f"{start}, {_slope_words(models, row)}, {SHOWN[row.verdict]} ({p})."
        start = "At fixed scale too"
    if rest := [row.label_with_r for row in tested if row.verdict is Verdict.NOT_SHOWN]:
        yield f"No evidence at fixed scale (not evidence of absence): {listed(rest, room=140)}."
    if first.detectable_r is None or first.detectable_r_corrected is None:
        yield "There are too few models to say which correlations they could have shown."
    else:
        yield (
            f"{counted(first)} show |r| of {first.detectable_r:.2f} with 80 % power, "
            f"{first.detectable_r_corrected:.2f} at the strictest step of the correction."
        )
    for why, names in by_reason((row.why, row.label_with_r) for row in main if row not in tested).items():
        yield f"No verdict at fixed scale on {listed(names)}: {why}"
    if first.cells == 1:
        model = models.trained.iloc[within_cells(models.trained).members[0]]
        cell = f"{model['architecture']}, {regime_words(Regime.read(model['regime']))}"
        yield f"These runs have one architecture and one regime ({cell}); whether it holds elsewhere is not known."
    for family, words in {"exploration": "Exploring", "contexts": "Exploring contexts"}.items():
        explored = [row for row in rows if row.family == family and row not in main and row.verdict in SHOWN]
        if names := [row.label_with_r for row in _strongest_first(explored)]:
            number = many(len(names), "further metric")
            yield f"{words}, {number} of `relate.csv` shown at fixed scale: {listed(names, room=125)}."


def _strongest_first(rows: Iterable[Relation]) -> list[Relation]:
    return sorted(rows, key=lambda row: -abs(row.r or 0.0))


def _main(relations: Iterable[Relation], subset: str) -> list[Relation]:
    """The rows of the paper's metrics that have a number, on the scale of the catalogue; where none, of all metrics."""
    known = [
        row
        for row in relations
        if row.subset == subset and row.r is not None and row.transform == RELATED[row.metric].transform
    ]
    return [row for row in known if row.family == "paper"] or known


def _slope_words(models: Models, row: Relation) -> str:
    return f"one standard deviation more of {row.label} comes with {_slope(row)} of {models.outcome}"


def _slope(row: Relation) -> str:
    return amount(row.slope or 0.0, row.slope_low, row.slope_high, row.outcome)
