"""The error rates of statistics.md: every entry runs, at small size, and what was counted at full size is within 5 %."""

import error_rates
import pytest
from simulations import INTERVALS, VERDICTS
from simulations.entry import Interval, Verdict

ENTRIES: dict[str, Verdict | Interval] = {**VERDICTS, **INTERVALS}
COUNTED = error_rates.stored()
"""What was counted at full size; the document says of all others that they were not."""
SMALL = 6


@pytest.mark.parametrize("name", ENTRIES)
def test_every_entry_runs_and_is_not_far_from_its_rate(name: str) -> None:
    entry = ENTRIES[name]
    if isinstance(entry, Verdict) and entry.needs is not None and not entry.needs.is_file():
        pytest.skip(f"{entry.needs} is not beside this checkout")
    counts = error_rates.run(name, entry, SMALL)
    for kind, (count, tables) in counts.items():
        assert 0 <= count <= tables
        if kind == "null":
            assert not error_rates.is_too_often(count, tables)
        if kind == "covered":
            assert not error_rates.is_too_seldom(count, tables)


@pytest.mark.parametrize("name", [name for name in VERDICTS if name in COUNTED])
def test_no_verdict_is_given_too_often_where_there_is_nothing(name: str) -> None:
    wrong, tables = COUNTED[name]["null"]
    assert tables >= 20
    assert not error_rates.is_too_often(wrong, tables)


@pytest.mark.parametrize("name", [name for name in INTERVALS if name in COUNTED])
def test_no_interval_covers_too_seldom(name: str) -> None:
    covered, tables = COUNTED[name]["covered"]
    assert tables >= 20
    assert not error_rates.is_too_seldom(covered, tables)


def test_only_known_entries_are_stored() -> None:
    assert COUNTED
    assert set(COUNTED) <= set(ENTRIES)


def test_a_rate_far_above_its_level_is_noticed() -> None:
    assert error_rates.is_too_often(100, 1000)
    assert not error_rates.is_too_often(60, 1000)
    assert error_rates.is_too_seldom(880, 1000)
    assert not error_rates.is_too_seldom(935, 1000)
    assert error_rates.is_too_often(6, 6)
