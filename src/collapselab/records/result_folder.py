"""A folder of results: one finished file for each model and corpus, written as soon as it is measured.

    pythia/EleutherAI--pythia-70m@step1000.0123456789abcdef.json    named after the model, and a hash of what is asked
    pythia/.state/                                                  sums of what is not finished

The same command finds its own files again by their names; whether each is what was asked, the facts inside say.
"""

import re
from pathlib import Path

from collapselab.disk import check_writable, disk_errors, make_folder
from collapselab.errors import ConfigError

STATE = ".state"
SUFFIXES = (".csv", ".json", ".parquet")
LONGEST = 100
"""Characters of a model's name in the name of its file."""

FILE = re.compile(r".+\.[0-9a-f]{16}\.json")
OTHERS = {"config.json": "a model", "run.json": "a run", "corpus.json": "a corpus", "suite.json": "a suite"}


def out_folder(out: str | Path | None) -> Path | None:
    """The folder that `out` means; None if it names a file. A folder exists, ends with a slash, or has no suffix.

    A name that ends like a table is a file, even where a folder of that name is in its place.
    """
    if out is None:
        return None
    path = Path(out)
    if path.suffix in SUFFIXES and not str(out).endswith("/"):
        return None
    return path if str(out).endswith("/") or path.is_dir() or not path.suffix else None


def open_result_folder(folder: Path) -> None:
    """Make the folder; ConfigError if it is that of something else, DiskError if nothing can be written there."""
    for name, what in OTHERS.items():
        if (folder / name).exists():
            raise ConfigError(f"{folder}: the folder of {what}; results need one of their own. Name another.")
    with disk_errors(folder):
        make_folder(folder)
    check_writable(folder / "result.json")


def result_file(folder: str | Path, model: str, digest: str) -> Path:
    """The file of a model's result; of a path the last two names, which is what tells checkpoints apart."""
    parts = [part for part in Path(model).parts if part not in ("/", ".", "..")]
    name = re.sub(r"[^\w.@+=-]", "_", "--".join(parts[-2:])).lstrip(".") or "model"
    return Path(folder) / f"{name[-LONGEST:]}.{digest}.json"


def result_files(folder: str | Path) -> list[Path]:
    """The results in a folder that `measure` wrote, in the order of their names."""
    return sorted(path for path in Path(folder).glob("*.json") if FILE.fullmatch(path.name))
