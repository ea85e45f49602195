"""Tables of models that nobody trained: settings are made once, a simulation draws metrics and outcome into them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collapselab.analysis.models import Models, combine
from collapselab.core.catalogue import METRICS
from collapselab.records.tables import RUNS, Row, Run

Floats = NDArray[np.float64]
PAPER = tuple(metric.id for metric in METRICS.values() if metric.in_paper)


def run_of(name: str, **given: Any) -> Run:
    """A row of runs.csv; what is not given is of a small model after one epoch."""
    usual = {
        "run": name, "checkpoint": f"{given.get('epoch', 1.0):g}", "family": "gpt-neo", "width": 64, "depth": 2,
        "epochs": 1.0, "epoch": 1.0, "weight_decay": 0.0, "lr": 1e-3, "seed": 0, "parameters": 1000, "tokens": 10_000,
        "val_loss": 1.0,
    }  # fmt: skip
    extra = {key: value for key, value in given.items() if key not in RUNS.columns}
    columns: Any = {column: {**usual, **given}.get(column) for column in RUNS.columns} | extra
    run: Run = columns
    return run


def value_of(run: Run, metric: str, value: float = 1.0, *, null: float | None = None) -> Row:
    """A row of results.csv."""
    return Row(
        run=run["run"],
        checkpoint=run["checkpoint"],
        metric=metric,
        value=value,
        null=null,
        classes=100,
        tokens=1000,
        min_count=1,
        left_out=0,
    )


def table_of(runs: Sequence[Run], metrics: Sequence[str]) -> Models:
    """Models with these metrics, every value still 1: `with_values` puts others there."""
    rows = [value_of(run, metric) for metric in metrics for run in runs]
    return combine(runs, rows)


def with_values(models: Models, loss: Floats, metrics: Mapping[str, Floats]) -> Models:
    """The same models with this loss and these metrics; a metric that is related on its logarithm is given as that."""
    columns = {
        metric: np.exp(values) if METRICS[metric].transform == "log" else values for metric, values in metrics.items()
    }
    return replace(models, frame=models.frame.assign(val_loss=loss, **columns))


@cache
def seeds(cells: int, each: int, metrics: tuple[str, ...], *, shared: bool = False) -> Models:
    """Cells of seeds over widths; the seeds of a cell are its own, or the same in all."""
    return table_of(
        [
            run_of(f"{c}-{s}", width=64 * 2**c, seed=s if shared else 100 * c + s, parameters=1000 * 4**c)
            for c in range(cells)
            for s in range(each)
        ],
        metrics,
    )


@cache
def grid(widths: int = 6, depths: int = 5, regimes: int = 7, each: int = 1, metrics: tuple[str, ...] = PAPER) -> Models:
    """Architectures by regimes, as in the published table: 6 widths, 5 depths, 7 regimes."""
    return table_of(
        [
            run_of(
                f"{w}-{d}-{r}-{s}", width=64 * 2**w, depth=2**d, epochs=float(1 + r), epoch=float(1 + r), seed=s,
                tokens=10_000 * (1 + r), parameters=50_000 * 64 * 2**w + 12 * 2**d * (64 * 2**w) ** 2,
            )
            for w in range(widths) for d in range(depths) for r in range(regimes) for s in range(each)
        ],
        metrics,
    )  # fmt: skip
