"""Tables beside results.csv: how each is filled while a model is measured.

A further table is an entry of `TABLES` (`records/tables.py`) and, by the same name, an entry of `FILLERS` here. Its
rows are then kept in the `Result`, collected by suites, and written, hashed and read with the other tables.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, final

from torch import Tensor

from collapselab.core.moments import ClassMoments
from collapselab.measurement.plan import MeasurePlan, Split
from collapselab.records.tables import TABLES, RowsByTable


@final
@dataclass(frozen=True)
class MeasuredLayer:
    """What the rows of a layer are made from: its class moments over a split, of all processes.

    Row i of the moments is of the class `token_ids[i]`.
    """

    plan: MeasurePlan
    split: Split
    layer: str
    moments: ClassMoments

    @property
    def token_ids(self) -> Tensor:
        return self.plan.splits[self.split].numbers.ids

    @property
    def name(self) -> dict[str, str]:
        """The first columns of a row: run, checkpoint, split and layer."""
        model = self.plan.model
        return {
            "run": model.run or model.name,
            "checkpoint": model.checkpoint or "-",
            "split": self.split,
            "layer": self.layer,
        }


FILLERS: dict[str, Callable[[MeasuredLayer], Iterable[Any]]] = {}
"""By the name of a table, the function that makes its rows of one layer; none where an option did not ask for it."""


def fill_tables(tables: RowsByTable, layer: MeasuredLayer) -> None:
    """Add the rows of a layer to every table that has a filler."""
    for name, rows in FILLERS.items():
        table = TABLES[name]
        for row in rows(layer):
            table.check_row(row)
            tables.setdefault(name, []).append(row)
