"""Metrics of contexts: known answers, the definitions in loops, and what leaves them unchanged."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch import Tensor

from collapselab.core.catalogue import CONTEXT_METRICS
from collapselab.core.contexts import ContextGeometry, ContextMeasurement, ContextTable, Gap, context_metrics, exchanged
from collapselab.core.metrics import collapse_metrics
from collapselab.core.moments import ClassMoments

VOCABULARY = 12


def table_of(pairs: list[tuple[int, int]], vocabulary: int = VOCABULARY) -> tuple[ContextTable, Tensor]:
    """The table of tokens given as (context, next token), and the cell of each."""
    cells, place, counts = np.unique(np.array(pairs), axis=0, return_inverse=True, return_counts=True)
    context, token = (torch.from_numpy(column.copy()) for column in cells.T)
    return ContextTable(context, token, torch.from_numpy(counts), vocabulary), torch.from_numpy(place.reshape(-1))


def geometry_of(
    features: Tensor, pairs: list[tuple[int, int]], weight: Tensor | None = None, gap: Gap | None = None
) -> ContextGeometry:
    table, cells = table_of(pairs)
    moments = ClassMoments.empty(table.cells + 1, features.shape[1])
    moments.update(features, cells)
    logits = None if weight is None else lambda h, tokens: (h * weight[tokens].to(h)).sum(1)
    return ContextGeometry(moments, table, logits=logits, gap=gap)


def measured(
    features: Tensor, pairs: list[tuple[int, int]], weight: Tensor | None = None, gap: Gap | None = None
) -> dict[str, ContextMeasurement]:
    return context_metrics(geometry_of(features, pairs, weight, gap))


def value(found: dict[str, ContextMeasurement], metric: str) -> float:
    result = found[metric].value
    assert result is not None, found[metric].why
    return result


def random_case(seed: int = 0, *, contexts: int = 9, tokens: int = 400) -> tuple[Tensor, list[tuple[int, int]]]:
    generator = torch.Generator().manual_seed(seed)
    context = torch.randint(contexts, (tokens,), generator=generator)
    context[:contexts] = torch.arange(contexts)
    following = (context % 5 + torch.randint(4, (tokens,), generator=generator) ** 2) % VOCABULARY
    features = torch.randn(tokens, 5, dtype=torch.float64, generator=generator) + following[:, None] * 0.1
    features[:, 0] += context
    return features, list(zip(context.tolist(), following.tolist(), strict=True))


# The definitions in loops ----------------------------------------------------------------------------------------------


def scatter(rows: list[Tensor]) -> float:
    mean = sum(rows) / len(rows)
    return float(sum(((row - mean) ** 2).sum() for row in rows))


def grouped(features: Tensor, keys: list[object]) -> dict[object, list[Tensor]]:
    groups: dict[object, list[Tensor]] = {}
    for row, key in zip(features, keys, strict=True):
        groups.setdefault(key, []).append(row)
    return groups


def test_variances_are_those_of_the_definition_in_loops() -> None:
    features, pairs = random_case()
    found = measured(features, pairs)
    total = scatter(list(features))
    by_context = grouped(features, [context for context, _ in pairs])
    by_cell = grouped(features, list(pairs))
    by_token = grouped(features, [token for _, token in pairs])
    within = sum(map(scatter, by_context.values())) / total
    in_cells = sum(map(scatter, by_cell.values())) / total
    in_tokens = sum(map(scatter, by_token.values())) / total
    assert value(found, "context_within") == pytest.approx(within, rel=1e-12)
    assert value(found, "token_within_context") == pytest.approx(in_cells, rel=1e-12)
    assert value(found, "token_between_contexts") == pytest.approx(in_tokens - in_cells, rel=1e-10)
    assert found["context_within"].contexts == 9
    assert found["context_within"].tokens == 400


def test_the_split_of_each_token_is_that_of_the_loops_and_adds_up() -> None:
    features, pairs = random_case(3)
    split = geometry_of(features, pairs).split
    assert len(split.tokens) > 5
    for number, token in enumerate(split.tokens.tolist()):
        own = [row for row, (_, label) in zip(features, pairs, strict=True) if label == token]
        contexts = grouped(torch.stack(own), [context for context, label in pairs if label == token])
        within = sum(map(scatter, contexts.values()))
        assert float(split.within[number]) == pytest.approx(within, rel=1e-10, abs=1e-12)
        assert float(split.within[number] + split.between[number]) == pytest.approx(scatter(own), rel=1e-10, abs=1e-12)
        assert int(split.contexts[number]) == len(contexts)
        assert int(split.counts[number]) == len(own)


@pytest.mark.slow
def test_the_nulls_of_variances_are_the_means_over_permutations() -> None:
    features, pairs = random_case(tokens=60)
    found = measured(features, pairs)
    generator = torch.Generator().manual_seed(1)
    tokens = torch.tensor([token for _, token in pairs])
    contexts = torch.tensor([context for context, _ in pairs])
    withins, cells = [], []
    for _ in range(400):
        anywhere = contexts[torch.randperm(60, generator=generator)]
        withins.append(
            value(measured(features, list(zip(anywhere.tolist(), tokens.tolist(), strict=True))), "context_within")
        )
        among = contexts.clone()
        for token in tokens.unique():
            own = (tokens == token).nonzero().squeeze(1)
            among[own] = contexts[own[torch.randperm(len(own), generator=generator)]]
        moved = measured(features, list(zip(among.tolist(), tokens.tolist(), strict=True)))
        cells.append(value(moved, "token_within_context"))
    for metric, values in (("context_within", withins), ("token_within_context", cells)):
        error = float(np.std(values)) / math.sqrt(len(values))
        null = found[metric].null
        assert null is not None
        assert abs(null - float(np.mean(values))) < 4 * error, metric
    parts = [found[metric].null for metric in ("token_within_context", "token_between_contexts")]
    whole = value(found, "token_within_context") + value(found, "token_between_contexts")
    assert sum(part for part in parts if part is not None) == pytest.approx(whole)


def test_cosines_of_supports_are_those_of_the_definition_in_loops() -> None:
    pairs = [(j, c) for j in range(14) for c in [(0, 1), (0, 1), (2, 3), (4, 5, 6), (4, 5, 6), (1, 2, 3), (7,)][j % 7]]
    features = torch.randn(len(pairs), 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    geometry = geometry_of(features, pairs)
    supports = [frozenset(c for i, c in pairs if i == j) for j in range(14)]
    centred = geometry.means - geometry.means.mean(0)
    total, weight = 0.0, 0
    for size in (2, 3):
        same, other = [], []
        for i, j in itertools.combinations([j for j in range(14) if len(supports[j]) == size], 2):
            cosine = float(torch.cosine_similarity(centred[i], centred[j], dim=0))
            (same if supports[i] == supports[j] else other).append(cosine)
        assert same
        assert other
        total += len(same) * (float(np.mean(same)) - float(np.mean(other)))
        weight += len(same)
    found = context_metrics(geometry)["support_cosine"]
    assert found.value == pytest.approx(total / weight, rel=1e-10)
    assert found.contexts == 12, "those of a single successor take no part"


def test_the_regression_is_that_of_weighted_least_squares_with_an_intercept_for_each_context() -> None:
    features, pairs = random_case(5)
    weight = torch.randn(VOCABULARY, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(9))
    geometry = geometry_of(features, pairs, weight, Gap(10, 1.5, 30.0))
    table = geometry.table
    design, target, weights = [], [], []
    for context, token, count in zip(table.context.tolist(), table.token.tolist(), table.count.tolist(), strict=True):
        row = [0.0] * table.contexts + [math.log(count / int(table.uses[context]))]
        row[context] = 1.0
        design.append(row)
        target.append(float(geometry.means[context] @ weight[token]))
        weights.append(math.sqrt(count))
    x, y, w = (np.array(part) for part in (design, target, weights))
    slope = np.linalg.lstsq(x * w[:, None], y * w, rcond=None)[0][-1]
    found = context_metrics(geometry)
    assert value(found, "in_support_slope") == pytest.approx(slope, rel=1e-9)
    assert 0 <= value(found, "in_support_r2") <= 1
    assert value(found, "entropy_gap") == pytest.approx(0.15)
    assert found["entropy_gap"].null == pytest.approx(3.0)
    assert found["entropy_gap"].tokens == 10


def test_cka_is_that_of_centred_linear_kernels_with_the_square_root_of_the_target() -> None:
    features, pairs = random_case(6)
    geometry = geometry_of(features, pairs)
    table = geometry.table
    for metric, dense in (("context_cka", table.shares), ("support_cka", torch.ones(table.cells))):
        target = torch.zeros(table.contexts, VOCABULARY, dtype=torch.float64)
        target[table.context, table.token] = dense.double()
        u, s, _ = torch.linalg.svd(target - target.mean(1, keepdim=True), full_matrices=False)
        ideal, means = u * s.sqrt(), geometry.means
        x, y = means - means.mean(0), ideal - ideal.mean(0)
        cka = float((x.T @ y).square().sum() / ((x.T @ x).norm() * (y.T @ y).norm()))
        assert value(context_metrics(geometry), metric) == pytest.approx(cka, rel=1e-9)


# Known answers ---------------------------------------------------------------------------------------------------------


def sparse_chances(seed: int = 0) -> Tensor:
    """Next-token distributions of 24 contexts on 8 supports of three, three distributions on each."""
    generator = torch.Generator().manual_seed(seed)
    chances = torch.zeros(24, VOCABULARY, dtype=torch.float64)
    for support in range(8):
        members = torch.randperm(VOCABULARY, generator=generator)[:3]
        for copy in range(3):
            counts = torch.randint(2, 9, (3,), generator=generator).double()
            chances[3 * support + copy, members] = counts / counts.sum()
    return chances


def as_tokens(chances: Tensor, per_context: int = 5040) -> list[tuple[int, int]]:
    """Tokens with exactly these shares, as far as whole numbers allow."""
    counts = (chances * per_context).round().long()
    return [
        (context, token)
        for context, token in counts.nonzero().tolist()
        for _ in range(max(1, int(counts[context, token]) // 100))
    ]


def test_features_by_hand_from_the_singular_vectors_of_the_supports_are_ideal() -> None:
    chances = sparse_chances()
    pairs = as_tokens(chances)
    support = (chances > 0).double()
    u, s, v = torch.linalg.svd(support - support.mean(1, keepdim=True), full_matrices=False)
    means, weight = u * s.sqrt(), v.T * s.sqrt()
    features = torch.stack([means[context] for context, _ in pairs])
    found = measured(features, pairs, weight)
    assert value(found, "context_within") == pytest.approx(0, abs=1e-20)
    assert value(found, "token_within_context") == pytest.approx(0, abs=1e-20)
    assert value(found, "support_cka") == pytest.approx(1, abs=1e-9)
    centred = means - means.mean(0)
    others = [
        float(torch.cosine_similarity(centred[i], centred[j], dim=0))
        for i, j in itertools.combinations(range(24), 2)
        if not torch.equal(support[i], support[j])
    ]
    assert value(found, "support_cosine") == pytest.approx(1 - float(np.mean(others)), abs=1e-9)
    null = found["support_cosine"].null
    assert null is not None
    assert abs(null) < 0.3
    assert found["support_cka"].null is not None
    assert found["support_cka"].null < 0.7


def test_features_by_hand_from_the_centred_log_chances_are_ideal_in_slope_and_from_chances_in_cka() -> None:
    chances = sparse_chances(1)
    pairs = as_tokens(chances)
    table, _ = table_of(pairs)
    exact = torch.zeros_like(chances)
    exact[table.context, table.token] = table.shares
    logs = torch.where(exact > 0, exact.clamp(min=1e-300).log(), -30.0)
    u, s, v = torch.linalg.svd(logs, full_matrices=False)
    features = torch.stack([(u * s.sqrt())[context] for context, _ in pairs])
    found = measured(features, pairs, v.T * s.sqrt())
    assert value(found, "in_support_slope") == pytest.approx(1, abs=1e-9)
    assert value(found, "in_support_r2") == pytest.approx(1, abs=1e-9)
    u, s, _ = torch.linalg.svd(exact - exact.mean(1, keepdim=True), full_matrices=False)
    features = torch.stack([(u * s.sqrt())[context] for context, _ in pairs])
    assert value(measured(features, pairs), "context_cka") == pytest.approx(1, abs=1e-9)


def test_free_features_and_output_rows_by_descent_reach_what_theory_says() -> None:
    """Zhao et al.: gap → 0, slope → 1 within supports, and contexts with one support point the same way."""
    chances = sparse_chances(2)
    pairs = as_tokens(chances)
    table, _ = table_of(pairs)
    exact = torch.zeros_like(chances)
    exact[table.context, table.token] = table.shares
    generator = torch.Generator().manual_seed(0)
    h, w = (
        torch.nn.Parameter(0.1 * torch.randn(rows, 12, dtype=torch.float64, generator=generator))
        for rows in (24, VOCABULARY)
    )
    optimizer = torch.optim.Adam([h, w], lr=0.05)
    for step in range(3000):
        loss = -(exact * (h @ w.T).log_softmax(1)).sum(1).mean() + 1e-7 * (h.square().sum() + w.square().sum())
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.param_groups[0]["lr"] = 0.05 * (1 - step / 3000)
        optimizer.step()
    h, w = h.detach(), w.detach()
    scores = (h @ w.T).log_softmax(1)
    log_shares = table.shares.log()
    total = float((table.count * (log_shares - scores[table.context, table.token])).sum())
    features = torch.stack([h[context] for context, _ in pairs])
    found = measured(features, pairs, w, Gap(table.tokens, total, 0.0))
    assert 0 <= value(found, "entropy_gap") < 0.01
    assert value(found, "in_support_slope") == pytest.approx(1, abs=0.03)
    assert value(found, "in_support_r2") > 0.99
    centred = h - h.mean(0)
    directions = centred / centred.norm(dim=1, keepdim=True)
    cosines = directions @ directions.T
    support = torch.arange(24) // 3
    same = (support[:, None] == support) & ~torch.eye(24, dtype=torch.bool)
    assert float(cosines[same].mean()) > 0.97
    supports = table.supports
    different = supports[:, None] != supports
    expected = 1 - float(cosines[different].mean())
    assert value(found, "support_cosine") == pytest.approx(expected, abs=0.03)
    assert value(found, "support_cka") > 0.9, "1 in the limit of no regularisation, which takes ever larger norms"


def test_one_successor_a_context_reduces_to_ordinary_collapse() -> None:
    """Each context is then a part of a token: contexts that are the tokens themselves give within_share."""
    generator = torch.Generator().manual_seed(4)
    tokens = torch.randint(VOCABULARY, (500,), generator=generator)
    features = torch.randn(500, 6, dtype=torch.float64, generator=generator) + tokens[:, None]
    pairs = [(token, token) for token in tokens.tolist()]
    moments = ClassMoments.empty(VOCABULARY, 6, covariance=True)
    moments.update(features, tokens)
    share = collapse_metrics(moments, only=["within_share"])["within_share"].value
    found = measured(features, pairs)
    assert share is not None
    assert value(found, "context_within") == pytest.approx(share, rel=1e-12)
    assert value(found, "token_within_context") == pytest.approx(share, rel=1e-12)
    assert value(found, "token_between_contexts") == pytest.approx(0, abs=1e-20)
    assert found["support_cosine"].why is not None
    assert "several tokens" in found["support_cosine"].why


def test_shuffled_successors_give_the_null() -> None:
    """Contexts of equal use whose successors are exchanged at random: no metric of successors is above its null."""
    chances = sparse_chances(3)
    pairs = as_tokens(chances)
    table, _ = table_of(pairs)
    means = torch.randn(24, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    generator = torch.Generator().manual_seed(2)
    values: dict[str, list[float]] = {"support_cosine": [], "context_cka": [], "support_cka": []}
    nulls: dict[str, list[float]] = {metric: [] for metric in values}
    for _ in range(60):
        image = torch.randperm(24, generator=generator)
        moved = [(int(image[context]), token) for context, token in pairs]
        found = measured(torch.stack([means[context] for context, _ in moved]), moved)
        for metric in values:
            null = found[metric].null
            assert null is not None
            values[metric].append(value(found, metric))
            nulls[metric].append(null)
    for metric in values:
        difference = np.array(values[metric]) - np.array(nulls[metric])
        assert abs(difference.mean()) < 4 * difference.std() / math.sqrt(60), metric
    assert table.contexts == 24


# What leaves them unchanged, and what is refused -------------------------------------------------------------------------


def test_rotation_shift_and_scale_change_nothing() -> None:
    features, pairs = random_case(8)
    rotation = torch.linalg.qr(torch.randn(5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(3)))[0]
    one, other = measured(features, pairs), measured(1000 + 7 * features @ rotation, pairs)
    assert len(one) == 6
    for metric in one:
        assert other[metric].value == pytest.approx(one[metric].value, rel=1e-8), metric
        assert other[metric].null == pytest.approx(one[metric].null, rel=1e-8), metric


def test_features_far_from_the_origin_keep_their_scatter() -> None:
    features, pairs = random_case(9)
    near, far = measured(features, pairs), measured(features + 1e8, pairs)
    naive = (features + 1e8).square().sum(1).mean() - (features + 1e8).mean(0).square().sum()
    exact = features.var(0, unbiased=False).sum()
    assert abs(float(naive / exact) - 1) > 1e-3, "the naive formula fails here"
    for metric in ("context_within", "token_within_context", "token_between_contexts"):
        assert value(far, metric) == pytest.approx(value(near, metric), rel=1e-6)


def test_contexts_are_exchanged_within_powers_of_two_of_their_uses() -> None:
    uses = torch.tensor([10, 11, 12, 13, 100, 101, 5000, 14])
    image = exchanged(uses, seed=0)
    assert sorted(image.tolist()) == list(range(8))
    assert set(image[[0, 1, 2, 3, 7]].tolist()) == {0, 1, 2, 3, 7}
    assert set(image[[4, 5, 6]].tolist()) == {4, 5, 6}, "one alone is joined with those below"
    assert torch.equal(exchanged(uses, seed=0), image)


def test_moments_of_other_tokens_are_refused() -> None:
    features, pairs = random_case()
    table, cells = table_of(pairs)
    moments = ClassMoments.empty(table.cells, 5)
    moments.update(features[:-1], cells[:-1])
    with pytest.raises(ValueError, match="moments of 399 tokens, but their contexts have 400"):
        ContextGeometry(moments, table)


def test_what_cannot_be_computed_has_a_reason() -> None:
    pairs = [(0, 1), (0, 2), (1, 1), (1, 2)] * 3
    found = measured(torch.ones(12, 3, dtype=torch.float64), pairs, torch.zeros(VOCABULARY, 3, dtype=torch.float64))
    assert found.keys() == CONTEXT_METRICS.keys()
    for metric, result in found.items():
        assert result.value is None, metric
        assert result.why, metric
    assert "coincide" in str(found["context_cka"].why) or "at least 3" in str(found["context_cka"].why)


def test_more_contexts_than_a_kernel_holds_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    from collapselab.core import contexts

    features, pairs = random_case(4, contexts=30, tokens=900)
    whole = measured(features, pairs)["context_cka"]
    monkeypatch.setattr(contexts, "MAX_KERNEL", 20)
    part = measured(features, pairs)["context_cka"]
    assert (whole.contexts, part.contexts) == (30, 20)
    assert part.tokens < whole.tokens == 900
    assert part.value == pytest.approx(whole.value, abs=0.25)
