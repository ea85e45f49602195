"""Trainings that start from the weights of another run: chains such as pre-training and fine-tuning."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from collapselab.corpus.build import Recipe, build_corpus
from collapselab.corpus.sources import open_source
from collapselab.errors import ConfigError
from collapselab.records.run import RunFolder, identity
from collapselab.training.settings import resolved, settings_from
from training.runs import SMALL, assert_same_bits, run, run_in_two, weights


@pytest.fixture(scope="module")
def base(corpus_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bases") / "base"
    run(corpus_folder, folder, seed=7)
    return folder


@pytest.fixture(scope="module")
def other_text(corpus_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Other stories in the same tokens, as one builds them to fine-tune a model."""
    folder = tmp_path_factory.mktemp("other") / "corpus"
    tokenizer = str(corpus_folder / "tokenizer")
    build_corpus(open_source(["storyworld:stories=40,seed=9"]), folder, Recipe(tokenizer=tokenizer, block=32))
    return folder


def test_a_training_starts_from_the_weights_of_a_run_and_resumes_to_the_same_bits(
    base: Path, other_text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(other_text, tmp_path / "whole", init_from=str(base))
    assert_same_bits(weights(tmp_path / "whole", first=True), weights(base))
    assert any(
        (a != b).any() for a, b in zip(weights(tmp_path / "whole").values(), weights(base).values(), strict=True)
    )
    run_in_two(other_text, tmp_path / "two", monkeypatch, init_from=str(base))
    assert_same_bits(weights(tmp_path / "whole"), weights(tmp_path / "two"))


def test_a_run_is_known_by_the_weights_it_started_from(base: Path, tmp_path: Path) -> None:
    shutil.copytree(base, tmp_path / "moved")
    last = RunFolder(base).checkpoint_names()[-1]
    places: list[dict[str, Any]] = [{}] + [
        {"init_from": str(place)}
        for place in (base, tmp_path / "moved", base / "checkpoints" / last, base / "checkpoints" / "0")
    ]
    scratch, *started = (identity(resolved(settings_from(SMALL | place)), "corpus") for place in places)
    assert started[0] == started[1] == started[2]
    assert len({scratch, started[0], started[3]}) == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"depth": 2}, "init_from: .*has another architecture: transformer.h.1"),
        ({"family": "gpt2"}, "init_from: .*has another architecture"),
        ({"width": 32}, "init_from: .*300 tokens × 16, but this model needs 300 tokens × 32"),
    ],
)
def test_a_run_of_another_architecture_is_refused_before_anything_is_made(
    change: dict[str, Any], message: str, base: Path, other_text: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        run(other_text, tmp_path / "run", init_from=str(base), **change)
    assert not RunFolder(tmp_path / "run").exists()


def test_a_corpus_in_other_tokens_is_refused_with_what_to_do(base: Path, tmp_path: Path) -> None:
    build_corpus(
        open_source(["storyworld:stories=90,seed=9"]), tmp_path / "corpus", Recipe(tokenizer="bpe:300", block=32)
    )
    with pytest.raises(ConfigError, match="init_from: .*another tokenizer .*--tokenizer .*checkpoints"):
        run(tmp_path / "corpus", tmp_path / "run", init_from=str(base))
