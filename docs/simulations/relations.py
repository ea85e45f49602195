"""Simulations of relate.csv: seeds of one cell, of several, shared by all; reversals; intervals of r and slope."""

from dataclasses import replace
from functools import cache, partial

import numpy as np

from collapselab.analysis.models import Models
from collapselab.analysis.relate import Relation, relate_subset, reversals
from collapselab.analysis.subsets import subsets, within_cells
from collapselab.core.catalogue import METRICS
from simulations.entry import SHOWN, Claim, Interval, answers, is_shown
from simulations.tables import PAPER, Floats, grid, run_of, seeds, table_of, with_values

FURTHER = ("cdnv", "cosine_mean", "cosine_std", "logdist_std", "duality_cos_std", "head_norm_cv", "head_sum", "norm_cv")
PERMUTATIONS = 999
RELATED = answers("relate", *SHOWN)
PLANTED = 0.75
"""|r| of agreement and the loss at fixed scale, where an effect is planted."""


def _cells(models: Models) -> Floats:
    return np.log2(models.frame["width"].to_numpy() / 64)


def _drawn(
    rng: np.random.Generator, models: Models, r: float, *, target: str = "agreement", shared: float = 0.0
) -> Models:
    """Scale moves metrics and loss far more than the seed does. At fixed scale metrics are alike (r 0.5), and the loss
    correlates by `r` with the target alone; `shared` is the share of variance that a seed has in all cells."""
    scale, names = _cells(models), list(models.metrics)
    seed = models.frame["seed"].to_numpy(dtype=int)

    def noise(columns: int) -> Floats:
        own = rng.standard_normal((len(scale), columns))
        common = rng.standard_normal((seed.max() + 1, columns))[seed]
        drawn: Floats = np.sqrt(1 - shared) * own + np.sqrt(shared) * common
        return drawn

    loss, alike, own = noise(1)[:, 0], noise(1), noise(len(names))
    values = np.sqrt(0.5) * alike + np.sqrt(0.5) * own
    if r:
        values[:, names.index(target)] = r * loss + np.sqrt(1 - r**2) * own[:, names.index(target)]
    metrics = {name: 5 + scale + 0.1 * values[:, i] for i, name in enumerate(names)}
    return with_values(models, 4 - 0.3 * scale + 0.02 * loss, metrics)


def _within(models: Models, rng: np.random.Generator) -> list[Relation]:
    seed = int(rng.integers(2**31))
    return relate_subset(models, within_cells(models.trained), permutations=PERMUTATIONS, seed=seed)


def _claims(
    rng: np.random.Generator,
    planted: bool,
    *,
    cells: int,
    each: int,
    shared: float = 0.0,
    metrics: tuple[str, ...] = PAPER,
) -> bool:
    target = "agreement" if "agreement" in metrics else metrics[0]
    models = seeds(cells, each, metrics, shared=shared > 0)
    rows = _within(_drawn(rng, models, -PLANTED if planted else 0.0, target=target, shared=shared), rng)
    judged = [row for row in rows if row.transform == METRICS[row.metric].transform]
    assert len(judged) == len(metrics)
    if planted:
        return any(is_shown(row) and row.metric == target for row in judged)
    return any(is_shown(row) for row in judged)


@cache
def _two_seeds(design: str) -> Models:
    """Runs of one cell: 4 seeds crossed with 5 data orders, or 7 seeds with 3 data orders of their own."""
    pairs = (
        [(s, 10 + d) for s in range(4) for d in range(5)]
        if design == "crossed"
        else [(s, 10 + 3 * s + d) for s in range(7) for d in range(3)]
    )
    return table_of([run_of(f"{s}-{d}", seed=s, data_seed=d) for s, d in pairs], PAPER)


def _two_factors(rng: np.random.Generator, planted: bool, *, design: str) -> bool:
    """Most of the variance belongs to what runs share: 0.6 in all, half to each factor where they are crossed."""
    models = _two_seeds(design)
    seed, order = (models.frame[name].to_numpy(dtype=int) for name in ("seed", "data_seed"))
    shares = (0.3, 0.3) if design == "crossed" else (0.6, 0.0)

    def noise() -> Floats:
        first, second = rng.standard_normal(100)[seed], rng.standard_normal(100)[order]
        own = rng.standard_normal(len(seed))
        drawn: Floats = np.sqrt(shares[0]) * first + np.sqrt(shares[1]) * second + np.sqrt(1 - sum(shares)) * own
        return drawn

    loss = noise()
    metrics = {metric: 5 + 0.1 * noise() for metric in models.metrics}
    if planted:
        metrics["agreement"] = 5 - 0.1 * (0.9 * loss + np.sqrt(1 - 0.9**2) * noise())
    rows = _within(with_values(models, 4 + 0.02 * loss, metrics), rng)
    return any(is_shown(row) and (row.metric == "agreement" or not planted) for row in rows)


def _one_broken(rng: np.random.Generator, planted: bool) -> bool:
    """One run of 21 is ten standard deviations away in the loss and in every metric; nothing else is related."""
    models = _drawn(rng, seeds(1, 21, PAPER), -PLANTED if planted else 0.0)
    if not planted:
        broken = np.zeros(21)
        broken[int(rng.integers(21))] = 10
        columns = {
            name: models.frame[name] * np.exp(broken)
            if METRICS[name].transform == "log"
            else models.frame[name] + broken
            for name in models.metrics
        }
        models = replace(models, frame=models.frame.assign(val_loss=models.frame["val_loss"] + 0.2 * broken, **columns))
    rows = _within(models, rng)
    return any(row.verdict in SHOWN and (row.metric == "agreement" or not planted) for row in rows)


def _accuracy(rng: np.random.Generator, planted: bool) -> bool:
    """An outcome that is better where it is higher and has ties: right answers to 50 questions, as a score."""
    models = _drawn(rng, seeds(1, 21, PAPER), -PLANTED if planted else 0.0)
    luck = models.frame["val_loss"].to_numpy()
    right = np.round(30 - 4 * (luck - luck.mean()) / luck.std())
    scored = replace(models, frame=models.frame.assign(**{"score:quiz": right / 50}), outcome="score:quiz")
    judged = [row for row in _within(scored, rng) if row.transform == METRICS[row.metric].transform]
    if planted:
        return any(row.metric == "agreement" and row.verdict == "as predicted" for row in judged)
    return any(is_shown(row) for row in judged)


def _reverses(rng: np.random.Generator, planted: bool) -> bool:
    """Across models the loss falls with agreement; planted: at fixed scale it rises."""
    models = _drawn(rng, seeds(6, 7, PAPER), PLANTED if planted else 0.0)
    seed = int(rng.integers(2**31))
    rows = [
        row for subset in subsets(models) for row in relate_subset(models, subset, permutations=PERMUTATIONS, seed=seed)
    ]
    return any(within.metric == "agreement" or not planted for _, within in reversals(rows))


def _covers(rng: np.random.Generator, *, cells: int, each: int, r: float, shared: float = 0.0) -> bool:
    """A metric with a known r at fixed scale. Where that is 0, so is the slope, whose interval is looked at."""
    row = _within(_drawn(rng, seeds(cells, each, ("agreement",), shared=shared > 0), r, shared=shared), rng)[0]
    low, high = (row.low, row.high) if r else (row.slope_low, row.slope_high)
    assert low is not None
    assert high is not None
    return low <= r <= high


def _across(rng: np.random.Generator) -> bool:
    """Over 30 architectures of 7 alike models each: the population's r is that of the architectures."""
    models = grid(metrics=("agreement",))
    codes = np.unique(models.frame["architecture"], return_inverse=True)[1]
    r, share = 0.5, 0.7
    first, second = (
        np.sqrt(share) * rng.standard_normal(30)[codes] + np.sqrt(1 - share) * rng.standard_normal(len(codes))
        for _ in range(2)
    )
    models = with_values(models, 4 + r * first + np.sqrt(1 - r**2) * second, {"agreement": 5 + first})
    row = relate_subset(models, next(subsets(models)), permutations=99, seed=0)[0]
    assert row.low is not None
    assert row.high is not None
    return bool(row.low <= r <= row.high)


VERDICTS = {
    "seeds": Claim(
        "a metric of the seven is shown among seeds", "21 seeds, no metric related to the loss",
        f"the same, r {PLANTED} for one", partial(_claims, cells=1, each=21), RELATED,
    ),
    "seeds of several cells": Claim(
        "… among seeds of several cells", "4 cells of 6 seeds of their own, scale moves everything",
        f"the same, r {PLANTED} for one", partial(_claims, cells=4, each=6), RELATED,
    ),
    "seeds shared by cells": Claim(
        "… among seeds that all cells share", "4 cells of the same 9 seeds, half of the variance in common",
        f"the same, r {PLANTED} for one", partial(_claims, cells=4, each=9, shared=0.5), RELATED, tables=600,
    ),
    "seeds crossed with data orders": Claim(
        "… among seeds crossed with data seeds", "4 seeds × 5 data seeds, with 0.6 of the variance",
        "the same, r 0.9 for one", partial(_two_factors, design="crossed"), RELATED, tables=400,
    ),
    "runs of few initialisations": Claim(
        "… among runs of few initialisations", "7 seeds × 3 data orders; seeds have 0.6 of the variance",
        "the same, r 0.9 for one", partial(_two_factors, design="forked"), RELATED, tables=400,
    ),
    "one broken run": Claim(
        "… where one run is broken", "21 seeds, one far away in loss and metrics",
        f"no run is broken, r {PLANTED} for one", _one_broken, RELATED, tables=400,
    ),
    "further metrics": Claim(
        "a further metric is shown among seeds", f"21 seeds, {len(FURTHER)} metrics, none related to the loss",
        f"the same, r {PLANTED} for one", partial(_claims, cells=1, each=21, metrics=FURTHER), RELATED, tables=600,
    ),
    "score": Claim(
        "… with a score, higher is better",
        "21 seeds, 50 questions, no metric related", f"the same, r about {PLANTED} for one",
        _accuracy, RELATED, tables=600,
    ),
    "reversal": Claim(
        "a metric reverses between models and seeds", "6 cells of 7 seeds, related across cells alone",
        f"the same, r {PLANTED} of the other sign within cells", _reverses,
        answers("relate", "reversal"), tables=600,
    ),
}  # fmt: skip

INTERVALS = {
    "r of 5": Interval("r (Fisher's z)", "5 seeds, r 0.5", partial(_covers, cells=1, each=5, r=0.5)),
    "r of 21": Interval("r (Fisher's z)", "21 seeds, r 0.5", partial(_covers, cells=1, each=21, r=0.5)),
    "r of 8 cells": Interval("r within cells", "8 cells of 5 seeds, r 0.5", partial(_covers, cells=8, each=5, r=0.5)),
    "r of shared seeds": Interval(
        "r within cells (seeds left out in turn)", "4 cells of the same 9 seeds, half of the variance in common, r 0.5",
        partial(_covers, cells=4, each=9, r=0.5, shared=0.5),
    ),
    "slope of 21": Interval("slope", "21 seeds, slope 0", partial(_covers, cells=1, each=21, r=0.0)),
    "r across architectures": Interval(
        "r across models (architectures left out in turn)", "30 architectures of 7 models that are alike, r 0.5",
        _across,
    ),
}  # fmt: skip
