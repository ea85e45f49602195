"""The words that users read are those of the golden files; golden_words.py writes them again."""

import pytest

from golden_words import CASES, GOLDEN, NEEDS, difference


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_words_are_those_of_the_golden_file(name: str) -> None:
    if name in NEEDS and not NEEDS[name].is_file():
        pytest.skip(f"{NEEDS[name].name} is not beside this checkout")
    assert list(difference(name)) == []


def test_every_golden_file_is_of_a_case() -> None:
    assert {path.stem for path in GOLDEN.glob("*.txt")} == set(CASES)
