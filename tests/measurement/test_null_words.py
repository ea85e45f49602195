"""The sentence under the table says what the numbers are against their null, and no more."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from collapselab import measure
from collapselab.corpus.blocks import Corpus
from collapselab.measurement.null_words import null_words
from collapselab.measurement.show import shown
from collapselab.records.measurement import Result


def changed(result: Result, metric: str, value: float, null: float | None) -> Result:
    rows = [
        replace(row, value=value, null=null) if (row.metric, row.layer, row.bin) == (metric, "last", "all") else row
        for row in result.rows
    ]
    return Result(rows, result.facts, result.further)


@pytest.fixture(scope="module")
def result(model: torch.nn.Module, corpus: Corpus) -> Any:
    return measure(model, corpus, tokens=300, layers="all", quiet=True)


@pytest.mark.parametrize(
    ("metric", "value", "null", "words"),
    [
        ("cdnv_log", 1.0, 4.0, "NC1 nearer to collapse (cdnv_log 1, shuffled 4"),
        ("cdnv_log", 4.0, 1.0, "NC1 farther from collapse"),
        ("cdnv_log", 1.0, 1.03, "NC1 about the same"),
        ("cdnv_log", 0.0, 0.0, "NC1 about the same"),
        ("agreement", 0.9, 0.1, "NC4 nearer to collapse (agreement 0.9, shuffled 0.1"),
        ("agreement", 0.1, 0.9, "NC4 farther from collapse"),
    ],
)
def test_it_follows_from_value_null_and_direction(
    result: Result, metric: str, value: float, null: float, words: str
) -> None:
    said = null_words(changed(result, metric, value, null))
    assert said is not None
    assert words in said
    assert "no test" in said


def test_without_a_null_nothing_is_said(model: torch.nn.Module, corpus: Corpus, tmp_path: Path) -> None:
    plain = measure(model, corpus, tokens=300, null=False, quiet=True)
    assert null_words(plain) is None  # type: ignore[arg-type]


def test_the_table_has_the_sentence_and_the_nulls_of_layers(result: Result) -> None:
    printed = io.StringIO()
    Console(width=200, file=printed).print(shown(result))
    text = printed.getvalue()
    assert "Against shuffled labels: NC1" in text
    by_layer = text.split("by layer, training split")[1]
    assert by_layer.count("shuffled") > 5
    lines = by_layer.splitlines()
    following = lines[next(number for number, line in enumerate(lines) if line.split()[:1] == ["cdnv"]) + 1]
    nulls = [
        row.null for row in result.rows if row.metric == "cdnv" and row.split == "train" and row.layer in ("1", "2")
    ]
    assert [f"{null:.4g}" for null in nulls] == following.split()[1:]
