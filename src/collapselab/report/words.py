"""Words of the page for verdicts, metrics, settings, regimes and trends, where the tables have ids."""

import re
from collections.abc import Sequence
from functools import cache

from markupsafe import Markup, escape

from collapselab.analysis.models import RELATED, Regime
from collapselab.analysis.trends import Trend
from collapselab.analysis.verdict import Verdict
from collapselab.analysis.words import OPPOSITE, PREDICTED, regime_words
from collapselab.core.catalogue import CONTEXT_METRICS, METRICS
from collapselab.records.outcomes import ON, context_columns

VERDICT_WORDS = {
    Verdict.AS_PREDICTED: "yes",
    Verdict.OPPOSITE: Verdict.OPPOSITE.value,
    Verdict.NO_DIRECTION: "related",
    Verdict.NOT_SHOWN: "no evidence",
    Verdict.TOO_FEW: Verdict.TOO_FEW.value,
    Verdict.DESCRIPTION: "descriptive",
}
"""Shortest words for a verdict, below a question."""
IN_PART, NO_ANSWER = "in part", "no answer"
"""For differing verdicts, and for missing numbers."""
TEST_WORDS = {
    Verdict.AS_PREDICTED: f"shown, {PREDICTED}",
    Verdict.OPPOSITE: f"shown, {OPPOSITE}",
    Verdict.NO_DIRECTION: "shown, no direction predicted",
    Verdict.NOT_SHOWN: "no evidence",
    Verdict.TOO_FEW: Verdict.TOO_FEW.value,
    Verdict.DESCRIPTION: "descriptive, not tested",
}
"""Words for a verdict in a legend."""

PROPERTY_NAMES = {  # properties that are not listed are named by their id
    "NC0": "zero-sum output layer",
    "NC1": "variability collapse",
    "NC2": "simplex frame",
    "NC2 equal norms": "equal norms",
    "NC2 equal angles": "equal angles",
    "GNC2": "hyperspherical uniformity",
    "NC3": "self-duality",
    "UNC3": "uniform duality",
    "NC4": "nearest-centre decisions",
    "NC2 of the output layer": "frame of the output layer",
    "GNC2 of the output layer": "uniformity of the output layer",
    "norms": "norms of the class means",
    "frequency": "frequency of the classes",
    "spectrum": "spectrum of the class means",
}
OUTCOME_NAMES = {
    "val_loss": "validation loss",
    "train_loss": "training loss",
    "perplexity": "perplexity",
    "val_accuracy": "validation accuracy",
    "bits_per_byte": "bits per byte",
}
FURTHER_NAMES = {
    "macro_loss": "loss averaged over classes",
    "rare_loss": "loss on rare classes",
    "gap": "gap between validation and training loss",
    "ece": "calibration error",
    "loss_after_temperature": "loss after temperature scaling",
    "corruption_slope": "increase of the loss with replaced inputs",
}
"""Names of outcomes whose ids are unclear in a sentence, such as `gap`."""
SETTING_NAMES = {"weight_decay": "weight decay", "lr": "learning rate", "label_smoothing": "label smoothing"}


def metric_name(metric: str) -> str:
    """Return the name of a metric or outcome; its id if it has none."""
    outcomes = {outcome: name.capitalize() for outcome, name in OUTCOME_NAMES.items()}
    return {**_metric_names(), **_context_names(), **outcomes}.get(metric, metric)


def _metric_names() -> dict[str, str]:
    return {metric.id: metric.name for metric in METRICS.values()}


@cache
def _context_names() -> dict[str, str]:
    """Return names such as `Variability within contexts, last 2 tokens` for `context_within_2`."""
    lengths = {name: "token" if key.n == 1 else f"{key.n} tokens" for name, key in context_columns().items()}
    return {
        name: f"{CONTEXT_METRICS[key.metric].name}, last {lengths[name]}" for name, key in context_columns().items()
    }


def property_code(metric: str) -> str:
    """Return the code of a property: NC1, NC2, GNC2, …"""
    return RELATED[metric].property.split()[0] if metric in RELATED else ""


def property_name(metric: str) -> str:
    return PROPERTY_NAMES.get(RELATED[metric].property, RELATED[metric].property) if metric in RELATED else ""


def outcome_column(outcome: str) -> str:
    """Return the column of the table `models` that holds the outcome: its name, or `outcome` for a user's own name such
    as score:arc.easy, which charts would parse as a path.
    """
    return outcome if outcome.isidentifier() else "outcome"


def outcome_name(outcome: str) -> str:
    """Return the name of the outcome: `loss_on:imdb` is `loss on imdb`; a user's score keeps its name."""
    if outcome.startswith(ON):
        return f"loss on {outcome.removeprefix(ON)}"
    return {**OUTCOME_NAMES, **FURTHER_NAMES}.get(outcome, outcome)


def setting_name(column: str) -> str:
    return SETTING_NAMES.get(column, column.replace("_", " "))


def regime_name(regime: Regime) -> str:
    """`epochs=10 epoch=6 weight_decay=0.1` as `10 epochs, at epoch 6, weight decay 0.1`."""
    return regime_words(regime, setting_name)


def trend_note(rows: Sequence[Trend]) -> str:
    """Describe the trends of one metric along one axis, and where they hold; regimes are not pooled."""
    return "; ".join(_note(row, several=len(rows) > 1) for row in rows)


def _note(row: Trend, *, several: bool) -> str:
    where = f" ({regime_name(row.where)})" if several and row.where else ""
    if row.verdict in (Verdict.TOO_FEW, Verdict.NOT_SHOWN):
        return f"{row.verdict}{where}"
    good, bad = ("better", "worse") if row.of_outcome else ("toward collapse", "away from collapse")
    known = {Verdict.AS_PREDICTED: f", {good}", Verdict.OPPOSITE: f", {bad}"}.get(row.verdict, "")
    return f"{row.change}{known}{where}"


def in_words(text: str) -> Markup:
    """Return a sentence of the summary as safe HTML, with names in place of ids, which are shown on hovering.

    An id with a dose, such as cdnv:+0.1, is an intervention and stays. Text between back-ticks is set as code.
    """
    known = {**_metric_names(), **_context_names(), **OUTCOME_NAMES, **SETTING_NAMES}
    longest_first = sorted(map(re.escape, known), key=len, reverse=True)
    parts = re.split(rf"(?<![\w-])({'|'.join(longest_first)})(?![\w-]|:[+-]?[\d.])", text)
    return Markup("").join(
        Markup('<span class="metric" title="{}">{}</span>').format(part, known[part][0].lower() + known[part][1:])
        if place % 2
        else coded(part)
        for place, part in enumerate(parts)
    )


def coded(text: str) -> Markup:
    """Return a message as safe HTML, with text between back-ticks set as code."""
    parts = re.split(r"`([^`]+)`", text)
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if place % 2 else escape(part) for place, part in enumerate(parts)
    )
