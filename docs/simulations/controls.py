"""Simulations of controls.csv: a metric that is a smooth function of scale and chance, beside a loss that bends.

The same is done with the published table where it is there (`COLLAPSELAB_PUBLISHED` is its path): the loss is the real
one, the metric's smooth part a cubic in log width and log depth in every regime, and what that leaves of it changes
places between architectures. Rough functions of scale, which no polynomial follows, are drawn from Gaussian processes
over the grid of widths and depths: the correlation of neighbours falls off over one to three steps.
"""

import os
from functools import cache
from pathlib import Path

import numpy as np
from scipy.linalg import orth

from collapselab.analysis.controls import controls, smooth_function
from collapselab.analysis.models import Models, combine
from collapselab.core.catalogue import METRICS
from collapselab.records.published import import_published
from simulations.entry import SHOWN, Claim, answers, is_shown
from simulations.tables import PAPER, Floats, grid, with_values

PUBLISHED = Path(os.environ.get("COLLAPSELAB_PUBLISHED", "lc-2024_05_18.csv"))
PERMUTATIONS = 399
EFFECT, STRONG = 0.6, 0.9
"""Of what is planted: the share of the loss' chance in the metric's own part."""
STEPS = (1.0, 1.5, 2.0, 3.0)
"""Over how many steps of the grid a rough function is alike."""
JOINTLY = answers("controls", *SHOWN)


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
    """Every metric is a random cubic function of scale in every regime and chance; planted: agreement has some of the
    loss' chance."""
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


def rough(rng: np.random.Generator, models: Models, columns: int) -> Floats:
    """Functions of scale that are alike over a few steps of the grid, and in all regimes, hardly, or in between."""
    ranks = [np.unique(models.trained[name], return_inverse=True)[1] for name in ("width", "depth")]
    regimes = np.unique(models.trained["regime"], return_inverse=True)[1]
    squares = sum((rank[:, None] - rank) ** 2 for rank in ranks)
    kernel = np.exp(-squares / (2 * rng.choice(STEPS) ** 2))
    kernel = kernel * np.where(regimes[:, None] == regimes, 1.0, rng.choice([0.0, 0.5, 0.9]))
    values, vectors = np.linalg.eigh(kernel)
    drawn: Floats = vectors @ (np.sqrt(np.maximum(values, 0))[:, None] * rng.standard_normal((len(values), columns)))
    return drawn


def _rough(rng: np.random.Generator, planted: bool) -> bool:
    """Metrics and loss are rough functions of scale, with some chance."""
    assert not planted
    models = grid()
    noise = rng.choice([0.03, 0.3])
    drawn = rough(rng, models, 1 + len(PAPER)) + noise * rng.standard_normal((len(models.trained), 1 + len(PAPER)))
    loss, values = drawn[:, 0], drawn[:, 1:]
    return bool(shown_jointly(with_values(models, 5 + loss, dict(zip(PAPER, 20 + values.T, strict=True))), rng))


def _rough_published(rng: np.random.Generator, planted: bool) -> bool:
    assert not planted
    models, _ = published()
    drawn = rough(rng, models, len(PAPER))
    drawn += rng.choice([0.03, 0.3]) * rng.standard_normal(drawn.shape)
    columns = {
        m: np.exp(drawn[:, i]) if METRICS[m].transform == "log" else 20 + drawn[:, i] for i, m in enumerate(PAPER)
    }
    return bool(shown_jointly(Models(models.frame.assign(**columns), PAPER, "val_loss"), rng))


def shown_jointly(models: Models, rng: np.random.Generator) -> set[str]:
    rows = controls(models, permutations=PERMUTATIONS, seed=int(rng.integers(2**31)))
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
        own = np.sqrt(1 - STRONG**2) * left[:, agreement]
        left[:, agreement] = own - STRONG * luck / luck.std() * left[:, agreement].std()
    drawn = smooth + left
    columns = {m: np.exp(drawn[:, i]) if METRICS[m].transform == "log" else drawn[:, i] for i, m in enumerate(PAPER)}
    return Models(models.frame.assign(**columns), PAPER, "val_loss")


def _published(rng: np.random.Generator, planted: bool) -> bool:
    shown = shown_jointly(published_tables(rng, planted), rng)
    return "agreement" in shown if planted else bool(shown)


VERDICTS = {
    "joint": Claim(
        "a metric of the seven is shown beyond scale",
        "30 architectures × 7 regimes: metrics are cubic in scale; the loss bends",
        f"the same, {EFFECT} of the loss' chance in one", _joint, JOINTLY, tables=400,
    ),
    "joint, rough": Claim(
        "… where scale is rough", "metrics and loss are no polynomials of scale",
        "", _rough, JOINTLY, tables=400,
    ),
    "joint, published": Claim(
        "… of the published models",
        "the real loss; residuals of metrics exchanged between architectures",
        f"the same, with {STRONG} of what the loss has beyond scale in one", _published, JOINTLY, tables=400,
        needs=PUBLISHED,
    ),
    "joint, published, rough": Claim(
        "… of the published models, where scale is rough",
        "the real loss; metrics are no polynomials of scale", "",
        _rough_published, JOINTLY, tables=400, needs=PUBLISHED,
    ),
    "joint, few architectures": Claim(
        "… of few architectures: no verdict", "6 architectures × 3 seeds", "", _few, JOINTLY, tables=40,
    ),
}  # fmt: skip
