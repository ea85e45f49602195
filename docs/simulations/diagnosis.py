"""Simulations of diagnosis.csv: single runs with a signature, and runs that only look like it by chance."""

from functools import partial

import numpy as np

from collapselab.analysis.diagnosis import DIRECTIONS, TIGHTNESS, diagnose
from collapselab.analysis.models import combine
from collapselab.records.tables import Row, Run
from simulations.entry import Claim, answers
from simulations.tables import Floats, run_of, value_of

NOISE = 0.01
"""Of a loss, relative."""


def _says(runs: list[Run], rows: list[Row], signature: str, run: str) -> bool:
    found = {finding.run: finding.found for finding in diagnose(combine(runs, rows)) if finding.signature == signature}
    return found[run] is True


def _under_fitted(rng: np.random.Generator, planted: bool) -> bool:
    """Every NC1 metric is a tenth below its null, or at it; both are known to 3 %."""
    run = run_of("one", val_loss=2.0)
    truth = 1.0 if planted else 0.9
    rows = [
        value_of(run, metric, truth * (1 + 0.03 * rng.standard_normal()), null=1 + 0.03 * rng.standard_normal())
        for metric in TIGHTNESS
    ]
    return _says([run], rows, "under-fitted", "one")


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


def _said_over_fitted(losses: Floats) -> bool:
    """What is said of the first seed's run; losses are (seeds, checkpoints)."""
    runs = [
        run_of(f"s{s}", epoch=float(e + 1), epochs=float(losses.shape[1]), seed=s, val_loss=float(loss))
        for s, series in enumerate(losses) for e, loss in enumerate(series)
    ]  # fmt: skip
    return _says(runs, [value_of(run, TIGHTNESS[0], 0.3, null=1.0) for run in runs], "over-fitted", "s0")


def _dimension_collapse(rng: np.random.Generator, planted: bool) -> bool:
    """One run beside five others of its cell."""
    runs = [
        run_of(f"{i}", seed=i, val_loss=2 * (1 + NOISE * rng.standard_normal() + 0.05 * (planted and i == 0)))
        for i in range(6)
    ]
    rows = [
        value_of(run, metric, (0.25 if planted and i == 0 else 1) * (1 + 0.2 * rng.standard_normal()))
        for i, run in enumerate(runs) for metric in DIRECTIONS
    ]  # fmt: skip
    return _says(runs, rows, "dimension collapse", "0")


def _signature(name: str) -> frozenset[str]:
    return answers("diagnosis", name)


VERDICTS = {
    "under-fitted": Claim(
        "a run is under-fitted", "every NC1 metric is a tenth below its null, both known to 3 %", "each is at its null",
        _under_fitted, _signature("under-fitted"),
    ),
    **{
        f"over-fitted, {seeds} seeds": Claim(
            "the runs of a cell are over-fitted" if seeds == 5 else "…", f"{seeds} seeds, a flat loss, noise of 1 %",
            "3 % a checkpoint in the second half of 6", partial(_over_fitted, seeds=seeds), _signature("over-fitted"),
            tables=400,
        )
        for seeds in (5, 8)
    },
    "over-fitted, correlated noise": Claim(
        "…", "8 seeds, 12 checkpoints whose noise is autocorrelated by 0.8", "3 % a checkpoint in the second half",
        _over_fitted_correlated, _signature("over-fitted"), tables=400,
    ),
    "dimension collapse": Claim(
        "the dimensions of a run have collapsed",
        "runs differ by chance: 1 % in the loss, 20 % in `participation` and `rankme`",
        "a quarter of the directions, a loss worse by 5 %", _dimension_collapse, _signature("dimension collapse"),
        tables=400,
    ),
}  # fmt: skip
