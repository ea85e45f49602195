"""Words of sentences: amounts with the unit of their outcome."""

import pytest

from collapselab.analysis.words import amount, unit_of
from collapselab.records.outcomes import OUTCOMES

SHARES = {"ece"}
"""Outcomes that are shares, which have no unit."""


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        ("val_loss", "-0.130 nats [-0.170, -0.090]"),
        ("gap", "-0.130 nats [-0.170, -0.090]"),
        ("entropy_gap_2", "-0.130 nats [-0.170, -0.090]"),
        ("bits_per_byte", "-0.130 bits per byte [-0.170, -0.090]"),
        ("loss_on:imdb", "-0.130 bits per byte [-0.170, -0.090]"),
        ("ece", "-0.130 [-0.170, -0.090]"),
        ("score:arc_easy/acc", "-0.130 [-0.170, -0.090]"),
    ],
)
def test_an_amount_has_the_unit_of_its_outcome(outcome: str, words: str) -> None:
    assert amount(-0.13, -0.17, -0.09, outcome) == words


def test_every_outcome_that_is_no_share_has_a_unit() -> None:
    assert {name for name in OUTCOMES if not unit_of(name)} == SHARES
