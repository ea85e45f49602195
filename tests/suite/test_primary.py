"""What a suite is judged by is registered before its first run, and stays what it was."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import create_model

from collapselab.core.catalogue import METRICS
from collapselab.disk import read_document, write_document
from collapselab.errors import ConfigError, DamagedError, RunError
from collapselab.records.suite import DEFAULT_METRICS, Primary, registered_primary
from collapselab.suite.recipe import Suite, parse_suite, suite_from
from suite.recipes import opened

HEAD = "question: Why?\ncorpus: {source: storyworld}\nbase: {width: 8, depth: 1}\n"
CHOSEN: dict[str, Any] = {"metrics": ["cdnv_log"], "smallest_effect": 0.02, "seeds": 8}


def suite(text: str, **options: Any) -> Suite:
    return parse_suite(HEAD + text, name="mine", where="mine.yaml", **options)


def begun(place: Path, tiny: dict[str, Any], **changes: Any) -> Any:
    recipe, folder = opened(place, tiny, **changes)
    folder.begin(recipe, accept_change=True)
    return folder


def start_a_run(folder: Any) -> None:
    (folder.path / "01x0008-abc").mkdir()
    (folder.path / "01x0008-abc" / "run.json").write_text("{}")


def test_a_recipe_chooses_metrics_outcome_smallest_effect_and_seeds() -> None:
    primary = suite("primary: {metrics: [cdnv_log, agreement], outcome: train_loss, seeds: 8}").primary
    assert primary == Primary(metrics=("cdnv_log", "agreement"), outcome="train_loss", seeds=8)
    assert primary.smallest_effect is None
    assert primary.smallest_effect_tokens == 0.05


def test_defaults_are_one_metric_of_the_catalogue_for_each_property() -> None:
    primary = suite("primary: {}").primary
    assert primary is not None
    assert primary.metrics == DEFAULT_METRICS
    assert len({METRICS[metric].property for metric in primary.metrics}) == 5
    assert primary.outcome == "val_loss"


def test_a_recipe_without_one_has_none_and_its_record_is_as_before(tmp_path: Path, tiny: dict[str, Any]) -> None:
    assert suite("").primary is None
    folder = begun(tmp_path, tiny)
    assert registered_primary(folder.path) is None
    document = read_document(folder.path / "suite.json")
    del document["primary"], document["primary_hash"]
    write_document(folder.path / "suite.json", document)
    assert registered_primary(folder.path) is None
    assert folder.suite().primary is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{metric: [cdnv]}", "line 4: primary.metric: is not a choice of primary. Did you mean metrics"),
        ("{metrics: [cdnv_lgo]}", r"line 4: primary.metrics\[0\]: 'cdnv_lgo' is not a metric. Did you mean cdnv_log"),
        ("{metrics: []}", "primary.metrics: .* at least 1 item"),
        ("{metrics: cdnv}", "primary.metrics: 'cdnv' is not valid"),
        ("{outcome: 3}", "primary.outcome: 3 is not valid"),
        ("{smallest_effect: 0}", "primary.smallest_effect: 0 is not valid"),
        ("{smallest_effect: .nan}", "primary.smallest_effect: nan is not valid"),
        ("{smallest_effect_tokens: -1}", "primary.smallest_effect_tokens: -1 is not valid"),
        ("{seeds: 1}", "primary.seeds: 1 is not valid"),
        ("[cdnv]", "line 4: primary: .* is not valid"),
    ],
)
def test_a_wrong_choice_is_an_error_with_its_line(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        suite(f"primary: {text}")


def test_small_may_choose_otherwise() -> None:
    text = "primary: {seeds: 10, smallest_effect: 0.01}\nsmall: {primary: {seeds: 3}}"
    primary = suite(text, scale="small").primary
    assert primary == Primary(seeds=3, smallest_effect=0.01)
    again = suite_from(suite(text, scale="small").document, name="mine", scale="small")
    assert again.primary == primary


def test_it_is_written_before_the_first_run_with_its_hash(tmp_path: Path, tiny: dict[str, Any]) -> None:
    folder = begun(tmp_path, tiny, primary=CHOSEN)
    document = json.loads((folder.path / "suite.json").read_text())
    primary = registered_primary(folder.path)
    assert primary == Primary(metrics=("cdnv_log",), smallest_effect=0.02, seeds=8)
    assert document["primary_hash"] == primary.hash
    assert not list(folder.path.glob("*/run.json"))


def test_before_the_first_run_it_may_change_and_afterwards_not(tmp_path: Path, tiny: dict[str, Any]) -> None:
    folder = begun(tmp_path, tiny, primary=CHOSEN)
    begun(tmp_path, tiny, primary=CHOSEN | {"seeds": 9})
    assert registered_primary(folder.path) == Primary(metrics=("cdnv_log",), smallest_effect=0.02, seeds=9)
    start_a_run(folder)
    before = (folder.path / "suite.json").read_bytes()
    for change in ({"primary": CHOSEN}, {}):
        with pytest.raises(RunError, match="registered before the first run .* cannot change once there are runs"):
            begun(tmp_path, tiny, **change)
    assert (folder.path / "suite.json").read_bytes() == before
    begun(tmp_path, tiny, primary=CHOSEN | {"seeds": 9}, grid={"width": [8]})
    assert registered_primary(folder.path) is not None, "another grid leaves it registered"


def test_one_that_comes_after_runs_is_kept_in_the_recipe_and_not_registered(
    tmp_path: Path, tiny: dict[str, Any]
) -> None:
    folder = begun(tmp_path, tiny)
    start_a_run(folder)
    begun(tmp_path, tiny, primary=CHOSEN)
    assert registered_primary(folder.path) is None
    assert folder.suite().primary == Primary(metrics=("cdnv_log",), smallest_effect=0.02, seeds=8)


def test_deleting_suite_json_registers_nothing_beside_runs(tmp_path: Path, tiny: dict[str, Any]) -> None:
    folder = begun(tmp_path, tiny, primary=CHOSEN)
    start_a_run(folder)
    (folder.path / "suite.json").unlink()
    begun(tmp_path, tiny, primary=CHOSEN | {"seeds": 3})
    assert registered_primary(folder.path) is None


def test_an_edited_one_is_refused_even_with_its_checksum_made_again(tmp_path: Path, tiny: dict[str, Any]) -> None:
    folder = begun(tmp_path, tiny, primary=CHOSEN)
    document = read_document(folder.path / "suite.json")
    document["primary"] = {**CHOSEN, "seeds": 3}
    write_document(folder.path / "suite.json", document)
    with pytest.raises(DamagedError, match="was registered. Put back what was changed"):
        registered_primary(folder.path)


def test_a_folder_without_a_suite_has_none(tmp_path: Path) -> None:
    assert registered_primary(tmp_path) is None


def test_a_choice_that_is_added_later_changes_no_hash() -> None:
    later = create_model("Later", __base__=Primary, alpha=(float, 0.05))
    assert Primary().hash == "8caeaef3bd60ce71", "that of the first version"
    assert later().hash == Primary().hash
    assert later(seeds=8).hash == Primary(seeds=8).hash != Primary().hash
    assert later(alpha=0.01).hash != Primary().hash
