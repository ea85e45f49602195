"""What the figures draw: every table once, named, as columns of plain numbers and words; and the view each is given.

Counts are whole, other numbers keep six digits: more cannot be seen, and the tables that can be
saved from the page hold all of them.
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import final

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
"""A table: line by line, and column by column."""
OTHER = "other"
UNKNOWN = "?"
FACTS = ("checkpoint", "family", "width", "depth", "epochs", "epoch", "weight_decay", "lr", "seed", "parameters",
         "tokens", "train_loss", "val_loss", "val_accuracy", "perplexity")  # fmt: skip
FURTHER_FACTS = ("step", "vocabulary", "tokenizer", "corpus", "bits_per_byte")
"""Of collected models."""
FILTERS = {"family": "family", "training": "training", "deep": "depth"}
Filter = tuple[str, str, list[tuple[str, str]]]
"""What models can be filtered by: a column, its title, and its values with their words."""


@final
@dataclass(frozen=True)
class Keys:
    """What colour, size and shape mean, in the order of the legend."""

    widths: list[str]
    depths: list[str]
    trainings: list[str]
    families: Sequence[str] = ()
    collected: bool = False

    @property
    def by_family(self) -> bool:
        """Whether the colour of a model is its family: there are several, with a colour each, and either the models
        were collected or their widths do not differ."""
        return (self.collected or len(self.widths) == 1) and 1 < len(self.families) <= len(CATEGORIES)


@final
@dataclass(frozen=True)
class View:
    """What every figure is given."""

    data: ReportData
    keys: Keys
    models: Columns
    """The table `models`: one line a model."""

    @property
    def single(self) -> bool:
        """Whether all is about one model."""
        return len({(run["run"], run["checkpoint"]) for run in self.data.runs}) == 1

    def of_run(self, run: Run) -> Line:
        """The columns that say which run a line is about."""
        name = run["run"]
        sizes: Line = {"wide": label(run["width"]), "deep": label(run["depth"]), "family": run["family"]}
        return {"run": self.data.labels.get(name, name)} | sizes


def models_table(data: ReportData) -> Columns:
    """One line a model."""
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
    """The table of several models: what each is, and its headline numbers; columns without a value are left out."""
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
    """What the shape means: the regime without its checkpoint; the rarest have one name where there are too many."""
    assert data.models is not None
    labels = [regime_name(regime.without("epoch").without("step")) for regime in data.models.regimes]
    frequent = list(pd.Series(labels).value_counts().index[: len(SHAPES) - 1])
    many = len(set(labels)) > len(SHAPES)
    return [OTHER if many and text not in frequent else text for text in labels]


def keys(models: Columns) -> Keys:
    """The legend of a table of models."""
    families = {str(family) for family in models.get("family", []) if family is not None}
    return Keys(
        in_order(models.get("wide", [])), in_order(models.get("deep", [])),
        sorted(set(map(str, _of_trained(models, "training"))), key=_natural), sorted(families), "vocabulary" in models,
    )  # fmt: skip


def in_order(labels: Iterable[Cell]) -> list[str]:
    """Widths or depths as `label` writes them, each once, from the smallest to the largest."""
    return sorted(set(map(str, labels)), key=lambda text: (text == UNKNOWN, 0.0 if text == UNKNOWN else float(text)))


def _natural(text: str) -> list[tuple[int, float, str]]:
    """`3 epochs` before `10 epochs`."""
    words = text.replace(",", "").split(" ")
    number = re.compile(r"[-+]?\d+(\.\d+)?")
    return [(0, float(word), "") if number.fullmatch(word) else (1, 0.0, word) for word in words]


def label(value: float | int | None) -> str:
    """A width or a depth as words."""
    return UNKNOWN if value is None or math.isnan(value) else f"{value:g}"


def plain(value: object) -> Cell:
    """A cell as JSON can hold it: no numpy, no NaN; counts whole, other numbers with six digits."""
    cell = value.item() if isinstance(value, np.generic) else value
    if cell is None or cell is pd.NA or (isinstance(cell, float) and not math.isfinite(cell)):
        return None
    if isinstance(cell, float):
        return int(cell) if cell.is_integer() and abs(cell) < 1e15 else float(f"{cell:.6g}")
    assert isinstance(cell, str | int), f"{type(cell).__name__} cannot be drawn"
    return cell


def columns(lines: Sequence[Line]) -> Columns:
    """Lines as columns, which state each name once."""
    names = dict.fromkeys(name for line in lines for name in line)
    return {name: [plain(line.get(name)) for line in lines] for name in names}


def lines(table: Columns) -> list[Line]:
    """Columns as lines again."""
    return [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)]


def filters(models: Columns, keys: Keys) -> list[Filter]:
    """The columns in which the trained models differ."""
    ordered: Columns = {"deep": [*keys.depths], "training": [*keys.trainings]}
    chosen: list[Filter] = []
    for column, title in FILTERS.items():
        values = [*map(str, ordered.get(column) or sorted(set(_of_trained(models, column)), key=str))]
        if len(values) > 1:
            chosen.append((column, title, list(zip(values, values, strict=True))))
    return chosen


def _of_trained(models: Columns, column: str) -> list[Cell]:
    return [value for value, trained in zip(models.get(column, []), models.get("trained", []), strict=True) if trained]
