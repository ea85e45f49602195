"""What the models of the panels can be filtered by."""

from collections.abc import Mapping, Sequence
from typing import Any

from collapselab.report.data import Columns, Keys

FILTERS = {"source": "suite", "family": "family", "training": "training", "deep": "depth"}
Filter = tuple[str, str, list[tuple[str, str]]]
"""A column, its title, and its values with their words."""


def filters(tables: Mapping[str, Columns], keys: Keys, names: Sequence[str]) -> list[Filter]:
    """Those columns in which the trained models differ."""
    ordered = {"deep": keys.depths, "training": keys.trainings}
    chosen: list[Filter] = []
    for column, title in FILTERS.items():
        values: list[Any] = ordered.get(column) or sorted(set(_of_trained(tables, column)), key=str)
        words = [names[value] if column == "source" else str(value) for value in values]
        if len(values) > 1:
            chosen.append((column, title, list(zip(map(str, values), words, strict=True))))
    return chosen


def epochs(tables: Mapping[str, Columns]) -> list[float]:
    """The epochs of the checkpoints of trained models."""
    return sorted({epoch for epoch in _of_trained(tables, "epoch") if epoch is not None})


def _of_trained(tables: Mapping[str, Columns], column: str) -> list[Any]:
    models = tables.get("models", {})
    return [value for value, trained in zip(models.get(column, []), models.get("trained", []), strict=True) if trained]
