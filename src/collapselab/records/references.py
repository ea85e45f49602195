"""Reference values: the headline metrics of models that were measured before, to compare a new result with.

`references.csv` holds one row per model: 230 models of the paper (values only), the untreated runs of this project's
suites, and pretrained models. `python docs/make_references.py` writes it. A metric depends on the text, the number of
classes and the number of tokens, so a result is ranked only among models that are alike in all three and have about
as many parameters. Otherwise the values of one pretrained model on the same text are shown, or the reason why
nothing is comparable.
"""

import csv
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from collapselab.errors import RunError
from collapselab.records.profile import HEADLINES
from collapselab.records.tables import Row

if TYPE_CHECKING:
    from collapselab.records.measurement import Result

MIN_MODELS = 10
"""The fewest models for a percentile."""
MAX_CLASSES_RATIO, MAX_TOKENS_RATIO = 2, 5
"""A reference is comparable if its classes and its tokens are within these factors of the result's."""
PRETRAINED = "pretrained"
MAX_HEADING = 12
IDEALS = {headline.metric: headline.ideal for headline in HEADLINES}
COLUMNS = ("model", "source", "text", "text_hash", "parameters", "classes", "tokens", *IDEALS)


@dataclass(frozen=True)
class Reference:
    """The headline metrics of a model that was measured before."""

    model: str
    source: str
    """The suite or publication; `pretrained` for a model of its own."""
    text: str
    text_hash: str
    """Hash of the exact text, if known."""
    parameters: int
    classes: int
    """With at least one measured token."""
    tokens: int
    """Training tokens that were measured."""
    values: Mapping[str, float]


@dataclass(frozen=True)
class Comparison:
    """The rank of a result among reference models: cells by metric, or a reason why there are none."""

    sentence: str
    heading: str = ""
    cells: Mapping[str, str] | None = None


@cache
def references() -> tuple[Reference, ...]:
    """Return the shipped reference models."""
    with files("collapselab.records").joinpath("references.csv").open(encoding="utf-8") as file:
        return tuple(
            Reference(
                row["model"], row["source"], row["text"], row["text_hash"],
                int(row["parameters"]), int(row["classes"]), int(row["tokens"]),
                {metric: float(row[metric]) for metric in IDEALS if row[metric]},
            )
            for row in csv.DictReader(file)
        )  # fmt: skip


def reference_row(result: "Result") -> dict[str, object]:
    """Return a row of `references.csv` for a measured model."""
    rows = [row for row in result.rows if is_headline(row) and row.value is not None]
    if not rows:
        raise RunError(f"{result.name}: no headline metric has a value at the last layer.")
    facts = result.facts
    # A name without its folder, which can hold a user's name, and without the quantisation of a GGUF file.
    name = re.split(r"[/\\]", facts["model"].rstrip("/\\"))[-1]
    return {
        "model": re.sub(r"(\.(I?Q|B?F)\d\w*)?\.gguf$", "", name), "source": PRETRAINED, "text": facts.get("text", ""),
        "text_hash": facts.get("text_hash", ""), "parameters": facts["parameters"],
        "classes": rows[0].classes, "tokens": rows[0].tokens,
        **{row.metric: f"{row.value:.4g}" for row in rows},
    }  # fmt: skip


def compare_with_references(rows: Iterable[Row], text: str, parameters: int | None) -> Comparison:
    """Rank the headline metrics of a result among comparable reference models.

    The percentile is the share of these models that are less collapsed: farther from the ideal of the metric.
    `text` is the name of the text, or its name and at least eight digits of its hash.
    """
    last = {row.metric: row for row in rows if is_headline(row)}
    first = next(iter(last.values()), None)
    if first is None or not first.classes or not first.tokens or not parameters:
        return Comparison("No reference values: the number of parameters, classes or tokens is unknown.")
    texts = {one.text for one in references() if _is_named(one, text)}
    on_text = [one for one in references() if one.text in texts]
    if not on_text:
        known = ", ".join(sorted({one.text for one in references()}))
        return Comparison(f"No reference values for this text. Texts with reference values: {known}.")
    same_size = [one for one in on_text if _ratio(one.tokens, first.tokens) <= MAX_TOKENS_RATIO]
    low = 10 ** (len(str(parameters)) - 1)
    ranked = [
        one
        for one in same_size
        if _ratio(one.classes, first.classes) <= MAX_CLASSES_RATIO and low <= one.parameters < 10 * low
    ]
    size = f"{_short(low)} to {_short(10 * low)} parameters"
    if len(ranked) >= MIN_MODELS:
        cells = {metric: _percentile(row, ranked) for metric, row in last.items()}
        sentence = (
            f"Percentile: the share of {len(ranked)} reference models with {size} on {ranked[0].text} that is less "
            "collapsed."
        )
        return Comparison(sentence, "percentile", cells)
    others = [one for one in same_size if one.source == PRETRAINED and one.parameters != parameters]
    if not others:
        return Comparison(
            f"No reference values: fewer than {MIN_MODELS} models with {size} and about {first.classes:,} classes were "
            f"measured on about {first.tokens:,} tokens of {on_text[0].text}."
        )
    nearest = min(others, key=lambda one: _ratio(one.parameters, parameters))
    cells = {metric: f"{value:.2f}" for metric, value in nearest.values.items()}
    sentence = (
        f"For comparison: {nearest.model} with {_short(nearest.parameters)} parameters and {nearest.classes:,} classes "
        f"on {nearest.tokens:,} tokens of {nearest.text}."
    )
    if _ratio(nearest.classes, first.classes) > MAX_CLASSES_RATIO:
        sentence += f" This result has {first.classes:,} classes, a difference that changes the metrics by itself."
    return Comparison(sentence, nearest.model[:MAX_HEADING], cells)


def is_headline(row: Row) -> bool:
    """Whether a row is the value of a headline metric for a whole model."""
    return (row.split, row.layer, row.bin) == ("train", "last", "all") and row.metric in IDEALS


def _is_named(reference: Reference, text: str) -> bool:
    by_hash = bool(reference.text_hash) and reference.text_hash[:8] in text
    return by_hash or reference.text.lower() in text.lower()


def _ratio(one: float, other: float) -> float:
    return max(one, other) / max(min(one, other), 1)


def _percentile(row: Row, ranked: list[Reference]) -> str:
    ideal = IDEALS[row.metric]
    distances = [abs(one.values[row.metric] - ideal) for one in ranked if row.metric in one.values]
    if row.value is None or len(distances) < MIN_MODELS:
        return "–"
    less = sum(distance > abs(row.value - ideal) for distance in distances)
    return f"{100 * less / len(distances):.0f} %"


def _short(parameters: int) -> str:
    for size, unit in ((10**9, "B"), (10**6, "M"), (10**3, "k")):
        if parameters >= size:
            return f"{parameters / size:.3g} {unit}"
    return str(parameters)
