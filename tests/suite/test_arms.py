"""Arms: what runs of one seed differ in, crossed with everything else of a recipe."""

from pathlib import Path
from typing import Any

import pytest

from collapselab.errors import ConfigError
from collapselab.records.suite import Primary
from collapselab.suite import run as suites
from collapselab.suite.recipe import Suite, parse_suite, suite_from
from suite.recipes import opened

HEAD = "question: Why?\ncorpus: {source: storyworld}\nbase: {width: 8, depth: 1}\n"


def suite(text: str, **options: Any) -> Suite:
    return parse_suite(HEAD + text, name="mine", where="mine.yaml", **options)


def names(found: Suite) -> list[str]:
    return [arm.name for arm in found.arms]


def test_every_arm_is_trained_with_every_seed_and_pairs_come_first() -> None:
    found = suite("grid: {seed: [0, 1]}\narms: [none, 'within:+0.1', 'within:-0.1:sham']")
    assert [(settings.seed, settings.intervene) for settings, _ in found.runs] == [
        (seed, doses) for seed in (0, 1) for doses in ((), ("within:+0.1",), ("within:-0.1:sham",))
    ]


def test_arms_are_crossed_with_zips_and_listed_runs_too() -> None:
    found = suite("arms: [none, 'noise:0.1']\nzip: {lr: [1e-3, 2e-3]}\nruns: [{width: 16, grid: {seed: [1, 2, 3]}}]")
    assert len(found.runs) == 2 * (2 + 3)
    assert [settings.width for settings, _ in found.runs if settings.intervene] == [8, 8, 16, 16, 16]


def test_an_arm_is_a_dose_a_list_of_doses_or_settings() -> None:
    found = suite(
        "arms: [none, ['within:+0.1', 'uniform:-0.03'], {head: frozen-code, tied: false}, {coupling: 0.5}, "
        "{optimizer: coupled-adam}, {intervene: 'within:+0.1', tied: false}]"
    )
    assert names(found) == [
        "none",
        "uniform:-0.03 · within:+0.1",
        "head frozen-code · tied False",
        "coupling 0.5",
        "optimizer coupled-adam",
        "within:+0.1 · tied False",
    ]
    settings = [settings for settings, _ in found.runs]
    assert settings[1].intervene == ("uniform:-0.03", "within:+0.1")
    assert (settings[2].head, settings[2].tied) == ("frozen-code", False)
    assert settings[3].coupling == 0.5
    assert settings[4].optimizer == "coupled-adam"
    assert (settings[5].intervene, settings[5].tied) == (("within:+0.1",), False)


@pytest.mark.parametrize("control", ["none", "[]", "{}", "null"])
def test_the_control_is_the_base_as_it_is(control: str) -> None:
    found = suite(f"arms: [{control}, 'within:+0.1']")
    assert found.arms[0].is_control
    assert not found.arms[1].is_control
    assert found.runs[0] == suite("").runs[0]


def test_the_run_of_an_arm_is_the_run_of_its_settings_in_any_recipe() -> None:
    by_arm = suite("arms: [none, 'simreg:+0.1']").runs
    by_grid = suite("grid: {intervene: [[], ['simreg:0.1']]}").runs
    assert by_arm == by_grid


@pytest.mark.parametrize(
    ("arms", "message"),
    [
        ("['withn:+0.1']", r"line 4: arms\[0\]: withn is not an intervention. Did you mean within\?"),
        ("[none, 'within:0.1']", r"line 4: arms\[1\]: within:0.1 has no sign. Both exist"),
        ("[none, 'floor:-0.1']", r"arms\[1\]: floor:-0.1 has a -, but floor acts in one direction"),
        ("[none, nnoe]", r"arms\[1\]: 'nnoe' is not NAME:DOSE.* An arm is none, a dose"),
        ("[none, ['within:+0.1', 'unifrm:+0.1']]", r"arms\[1\]: unifrm is not an intervention. Did you mean"),
        ("[none, ['within:+0.1', 'within:-0.1']]", r"arms\[1\]: within is there twice"),
        ("[none, {head: frozen-cod}]", r"arms\[1\].head: 'frozen-cod' is not valid: did you mean frozen-code"),
        ("[none, {haed: sphere}]", r"arms\[1\].haed: is not a setting. Did you mean head"),
        ("[none, {seed: 3}]", r"arms\[1\].seed: an arm and its control share it"),
        ("[none, {corpus: x}]", r"arms\[1\].corpus: an arm and its control share it"),
        ("[none, 3]", r"arms\[1\]: 3 is not valid"),
        ("[none, [3]]", r"arms\[1\]: \[3\] is not valid"),
        ("[none, none]", r"arms\[1\]: none is there twice"),
        ("['within:+0.1', 'within:+.10']", r"arms\[1\]: within:\+0.1 is there twice"),
        ("['simreg:0.1', ['simreg:+0.1']]", r"arms\[1\]: simreg:0.1 is there twice"),
        ("[{head: sphere, tied: false}, {tied: false, head: sphere}]", r"arms\[1\]: .* is there twice"),
        ("[]", r"arms: \[\] is not valid"),
        ("none", "arms: 'none' is not valid"),
    ],
)
def test_a_wrong_arm_is_an_error_with_its_line_and_the_nearest_name(arms: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        suite(f"arms: {arms}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("grid: {tied: [true, false]}\narms: [none, {tied: false}]", r"line 5: arms\[1\]: tied False sets tied, which"),
        ("runs: [{zip: {lr: [1e-3]}}]\narms: [none, {lr: 2e-3}]", r"lr 0.002 sets lr, which the grid varies"),
        ("grid: {intervene: [['noise:1']]}\narms: ['within:+0.1']", "sets intervene, which the grid varies"),
        ("runs: [{intervene: ['noise:1']}]\narms: ['within:+0.1']", "has doses, and so have its runs"),
    ],
)
def test_an_arm_that_another_section_contradicts_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        suite(text)


def test_a_recipe_with_arms_has_the_default_primary_and_small_may_have_other_arms() -> None:
    text = "arms: [none, 'within:+0.1']\nsmall: {arms: [none, 'noise:0.1', 'noise:0.3']}"
    found = suite(text, scale="small")
    assert found.primary == Primary()
    assert names(found) == ["none", "noise:0.1", "noise:0.3"]
    again = suite_from(found.document, name="mine", scale="small")
    assert again.arms == found.arms
    assert again.primary == found.primary


def test_a_plan_counts_pairs_and_says_what_they_can_show(tmp_path: Path, tiny: dict[str, Any]) -> None:
    seeds = list(range(8))
    recipe = {"base": {**tiny["base"], "steps": 60}, "grid": {"width": [8, 12], "seed": seeds}}
    found, folder = opened(tmp_path, tiny, **recipe, arms=["none", "within:+0.1", "within:-0.1"], primary={"seeds": 9})
    planned = suites.plan(found, folder)
    assert planned.compared is not None
    assert (planned.compared.pairs, planned.compared.cells, planned.compared.control) == (8, 2, "none")
    assert planned.compared.smallest_p == 2 / 2**8
    assert planned.compared.fewest_pairs == 8
    assert planned.warnings == ["primary says 9 seeds, but each arm has 8."]


def test_a_plan_warns_of_arms_without_a_control_and_of_single_seeds(tmp_path: Path, tiny: dict[str, Any]) -> None:
    found, folder = opened(tmp_path, tiny, base={**tiny["base"], "steps": 60}, arms=["within:+0.1", "within:-0.1"])
    planned = suites.plan(found, folder)
    assert planned.compared is not None
    assert planned.compared.control is None
    assert "no arm is the control" in planned.warnings[0]
    assert "each arm has one seed" in planned.warnings[1]
    assert [row.power for row in planned.compared.power] == [None] * 6


def test_a_suite_without_arms_is_planned_as_before(tmp_path: Path, tiny: dict[str, Any]) -> None:
    planned = suites.plan(*opened(tmp_path, tiny))
    assert planned.compared is None
    assert planned.warnings == []
