"""A function and a matrix in place of a model: the same numbers as the model that they come from."""

from typing import Any

import pytest
import torch
from torch import Tensor

from collapselab import measure
from collapselab.corpus.blocks import Corpus
from collapselab.errors import ConfigError, ModelError
from collapselab.models.taps import features
from collapselab.records.measurement import Result

FEW: dict[str, Any] = {"tokens": 300, "quiet": True}


def test_the_numbers_are_those_of_the_model_itself(model: torch.nn.Module, corpus: Corpus) -> None:
    head: Any = model.get_output_embeddings()  # type: ignore[operator]
    expected = measure(model, corpus, **FEW)
    result = measure(forward=lambda ids: features(model, ids), head=head.weight, corpus=corpus, **FEW)
    assert isinstance(result, Result)
    assert isinstance(expected, Result)
    compared = [(ours.value, theirs.value) for ours, theirs in zip(result.rows, expected.rows, strict=True)]
    assert compared == [(value, value) for _, value in compared]
    assert len(compared) > 50
    assert result.facts["splits"]["validation"]["loss"] == expected.facts["splits"]["validation"]["loss"]
    assert result.facts["width"] == 12
    assert "parameters" not in result.facts, "how many the function has, nobody knows"


def test_a_bias_counts(model: torch.nn.Module, corpus: Corpus) -> None:
    head: Any = model.get_output_embeddings()  # type: ignore[operator]
    bias = torch.linspace(-3, 3, len(head.weight)).double()
    function = lambda ids: features(model, ids)  # noqa: E731
    plain = measure(forward=function, head=head.weight, corpus=corpus, **FEW)
    biased = measure(forward=function, head=head.weight, bias=bias, corpus=corpus, **FEW)
    losses = [one.facts["splits"]["validation"]["loss"] for one in (plain, biased)]  # type: ignore[union-attr]
    assert losses[0] != losses[1]


def test_what_is_measured_is_known_again_by_what_it_computes(
    model: torch.nn.Module, corpus: Corpus, tmp_path: Any
) -> None:
    head: Any = model.get_output_embeddings()  # type: ignore[operator]
    calls = []

    def function(ids: Tensor) -> Tensor:
        calls.append(len(ids))
        return features(model, ids)

    options = {**FEW, "state": tmp_path / "state", "corpus": corpus, "head": head.weight}
    first = measure(forward=function, **options)
    ran = len(calls)
    second = measure(forward=function, **options)
    assert first.rows == second.rows  # type: ignore[union-attr]
    assert max(calls[ran:]) == 1, "the stored result answers: no batch of the corpus was run"
    assert max(calls[:ran]) > 1
    other = measure(forward=lambda ids: 2 * function(ids), **options)
    assert other.facts["model_hash"] != first.facts["model_hash"]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({}, ConfigError, "needs a model, or forward and head in its place; found neither"),
        ({"head": torch.ones(3, 2)}, ConfigError, "found head"),
        ({"model": "x", "forward": len, "head": torch.ones(3, 2)}, ConfigError, "found model, forward, head"),
        ({"forward": len, "head": torch.ones(3)}, ModelError, r"head: \(3,\) numbers"),
        (
            {"forward": len, "head": torch.nn.Linear(2, 3)},
            ModelError,
            "head: Linear; a .*Tensor is needed, such as a layer's weight",
        ),
        ({"forward": len, "head": [[1.0]]}, ModelError, "head: list; a torch.Tensor is needed"),
        (
            {"forward": len, "head": torch.ones(3, 2), "bias": torch.ones(2)},
            ModelError,
            r"bias: \(2,\) numbers for 3 rows",
        ),
        (
            {"forward": lambda ids: ids, "head": torch.ones(320, 12)},
            ModelError,
            r"forward: gives \(1, \d+\) for token ids",
        ),
        (
            {"forward": lambda ids: torch.ones(*ids.shape, 12), "head": torch.ones(12, 320)},
            ModelError,
            "the head, which is vocabulary × dim",
        ),
        (
            {"forward": lambda ids: torch.ones(*ids.shape, 320), "head": torch.ones(320, 12)},
            ModelError,
            "the features that enter the head",
        ),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, Any], error: Any, message: str, corpus: Corpus) -> None:
    with pytest.raises(error, match=message):
        measure(corpus=corpus, **given, **FEW)
