from pathlib import Path
from typing import Any

import pytest

from collapselab.corpus.build import Recipe, build_corpus
from collapselab.corpus.sources import open_source


@pytest.fixture(autouse=True)
def always_one_thread(one_thread: None) -> None:
    """Fork goes well with one."""


@pytest.fixture(scope="session")
def corpus_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small corpus of storyworld: 300 tokens, blocks of 32."""
    folder = tmp_path_factory.mktemp("corpus") / "storyworld"
    build_corpus(open_source(["storyworld:stories=30,validation=5,seed=1"]), folder, Recipe("bpe:300", block=32))
    return folder


@pytest.fixture(scope="session")
def tiny(corpus_folder: Path) -> dict[str, Any]:
    """A recipe of three runs that take a moment each."""
    return {
        "question": "Does it work?",
        "corpus": str(corpus_folder),
        "base": {"depth": 1, "lr": 3e-3, "batch": 4, "steps": 6},
        "grid": {"width": [8, 12, 16]},
        "measure": {"tokens": 400},
    }
