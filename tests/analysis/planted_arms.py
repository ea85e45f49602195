"""Suites of arms with a planted truth: what an arm does to its metric and to the loss, and by which way, is known."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from analysis.planted import run_of, table
from collapselab.analysis.models import Models
from collapselab.records.tables import Run

NOISE = {"cdnv_log": 0.02, "logdist_std": 0.005, "val_loss": 0.01}
"""Standard deviation of a run's own luck, beside what arm and control of a seed share."""
STARTS = {"cdnv_log": -0.4, "logdist_std": 0.27, "val_loss": 3.45}


class Planted(NamedTuple):
    """What an arm adds to each column."""

    arm: str
    adds: Mapping[str, float] = {}
    unstable: Mapping[int, float] = {}
    """By seed: what is added to the loss of that run alone."""
    clipped: float | None = None
    """The share of steps that are clipped, on average; None where runs do not say it."""


def arms_table(arms: Sequence[Planted], **options: Any) -> Models:
    """Models of a control and these arms."""
    return table(*arms_runs(arms, **options))


def arms_runs(
    arms: Sequence[Planted], *, seeds: int, rng: np.random.Generator, widths: Sequence[int] = (64,),
    checkpoints: Sequence[float] = (0.25, 0.5, 1.0), pace: float = 0.2,
) -> tuple[list[Run], dict[str, list[float]]]:  # fmt: skip
    """A control and these arms, each with every seed and width; the loss falls by `pace` nats a log of tokens.

    Returns the runs, and the values of every metric in their order.
    """
    runs: list[Run] = []
    metrics: dict[str, list[float]] = {metric: [] for metric in NOISE if metric != "val_loss"}
    for width in widths:
        for seed in range(seeds):
            shared = {name: rng.normal(0, spread) for name, spread in NOISE.items()}
            for arm in (Planted(""), *arms):
                values = {
                    name: STARTS[name] + shared[name] + rng.normal(0, NOISE[name]) + arm.adds.get(name, 0.0)
                    for name in NOISE
                }
                values["val_loss"] += arm.unstable.get(seed, 0.0)
                values["cdnv_log"] -= 0.3 * np.log2(width / 64)
                clipped = None if arm.clipped is None else arm.clipped + 0.02 * rng.random()
                for epoch in checkpoints:
                    loss = values["val_loss"] - pace * np.log(epoch)
                    runs.append(run_of(
                        f"{width}-{seed}-{arm.arm}", checkpoint=f"{epoch:g}", width=width, seed=seed, epoch=epoch,
                        tokens=int(1e6 * epoch), val_loss=loss, train_loss=loss - 0.05, intervene=arm.arm or None,
                        clipped=clipped,
                    ))  # fmt: skip
                    for metric, column in metrics.items():
                        column.append(values[metric] + 0.1 * np.log(epoch))
    return runs, metrics
