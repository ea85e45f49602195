"""Cards of the hub: that of a dataset of results, and what a measured model's card can have.

The reader of a card knows neither the suite nor this program: it says what a row of each table is, what the columns and
metrics mean, on which text and with which options the models were measured.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path, PurePath
from typing import Any, final

from collapselab import __version__
from collapselab.core.catalogue import METRICS
from collapselab.measurement.compare_results import RUNNING
from collapselab.records.facts import Facts, OptionFacts
from collapselab.records.measurement import Result, Results
from collapselab.records.options import Options
from collapselab.records.table import ColumnTable, Table, meanings
from collapselab.records.tables import Row

AnyTable = Table[Any] | ColumnTable
MOST_SENTENCES, MOST_OPTIONS = 12, 3
ABOUT = (
    "Neural collapse of language models: how closely the features of each next token gather around their mean, how "
    "these means are arranged, and how they agree with the output layer, beside the loss on held-out text."
)
SYMBOLS = (
    "A class is a next token, h a feature: the vector that enters the output layer, D numbers. A class has n_c "
    "samples, the mean μ_c, the variance σ_c² and the row w_c of the output layer; m_c is μ_c less the mean of all K "
    "class means, û_c the direction of m_c, ũ_c that of μ_c. Pairs are those of classes. CoV: standard deviation over "
    "mean."
)


def dataset_card(directory: Path, results: Results, tables: list[AnyTable], name: str, license: str) -> str:
    """The card of a dataset of results: metadata, then what a reader needs to judge and to use the numbers."""
    configs = "".join(f"- config_name: {table.name}\n  data_files: {table.file}\n" for table in tables)
    front = f"---\nlicense: {license}\ntags: [neural-collapse, collapselab]\nconfigs:\n{configs}---"
    parts = [front, f"# {name.split('/')[1]}", *_question(directory), ABOUT]
    parts += ["## What the tables say", *_sentences(directory)] if (directory / "analysis").is_dir() else []
    parts += ["## Files", _files(directory, tables), "## How it was measured", "\n".join(_provenance(results))]
    parts += [
        "## Use",
        f'```python\nfrom datasets import load_dataset\n\nrows = load_dataset("{name}", "results")\n```',
        "Compare with your own: `collapselab compare YOURS measurements.json`. It checks the corpus, the versions of "
        "the metrics and the options first.",
        "## Columns and metrics",
        *(_folded(f"Columns of {table.file}", _columns(table)) for table in tables),
        _folded("Metrics", f"{SYMBOLS}\n\n{_metrics(results)}"),
    ]
    return "\n\n".join(parts) + "\n"


def _question(directory: Path) -> Iterator[str]:
    from collapselab.records.suite import SuiteRecord

    record = SuiteRecord.find(directory / "suite.json")
    if record is not None:
        question = _plain(str(record.recipe.get("question", "")))
        yield f"**{question}** The recipe `{_code(record.name)}`, scale {record.scale}."


def _sentences(directory: Path) -> list[str]:
    from collapselab.analysis.stored import SUMMARY, SummaryRecord

    summary = SummaryRecord.find(directory / "analysis" / SUMMARY)
    if summary is None:
        return []
    lines = [f"- {_plain(sentence['text'])}" for sentence in summary.sentences[:MOST_SENTENCES]]
    return ["\n".join(lines)]


def _files(directory: Path, tables: list[AnyTable]) -> str:
    further = {
        "measurements.json": "Every measurement with its facts, for `collapselab compare`.",
        "suite.json": "The recipe: corpus, settings and grid of the runs.",
        "analysis": "A table for each statement, and `summary.json` with all sentences.",
        "report.html": "The page with all figures; it opens in a browser.",
    }
    rows = [f"| `{table.file}` | {table.about} |" for table in tables]
    rows += [f"| `{file}` | {what} |" for file, what in further.items() if _is_published(directory, file)]
    return "\n".join(["| file | what it holds |", "|---|---|", *rows])


def _is_published(directory: Path, file: str) -> bool:
    return file == "measurements.json" or (directory / file).exists()


def _provenance(results: Results) -> Iterator[str]:
    facts = [result.facts for result in results]
    yield f"- {len(facts):,} measurements, made with collapselab {__version__}"
    yield from dict.fromkeys(f"- text: {_text(fact)}" for fact in facts)
    versions = sorted({f"{name} {version}" for fact in facts for name, version in fact["versions"].items()})
    yield f"- versions: {_plain(', '.join(versions))}"
    options = dict.fromkeys(_options(fact["options"]) for fact in facts)
    yield from (f"- options: {text}" for text in list(options)[:MOST_OPTIONS])


def _text(facts: Facts) -> str:
    """The text of a measurement: its name, how much of it was measured, and its hash."""
    splits = " and ".join(f"{split['tokens']:,} tokens of {name}" for name, split in facts["splits"].items())
    block = f" in blocks of {facts['block']:,} tokens" if "block" in facts else ""
    return f"{_plain(corpus_name(facts))}{block}, {splits}; corpus hash `{facts['corpus_hash']}`"


def corpus_name(facts: Facts) -> str:
    """What the text is called, or its corpus; never a path on this machine."""
    return str(facts.get("text") or PurePath(str(facts["corpus"])).name)


def _options(options: OptionFacts) -> str:
    """The options that are not at their default, as `measure` takes them."""
    usual = {option.name: option.default for option in fields(Options)}
    given = [_flag(name, value) for name, value in options.items() if name not in RUNNING and value != usual.get(name)]
    return f"`{_code(' '.join(given))}`" if given else "those by default"


def _flag(name: str, value: int | str | bool | None) -> str:
    flag = name.replace("_", "-")
    return f"--no-{flag}" if value is False else f"--{flag}" if value is True else f"--{flag} {value}"


def _columns(table: AnyTable) -> str:
    rows = [f"| `{name}` | {_unlinked(meaning)} |" for name, meaning in meanings(table.row).items()]
    return "\n".join(["| column | meaning |", "|---|---|", *rows])


def _metrics(results: Results) -> str:
    measured = {row.metric for result in results for row in result.rows}
    rows = [
        f"| `{metric.id}` | {metric.property} | {_cell(metric.formula)} | {metric.direction or '–'} |"
        for metric in METRICS.values()
        if metric.id in measured
    ]
    return "\n".join(["| metric | property | formula | with collapse |", "|---|---|---|---|", *rows])


def _folded(title: str, content: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{content}\n\n</details>"


def _unlinked(text: str) -> str:
    return _cell(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text))


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


def _plain(text: str) -> str:
    """Return a user's text on one line, in which nothing is Markdown or HTML."""
    return re.sub(r"([\\`*\[\]!|#])", r"\\\1", " ".join(text.split())).replace("<", "&lt;")


def _code(text: str) -> str:
    """Return a user's text for a code span."""
    return " ".join(text.split()).replace("`", "'")


BEGIN, END = "<!-- collapselab -->", "<!-- end of collapselab -->"
"""Around the section, so that it can be replaced."""


@final
@dataclass(frozen=True)
class ModelCard:
    """What a measured model's card can have: `section` for its text, `index` for its metadata (`model-index`)."""

    section: str
    index: list[dict[str, object]]


def model_card(result: Result, *, name: str | None = None) -> ModelCard:
    """The parts of a model's card on the hub that a measurement fills. `name` is the model's there, else its own.

    >>> from collapselab import load_results, model_card
    >>> card = model_card(load_results("runs/small")[-1])
    >>> "## Neural collapse" in card.section, card.index[0]["results"][0]["metrics"][0]["type"]
    (True, 'cdnv')
    """
    return ModelCard(card_section(result), eval_results(result, name=name or result.facts["run"]))


def card_section(result: Result) -> str:
    """Markdown for a model card: every metric of the last layer beside its null, and how it was measured."""
    facts = result.facts
    rows = ["| property | metric | value | shuffled labels |", "|---|---|---|---|"]
    for row in _last_layer(result):
        null = "–" if row.null is None else f"{row.null:.4g}"
        rows.append(f"| {METRICS[row.metric].property} | `{row.metric}` | {row.value:.4g} | {null} |")
    tokens = facts["splits"]["train"]["tokens"]
    text = f"{_plain(corpus_name(facts))} (corpus hash `{facts['corpus_hash']}`)"
    how = f"Measured with collapselab {__version__} on {tokens:,} tokens of {text}, {facts['classes']:,} classes."
    return (
        "\n".join([BEGIN, "## Neural collapse", "", *rows, "", f"{how} Weights: `{facts['model_hash']}`.", END]) + "\n"
    )


def eval_results(result: Result, *, name: str) -> list[dict[str, object]]:
    """`model-index` of the hub: the values under the name of the model, on the text that they were measured on."""
    metrics = [
        {"type": row.metric, "name": f"{METRICS[row.metric].property}: {row.metric}", "value": row.value}
        for row in _last_layer(result)
    ]
    task = {"type": "text-generation", "name": "neural collapse"}
    text = corpus_name(result.facts)
    about = {"type": text, "name": text, "revision": result.facts["corpus_hash"]}
    return [{"name": name, "results": [{"task": task, "dataset": about, "metrics": metrics}]}]


def _last_layer(result: Result) -> list[Row]:
    return [
        row
        for row in result.rows
        if (row.split, row.layer, row.bin) == ("train", "last", "all")
        and row.value is not None
        and row.metric in METRICS
    ]
