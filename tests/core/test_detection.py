"""Scores of single tokens, and how well a score separates: known answers, loops, and scikit-learn."""

import math

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from collapselab.core.decisions import nearest_centre
from collapselab.core.detection import ALPHA, EXPLAINED, SCORES, Ranking, TokenScorer
from collapselab.core.moments import ClassMoments


@pytest.mark.parametrize("digits", [1, 12], ids=["ties", "no ties"])
@pytest.mark.parametrize("weighted", [False, True])
def test_separation_equals_that_of_scikit_learn(digits: int, weighted: bool) -> None:
    draw = np.random.default_rng(0)
    positives, negatives = draw.normal(0.7, 1, 300).round(digits), draw.normal(0, 1, 500).round(digits)
    labels, scores = np.repeat([1, 0], [300, 500]), np.concatenate([positives, negatives])
    weights = draw.integers(0, 4, 800).astype(float) if weighted else np.ones(800)
    false, true, _ = roc_curve(labels, scores, sample_weight=weights, drop_intermediate=False)
    found = Ranking(positives, negatives).separation(weights if weighted else None)
    assert found.auroc == pytest.approx(roc_auc_score(labels, scores, sample_weight=weights), abs=1e-12)
    assert found.aupr == pytest.approx(average_precision_score(labels, scores, sample_weight=weights), abs=1e-12)
    assert found.fpr95 == pytest.approx(false[np.argmax(true >= 0.95)], abs=1e-12)


def test_separation_of_known_rankings() -> None:
    low, high = np.arange(5.0), np.arange(10.0, 15.0)
    assert Ranking(high, low).separation() == (1.0, 1.0, 0.0)
    assert Ranking(low, high).separation()[::2] == (0.0, 1.0)
    assert Ranking(np.zeros(4), np.zeros(12)).separation() == (0.5, 0.25, 1.0)


def test_scores_equal_their_definition_in_loops() -> None:
    generator = torch.Generator().manual_seed(1)
    features = (
        torch.randn(400, 6, generator=generator, dtype=torch.float64) * torch.tensor([5.0, 3, 1, 1, 0.2, 0.1]) + 3
    )
    labels = torch.randint(0, 7, (400,), generator=generator)
    weight = torch.randn(9, 6, generator=generator, dtype=torch.float64)
    moments = ClassMoments.empty(9, 6, covariance=True)
    moments.update(features, labels)
    mean = features.mean(0)
    covariance = (features - mean).T @ (features - mean) / len(features)
    kept = (moments.counts > 0).nonzero().squeeze(1)
    scorer = TokenScorer.of(mean, covariance, nearest_centre(moments, kept))
    tokens = torch.randn(20, 6, generator=generator, dtype=torch.float64) * 4
    found = scorer.scores(tokens, tokens @ weight.T, weight)

    values, vectors = np.linalg.eigh(covariance.numpy())
    leading = 1
    while sum(sorted(values)[::-1][:leading]) < EXPLAINED * sum(values):
        leading += 1
    for number, h in enumerate(tokens.numpy()):
        z = [float(row @ h) for row in weight.numpy()]
        energy = math.log(sum(math.exp(value) for value in z))
        centred = h - mean.numpy()
        length = math.sqrt(sum(value**2 for value in centred))
        means = [features[labels == c].mean(0).numpy() for c in kept.tolist()]
        row = weight.numpy()[z.index(max(z))]
        projected = [sum(vectors[i, -1 - k] * centred[i] for i in range(6)) for k in range(leading)]
        expected = {
            "energy": energy,
            "max_probability": math.exp(max(z) - energy),
            "nearest_mean": -min(math.dist(h, mu) for mu in means),
            "nci": sum(row * centred) / length + ALPHA * sum(abs(h)),
            "neco": math.sqrt(sum(value**2 for value in projected)) / length,
        }
        for place, name in enumerate(SCORES):
            assert float(found[place, number]) == pytest.approx(expected[name], rel=1e-6, abs=1e-6), name


def test_features_in_the_leading_directions_have_neco_1() -> None:
    mean, covariance = torch.zeros(3).double(), torch.diag(torch.tensor([8.0, 1.5, 0.5])).double()
    moments = ClassMoments.empty(2, 3)
    moments.update(torch.eye(3)[:2], torch.arange(2))
    scorer = TokenScorer.of(mean, covariance, nearest_centre(moments, torch.arange(2)))
    assert scorer.components.shape == (3, 2)  # 80 % and 95 % of the variance
    weight = torch.eye(3)[:2]
    scores = scorer.scores(torch.eye(3), torch.eye(3) @ weight.T, weight)
    assert scores[4].tolist() == pytest.approx([1.0, 1.0, 0.0])
    assert scores[2].tolist() == pytest.approx([0.0, 0.0, -math.sqrt(2)])
