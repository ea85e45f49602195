"""Concordance: do all metrics of a property move the same way?

Several metrics measure one property, and they can disagree: an arm can lower `cdnv_log` and raise `cdnv_k2`. For every
arm, and for seeds, width, depth and training, all metrics of a property that have a direction are tested together, on
the catalogue's scale. The property moved *toward* collapse if at least one metric is shown to move toward it and none
away; *away* is the reverse; *in conflict* means that both are shown. Near-duplicates count once, so that "6 of 7
metrics" is not one fact counted three times.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from collapselab.analysis.arms import ArmKey, Comparison, comparisons
from collapselab.analysis.models import CONTEXTS, RELATED, Models, Regime
from collapselab.analysis.paired import MIN_PAIRS, sign_flips
from collapselab.analysis.relate import Relation
from collapselab.analysis.subsets import WITHIN
from collapselab.analysis.trends import Trend
from collapselab.analysis.verdict import MOVEMENT, RELATION, Cause, Estimate, Reason, Verdict, judge
from collapselab.analysis.words import Sentence, listed

DUPLICATE = 0.98
"""Two metrics whose effects correlate at least this strongly over the arms are counted once."""
MIN_ARMS_FOR_DUPLICATES = 5
SEEDS = "seeds"
AXES = {"width": "width", "depth": "depth", "epochs": "training", "epoch": "checkpoints"}
"""Axes of trends.csv, and the place of a row of properties.csv."""
TESTED = (Verdict.AS_PREDICTED, Verdict.OPPOSITE, Verdict.NOT_SHOWN)
"""Verdicts of metrics with a direction."""


@dataclass(frozen=True)
class PropertyRow:
    """One property at one place: an arm, `seeds`, `width`, `depth`, `training` or `checkpoints`; a row of
    `properties.csv`.

    Of seeds, *toward* means that seeds with a better outcome are closer to collapse.
    """

    property: str
    """As in the catalogue."""
    place: str
    """The arm as it is set; or `seeds`, `width`, `depth`, `training` (runs of different length) or `checkpoints`."""
    metrics: int
    """Metrics with a direction; near-duplicates count once."""
    toward: int
    """Metrics shown to move toward collapse."""
    away: int
    """Metrics shown to move away from it."""
    not_shown: int
    """Metrics that are not shown to move."""
    verdict: Verdict
    """`toward`, `away`, `in conflict`, `not shown` or `too few runs`."""
    odd_metrics: str = ""
    """In conflict: the metrics of the smaller side, the paper's first."""
    toward_metrics: str = ""
    """All metrics shown to move toward collapse, duplicates included."""
    away_metrics: str = ""
    """All metrics shown to move away, duplicates included."""
    duplicates: str = ""
    """Metrics that are counted with another, as in `scatter_ratio=cdnv_log`."""
    where: Regime | None = None
    """Of an arm: as in `effects.csv`."""
    arm: str | None = None
    """As in `effects.csv`; empty for all other places."""
    dose: float | None = None
    """As in `effects.csv`."""
    sham: bool = False
    """As in `effects.csv`."""
    n: int = 0
    """Of an arm: pairs."""
    why: str | None = None
    """Why there is no verdict."""
    why_code: Cause | None = None
    """As in `relate.csv`."""


def arm_key(row: PropertyRow) -> ArmKey:
    """The arm of a row, with its dose, as in `Effect.key`."""
    return row.where, row.arm or "", row.dose, row.sham


def properties(
    models: Models, relations: Sequence[Relation], trends: Sequence[Trend], *, permutations: int, seed: int
) -> list[PropertyRow]:
    """A row for every property and arm, then for seeds, width, depth and training where those were tested."""
    compared = comparisons(models)
    by_property = directed_metrics(models)
    rows = []
    for name, metrics in by_property.items():
        duplicates = near_duplicates(models, compared, metrics)
        for comparison in compared:
            moved = _moved(models, comparison, metrics, permutations=permutations, seed=seed)
            rows.append(_of_arm(comparison, name, duplicates, moved))
    within = [row for row in relations if row.subset == WITHIN and row.transform == RELATED[row.metric].transform]
    rows += _of_verdicts(by_property, SEEDS, {row.metric: row.verdict for row in within})
    for axis in dict.fromkeys(row.axis for row in trends if row.axis in AXES):
        codes = {row.metric: row.verdict for row in trends if row.axis == axis}
        rows += _of_verdicts(by_property, AXES[axis], codes)
    return rows


def directed_metrics(models: Models) -> dict[str, list[str]]:
    """The measured metrics with a direction toward collapse by their property, the paper's first."""
    by_property: dict[str, list[str]] = {}
    for metric in sorted(models.metrics, key=lambda name: not RELATED[name].in_paper):
        if models.toward[metric] and RELATED[metric].property != CONTEXTS:
            by_property.setdefault(RELATED[metric].property, []).append(metric)
    return by_property


def movements(models: Models, comparison: Comparison, metrics: Iterable[str]) -> pd.DataFrame:
    """Arm minus control on the catalogue's scale, signed so that + is toward collapse: a row a seed."""
    measured = [metric for metric in metrics if metric in comparison.treated]
    return pd.DataFrame({metric: models.toward[metric] * comparison.scaled(metric) for metric in measured})


def near_duplicates(models: Models, compared: Sequence[Comparison], metrics: Sequence[str]) -> dict[str, str]:
    """Every metric, and the one that it is counted with: itself, or an earlier one that moves alike over the arms."""
    means = pd.DataFrame([movements(models, comparison, metrics).mean() for comparison in compared])
    alike = means.reindex(columns=[*metrics]).corr(min_periods=MIN_ARMS_FOR_DUPLICATES).abs() > DUPLICATE
    counted_with: dict[str, str] = {}
    for place, metric in enumerate(metrics):
        earlier = (other for other in metrics[:place] if counted_with[other] == other and alike.at[metric, other])
        counted_with[metric] = next(earlier, metric)
    return counted_with


def _moved(
    models: Models, comparison: Comparison, metrics: Sequence[str], *, permutations: int, seed: int
) -> dict[str, Verdict]:
    """Every metric with enough pairs: toward, away or not shown; the metrics of a property are one family."""
    moved = movements(models, comparison, metrics)
    moved = moved.loc[:, moved.notna().sum() >= MIN_PAIRS]
    p = sign_flips(moved.to_numpy(dtype=float).T, permutations=permutations, seed=seed)[1] if len(moved.columns) else ()
    tests = zip(map(str, moved), moved.mean(), p, strict=True)
    return {metric: judge(Estimate(mean, float(value), 1), MOVEMENT)["verdict"] for metric, mean, value in tests}


def _of_arm(
    comparison: Comparison, name: str, duplicates: Mapping[str, str], moved: Mapping[str, Verdict]
) -> PropertyRow:
    arm, measured = comparison.arm, [metric for metric in duplicates if metric in comparison.treated]
    pairs = min((int(comparison.scaled(metric).notna().sum()) for metric in measured), default=0)
    tested = {metric: moved[metric] for metric in measured if metric in moved}
    row = _row(name, arm.label, {metric: duplicates[metric] for metric in tested or measured}, tested)
    row = replace(row, where=arm.where, arm=arm.name, dose=arm.dose, sham=arm.sham, n=pairs)
    return row if tested else replace(row, **Reason.too_few(pairs, "pairs", MIN_PAIRS).columns)


def _of_verdicts(
    by_property: Mapping[str, Sequence[str]], place: str, verdicts: Mapping[str, Verdict]
) -> Iterable[PropertyRow]:
    """The rows of a place whose metrics were judged by another statement."""
    words = dict(zip(RELATION, MOVEMENT, strict=True))
    for name, metrics in by_property.items():
        tested = (metric for metric in metrics if verdicts.get(metric) in TESTED)
        if moved := {metric: words[verdicts[metric]] for metric in tested}:
            yield _row(name, place, {metric: metric for metric in moved}, moved)


def _row(name: str, place: str, duplicates: Mapping[str, str], moved: Mapping[str, Verdict]) -> PropertyRow:
    groups: dict[str, set[Verdict]] = {}
    for metric, counted_with in duplicates.items():
        verdict = moved.get(metric, Verdict.NOT_SHOWN)
        opposed = {verdict, moved.get(counted_with)} == {Verdict.TOWARD, Verdict.AWAY}
        groups.setdefault(metric if opposed else counted_with, set()).add(verdict)
    sides = {side: [m for m in moved if moved[m] is side] for side in (Verdict.TOWARD, Verdict.AWAY)}
    counts = {side: sum(side in group for group in groups.values()) for side in sides}
    shown = [side for side, count in counts.items() if count] or [Verdict.NOT_SHOWN]
    odd = min(sides.values(), key=len)
    return PropertyRow(
        name, place, metrics=len(groups), toward=counts[Verdict.TOWARD], away=counts[Verdict.AWAY],
        not_shown=sum(group == {Verdict.NOT_SHOWN} for group in groups.values()),
        verdict=shown[0] if len(shown) == 1 else Verdict.IN_CONFLICT,
        odd_metrics=" ".join(odd) if len(shown) > 1 else "",
        toward_metrics=" ".join(sides[Verdict.TOWARD]), away_metrics=" ".join(sides[Verdict.AWAY]),
        duplicates=" ".join(f"{metric}={other}" for metric, other in duplicates.items() if metric != other),
    )  # fmt: skip


def sentences(models: Models, rows: Sequence[PropertyRow]) -> Iterable[Sentence]:
    """One sentence for every property whose metrics disagree somewhere: one place, an arm if there is one."""
    for name in dict.fromkeys(row.property for row in rows):
        conflicts = [row for row in rows if row.property == name and row.verdict is Verdict.IN_CONFLICT]
        if conflicts:
            first = max(conflicts, key=lambda row: (row.arm is not None, row.metrics - row.not_shown))
            most, way, other = first.toward, "toward collapse", "away from it"
            if first.odd_metrics == first.toward_metrics:
                most, way, other = first.away, "away from collapse", "toward it"
            odd = listed(
                [f"{odd} (the paper's)" if RELATED[odd].in_paper else odd for odd in first.odd_metrics.split()]
            )
            also = listed([row.place for row in conflicts if row is not first])
            place = first.place if first.arm is not None else f"A change of {first.place}"
            text = f"{place} moves {most} of {first.metrics} {name} metrics {way} and {odd} {other}"
            text = f"{text}: what it does to {name} depends on the metric{f', as for {also}' if also else ''}."
            yield Sentence("properties", "properties", text)
