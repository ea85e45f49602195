"""A small suite with everything a user's folder holds, and the stages that read each kind of file in it.

`Stage.run` does what a user would do next and gives what came of it in a form that can be compared: rows, weights,
tables, a page. Times are left out of everything; they differ from run to run.
"""

import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from collapselab.analysis.analyze import analyze
from collapselab.core.moments import ClassMoments
from collapselab.corpus.blocks import Corpus
from collapselab.measurement.measure import measure
from collapselab.records.measurement import Result
from collapselab.records.tables import PUSH, RESULTS, RUNS
from collapselab.report.report import report
from collapselab.suite import run as suites
from collapselab.suite.collect import collect
from collapselab.suite.folder import SuiteFolder
from collapselab.suite.recipe import load_suite
from collapselab.suite.run import open_suite
from collapselab.training.settings import Settings
from collapselab.training.train import train

RECIPE = {
    "question": "Does it survive?",
    "corpus": {"source": "storyworld:stories=24,validation=8", "tokenizer": "bpe:300", "block": 32},
    "base": {"depth": 1, "width": 16, "lr": 3e-3, "batch": 8, "steps": 6},
    "grid": {"seed": [0, 1]},
    "checkpoints": [0],
    "measure": {"tokens": 600, "bins": 2, "push": "-0.3,0.3"},
}
PERMUTATIONS = 99


class Refused(Exception):
    """A stage that went on, but left something out and said so."""


def make(folder: Path) -> Path:
    """Corpus, runs, measurements, tables, analysis and page, in a folder that must not exist yet."""
    folder.mkdir(parents=True)
    recipe = folder / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(RECIPE))
    suite = SuiteFolder(folder / "suite")
    done = suites.run(load_suite(recipe), suite)
    assert not done.failed
    analyze(suite.path, permutations=PERMUTATIONS)
    report(suite.path)
    kill_when(lambda: train_more(folder), lambda: len(list((folder / "stopped" / "state").glob("[0-9]*"))) > 1)
    kill_when(lambda: measure_more(folder), lambda: len(list((folder / "state").glob("*/train-*.safetensors"))) > 3)
    return folder


def kill_when(work: Callable[[], object], is_time: Callable[[], bool]) -> None:
    """Begin the work in a process of its own, and kill it as soon as it is time."""
    child = os.fork()
    if not child:
        try:
            work()
        finally:
            os._exit(0)
    deadline = time.monotonic() + 120
    while not is_time():
        assert time.monotonic() < deadline, "it did not get that far"
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def train_more(world: Path) -> Any:
    """A run of its own with a table of class means, that saves its state at every step: continued; its weights."""
    settings = Settings(width=16, depth=1, lr=3e-3, batch=8, steps=60, seed=5, intervene=("uniform_means:+0.1",))
    train(settings, corpus_of(world), world / "stopped", save_minutes=0.0)
    return {
        path.name: (path / "model.safetensors").read_bytes()
        for path in sorted((world / "stopped" / "checkpoints").iterdir())
    }


def measure_more(world: Path) -> Any:
    """A model that is no run, measured with everything: continued where it stopped; its rows."""
    model = world / "model"
    if not model.exists():
        shutil.copytree(run_of(world) / "checkpoints" / "0", model)
    result = measure(
        model, corpus_of(world), layers="all", bootstrap=4, tokens=4000, batch=4, state=world / "state", quiet=True
    )
    assert isinstance(result, Result)
    return result.rows


def moments(world: Path) -> Any:
    """The class moments that a measurement keeps."""
    try:
        kept = ClassMoments.load(run_of(world) / "measure" / "0.safetensors")
    except ValueError as error:  # the core's errors are for programs
        raise Refused(str(error)) from error
    return kept.counts.tolist(), kept.sums.numpy().tobytes(), kept.scatter.numpy().tobytes()


def corpus_of(world: Path) -> Path:
    (found,) = (world / "suite" / "corpora").glob("[!.]*")
    return found


def run_of(world: Path) -> Path:
    return min(path.parent for path in (world / "suite").glob("*/run.json"))


def open_corpus(world: Path) -> Any:
    """What training and measuring see of the corpus."""
    corpus = Corpus(corpus_of(world), verify=True)
    tokenizer = corpus.tokenizer()
    ids = [(split.ids.tobytes(), split.counts.tolist()) for split in corpus.splits.values()]
    return corpus.hash, corpus.block, corpus.vocabulary, ids, tokenizer("One day, a bird sang.")["input_ids"]


def measured(world: Path) -> Any:
    """The rows of a checkpoint that is measured from nothing."""
    run = run_of(world)
    shutil.rmtree(run / "measure")
    result = measure(run / "checkpoints" / "0", corpus_of(world), tokens=600, bins=2, push="-0.3,0.3", quiet=True)
    assert isinstance(result, Result)
    return result.rows, result.tables


def trained(world: Path) -> Any:
    """The weights of a run that the same call finds finished, or repairs."""
    run = run_of(world)
    seed = 1 if "-s1-" in run.name else 0
    settings = Settings(width=16, depth=1, lr=3e-3, batch=8, steps=6, seed=seed)
    train(settings, corpus_of(world), run)
    return {path.name: (path / "model.safetensors").read_bytes() for path in sorted((run / "checkpoints").iterdir())}


def collected(world: Path) -> Any:
    """Both tables, made from the records of the runs."""
    _, folder = open_suite(str(world / "suite"))
    tables = collect(folder)
    if tables.refused:
        raise Refused("; ".join(tables.refused))
    suite = world / "suite"
    return without_times(suite / "runs.csv"), RESULTS.read(suite / "results.csv"), PUSH.read(suite / "push.csv")


def status(world: Path) -> Any:
    """Where every run is."""
    suite, folder = open_suite(str(world / "suite"))
    states = suites.status(suite, folder)
    if any(state.stage != "done" for state in states):
        raise Refused("a run is to be measured again")
    return [(state.run, state.step) for state in states]


def analysed(world: Path) -> Any:
    """The summary of an analysis of the tables."""
    found = analyze(world / "suite", permutations=PERMUTATIONS).to_json()
    return json.loads(json.dumps({name: value for name, value in found.items() if name != "directory"}))


def reported(world: Path) -> Any:
    """The page."""
    return report(world / "suite").page.read_text()


def without_times(table: Path) -> list[dict[str, Any]]:
    return [{key: value for key, value in run.items() if key != "seconds"} for run in RUNS.read(table)]


@dataclass(frozen=True)
class Kind:
    """A kind of file, where it is in a world (RUN is the run that is read), and what reads it next."""

    name: str
    pattern: str
    reads: tuple[Callable[[Path], Any], ...]

    def files(self, world: Path) -> list[Path]:
        """The files of this kind, by their place in the world."""
        found = world.glob(self.pattern.replace("RUN", f"suite/{run_of(world).name}"))
        files = sorted(path.relative_to(world) for path in found if path.is_file())
        assert files, f"{self.pattern}: no such file in the world"
        return files


KINDS = (
    Kind("corpus record", "suite/corpora/*/corpus.json", (open_corpus,)),
    Kind("blocks", "suite/corpora/*/*.bin", (open_corpus,)),
    Kind("class counts", "suite/corpora/*/counts.npy", (open_corpus,)),
    Kind("tokenizer", "suite/corpora/*/tokenizer/*", (open_corpus,)),
    Kind("run record", "RUN/run.json", (measured, trained, collected)),
    Kind("checkpoint record", "RUN/checkpoints/0/training.json", (measured, trained, collected)),
    Kind("weights", "RUN/checkpoints/0/model.safetensors", (measured, trained)),
    Kind("model configuration", "RUN/checkpoints/0/*config.json", (measured, trained)),
    Kind("tokenizer of a checkpoint", "RUN/checkpoints/0/tokenizer.json", (measured, trained)),
    Kind("training state", "stopped/state/*.safetensors", (train_more,)),
    Kind("unfinished measurement", "state/*/*.safetensors", (measure_more,)),
    Kind("plan of a measurement", "state/*/plan.json", (measure_more,)),
    Kind("class moments", "RUN/measure/0.safetensors", (moments,)),
    Kind("log", "suite/*/log.jsonl", (status, collected)),
    Kind("measurement", "suite/*/measure/*.json", (collected, status)),
    Kind("suite record", "suite/suite.json", (status,)),
    Kind("table", "suite/*.csv", (analysed, reported)),
    Kind("record of the tables", "suite/tables.json", (analysed, reported)),
    Kind("analysis", "suite/analysis/*.csv", (reported,)),
    Kind("summary", "suite/analysis/summary.json", (reported,)),
)
