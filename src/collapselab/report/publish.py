"""`publish`: the results of a folder as a dataset that others can load, with a card, and its way to the hub.

    <out>/README.md             the card: what was asked, what came out, how it was measured, how to use it
          runs.csv results.csv  and the other tables of the folder, with tables.json that holds their hashes
          measurements.json     every measurement with its facts, for `collapselab compare`
          analysis/ suite.json report.html    where the folder has them

Nothing leaves the machine unless `upload` is asked for, and no file says where on this machine the folder was.
"""

import os
import re
import shutil
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, cast, final

from collapselab.analysis.stored import SUMMARY, SummaryRecord, stored_scores
from collapselab.disk import folder_written_whole, make_folder, remove_folder, sha256
from collapselab.errors import ConfigError, DamagedError, RunError
from collapselab.records.facts import Facts
from collapselab.records.measurement import Result, Results
from collapselab.records.result_folder import MEASUREMENTS, load_results
from collapselab.records.scores import STORED
from collapselab.records.suite import SuiteRecord, registered_primary
from collapselab.records.tables import TABLES, verify_tables
from collapselab.report.cards import dataset_card

TARGET = re.compile(r"hf:(?P<name>[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95})")
COPIED = ("tables.json", "report.html")
LOCAL_PATH = re.compile(
    r"(?<![\w./\\])(?<!https:)(?<!http:)(?:~|[A-Za-z]:)?[/\\](?:[^\s\"'`/\\]+[/\\])*([^\s\"'`/\\]+)"
)
"""An absolute path in a text, with its last part; an address of the web is none."""


@final
@dataclass(frozen=True)
class Published:
    """What was made, where it would go or went, and its files."""

    folder: Path
    target: str
    files: list[str]
    address: str | None
    """Where it is, once it was uploaded."""

    def to_json(self) -> dict[str, object]:
        """Ready for `json.dumps`."""
        return {"folder": str(self.folder), "target": self.target, "files": self.files, "address": self.address}


def publish(
    directory: str | Path, *, to: str, out: str | Path | None = None, license: str = "mit", upload: bool = False
) -> Published:
    """Make the dataset folder of a suite, or of other tables, in `out`, by default `DIR/published`; upload it if asked.

    >>> from collapselab import publish
    >>> made = publish("suites/tiny", to="hf:me/tiny")
    >>> made.files[0], made.address  # made, and not uploaded
    ('README.md', None)

    `to` is `hf:USER/NAME`. The upload goes to HF_ENDPOINT, or the hub, with the token that `hf auth login` has stored.
    """
    directory, name = Path(directory), checked_target(to)
    if not (directory / "results.csv").is_file():
        raise RunError(f"{directory}: has no results.csv. Run the suite, or collect it: collapselab suite collect.")
    made = Path(out) if out is not None else directory / "published"
    if made.exists():
        _check_ours(made)
        remove_folder(made)
    with folder_written_whole(made) as partial:
        _write(directory, partial, name, license)
    files = sorted(str(path.relative_to(made)) for path in made.rglob("*") if path.is_file())
    return Published(made, name, files, upload_dataset(made, name) if upload else None)


def checked_target(to: str) -> str:
    """USER/NAME of a place on the hub; ConfigError for anything else."""
    target = TARGET.fullmatch(to)
    if target is None:
        raise ConfigError(f"to: {to[:100]!r} is not a place to publish. Write hf:USER/NAME, as in hf:me/my-suite.")
    return target["name"]


def upload_dataset(folder: Path, name: str) -> str:
    """Put a folder into a dataset of the hub, which is made if it is not there; its address."""
    from huggingface_hub import HfApi

    api = HfApi(endpoint=os.environ.get("HF_ENDPOINT"))
    try:
        api.create_repo(name, repo_type="dataset", exist_ok=True)
        api.upload_folder(
            folder_path=folder, repo_id=name, repo_type="dataset", commit_message="Results, measured with collapselab"
        )
    except Exception as error:
        words = " ".join(str(error).split())[:200]
        raise RunError(
            f"{name}: the hub did not take it ({words}). Log in with `hf auth login`, and try again."
        ) from error
    return f"{api.endpoint}/datasets/{name}"


def _check_ours(folder: Path) -> None:
    """A folder that this command did not make is never replaced."""
    if not folder.is_dir() or (any(folder.iterdir()) and not (folder / MEASUREMENTS).is_file()):
        raise ConfigError(f"{folder}: is there, and not a folder that `publish` made. Name another with --out.")


def _verify(directory: Path) -> list[str]:
    """Raise UserError with the name of a file that is not what was written; return the files of the analysis."""
    tables = verify_tables(directory)
    registered_primary(directory)
    folder = directory / "analysis"
    summary = SummaryRecord.find(folder / SUMMARY)
    if summary is None:
        return []
    again = f"Run `collapselab analyze {directory}` again."
    if summary.tables != tables.hashes:
        raise DamagedError(f"{folder / SUMMARY}: an analysis of other tables. {again}")
    for name, digest in summary.files.items():
        if not (folder / name).is_file() or sha256(folder / name) != digest:
            raise DamagedError(f"{folder / name}: not the table that the analysis wrote. {again}")
    scores = [STORED] if stored_scores(directory) is not None else []
    return [SUMMARY, *summary.files, *scores]


def _write(directory: Path, out: Path, name: str, license: str) -> None:
    analysed = _verify(directory)
    results = load_results(directory)
    unlocated = Results([_without_paths(result) for result in results], results.failures)
    (out / MEASUREMENTS).write_text(unlocated.to_json() + "\n", "utf-8")
    tables = [table for table in TABLES.values() if (directory / table.file).is_file()]
    for file in (*(table.file for table in tables), *COPIED, *(f"analysis/{file}" for file in analysed)):
        if (directory / file).is_file():
            make_folder((out / file).parent)
            shutil.copyfile(directory / file, out / file)
    if (summary := SummaryRecord.find(out / "analysis" / SUMMARY)) is not None:
        summary.model_copy(update={"directory": name.split("/")[1]}).write(out / "analysis" / SUMMARY)
    if (suite := SuiteRecord.find(directory / "suite.json")) is not None:
        suite.model_copy(update={"recipe": without_local_paths(suite.recipe)}).write(out / "suite.json")
    (out / "README.md").write_text(dataset_card(directory, results, tables, name, license), "utf-8")


def _without_paths(result: Result) -> Result:
    """The same measurement; model and corpus are named as they are inside their folders."""
    facts = cast(Facts, without_local_paths(result.facts))
    facts["corpus"] = Path(facts["corpus"]).name
    if facts["in_a_run"]:
        facts["model"] = f"{facts['run']}/checkpoints/{facts['checkpoint']}"
    return replace(result, facts=facts)


def without_local_paths(value: object) -> Any:
    """Return a document with absolute paths, which can hold a user's name, reduced to their last part."""
    if isinstance(value, dict):
        return {key: without_local_paths(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(without_local_paths(entry) for entry in value)
    if not isinstance(value, str):
        return value
    is_path = PurePosixPath(value).is_absolute() or PureWindowsPath(value).is_absolute()
    return PureWindowsPath(value).name if is_path else LOCAL_PATH.sub(r"\1", value)
