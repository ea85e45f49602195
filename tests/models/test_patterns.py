"""Patterns of names: folders and revisions that match, in order of step, or a message that says what there is."""

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import constants

from collapselab import hub
from collapselab.errors import ModelError
from collapselab.models import find
from collapselab.models.find import HubModel, find_models, place_of, step_order

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def model_folder(path: Path) -> Path:
    path.mkdir(parents=True)
    (path / "config.json").write_text("{}")
    return path


def refs(*branches: str, tags: tuple[str, ...] = ()) -> Any:
    """What huggingface_hub's list_repo_refs returns."""

    def ref(name: str) -> SimpleNamespace:
        return SimpleNamespace(name=name, ref=f"refs/heads/{name}", target_commit=f"commit of {name}")

    return SimpleNamespace(branches=[ref(name) for name in branches], tags=[ref(name) for name in tags], converts=[])


def cached(cache: Path, revision: str, commit: str, *, identity: str = "EleutherAI/tiny") -> Path:
    """A revision as the hub's own cache has it."""
    repository = cache / f"models--{identity.replace('/', '--')}"
    reference = repository / "refs" / revision
    reference.parent.mkdir(parents=True, exist_ok=True)
    reference.write_text(commit)
    return model_folder(repository / "snapshots" / commit)


@pytest.fixture
def no_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def test_folders_that_match_come_in_order_of_step(tmp_path: Path) -> None:
    for step in (1000, 2, 10, 0):
        model_folder(tmp_path / f"step{step}")
    (tmp_path / "step-logs").mkdir()
    (tmp_path / "step.txt").write_text("no model")
    (tmp_path / "step5.gguf").write_text("")
    found = find_models([str(tmp_path / "step*")])
    assert [Path(source.name).name for source in found] == ["step0", "step2", "step5.gguf", "step10", "step1000"]


def test_a_folder_whose_name_has_the_sign_of_a_pattern_is_that_folder(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "a[1]")
    model_folder(tmp_path / "a1")
    assert [source.path for source in find_models([str(folder)])] == [folder]


def test_numbers_inside_names_count_as_numbers() -> None:
    names = ["stage2-step10-tokens1B", "stage1-step1000-tokens5B", "main", "stage1-step30-tokens1B"]
    assert sorted(names, key=step_order) == ["main", names[3], names[1], names[0]]


def test_checkpoints_that_are_named_by_their_epoch_come_in_its_order() -> None:
    epochs = ["0", "0.001813", "0.00725", "0.096069", "1", "1.5", "10"]
    names = [f"runs/a/checkpoints/{epoch}" for epoch in epochs]
    assert sorted(sorted(names), key=step_order) == names
    assert sorted(["1.5", "0.00725", "10", "0.001813"], key=step_order) == ["0.001813", "0.00725", "1.5", "10"]
    assert sorted(["v1.10", "v1.9"], key=step_order) == ["v1.9", "v1.10"], "a version is no number with decimals"


def test_revisions_are_listed_from_the_hub_in_order_of_step(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(hub, "hub_answers", lambda: True)
    listed = refs("main", "step512", "step8", "step143000", tags=("step64", "v1"))
    monkeypatch.setattr(huggingface_hub, "list_repo_refs", lambda name: asked.append(name) or listed)
    found = find_models(["EleutherAI/pythia-160m@step*"])
    assert asked == ["EleutherAI/pythia-160m"]
    steps = ["step8", "step64", "step512", "step143000"]
    assert [source.model for source in found] == [
        HubModel("EleutherAI/pythia-160m", step, f"commit of {step}") for step in steps
    ]
    assert [source.name for source in found] == [f"EleutherAI/pythia-160m@{step}" for step in steps]
    monkeypatch.setattr(find, "hub_answers", lambda: pytest.fail("the hub has just answered"))
    place = place_of(found[0])
    assert (place.path, place.revision, place.is_local) == ("EleutherAI/pythia-160m", "commit of step8", False)


def test_what_the_hub_does_not_have_is_said_with_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "hub_answers", lambda: True)
    monkeypatch.setattr(huggingface_hub, "list_repo_refs", lambda name: refs("main", "step10", "step9"))
    with pytest.raises(ModelError, match=r"a/b@epoch\*: matches no revision. 3 are on the hub: .*step9, step10"):
        find_models(["a/b@epoch*"])

    def refuse(name: str) -> Any:
        raise OSError("401 Client Error: gated")

    monkeypatch.setattr(huggingface_hub, "list_repo_refs", refuse)
    with pytest.raises(ModelError, match="a/b: the hub does not list its revisions: 401 Client Error: gated"):
        find_models(["a/b@step*"])


def test_without_the_hub_its_cache_is_searched(no_hub: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for step in (10, 9):
        cached(no_hub, f"step{step}", f"{step:040}")
    (no_hub / "models--EleutherAI--tiny" / "refs" / "step11").write_text("1" * 40)  # fetched without a model
    found = find_models(["EleutherAI/tiny@step*"])
    assert [source.model for source in found] == [
        HubModel("EleutherAI/tiny", f"step{step}", f"{step:040}", is_cached=True) for step in (9, 10)
    ]
    assert "the hub cannot be reached; 2 in its cache match" in capsys.readouterr().err
    assert place_of(found[0]).path.endswith(f"{9:040}")


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (
            "EleutherAI/tiny@epoch*",
            r"matches no revision. 1 are in the hub's cache, as the hub cannot be reached: step1",
        ),
        ("nobody/nothing@step*", "0 are in the hub's cache, as the hub cannot be reached: none"),
        ("nowhere/step*", "matches no folder or file here"),
        ("Eleuther*/x@main", "matches no folder or file here"),
        ("*", "none of which is a model"),
    ],
)
def test_a_pattern_that_matches_nothing_is_a_clear_error_at_once(
    pattern: str, message: str, no_hub: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached(no_hub, "step1", COMMIT)
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "notes.txt").write_text("")
    monkeypatch.chdir(tmp_path / "here")
    start = time.monotonic()
    with pytest.raises(ModelError, match=message):
        find_models([pattern])
    assert time.monotonic() - start < 5
