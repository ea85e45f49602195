"""Families: the smallest corrected p of each, the correction over confirmatory families, and the expected errors."""

import re
from types import SimpleNamespace

import pytest

from collapselab.analysis.families import EFFECTS, FIXED_SCALE, Family, error_words, family_p, surviving
from collapselab.analysis.verdict import Role


def relation(p: float | None, family: str = "paper", subset: str = "within cells") -> SimpleNamespace:
    return SimpleNamespace(subset=subset, family=family, p_holm=p)


def effect(p: float | None, role: Role = Role.OUTCOME, *, sham: bool = False) -> SimpleNamespace:
    return SimpleNamespace(role=role, sham=sham, verdict="helps", p_holm=p)


def test_a_family_has_the_smallest_p_of_its_tests_and_none_without_a_test() -> None:
    tables = {"relate": [relation(0.3), relation(0.02), relation(None, "exploration")], "effects": [effect(0.04)]}
    assert family_p(tables) == {FIXED_SCALE: 0.02, EFFECTS: 0.04}


def test_only_confirmatory_families_enter_the_correction_over_families() -> None:
    exploring = [relation(0.001, "exploration"), relation(0.03)]
    arms = [effect(0.03), effect(0.0001, sham=True), effect(0.0001, Role.FURTHER)]
    assert surviving({"relate": exploring}) == {FIXED_SCALE}
    assert surviving({"relate": exploring, "effects": arms}) == set(), "0.03 twice is 0.06 after Holm's correction"
    arms[0] = effect(0.02)
    assert surviving({"relate": exploring, "effects": arms}) == {EFFECTS, FIXED_SCALE}
    assert Family("effects", (Role.FURTHER, False)) not in surviving({"effects": arms})


@pytest.mark.parametrize(("p", "claims", "left"), [(0.03, 3, 0), (0.001, 3, 2), (0.9, 0, 0)])
def test_the_sentence_counts_families_and_expected_false_claims(p: float, claims: int, left: int) -> None:
    words = error_words({"relate": [relation(p), relation(p, "exploration")], "effects": [effect(p)]})
    assert words is not None
    numbers = re.findall(r"[0-9.]*[0-9]", words)
    assert numbers == ["3", "5", "0.15", str(claims), "2", str(left)]


def test_nothing_is_said_where_nothing_was_tested() -> None:
    assert error_words({"relate": [relation(None)]}) is None
