"""Simulations of trends.csv: tables of 6 widths, 5 depths and up to 5 regimes, eight tests in the family.

A table counts if anything at all is claimed in it.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np

from collapselab.analysis.models import Models
from collapselab.analysis.trends import trends
from simulations.entry import SHOWN, Claim, answers
from simulations.tables import PAPER, Floats, run_of, table_of

WIDTHS, DEPTHS = (64, 128, 256, 512, 768, 1024), (1, 2, 4, 8, 12)
FIVE = ((1.0, 0.0), (1.0, 0.1), (3.0, 0.0), (10.0, 0.0), (10.0, 0.1))
LENGTHS = (1.0, 2.0, 3.0, 5.0, 10.0)
ORDERS, ORDER_CHECKPOINTS = 8, 6
SHAPE = (1 + len(PAPER), len(WIDTHS), len(DEPTHS))
PERMUTATIONS = 499
Claims = Callable[[np.random.Generator, bool], bool]


def _along(axis: str) -> Claims:
    """Most of what differs is the architecture's, in all five regimes; some is a model's own."""

    def claims(rng: np.random.Generator, planted: bool) -> bool:
        own = rng.standard_normal(SHAPE)[..., None] + 0.3 * rng.standard_normal((*SHAPE, len(FIVE)))
        levels = np.arange(len(WIDTHS))[:, None] if axis == "width" else np.arange(len(DEPTHS))[None]
        return _claimed(_models(own + planted * levels[None, :, :, None], regimes=FIVE), axis, rng)

    return claims


def _odd_level(axis: str) -> Claims:
    """Half of the variance is a level's, in all units alike: models of one width or depth are odd together."""

    def claims(rng: np.random.Generator, planted: bool) -> bool:
        own = rng.standard_normal(SHAPE)[..., None] + 0.3 * rng.standard_normal((*SHAPE, len(FIVE)))
        odd = rng.standard_normal((SHAPE[0], len(WIDTHS), 1, 1) if axis == "width" else (SHAPE[0], 1, len(DEPTHS), 1))
        return _claimed(_models(own + odd, regimes=FIVE), axis, rng)

    return claims


def _with_epochs(rng: np.random.Generator, planted: bool) -> bool:
    """Runs of five lengths that differ by their architecture, and each by its own luck."""
    luck = rng.standard_normal((*SHAPE, len(LENGTHS))) + planted * np.arange(len(LENGTHS))
    values = rng.standard_normal((*SHAPE, 1)) + luck
    return _claimed(_models(values, regimes=tuple((length, 0.1) for length in LENGTHS)), "epochs", rng)


def _along_checkpoints(rng: np.random.Generator, planted: bool) -> bool:
    """Checkpoints that wander from one to the next."""
    steps = rng.standard_normal((*SHAPE, 4)) + planted
    return _claimed(_models(np.cumsum(steps, axis=-1), checkpoints=(1, 2, 3, 4)), "epoch", rng)


def _along_shared_checkpoints(rng: np.random.Generator, planted: bool) -> bool:
    """Eight data orders with four models each; a third of every step is common to the runs of one order."""
    models, shape = _orders(), (1 + len(PAPER), ORDERS, len(WIDTHS), ORDER_CHECKPOINTS)
    common, own = rng.standard_normal((*shape[:2], 1, shape[3])), rng.standard_normal(shape)
    values = np.cumsum(np.sqrt(1 / 3) * common + np.sqrt(2 / 3) * own + planted, axis=-1)
    columns = dict(zip(("val_loss", *PAPER), values.reshape(len(values), -1), strict=True))
    return _claimed(replace(models, frame=models.frame.assign(**columns)), "epoch", rng)


@cache
def _orders() -> Models:
    return table_of(
        [
            run_of(f"{seed}-{width}", seed=seed, width=width, epoch=float(at), epochs=float(ORDER_CHECKPOINTS))
            for seed in range(ORDERS) for width in WIDTHS for at in range(1, 1 + ORDER_CHECKPOINTS)
        ],
        PAPER,
    )  # fmt: skip


def _under_decay(rng: np.random.Generator, planted: bool) -> bool:
    """Thirty pairs under weak and strong decay; half of its variance shared within a width."""
    shared = rng.standard_normal((*SHAPE[:2], 1)) + rng.standard_normal(SHAPE)
    difference = np.stack([np.zeros_like(shared), shared / 2**0.5 + 3 * planted], axis=-1)
    values = 3 * rng.standard_normal((*SHAPE, 1)) + difference
    return _claimed(_models(values, regimes=((1.0, 0.0), (1.0, 0.1))), "weight_decay", rng)


def _models(
    values: Floats, *, regimes: tuple[tuple[float, float], ...] = ((1.0, 0.0),), checkpoints: tuple[int, ...] = ()
) -> Models:
    """The outcome and the paper's seven metrics (8, widths, depths, regimes or checkpoints) as models."""
    study = _study(regimes, checkpoints)
    columns = dict(zip(("val_loss", *PAPER), values.reshape(len(values), -1), strict=True))
    return replace(study, frame=study.frame.assign(**columns))


@cache
def _study(regimes: tuple[tuple[float, float], ...], checkpoints: tuple[int, ...]) -> Models:
    runs = []
    for width, depth in product(WIDTHS, DEPTHS):
        for epochs, decay in regimes:
            for at in checkpoints or (epochs,):
                settings = {"width": width, "depth": depth, "weight_decay": decay, "epoch": float(at)}
                length = float(checkpoints[-1]) if checkpoints else epochs
                runs.append(run_of(f"{width}-{depth}-{epochs}-{decay}", **settings, epochs=length))
    return table_of(runs, PAPER)


def _claimed(models: Models, axis: str, rng: np.random.Generator) -> bool:
    """Permutations are drawn for every table: the same few hundred in all would have an error of their own."""
    rows = trends(models, axes=[axis], permutations=PERMUTATIONS, seed=int(rng.integers(2**31)))
    assert rows
    return any(row.family == "paper" and row.verdict in SHOWN for row in rows)


GIVES = answers("trends", *SHOWN)
LEVEL = "1 sd of architectures a level"
VERDICTS = {
    "width": Claim(
        "a metric or the outcome has a trend with width", "architectures differ, each in all its regimes alike", LEVEL,
        _along("width"), GIVES,
    ),
    "depth": Claim("… with depth", "the same", LEVEL, _along("depth"), GIVES),
    "width, odd levels": Claim(
        "… with width", "half of the variance is a width's, in all depths alike", "", _odd_level("width"), GIVES,
        tables=400,
    ),
    "depth, odd levels": Claim(
        "… with depth", "half of the variance is a depth's, in all widths alike", "", _odd_level("depth"), GIVES,
        tables=400,
    ),
    "epochs": Claim(
        "… with longer training", "runs differ by architecture and luck", "1 standard deviation a level",
        _with_epochs, GIVES,
    ),
    "checkpoints": Claim(
        "… along checkpoints", "checkpoints wander", "", _along_checkpoints, GIVES,
    ),
    "checkpoints of shared orders": Claim(
        "… along checkpoints", "8 data orders, a third of each step shared within one",
        "each step is 1 standard deviation up", _along_shared_checkpoints, GIVES, tables=400,
    ),
    "regulariser": Claim(
        "… under a regulariser", "half of its variance shared within a width",
        "3 standard deviations", _under_decay, GIVES,
    ),
}  # fmt: skip
