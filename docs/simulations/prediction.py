"""Simulations of prediction.csv: a metric that is a smooth function of scale and chance, beside the strongest law."""

import numpy as np

from collapselab.analysis.models import Models
from collapselab.analysis.prediction import ADDS, predictions
from simulations.controls import PERMUTATIONS, PUBLISHED, published_tables, smooth_tables
from simulations.entry import Verdict
from simulations.tables import grid


def _adds(models: Models, rng: np.random.Generator, planted: bool) -> bool:
    rows = predictions(models, permutations=PERMUTATIONS, seed=int(rng.integers(2**31)))
    assert any(row.p is not None for row in rows)
    shown = {row.metric for row in rows if row.verdict == ADDS and row.family == "paper"}
    return "agreement" in shown if planted else bool(shown)


VERDICTS = {
    "prediction": Verdict(
        "a metric of the seven adds to the strongest law",
        "30 architectures × 7 regimes: each metric a cubic function of scale in every regime and chance",
        "the same, one metric carries some of the loss' chance",
        lambda rng, planted: _adds(smooth_tables(rng, grid(), planted), rng, planted), tables=300,
    ),
    "prediction, published": Verdict(
        "… of the published models",
        "the real loss; each metric its own smooth part, and what that leaves of it from another architecture",
        "the same, one metric carries some of what the loss has beyond scale",
        lambda rng, planted: _adds(published_tables(rng, planted), rng, planted), tables=300, needs=PUBLISHED,
    ),
}  # fmt: skip
