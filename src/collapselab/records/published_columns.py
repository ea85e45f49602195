"""The two tables that Wu and Papyan published: the columns of each, and which metric of the catalogue they make.

The second has other columns for the same models: variances in place of standard deviations, norms that are not squared,
distances of the *centred* means, and errors against a simplex frame. Which of the two a file is, its header says.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

OUTCOMES = {"val_loss": "val_loss", "val_accuracy": "val_acc", "perplexity": "perplex"}


@final
@dataclass(frozen=True)
class Source:
    """A metric of the catalogue as a function of published columns."""

    columns: tuple[str, ...]
    value: Callable[..., float]


@final
@dataclass(frozen=True)
class PublishedTable:
    """One of the tables: its columns by the metric they make, and what is left out of it."""

    name: str
    sources: Mapping[str, Source]
    note: str

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Every column that is read."""
        used = dict.fromkeys(column for source in self.sources.values() for column in source.columns)
        return ("model", "n_params", *OUTCOMES.values(), *used)


def recognise(header: Sequence[str]) -> PublishedTable:
    """The table that has most of its own columns in this header; the first if neither has any."""
    return max(TABLES, key=lambda table: len(_own(table) & set(header)) / len(_own(table)))


def _own(table: PublishedTable) -> set[str]:
    return set(table.columns) - {column for other in TABLES if other is not table for column in other.columns}


def _column(name: str) -> Source:
    return Source((name,), lambda value: value)


def _ratio(above: str, below: str) -> Source:
    return Source((above, below), lambda a, b: a / b)


def _share(part: str, rest: str) -> Source:
    return Source((part, rest), lambda a, b: a / (a + b))


def _root(variance: str) -> Source:
    return Source((variance,), math.sqrt)


def _variation(variance: str, mean: str) -> Source:
    return Source((variance, mean), lambda a, b: math.sqrt(a) / b)


FIRST = PublishedTable(
    "lc-2024_05_18.csv",
    {
        "cdnv_k2": _column("cdnv_mean"),
        "lognorm_cv": _ratio("norms_log_std", "norms_log_mean"),
        "cosine_mean": _column("interfere_mean"),
        "cosine_std": _column("interfere_std"),
        "cosine_cv": _ratio("interfere_std", "interfere_mean"),
        "logdist_uncentred_mean": _column("log_dist_mean"),
        "logdist_uncentred_std": _column("log_dist_std"),
        "logdist_uncentred_cv": _ratio("log_dist_std", "log_dist_mean"),
        "duality_cos_mean": _column("sims_mean"),
        "duality_cos_std": _column("sims_std"),
        "duality_cos_cv": _ratio("sims_std", "sims_mean"),
        "agreement": _share("matches", "misses"),
    },
    "dists_mean and dists_std are left out: they are not distances (many of the means are negative).",
)
SECOND = PublishedTable(
    "lc-2024_10_24.csv",
    {
        "cdnv_k2": _column("cdnv"),
        "norm_cv": _variation("norms_var", "norms_mean"),
        "lognorm_mean": _column("norms_log_mean"),
        "lognorm_cv": _variation("norms_log_var", "norms_log_mean"),
        "etf_error": _column("etf_error"),
        "logdist_mean": _column("log_kern_mean"),
        "logdist_std": _root("log_kern_var"),
        "logdist_cv": _variation("log_kern_var", "log_kern_mean"),
        "duality_cos_mean": _column("simcos_mean"),
        "duality_cos_std": _root("simcos_var"),
        "duality_cos_cv": _variation("simcos_var", "simcos_mean"),
        "duality_error": _column("dual_error"),
        "agreement": _share("hits", "misses"),
    },
    "interfere_mean and interfere_var are left out: they are inner products there, not cosines.",
)
TABLES = (FIRST, SECOND)
