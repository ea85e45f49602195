"""A measured model in its card on the hub: a section for people, and `model-index` metadata for programs."""

from typing import Any

from collapselab.core.metrics import METRICS
from collapselab.records.measurement import Result

BEGIN, END = "<!-- collapselab -->", "<!-- end of collapselab -->"
"""Around the section, so that it can be replaced."""


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


def with_section(card: str, section: str) -> str:
    """A card with the section, in place of the one that it may have."""
    if BEGIN in card and END in card:
        before, rest = card.split(BEGIN, 1)
        return f"{before}{section.rstrip()}{rest.split(END, 1)[1]}"
    return f"{card.rstrip()}\n\n{section}"


def eval_results(result: Result, *, dataset: str) -> list[dict[str, Any]]:
    """`model-index` of the hub: the values under the name of the model, on the dataset that they were measured on."""
    metrics = [
        {"type": row.metric, "name": f"{METRICS[row.metric].property}: {row.metric}", "value": row.value}
        for row in _last_layer(result)
    ]
    task = {"type": "text-generation", "name": "neural collapse"}
    about = {"type": dataset, "name": dataset, "revision": result.facts["corpus_hash"]}
    return [{"name": result.name, "results": [{"task": task, "dataset": about, "metrics": metrics}]}]


def _last_layer(result: Result) -> list[Any]:
    return [
        row
        for row in result.rows
        if (row.split, row.layer, row.bin) == ("train", "last", "all")
        and row.value is not None
        and row.metric in METRICS
    ]
