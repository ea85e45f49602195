"""Recipes with `models:`: each model an entry of its own, measured by a launcher, found again, collected."""

from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from collapselab.corpus.build import Recipe, build_corpus
from collapselab.corpus.sources import open_source
from collapselab.errors import ConfigError, ModelError
from collapselab.models.build import build_config, build_model
from collapselab.records.tables import read_tables
from collapselab.suite import run as suites
from collapselab.suite.folder import SuiteFolder, open_suite
from collapselab.suite.plan import ModelEntry
from collapselab.suite.recipe import load_suite, parse_suite, shipped_names

STORIES = "storyworld:stories=12,validation=4"


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    corpus = build_corpus(open_source([STORIES]), tmp_path / "corpus", Recipe(tokenizer="bpe:300", block=32))
    for step in (0, 5, 10):
        config = build_config("gpt-neo", width=8, depth=1, vocabulary=corpus.vocabulary, positions=32)
        folder = tmp_path / "zoo" / f"step{step}"
        build_model(config, seed=step).save_pretrained(folder)  # type: ignore[operator]
        corpus.tokenizer().save_pretrained(folder)
    path = tmp_path / "recipe.yaml"
    document = {
        "question": "What of these?", "models": [str(tmp_path / "zoo" / "step*")], "data": {"source": STORIES},
        "measure": {"tokens": 200},
    }  # fmt: skip
    path.write_text(yaml.safe_dump(document))
    return path


def test_every_model_is_measured_once_and_collected(recipe: Path, tmp_path: Path) -> None:
    suite, folder = load_suite(recipe), SuiteFolder(tmp_path / "suite")
    entries = suites.plan(suite, folder).entries
    assert [Path(entry.model).name for entry in entries if isinstance(entry, ModelEntry)] == [
        "step0",
        "step5",
        "step10",
    ]
    done = suites.run(suite, folder, start_method="fork")
    assert [state.stage for state in done.states] == ["done"] * 3
    tables = read_tables(folder.path)
    assert [(run["checkpoint"], run["step"]) for run in tables.runs] == [("step0", 0), ("step5", 5), ("step10", 10)]  # type: ignore[typeddict-item]
    assert len({(row.run, row.checkpoint) for row in tables.rows}) == 3
    files = {path: path.stat().st_mtime_ns for path in (folder.path / "models").glob("*.json")}
    again = suites.run(open_suite(folder.path)[0], folder, start_method="fork")
    assert [state.stage for state in again.states] == ["done"] * 3
    assert {path: path.stat().st_mtime_ns for path in (folder.path / "models").glob("*.json")} == files
    assert len(files) == 3


def test_a_model_that_fails_is_kept_with_its_reason_and_tried_again(recipe: Path, tmp_path: Path) -> None:
    weights = tmp_path / "zoo" / "step5" / "model.safetensors"
    good = weights.read_bytes()
    weights.write_bytes(b"damaged")
    suite, folder = load_suite(recipe), SuiteFolder(tmp_path / "suite")
    done = suites.run(suite, folder, start_method="fork")
    assert [state.stage for state in done.states] == ["done", "failed", "done"]
    assert done.failed[0].why is not None
    assert "step5" in done.failed[0].why
    assert len(read_tables(folder.path).runs) == 2
    weights.write_bytes(good)
    assert [state.stage for state in suites.run(suite, folder, start_method="fork").states].count("failed") == 1
    again = suites.run(suite, folder, retry_failed=True, start_method="fork")
    assert [state.stage for state in again.states] == ["done"] * 3
    assert len(read_tables(folder.path).runs) == 3


def test_a_script_for_a_cluster_names_as_many_jobs_as_models(recipe: Path, tmp_path: Path) -> None:
    suite, folder = load_suite(recipe), SuiteFolder(tmp_path / "suite")
    assert "--array=0-2" in suites.script(suite, folder, launcher="slurm")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("models: []", r"line 3: models: \[\] is not valid"),
        ("models: [3]", r"line 3: models\[0\]: 3 is not valid"),
        ("models: [a/b]\ngrid: {width: [64]}", "a recipe with `models` trains nothing. Leave it out"),
        ("grid: {width: [64]}", "is for `models`; runs are trained on a corpus"),
        ("models: [a/b]\nmodel: x", "Did you mean models"),
    ],
)
def test_what_does_not_go_together_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_suite(f"question: What?\ndata: {{source: storyworld}}\n{text}\n", name="mine")


def test_a_pattern_that_matches_nothing_stops_the_plan(recipe: Path, tmp_path: Path) -> None:
    document: dict[str, Any] = yaml.safe_load(recipe.read_text()) | {"models": [str(tmp_path / "zoo" / "epoch*")]}
    recipe.write_text(yaml.safe_dump(document))
    with pytest.raises(ModelError, match="matches no folder or file here"):
        suites.plan(load_suite(recipe), SuiteFolder(tmp_path / "suite"))


@pytest.mark.parametrize("name", ["pythia", "polypythia", "olmo"])
@pytest.mark.parametrize("scale", ["full", "small"])
def test_the_shipped_ones_name_models_and_a_text(name: str, scale: str) -> None:
    assert name in shipped_names()
    suite = load_suite(name, scale=scale)
    assert suite.models
    assert suite.data is not None
    assert not suite.runs
    assert all("@" in model for model in suite.models)
