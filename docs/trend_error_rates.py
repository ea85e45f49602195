"""Tables without a trend, and with one: how often `trends.csv` and `diagnosis.csv` claim something of them.

Each function draws one table and says whether anything was claimed. Where there is nothing to find, the share of tables
with a claim is the rate of false ones, over a family of eight tests together.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from collapselab.analysis.diagnosis import COLLAPSING, Found, diagnose
from collapselab.analysis.models import Floats, Models, combine
from collapselab.analysis.trends import Trend, trends
from collapselab.analysis.verdict import Verdict
from collapselab.core.metrics import METRICS
from collapselab.records.tables import RUNS, Row, Run

WIDTHS, DEPTHS = (64, 128, 256, 512, 768, 1024), (1, 2, 4, 8, 12)
SEVEN = tuple(metric.id for metric in METRICS.values() if metric.in_paper)
FIVE = ((1.0, 0.0), (1.0, 0.1), (3.0, 0.0), (10.0, 0.0), (10.0, 0.1))
PERMUTATIONS = 499
CLAIMS = (Verdict.AS_PREDICTED, Verdict.OPPOSITE, Verdict.NO_DIRECTION)
Draw = Callable[[np.random.Generator], bool]


def trend_with_width(rng: np.random.Generator, *, slope: float = 0.0) -> bool:
    """Architectures differ, each in all its regimes alike; the axis does nothing, or adds `slope` a level."""
    return _claims(_by_architecture(rng, slope * np.arange(len(WIDTHS))[:, None]), "width")


def trend_with_depth(rng: np.random.Generator, *, slope: float = 0.0) -> bool:
    """The same along depth."""
    return _claims(_by_architecture(rng, slope * np.arange(len(DEPTHS))[None]), "depth")


def trend_with_epochs(rng: np.random.Generator, *, slope: float = 0.0) -> bool:
    """Runs of one, three and ten epochs that differ by their architecture, and each by its own luck."""
    own = rng.standard_normal((8, len(WIDTHS), len(DEPTHS), 1))
    luck = rng.standard_normal((8, len(WIDTHS), len(DEPTHS), 3)) + slope * np.arange(3)
    return _claims(_models(own + luck, regimes=((1.0, 0.1), (3.0, 0.1), (10.0, 0.1))), "epochs")


def trend_along_checkpoints(rng: np.random.Generator, *, slope: float = 0.0) -> bool:
    """Checkpoints that wander from one to the next, in runs of thirty architectures."""
    steps = rng.standard_normal((8, len(WIDTHS), len(DEPTHS), 4)) + slope
    return _claims(_models(np.cumsum(steps, axis=-1), checkpoints=(1, 2, 3, 4)), "epoch")


def effect_of_decay(rng: np.random.Generator, *, effect: float = 0.0) -> bool:
    """Thirty pairs under weak and strong decay; half of the variance of its effect is shared within a width."""
    level = rng.standard_normal((8, len(WIDTHS), len(DEPTHS), 1))
    shared = rng.standard_normal((8, len(WIDTHS), 1)) + rng.standard_normal((8, len(WIDTHS), len(DEPTHS)))
    difference = np.stack([np.zeros_like(shared), shared / 2**0.5 + effect], axis=-1)
    return _claims(_models(3 * level + difference, regimes=((1.0, 0.0), (1.0, 0.1))), "weight_decay")


def over_fitting(
    rng: np.random.Generator, *, seeds: int = 1, checkpoints: int = 6, noise: float = 0.01, rise: float = 0.0
) -> bool:
    """A loss that is flat, or rises in the second half, with a noise of 1 %; what is said of the first seed's run."""
    trend = rise * np.maximum(0, np.arange(checkpoints) - checkpoints // 2)
    losses = 2 * (1 + noise * rng.standard_normal((seeds, checkpoints)) + trend)
    runs = [
        _run(f"s{s}", epoch=float(e + 1), epochs=float(checkpoints), seed=s, val_loss=float(losses[s, e]))
        for s in range(seeds) for e in range(checkpoints)
    ]  # fmt: skip
    findings = diagnose(combine(runs, [_row(run, "cdnv", 0.3, null=1.0) for run in runs]))
    return any(f.found is Found.YES for f in findings if (f.run, f.signature) == ("s0", "over-fitted"))


def over_regularising(rng: np.random.Generator, *, rank: float = 1.0, worse: float = 0.0) -> bool:
    """A run and its twin with weaker decay that differ by chance: 1 % in the loss, 20 % in rank and norms."""
    runs = [
        _run(name, weight_decay=decay, val_loss=2 * (1 + 0.01 * rng.standard_normal() + extra))
        for name, decay, extra in (("weak", 0.0, 0.0), ("strong", 0.1, worse))
    ]
    rows = [
        _row(run, metric, factor * (1 + 0.2 * rng.standard_normal()))
        for run, factor in zip(runs, (1.0, rank), strict=True) for metric in COLLAPSING
    ]  # fmt: skip
    findings = diagnose(combine(runs, rows))
    return any(f.found is Found.YES for f in findings if f.signature == "over-regularised")


def _by_architecture(rng: np.random.Generator, trend: NDArray[np.floating[Any]]) -> Models:
    """Most of what differs is the architecture's, in all five regimes; some is a model's own."""
    shape = (8, len(WIDTHS), len(DEPTHS))
    own = rng.standard_normal(shape)[..., None] + 0.3 * rng.standard_normal((*shape, 5))
    return _models(own + trend[None, :, :, None], regimes=FIVE)


def _models(
    values: Floats, *, regimes: tuple[tuple[float, float], ...] = ((1.0, 0.0),), checkpoints: tuple[int, ...] = ()
) -> Models:
    """The outcome and the paper's seven metrics (8, widths, depths, regimes or checkpoints) as models."""
    study = _study(regimes, checkpoints)
    columns = dict(zip(("val_loss", *SEVEN), values.reshape(8, -1), strict=True))
    return replace(study, frame=study.frame.assign(**columns))


@cache
def _study(regimes: tuple[tuple[float, float], ...], checkpoints: tuple[int, ...]) -> Models:
    runs = []
    for width, depth in product(WIDTHS, DEPTHS):
        for epochs, decay in regimes:
            for at in checkpoints or (epochs,):
                name = f"{width}-{depth}-{epochs}-{decay}"
                length = float(checkpoints[-1]) if checkpoints else epochs
                settings = {"width": width, "depth": depth, "epochs": length, "epoch": float(at), "weight_decay": decay}
                runs.append(_run(name, **settings, val_loss=1.0))
    return combine(runs, [_row(run, metric, 1.0) for run in runs for metric in SEVEN])


def _claims(models: Models, axis: str) -> bool:
    claimed: list[Trend] = [
        row
        for row in trends(models, axes=[axis], permutations=PERMUTATIONS)
        if row.family == "paper" and row.verdict_code in CLAIMS
    ]
    return bool(claimed)


def _run(name: str, **given: Any) -> Run:
    usual: dict[str, Any] = {
        "run": name, "checkpoint": f"{given.get('epoch', 1.0):g}", "family": "gpt-neo", "width": 64, "depth": 2,
        "epochs": 1.0, "epoch": 1.0, "weight_decay": 0.0, "lr": 1e-3, "seed": 0, "parameters": 1000, "tokens": 10_000,
    }  # fmt: skip
    run: Any = {column: (usual | given).get(column) for column in RUNS.columns}
    return cast(Run, run)


def _row(run: Run, metric: str, value: float, *, null: float | None = None) -> Row:
    return Row(
        run=run["run"],
        checkpoint=run["checkpoint"],
        metric=metric,
        value=value,
        null=null,
        classes=9,
        tokens=9,
        min_count=1,
        left_out=0,
    )


NULLS: dict[str, Draw] = {
    "trend with width": trend_with_width,
    "trend with depth": trend_with_depth,
    "trend with longer training": trend_with_epochs,
    "trend along checkpoints": trend_along_checkpoints,
    "effect of a regulariser": effect_of_decay,
    "over-fitted, one run of 6 checkpoints": over_fitting,
    "over-fitted, one run of 12 checkpoints": lambda rng: over_fitting(rng, checkpoints=12),
    "over-fitted, 5 seeds": lambda rng: over_fitting(rng, seeds=5),
    "over-regularised": over_regularising,
}
EFFECTS: dict[str, Draw] = {
    "trend with width": lambda rng: trend_with_width(rng, slope=1.0),
    "trend with depth": lambda rng: trend_with_depth(rng, slope=1.0),
    "trend with longer training": lambda rng: trend_with_epochs(rng, slope=1.0),
    "trend along checkpoints": lambda rng: trend_along_checkpoints(rng, slope=1.0),
    "effect of a regulariser": lambda rng: effect_of_decay(rng, effect=3.0),
    "over-fitted, one run of 6 checkpoints": lambda rng: over_fitting(rng, rise=0.03),
    "over-fitted, one run of 12 checkpoints": lambda rng: over_fitting(rng, checkpoints=12, rise=0.03),
    "over-fitted, 5 seeds": lambda rng: over_fitting(rng, seeds=5, rise=0.03),
    "over-regularised": lambda rng: over_regularising(rng, rank=0.25, worse=0.1),
}
