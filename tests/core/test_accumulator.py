"""Labels are counted once for the moments of several layers, and never for moments that have other counts."""

from collections import Counter
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from collapselab import ClassMoments
from collapselab.core import moments as module
from collapselab.core.accumulator import Arrivals
from collapselab.core.threads import threads


def labels_of(classes: int, tokens: int, seed: int = 0) -> Tensor:
    return torch.randint(0, classes, (tokens,), generator=torch.Generator().manual_seed(seed))


def by_counting(batches: list[Tensor]) -> tuple[Counter[int], set[int]]:
    """Counts after all batches, and the classes that reached 2, 8, 32 … with the last of them, one label at a time."""
    counts: Counter[int] = Counter()
    due: set[int] = set()
    for batch in batches:
        due = set()
        for label in batch.tolist():
            counts[label] += 1
            if counts[label] in {2 * 4**power for power in range(20)}:
                due.add(label)
    return counts, due


def test_counts_and_the_classes_due_are_those_of_counting_one_by_one() -> None:
    batches = [labels_of(50, 1 + 37 * turn, seed=turn) for turn in range(12)]
    counts = torch.zeros(50, dtype=torch.int64)
    for turn, batch in enumerate(batches):
        before = counts.clone()
        arrived = Arrivals().count(counts, batch, (0, 0))
        expected, due = by_counting(batches[: turn + 1])
        assert counts.tolist() == [expected[label] for label in range(50)]
        assert arrived.due.tolist() == sorted(due)
        assert arrived.due_tokens.tolist() == [int((batch == label).sum()) for label in sorted(due)]
        assert arrived.before.tolist() == before[batch].tolist()
        assert arrived.after.tolist() == counts[batch].tolist()


def test_what_is_known_of_a_place_is_used_again_for_equal_counts_only() -> None:
    labels, arrivals = labels_of(20, 100), Arrivals()
    tables = [torch.zeros(20, dtype=torch.int64) for _ in range(3)]
    tables[2][labels[0]] = 5
    first, again, other = (arrivals.count(table, labels, (0, 0)) for table in tables)
    assert again is first
    assert other is not first
    assert torch.equal(tables[0], tables[1])
    assert torch.equal(tables[2], tables[0] + torch.nn.functional.one_hot(labels[0], 20) * 5)


def test_what_is_known_of_a_place_is_not_used_for_other_labels() -> None:
    arrivals, counts = Arrivals(), torch.zeros(20, dtype=torch.int64)
    shorter, longer = labels_of(20, 100), labels_of(20, 101, seed=1)
    arrivals.count(counts.clone(), shorter, (0, 0))
    for labels in (longer, shorter.flip(0), shorter):
        mine = counts.clone()
        arrivals.count(mine, labels, (0, 0))
        assert torch.equal(mine, labels.bincount(minlength=20))


@pytest.mark.parametrize("tight", [False, True], ids=["wide classes", "points"])
def test_layers_that_share_the_arrivals_have_the_bits_of_layers_alone(tight: bool) -> None:
    classes, dim, layers = 30, 6, 4
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(layers, classes, dim, generator=generator)
    shared, alone = ([[ClassMoments.empty(classes, dim) for _ in range(2)] for _ in range(layers)] for _ in range(2))
    shared[3][0].update(centres[3], torch.arange(classes))  # has seen more than the others
    alone[3][0].update(centres[3], torch.arange(classes))
    for turn in range(6):
        labels, null = labels_of(classes, 500, seed=turn), labels_of(classes, 500, seed=100 + turn)
        arrivals = Arrivals()
        for layer in range(layers):
            noise = torch.randn(500, dim, generator=generator)
            features = centres[layer][labels] + (0 if tight and layer % 2 else noise)
            module.update_all(features, list(zip(shared[layer], (labels, null), strict=True)), arrivals)
            for moments, own in zip(alone[layer], (labels, null), strict=True):
                moments.update(features, own)
    for pair, other in zip(shared, alone, strict=True):
        for one, two in zip(pair, other, strict=True):
            assert one.tokens == two.tokens
            assert torch.equal(one.counts, two.counts)
            assert torch.equal(one.sums, two.sums)
            assert torch.equal(one.scatter, two.scatter)


@pytest.mark.parametrize(("tokens", "expected"), [(2048, 1), (2049, 2)])
def test_a_small_batch_is_added_by_one_thread(
    tokens: int, expected: int, monkeypatch: pytest.MonkeyPatch, two_threads: None
) -> None:
    seen = []
    real = module.checked_batch

    def watched(*args: object, **named: object) -> object:
        seen.append(torch.get_num_threads())
        return real(*args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "checked_batch", watched)
    moments = ClassMoments.empty(10, 256)
    moments.update(torch.zeros(tokens, 256), labels_of(10, tokens))
    assert seen == [expected]
    assert torch.get_num_threads() == 2
    with pytest.raises(ValueError, match="outside 0 … 9"):
        moments.update(torch.zeros(tokens, 256), torch.full((tokens,), 10))
    assert torch.get_num_threads() == 2


@pytest.fixture
def two_threads() -> Iterator[None]:
    with threads(2):
        yield
