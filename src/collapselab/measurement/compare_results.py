"""`compare`: two sets of measurements, metric by metric, if they can be compared at all.

Numbers are comparable where they were measured on the same text, by the same definitions, with the same options. That
is checked first, and every difference is named.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from collapselab.errors import ConfigError
from collapselab.records.measurement import Key, Result, Results

MOST_NAMED = 6
RUNNING = ("batch", "shard_classes")
"""Options that say how a measurement was run, and change no number."""


@dataclass(frozen=True)
class Difference:
    """One number of both; `relative` is over the larger of the two, None where either is missing."""

    model: str
    """Mine, and theirs after a stroke where it has another name."""
    split: str
    layer: str
    bin: str
    metric: str
    mine: float | None
    theirs: float | None
    relative: float | None


@dataclass(frozen=True)
class ResultComparison:
    """Every number that both have, why they may not be comparable, and the models that only one of them has."""

    rows: list[Difference]
    warnings: list[str]
    unmatched: list[str]

    @property
    def largest(self) -> Difference | None:
        """The number that differs most."""
        known = [row for row in self.rows if row.relative is not None]
        return max(known, key=lambda row: row.relative or 0.0, default=None)

    @property
    def differing(self) -> list[Difference]:
        """The numbers that are not the same, or that one of the two lacks, those that differ most first."""
        rows = [row for row in self.rows if row.mine != row.theirs]
        return sorted(rows, key=lambda row: -1.0 if row.relative is None else row.relative, reverse=True)

    def to_json(self) -> str:
        """One JSON document."""
        return json.dumps(asdict(self), ensure_ascii=False, allow_nan=False)


def compare(mine: Results, theirs: Results, *, anyway: bool = False) -> ResultComparison:
    """The numbers of the same models side by side.

    >>> from collapselab import compare, load_results
    >>> mine = load_results("runs/small")
    >>> compare(mine, mine).largest.relative
    0.0

    ConfigError where corpus, metric versions or options differ, unless `anyway` turns that into warnings. Where both
    have one model, these two are compared whatever their names; else models are matched by run and checkpoint.
    """
    ours, others = (
        {f"{result.facts['run']} {result.facts['checkpoint']}": result for result in results}
        for results in (mine, theirs)
    )
    pairs, unmatched = [(ours[key], others[key]) for key in ours if key in others], sorted(ours.keys() ^ others.keys())
    if len(mine) == len(theirs) == 1:
        pairs, unmatched = [(mine[0], theirs[0])], []
    if not pairs:
        named = (", ".join(result.title for result in list(results)[:MOST_NAMED]) for results in (mine, theirs))
        raise ConfigError(
            f"compare: no model is in both. Mine are {next(named)}; theirs are {next(named)}. Name one of each."
        )
    warnings = list(dict.fromkeys(why for pair in pairs for why in obstacles(*pair)))
    if warnings and not anyway:
        raise ConfigError(
            f"compare: not comparable. {' '.join(warnings)} With --anyway they are compared all the same."
        )
    return ResultComparison([row for pair in pairs for row in _differences(*pair)], warnings, unmatched)


def obstacles(mine: Result, theirs: Result) -> Iterator[str]:
    """Why two measurements cannot be compared, a sentence each."""
    if mine.facts["corpus_hash"] != theirs.facts["corpus_hash"]:
        yield f"The corpora differ: {mine.facts['corpus_hash']} and {theirs.facts['corpus_hash']}."
    ours, others = ({row.metric: row.version for row in result.rows} for result in (mine, theirs))
    changed = [metric for metric in ours if metric in others and ours[metric] != others[metric]]
    if changed:
        named = ", ".join(f"{metric} ({ours[metric]} and {others[metric]})" for metric in changed[:MOST_NAMED])
        yield f"Metrics follow different versions of their definition: {named}."
    options, other_options = mine.facts["options"], theirs.facts["options"]
    names = [name for name in {**options, **other_options} if name not in RUNNING]
    different = [name for name in names if options.get(name) != other_options.get(name)]
    if different:
        listed = ", ".join(f"{name} ({options.get(name)!r} and {other_options.get(name)!r})" for name in different)
        yield f"The options differ: {listed}."


def _differences(mine: Result, theirs: Result) -> Iterator[Difference]:
    others = {Key(row.split, row.layer, row.bin, row.metric): row.value for row in theirs.rows}
    title = mine.title if mine.title == theirs.title else f"{mine.title} / {theirs.title}"
    for row in mine.rows:
        key = Key(row.split, row.layer, row.bin, row.metric)
        if key not in others:
            continue
        value, other, relative = row.value, others[key], None
        if value is not None and other is not None:
            largest = max(abs(value), abs(other))
            relative = abs(value - other) / largest if largest else 0.0
        yield Difference(title, *key, value, other, relative)
