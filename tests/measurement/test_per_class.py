"""As many samples of every class: exactly so many, the same in every batch, and the numbers of those samples."""

from typing import Any

import numpy as np
import pytest
import torch

from collapselab import measure
from collapselab.core.batch import IGNORED
from collapselab.core.metrics import collapse_metrics
from collapselab.core.moments import ClassMoments
from collapselab.corpus.blocks import Corpus
from collapselab.errors import ConfigError
from collapselab.measurement.sample import PerClass, Sample
from collapselab.models.taps import features
from collapselab.records.measurement import Result
from collapselab.records.options import Options

N = 4


def sample_of(corpus: Corpus, *, seed: int = 0) -> Sample:
    return Sample(corpus.train, name="training split", length=corpus.block, blocks=len(corpus.train), seed=seed)


def kept_of(corpus: Corpus, *, seed: int = 0, null: bool = False) -> torch.Tensor:
    sample = sample_of(corpus, seed=seed)
    labels = sample.null_labels(0, len(sample)) if null else sample.labels(0, len(sample))
    return PerClass(sample, N, seed=seed, null=True).labels(0, len(sample), labels.reshape(-1), null=null)


@pytest.mark.parametrize("null", [False, True])
def test_every_class_has_exactly_so_many_samples_or_none(corpus: Corpus, null: bool) -> None:
    sample = sample_of(corpus)
    all_counts = sample.counts(corpus.vocabulary)
    kept = kept_of(corpus, null=null)
    counts = torch.bincount(kept[kept != IGNORED], minlength=corpus.vocabulary)
    assert set(counts.tolist()) == {0, N}
    assert torch.equal(counts == N, all_counts >= N)
    assert 20 < int((counts == N).sum()) < int((all_counts > 0).sum())


def test_the_draw_follows_from_the_seed_alone(corpus: Corpus) -> None:
    assert torch.equal(kept_of(corpus), kept_of(corpus))
    assert not torch.equal(kept_of(corpus), kept_of(corpus, seed=1))
    sample, whole = sample_of(corpus), kept_of(corpus)
    drawn = PerClass(sample, N, seed=0, null=False)
    parts = [
        drawn.labels(start, start + 1, sample.labels(start, start + 1).reshape(-1)) for start in range(len(sample))
    ]
    assert torch.equal(torch.cat(parts), whole)


def test_every_sample_of_a_class_is_as_likely_as_another(corpus: Corpus) -> None:
    labels = sample_of(corpus).labels(0, len(corpus.train)).reshape(-1)
    token = int(torch.bincount(labels).argmax())
    places = (labels == token).nonzero().squeeze(1)
    taken = np.zeros(len(places))
    for seed in range(200):
        taken += (kept_of(corpus, seed=seed)[places] != IGNORED).numpy()
    assert taken.sum() == 200 * N
    expected = 200 * N / len(places)
    assert taken.max() < expected + 6 * expected**0.5 + 3
    assert taken.reshape(2, -1).sum(1) == pytest.approx(100 * N, abs=120) if len(places) % 2 == 0 else True


def test_the_numbers_are_those_of_the_kept_samples(model: torch.nn.Module, corpus: Corpus) -> None:
    result = measure(model, corpus, per_class=N, layers="all", quiet=True)
    assert isinstance(result, Result)
    with torch.no_grad():
        hidden = torch.cat([features(model, block[None].long())[0, :-1] for block in corpus.train])
    moments = ClassMoments.empty(320, 12, covariance=True)
    moments.update(hidden, kept_of(corpus))
    head: Any = model.get_output_embeddings()  # type: ignore[operator]
    expected = collapse_metrics(moments, weight=head.weight, min_count=N)
    for name in ("cdnv", "scatter_ratio", "cosine_mean", "logdist_std", "duality_cos_mean"):
        row = result.row(name)
        assert row.value == pytest.approx(expected[name].value, rel=1e-9), name
        assert row.tokens == N * row.classes  # type: ignore[operator]
    below = result.row("cdnv", layer="1")
    assert below.tokens == N * below.classes  # type: ignore[operator]


def test_neither_batches_nor_the_option_s_absence_change_anything_else(model: torch.nn.Module, corpus: Corpus) -> None:
    one, many = (measure(model, corpus, per_class=N, batch=batch, quiet=True) for batch in (1, 7))
    for ours, theirs in zip(one.rows, many.rows, strict=True):  # type: ignore[union-attr]
        assert ours.value == pytest.approx(theirs.value, rel=1e-9) if theirs.value is not None else ours.value is None
    plain = measure(model, corpus, quiet=True)
    assert one.facts["splits"]["validation"]["loss"] == pytest.approx(plain.facts["splits"]["validation"]["loss"])  # type: ignore[union-attr]
    assert "per_class" not in Options().facts()
    assert Options(per_class=9).min_count == 9
    with pytest.raises(ConfigError, match="per_class must be"):
        Options(per_class=0)
    with pytest.raises(ConfigError, match="no class of the training split has that many samples"):
        measure(model, corpus, per_class=10**6, quiet=True)
