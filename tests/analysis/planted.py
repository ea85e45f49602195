"""Tables with a planted truth: who drives whom is known, so what the analysis says can be right or wrong."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from collapselab.analysis.models import Models, combine
from collapselab.core.catalogue import METRICS
from collapselab.records.tables import RUNS, Row, Run


def run_of(name: str, **given: Any) -> Run:
    """A row of runs.csv; what is not given is of a small model after one epoch."""
    usual = {
        "run": name, "checkpoint": "1", "family": "gpt-neo", "width": 64, "depth": 2, "epochs": 1.0, "epoch": 1.0,
        "weight_decay": 0.0, "lr": 1e-3, "seed": 0, "parameters": 1000, "tokens": 10_000,
    }  # fmt: skip
    extra = {key: value for key, value in given.items() if key not in RUNS.columns}
    return {column: {**usual, **given}.get(column) for column in RUNS.columns} | extra


def row_of(run: Run, metric: str, value: float | None, *, null: float | None = None) -> Row:
    why = "it was not to be had." if value is None else None
    return Row(
        run=run["run"], checkpoint=run["checkpoint"], metric=metric, value=value, null=null, classes=100, tokens=1000,
        min_count=1, left_out=0, why=why, version=METRICS[metric].version if metric in METRICS else 1,
    )  # fmt: skip


def rows_of(runs: Sequence[Run], metrics: Mapping[str, Sequence[float | None]]) -> list[Row]:
    """Return the results of these metrics, whose values are in the order of the runs."""
    return [
        row_of(run, metric, None if value is None else float(value))
        for metric, values in metrics.items()
        for run, value in zip(runs, values, strict=True)
    ]


def table(runs: Sequence[Run], metrics: Mapping[str, Sequence[float | None]], **options: Any) -> Models:
    """Models with these metrics, in the order of the runs."""
    return combine(runs, rows_of(runs, metrics), **options)


def seeds_study(*, cells: int, seeds: int, metrics: Sequence[str] = ("agreement",), shared: bool = False) -> Models:
    """Cells of seeds over widths, not yet with anything to find: `drawn` puts it there. Each cell has its own seeds."""
    runs = [
        run_of(f"{c}-{s}", width=64 * 2**c, seed=s + (0 if shared else 100 * c), parameters=1000 * 4**c, val_loss=1.0)
        for c in range(cells) for s in range(seeds)
    ]  # fmt: skip
    return table(runs, {metric: [1.0] * len(runs) for metric in metrics})


def drawn(study: Models, rng: np.random.Generator, *, slope: float) -> Models:
    """A study in which scale moves every metric and the loss far more than the seed does; at fixed scale the correlation
    of agreement with the loss is `slope`, of the others 0."""
    scale = np.log2(study.frame["width"].to_numpy() / 64)
    own = rng.standard_normal((len(scale), len(study.metrics)))
    first = own[:, list(study.metrics).index("agreement")]
    luck = slope * first + np.sqrt(1 - slope**2) * rng.standard_normal(len(scale))
    values = 0.1 + 0.05 * scale[:, None] + 0.004 * own
    columns = {metric: values[:, i] for i, metric in enumerate(study.metrics)}
    return replace(study, frame=study.frame.assign(val_loss=4 - 0.3 * scale + 0.02 * luck, **columns))
