"""How much of the package one measurement with default options runs through: functions, files, depth of the stack.

    python tests/measurement/test_trace.py

prints the same by file. The limits keep a measurement readable: raise one only for something a reader must know.
"""

import sys
import tempfile
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import collapselab
from collapselab.corpus.blocks import Corpus
from collapselab.corpus.build import Recipe, build_corpus
from collapselab.corpus.sources import open_source
from collapselab.measurement.measure import measure
from collapselab.models.build import build_config, build_model

ROOT = str(Path(collapselab.__file__).parent) + "/"
FUNCTIONS, FILES, DEPTH = 455, 46, 23


def traced(folder: Path, corpus: Corpus) -> tuple[set[tuple[str, str]], int]:
    """The functions of ours that measuring a model on disk calls, as (file, name), and the deepest stack of them."""
    functions: set[tuple[str, str]] = set()
    deepest = 0

    def note(frame: FrameType, event: str, _: Any) -> None:
        nonlocal deepest
        file, name = frame.f_code.co_filename, frame.f_code.co_qualname
        if event != "call" or not file.startswith(ROOT) or name.endswith(">"):  # comprehensions, lambdas
            return
        functions.add((file.removeprefix(ROOT), name))
        depth, outer = 0, frame
        while outer is not None:
            depth += outer.f_code.co_filename.startswith(ROOT)
            outer = outer.f_back  # type: ignore[assignment]
        deepest = max(deepest, depth)

    sys.setprofile(note)
    try:
        measure(folder, corpus, quiet=True)
    finally:
        sys.setprofile(None)
    return functions, deepest


def save_model(folder: Path) -> Path:
    config = build_config("gpt-neo", width=16, depth=2, vocabulary=320, positions=32, head_size=16)
    build_model(config, seed=0).save_pretrained(folder)
    return folder


def test_a_measurement_runs_through_few_functions(corpus: Corpus, tmp_path: Path) -> None:
    model = save_model(tmp_path / "model")
    measure(model, corpus, quiet=True)  # what is imported or cached once is no part of a measurement
    functions, depth = traced(model, corpus)
    assert 100 < len(functions) <= FUNCTIONS
    assert len({file for file, _ in functions}) <= FILES
    assert depth <= DEPTH


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = open_source(["storyworld:stories=12,validation=4"])
        corpus = build_corpus(source, folder / "corpus", Recipe(tokenizer="bpe:300", block=32))
        model = save_model(folder / "model")
        measure(model, corpus, quiet=True)
        functions, depth = traced(model, corpus)
    files = Counter(file for file, _ in functions)
    for file, count in sorted(files.items()):
        print(f"{count:4} {file}")
    print(f"{len(functions)} functions in {len(files)} files, stack {depth} deep")


if __name__ == "__main__":
    main()
