"""`measure --chain`: what changes along models that were made from each other."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

from collapselab.analysis.chain import FROM_FIRST, FROM_PREVIOUS, chain
from collapselab.corpus.blocks import Corpus
from collapselab.corpus.build import Recipe, build_corpus
from collapselab.corpus.sources import open_source
from collapselab.errors import ConfigError, RunError
from collapselab.measurement.measure import measure
from collapselab.models.build import build_config, build_model
from collapselab.records.measurement import Results


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    source = open_source(["storyworld:stories=12,validation=4"])
    return build_corpus(source, tmp_path_factory.mktemp("c") / "stories", Recipe(tokenizer="bpe:300", block=32))


@pytest.fixture(scope="module")
def folders(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A model, the same with its features scaled by 2, and another one."""
    root = tmp_path_factory.mktemp("models")
    config = build_config("gpt-neo", width=16, depth=1, vocabulary=corpus.vocabulary, positions=32)
    base = build_model(config, seed=0)
    scaled = copy.deepcopy(base)
    norm: Any = scaled.transformer.ln_f
    with torch.no_grad():
        norm.weight.mul_(2), norm.bias.mul_(2)
    models = {"base": base, "scaled": scaled, "other": build_model(config, seed=1)}
    for name, model in models.items():
        model.save_pretrained(root / name)
        corpus.tokenizer().save_pretrained(root / name)
    return [root / name for name in models]


def test_a_scaled_model_is_alike_and_another_is_not(
    folders: list[Path], corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    results = measure(folders, corpus, classes=True, state=tmp_path / "cache/collapselab/measure", quiet=True)
    assert isinstance(results, Results)
    found = chain(results)
    assert found.table.shape == (11, 3)
    assert found.table.loc[FROM_FIRST].tolist()[:2] == pytest.approx([1, 1], abs=1e-6)
    assert found.table.loc[FROM_FIRST].iloc[2] < 0.9
    assert found.table.loc[FROM_PREVIOUS].isna().tolist() == [True, False, False]
    assert found.table.loc["norm_cv"].iloc[:2].tolist() == pytest.approx(
        [results[0].row("norm_cv").value] * 2, rel=1e-4
    )
    changes = found.moved["change"].abs()
    assert len(changes)
    assert changes.is_monotonic_decreasing
    assert len(found.plot().to_dict()["vconcat"]) == 3


def test_one_model_and_other_texts_are_refused(folders: list[Path], corpus: Corpus, tmp_path: Path) -> None:
    results = measure(folders[:2], corpus, classes=True, quiet=True)
    assert isinstance(results, Results)
    with pytest.raises(ConfigError, match="at least 2"):
        chain(Results(results.results[:1]))
    with pytest.raises(RunError, match="--classes"):
        chain(results)  # not kept: no state was named
    results[1].facts["corpus_hash"] = "another"
    with pytest.raises(ConfigError, match="different corpora"):
        chain(results)
