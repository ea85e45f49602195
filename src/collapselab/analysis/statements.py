"""The statements of the analysis, in the order in which they are made and in which the summary reports them.

A statement is one file of this package and one entry here: the dataclass of a row, a function that makes the rows, and
a function that puts them into sentences. Its name is that of its table, `<name>.csv`. A field of a row is a column:
text, a whole number, a float, a `StrEnum` or a `Regime`, or None for an empty cell.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, final

from collapselab.analysis import (
    attribution,
    controls,
    diagnosis,
    doses,
    effects,
    half_times,
    properties,
    relate,
    trends,
    words,
)
from collapselab.analysis.arms import Registered
from collapselab.analysis.models import Models
from collapselab.analysis.words import Sentence
from collapselab.records.tables import RowsByTable


@final
@dataclass(frozen=True)
class Given:
    """What a statement is made from: the models, the request, the rows of the statements before it, and what was
    registered before the first run."""

    models: Models
    permutations: int
    seed: int
    rows: RowsByTable
    registered: Registered = field(default_factory=Registered)

    def __getitem__(self, table: str) -> list[Any]:
        return self.rows[table]

    @property
    def draws(self) -> dict[str, Any]:
        return {"permutations": self.permutations, "seed": self.seed}


@final
@dataclass(frozen=True)
class Statement:
    """One table of the analysis: what a row of it is, how the rows are made, and what they allow to say."""

    row: type[Any]
    rows: Callable[[Given], list[Any]]
    sentences: Callable[[Models, Sequence[Any]], Iterable[Sentence]]


STATEMENTS: dict[str, Statement] = {
    "relate": Statement(relate.Relation, lambda given: relate.relate(given.models, **given.draws), words.of_relations),
    "controls": Statement(
        controls.Control, lambda given: controls.controls(given.models, **given.draws), controls.sentences
    ),
    "trends": Statement(trends.Trend, lambda given: trends.trends(given.models, **given.draws), trends.sentences),
    "properties": Statement(
        properties.PropertyRow,
        lambda given: properties.properties(given.models, given["relate"], given["trends"], **given.draws),
        properties.sentences,
    ),
    "effects": Statement(
        effects.Effect,
        lambda given: effects.effects(given.models, given.registered, given["properties"], **given.draws),
        words.of_effects,
    ),
    "doses": Statement(doses.Response, lambda given: doses.doses(given.models), words.of_doses),
    "attribution": Statement(
        attribution.Attributed,
        lambda given: attribution.attribution(
            given.models, given["effects"], given["properties"], given.registered, **given.draws
        ),
        attribution.sentences,
    ),
    "phases": Statement(half_times.Phase, lambda given: half_times.half_times(given.models), half_times.sentences),
    "diagnosis": Statement(diagnosis.Finding, lambda given: diagnosis.diagnose(given.models), diagnosis.of_findings),
}
