"""The statements of the analysis, in the order in which they are made and in which the summary reports them.

A statement is one file of this package and one entry here: the dataclass of a row, a function that makes the rows, and
a function that puts them into sentences. Its name is that of its table, `<name>.csv`. A field of a row is a column:
text, a whole number, a float, a `StrEnum` or a `Regime`, or None for an empty cell.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, final

from collapselab.analysis import attribution, controls, diagnosis, doses, effects, properties, relate, trends, words
from collapselab.analysis.arms import Registered
from collapselab.analysis.models import Models
from collapselab.analysis.verdict import TableRow
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


@final
@dataclass(frozen=True)
class Statement(Generic[TableRow]):
    """One table of the analysis: what a row of it is, how the rows are made, and what they allow to say."""

    row: type[TableRow]
    rows: Callable[[Given], list[TableRow]]
    sentences: Callable[[Models, Sequence[TableRow]], Iterable[Sentence]]


STATEMENTS: dict[str, Statement[Any]] = {
    "relate": Statement(
        relate.Relation,
        lambda given: relate.relate(given.models, permutations=given.permutations, seed=given.seed),
        words.of_relations,
    ),
    "controls": Statement(
        controls.Control,
        lambda given: controls.controls(given.models, permutations=given.permutations, seed=given.seed),
        controls.sentences,
    ),
    "trends": Statement(
        trends.Trend,
        lambda given: trends.trends(given.models, permutations=given.permutations, seed=given.seed),
        trends.sentences,
    ),
    "properties": Statement(
        properties.PropertyRow,
        lambda given: properties.properties(
            given.models, given.rows["relate"], given.rows["trends"], permutations=given.permutations, seed=given.seed
        ),
        properties.sentences,
    ),
    "effects": Statement(
        effects.Effect,
        lambda given: effects.effects(
            given.models, given.registered, given.rows["properties"], permutations=given.permutations, seed=given.seed
        ),
        words.of_effects,
    ),
    "doses": Statement(doses.Response, lambda given: doses.doses(given.models), words.of_doses),
    "attribution": Statement(
        attribution.Attributed,
        lambda given: attribution.attribution(
            given.models,
            given.rows["effects"],
            given.rows["properties"],
            given.registered,
            permutations=given.permutations,
            seed=given.seed,
        ),
        attribution.sentences,
    ),
    "phases": Statement(diagnosis.Phase, lambda given: diagnosis.phases(given.models), diagnosis.of_phases),
    "diagnosis": Statement(diagnosis.Finding, lambda given: diagnosis.diagnose(given.models), diagnosis.of_findings),
}
