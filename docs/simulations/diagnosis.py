"""Simulations of diagnosis.csv: cells that are over-fitted, and cells that only look like it by chance."""

from functools import partial

import numpy as np

from collapselab.analysis.curves import TIGHTNESS, diagnose
from collapselab.analysis.models import combine
from collapselab.records.tables import Row, Run
from simulations.entry import Claim, answers
from simulations.tables import Floats, run_of, value_of

NOISE = 0.01
"""Of a loss, relative."""


def _says(runs: list[Run], rows: list[Row], run: str) -> bool:
    return next(finding.found for finding in diagnose(combine(runs, rows)) if finding.run == run) is True


def _over_fitted(rng: np.random.Generator, planted: bool, *, seeds: int, checkpoints: int = 6) -> bool:
    """A loss that is flat, or rises by 3 % a checkpoint in the second half; what is said of the first seed's run."""
    rise = 0.03 * planted * np.maximum(0, np.arange(checkpoints) - checkpoints // 2)
    return _said_over_fitted(2 * (1 + NOISE * rng.standard_normal((seeds, checkpoints)) + rise))


def _over_fitted_correlated(rng: np.random.Generator, planted: bool) -> bool:
    """Noise of one checkpoint carries over to the next (0.8), in each of eight seeds apart."""
    seeds, checkpoints = 8, 12
    noise = rng.standard_normal((seeds, checkpoints))
    for at in range(1, checkpoints):
        noise[:, at] = 0.8 * noise[:, at - 1] + 0.6 * noise[:, at]
    rise = 0.03 * planted * np.maximum(0, np.arange(checkpoints) - checkpoints // 2)
    return _said_over_fitted(2 * (1 + NOISE * noise + rise))


def _over_fitted_shared(rng: np.random.Generator, planted: bool) -> bool:
    """The noise of a checkpoint is the same in all of eight seeds, as where they share the order of data."""
    seeds, checkpoints = 8, 12
    noise = rng.standard_normal((seeds, checkpoints)) / 2 + rng.standard_normal(checkpoints)
    rise = 0.03 * planted * np.maximum(0, np.arange(checkpoints) - checkpoints // 2)
    return _said_over_fitted(2 * (1 + NOISE * noise + rise))


def _said_over_fitted(losses: Floats) -> bool:
    """What is said of the first seed's run; losses are (seeds, checkpoints)."""
    runs = [
        run_of(f"s{s}", epoch=float(e + 1), epochs=float(losses.shape[1]), seed=s, val_loss=float(loss))
        for s, series in enumerate(losses) for e, loss in enumerate(series)
    ]  # fmt: skip
    return _says(runs, [value_of(run, TIGHTNESS[0], 0.3, null=1.0) for run in runs], "s0")


def _signature(name: str) -> frozenset[str]:
    return answers("diagnosis", name)


VERDICTS = {
    **{
        f"over-fitted, {seeds} seeds": Claim(
            "the runs of a cell are over-fitted" if seeds == 5 else "…", f"{seeds} seeds, a flat loss, noise of 1 %",
            "3 % a checkpoint in the second half of 6", partial(_over_fitted, seeds=seeds), _signature("over-fitted"),
            tables=400,
        )
        for seeds in (5, 8)
    },
    "over-fitted, correlated noise": Claim(
        "…", "8 seeds, 12 checkpoints, autocorrelation 0.8", "3 % a checkpoint in the second half",
        _over_fitted_correlated, _signature("over-fitted"), tables=400,
    ),
    "over-fitted, shared noise": Claim(
        "…", "8 seeds, 12 checkpoints, noise of 1 % that the seeds share", "3 % a checkpoint in the second half",
        _over_fitted_shared, _signature("over-fitted"), tables=400,
    ),
}  # fmt: skip
