"""The loss by class centres, from the scores that the nearest of them is chosen with."""

from dataclasses import astuple

import pytest
import torch
from torch import Tensor

from collapselab import ClassMoments
from collapselab.core import decisions
from collapselab.core.centre_loss import CentreScores
from collapselab.core.decisions import nearest_centre

CLASSES, DIM, TOKENS = 300, 12, 700


def world(size: float = 1.0, *, dtype: torch.dtype = torch.float32) -> tuple[ClassMoments, Tensor, Tensor]:
    """Moments of training tokens, and validation features of this size with their labels, far from the origin."""
    generator = torch.Generator().manual_seed(0)
    centres = 5 + torch.randn(CLASSES, DIM, generator=generator)
    moments = ClassMoments.empty(CLASSES, DIM)
    parts = []
    for tokens in (900, TOKENS):
        labels = (CLASSES * torch.rand(tokens, generator=generator) ** 2).long()
        features = centres[labels] + 0.5 * torch.randn(tokens, DIM, generator=generator)
        parts.append((size * features.to(dtype), labels))
    moments.update(*parts[0])
    return moments, *parts[1]


def by_definition(moments: ClassMoments, features: Tensor, labels: Tensor, tau: float) -> tuple[Tensor, Tensor]:
    """-log p of each token whose class has a centre, and the places of these tokens."""
    kept = (moments.counts > 0).nonzero().squeeze(1)
    distances = (features.double()[:, None] - moments.means[kept]).square().sum(2)
    priors = moments.counts[kept].double() / moments.counts.sum()
    chances = (priors.log() - tau * distances / 2).log_softmax(1)
    has_centre = torch.isin(labels, kept).nonzero().squeeze(1)
    places = torch.searchsorted(kept, labels[has_centre])
    return -chances[has_centre, places], has_centre


@pytest.mark.parametrize("tile", [2048, 64, 7])
@pytest.mark.parametrize(("dtype", "rel"), [(torch.float32, 2e-6), (torch.float64, 1e-12)])
@pytest.mark.parametrize("size", [1.0, 1e-9, 1e9])
def test_the_loss_is_that_of_the_definition_however_scores_are_cut(
    tile: int, dtype: torch.dtype, rel: float, size: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decisions, "MIN_TOKENS", 100)
    monkeypatch.setattr(decisions, "SCORES_BYTES", 1)
    moments, features, labels = world(size, dtype=dtype)
    kept = (moments.counts > 0).nonzero().squeeze(1)
    scores = CentreScores(nearest_centre(moments, kept, tile=tile), moments.counts, dtype=dtype)
    tau = scores.fit(features, labels)
    expected, has_centre = by_definition(moments, features, labels, tau)
    assert 0 < len(has_centre) < TOKENS
    found = scores.loss(features, labels, torch.arange(TOKENS))
    assert found.centres == pytest.approx(float(expected.sum()), rel=rel)
    assert (found.tokens, found.left_out) == (len(has_centre), TOKENS - len(has_centre))
    assert found.model == float(has_centre.sum())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_choices_are_the_same_whether_their_scores_are_watched_or_not(dtype: torch.dtype) -> None:
    moments, features, labels = world(dtype=dtype)
    kept = (moments.counts > 0).nonzero().squeeze(1)
    nearest = nearest_centre(moments, kept, tile=64)
    scores = CentreScores(nearest, moments.counts, dtype=dtype)
    scores.fit(features, labels)
    watched = nearest.choices(features, observe=scores.watch(labels).see)
    assert torch.equal(watched, nearest.choices(features))
    distances = (features.double()[:, None] - moments.means[kept]).square().sum(2)
    assert torch.equal(watched, kept[distances.argmin(1)])


def test_tokens_may_be_watched_that_are_not_scored() -> None:
    moments, features, labels = world()
    scores = CentreScores(nearest_centre(moments, (moments.counts > 0).nonzero().squeeze(1)), moments.counts)
    scores.fit(features, labels)
    padded = labels.clone()
    padded[::3] = -100
    features[::3] = 1e30  # what is no sample may be anything
    scored = (padded >= 0).nonzero().squeeze(1)
    watch = scores.watch(padded)
    scores.nearest.choices(features, observe=watch.see)
    alone = scores.loss(features[scored], labels[scored], torch.arange(len(scored)))
    assert watch.loss(torch.arange(len(scored)), scored).tolist() == pytest.approx(astuple(alone))
