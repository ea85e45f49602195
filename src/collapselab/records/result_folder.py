"""Finished measurements on disk: a folder of results, and where else results are found.

    pythia/EleutherAI--pythia-70m@step1000.0123456789abcdef.json    named after the model, and a hash of what is asked
    pythia/.state/                                                  sums of what is not finished

There is one file per model and corpus, written as soon as it is measured. The same command finds its files by name
and checks the facts inside. `find_results` reads those of a folder, a file, a run, a checkpoint, a suite or the user's
cache.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from collapselab.disk import check_writable, disk_errors, make_folder, read_document, user_cache, verified
from collapselab.errors import ConfigError, DamagedError, RunError
from collapselab.records.measurement import SUFFIXES, Result, Results
from collapselab.records.run import Checkpoint, RunFolder, checkpoint_at

if TYPE_CHECKING:
    from collapselab.core.moments import ClassMoments

STATE = ".state"
LONGEST = 100
"""Characters of a model's name in the name of its file."""

FILE = re.compile(r".+\.[0-9a-f]{16}\.json")
OTHERS = {"config.json": "a model", "run.json": "a run", "corpus.json": "a corpus", "suite.json": "a suite"}


def out_folder(out: str | Path | None) -> Path | None:
    """Return the folder that `out` names: it exists, ends with a slash or has no suffix. None if `out` names a file.

    A name with the suffix of a table is a file, even if there is a folder of that name.
    """
    if out is None:
        return None
    path = Path(out)
    if path.suffix in SUFFIXES and not str(out).endswith("/"):
        return None
    return path if str(out).endswith("/") or path.is_dir() or not path.suffix else None


def open_result_folder(folder: Path) -> None:
    """Make the folder; ConfigError if it holds something else, DiskError if it is not writable."""
    for name, what in OTHERS.items():
        if (folder / name).exists():
            raise ConfigError(f"{folder}: this is the folder of {what}. Choose another folder for the results.")
    with disk_errors(folder):
        make_folder(folder)
    check_writable(folder / "result.json")


def result_file(folder: str | Path, model: str, digest: str) -> Path:
    """Return the file of a model's result, named after the last two parts of its path to tell checkpoints apart."""
    parts = [part for part in Path(model).parts if part not in ("/", ".", "..")]
    name = re.sub(r"[^\w.@+=-]", "_", "--".join(parts[-2:])).lstrip(".") or "model"
    return Path(folder) / f"{name[-LONGEST:]}.{digest}.json"


def result_files(folder: str | Path) -> list[Path]:
    """Return the results in a folder that `measure` wrote, sorted by name."""
    return sorted(path for path in Path(folder).glob("*.json") if FILE.fullmatch(path.name))


MEASUREMENTS = "measurements.json"
"""The measurements of a folder that was published."""

FINISHED = "finished"
"""The folder of finished results inside the folder of the measurements of other models."""


@dataclass(frozen=True)
class StoredResult:
    """A measurement, and the file that it is in."""

    result: Result
    path: Path

    @property
    def moments(self) -> Path | None:
        """The file of the class moments of its last layer, if it is there."""
        beside = self.path.with_suffix(".safetensors")
        return beside if beside.is_file() else None


def kept_moments(stored: StoredResult, *, cache: str | Path | None = None) -> Path | None:
    """Return the file of the class moments of its last layer: beside it, or with a copy of the same measurement.

    A file written by `measure --out` has no moments beside it; they are in the folder of the run or the user's cache.
    """
    if stored.moments is not None:
        return stored.moments
    facts = stored.result.facts
    try:
        others = find_results(facts["model"], cache=cache)
    except (ConfigError, DamagedError, RunError):
        return None
    decides = ("model_hash", "corpus_hash", "options")
    same = [other for other in others if all(other.result.facts.get(name) == facts.get(name) for name in decides)]
    return next((other.moments for other in reversed(same) if other.moments is not None), None)


def layer_file(moments: Path, layer: str) -> Path:
    """Return the file of the class moments of a layer, beside that of the last layer."""
    return moments if layer == "last" else moments.with_name(f"{moments.stem}.layer-{layer}{moments.suffix}")


MOMENTS_OF = ("run", "checkpoint", "model_hash", "corpus_hash", "options")
"""The facts of a measurement that are stored with class moments, in addition to their layer."""


def moments_identity(facts: Mapping[str, object], layer: str = "last") -> dict[str, object]:
    """Return what is stored with the class moments of a layer to identify them."""
    return {name: facts[name] for name in MOMENTS_OF if name in facts} | {"layer": layer}


def load_moments(path: Path, expected: Mapping[str, object]) -> "ClassMoments":
    """Read class moments; DamagedError if the file is damaged or belongs to another measurement or layer.

    Files of earlier versions do not identify their measurement.
    """
    from collapselab.core.moments import ClassMoments
    from collapselab.core.storage import load_tensors

    try:
        tensors, facts = load_tensors(path, kind="class moments")
    except ValueError as error:
        raise DamagedError(str(error)) from error
    about = facts.get("about")
    for name, value in expected.items():
        if isinstance(about, dict) and about.get(name) != value:
            what = f"class moments with {name} {about.get(name)!r} instead of {value!r}"
            raise DamagedError(f"{path}: {what}; the file was moved or replaced. Measure again.")
    return ClassMoments.from_tensors(tensors, facts)


def load_results(path: str | Path, *, cache: str | Path | None = None) -> Results:
    """Load the finished measurements of a file written by `measure`, a folder of results, a run, a suite or a model.

    >>> from collapselab import load_results
    >>> load_results("runs/small")
    Results(2 measured: 'small, checkpoint 0', 'small, checkpoint 1')

    Measurements of models that are not runs are looked up in `cache`, the `state` that they were measured with; the
    default is that of the command line.
    """
    return Results([stored.result for stored in find_results(path, cache=cache)])


def find_results(path: str | Path, *, cache: str | Path | None = None) -> list[StoredResult]:
    """Return the results that `load_results` finds, with their files; RunError if there is none."""
    path = Path(path)
    if (path / MEASUREMENTS).is_file():
        path = path / MEASUREMENTS
    if path.is_file():
        return _in_file(path)
    results = [StoredResult(Result.load(file), file) for file in _files_of(path)]
    for result, file in ((stored.result, stored.path) for stored in results if FILE.fullmatch(stored.path.name)):
        # A model given relative to its folder has only a part of the path after which its file is named.
        name = result_file(path, result.name or "model", file.name.split(".")[-2]).name
        if not f"--{file.name}".endswith(f"--{name}"):
            raise DamagedError(f"{file}: holds the measurement of {result.name}. Delete it and measure again.")
    if not results:
        results = _in_cache(path, Path(cache) if cache else user_cache("measure"))
    if not results:
        what = "no measurement found" if path.exists() else "no such file, folder or measured model"
        raise RunError(f"{path}: {what}. Measure a model first: collapselab measure MODEL --data SOURCE --classes")
    return results


def _in_file(path: Path) -> list[StoredResult]:
    if path.suffix != ".json":
        raise RunError(f"{path}: not a measurement. Name a .json file written by `collapselab measure --out`.")
    parts = read_document(path, unchecked=True).get("results")
    if not isinstance(parts, list):
        return [StoredResult(Result.load(path), path)]
    documents = [verified(part, path, unchecked=True) for part in parts if isinstance(part, dict)]
    return [StoredResult(Result.of_document(document, path), path) for document in documents]


def _files_of(path: Path) -> list[Path]:
    """Return the measurements of a run, a checkpoint, all runs of a suite, or a folder of results."""
    if (path / "run.json").is_file():
        checkpoints = RunFolder(path).checkpoints()
    elif (checkpoint := checkpoint_at(path)) is not None:
        checkpoints = [checkpoint]
    else:
        runs = sorted(record.parent for record in path.glob("*/run.json")) if path.is_dir() else []
        checkpoints = [checkpoint for run in runs for checkpoint in RunFolder(run).checkpoints()]
    of_runs = [
        checkpoint.measurement
        for checkpoint in checkpoints
        if isinstance(checkpoint, Checkpoint) and checkpoint.measurement.is_file()
    ]
    return of_runs or result_files(path)


def _in_cache(path: Path, cache: Path) -> list[StoredResult]:
    """Return the measurements of a model with this name or in this folder, the latest last."""
    files = sorted((cache / FINISHED).glob("*.json"), key=lambda file: file.stat().st_mtime)
    results = []
    for file in files:
        try:
            result = Result.load(file)
        except DamagedError:
            continue
        name = result.facts["model"]
        if name == str(path) or (path.exists() and Path(name).exists() and Path(name).samefile(path)):
            results.append(StoredResult(result, file))
    return results
