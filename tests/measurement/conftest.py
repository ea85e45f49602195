from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from collapselab.corpus.blocks import Corpus
from collapselab.corpus.build import Recipe, build_corpus
from collapselab.corpus.sources import open_source
from collapselab.models.build import build_config, build_model


@pytest.fixture(autouse=True, scope="package")
def one_thread() -> Iterator[None]:
    """Operations this small cost more in waiting for a second thread than in work.

    For the whole package, so that what a module measures once is measured as its tests measure.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Small stories in blocks of 32."""
    source = open_source(["storyworld:stories=12,validation=4"])
    return build_corpus(source, tmp_path_factory.mktemp("corpora") / "stories", Recipe(tokenizer="bpe:300", block=32))


@pytest.fixture(scope="session")
def few(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """A corpus of some hundred tokens."""
    source = open_source(["storyworld:stories=2,validation=1"])
    return build_corpus(source, tmp_path_factory.mktemp("few") / "corpus", Recipe(tokenizer="characters", block=32))


@pytest.fixture(scope="session")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Sentences of small stories, one a block: most are shorter than the block, some longer."""
    folder = tmp_path_factory.mktemp("documents")
    for name, story in (("train", 0), ("validation", 1)):
        stories = list(open_source([f"storyworld:stories=6,validation=1,seed={story}"]).train.open())
        sentences = [f"{sentence}." for text in stories for sentence in text.split(".") if len(sentence) > 1]
        (folder / f"{name}.txt").write_text("\n<|endoftext|>\n".join(sentences))
    source = open_source([str(folder / "train.txt")], validation=[str(folder / "validation.txt")])
    corpus = build_corpus(source, folder / "corpus", Recipe(tokenizer="bpe:300", block=32, packing="document"))
    assert corpus.train.lengths is not None
    assert corpus.train.lengths.min() < 12
    assert 0 < corpus.record.splits.train.documents_cut < len(corpus.train) / 2
    return corpus


@pytest.fixture(scope="session")
def model() -> torch.nn.Module:
    """A GPT-Neo that was never trained, its vocabulary padded beyond that of the corpus.

    In float64, so that no tolerance has to make room for the rounding of the forward pass.
    """
    return build_model(build_config("gpt-neo", width=12, depth=2, vocabulary=320, positions=32), seed=0).eval().double()


@pytest.fixture(scope="session")
def folder(model: torch.nn.Module, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same model on disk, in float64."""
    path = tmp_path_factory.mktemp("models") / "tiny"
    model.save_pretrained(path)  # type: ignore[operator]
    return path
