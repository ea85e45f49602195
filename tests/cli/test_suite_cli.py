"""The commands: tables for people, one JSON document for programs, an example in every help."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from collapselab.cli.suite import app
from collapselab.corpus.build import Recipe, build_corpus
from collapselab.corpus.sources import open_source
from collapselab.errors import RunError
from collapselab.suite.recipe import load_suite, shipped_recipes

COMMANDS = ["list", "plan", "run", "status", "collect", "cancel"]


def invoked(*words: str | Path) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "200", "OMP_NUM_THREADS": "1"})


def said(*words: str | Path) -> Any:
    result = invoked(*words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus, a recipe of two runs, and the suite that was run from it: one run is done, one failed."""
    place = tmp_path_factory.mktemp("place")
    source = open_source(["storyworld:stories=12,validation=4"])
    build_corpus(source, place / "corpus", Recipe("bpe:300", block=32))
    recipe = {
        "question": "Does it work?",
        "corpus": "corpus",
        "base": {"width": 8, "depth": 1, "batch": 4, "steps": 4, "clip": 0.0},
        "grid": {"lr": [1e-3, 1e30]},
        "measure": {"tokens": 200},
    }
    (place / "tiny.yaml").write_text(yaml.safe_dump(recipe))
    result = invoked("run", place / "tiny.yaml", "--out", place / "suite")
    assert result.exit_code == 1, result.output
    assert "--retry-failed" in result.stderr
    (place / "said").write_text(result.stdout)
    return place


def test_every_command_s_help_has_an_example() -> None:
    assert sorted(command.name or command.callback.__name__ for command in app.registered_commands) == sorted(COMMANDS)  # type: ignore[union-attr]
    for name in COMMANDS:
        assert f"collapselab suite {name}" in " ".join(invoked(name, "--help").stdout.split()), name


def test_list_shows_every_recipe_with_its_question() -> None:
    listed = said("list")
    assert [one["name"] for one in listed] == list(shipped_recipes())
    table = invoked("list").stdout
    assert all(one["name"] in table and one["question"] in table for one in listed)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in shipped_recipes() if load_suite(name).runs])
def test_every_recipe_can_be_planned(name: str, tmp_path: Path) -> None:
    scale = [] if name == "paper" else ["--scale", "small"]
    facts = said("plan", name, *scale, "--no-timing", "--out", tmp_path / "out")
    assert not facts["impossible"]
    assert not facts["warnings"]
    assert facts["total"]["runs"] == len(facts["runs"])
    assert min(run["parameters"] for run in facts["runs"]) > 1000
    assert facts["total"]["checkpoints"] == (
        230 if name == "paper" else sum(len(run["checkpoints"]) for run in facts["runs"])
    )
    assert not (tmp_path / "out").exists(), "planning makes nothing"


@pytest.mark.slow
def test_plan_prints_pairs_power_and_the_smallest_p(tmp_path: Path) -> None:
    compared = said("plan", "push", "--no-timing", "--out", tmp_path / "out")["comparison"]
    assert (compared["pairs"], compared["properties"], compared["control"]) == (8, 5, "none")
    assert (compared["smallest_p"], compared["fewest_pairs"]) == (2 / 2**8, 8)
    assert [row["pairs_at_5_percent"] for row in compared["power"]] == [34, 16, 10, 6, 5, 4]
    text = " ".join(invoked("plan", "push", "--no-timing", "--out", tmp_path / "out").stdout.split())
    assert "9 arms × 8 seeds: 72 pairs with the control. Arms: none, within:+0.1," in text
    assert "1 10 11 68% 64%" in text
    assert "p of 8 pairs with their signs flipped is 0.0078: it survives Holm's adjustment over 5" in text
    small = " ".join(
        invoked("plan", "push", "--scale", "small", "--no-timing", "--out", tmp_path / "out").stdout.split()
    )
    assert "is 0.25: it does not survive (8 pairs would) Holm's" in small
    assert said("plan", "demo", "--no-timing", "--out", tmp_path / "out")["comparison"] is None


@pytest.mark.slow
@pytest.mark.parametrize("name", ["push", "dose", "heads", "coupling", "factorial", "rivals"])
def test_recipes_of_interventions_have_a_control_and_the_seeds_that_they_register(name: str, tmp_path: Path) -> None:
    for scale in ("full", "small"):
        facts = said("plan", name, "--scale", scale, "--no-timing", "--out", tmp_path / "out")
        assert not facts["impossible"]
        assert not facts["warnings"]
        assert facts["comparison"]["control"] == "none"
        assert (facts["comparison"]["pairs"] >= facts["comparison"]["fewest_pairs"]) == (scale == "full")


def test_plan_says_what_is_done_and_how_long_the_rest_takes(place: Path) -> None:
    facts = said("plan", place / "tiny.yaml", "--out", place / "suite")
    assert [run["stage"] for run in facts["runs"]] == ["done", "failed"]
    assert facts["total"]["done"] == 1
    assert facts["total"]["seconds_left"] == facts["runs"][1]["seconds"] > 0


def test_run_ends_with_1_and_lists_what_failed_and_why(place: Path) -> None:
    table = (place / "said").read_text()
    assert "lr1e+30" in table
    assert f"collapselab analyze {place / 'suite'}" in table


def test_status_is_a_table_or_one_document(place: Path) -> None:
    facts = said("status", place / "suite")
    assert [(run["stage"], run["checkpoints_measured"]) for run in facts["runs"]] == [("done", 2), ("failed", 0)]
    assert invoked("status", place / "suite").exit_code == 0
    assert invoked("status", place / "suite", "--follow").exit_code == 0, "there is nothing to wait for"


def test_collect_rebuilds_and_ends_with_1_where_rows_are_refused(place: Path) -> None:
    facts = said("collect", place / "suite")
    assert (facts["runs"], facts["checkpoints"], facts["refused"]) == (2, 4, [])
    record = next((place / "suite").glob("*lr0.001*/run.json"))
    before = record.read_text()
    record.write_text(before.replace('"seed": 0', '"seed": 1'))
    result = invoked("collect", place / "suite")
    assert result.exit_code == 1
    assert record.name in result.stderr
    record.write_text(before)


def test_what_the_user_must_change_is_one_message(place: Path) -> None:
    result = invoked("status", place / "tiny.yaml", "--out", place / "nowhere")
    assert isinstance(result.exception, RunError)
    assert str(place / "nowhere") in str(result.exception)
