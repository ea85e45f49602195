"""Every stage killed again and again, at its writes too, until it is left to finish; then every artifact compared.

A stage is killed in two ways: after a random time, and at one of its acts on the disk (a file opened for writing, moved
into its place, removed, flushed), counted in a run that is left alone, so that every phase of writing is reached.

    python tests/reliability/kills.py --kills 10

`--world DIR` keeps the suite that the stages read, or takes the one that is there; with `--stages` several processes share
the work. The moments of a stage do not depend on the other stages.

Stages run in forks of a process that has imported everything and done nothing: a library that has started threads of its
own, as the one that checks figures does, waits for them for ever in a fork.
"""

import argparse
import builtins
import io
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch

from collapselab.analysis.analyze import analyze
from collapselab.corpus.build import Recipe, build_corpus
from collapselab.corpus.sources import open_source
from collapselab.measurement.measure import measure
from collapselab.models.build import build_config, build_model
from collapselab.report.publish import publish
from collapselab.report.report import report
from collapselab.suite import run as suites
from collapselab.suite.collect_models import collect_models
from collapselab.suite.folder import SuiteFolder
from collapselab.suite.recipe import load_suite
from collapselab.training.settings import Settings
from collapselab.training.train import train
from reliability.world import PERMUTATIONS, corpus_of, make, run_of

VOLATILE = {
    "seconds", "started", "tokens_per_second", "machine", "path", "corpus", "model", "directory",
    "checksum", "files_hash", "made_from", "tables"
}  # fmt: skip
"""Times, what is named by the folder it is in, and hashes of documents that hold such."""

ACTS = ("replace", "fsync", "unlink", "rename", "mkdir", "rmdir")


def build(place: Path, world: Path) -> None:
    source = open_source(["storyworld:stories=40,validation=10"])
    build_corpus(source, place / "corpus", Recipe(tokenizer="bpe:300", block=32))


def train_one(place: Path, world: Path) -> None:
    settings = Settings(width=16, depth=1, lr=3e-3, batch=8, steps=20, seed=3, checkpoints="0,0.1")
    train(settings, corpus_of(world), place / "run", save_minutes=0.0)


def train_with_interventions(place: Path, world: Path) -> None:
    """With penalties that have a table of class means and doses of their own, and a head that has one too."""
    settings = Settings(
        width=16, depth=1, lr=3e-3, batch=8, steps=40, seed=4, tied=False, optimizer="coupled-adam",
        head="class-means", intervene=("within:+0.1", "uniform_means:+0.05", "dual:+0.02:sham@0.2-0.9"),
    )  # fmt: skip
    train(settings, corpus_of(world), place / "run", save_minutes=0.0)


def measure_one(place: Path, world: Path) -> None:
    _copy_run(place, world)
    measure(place / "run", corpus_of(world), layers="all", bins=2, bootstrap=4, tokens=4000, batch=8, quiet=True)


def measure_pushed(place: Path, world: Path) -> None:
    _copy_run(place, world)
    measure(place / "run", corpus_of(world), push="-0.3,0.3", tokens=4000, batch=8, quiet=True)


def measure_tables(place: Path, world: Path) -> None:
    """With tables of classes, contexts and deciders, which have files of their own."""
    _copy_run(place, world)
    further: dict[str, Any] = {"classes": True, "contexts": "1,2", "min_uses": 3, "deciders": True}
    measure(place / "run", corpus_of(world), layers="all", tokens=4000, batch=8, quiet=True, **further)


def measure_text(place: Path, world: Path) -> None:
    """On text, whose corpus is made and kept in the user's cache."""
    os.environ["XDG_CACHE_HOME"] = str(place / "cache")
    texts = [f"One day, a bird number {number} sang a song to a friend." for number in range(200)]
    measure(world / "models" / "step0", data=texts, block=32, classes=True, out=place / "out", tokens=2000, quiet=True)


def share(place: Path, world: Path) -> None:
    """Results collected into tables, and those of a suite made ready for others."""
    collect_models([world / "results"], place / "atlas")
    publish(world / "suite", to="hf:me/tiny", out=place / "published")


def measure_sweep(place: Path, world: Path) -> None:
    """Twenty models, one file each."""
    models = place.parent / "models"
    for step in range(20):
        if not (models / f"step{step}").exists():
            config = build_config("gpt-neo", width=8, depth=1, vocabulary=320, positions=32)
            build_model(config, seed=step).save_pretrained(models / f"making{step}")  # type: ignore[operator]
            os.replace(models / f"making{step}", models / f"step{step}")
    measure(str(models / "step*"), corpus_of(world), out=place / "out", tokens=400, batch=8, quiet=True)


def _copy_run(place: Path, world: Path) -> None:
    """The run that is measured, without its measurements."""
    if not (place / "run").exists():
        shutil.rmtree(place / "partial-copy", ignore_errors=True)
        shutil.copytree(run_of(world), place / "partial-copy")
        shutil.rmtree(place / "partial-copy" / "measure")
        os.replace(place / "partial-copy", place / "run")


def run_suite(place: Path, world: Path) -> None:
    done = suites.run(load_suite(world / "recipe.yaml"), SuiteFolder(place / "suite"), start_method="fork")
    assert not done.failed
    assert not done.refused


def analyse(place: Path, world: Path) -> None:
    folder = place / "tables"  # the page has its name
    folder.mkdir(exist_ok=True)
    tables = [file for pattern in ("*.csv", "*.parquet", "*.json") for file in (world / "suite").glob(pattern)]
    for table in tables:
        if not (folder / table.name).exists():
            shutil.copy(table, place / f"copied-{table.name}")
            os.replace(place / f"copied-{table.name}", folder / table.name)
    analyze(folder, permutations=PERMUTATIONS, scores=world / "scores.csv")
    report(folder)


STAGES: dict[str, Callable[[Path, Path], None]] = {
    "corpus build": build,
    "train": train_one,
    "train with interventions": train_with_interventions,
    "measure": measure_one,
    "measure --push": measure_pushed,
    "measure --classes --contexts --deciders": measure_tables,
    "measure --data": measure_text,
    "measure a sweep": measure_sweep,
    "suite run": run_suite,
    "analyze and report": analyse,
    "collect and publish": share,
}


def killed_often(stage: str, world: Path, place: Path, *, kills: int, seed: int = 0) -> int:
    """Run a stage in a folder until it has been killed so many times, then let it finish; how often it was killed."""
    chance, killed = random.Random(f"{stage} {seed}"), 0
    seconds, acts = _alone(stage, world, place / "counted")
    while killed < kills:
        at = chance.randrange(1, acts + 1) if killed % 2 else None
        child = _started(stage, world, place / "killed", die_at=at)
        if at is None:
            time.sleep(chance.uniform(0, seconds))
            os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
        if os.WIFSIGNALED(status):
            killed += 1
        else:  # it was finished before its time: the next one begins from nothing
            assert os.WEXITSTATUS(status) == 0, f"{stage} failed after {killed} kills"
            shutil.rmtree(place / "killed", ignore_errors=True)
            acts = max(1, acts // 2)
    assert os.waitpid(_started(stage, world, place / "killed"), 0)[1] == 0, f"{stage} failed after {killed} kills"
    return killed


def artifacts(folder: Path) -> dict[str, Any]:
    """Every file of a folder by its name; times and places left out."""
    return {
        path.relative_to(folder).as_posix(): _contents(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".lock" not in path.as_posix() and "/logs/" not in path.as_posix()
    }


def _contents(path: Path) -> Any:
    if path.suffix == ".json":
        return _stable(json.loads(path.read_text()))
    if path.suffix == ".jsonl":
        return [_stable(json.loads(line)) for line in path.read_text().splitlines()]
    if path.name == "runs.csv":
        lines = [line.split(",") for line in path.read_text().splitlines()]
        seconds = lines[0].index("seconds")
        return [line[:seconds] + line[seconds + 1 :] for line in lines]
    return path.read_bytes()


def _stable(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _stable(one) for key, one in value.items() if key not in VOLATILE}
    return [_stable(one) for one in value] if isinstance(value, list) else value


def _alone(stage: str, world: Path, place: Path) -> tuple[float, int]:
    """How long the stage takes undisturbed, and how often it acts on the disk."""
    reader, writer = os.pipe()
    start = time.monotonic()
    child = _started(stage, world, place, count_to=writer)
    os.close(writer)
    with os.fdopen(reader) as answer:
        acts = int(answer.read() or 0)
    assert os.waitpid(child, 0)[1] == 0, f"{stage} fails by itself"
    return time.monotonic() - start, acts


def _started(stage: str, world: Path, place: Path, *, die_at: int | None = None, count_to: int | None = None) -> int:
    def work() -> None:
        place.mkdir(parents=True, exist_ok=True)
        count = _watch_the_disk(die_at)
        STAGES[stage](place, world)
        if count_to is not None:
            os.write(count_to, str(count()).encode())

    return _forked(work)


def _forked(work: Callable[[], object]) -> int:
    """Begin the work in a process of its own, which says nothing and ends with status 0 or 1."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        os.setsid()
        _silence()
        work()
        status = 0
    finally:
        os._exit(status)


def _watch_the_disk(die_at: int | None) -> Callable[[], int]:
    """Count this process's acts on the disk, and die at one of them."""
    seen, watched = 0, os.getpid()

    def act() -> None:
        nonlocal seen
        if os.getpid() != watched:  # a process that this one has started
            return
        seen += 1
        if seen == die_at:
            os.kill(watched, signal.SIGKILL)

    def before(function: Callable[..., Any]) -> Callable[..., Any]:
        def acting(*args: Any, **kwargs: Any) -> Any:
            act()
            return function(*args, **kwargs)

        return acting

    for name in ACTS:
        setattr(os, name, before(getattr(os, name)))
    plain_open = builtins.open

    def opening(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if set(mode) & set("wax+"):
            act()
        return plain_open(file, mode, *args, **kwargs)

    builtins.open = io.open = opening  # type: ignore[assignment]
    return lambda: seen


def _silence() -> None:
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=10, help="kills of each stage")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--world", type=Path, help="the suite that stages read; it is made if it is not there")
    parser.add_argument("--stages", nargs="*", choices=STAGES, help="some of the stages; all of them if none")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    wrong = 0
    print(f"seed {chosen.seed}")
    print("| stage | kills | artifacts compared | that differ |\n|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        world = chosen.world or Path(folder) / "world"
        if not world.exists():
            assert os.waitpid(_forked(lambda: make(world)), 0)[1] == 0, "the world could not be made"
        for stage in chosen.stages or STAGES:
            place = Path(folder) / stage.replace(" ", "-")
            killed = killed_often(stage, world, place, kills=chosen.kills, seed=chosen.seed)
            good, found = artifacts(place / "counted"), artifacts(place / "killed")
            differ = [name for name in good.keys() | found.keys() if good.get(name) != found.get(name)]
            wrong += len(differ)
            print(f"| {stage} | {killed} | {len(good)} | {len(differ)} |", flush=True)
            for name in sorted(differ):
                print(f"  {name}", file=sys.stderr)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
