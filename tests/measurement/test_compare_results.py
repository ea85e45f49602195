"""Two measurements side by side: only if corpus, versions and options are the same."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from analysis.test_tokens import facts
from collapselab.cli import app
from collapselab.errors import ConfigError
from collapselab.measurement.compare_results import compare
from collapselab.records.measurement import Result, Results
from records.test_tables import ROW


def results(*values: float | None, version: int = 1, **changed: Any) -> Results:
    """A model for each value, named by its number."""
    made = []
    for number, value in enumerate(values):
        row = replace(ROW, value=value, why=None if value is not None else "none", version=version)
        made.append(Result([row], facts(run=f"r{number}", model=f"r{number}", **changed)))
    return Results(made)


def test_numbers_are_set_side_by_side() -> None:
    found = compare(results(0.1, 0.4, None), results(0.1, 0.5, 0.3))
    assert [row.relative for row in found.rows] == [0.0, pytest.approx(0.2), None]
    assert found.largest is not None
    assert found.largest.mine == 0.4
    assert found.warnings == []


def test_numbers_that_are_the_same_are_not_shown_as_differences(tmp_path: Path) -> None:
    found = compare(results(0.1, 0.4, None, None, 0.2), results(0.1, 0.5, 0.3, None, 0.3))
    assert [row.model for row in found.differing] == ["r4", "r1", "r2"]
    (tmp_path / "a.json").write_text(results(0.1, 0.4).to_json())
    (tmp_path / "b.json").write_text(results(0.1, 0.5).to_json())
    assert "cdnv" not in shown(tmp_path / "a.json", tmp_path / "a.json")
    table = shown(tmp_path / "a.json", tmp_path / "b.json")
    assert [words.split() for words in table.splitlines() if "0.5" in words] == [["cdnv", "0.4", "0.5", "20", "%"]]
    assert "r0" not in table


def shown(*arguments: Path) -> str:
    done = CliRunner().invoke(app, ["compare", *map(str, arguments)], env={"COLUMNS": "160"})
    assert done.exit_code == 0, done.output
    return done.output


def test_two_models_of_other_names_are_both_named() -> None:
    (row,) = compare(results(0.1), Results([results(0.1, 0.2)[1]])).rows
    assert row.model == "r0 / r1"


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"corpus_hash": "another"}, "The corpora differ: .* and another"),
        ({"version": 2}, r"different versions of their definition: cdnv \(1 and 2\)"),
        ({"options": {"layers": "all"}}, "The options differ: .*layers"),
    ],
)
def test_what_cannot_be_compared_is_refused_and_named(other: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        compare(results(0.1), results(0.1, **other))
    found = compare(results(0.1), results(0.1, **other), anyway=True)
    assert len(found.rows) == len(found.warnings) == 1


def test_how_a_measurement_ran_does_not_matter() -> None:
    usual = dict(facts()["options"])
    assert compare(results(0.1, options=usual), results(0.1, options=usual | {"batch": 7})).warnings == []


def test_models_are_matched_by_their_names_unless_there_is_one_of_each() -> None:
    found = compare(results(0.1, 0.2), results(0.1, 0.2, 0.3))
    assert len(found.rows) == 2
    assert len(found.unmatched) == 1
    assert found.unmatched[0].startswith("r2 ")
    one, two = results(0.1), Results([results(0.1, 0.2)[1]])
    assert len(compare(one, two).rows) == 1
    with pytest.raises(ConfigError, match="no model is in both"):
        compare(results(0.1, 0.2), Results([Result([ROW], facts(run="x")), Result([ROW], facts(run="y"))]))


def test_it_is_one_json_document() -> None:
    assert '"relative": 0.0' in compare(results(0.1), results(0.1)).to_json()
