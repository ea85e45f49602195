"""Curvature while a model is measured: which tokens take part, and that nothing else matters."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import oracles
from collapselab.core.batch import IGNORED
from collapselab.corpus.blocks import Corpus
from collapselab.measurement.collectors import curvature
from collapselab.measurement.collectors.curvature import Curvature, step_for
from collapselab.measurement.measure import measure
from collapselab.measurement.sample import FEW_CURVED, MOST_CURVED, RUN, curved_tokens
from collapselab.models.taps import features, output_layer
from collapselab.records.measurement import Result

OPTIONS: dict[str, Any] = {"tokens": 200, "quiet": True}


def measured(model: nn.Module, corpus: Corpus, **options: Any) -> Result:
    result = measure(model, corpus, **OPTIONS | options)
    assert isinstance(result, Result)
    return result


@pytest.mark.parametrize("split", ["train", "validation"])
def test_a_small_sample_takes_part_whole(model: nn.Module, corpus: Corpus, split: str) -> None:
    result, head = measured(model, corpus, tokens=4000), output_layer(model)
    chosen = np.sort(corpus.splits[split].order(seed=0)[: -(-4000 // 31)])
    blocks = corpus.splits[split].read(chosen)
    assert 0 < blocks.ids[:, 1:].numel() <= curved_tokens(*head.weight.shape, sample=4000)
    with torch.no_grad():
        entering = features(model, blocks.ids)[:, :-1].reshape(-1, head.weight.shape[1])
    few = entering[:: max(1, len(entering) // 40)]
    truth = oracles.curvature(few.numpy(), head.weight.detach().numpy(), torch.zeros(len(head.weight)).numpy())
    row = result.row("curvature", split=split)
    assert row.tokens == len(entering)
    assert row.value == pytest.approx(truth["curvature"], rel=0.2), "of 40 tokens"
    assert row.null == row.value
    assert (row.low, row.why) == (None, None)


def test_every_token_counts_once(model: nn.Module, corpus: Corpus) -> None:
    result, head = measured(model, corpus), output_layer(model)
    row = result.row("curvature_relative")
    blocks = -(-200 // 31)
    assert row.tokens == blocks * 31
    seen: list[torch.Tensor] = []
    with pytest.MonkeyPatch.context() as patch:
        original = curvature.OutputCurvature.terms
        patch.setattr(
            curvature.OutputCurvature, "terms", lambda self, some: (seen.append(some.detach()), original(self, some))[1]
        )
        measured(model, corpus)
    everything = torch.cat([some for some in seen if len(some)][:blocks]).numpy()
    truth = oracles.curvature(everything, head.weight.detach().numpy(), torch.zeros(len(head.weight)).numpy())
    assert row.value == pytest.approx(truth["curvature_relative"], rel=1e-9)
    assert result.row("curvature").value == pytest.approx(truth["curvature"], rel=1e-9)


@pytest.mark.parametrize("batch", [1, 3, 7])
def test_batches_do_not_matter(model: nn.Module, corpus: Corpus, batch: int) -> None:
    one, other = measured(model, corpus, batch=2), measured(model, corpus, batch=batch)
    assert other.row("curvature").value == pytest.approx(one.row("curvature").value, rel=1e-12)
    assert other.row("dispersion").value == pytest.approx(one.row("dispersion").value, rel=1e-12)


def test_padding_takes_no_part(model: nn.Module, documents: Corpus) -> None:
    row = measured(model, documents, tokens=400).row("curvature")
    sample = [labels[labels != IGNORED] for labels in documents.train.read(range(len(documents.train))).labels]
    assert row.tokens is not None
    assert 0 < row.tokens < len(sample) * 31


@pytest.mark.slow
def test_intervals_are_those_of_resampled_tokens(model: nn.Module, corpus: Corpus) -> None:
    row = measured(model, corpus, tokens=1200, bootstrap=20).row("curvature")
    assert row.low is not None
    assert row.high is not None
    assert row.value is not None
    assert row.low < row.value < row.high


@pytest.mark.parametrize("blocks", [1, 30, 64, 1000, 12345])
@pytest.mark.parametrize("width", [1, 31, 64, 127, 2047])
def test_chosen_runs_are_bounded_and_cover_all_positions(blocks: int, width: int) -> None:
    runs = math.ceil(width / RUN)
    step = step_for(blocks * width, runs, 1000)
    chosen = range(0, blocks * runs, step)
    lengths = [min(RUN, width - RUN * (number % runs)) for number in chosen]
    assert 1 <= sum(lengths) <= 1000 + RUN * runs
    assert step == 1 or blocks * width > 1000, "a small sample takes part whole"
    if len(chosen) >= runs:
        assert {number % runs for number in chosen} == set(range(runs))


def test_a_large_output_layer_has_fewer_tokens() -> None:
    layers = ((1024, 64), (20000, 256), (50257, 256), (50257, 768), (262144, 2304))
    small = [curved_tokens(*layer, sample=100_000) for layer in layers]
    large = [curved_tokens(*layer, sample=2_000_000) for layer in layers]
    assert small == [MOST_CURVED, 419, FEW_CURVED, FEW_CURVED, FEW_CURVED]
    assert large == [MOST_CURVED, 3200, 1273, 424, FEW_CURVED]


def test_which_tokens_are_chosen_does_not_depend_on_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 130 positions have three runs; every fifth run is taken."""
    chosen: list[float] = []

    class Layer:
        def terms(self, some: torch.Tensor) -> torch.Tensor:
            chosen.extend(some[:, 0].tolist())
            return torch.zeros(3)

    runs = Curvature.__new__(Curvature)
    runs.runs, runs.step, runs.layer = 3, 5, Layer()  # type: ignore[assignment]
    runs.sums, runs.device = {}, torch.device("cpu")
    tokens = torch.arange(8 * 130.0)[:, None]
    labels = torch.zeros(8, 130, dtype=torch.int64)
    labels[3, 4:] = IGNORED
    for cut in ([8], [3, 5], [1] * 8):
        chosen.clear()
        start = 0
        for size in cut:
            now = slice(start, start + size)
            last = SimpleNamespace(own=labels[now])
            batch: Any = SimpleNamespace(labels=SimpleNamespace(last=last), blocks=range(start, start + size))
            runs.update("last", tokens[start * 130 : (start + size) * 130], batch)
            start += size
        taken = list(range(0, 24, 5))
        expected = [b * 130 + p for b, r in (divmod(n, 3) for n in taken) for p in range(64 * r, min(64 * r + 64, 130))]
        assert chosen == [one for one in expected if labels.reshape(-1)[one] != IGNORED]
    assert chosen
