"""The summary: sentences made from the tables, each no stronger than the rows it is made from.

What a corrected test shows is called shown, and nothing else. What is not shown is not called absent: the power is
beside it. Where there are too few models for a test, the sentence says "cannot tell" and why. Relations across models
are called descriptions, since scale and training differ too.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, final

from collapselab.analysis.controls import BETWEEN, SEEDS, Control
from collapselab.analysis.diagnosis import Finding
from collapselab.analysis.models import Models
from collapselab.analysis.prediction import LAWS, Prediction
from collapselab.analysis.relate import ALL, CANNOT_TELL, WITHIN, Relation, is_shown, within_cells
from collapselab.analysis.trends import AXES, Trend
from collapselab.core.metrics import METRICS

AXIS_NAMES = {
    "width": "With width",
    "depth": "With depth",
    "epochs": "With longer training",
    "epoch": "From checkpoint to checkpoint of a run",
}
VERDICTS = {
    "toward collapse": "toward collapse",
    "away from collapse": "away from collapse",
    "predicts no direction": "one way, where collapse predicts none,",
    "not shown": "neither way shown for",
    CANNOT_TELL: f"{CANNOT_TELL} for",
}
"""How the verdict of a trend ends, and how its sentence begins."""
LEVELS = 6
"""Levels of an axis that are listed before they are counted."""


@final
@dataclass(frozen=True)
class Sentence:
    """One statement, and the table it comes from."""

    topic: str
    table: str
    text: str


def summarise(
    models: Models,
    relations: Sequence[Relation],
    controls: Sequence[Control],
    trends: Sequence[Trend],
    predictions: Sequence[Prediction],
    findings: Sequence[Finding],
) -> list[Sentence]:
    """What the tables allow to say, from the widest view to the narrowest."""
    return [
        Sentence("models", "runs", _models(models)),
        *(Sentence("across models", "relate", text) for text in _across(models, relations)),
        *(Sentence("scale held fixed", "relate", text) for text in _fixed(models, relations)),
        *(Sentence("controls", "controls", text) for text in _curve(controls)),
        *(Sentence("trends", "trends", text) for text in _trends(trends)),
        *(Sentence("prediction", "prediction", text) for text in _predictions(models, predictions)),
        *(Sentence("diagnosis", "diagnosis", text) for text in _diagnosis(findings)),
    ]


def _models(models: Models) -> str:
    frame = models.known
    runs, failed = frame["run"].nunique(), models.frame.loc[models.frame["why"].notna(), "run"].nunique()
    source = f", checkpoints of {_many(runs, 'run')}," if runs < len(frame) else ""
    text = (
        f"{_many(len(frame), 'model')}{source} of {_many(frame['architecture'].nunique(), 'architecture')} and "
        f"{_many(frame['regime'].nunique(), 'training regime')}, {_many(len(models.metrics), 'metric')} each"
    )
    missing = int(frame[[*models.metrics, models.outcome]].isna().sum().sum())
    text += f"; {_many(missing, 'value')} missing and left out of what needs them" if missing else ""
    return f"{text}; {_many(failed, 'run')} failed, and what is unfinished is not counted." if failed else f"{text}."


def _across(models: Models, relations: Sequence[Relation]) -> Iterable[str]:
    rows = _main(row for row in relations if row.subset == ALL)
    if not rows:
        yield f"No metric can be related to {models.outcome} across all models; relate.csv says why for each."
        return
    strongest = max(rows, key=_size)
    untested = [row for row in rows if row.p_holm is None]
    if len(untested) == len(rows):
        yield (
            f"Across all models: {CANNOT_TELL}; {rows[0].why} The strongest correlation with {models.outcome} is "
            f"{_named(strongest)}; it describes these models and no others."
        )
        return
    shown = [row for row in rows if is_shown(row)]
    parts = {
        f"these go with a better {models.outcome} as collapse predicts": _list(shown, "with") or "none",
        "the wrong way": _list(shown, "against"),
        "related, where collapse predicts no direction": _list(shown, None),
        "not shown": ", ".join(_with_r(row) for row in rows if row not in shown and row not in untested),
        CANNOT_TELL: ", ".join(_with_r(row) for row in untested),
    }
    yield (
        f"Across all models, which differ in size and training, "
        f"{'; '.join(f'{what}: {told}' for what, told in parts.items() if told)}. The strongest is "
        f"{_named(strongest)}. Models that share an architecture or a run are not independent: this describes them "
        "and says nothing of collapse apart from scale."
    )
    regimes = _main(row for row in relations if row.subset.startswith("regime "))
    if regimes and all(row.p_holm is None for row in regimes):
        yield f"Within regimes, where size still differs: {CANNOT_TELL}; {regimes[0].why}"
    elif regimes:
        told = "; ".join(_over_regimes(rows) for rows in _by_metric(regimes))
        yield (f"Within regimes, where size still differs, shown after Holm's correction in so many of them: {told}.")


def _over_regimes(rows: Sequence[Relation]) -> str:
    values = [row.r for row in rows if row.r is not None]
    shown, ways = _shown(rows)
    untested = sum(row.p_holm is None for row in rows)
    aside = f" ({CANNOT_TELL} in {untested})" if untested else ""
    return f"{rows[0].metric} {shown} of {len(rows)}{ways}{aside}, r {min(values):+.2f} to {max(values):+.2f}"


def _shown(rows: Sequence[Relation] | Sequence[Control]) -> tuple[int, str]:
    """How many of the rows a corrected test shows, and which way those go."""
    shown = [row for row in rows if is_shown(row)]
    counts = {text: sum(row.goes == way for row in shown) for way, text in _WAYS.items()}
    ways = ", ".join(f"{count} {text}" if count < len(shown) else text for text, count in counts.items() if count)
    return len(shown), f" ({ways})" if ways else ""


def _by_metric(rows: Sequence[Any]) -> Iterable[list[Any]]:
    return ([row for row in rows if row.metric == metric] for metric in dict.fromkeys(row.metric for row in rows))


_WAYS = {"with": "as collapse predicts", "against": "the wrong way"}


def _fixed(models: Models, relations: Sequence[Relation]) -> Iterable[str]:
    rows = [row for row in relations if row.subset == WITHIN]
    main = _main(rows)
    if not main:
        reason = next((row.why for row in rows if row.why), "no metric was measured.")
        yield f"With scale held fixed these tables say nothing: {reason} Train the same model with several seeds."
        return
    tested = [row for row in main if row.p_holm is not None]
    untested = "; ".join(_named(row) for row in main if row.p_holm is None)
    if not tested:
        yield f"With scale held fixed: {CANNOT_TELL}; {main[0].why} Train the same model with more seeds."
        yield f"Correlations among seeds that no test can judge: {untested}."
        return
    first = max(tested, key=lambda row: row.n)
    shown = [row for row in tested if is_shown(row)]
    rest = [row for row in tested if row not in shown]
    where = "one cell" if first.cells == 1 else f"{first.cells} cells, each cell's mean taken off"
    told = "; ".join(f"{_named(row)}, Holm p {row.p_holm:.2g}, {row.verdict}" for row in shown) or "none"
    yield (
        f"With scale held fixed ({first.n} models of {where}, that differ in their seed alone), shown after Holm's "
        f"correction over {_many(len(tested), 'metric')}: {told}."
    )
    if rest:
        told = "; ".join(f"{_named(row)}, p {row.p_permutation:.2g}{_aside(row)}" for row in rest)
        yield f"Not shown there, p before correction: {told}."
    if untested:
        yield f"Of too few models, so {CANNOT_TELL}: {untested}."
    yield from _power(first, rest)
    if first.cells == 1:
        cell = models.trained["cell"].iloc[within_cells(models.trained).members[0]]
        yield f"All of that is one architecture in one regime ({cell}); whether it holds elsewhere it cannot say."
    explored = [row for row in rows if row.family == "exploration" and is_shown(row)]
    if explored:
        told = "; ".join(f"{_named(row)}, Holm p {row.p_holm:.2g}, {row.verdict}" for row in explored)
        yield f"Exploring further metrics and logarithms, corrected among themselves: {told}."


def _aside(row: Relation) -> str:
    return ", and by its sign the wrong way" if row.goes == "against" else ""


def _power(first: Relation, rest: Sequence[Relation]) -> Iterable[str]:
    if first.detectable_r is None or first.detectable_r_corrected is None:
        yield "There are too few models to say what they could have found."
        return
    text = (
        f"So many models find |r| of {first.detectable_r:.2f} with 80 % power, {first.detectable_r_corrected:.2f} at "
        "the strictest step of the correction; a smaller effect may be there unseen"
    )
    needed = ", ".join(f"{row.metric} {row.models_needed:,}" for row in rest if row.models_needed)
    yield f"{text}. Seeds in one cell that the correlations seen would need: {needed}." if needed else f"{text}."


def _curve(controls: Sequence[Control]) -> Iterable[str]:
    paper = [row for row in controls if row.family == "paper"]
    known = [row for row in paper if row.partial_r is not None]
    names = list(dict.fromkeys(row.controls for row in known))
    if not [name for name in names if name != SEEDS]:
        yield f"Beyond scale and training: no answer; {next((row.why for row in paper), 'no metric was measured.')}"
        return
    told = "; ".join(f"{rows[0].metric} {_values(rows, names)}" for rows in _by_metric(known))
    yield f"Partial correlations beyond {' | '.join(names)}: {told}."
    for rows in _by_metric(known):
        yield _held(rows)
    for name, why in {row.controls: row.why for row in paper if row.controls not in names}.items():
        yield f"Beyond {name}: no answer; {why}"
    tested = {row.controls for row in known if row.p_holm is not None}
    for name, why in {row.controls: row.why for row in known if row.controls not in {*tested, SEEDS}}.items():
        yield f"Beyond {name}: {CANNOT_TELL}; {why}"


def _values(rows: Sequence[Control], names: Sequence[str]) -> str:
    found = {row.controls: row.partial_r for row in rows}
    return " | ".join(f"{found[name]:+.2f}" if name in found else "–" for name in names)


def _held(rows: Sequence[Control]) -> str:
    between = [row for row in rows if row.comparison == BETWEEN and row.p_holm is not None]
    seeds = [row for row in rows if row.controls == SEEDS]
    alone = f"among seeds alone {seeds[0].verdict or CANNOT_TELL}" if seeds else "no seeds to compare"
    if not between:
        return f"{rows[0].metric}: between models {CANNOT_TELL}; {alone}."
    shown, ways = _shown(between)
    turns = ", but its sign turns from one to another" if len({row.goes for row in between}) > 1 else ""
    return f"{rows[0].metric}: between models shown in {shown} of {len(between)} specifications{ways}{turns}; {alone}."


def _trends(trends: Sequence[Trend]) -> Iterable[str]:
    for axis, where in dict.fromkeys((row.axis, row.where) for row in trends):
        rows = [row for row in trends if (row.axis, row.where) == (axis, where) and row.groups]
        if rows:
            why = next((f" Cannot tell: {row.why}" for row in rows if row.verdict is None), "")
            yield f"{_along(rows[0])}: {_sorted(rows)}.{why}"


def _along(row: Trend) -> str:
    levels = [f"{level:.3g}" if level < 100 else f"{level:g}" for level in map(float, row.levels.split())]
    if row.axis not in AXES:
        where = f" ({row.where})" if row.where else ""
        return f"{row.axis} {levels[-1]} against {levels[0]}{where}, in pairs"
    told = ", ".join(levels) if len(levels) <= LEVELS else f"{levels[0]} to {levels[-1]} in {len(levels)} levels"
    return f"{AXIS_NAMES[row.axis]} ({told}), all else fixed"


def _sorted(rows: Sequence[Trend]) -> str:
    """The paper's metrics by name, the others counted; where none of the paper's was measured, all by name."""
    metrics = [row for row in rows if row.metric != row.outcome]
    named = [row for row in metrics if METRICS[row.metric].in_paper] or metrics
    others = [row for row in metrics if row not in named]
    parts = []
    for ending, words in VERDICTS.items():
        told = [", ".join(f"{row.metric} ({_counts(row)})" for row in named if _verdict(row).endswith(ending))]
        if count := sum(_verdict(row).endswith(ending) for row in others):
            told.append(f"{count} of {len(others)} others")
        if any(told):
            parts.append(f"{words} {' and '.join(filter(None, told))}")
    return "; ".join([*parts, *(_outcome(row) for row in rows if row.metric == row.outcome)])


def _verdict(row: Trend) -> str:
    return CANNOT_TELL if row.verdict is None else row.verdict


def _counts(row: Trend) -> str:
    """How many groups go the way that was shown; where none was, how many go toward collapse."""
    if row.verdict not in (None, "not shown"):
        return f"{max(row.rises, row.falls)} of {row.groups}"
    if row.toward is None:
        return f"{row.rises} of {row.groups} rise"
    return f"{row.rises if row.toward == 'rises' else row.falls} of {row.groups} toward"


def _outcome(row: Trend) -> str:
    better = row.rises if row.toward == "rises" else row.falls
    if row.verdict is None:
        return f"{CANNOT_TELL} for {row.metric} ({better} of {row.groups} better)"
    verdict = row.verdict.rpartition(" ")[2]
    if verdict == "worse":
        return f"{row.metric} gets worse ({row.groups - row.unchanged - better} of {row.groups})"
    shown = "gets better" if verdict == "better" else "not shown to change"
    return f"{row.metric} {shown} ({better} of {row.groups}{'' if verdict == 'better' else ' better'})"


def _predictions(models: Models, predictions: Sequence[Prediction]) -> Iterable[str]:
    of_law = {law: [row for row in predictions if row.law == law and row.gain is not None] for law in LAWS}
    if not all(of_law.values()):
        unknown = next((law for law, rows in of_law.items() if not rows), None)
        why = next((row.why for row in predictions if row.law == unknown), "no metric was measured.")
        yield f"Prediction of {models.outcome}: {CANNOT_TELL}; {why}"
        return
    law = ", ".join(f"{rows[0].r2_law:.3f} ({name})" for name, rows in of_law.items())
    sure = set.intersection(*({_label(row) for row in rows if _gains(row)} for rows in of_law.values()))
    last = list(LAWS)[-1]
    helps = sorted((row for row in of_law[last] if _label(row) in sure), key=lambda row: row.gain or 0.0, reverse=True)
    told = ", ".join(f"{_label(row)} {row.r2_with_metric:.3f}" for row in helps) or "none"
    yield (
        f"On architectures left out in turn, {of_law[last][0].scale} predict {models.outcome} with R² {law}. Metrics "
        f"whose gain has an interval above 0 beside every law, with R² beside the {last}: {told}. They are measured on "
        "the very model that is predicted: a gain shows shared information, not a cause."
    )


def _gains(row: Prediction) -> bool:
    return row.low is not None and row.low > 0


def _diagnosis(findings: Sequence[Finding]) -> Iterable[str]:
    for signature in dict.fromkeys(finding.signature for finding in findings):
        answers = [finding for finding in findings if finding.signature == signature]
        count = {answer: sum(finding.found == answer for finding in answers) for answer in ("yes", "no", "unknown")}
        runs = [finding.run for finding in answers if finding.found == "yes"]
        named = f" ({', '.join(runs[:5])}{', …' if len(runs) > 5 else ''})" if runs else ""
        yield f"{signature}: {count['yes']} of {_many(len(answers), 'run')}{named}, {count['unknown']} unknown."


def _main(rows: Iterable[Relation]) -> list[Relation]:
    """The rows of the paper's metrics that have a number; where there are none, of all metrics on their raw scale."""
    known = [row for row in rows if row.r is not None and row.transform == "raw"]
    return [row for row in known if row.family == "paper"] or known


def _list(rows: Sequence[Relation], goes: str | None) -> str:
    return ", ".join(_with_r(row) for row in rows if row.goes == goes)


def _size(row: Relation) -> float:
    return 0.0 if row.r is None else abs(row.r)


def _with_r(row: Relation) -> str:
    return f"{row.metric} (r {row.r:+.2f})"


def _named(row: Relation) -> str:
    interval = "" if row.low is None or row.high is None else f" [{row.low:+.2f}, {row.high:+.2f}]"
    return f"{_label(row)} (r {row.r:+.2f}{interval})"


def _label(row: Relation | Prediction) -> str:
    return row.metric if row.transform == "raw" else f"log {row.metric}"


def _many(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
