"""What a suite costs beside its runs: planning ten thousand of them, and the time that is not training or measuring.

The overhead is timed inside one process, from outside the calls of training and measuring: what is left is locking,
looking, recording and writing the tables, whatever else the machine is doing.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.timing import Line, at_most, shown
from collapselab.corpus.build import Recipe, build_corpus
from collapselab.corpus.sources import open_source
from collapselab.suite import job as work
from collapselab.suite import run as suites
from collapselab.suite.collect import collect
from collapselab.suite.corpora import CorpusFacts
from collapselab.suite.folder import SuiteFolder
from collapselab.suite.plan import plan_suite
from collapselab.suite.recipe import parse_suite

RUNS = 10_000
RECIPE = """
question: How long does it take?
corpus: {corpus}
base: {{lr: 1e-3, batch: 16, steps: {steps}}}
grid:
  width: {widths}
  depth: {depths}
  seed: {seeds}
measure: {{tokens: 50000}}
"""


def planning(quick: bool) -> list[Line]:
    """From the recipe's text to the names, sizes and costs of all runs: 20 architectures, 500 seeds each."""
    text = RECIPE.format(
        corpus="{source: storyworld}",
        steps=100,
        widths=[32, 64, 96, 128, 160],
        depths=[1, 2, 3, 4],
        seeds=list(range(500)),
    )
    corpus = CorpusFacts("corpus", Path("nowhere"), "0" * 16, 256, 10_000, 100, 4096)
    _plan(
        text.replace(f"{list(range(500))}", "[0]"), corpus
    )  # the libraries are imported once, by whatever comes first
    start = time.process_time()  # one thread, no waiting: what others do on the machine is not counted
    planned, flops = _plan(text, corpus)
    seconds = time.process_time() - start
    assert planned == RUNS, planned
    assert flops > 0
    return [at_most(f"planning {RUNS:,} runs", seconds, 2, "s", ours=shown(seconds))]


def overhead(quick: bool) -> list[Line]:
    """Time of a suite of small runs that is neither training nor measuring, as a share of what is."""
    steps, seeds = (40, [0]) if quick else (150, [0, 1])
    with tempfile.TemporaryDirectory() as place:
        corpus = Path(place) / "corpus"
        build_corpus(open_source(["storyworld:stories=600,validation=60"]), corpus, Recipe("bpe:1024", block=128))
        text = RECIPE.format(corpus=corpus, steps=steps, widths=[32, 64], depths=[2], seeds=seeds)
        suite, folder = parse_suite(text, name="mine"), SuiteFolder(Path(place) / "suite")
        _warm_up(corpus, Path(place) / "before")
        with _timed() as inside:
            start = time.process_time()
            entries = suites.prepare(suite, folder).entries
            for entry in entries:
                outcome = work.perform(folder, entry, suite.measure, device="cpu")
                assert outcome.result == "done", outcome.why
                suites.status(suite, folder)
                collect(folder)
            total = time.process_time() - start
    own = sum(inside)
    share = 100 * (total - own) / own
    times = {"ours": shown(total - own), "limit": f"runs {shown(own)}"}
    return [at_most(f"overhead of a suite of {len(entries)} small runs", share, 2, "%", **times)]


def _warm_up(corpus: Path, folder: Path) -> None:
    """One run that is not counted: it imports what all runs need, as the workers of a suite do before the first."""
    suite = parse_suite(RECIPE.format(corpus=corpus, steps=2, widths=[16], depths=[1], seeds=[0]), name="before")
    for entry in suites.prepare(suite, SuiteFolder(folder)).entries:
        work.perform(SuiteFolder(folder), entry, suite.measure, device="cpu")


def _plan(text: str, corpus: CorpusFacts) -> tuple[int, float]:
    entries = plan_suite(parse_suite(text, name="mine"), {"corpus": corpus}).entries
    return len(entries), sum(entry.flops for entry in entries)


@contextmanager
def _timed() -> Iterator[list[float]]:
    """Seconds of every training and measurement while the block runs."""
    seconds: list[float] = []

    def timed(real: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any) -> Any:
            start = time.process_time()
            try:
                return real(*given)
            finally:
                seconds.append(time.process_time() - start)

        return run

    before = work._train, work._measure
    work._train, work._measure = timed(work._train), timed(work._measure)
    try:
        yield seconds
    finally:
        work._train, work._measure = before


ALL = {"planning": planning, "overhead": overhead}
