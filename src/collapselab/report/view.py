"""Data of the figures: every table once, by name, as columns of plain numbers and text; and the view that each gets.

Counts are integers, other numbers keep six digits: more cannot be seen, and the tables that can be saved from the page
have all digits.
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from collapselab.records.profile import HEADLINES
from collapselab.records.table import Cell
from collapselab.records.tables import Run
from collapselab.report.charts.style import CATEGORIES, SHAPES
from collapselab.report.data import ReportData
from collapselab.report.words import outcome_column, outcome_name, regime_name

Line = dict[str, Cell]
Columns = dict[str, list[Cell]]
"""A table by columns."""
OTHER = "other"
UNKNOWN = "?"
FACTS = ("checkpoint", "family", "width", "depth", "epochs", "epoch", "weight_decay", "lr", "seed", "parameters",
         "tokens", "train_loss", "val_loss", "val_accuracy", "perplexity")  # fmt: skip
FURTHER_FACTS = ("step", "vocabulary", "tokenizer", "corpus", "bits_per_byte")
"""Further facts of collected models."""
FILTERS = {"family": "family", "training": "training", "deep": "depth"}
Filter = tuple[str, str, list[tuple[str, str]]]
"""A filter of models: a column, its title, and its values with their names."""


@dataclass(frozen=True)
class Keys:
    """Meaning of colour, size and shape, in the order of the legend."""

    widths: list[str]
    depths: list[str]
    trainings: list[str]
    families: Sequence[str] = ()
    collected: bool = False

    @property
    def by_family(self) -> bool:
        """Whether colour is the family: there are several families, with a colour each, and either the models were
        collected or their widths do not differ.
        """
        return (self.collected or len(self.widths) == 1) and 1 < len(self.families) <= len(CATEGORIES)


@dataclass(frozen=True)
class View:
    """Data that every figure is given."""

    data: ReportData
    keys: Keys
    models: Columns
    """The table `models`: one row for each model."""

    @property
    def single(self) -> bool:
        """Whether there is only one model."""
        return len({(run["run"], run["checkpoint"]) for run in self.data.runs}) == 1

    def of_run(self, run: Run) -> Line:
        """Return the columns that identify the run of a row."""
        name = run["run"]
        sizes: Line = {"wide": label(run["width"]), "deep": label(run["depth"]), "family": run["family"]}
        return {"run": self.data.labels.get(name, name)} | sizes


def models_table(data: ReportData) -> Columns:
    """Return one row for each model."""
    if data.models is None:
        return {}
    known = data.models.frame
    collected = [name for name in FURTHER_FACTS if name in known]
    nulls = [f"{metric} null" for metric in data.main]
    copied = dict.fromkeys([*FACTS, *collected, *data.main, *data.further, *nulls])
    lines: list[Line] = []
    for line, training, compared in zip(
        known.to_dict("records"), training_labels(data), data.models.compared, strict=True
    ):
        lines.append({name: plain(line[name]) for name in copied} | {
            outcome_column(data.outcome): plain(line[data.outcome]),
            "id": len(lines), "run": data.labels[line["run"]], "name": line["run"],
            "wide": label(line["width"]), "deep": label(line["depth"]), "training": training,
            "trained": bool(line["epoch"] != 0), "last": bool(line["last"]), "compared": bool(compared),
        })  # fmt: skip
    return columns(lines)


def overview(data: ReportData, models: Columns) -> Columns:
    """Return the table of several models: facts and headline numbers, without empty columns."""
    outcome = outcome_column(data.outcome)
    titles = {"run": "model", "checkpoint": "checkpoint", "family": "family", "deep": "depth", "wide": "width",
              "parameters": "parameters", "tokens": "training tokens", outcome: outcome_name(data.outcome),
              "bits_per_byte": "bits per byte", "val_accuracy": "accuracy"}  # fmt: skip
    metrics = [headline.metric for headline in HEADLINES if headline.metric in models] or data.main
    table = {"id": models["id"]}
    coded = {headline.metric: f"{headline.code}: {headline.metric}" for headline in HEADLINES}
    for name, title in (titles | {metric: coded.get(metric, metric) for metric in metrics}).items():
        values = models.get(name, [])
        if any(value is not None for value in values) and (name != "checkpoint" or len(set(values)) > 1):
            table[title] = values
    return table


def training_labels(data: ReportData) -> list[str]:
    """Return the labels of the shapes: the regime without its checkpoint; the rarest share one label if there are too
    many.
    """
    assert data.models is not None
    labels = [regime_name(regime.without("epoch").without("step")) for regime in data.models.regimes]
    frequent = list(pd.Series(labels).value_counts().index[: len(SHAPES) - 1])
    many = len(set(labels)) > len(SHAPES)
    return [OTHER if many and text not in frequent else text for text in labels]


def keys(models: Columns) -> Keys:
    """Return the legend of a table of models."""
    families = {str(family) for family in models.get("family", []) if family is not None}
    return Keys(
        in_order(models.get("wide", [])), in_order(models.get("deep", [])),
        sorted(set(map(str, _of_trained(models, "training"))), key=_natural), sorted(families), "vocabulary" in models,
    )  # fmt: skip


def in_order(labels: Iterable[Cell]) -> list[str]:
    """Return distinct widths or depths, as `label` writes them, in ascending order."""
    return sorted(set(map(str, labels)), key=lambda text: (text == UNKNOWN, 0.0 if text == UNKNOWN else float(text)))


def _natural(text: str) -> list[tuple[int, float, str]]:
    """Sort key that puts `3 epochs` before `10 epochs`."""
    words = text.replace(",", "").split(" ")
    number = re.compile(r"[-+]?\d+(\.\d+)?")
    return [(0, float(word), "") if number.fullmatch(word) else (1, 0.0, word) for word in words]


def label(value: float | int | None) -> str:
    """Return a width or a depth in words."""
    return UNKNOWN if value is None or math.isnan(value) else f"{value:g}"


def plain(value: object) -> Cell:
    """Return a cell that JSON can hold: no numpy, no NaN; integers for counts, other numbers with six digits."""
    cell = value.item() if isinstance(value, np.generic) else value
    if cell is None or cell is pd.NA or (isinstance(cell, float) and not math.isfinite(cell)):
        return None
    if isinstance(cell, float):
        return int(cell) if cell.is_integer() and abs(cell) < 1e15 else float(f"{cell:.6g}")
    assert isinstance(cell, str | int), f"{type(cell).__name__} cannot be drawn"
    return cell


def columns(lines: Sequence[Line]) -> Columns:
    """Turn rows into columns, which state each name once."""
    names = dict.fromkeys(name for line in lines for name in line)
    return {name: [plain(line.get(name)) for line in lines] for name in names}


def lines(table: Columns) -> list[Line]:
    """Turn columns into rows."""
    return [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)]


def filters(models: Columns, keys: Keys) -> list[Filter]:
    """Return the columns in which the trained models differ."""
    ordered: Columns = {"deep": [*keys.depths], "training": [*keys.trainings]}
    chosen: list[Filter] = []
    for column, title in FILTERS.items():
        values = [*map(str, ordered.get(column) or sorted(set(_of_trained(models, column)), key=str))]
        if len(values) > 1:
            chosen.append((column, title, list(zip(values, values, strict=True))))
    return chosen


def _of_trained(models: Columns, column: str) -> list[Cell]:
    return [value for value, trained in zip(models.get(column, []), models.get("trained", []), strict=True) if trained]
