"""What the figures draw: every table once, named, as columns of plain numbers and words; and the view each is given.

Counts are whole, other numbers keep six digits: more cannot be seen, and the tables that can be
saved from the page hold all of them.
"""

import math
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
FILTERS = {"source": "suite", "family": "family", "training": "training", "deep": "depth"}
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
    """The table `models`: one line a model, of this data and of the data beside it."""
    beside: ReportData | None = None

    @property
    def single(self) -> bool:
        """Whether all is about one model."""
        return len({(run["run"], run["checkpoint"]) for run in self.data.runs}) == 1

    def of_run(self, run: Run) -> Line:
        """The columns that say which run a line is about."""
        name = run["run"]
        return {"run": self.data.labels.get(name, name), "wide": label(run["width"]), "deep": label(run["depth"])}


def models_table(sources: Iterable[ReportData]) -> Columns:
    """One line a model, of all sources; `source` is the number of its data, `id` its own."""
    lines: list[Line] = []
    for source, data in enumerate(sources):
        if data.models is None:
            continue
        copied = [
            *FACTS,
            *_further_facts(data),
            *data.main,
            *data.further,
            *(f"{metric} null" for metric in data.main),
        ]
        trainings = training_labels(data)
        for index, line in enumerate(data.models.frame.to_dict("records")):
            lines.append({name: plain(line[name]) for name in copied} | {
                outcome_column(data.outcome): plain(line[data.outcome]),
                "id": len(lines), "source": source, "run": data.labels[line["run"]], "name": line["run"],
                "wide": label(line["width"]), "deep": label(line["depth"]),
                "training": trainings[index],
                "trained": bool(line["epoch"] != 0), "last": bool(line["last"]),
                "compared": bool(data.models.compared.iloc[index]),
            })  # fmt: skip
    return columns(lines)


def overview(data: ReportData, models: Columns) -> Columns:
    """The table of several models: what each is, and its headline numbers; columns without a value are left out."""
    outcome = outcome_column(data.outcome)
    titles = {"run": "model", "checkpoint": "checkpoint", "family": "family", "deep": "depth", "wide": "width",
              "parameters": "parameters", "tokens": "training tokens", outcome: outcome_name(data.outcome),
              "bits_per_byte": "bits per byte", "val_accuracy": "accuracy"}  # fmt: skip
    metrics = [headline.metric for headline in HEADLINES if headline.metric in models] or data.main
    mine = [place for place, source in enumerate(models["source"]) if source == 0]
    table = {"id": [models["id"][place] for place in mine]}
    coded = {headline.metric: f"{headline.code}: {headline.metric}" for headline in HEADLINES}
    for name, title in (titles | {metric: coded.get(metric, metric) for metric in metrics}).items():
        values = [models[name][place] for place in mine if name in models]
        if any(value is not None for value in values) and (name != "checkpoint" or len(set(values)) > 1):
            table[title] = values
    return table


def _further_facts(data: ReportData) -> list[str]:
    """What is known of collected models."""
    assert data.models is not None
    wanted = ("step", "vocabulary", "tokenizer", "corpus", "bits_per_byte")
    return [name for name in dict.fromkeys(wanted) if name in data.models.frame and name not in FACTS]


def training_labels(data: ReportData) -> list[str]:
    """What the shape means: the regime without its checkpoint; the rarest have one name where there are too many."""
    assert data.models is not None
    labels = [regime_name(regime.without("epoch").without("step")) for regime in data.models.regimes]
    frequent = list(pd.Series(labels).value_counts().index[: len(SHAPES) - 1])
    many = len(set(labels)) > len(SHAPES)
    return [OTHER if many and text not in frequent else text for text in labels]


def keys(models: Columns) -> Keys:
    """The legend of a table of models; of the data itself, not of one set beside it."""
    mine = [i for i, source in enumerate(models.get("source", [])) if source == 0]
    trained = [i for i in mine if models["trained"][i]]
    return Keys(
        in_order(models["wide"][i] for i in mine),
        in_order(models["deep"][i] for i in mine),
        sorted({str(models["training"][i]) for i in trained}, key=_natural),
        sorted({str(models["family"][i]) for i in mine if models["family"][i] is not None}),
        "vocabulary" in models,
    )


def in_order(labels: Iterable[Cell]) -> list[str]:
    """Widths or depths as `label` writes them, each once, from the smallest to the largest."""
    return sorted(set(map(str, labels)), key=lambda text: (text == UNKNOWN, 0.0 if text == UNKNOWN else float(text)))


def _natural(text: str) -> list[tuple[int, float, str]]:
    """`3 epochs` before `10 epochs`."""
    words = text.replace(",", "").split(" ")
    return [(0, float(word), "") if _is_number(word) else (1, 0.0, word) for word in words]


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


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


def filters(models: Columns, keys: Keys, names: Sequence[str]) -> list[Filter]:
    """The columns in which the trained models differ; `names` are those of the sources."""
    ordered: Columns = {"deep": [*keys.depths], "training": [*keys.trainings]}
    chosen: list[Filter] = []
    for column, title in FILTERS.items():
        values = ordered.get(column) or sorted(set(_of_trained(models, column)), key=str)
        words = [names[value] if column == "source" and isinstance(value, int) else str(value) for value in values]
        if len(values) > 1:
            chosen.append((column, title, list(zip(map(str, values), words, strict=True))))
    return chosen


def _of_trained(models: Columns, column: str) -> list[Cell]:
    return [value for value, trained in zip(models.get(column, []), models.get("trained", []), strict=True) if trained]
