from pathlib import Path

import pytest

from collapselab.corpus.build import Recipe, build_corpus
from collapselab.corpus.sources import open_source


@pytest.fixture(scope="session")
def corpus_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small corpus of storyworld: 300 tokens, blocks of 32."""
    folder = tmp_path_factory.mktemp("corpus") / "storyworld"
    source = open_source(["storyworld:stories=60,validation=8,seed=1"])
    build_corpus(source, folder, Recipe(tokenizer="bpe:300", block=32))
    return folder


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Trainings that show an effect take minutes; they run when they are asked for."""
    if "effects" in config.option.markexpr:
        return
    asked_for = [item for item in items if "effects" in item.keywords]
    if asked_for:
        config.hook.pytest_deselected(items=asked_for)
        items[:] = [item for item in items if "effects" not in item.keywords]
