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
from collapselab.corpus.blocks import Corpus
from collapselab.corpus.build import Recipe, build_corpus
from collapselab.corpus.markov import read_chain
from collapselab.corpus.sources import open_source
from collapselab.measurement.compare_results import compare
from collapselab.measurement.measure import measure
from collapselab.records.measurement import Result, Results, write
from collapselab.records.result_folder import find_results, load_moments, load_results, moments_identity
from collapselab.records.table import ColumnTable
from collapselab.records.tables import RUNS, TABLES
from collapselab.report.publish import publish
from collapselab.report.report import report
from collapselab.suite import run as suites
from collapselab.suite.collect import collect
from collapselab.suite.collect_models import collect_models
from collapselab.suite.folder import SuiteFolder, open_suite
from collapselab.suite.recipe import load_suite
from collapselab.training.settings import Settings
from collapselab.training.train import train

STEPS = 24
"""A penalty acts after 20, in which gradients are compared."""

RECIPE: dict[str, Any] = {
    "question": "Does it survive?",
    "corpus": {"source": "storyworld:stories=24,validation=8", "tokenizer": "bpe:300", "block": 32},
    "base": {"depth": 1, "width": 16, "lr": 3e-3, "batch": 8, "steps": STEPS},
    "arms": ["none", "within:+0.1"],
    "grid": {"seed": [0, 1]},
    "primary": {"metrics": ["cdnv_log"], "seeds": 2},
    "checkpoints": [0],
    "measure": {
        "tokens": 600, "bins": 2, "push": "-0.3,0.3", "classes": True, "contexts": "1,2", "min_uses": 3,
        "deciders": True,
    },
}  # fmt: skip
PERMUTATIONS = 99


CORPORA = {
    "documents": ("storyworld:stories=24,validation=8", Recipe(tokenizer="bpe:300", block=64, packing="document")),
    "markov": ("markov:order=1,types=10,support=3,tokens=2000,validation=500", Recipe(tokenizer="words", block=32)),
}
"""Kinds of corpora that have a file of their own."""

QUICK: dict[str, Any] = {"tokens": 400, "classes": True, "quiet": True}


class Refused(Exception):
    """A stage that went on, but left something out and said so."""


OTHERS: dict[str, dict[str, Any]] = {
    "foreign": {"corpus": {**RECIPE["corpus"], "source": "storyworld:stories=24,validation=8,seed=1"}},
    "stale": {"measure": {**RECIPE["measure"], "tokens": 500}},
}
"""Another suite, and this one before its options were changed, by what differs in the recipe."""


def make(folder: Path, **changes: Any) -> Path:
    """Corpus, runs, measurements, tables, analysis and page, in a folder that must not exist yet."""
    folder.mkdir(parents=True)
    recipe = folder / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(RECIPE | changes))
    suite = SuiteFolder(folder / "suite")
    done = suites.run(load_suite(recipe), suite)
    assert not done.failed
    scores = folder / "scores.csv"
    scores.write_text("run,quiz\n" + "".join(f"{run.name},0.{40 + i}\n" for i, run in enumerate(runs_of(folder))))
    analyze(suite.path, permutations=PERMUTATIONS, scores=scores)
    report(suite.path)
    publish(suite.path, to="hf:me/tiny", out=folder / "published")
    suite.record_jobs({runs_of(folder)[0].name: "17"})
    for kind, (source, recipe_) in CORPORA.items():
        build_corpus(open_source([source]), folder / kind, recipe_)
    for number, run in enumerate(runs_of(folder)[:2]):
        shutil.copytree(run / "checkpoints" / "0", folder / "models" / f"step{number}")
    swept(folder)
    atlas(folder)
    several = measure([folder / "models" / "step0", folder / "models" / "step1"], corpus_of(folder), **QUICK)
    assert isinstance(several, Results)
    write(folder / "several.json", several)
    on_text(folder)
    kill_when(lambda: train_more(folder), lambda: len(list((folder / "stopped" / "state").glob("[0-9]*"))) > 1)
    kill_when(lambda: measure_more(folder), lambda: len(list((folder / "state").glob("*/train-*.safetensors"))) > 1)
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


def swept(world: Path) -> Any:
    """Two models, a file each in a folder of results, and both found again."""
    results = measure(str(world / "models" / "step*"), corpus_of(world), out=world / "results", **QUICK)
    assert isinstance(results, Results)
    if results.failures:
        raise Refused("; ".join(results.failures.values()))
    return rows_of(results)


def atlas(world: Path) -> Any:
    """Their tables, collected from these files."""
    collect_models([world / "results"], world / "atlas")
    return tables_in(world / "atlas")


def on_text(world: Path) -> Any:
    """A model on text: its corpus is kept in the user's cache, its result in a folder of states."""
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(world / "cache")
    try:
        texts = [f"One day, a bird number {number} sang a song to a friend." for number in range(60)]
        model = world / "models" / "step0"
        result = measure(model, data=texts, block=32, state=world / "cache" / "results", **QUICK)
    finally:
        os.environ.pop("XDG_CACHE_HOME") if before is None else os.environ.update(XDG_CACHE_HOME=before)
    assert isinstance(result, Result)
    return rows_of([result])


def measured_on_text(world: Path) -> Any:
    """The same, measured again on the corpus that is in the cache."""
    shutil.rmtree(world / "cache" / "results")
    return on_text(world)


def compared(world: Path) -> Any:
    """What was published, beside the suite that it was made of."""
    return compare(load_results(world / "suite"), load_results(world / "published")).to_json()


def loaded(world: Path) -> Any:
    """A file with several results."""
    return rows_of(load_results(world / "several.json"))


def published(world: Path) -> Any:
    """The summary of an analysis of what was published."""
    return analysed(world, "published")


def atlas_analysed(world: Path) -> Any:
    """The page of the collected models."""
    return report(world / "atlas").page.read_text()


def open_kinds(world: Path) -> Any:
    """What is special in corpora of documents and of chains."""
    found = [open_corpus(world, world / kind) for kind in CORPORA]
    lengths = [split.lengths for split in Corpus(world / "documents").splits.values()]
    chain = read_chain(world / "markov")
    return found, [own.tolist() for own in lengths if own is not None], chain.successors.tolist(), chain.optimum(32)


def moments(world: Path) -> Any:
    """The class moments that a measurement keeps."""
    (stored,) = [found for found in find_results(run_of(world)) if found.path.stem == "0"]
    assert stored.moments is not None
    kept = load_moments(stored.moments, moments_identity(stored.result.facts))
    return kept.counts.tolist(), kept.sums.numpy().tobytes(), kept.scatter.numpy().tobytes()


def corpus_of(world: Path) -> Path:
    (found,) = (world / "suite" / "corpora").glob("[!.]*")
    return found


def runs_of(world: Path) -> list[Path]:
    return sorted(path.parent for path in (world / "suite").glob("*/run.json"))


def run_of(world: Path) -> Path:
    """A run without an intervention."""
    return next(path for path in runs_of(world) if "within" not in path.name)


def open_corpus(world: Path, folder: Path | None = None) -> Any:
    """What training and measuring see of the corpus."""
    corpus = Corpus(folder or corpus_of(world), verify=True)
    tokenizer = corpus.tokenizer()
    ids = [(split.ids.tobytes(), split.counts.tolist()) for split in corpus.splits.values()]
    return corpus.hash, corpus.block, corpus.vocabulary, ids, tokenizer("One day, a bird sang.")["input_ids"]


def measured(world: Path) -> Any:
    """The rows of a checkpoint that is measured from nothing."""
    run = run_of(world)
    shutil.rmtree(run / "measure")
    result = measure(run / "checkpoints" / "0", corpus_of(world), **RECIPE["measure"], quiet=True)
    assert isinstance(result, Result)
    return rows_of([result])


def trained(world: Path) -> Any:
    """The weights of a run that the same call finds finished, or repairs."""
    run = run_of(world)
    seed = 1 if "-s1-" in run.name else 0
    settings = Settings(width=16, depth=1, lr=3e-3, batch=8, steps=STEPS, seed=seed)
    train(settings, corpus_of(world), run)
    return {path.name: (path / "model.safetensors").read_bytes() for path in sorted((run / "checkpoints").iterdir())}


def collected(world: Path) -> Any:
    """Both tables, made from the records of the runs."""
    _, folder = open_suite(str(world / "suite"))
    tables = collect(folder)
    if tables.refused:
        raise Refused("; ".join(tables.refused))
    return tables_in(world / "suite")


def status(world: Path) -> Any:
    """Where every run is."""
    suite, folder = open_suite(str(world / "suite"))
    states = suites.status(suite, folder)
    if any(state.stage != "done" for state in states):
        raise Refused("a run is to be measured again")
    return [(state.run, state.step) for state in states]


def analysed(world: Path, folder: str = "suite") -> Any:
    """The summary of an analysis of the tables."""
    found = analyze(world / folder, permutations=PERMUTATIONS).to_json()
    return json.loads(json.dumps({name: value for name, value in found.items() if name != "directory"}))


def reported(world: Path) -> Any:
    """The page."""
    return report(world / "suite").page.read_text()


def tables_in(folder: Path) -> Any:
    """Every table of a folder; large ones as lists."""
    found: dict[str, Any] = {"runs": without_times(folder / "runs.csv")}
    for name, table in TABLES.items():
        if name != "runs" and (folder / table.file).exists():
            rows = table.read(folder / table.file)
            found[name] = table.whole(rows).to_pylist() if isinstance(table, ColumnTable) else rows
    return found


def rows_of(results: Any) -> Any:
    """Every table of results, large ones read from their files."""
    return [
        {name: [getattr(row, "to_pylist", lambda row=row: row)() for row in rows] for name, rows in tables.items()}
        for tables in (result.loaded_tables() for result in results)
    ]


def without_times(table: Path) -> list[dict[str, Any]]:
    return [{key: value for key, value in run.items() if key != "seconds"} for run in RUNS.read(table)]


@dataclass(frozen=True)
class Kind:
    """A kind of file, where it is in a world (RUN is the run that is read), and what reads it next."""

    name: str
    pattern: str
    reads: tuple[Callable[[Path], Any], ...]
    named: bool = False
    """Whether the user named it, so that another valid file in its place is what was asked for."""

    def files(self, world: Path, *, all_runs: bool = False) -> list[Path]:
        """The files of this kind, by their place in the world: of the run that is read, or of all runs."""
        found = world.glob(self.pattern.replace("RUN", "suite/*" if all_runs else f"suite/{run_of(world).name}"))
        files = sorted(path.relative_to(world) for path in found if path.is_file())
        assert files, f"{self.pattern}: no such file in the world"
        return files


KINDS = (
    Kind("corpus record", "suite/corpora/*/corpus.json", (open_corpus,)),
    Kind("blocks", "suite/corpora/*/*.bin", (open_corpus,)),
    Kind("class counts", "suite/corpora/*/counts.npy", (open_corpus,)),
    Kind("tokenizer", "suite/corpora/*/tokenizer/*", (open_corpus,)),
    Kind("lengths of documents", "documents/lengths.npy", (open_kinds,)),
    Kind("chain behind a corpus", "markov/markov.safetensors", (open_kinds,)),
    Kind("corpus in the user's cache", "cache/collapselab/corpora/*/*.*", (measured_on_text,)),
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
    Kind("table of a measurement", "suite/*/measure/*.parquet", (collected,)),
    Kind("checkpoint copied out of its run", "models/step*/*.*", (swept,)),
    Kind("result in a folder", "results/*.json", (swept, atlas)),
    Kind("table of a result", "results/*.parquet", (swept, atlas)),
    Kind("result in the user's cache", "cache/results/finished/*", (on_text,)),
    Kind("several results in a file", "several.json", (loaded,), named=True),
    Kind("suite record", "suite/suite.json", (status, analysed)),
    Kind("jobs of a cluster", "suite/slurm/jobs.json", (status,)),
    Kind("table", "suite/*.csv", (analysed, reported)),
    Kind("large table", "suite/*.parquet", (reported,)),
    Kind("record of the tables", "suite/tables.json", (analysed, reported)),
    Kind("collected table", "atlas/*.[cp]*", (atlas_analysed,)),
    Kind("published measurements", "published/measurements.json", (compared,)),
    Kind("published table", "published/*.csv", (published,)),
    Kind("scores of the user", "suite/analysis/scores.csv", (analysed, reported)),
    Kind("analysis", "suite/analysis/[!s]*.csv", (reported,)),
    Kind("summary", "suite/analysis/summary.json", (reported,)),
)
