"""The error rates of statistics.md: every verdict has an entry, every entry runs at small size, and none is above 5 %."""

import json
import types
import typing
from enum import StrEnum
from pathlib import Path

import error_rates
import numpy as np
import pytest
from simulations import INTERVALS, SILENT, VERDICTS
from simulations.entry import Claim, Interval

from collapselab.analysis.analyze import STATEMENTS
from collapselab.analysis.verdict import ATTRIBUTION, EFFECT, MOVEMENT, RELATION, Verdict
from collapselab.analysis.words import REVERSAL

ENTRIES: dict[str, Claim | Interval] = {**VERDICTS, **INTERVALS}
COUNTED = error_rates.stored()
"""What was counted; a star in the document marks what is below its full size."""
SMALL = 6
NO_VERDICTS = {
    "relate": {"goes", "why_code"},
    "controls": {"goes", "why_code"},
    "trends": {"why_code"},
    "effects": {"role", "why_code", "movement"},
    "doses": {"why_code"},
    "attribution": {"why_code"},
    "properties": {"why_code"},
}
"""Columns of codes that say what a row is, and not what is found."""
WITHOUT_CODES = {
    f"relate: {REVERSAL}",
    "doses: rises",
    "doses: falls",
    "effects: reached",
    "effects: learning speed",
    "page: false claim",
}
"""What is claimed by a sentence, a truth value or a number."""


def codes(kind: object) -> list[str]:
    """The values of a code, optional or not; none of another column."""
    inner = [one for one in typing.get_args(kind) if one is not types.NoneType] or [kind]
    return [value for one in inner if isinstance(one, type) and issubclass(one, StrEnum) for value in one]


WORDS: dict[str, set[Verdict]] = {
    "relate": {*RELATION},
    "controls": {*RELATION},
    "trends": {*RELATION},
    "effects": {*EFFECT, Verdict.EQUIVALENT},
    "properties": {*MOVEMENT, Verdict.IN_CONFLICT},
    "attribution": {*ATTRIBUTION, Verdict.NOT_ALONE},
}
"""The verdicts that a table can give, beside those that claim nothing."""


def claims() -> set[str]:
    """Everything that a row of a table of the analysis can claim, as `table: answer`."""
    found = set(WITHOUT_CODES)
    for table, statement in STATEMENTS.items():
        for column, kind in typing.get_type_hints(statement.row).items():
            if column not in NO_VERDICTS.get(table, set()):
                given = WORDS[table] if Verdict in (kind, *typing.get_args(kind)) else codes(kind)
                found |= {f"{table}: {value}" for value in given}
    found.add("diagnosis: over-fitted")
    return {claim for claim in found if claim.partition(": ")[2] not in SILENT}


def test_every_verdict_that_the_analysis_can_give_has_a_simulation() -> None:
    counted = frozenset[str]().union(*(entry.gives for entry in VERDICTS.values()))
    assert len(claims()) > 20
    assert claims() == counted


def test_every_verdict_was_counted_and_the_file_says_how_many_tables_it_should_have() -> None:
    kept = json.loads(error_rates.RESULTS.read_text())
    assert {name: counts["full_size"] for name, counts in kept.items()} == {n: e.tables for n, e in ENTRIES.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", ENTRIES)
def test_every_entry_runs_and_is_not_far_from_its_rate(name: str) -> None:
    entry = ENTRIES[name]
    if isinstance(entry, Claim) and entry.needs is not None and not entry.needs.is_file():
        pytest.skip(f"{entry.needs} is not beside this checkout")
    counts = error_rates.run(name, entry, max(1, min(SMALL, entry.tables // 50)))  # a whole page takes seconds
    for kind, (count, tables) in counts.items():
        assert 0 <= count <= tables
        if kind == "null":
            assert not error_rates.is_too_often(count, tables)
        if kind == "covered":
            assert not error_rates.is_too_seldom(count, tables)


@pytest.mark.parametrize("name", [name for name in VERDICTS if name in COUNTED])
def test_no_verdict_is_given_too_often_where_there_is_nothing(name: str) -> None:
    wrong, tables = COUNTED[name]["null"]
    assert tables >= 40
    assert not error_rates.is_above_level(wrong, tables)


@pytest.mark.parametrize("name", [name for name in VERDICTS if name in COUNTED and VERDICTS[name].planted])
def test_every_verdict_is_found_where_it_is_planted(name: str) -> None:
    found, tables = COUNTED[name]["planted"]
    assert tables >= 10
    assert found >= 0.4 * tables, "no power was shown"


@pytest.mark.parametrize("name", [name for name in INTERVALS if name in COUNTED])
def test_no_interval_covers_too_seldom(name: str) -> None:
    covered, tables = COUNTED[name]["covered"]
    assert tables >= 20
    assert not error_rates.is_too_seldom(covered, tables)


def test_a_rate_is_above_the_level_where_its_interval_is() -> None:
    assert not error_rates.is_above_level(8, 120)
    assert not error_rates.is_above_level(18, 240)
    assert error_rates.is_above_level(20, 240)
    assert not error_rates.is_too_often(20, 240), "which a handful of tables could not tell from chance"


def test_a_count_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(error_rates, "RESULTS", tmp_path / "rates.json")
    monkeypatch.setattr(error_rates, "BATCH", 3)
    entry = Claim("", "", "planted", lambda rng, planted: planted or rng.random() < 0.5, frozenset(), tables=40)
    monkeypatch.setattr(error_rates, "VERDICTS", {"coin": entry})
    monkeypatch.setattr(error_rates, "INTERVALS", {"always": Interval("", "", lambda rng: True, tables=8)})
    error_rates.main(["coin", "--tables", "8"])
    first = json.loads((tmp_path / "rates.json").read_text())
    assert first["coin"]["null"][1] == 8
    error_rates.main([])
    whole = json.loads((tmp_path / "rates.json").read_text())
    null = list(error_rates.run("coin", entry)["null"])
    assert whole["coin"] == {"null": null, "planted": [10, 10], "full_size": 40}
    assert whole["always"] == {"covered": [8, 8], "full_size": 8}
    error_rates.main([])
    assert json.loads((tmp_path / "rates.json").read_text()) == whole
    error_rates.main(["--again", "--tables", "8", "coin"])
    assert json.loads((tmp_path / "rates.json").read_text())["coin"] == first["coin"]


def test_tables_without_and_with_an_effect_are_not_the_same_draws() -> None:
    seen: dict[bool, list[float]] = {False: [], True: []}

    def claims_of(rng: np.random.Generator, planted: bool) -> bool:
        seen[planted].append(float(rng.random()))
        return False

    error_rates.run("any", Claim("", "", "planted", claims_of, frozenset()), 8)
    assert len({*seen[False], *seen[True]}) == 10


def test_a_rate_far_above_its_level_is_noticed() -> None:
    assert error_rates.is_too_often(100, 1000)
    assert not error_rates.is_too_often(60, 1000)
    assert error_rates.is_too_seldom(880, 1000)
    assert not error_rates.is_too_seldom(935, 1000)
    assert error_rates.is_too_often(6, 6)
