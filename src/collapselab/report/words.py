"""What a reader calls things: metrics, settings and regimes in words, beside the ids that the tables use."""

import re
from collections.abc import Iterable

from markupsafe import Markup, escape

from collapselab.core.metrics import METRICS

METRIC_NAMES = {
    "cdnv": "Within-class variability",
    "cdnv_k2": "Within-class variability, fourth power",
    "cdnv_log": "Within-class variability, log",
    "scatter_ratio": "Scatter within / between",
    "scatter_pinv": "Scatter within / between, by direction",
    "norm_cv": "Spread of norms",
    "lognorm_cv": "Spread of log norms",
    "cosine_mean": "Mean cosine",
    "cosine_std": "Spread of cosines",
    "cosine_cv": "Relative spread of cosines",
    "etf_error": "Distance from a simplex frame",
    "etf_floor": "Least distance from a simplex frame",
    "logdist_mean": "Mean log distance",
    "logdist_std": "Spread of log distances",
    "logdist_cv": "Relative spread of log distances",
    "logdist_uncentred_mean": "Mean log distance, uncentred",
    "logdist_uncentred_std": "Spread of log distances, uncentred",
    "logdist_uncentred_cv": "Relative spread of log distances, uncentred",
    "duality_cos_mean": "Alignment of means and output rows",
    "duality_cos_std": "Spread of alignment",
    "duality_cos_cv": "Relative spread of alignment",
    "duality_error": "Distance from self-duality",
    "agreement": "Agreement with the nearest centre",
    "ncc_accuracy": "Accuracy of the nearest centre",
    "model_accuracy": "Accuracy of the model",
    "head_norm_cv": "Spread of norms, output rows",
    "head_cosine_mean": "Mean cosine, output rows",
    "head_cosine_std": "Spread of cosines, output rows",
    "head_logdist_mean": "Mean log distance, output rows",
    "head_logdist_std": "Spread of log distances, output rows",
    "head_logdist_cv": "Relative spread of log distances, output rows",
    "head_sum": "Sum of the output rows",
    "effective_rank": "Effective rank of the class means",
}
PROPERTY_NAMES = {
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
    "spectrum": "spectrum of the class means",
}
OUTCOME_NAMES = {
    "val_loss": "validation loss",
    "train_loss": "training loss",
    "perplexity": "perplexity",
    "val_accuracy": "validation accuracy",
}
SETTING_NAMES = {"weight_decay": "weight decay", "lr": "learning rate", "label_smoothing": "label smoothing"}


def metric_name(metric: str) -> str:
    """The metric, or the outcome, in words; its id where it has no others."""
    outcomes = {outcome: name.capitalize() for outcome, name in OUTCOME_NAMES.items()}
    return {**METRIC_NAMES, **outcomes}.get(metric, metric)


def property_code(metric: str) -> str:
    """NC1, NC2, GNC2, …: the property without what it is about."""
    return METRICS[metric].property.split()[0] if metric in METRICS else ""


def property_name(metric: str) -> str:
    return PROPERTY_NAMES.get(METRICS[metric].property, METRICS[metric].property) if metric in METRICS else ""


def outcome_name(outcome: str) -> str:
    return OUTCOME_NAMES.get(outcome, outcome)


def setting_name(column: str) -> str:
    return SETTING_NAMES.get(column, column.replace("_", " "))


def regime_name(regime: str) -> str:
    """`epochs=10 epoch=6 weight_decay=0.1` as `10 epochs, at epoch 6, weight decay 0.1`."""
    parts = []
    for part in regime.split(" "):
        name, equals, value = part.partition("=")
        if not equals:
            return regime
        if name in ("epochs", "epoch"):
            value = _rounded(value)
        told = {"epochs": f"{value} epoch{'' if value == '1' else 's'}", "epoch": f"at epoch {value}"}
        parts.append(told.get(name, f"{setting_name(name)} {value}"))
    if len(parts) > 1 and parts[0].split()[0] == parts[1].removeprefix("at epoch "):
        del parts[1]  # a run at its end
    return ", ".join(parts)


def _rounded(value: str) -> str:
    """`0.0997506` as `0.0998`: a checkpoint stands at a whole step, near the epoch it is called after."""
    try:
        return f"{float(value):.3g}"
    except ValueError:
        return value


def in_words(text: str) -> Markup:
    """A sentence of the summary, safe to put in a page, with names in place of ids and the ids at hand."""
    known = {**METRIC_NAMES, **OUTCOME_NAMES, **SETTING_NAMES}
    pattern = re.compile(rf"(?<![\w-])({'|'.join(_longest_first(known))})(?![\w-])")
    parts = pattern.split(text)
    return Markup("").join(
        _named(part, known[part]) if place % 2 else escape(part) for place, part in enumerate(parts)
    )  # fmt: skip


def coded(text: str) -> Markup:
    """A message, safe to put in a page, with what stands between back-ticks set as code."""
    parts = re.split(r"`([^`]+)`", text)
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if place % 2 else escape(part) for place, part in enumerate(parts)
    )


def _longest_first(words: Iterable[str]) -> list[str]:
    return sorted(map(re.escape, words), key=len, reverse=True)


def _named(id: str, name: str) -> Markup:
    lowered = name[0].lower() + name[1:]
    return Markup('<span class="metric" title="{}">{}</span>').format(id, lowered)
