"""What the figures draw: every table once, named, as columns of plain numbers and words; and the view each is given.

Counts are whole, other numbers keep six digits: more cannot be seen, and the tables that can be
saved from the page hold all of them.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
import pandas as pd

from collapselab.analysis.regime import Regime
from collapselab.records.table import Cell
from collapselab.report.charts.style import CATEGORIES, SHAPES
from collapselab.report.story import Story
from collapselab.report.words import outcome_column, regime_name

Line = dict[str, Cell]
Columns = dict[str, list[Cell]]
"""A table: line by line, and column by column."""
OTHER = "other"
UNKNOWN = "?"
FACTS = ("run", "checkpoint", "family", "epochs", "epoch", "weight_decay", "lr", "seed", "parameters", "tokens",
         "train_loss", "val_loss", "val_accuracy", "perplexity")  # fmt: skip
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

    @property
    def by_family(self) -> bool:
        """Whether the colour of a model is its family: widths do not differ, and families do, with a colour each."""
        return len(self.widths) == 1 and 1 < len(self.families) <= len(CATEGORIES)


@final
@dataclass(frozen=True)
class View:
    """What every figure is given. `corpus` is the one that the reader named, else None."""

    story: Story
    keys: Keys
    models: Columns
    """The table `models`: one line a model, of the story and of the one beside it."""
    beside: Story | None = None
    corpus: Path | None = None


def models_table(stories: Iterable[Story]) -> Columns:
    """One line a model, of all stories; `source` is the number of its story, `id` its own."""
    lines: list[Line] = []
    for source, story in enumerate(stories):
        if story.models is None:
            continue
        copied = [
            *FACTS,
            *_further_facts(story),
            *story.main,
            *story.further,
            *(f"{metric} null" for metric in story.main),
        ]
        trainings, regimes = training_labels(story), _named_regimes(story)
        for index, line in enumerate(story.models.frame.to_dict("records")):
            lines.append({name: plain(line[name]) for name in copied} | {
                outcome_column(story.outcome): plain(line[story.outcome]),
                "id": len(lines), "source": source, "wide": label(line["width"]), "deep": label(line["depth"]),
                "training": trainings[index], "regime": regime_name(regimes[index]),
                "trained": bool(line["epoch"] != 0), "last": bool(line["last"]),
                "compared": bool(story.models.compared.iloc[index]),
            })  # fmt: skip
    return columns(lines)


def _further_facts(story: Story) -> list[str]:
    """What is known of collected models."""
    assert story.models is not None
    wanted = ("step", "vocabulary", "tokenizer", "corpus")
    return [name for name in dict.fromkeys(wanted) if name in story.models.frame and name not in FACTS]


def training_labels(story: Story) -> list[str]:
    """What the shape means: the regime; where those are too many, the regime without its checkpoint."""
    assert story.models is not None
    regimes = _named_regimes(story)
    labels = [regime_name(regime) for regime in regimes]
    if len({text for text, epoch in zip(labels, story.models.frame["epoch"], strict=True) if epoch != 0}) > len(SHAPES):
        labels = [regime_name(regime.without("epoch").without("step")) for regime in regimes]
    frequent = list(pd.Series(labels).value_counts().index[: len(SHAPES) - 1])
    if len(set(labels)) > len(SHAPES):
        labels = [text if text in frequent else OTHER for text in labels]
    return labels


def _named_regimes(story: Story) -> list[Regime]:
    """The regime of every model, with the checkpoint's own name for its epoch: it is at a whole step, near that."""
    assert story.models is not None
    regimes = []
    for regime, checkpoint in zip(story.models.regimes, story.models.frame["checkpoint"], strict=True):
        epoch = regime.number("epoch")
        if epoch is not None and _is_number(checkpoint) and abs(float(checkpoint) - epoch) <= 0.02 * epoch:
            regime = regime.with_number("epoch", float(checkpoint))
        regimes.append(regime)
    return regimes


def keys(models: Columns) -> Keys:
    """The legend of a table of models; of the story itself, not of one set beside it."""
    mine = [i for i, source in enumerate(models.get("source", [])) if source == 0]
    trained = [i for i in mine if models["trained"][i]]
    return Keys(
        in_order(models["wide"][i] for i in mine),
        in_order(models["deep"][i] for i in mine),
        sorted({str(models["training"][i]) for i in trained}, key=_natural),
        sorted({str(models["family"][i]) for i in mine if models["family"][i] is not None}),
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


def label(value: float | None) -> str:
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
    """The columns in which the trained models differ; `names` are those of the stories."""
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
