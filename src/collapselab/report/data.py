"""What the figures draw: every table once, named, as columns of plain numbers and words.

Counts are whole, other numbers keep six digits: more cannot be seen, and the tables that can be
saved from the page hold all of them.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, final

import pandas as pd

from collapselab.analysis.regime import Regime
from collapselab.report.charts.style import SHAPES
from collapselab.report.story import Story
from collapselab.report.words import regime_name

Columns = dict[str, list[Any]]
OTHER = "other"
UNKNOWN = "?"
FACTS = ("run", "checkpoint", "family", "epochs", "epoch", "weight_decay", "lr", "seed", "parameters", "tokens",
         "train_loss", "val_loss", "val_accuracy", "perplexity")  # fmt: skip


@final
@dataclass(frozen=True)
class Keys:
    """What colour, size and shape mean, in the order of the legend."""

    widths: list[str]
    depths: list[str]
    trainings: list[str]


def models_table(stories: Iterable[Story]) -> Columns:
    """One line a model, of all stories; `source` is the number of its story, `id` its own."""
    lines: list[dict[str, Any]] = []
    for source, story in enumerate(stories):
        if story.models is None:
            continue
        metrics = [*story.main, *story.further]
        trainings, regimes = training_labels(story), _named_regimes(story)
        for index, line in enumerate(story.models.frame.to_dict("records")):
            values = {name: plain(line[name]) for name in FACTS}
            values |= {metric: plain(line[metric]) for metric in metrics}
            values |= {f"{metric} null": plain(line[f"{metric} null"]) for metric in story.main}
            lines.append(values | {
                "id": len(lines), "source": source, "wide": label(line["width"]), "deep": label(line["depth"]),
                "training": trainings[index], "regime": regime_name(regimes[index]),
                "trained": bool(line["epoch"] != 0), "last": bool(line["last"]),
            })  # fmt: skip
    return columns(lines)


def training_labels(story: Story) -> list[str]:
    """What the shape means: the regime; where those are too many, the regime without its checkpoint."""
    assert story.models is not None
    regimes = _named_regimes(story)
    labels = [regime_name(regime) for regime in regimes]
    if len({text for text, epoch in zip(labels, story.models.frame["epoch"], strict=True) if epoch != 0}) > len(SHAPES):
        labels = [regime_name(regime.without("epoch")) for regime in regimes]
    frequent = list(pd.Series(labels).value_counts().index[: len(SHAPES) - 1])
    if len(set(labels)) > len(SHAPES):
        labels = [text if text in frequent else OTHER for text in labels]
    return labels


def _named_regimes(story: Story) -> list[Regime]:
    """The regime of every model, with the checkpoint's own name for its epoch: it is at a whole step, near that."""
    assert story.models is not None
    names = story.models.frame["checkpoint"]
    return [_as_called(regime, name) for regime, name in zip(story.models.regimes, names, strict=True)]


def _as_called(regime: Regime, checkpoint: str) -> Regime:
    epoch = regime.number("epoch")
    if epoch is None or not _is_number(checkpoint) or abs(float(checkpoint) - epoch) > 0.02 * epoch:
        return regime
    return regime.with_number("epoch", float(checkpoint))


def keys(models: Columns) -> Keys:
    """The legend of a table of models; of the story itself, not of one set beside it."""
    mine = [i for i, source in enumerate(models.get("source", [])) if source == 0]
    trained = [i for i in mine if models["trained"][i]]
    return Keys(
        sorted({models["wide"][i] for i in mine}, key=_by_number),
        sorted({models["deep"][i] for i in mine}, key=_by_number),
        sorted({models["training"][i] for i in trained}, key=_natural),
    )


def _by_number(text: str) -> tuple[bool, float]:
    return (text == UNKNOWN, 0.0 if text == UNKNOWN else float(text))


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


def label(value: Any) -> str:
    """A width or a depth as words."""
    return UNKNOWN if value is None or math.isnan(value) else f"{value:g}"


def plain(value: Any) -> Any:
    """A cell as JSON can hold it: no numpy, no NaN; counts whole, other numbers with six digits."""
    if value is None or value is pd.NA or (isinstance(value, float) and not math.isfinite(value)):
        return None
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < 1e15 else float(f"{value:.6g}")
    return value.item() if hasattr(value, "item") else value


def columns(lines: list[dict[str, Any]]) -> Columns:
    """Lines as columns, which state each name once."""
    names = dict.fromkeys(name for line in lines for name in line)
    return {name: [plain(line.get(name)) for line in lines] for name in names}


def lines(table: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    """Columns as lines again."""
    return [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)]
