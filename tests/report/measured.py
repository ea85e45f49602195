"""Small measured models, for the pages of one model and of several."""

from pathlib import Path

import torch

from collapselab import measure
from collapselab.corpus.build import Recipe, build_corpus
from collapselab.corpus.sources import open_source
from collapselab.models.build import build_config, build_model


def measure_models(folder: Path, *, widths: tuple[int, ...] = (16, 32)) -> Path:
    """Measure random models of these widths; return the folder of their results."""
    torch.set_num_threads(1)
    source, recipe = open_source(["storyworld:stories=60,validation=20,seed=1"]), Recipe(tokenizer="bpe:300", block=32)
    corpus = build_corpus(source, folder / "corpus", recipe)
    for width in widths:
        model = folder / f"neo-{width}"
        config = build_config("gpt-neo", width=width, depth=2, vocabulary=300, positions=32)
        build_model(config, seed=0).save_pretrained(model)  # type: ignore[operator]
        corpus.tokenizer().save_pretrained(model)
        options = {"layers": "all", "classes": True, "bins": 2, "device": "cpu", "quiet": True}
        measure(str(model), corpus, out=f"{folder}/results/", **options)  # type: ignore[arg-type]
    return folder / "results"


def result_of(results: Path, width: int) -> Path:
    """Return the file of one of these models."""
    (path,) = (path for path in results.glob("*.json") if f"neo-{width}" in path.name)
    return path
