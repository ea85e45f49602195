"""Simulations of controls.csv: a metric that is a smooth function of scale and chance, beside a loss that bends.

The same is done with the published table where it is there (`COLLAPSELAB_PUBLISHED` is its path): the loss is the real
one, the metric's smooth part a cubic in log width and log depth in every regime, and what that leaves of it changes
places between architectures.
"""

import os
from functools import cache, partial
from pathlib import Path

import numpy as np
from scipy.linalg import orth

from collapselab.analysis.controls import joint_tests, least_squares
from collapselab.analysis.models import Models, combine
from collapselab.analysis.multiverse import smooth_function
from collapselab.analysis.verdict import is_shown
from collapselab.core.metrics import METRICS
from collapselab.records.published import import_published
from simulations.entry import Interval, Verdict
from simulations.tables import PAPER, Floats, grid, seeds, with_values

PUBLISHED = Path(os.environ.get("COLLAPSELAB_PUBLISHED", "lc-2024_05_18.csv"))
PERMUTATIONS = 399
EFFECT = 0.6
"""Of what is planted: the standard deviation of the metric's own part in units of the loss' chance."""


def scale_of(models: Models) -> tuple[Floats, Floats, Floats]:
    """Log width, log depth and log epochs, each with mean 0 and deviation 1."""
    columns = (np.log(models.trained[name].to_numpy(dtype=float)) for name in ("width", "depth", "epochs"))
    width, depth, epochs = ((values - values.mean()) / (values.std() or 1.0) for values in columns)
    return width, depth, epochs


def chance(rng: np.random.Generator, models: Models, columns: int) -> Floats:
    """Half of it is the architecture's, in all regimes; half every model's own."""
    codes = np.unique(models.trained["architecture"], return_inverse=True)[1]
    of_architecture = rng.standard_normal((codes.max() + 1, columns))[codes]
    drawn: Floats = np.sqrt(0.5) * of_architecture + np.sqrt(0.5) * rng.standard_normal((len(codes), columns))
    return drawn


def bending(models: Models) -> Floats:
    """A loss that falls and flattens with size and training, faster with both."""
    width, depth, epochs = scale_of(models)
    return 2 + np.exp(-0.6 * width - 0.3 * depth - 0.2 * epochs + 0.1 * width * depth - 0.05 * width * epochs)


def smooth_tables(rng: np.random.Generator, models: Models, planted: bool) -> Models:
    """Every metric is a random cubic function of scale in every regime and chance; planted: agreement carries some of
    the loss' chance."""
    width, depth, epochs = scale_of(models)
    powers = [width**i * depth**j for i in range(4) for j in range(4 - i)]
    smooth = np.stack([*powers, *(power * epochs for power in powers)], axis=1)
    weights = rng.standard_normal((smooth.shape[1], len(models.metrics))) / 2
    own, luck = chance(rng, models, len(models.metrics)), chance(rng, models, 1)[:, 0]
    loss = bending(models) + 0.03 * luck
    if planted:
        agreement = list(models.metrics).index("agreement")
        own[:, agreement] = -EFFECT * luck + np.sqrt(1 - EFFECT**2) * own[:, agreement]
    values = 20 + smooth @ weights + 0.3 * own
    return with_values(models, loss, dict(zip(models.metrics, values.T, strict=True)))


def shown_jointly(models: Models, rng: np.random.Generator) -> set[str]:
    rows = joint_tests(models, permutations=PERMUTATIONS, seed=int(rng.integers(2**31)))
    assert rows
    return {row.metric for row in rows if row.family == "paper" and is_shown(row)}


def _joint(rng: np.random.Generator, planted: bool) -> bool:
    shown = shown_jointly(smooth_tables(rng, grid(), planted), rng)
    return "agreement" in shown if planted else bool(shown)


def _few(rng: np.random.Generator, planted: bool) -> bool:
    return bool(shown_jointly(smooth_tables(rng, grid(widths=6, depths=1, regimes=1, each=3), planted), rng))


@cache
def published() -> tuple[Models, Floats]:
    """The published models, one a cell, and the metrics on the scales of the catalogue: (models, metrics)."""
    runs, rows = import_published(PUBLISHED)
    whole = combine(runs, rows)
    frame = whole.frame[~whole.frame.duplicated("cell")].reset_index(drop=True)
    models = Models(frame, PAPER, "val_loss")
    values = [np.log(frame[m]) if METRICS[m].transform == "log" else frame[m] for m in PAPER]
    return models, np.stack([column.to_numpy(dtype=float) for column in values], axis=1)


def published_tables(rng: np.random.Generator, planted: bool) -> Models:
    """The real loss; every metric is its own smooth part and what that leaves of it, of another architecture."""
    models, values = published()
    width, depth, _ = scale_of(models)
    powers = np.stack([width**i * depth**j for i in range(4) for j in range(4 - i)], axis=1)
    regimes = np.unique(models.frame["regime"], return_inverse=True)[1]
    basis = orth(np.concatenate([powers * (regimes == regime)[:, None] for regime in range(regimes.max() + 1)], axis=1))
    smooth = basis @ (basis.T @ values)
    left = np.empty_like(values)
    names, codes = np.unique(models.frame["architecture"], return_inverse=True)
    places = {(code, regime): place for place, (code, regime) in enumerate(zip(codes, regimes, strict=True))}
    order = rng.permutation(len(names))
    for place, (code, regime) in enumerate(zip(codes, regimes, strict=True)):
        left[place] = (values - smooth)[places[order[code], regime]]
    loss = models.frame["val_loss"].to_numpy(dtype=float)
    if planted:
        rough = smooth_function(models.frame)
        spanned = orth(rough)
        luck = loss - spanned @ (spanned.T @ loss)
        agreement = PAPER.index("agreement")
        left[:, agreement] -= EFFECT * luck / luck.std() * left[:, agreement].std()
    drawn = smooth + left
    columns = {m: np.exp(drawn[:, i]) if METRICS[m].transform == "log" else drawn[:, i] for i, m in enumerate(PAPER)}
    return Models(models.frame.assign(**columns), PAPER, "val_loss")


def _published(rng: np.random.Generator, planted: bool) -> bool:
    shown = shown_jointly(published_tables(rng, planted), rng)
    return "agreement" in shown if planted else bool(shown)


def _covers(rng: np.random.Generator, *, architectures: int, each: int) -> bool:
    """Partial r beyond the size where models of an architecture are alike: half of the chance is the architecture's."""
    models = seeds(architectures, each, ("agreement",))
    codes = np.unique(models.frame["architecture"], return_inverse=True)[1]
    first, second = (
        np.sqrt(0.5) * rng.standard_normal(architectures)[codes] + np.sqrt(0.5) * rng.standard_normal(len(codes))
        for _ in range(2)
    )
    scale, r = np.log(models.frame["parameters"].to_numpy(dtype=float)), 0.5
    drawn = with_values(
        models, 4 - 0.1 * scale + 0.1 * (r * first + np.sqrt(1 - r**2) * second), {"agreement": 5 + scale + first}
    )
    row = next(row for row in least_squares(drawn) if row.controls == "log parameters")
    assert row.low is not None
    assert row.high is not None
    return row.low <= r <= row.high


VERDICTS = {
    "joint": Verdict(
        "a metric of the seven says something beyond scale, all specifications jointly",
        "30 architectures × 7 regimes: each metric a cubic function of scale by regime and chance; the loss bends",
        f"the same, {EFFECT} of the loss' chance in one", _joint, tables=600,
    ),
    "joint, published": Verdict(
        "… of the published models",
        "the real loss; each metric its own smooth part, and what that leaves of it from another architecture",
        f"the same, with {EFFECT} of what the loss has beyond scale in one", _published, tables=600, needs=PUBLISHED,
    ),
    "joint, few architectures": Verdict(
        "… of few architectures: no verdict is given", "6 architectures × 3 seeds", "the same", _few, tables=200,
    ),
}  # fmt: skip

INTERVALS = {
    "partial r of 12": Interval(
        "partial r (architectures left out in turn)", "12 architectures of 4 models that are alike, r 0.5",
        partial(_covers, architectures=12, each=4),
    ),
    "partial r of 30": Interval(
        "partial r (architectures left out in turn)", "30 architectures of 7 models that are alike, r 0.5",
        partial(_covers, architectures=30, each=7), tables=1000,
    ),
}  # fmt: skip
