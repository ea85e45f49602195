"""`publish`: write the results of a folder as a dataset with a card, and upload it to the hub on request.

    <out>/README.md             the card: what was asked, what came out, how it was measured, how to use it
          runs.csv results.csv  and the other tables of the folder, with tables.json that holds their hashes
          measurements.json     every measurement with its facts, for `collapselab compare`
          analysis/ suite.json report.html    where the folder has them

Nothing leaves the machine without `upload`, and no file contains a local path. The card is written for readers who
know neither the suite nor this program.
"""

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import Any, cast

from collapselab.analysis.analyze import SUMMARY, SummaryRecord, stored_scores
from collapselab.disk import folder_written_whole, make_folder, read_document, remove_folder, sha256, write_document
from collapselab.errors import ConfigError, DamagedError, RunError
from collapselab.measurement.compare_results import RUNNING
from collapselab.records.facts import Facts, OptionFacts
from collapselab.records.measurement import Result, Results
from collapselab.records.options import Options
from collapselab.records.result_folder import MEASUREMENTS, load_results
from collapselab.records.scores import STORED
from collapselab.records.suite import SuiteRecord, registered_primary
from collapselab.records.table import ColumnTable, Table
from collapselab.records.tables import HASHES, TABLES, read_tables
from collapselab.report.report import report
from collapselab.suite.collect_models import renamed

TARGET = re.compile(r"hf:(?P<name>[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95})")
LOCAL_PATH = re.compile(
    r"(?<![\w./\\])(?<!https:)(?<!http:)(?:~|[A-Za-z]:)?[/\\](?:[^\s\"'`/\\]+[/\\])*([^\s\"'`/\\]+)"
)
"""An absolute local path in a text, with its last part as a group; URLs do not match."""


@dataclass(frozen=True)
class Published:
    """The files that were made, and where they would go or went."""

    folder: Path
    target: str
    files: list[str]
    address: str | None
    """The URL, after an upload."""

    def to_json(self) -> dict[str, object]:
        """Return a document for `json.dumps`."""
        return {"folder": str(self.folder), "target": self.target, "files": self.files, "address": self.address}


def publish(
    directory: str | Path, *, to: str, out: str | Path | None = None, license: str = "mit", upload: bool = False
) -> Published:
    """Make the dataset folder of a suite, or of other tables, in `out`, by default `DIR/published`; upload it if asked.

    >>> from collapselab import publish
    >>> made = publish("suites/tiny", to="hf:me/tiny")
    >>> made.files[0], made.address  # written, not uploaded
    ('README.md', None)

    `to` is `hf:USER/NAME`. The upload goes to HF_ENDPOINT, or the hub, with the token that `hf auth login` has stored.
    """
    directory, name = Path(directory), checked_target(to)
    if not (directory / "results.csv").is_file():
        raise RunError(f"{directory}: no results.csv. Run the suite, or collect it: collapselab suite collect.")
    made = Path(out) if out is not None else directory / "published"
    if made.exists():
        if not made.is_dir() or (any(made.iterdir()) and not (made / MEASUREMENTS).is_file()):
            raise ConfigError(f"{made}: exists, and `publish` did not make it. Choose another folder with --out.")
        remove_folder(made)
    with folder_written_whole(made) as partial:
        _write(directory, partial, name, license)
    files = sorted(str(path.relative_to(made)) for path in made.rglob("*") if path.is_file())
    return Published(made, name, files, upload_dataset(made, name) if upload else None)


def checked_target(to: str) -> str:
    """Return USER/NAME of a target on the hub; raise ConfigError for anything else."""
    target = TARGET.fullmatch(to)
    if target is None:
        raise ConfigError(f"to: {to[:100]!r} is not a target. Write hf:USER/NAME, e.g. hf:me/my-suite.")
    return target["name"]


def upload_dataset(folder: Path, name: str) -> str:
    """Upload a folder to a dataset of the hub, creating it if needed; return its URL."""
    from huggingface_hub import HfApi

    api = HfApi(endpoint=os.environ.get("HF_ENDPOINT"))
    try:
        api.create_repo(name, repo_type="dataset", exist_ok=True)
        api.upload_folder(
            folder_path=folder, repo_id=name, repo_type="dataset", commit_message="Results, measured with collapselab"
        )
    except Exception as error:
        words = " ".join(str(error).split())[:200]
        raise RunError(f"{name}: the upload failed ({words}). Log in with `hf auth login`, and try again.") from error
    return f"{api.endpoint}/datasets/{name}"


def _verify(directory: Path) -> list[str]:
    """Raise UserError naming a file that differs from what was written; return the files of the analysis."""
    tables = read_tables(directory, verify_sources=True)
    registered_primary(directory)
    folder = directory / "analysis"
    summary = SummaryRecord.find(folder / SUMMARY)
    if summary is None:
        return []
    again = f"Run `collapselab analyze {directory}` again."
    if summary.tables != tables.hashes:
        raise DamagedError(f"{folder / SUMMARY}: the analysis is of other tables. {again}")
    for name, digest in summary.files.items():
        if not (folder / name).is_file() or sha256(folder / name) != digest:
            raise DamagedError(f"{folder / name}: changed since the analysis wrote it. {again}")
    scores = [STORED] if stored_scores(directory) is not None else []
    return [SUMMARY, *summary.files, *scores]


def _write(directory: Path, out: Path, name: str, license: str) -> None:
    analysed = _verify(directory)
    if analysed and (directory / "report.html").is_file():
        # The page has no checksum and may be of earlier tables, so it is made again; an outdated analysis too.
        report(directory, out=out / "report.html")
        analysed = _verify(directory)
    results = _results(directory)
    unlocated = Results([_without_paths(result) for result in results], results.failures)
    (out / MEASUREMENTS).write_text(unlocated.to_json() + "\n", "utf-8")
    tables = [table for table in TABLES.values() if (directory / table.file).is_file()]
    for file in (*(table.file for table in tables), *(f"analysis/{file}" for file in analysed)):
        make_folder((out / file).parent)
        shutil.copyfile(directory / file, out / file)
    if (directory / HASHES).is_file():  # its sources can have absolute paths
        write_document(out / HASHES, without_local_paths(read_document(directory / HASHES)))
    if (summary := SummaryRecord.find(out / "analysis" / SUMMARY)) is not None:
        summary.model_copy(update={"directory": name.split("/")[1]}).write(out / "analysis" / SUMMARY)
    if (suite := SuiteRecord.find(directory / "suite.json")) is not None:
        suite.model_copy(update={"recipe": without_local_paths(suite.recipe)}).write(out / "suite.json")
    (out / "README.md").write_text(dataset_card(out, results, tables, name, license), "utf-8")


def _results(directory: Path) -> Results:
    """The measurements in a folder, or those that its tables were collected from."""
    try:
        return load_results(directory)
    except RunError:
        recorded = read_document(directory / HASHES) if (directory / HASHES).is_file() else {}
        files = [directory / source["file"] for source in cast(Any, recorded.get("made_from", []))]
        if not files or not all(file.is_file() for file in files):
            raise
        return Results([result for file in files for result in load_results(file)])


def _without_paths(result: Result) -> Result:
    """Return the measurement with paths of model and corpus reduced to names."""
    facts = cast(Facts, without_local_paths(result.facts))
    facts["corpus"] = Path(facts["corpus"]).name
    if facts["in_a_run"]:
        facts["model"] = f"{facts['run']}/checkpoints/{facts['checkpoint']}"
    if facts["run"] == result.facts["run"]:
        return replace(result, facts=facts)
    tables = {
        name: [renamed(row, facts["run"], facts["checkpoint"]) for row in rows]
        for name, rows in result.loaded_tables().items()
    }
    return replace(result, facts=facts, rows=tables.pop("results"), further=tables)


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


AnyTable = Table[Any] | ColumnTable
MOST_SENTENCES, MOST_OPTIONS = 12, 3
ABOUT = (
    "Neural collapse of language models: how closely the features of each next token gather around their mean, how "
    "these means are arranged, and how they agree with the output layer, beside the loss on held-out text."
)


def dataset_card(directory: Path, results: Results, tables: list[AnyTable], name: str, license: str) -> str:
    """Return the card of a dataset of results: metadata, then what a reader needs to judge and use the numbers."""
    configs = "".join(f"- config_name: {table.name}\n  data_files: {table.file}\n" for table in tables)
    front = f"---\nlicense: {license}\ntags: [neural-collapse, collapselab]\nconfigs:\n{configs}---"
    parts = [front, f"# {name.split('/')[1]}"]
    if (suite := SuiteRecord.find(directory / "suite.json")) is not None:
        question = _plain(str(suite.recipe.get("question", "")))
        parts.append(f"**{question}** The recipe `{_code(suite.name)}`, scale {suite.scale}.")
    parts.append(ABOUT)
    if (summary := SummaryRecord.find(directory / "analysis" / SUMMARY)) is not None:
        said = [f"- {_plain(sentence['text'])}" for sentence in summary.sentences[:MOST_SENTENCES]]
        parts += ["## What the tables say", "\n".join(said)]
    parts += ["## Files", _files(directory, tables), "## How it was measured", "\n".join(_provenance(results))]
    parts += [
        "## Use",
        f'```python\nfrom datasets import load_dataset\n\nrows = load_dataset("{name}", "results")\n```',
        "Compare with your own: `collapselab compare YOURS measurements.json`. It first checks that corpus, metric "
        "versions and options agree. `collapselab metrics NAME` explains a metric.",
    ]
    return "\n\n".join(parts) + "\n"


def _files(directory: Path, tables: list[AnyTable]) -> str:
    further = {
        "measurements.json": "Every measurement with its facts, for `collapselab compare`.",
        "suite.json": "The recipe: corpus, settings and grid of the runs.",
        "analysis": "A table for each statement, and `summary.json` with all sentences.",
        "report.html": "The page with all figures; it opens in a browser.",
    }
    rows = [f"| `{table.file}` | {table.about} |" for table in tables]
    there = [file for file in further if (directory / file).exists()]
    rows += [f"| `{file}` | {further[file]} |" for file in there]
    return "\n".join(["| file | what it holds |", "|---|---|", *rows])


def _provenance(results: Results) -> Iterator[str]:
    facts = [result.facts for result in results]
    yield f"- {len(facts):,} measurements"
    yield from dict.fromkeys(f"- text: {_text(fact)}" for fact in facts)
    versions = sorted({f"{name} {version}" for fact in facts for name, version in fact["versions"].items()})
    yield f"- versions: {_plain(', '.join(versions))}"
    options = dict.fromkeys(_options(fact["options"]) for fact in facts)
    yield from (f"- options: {text}" for text in list(options)[:MOST_OPTIONS])


def _text(facts: Facts) -> str:
    """Describe the text of a measurement: its name, how much of it was measured, and its hash."""
    splits = " and ".join(f"{split['tokens']:,} tokens of {name}" for name, split in facts["splits"].items())
    block = f" in blocks of {facts['block']:,} tokens" if "block" in facts else ""
    return f"{_plain(corpus_name(facts))}{block}, {splits}; corpus hash `{facts['corpus_hash']}`"


def corpus_name(facts: Facts) -> str:
    """Return the name of the text or of its corpus, never a local path."""
    return str(facts.get("text") or PurePath(str(facts["corpus"])).name)


def _options(options: OptionFacts) -> str:
    """Return the options that differ from their defaults, as `measure` takes them."""
    usual = {option.name: option.default for option in fields(Options)}
    given = []
    for name, value in options.items():
        if name not in RUNNING and value != usual.get(name):
            flag = name.replace("_", "-")
            given.append(f"--no-{flag}" if value is False else f"--{flag}" if value is True else f"--{flag} {value}")
    return f"`{_code(' '.join(given))}`" if given else "defaults"


def _plain(text: str) -> str:
    """Return a user's text on one line, with Markdown and HTML escaped."""
    return re.sub(r"([\\`*\[\]!|#])", r"\\\1", " ".join(text.split())).replace("<", "&lt;")


def _code(text: str) -> str:
    """Return a user's text for a code span."""
    return " ".join(text.split()).replace("`", "'")
