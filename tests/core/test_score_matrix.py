"""The largest and second-largest scores, and choices that are made from them."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from collapselab.core.decisions import STRIP, LinearClassifier, TopTwo, aligned_rows, aligned_stride, top_two


def by_sorting(scores: Tensor) -> tuple[list[int], list[float]]:
    best, gaps = [], []
    for row in scores.tolist():
        ordered = sorted(row, reverse=True)
        best.append(row.index(ordered[0]))
        gaps.append(ordered[0] - ordered[1] if len(ordered) > 1 else float("inf"))
    return best, gaps


@given(
    columns=st.sampled_from([1, 2, STRIP - 1, STRIP, STRIP + 1, 3 * STRIP, 1030]),
    values=st.integers(1, 40),
    seed=st.integers(0, 99),
)
def test_the_first_of_equals_is_the_best_and_the_gap_is_that_to_the_next(columns: int, values: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(-values, values, (9, columns), generator=generator).float()  # many ties
    spaced = aligned_rows(torch.full((9 * aligned_stride(columns, 4),), torch.nan), 9, columns)
    spaced.copy_(drawn)
    for scores in (drawn, spaced, drawn.T.contiguous().T):
        found = top_two(scores)
        best, gaps = by_sorting(drawn)
        assert found.best.tolist() == best
        assert found.gap.tolist() == gaps


def some_rows(seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(200, 16, generator=generator), torch.randn(500, 16, generator=generator)


@pytest.mark.parametrize("has_bias", [False, True])
def test_choices_from_logits_are_those_of_the_classifier_also_where_the_best_row_is_another(has_bias: bool) -> None:
    rows, features = some_rows()
    bias = torch.linspace(-1, 1, 200) if has_bias else None
    kept = torch.arange(0, 200, 3)
    some = LinearClassifier(rows[kept], None if bias is None else bias[kept], classes=torch.arange(len(kept)))
    class_of = torch.full((200,), -1)
    class_of[kept] = torch.arange(len(kept))
    logits = torch.nn.functional.linear(features, rows, bias)
    found = some.sure_choices(top_two(logits), features, class_of)
    assert torch.equal(found, some.choices(features))
    assert 0 < int((class_of[logits.argmax(1)] >= 0).sum()) < len(features), "so that both cases are seen"


def test_choices_that_rounding_could_have_swapped_are_made_again() -> None:
    rows, features = some_rows()
    rows[7] = rows[150] * (1 + 2.0**-23)  # nearly the same row: float32 cannot tell which is larger
    classifier, every = LinearClassifier(rows), torch.arange(200)
    right = (features.double() @ rows.double().T).argmax(1)
    assert bool(((right == 7) | (right == 150)).any())
    top = top_two(features @ rows.T)
    swapped = torch.where(top.best == 7, 150, torch.where(top.best == 150, 7, top.best))
    for best in (top.best, swapped):
        assert torch.equal(classifier.sure_choices(TopTwo(best, top.gap), features, every), right)


def test_no_tokens_have_no_best() -> None:
    for columns in (3, 130):
        found = top_two(torch.zeros(0, columns))
        assert (found.best.tolist(), found.gap.tolist()) == ([], [])
