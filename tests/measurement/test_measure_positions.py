"""Which positions are samples: documents with padding, begin tokens, and the first positions of middle layers."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import Tensor, nn

import oracles
from collapselab.core.batch import IGNORED
from collapselab.core.catalogue import METRICS, Need
from collapselab.corpus.blocks import Corpus, Split
from collapselab.corpus.build import Recipe, build_corpus
from collapselab.corpus.sources import open_source
from collapselab.errors import ConfigError
from collapselab.measurement import measure_model, resume
from collapselab.measurement.collector import needing
from collapselab.measurement.collectors.moments import handful, share_of_largest, spread_of
from collapselab.measurement.measure import measure
from collapselab.measurement.sample import Permutation, Sample
from collapselab.measurement.show import shown
from collapselab.models.build import build_config, build_model
from collapselab.models.scores import split_scores
from collapselab.models.taps import output_layer
from collapselab.records.measurement import Result
from collapselab.records.options import Options

OF_COVARIANCE = {id for id, metric in METRICS.items() if Need.COVARIANCE in metric.needs}


def measured(model: nn.Module, corpus: Corpus, **options: Any) -> Result:
    result = measure(model, corpus, quiet=True, **options)
    assert isinstance(result, Result)
    return result


@torch.no_grad()
def naive(model: Any, split: Split, *, layer: int = -1, skip: int = 0) -> tuple[Any, Any]:
    """Features of every block's tokens alone, without padding, and their next tokens."""
    features, labels = [], []
    for number in range(len(split)):
        length = split.block if split.lengths is None else int(split.lengths[number])
        ids = split[number][:length]
        first = max(skip, split.first)
        features.append(model(ids[None], output_hidden_states=True).hidden_states[layer][0, first:-1])
        labels.append(ids[first + 1 :])
    return torch.cat(features).double().numpy(), torch.cat(labels).numpy()


def expected_of(model: Any, corpus: Corpus, *, min_count: int = 1, **positions: int) -> dict[str, float | None]:
    weight = model.get_output_embeddings().weight.detach().double().numpy()
    features, labels = naive(model, corpus.train, **positions)
    found: dict[str, float | None] = oracles.catalogue(
        features, labels, weight=weight, validation=naive(model, corpus.validation, **positions), min_count=min_count
    )
    return found


def assert_values(result: Result, expected: dict[str, float | None], names: Any, *, layer: str = "last") -> None:
    assert len(names) > 3
    for name in set(names) - {"alpha_req"}:  # which 12 dimensions are too few for
        assert result.row(name, layer=layer).value == pytest.approx(expected[name], rel=1e-6, abs=1e-12), name


# Documents -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_documents_are_measured_as_if_each_were_alone(model: nn.Module, documents: Corpus) -> None:
    # Classes seen once after the same beginning of two sentences coincide, but for the rounding of other lengths.
    result = measured(model, documents, batch=7, min_count=3)
    assert_values(result, expected_of(model, documents, min_count=3), needing(Need.MEANS) | needing(Need.DECISIONS))
    result = measured(model, documents, batch=7)
    facts = result.facts["splits"]["train"]
    assert facts["tokens"] == result.row("cdnv").tokens == documents.record.samples("train")
    assert facts["blocks_cut_off"] == 0


def test_the_loss_of_documents_is_that_of_their_own_tokens(model: Any, documents: Corpus) -> None:
    total, tokens, split = 0.0, 0, documents.validation
    assert split.lengths is not None
    with torch.no_grad():
        for number, length in enumerate(split.lengths):
            ids = split[number][: int(length)]
            logits = model(ids[None]).logits[0, :-1]
            total += float(nn.functional.cross_entropy(logits, ids[1:], reduction="sum"))
            tokens += len(ids) - 1
    scores = split_scores(model, split, head=output_layer(model), device=torch.device("cpu"))
    assert (scores.tokens, scores.loss) == (tokens, pytest.approx(total / tokens, rel=1e-9))
    loss = measured(model, documents).facts["splits"]["validation"]["loss"]
    assert loss == pytest.approx(total / tokens, rel=1e-6)


def test_what_stands_in_the_padding_changes_nothing(model: nn.Module, documents: Corpus) -> None:
    reference = measured(model, documents, layers="all")
    other = Corpus(documents.path)
    for split in other.splits.values():
        assert split.lengths is not None
        ids = np.array(split.ids)
        ids[np.arange(split.block) >= split.lengths[:, None]] = 7
        split._ids = ids
    assert [(row.value, row.null) for row in measured(model, other, layers="all").rows] == [
        (row.value, row.null) for row in reference.rows
    ]


@pytest.mark.parametrize("skip", [0, 3])
def test_the_null_of_documents_is_one_permutation_of_all_labels(documents: Corpus, skip: int) -> None:
    sample = Sample(documents.train, name="", length=20, blocks=40, seed=3, skip=skip)
    labels, null = sample.labels(0, 40), sample.null_labels(0, 40)
    assert torch.equal(labels == IGNORED, null == IGNORED)
    assert (labels == IGNORED).any()
    assert int((labels != IGNORED).sum()) == sample.tokens
    assert torch.equal(labels.flatten().sort().values, null.flatten().sort().values)
    assert torch.equal(torch.cat([sample.null_labels(i, i + 8) for i in range(0, 40, 8)]), null)
    assert (labels != null).float().mean() > 0.3
    assert not torch.equal(
        null, Sample(documents.train, name="", length=20, blocks=40, seed=4, skip=skip).null_labels(0, 40)
    )


@pytest.mark.parametrize("size", [1, 2, 3, 5, 16, 17, 1000, 4097])
def test_a_permutation_has_every_number_once(size: int) -> None:
    found = Permutation(size, seed=5)(np.arange(size))
    assert sorted(found.tolist()) == list(range(size))
    assert size < 10 or (found != np.arange(size)).mean() > 0.9
    assert np.array_equal(Permutation(size, seed=5)(np.arange(size)[::-1]), found[::-1])
    if size >= 1000:
        assert abs(np.corrcoef(found, np.arange(size))[0, 1]) < 0.1
        assert (found != Permutation(size, seed=6)(np.arange(size))).mean() > 0.9


def test_a_sample_of_documents_has_about_the_tokens_asked_for(model: nn.Module, documents: Corpus) -> None:
    tokens = measured(model, documents, tokens=500, null=False).facts["splits"]["train"]["tokens"]
    assert 350 < tokens < 650


def test_interrupted_on_documents_it_ends_with_the_same_bits(
    model: nn.Module, documents: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = measured(model, documents, layers="all", batch=8)
    monkeypatch.setattr(resume, "SAVE_SECONDS", 0.0)
    monkeypatch.setattr(resume, "SAVE_FACTOR", 0)
    real, ran = measure_model.layer_features, 0

    def stop(*args: Any, **inputs: Any) -> Any:
        nonlocal ran
        ran += 1
        if ran == 4:
            raise KeyboardInterrupt
        return real(*args, **inputs)

    with monkeypatch.context() as patch:
        patch.setattr(measure_model, "layer_features", stop)
        with pytest.raises(KeyboardInterrupt):
            measured(model, documents, layers="all", batch=8, state=tmp_path)
    again = measured(model, documents, layers="all", batch=8, state=tmp_path)
    assert again.rows == whole.rows
    assert again.facts["warnings"] == whole.facts["warnings"]


# Begin tokens --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_position_of_a_begin_token_is_not_measured(model: Any, corpus: Corpus, tmp_path: Path) -> None:
    recipe = Recipe(tokenizer=str(corpus.path / "tokenizer"), block=32, begin="block")
    begun = build_corpus(open_source(["storyworld:stories=12,validation=4"]), tmp_path / "c", recipe)
    assert begun.train.first == 1
    result = measured(model, begun)
    assert_values(result, expected_of(model, begun), needing(Need.MEANS) | needing(Need.DECISIONS))
    assert result.row("cdnv").tokens == len(begun.train) * 30
    ids = torch.from_numpy(begun.validation.ids.astype(np.int64))
    with torch.no_grad():
        logits = model(ids).logits[:, 1:-1].reshape(-1, 320)
    loss = float(nn.functional.cross_entropy(logits, ids[:, 2:].reshape(-1)))
    assert result.facts["splits"]["validation"]["loss"] == pytest.approx(loss, rel=1e-6)
    sample = Sample(begun.train, name="", length=32, blocks=len(begun.train), seed=0)
    null = sample.null_labels(0, len(sample))
    assert torch.equal(torch.bincount(null.flatten(), minlength=320), sample.counts(320))


# The first positions of middle layers --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("skip", [1, 5])
def test_layers_below_the_last_leave_out_the_first_positions(model: nn.Module, corpus: Corpus, skip: int) -> None:
    result = measured(model, corpus, layers="all", skip_positions=skip, batch=9)
    assert_values(
        result,
        expected_of(model, corpus, layer=1, skip=skip),
        needing(Need.MEANS) - OF_COVARIANCE,
        layer="1",
    )
    # Hidden states of layer 1 decide by their centres, the output layer by the last ones: oracles of their own.
    nearest, head, labels = decided(model, corpus, skip)
    agreement = result.row("agreement", layer="1")
    assert agreement.value == pytest.approx(float((nearest == head).mean()), abs=1e-12)
    assert result.row("model_accuracy", layer="1").value == pytest.approx(float((head == labels).mean()), abs=1e-12)
    assert agreement.tokens == len(labels)
    assert result.row("cdnv", layer="1").tokens == len(corpus.train) * (31 - skip)
    assert result.facts["splits"]["train"]["tokens_below"] == len(corpus.train) * (31 - skip)
    last = measured(model, corpus, batch=9)
    assert [row for row in result.rows if row.layer == "last"] == last.rows


def test_what_is_left_out_is_said_beside_the_values(model: nn.Module, corpus: Corpus) -> None:
    def printed(**options: Any) -> str:
        console = Console(width=200, file=io.StringIO())
        console.print(shown(measured(model, corpus, layers="all", tokens=300, **options)))
        text = console.file.getvalue()  # type: ignore[attr-defined]
        assert isinstance(text, str)
        return text

    assert "by layer, training split, without the first position of every block" in printed()
    assert "without the first 3 positions of every block" in printed(skip_positions=3)
    assert "without the first" not in printed(skip_positions=0)
    sinks = measured(Sinks(1000.0), corpus, layers="all", tokens=300, skip_positions=0)
    console = Console(width=300, file=io.StringIO())
    console.print(shown(sinks))
    assert "! layer 1: 10 of 310 features carry 100% of the squares" in console.file.getvalue()  # type: ignore[attr-defined]


def decided(model: Any, corpus: Corpus, skip: int) -> tuple[Any, Any, Any]:
    """Choices of layer 1's centres and of the output layer, by loops, among classes that layer 1 has; and labels."""
    features, labels = naive(model, corpus.train, layer=1, skip=skip)
    classes = np.unique(labels)
    centres = np.stack([features[labels == one].mean(0) for one in classes])
    below, right = naive(model, corpus.validation, layer=1, skip=skip)
    last, _ = naive(model, corpus.validation, skip=skip)
    judged = np.isin(right, classes)
    distances = ((below[judged][:, None] - centres[None]) ** 2).sum(2)
    weight = model.get_output_embeddings().weight.detach().double().numpy()
    return classes[distances.argmin(1)], classes[(last[judged] @ weight[classes].T).argmax(1)], right[judged]


def test_a_class_that_only_the_first_position_has_is_no_candidate_below(model: nn.Module, corpus: Corpus) -> None:
    last, below = (Sample(corpus.train, name="", length=32, blocks=len(corpus.train), seed=0, skip=n) for n in (0, 25))
    gone = (last.counts(320) > 0) & (below.counts(320) == 0)
    assert gone.any(), "no class tells the two apart"
    result = measured(model, corpus, layers="all", skip_positions=25)
    nearest, head, _ = decided(model, corpus, 25)
    assert result.row("agreement", layer="1").value == pytest.approx(float((nearest == head).mean()), abs=1e-12)
    assert result.row("cdnv", layer="1").classes == int((below.counts(320) > 0).sum())


def test_skipping_all_positions_is_refused(model: nn.Module, corpus: Corpus) -> None:
    with pytest.raises(ConfigError, match="skip_positions is 31, but no block of the training split has a sample"):
        measured(model, corpus, layers="all", skip_positions=31)
    with pytest.raises(ConfigError, match="skip_positions must be"):
        Options(skip_positions=-1)


def test_a_measurement_that_left_nothing_out_is_the_same_as_before() -> None:
    assert "skip_positions" not in Options().facts()
    assert "skip_positions" not in Options(layers="all", skip_positions=0).facts()
    assert Options(layers="all").facts()["skip_positions"] == 1


class Sinks(nn.Module):
    """A model whose first position is far from all others in its only block."""

    def __init__(self, size: float) -> None:
        super().__init__()
        config = build_config("gpt-neo", width=12, depth=1, vocabulary=320, positions=32)
        self.inner: Any = build_model(config, seed=0).eval().double()
        self.config, self.size = self.inner.config, size
        self.inner.transformer.h[0].register_forward_hook(self._sink)

    def _sink(self, _: nn.Module, __: Any, output: Any) -> Any:
        states = output if isinstance(output, Tensor) else output[0]
        states[:, 0, 0] += self.size
        return output

    def get_output_embeddings(self) -> nn.Module:
        found: nn.Module = self.inner.get_output_embeddings()
        return found

    def get_input_embeddings(self) -> nn.Module:
        found: nn.Module = self.inner.get_input_embeddings()
        return found

    def get_decoder(self) -> nn.Module:
        found: nn.Module = self.inner.transformer
        return found

    def forward(self, input_ids: Tensor, **inputs: Any) -> Any:
        return self.inner(input_ids=input_ids, **inputs)


def test_a_handful_of_features_that_rules_a_layer_is_a_warning(corpus: Corpus) -> None:
    sinks = Sinks(1000.0)
    few = {"layers": "all", "tokens": 300}  # ten blocks, ten sinks

    def ruled(model: nn.Module, **options: Any) -> list[str]:
        warnings = measured(model, corpus, **few, **options).facts["warnings"]
        return [one["text"] for one in warnings if one["code"] == "few_features_rule"]

    (text,) = ruled(sinks, skip_positions=0)
    assert text.startswith("layer 1: 10 of 310 features carry 100% of the squares")
    assert ruled(sinks) == []
    assert ruled(Sinks(0.0), skip_positions=0) == []


def test_the_spread_is_that_of_the_definition_and_parts_add_up() -> None:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(3000, 8, generator=generator) + 100
    features[[5, 700, 2900]] += 300
    squares = (features.double() - features.double().mean(0)).square().sum(1)
    ordered = squares.sort(descending=True).values
    assert handful(3000) == 10
    counts, sums = spread_of(squares)
    share = share_of_largest(counts, sums, 10)
    assert share == pytest.approx(float(ordered[:10].sum() / squares.sum()), rel=0.02)
    parts = [spread_of(some) for some in torch.split(squares, 1000)]
    assert torch.equal(sum(part[0] for part in parts), counts)  # type: ignore[arg-type]
    assert share_of_largest(counts, sum(part[1] for part in parts), 10) == pytest.approx(share, rel=1e-12)  # type: ignore[arg-type]
    assert share_of_largest(*spread_of(torch.zeros(50, dtype=torch.float64)), 10) == 0
    counts, sums = spread_of(torch.tensor([1.0, torch.nan, torch.inf, 2.0], dtype=torch.float64))
    assert counts.sum() == 4
    assert share_of_largest(counts, sums, 10) == 0


def test_the_values_of_thirty_layers_are_whole_in_a_narrow_terminal(model: nn.Module, corpus: Corpus) -> None:
    result = measured(model, corpus, layers="all", tokens=300)
    first = [row for row in result.rows if row.layer == "1" and row.split == "train"]
    deep = [replace(row, layer=str(layer), value=-1 / 3) for layer in range(2, 31) for row in first if row.value]
    console = Console(width=80, file=io.StringIO())
    console.print(shown(replace(result, rows=[*result.rows, *deep])))
    by_layer = console.file.getvalue().split("by layer")[1]  # type: ignore[attr-defined]
    assert by_layer.count("-0.3333") >= 29 * len({row.metric for row in deep})
    assert "…" not in by_layer.split("\n!")[0]
