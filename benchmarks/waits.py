"""How often the host waits for the device, counted on the simulated device of the tests."""

import sys
import tempfile
from pathlib import Path

from benchmarks.timing import Line, at_most, in_a_process

TESTS = Path(__file__).parents[1] / "tests"


def in_process(depth: int) -> dict[str, float]:
    """The most waits in a batch of each pass over all layers with null, and in a step with two interventions."""
    sys.path.insert(0, str(TESTS))
    from collapselab import build_corpus
    from collapselab.corpus.build import Recipe
    from collapselab.corpus.sources import open_source
    from waits import measured_with_waits, waits_of_step  # type: ignore[import-not-found]

    with tempfile.TemporaryDirectory() as folder:
        source = open_source(["storyworld:stories=20,validation=5"])
        corpus = build_corpus(source, Path(folder) / "corpus", Recipe(tokenizer="bpe:300", block=32))
        found = measured_with_waits(corpus, depth)[1]
    most = {split: max(waits.total() for waits in batches) for split, batches in found.items()}
    return {**most, "step": waits_of_step("within:+0.1", "uniform:+0.1").total()}


def waits(quick: bool) -> list[Line]:
    """Of batches and steps, at most; the model's own forward pass has one of the waits of a batch."""
    lines = []
    for depth in (2,) if quick else (2, 6):
        found = in_a_process("benchmarks.waits", "in_process", depth)
        lines += [
            at_most(f"waits for the device, {depth} blocks: a training batch", found["train"], 2, ""),
            at_most(f"waits for the device, {depth} blocks: a validation batch", found["validation"], 6, ""),
        ]
    return [*lines, at_most("waits for the device: a step with two interventions", found["step"], 1, "")]


ALL = {"waits": waits}
