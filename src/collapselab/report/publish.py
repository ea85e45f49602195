"""`publish`: the results of a folder as a dataset that others can load, with a card, and its way to the hub.

    <out>/README.md             the card: what was asked, what came out, how it was measured, how to use it
          runs.csv results.csv  and the other tables of the folder, with tables.json that holds their hashes
          measurements.json     every measurement with its facts, for `collapselab compare`
          analysis/ suite.json report.html    where the folder has them

Nothing leaves the machine unless `upload` is asked for.
"""

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import final

from collapselab import __version__
from collapselab.core.metrics import METRICS
from collapselab.disk import folder_written_whole, remove_folder
from collapselab.errors import ConfigError, RunError
from collapselab.records.measurement import Result, Results
from collapselab.records.result_folder import MEASUREMENTS, load_results
from collapselab.records.tables import TABLES, Row

TARGET = re.compile(r"hf:(?P<name>[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95})")
COPIED = ("tables.json", "suite.json", "report.html")
MOST_SENTENCES = 12


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


def _write(directory: Path, out: Path, name: str, license: str) -> None:
    results = load_results(directory)
    (out / MEASUREMENTS).write_text(results.to_json() + "\n", "utf-8")
    tables = [table.file for table in TABLES.values() if (directory / table.file).is_file()]
    for file in (*tables, *COPIED):
        if (directory / file).is_file():
            shutil.copyfile(directory / file, out / file)
    if (directory / "analysis").is_dir():
        shutil.copytree(directory / "analysis", out / "analysis", copy_function=shutil.copyfile)
    (out / "README.md").write_text(card(directory, results, tables, name, license), "utf-8")


def card(directory: Path, results: Results, tables: list[str], name: str, license: str) -> str:
    """The card of the dataset: metadata, then what a reader needs to judge and to use the numbers."""
    configs = "".join(f"- config_name: {Path(file).stem}\n  data_files: {file}\n" for file in tables)
    front = f"---\nlicense: {license}\ntags: [neural-collapse, collapselab]\nconfigs:\n{configs}---\n"
    parts = [front, f"# {name.split('/')[1]}", *_question(directory), *_provenance(results)]
    parts += ["## What the tables say", *_sentences(directory)] if (directory / "analysis").is_dir() else []
    parts += [
        "## Use",
        f'```python\nfrom datasets import load_dataset\n\nrows = load_dataset("{name}", "results")\n```',
        "Compare with your own: `collapselab compare YOURS measurements.json`. It checks the corpus, the versions of "
        "the metrics and the options first.",
    ]
    return "\n\n".join(parts) + "\n"


def _question(directory: Path) -> Iterator[str]:
    from collapselab.records.suite import SuiteRecord

    record = SuiteRecord.find(directory / "suite.json")
    if record is not None:
        question = _plain(str(record.recipe.get("question", "")))
        yield f"**{question}** The recipe `{_plain(record.name)}`, scale {record.scale}."


def _provenance(results: Results) -> Iterator[str]:
    facts = [result.facts for result in results]
    corpora = sorted({f"`{fact['corpus_hash']}`" for fact in facts})
    versions = sorted({f"{name} {version}" for fact in facts for name, version in fact["versions"].items()})
    options = sorted({str(dict(fact["options"])) for fact in facts})
    yield "## How it was measured"
    yield "\n".join(
        [
            f"- {len(facts):,} measurements, made with collapselab {__version__}",
            f"- corpus: {', '.join(corpora)}",
            f"- versions: {_plain(', '.join(versions))}",
            *(f"- options: `{_plain(text)}`" for text in options[:3]),
        ]
    )


def _sentences(directory: Path) -> list[str]:
    from collapselab.analysis.stored import SUMMARY, SummaryRecord

    summary = SummaryRecord.find(directory / "analysis" / SUMMARY)
    if summary is None:
        return []
    lines = [f"- {_plain(sentence['text'])}" for sentence in summary.sentences[:MOST_SENTENCES]]
    return ["\n".join(lines)]


def _plain(text: str) -> str:
    """Users' text on one line, without what Markdown or HTML would make of it."""
    return " ".join(text.split()).replace("<", "&lt;").replace("`", "'")


BEGIN, END = "<!-- collapselab -->", "<!-- end of collapselab -->"
"""Around the section, so that it can be replaced."""


@final
@dataclass(frozen=True)
class ModelCard:
    """What a measured model's card can have: `section` for its text, `index` for its metadata (`model-index`)."""

    section: str
    index: list[dict[str, object]]


def model_card(result: Result) -> ModelCard:
    """The parts of a model's card on the hub that a measurement fills.

    >>> from collapselab import load_results, model_card
    >>> card = model_card(load_results("runs/small")[-1])
    >>> "## Neural collapse" in card.section, card.index[0]["results"][0]["metrics"][0]["type"]
    (True, 'cdnv')
    """
    facts = result.facts
    name = str(facts.get("text") or PurePath(str(facts["corpus"])).name)  # not the path on this machine
    return ModelCard(card_section(result), eval_results(result, dataset=name))


def card_section(result: Result) -> str:
    """Markdown for a model card: every metric of the last layer beside its null, and how it was measured."""
    facts = result.facts
    rows = ["| property | metric | value | shuffled labels |", "|---|---|---|---|"]
    for row in _last_layer(result):
        null = "–" if row.null is None else f"{row.null:.4g}"
        rows.append(f"| {METRICS[row.metric].property} | `{row.metric}` | {row.value:.4g} | {null} |")
    tokens = facts["splits"]["train"]["tokens"]
    how = f"Measured on {tokens:,} tokens of a corpus with hash `{facts['corpus_hash']}`, {facts['classes']:,} classes."
    return (
        "\n".join([BEGIN, "## Neural collapse", "", *rows, "", f"{how} Weights: `{facts['model_hash']}`.", END]) + "\n"
    )


def eval_results(result: Result, *, dataset: str) -> list[dict[str, object]]:
    """`model-index` of the hub: the values under the name of the model, on the dataset that they were measured on."""
    metrics = [
        {"type": row.metric, "name": f"{METRICS[row.metric].property}: {row.metric}", "value": row.value}
        for row in _last_layer(result)
    ]
    task = {"type": "text-generation", "name": "neural collapse"}
    about = {"type": dataset, "name": dataset, "revision": result.facts["corpus_hash"]}
    return [{"name": result.name, "results": [{"task": task, "dataset": about, "metrics": metrics}]}]


def _last_layer(result: Result) -> list[Row]:
    return [
        row
        for row in result.rows
        if (row.split, row.layer, row.bin) == ("train", "last", "all")
        and row.value is not None
        and row.metric in METRICS
    ]
