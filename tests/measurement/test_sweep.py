"""Many models, one finished file each: written as it is done, found again, and nothing lost."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

from collapselab import load_results, measure
from collapselab.corpus.blocks import Corpus
from collapselab.corpus.build import Recipe, build_corpus
from collapselab.corpus.sources import open_source
from collapselab.errors import ConfigError, ModelError
from collapselab.measurement import measure as module
from collapselab.models import load
from collapselab.models.build import build_config, build_model
from collapselab.records.measurement import Result, Results
from collapselab.records.result_folder import out_folder, result_file

TINY: dict[str, Any] = {"tokens": 200, "quiet": True}


def saved(path: Path, *, seed: int = 0, width: int = 8) -> Path:
    config = build_config("gpt-neo", width=width, depth=1, vocabulary=320, positions=32)
    build_model(config, seed=seed).save_pretrained(path)  # type: ignore[operator]
    return path


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sweep")
    for step in (10, 0, 2):
        saved(folder / f"step{step}", seed=step)
    return folder


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory, corpus: Corpus) -> Corpus:
    """Another corpus of the same tokenizer."""
    source = open_source(["storyworld:stories=12,validation=4,seed=5"])
    recipe = Recipe(tokenizer=str(corpus.path / "tokenizer"), block=32)
    return build_corpus(source, tmp_path_factory.mktemp("corpora") / "second", recipe)


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*"))


def test_each_model_and_corpus_gets_a_file_and_its_own_numbers(
    checkpoints: Path, corpus: Corpus, second: Corpus, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    results = measure(str(checkpoints / "step*"), [corpus, second], out=out, **TINY)
    assert isinstance(results, Results)
    steps = [Path(result.name).name for result in results]
    assert steps == ["step0", "step2", "step10"] * 2
    assert [result.facts["corpus_hash"] for result in results] == [corpus.hash] * 3 + [second.hash] * 3
    assert len(files(out)) == 6
    stored = load_results(out)
    assert len(stored) == 6
    for result, on in zip(results, [corpus] * 3 + [second] * 3, strict=True):
        alone = measure(result.name, on, **TINY)
        assert isinstance(alone, Result)
        assert alone.rows == result.rows
        assert any(one.rows == result.rows and one.facts == result.facts for one in stored)


def test_a_repeated_sweep_loads_nothing(checkpoints: Path, corpus: Corpus, tmp_path: Path, monkeypatch: Any) -> None:
    out = tmp_path / "out"
    first = measure(str(checkpoints / "step*"), corpus, out=out, **TINY)
    before = {path: path.stat().st_mtime_ns for path in out.glob("*")}
    monkeypatch.setattr(load, "load_model", lambda *_, **__: pytest.fail("it is measured already"))
    monkeypatch.chdir(checkpoints.parent)
    again = measure(f"{checkpoints.name}/step*", corpus, out=out, **TINY)  # by another name of the same folders
    assert [result.rows for result in again] == [result.rows for result in first]  # type: ignore[union-attr]
    assert {path: path.stat().st_mtime_ns for path in out.glob("*")} == before
    assert len(before) == 3


def test_another_model_in_the_same_place_is_measured_in_place_of_the_old(corpus: Corpus, tmp_path: Path) -> None:
    model, out = saved(tmp_path / "model", seed=1), tmp_path / "out"
    first = measure(str(model), corpus, out=out, **TINY)
    shutil.rmtree(model)
    second = measure(str(saved(model, seed=2)), corpus, out=out, **TINY)
    assert isinstance(first, Result)
    assert isinstance(second, Result)
    assert first.rows != second.rows
    assert len(files(out)) == 1
    assert load_results(out)[0].rows == second.rows


def test_each_is_written_as_soon_as_it_is_done(
    checkpoints: Path, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, seen = tmp_path / "out", []
    plain = module.measure_model

    def measured(*args: Any) -> Any:
        seen.append(len(list(out.glob("*.json"))))
        return plain(*args)

    monkeypatch.setattr(module, "measure_model", measured)
    measure(str(checkpoints / "step*"), corpus, out=out, **TINY)
    assert seen == [0, 1, 2]


def test_one_that_fails_does_not_stop_the_others(checkpoints: Path, corpus: Corpus, tmp_path: Path) -> None:
    models = tmp_path / "models"
    shutil.copytree(checkpoints, models)
    (models / "step2" / "model.safetensors").write_bytes(b"damaged")
    results = measure(str(models / "step*"), corpus, out=tmp_path / "out", **TINY)
    assert isinstance(results, Results)
    assert [Path(result.name).name for result in results] == ["step0", "step10"]
    assert [Path(name).name for name in results.failures] == ["step2"]
    assert len(files(tmp_path / "out")) == 2


def test_revisions_of_the_hub_are_found_again_by_their_commit(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through the hub's cache, as it is where there is no network."""
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    repository = tmp_path / "hub" / "models--lab--tiny"
    (repository / "refs").mkdir(parents=True)
    for step in (0, 8, 16):
        (repository / "refs" / f"step{step}").write_text(f"{step:040}")
        saved(repository / "snapshots" / f"{step:040}", seed=step)
    results = measure("lab/tiny@step*", corpus, out=tmp_path / "out", **TINY)
    assert isinstance(results, Results)
    assert [result.facts["checkpoint"] for result in results] == ["step0", "step8", "step16"]
    assert [result.facts["commit"] for result in results] == [f"{step:040}" for step in (0, 8, 16)]
    assert all(name.startswith("lab--tiny@step") for name in files(tmp_path / "out"))
    monkeypatch.setattr(load, "load_model", lambda *_, **__: pytest.fail("it is measured already"))
    again = measure("lab/tiny@step*", corpus, out=tmp_path / "out", **TINY)
    assert [result.rows for result in again] == [result.rows for result in results]  # type: ignore[union-attr]


def test_a_folder_of_something_else_is_refused(checkpoints: Path, corpus: Corpus) -> None:
    with pytest.raises(ConfigError, match="a model"):
        measure(str(checkpoints / "step0"), corpus, out=checkpoints / "step0", **TINY)
    with pytest.raises(ConfigError, match="the folder of a corpus"):
        measure(str(checkpoints / "step0"), corpus, out=corpus.path, **TINY)
    with pytest.raises(ModelError, match="matches no folder"):
        measure(str(checkpoints / "epoch*"), corpus, **TINY)


def test_what_names_a_folder(tmp_path: Path) -> None:
    (tmp_path / "v1.4").mkdir()
    assert out_folder("pythia") == out_folder("pythia/") == Path("pythia")
    assert out_folder("pythia-1.4b/") == Path("pythia-1.4b")
    assert out_folder(tmp_path / "v1.4") == tmp_path / "v1.4"
    assert out_folder("rows.csv") is out_folder("rows.xlsx") is out_folder(None) is None


def test_any_name_gives_a_file_inside_the_folder(tmp_path: Path) -> None:
    for name in ("../../etc/passwd", "/a/b c/d\n", "x" * 300, "..", "lab/tiny@refs/pr/1", ".hidden"):
        path = result_file(tmp_path, name, "0" * 16)
        assert path.parent == tmp_path
        assert len(path.name) < 130
        assert not path.name.startswith(".")
        path.write_text("")
    assert len(files(tmp_path)) == 6


SWEEP = """
import sys, time
start = time.perf_counter()
from collapselab.cli import app
app(["measure", sys.argv[1], "--corpus", sys.argv[2], "--out", sys.argv[3], "--tokens", "200", "--json"], standalone_mode=False)
"""


@pytest.mark.slow
def test_repeating_a_sweep_of_twenty_takes_less_than_five_seconds(corpus: Corpus, tmp_path: Path) -> None:
    for step in range(20):
        saved(tmp_path / "models" / f"step{step}", seed=step)
    measure(str(tmp_path / "models" / "step*"), corpus, out=tmp_path / "out", **TINY)
    command = [sys.executable, "-c", SWEEP, str(tmp_path / "models" / "step*"), str(corpus.path), str(tmp_path / "out")]
    before = os.times()
    start = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
    after = os.times()
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    assert len(json.loads(done.stdout)["results"]) == 20
    assert done.stderr.count("measured already") == 20
    assert min(spent, time.monotonic() - start) < 5
