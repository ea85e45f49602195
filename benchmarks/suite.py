"""What a suite costs beside its runs: planning ten thousand of them, and the time that is not training or measuring.

The overhead is timed inside one process, from outside the calls of training and measuring: what is left is locking,
looking, recording and writing the tables, whatever else the machine is doing. What libraries take to be imported is not
counted: the workers of a suite share it.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from benchmarks.timing import Line, at_most, shown
from collapselab.core.threads import threads
from collapselab.corpus.build import Recipe, build_corpus
from collapselab.corpus.sources import open_source
from collapselab.measurement import measure as measuring
from collapselab.suite import job as work
from collapselab.suite import run as suites
from collapselab.suite.collect import collect
from collapselab.suite.folder import SuiteFolder
from collapselab.suite.plan import CorpusFacts, plan_suite
from collapselab.suite.recipe import parse_suite
from collapselab.training import train as training

RUNS = 10_000
STEPS, FEW_STEPS = 825, 2
"""Of a training beside which measuring is set; and of one that shows what does not grow with them."""
RECIPE = """
question: How long does it take?
corpus: {corpus}
base: {{lr: 1e-3, batch: 8, steps: {steps}, head_size: 16}}
grid:
  width: {widths}
  depth: {depths}
  seed: {seeds}
measure: {{tokens: {tokens}}}
"""


def planning(quick: bool) -> list[Line]:
    """From the recipe's text to the names, sizes and costs of all runs: 20 architectures, 500 seeds each."""
    text = RECIPE.format(
        tokens=100_000,
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


def overhead(quick: bool) -> Iterator[Line]:
    """Time of a suite of small runs that is neither training nor measuring; and measuring beside training."""
    steps, widths, seeds, tokens = (40, [64], [0], 10_000) if quick else (80, [32, 64], [0, 1], 100_000)
    with tempfile.TemporaryDirectory() as place:
        corpus = Path(place) / "corpus"
        build_corpus(open_source(["storyworld:stories=600,validation=200"]), corpus, Recipe("bpe:1024", block=128))
        few = _performed(Path(place) / "few", corpus, steps=FEW_STEPS, widths=[64], seeds=[0, 1], tokens=1000)
        found = _performed(Path(place) / "suite", corpus, steps=steps, widths=widths, seeds=seeds, tokens=tokens)
    yield _beside(found)
    if not quick:
        yield _measuring(found, steps, few.trained[64][-1])  # the first imports what all need


def _beside(found: "_Performed") -> Line:
    own = sum(map(sum, (*found.trained.values(), *found.measured.values())))
    times = {"ours": shown(found.seconds - own), "limit": f"runs {shown(own)}"}
    runs = sum(map(len, found.trained.values()))
    what = f"overhead of a suite of {runs} small runs"
    return at_most(what, 100 * (found.seconds - own) / own, 2, "%", **times)


def _measuring(found: "_Performed", steps: int, start: float) -> Line:
    """One measurement beside a whole training; a training that has hardly a step takes `start`."""
    measuring = statistics.mean(found.measured[64])
    step = (statistics.mean(found.trained[64]) - start) / (steps - FEW_STEPS)
    training = start + (STEPS - FEW_STEPS) * step
    times = {"ours": shown(measuring), "limit": f"training {shown(training)}"}
    what = f"measuring 2 × 64, 100,000 tokens: share of {STEPS} steps"
    return at_most(what, 100 * measuring / training, 10, "%", **times)


@final
@dataclass
class _Performed:
    """Processor seconds of a suite, and of every training and measurement in it, by the width of the model."""

    trained: dict[int, list[float]] = field(default_factory=dict)
    measured: dict[int, list[float]] = field(default_factory=dict)
    seconds: float = 0.0


def _performed(place: Path, corpus: Path, **sizes: object) -> _Performed:
    """A suite in this process, on one thread as each of several workers has it."""
    suite = parse_suite(RECIPE.format(corpus=corpus, depths=[2], **sizes), name="mine")
    folder, found = SuiteFolder(place), _Performed()
    with threads(1), _timed(training, "train", found.trained), _timed(measuring, "measure", found.measured):
        start = time.process_time()
        for entry in suites.prepare(suite, folder).entries:
            outcome = work.perform(folder, entry, suite.measure, device="cpu")
            assert outcome.result == "done", outcome.why
            suites.status(suite, folder)
            collect(folder)
        found.seconds = time.process_time() - start
    return found


def _plan(text: str, corpus: CorpusFacts) -> tuple[int, float]:
    entries = plan_suite(parse_suite(text, name="mine"), {"corpus": corpus}).entries
    return len(entries), sum(entry.flops for entry in entries)


@contextmanager
def _timed(module: Any, name: str, seconds: dict[int, list[float]]) -> Iterator[None]:
    """Keep the seconds of every call of this function, which jobs import when they run, while the block runs."""
    real: Callable[..., Any] = getattr(module, name)

    def run(*given: Any, **named: Any) -> Any:
        start = time.process_time()
        result = real(*given, **named)
        width = given[0].width if hasattr(given[0], "width") else given[0].run.record().settings["width"]
        seconds.setdefault(width, []).append(time.process_time() - start)
        return result

    setattr(module, name, run)
    try:
        yield
    finally:
        setattr(module, name, real)


ALL = {"planning": planning, "overhead": overhead}
