"""Simulations of whole pages: every statement of the analysis on one table in which nothing is true of the outcome.

A page counts if it makes any false claim: in its headline (confirmatory families after the correction over families),
by an attribution, or by a diagnosis of a run. Families that explore are not counted; the page says how many false
claims to expect from them.
"""

from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np

from collapselab.analysis.analyze import STATEMENTS, Given
from collapselab.analysis.arms import Registered
from collapselab.analysis.families import surviving
from collapselab.analysis.models import Models
from collapselab.analysis.verdict import Verdict
from collapselab.core.catalogue import METRICS
from collapselab.records.suite import Primary
from collapselab.records.tables import RowsByTable
from simulations.entry import Claim, answers
from simulations.tables import PAPER, Floats, run_of, table_of

PERMUTATIONS = 199
ARMS = (
    "", "within:+0.1", "within:-0.1", "within:+0.1:sham", "uniform_means:+0.1", "uniform_means:-0.1",
    "uniform_means:+0.1:sham", "dual:+0.1", "dual:-0.1", "dual:+0.1:sham", "simreg:0.1", "disperse:0.1",
    "isotropy:+0.1", "flat:+0.1",
)  # fmt: skip
"""The arms of the suite `cause`."""
FURTHER = ("cdnv_log", "within_share", "logdist_std", "duality_cos_std", "participation", "rankme")
REGISTERED = Registered(Primary(smallest_effect=0.02), beforehand=True)
SEEDS = 8
WIDTHS, DEPTHS, DECAYS, GRID_SEEDS, CHECKPOINTS = (32, 64, 128, 256, 512), (1, 2, 4, 8), (0.0, 0.1), 3, 9


def _page(models: Models, rng: np.random.Generator) -> RowsByTable:
    rows: RowsByTable = {}
    seed = int(rng.integers(2**31))
    for name, statement in STATEMENTS.items():
        rows[name] = statement.rows(Given(models, PERMUTATIONS, seed, rows, REGISTERED))
    return rows


def _is_false(rows: RowsByTable) -> bool:
    """Trends are true here: metrics and loss change with training in both designs, and with size in the grid."""
    claimed = any(family.table != "trends" for family in surviving(rows))
    attributed = any(row.verdict in (Verdict.ATTRIBUTED, Verdict.NOT_ALONE) for row in rows["attribution"])
    return claimed or attributed or any(row.found for row in rows["diagnosis"])


@cache
def _arms_template() -> Models:
    runs = [
        run_of(f"{seed}-{arm}", seed=seed, intervene=arm or None, epoch=epoch, epochs=2.0, tokens=int(10_000 * epoch))
        for seed in range(SEEDS) for arm in ARMS for epoch in (1.0, 2.0)
    ]  # fmt: skip
    return table_of(runs, (*PAPER, *FURTHER))


def _cause(rng: np.random.Generator, planted: bool) -> bool:
    """Arms move metrics, shams do not, and no arm moves a loss; seeds have luck of their own in everything."""
    models = _arms_template()
    shape = (SEEDS, len(ARMS), 2)
    treated = np.array([bool(arm) and ":sham" not in arm for arm in ARMS])

    def luck(sd: float) -> Floats:
        return sd * (rng.standard_normal((SEEDS, 1, 1)) + rng.standard_normal((SEEDS, len(ARMS), 1)))

    learned = np.array([0.3, 0.0])
    columns: dict[str, Floats] = {}
    for metric in models.metrics:
        moves = 0.3 * rng.standard_normal((1, len(ARMS), 1)) * treated[None, :, None]
        columns[metric] = np.broadcast_to(luck(0.02) + moves + learned, shape).ravel()
    columns = {name: np.exp(v) if METRICS[name].transform == "log" else 0.5 + 0.1 * v for name, v in columns.items()}
    loss = 2 + learned + luck(0.01)
    train = loss + 0.002 * rng.standard_normal(shape)
    losses = {"val_loss": loss.ravel(), "train_loss": train.ravel(), "gap": (loss - train).ravel()}
    return _is_false(_page(replace(models, frame=models.frame.assign(**columns, **losses)), rng))


@cache
def _grid_template() -> Models:
    runs = [
        run_of(
            f"{width}-{depth}-{decay}-{seed}", width=width, depth=depth, weight_decay=decay, seed=seed,
            epoch=float(at), epochs=float(CHECKPOINTS), tokens=100_000 * at,
            parameters=1000 * width + 12 * depth * width**2,
        )
        for width, depth, decay in product(WIDTHS, DEPTHS, DECAYS)
        for seed in range(GRID_SEEDS) for at in range(1, 1 + CHECKPOINTS)
    ]  # fmt: skip
    return table_of(runs, PAPER)


def _grid(rng: np.random.Generator, planted: bool) -> bool:
    """Metrics and loss are smooth in scale and training, and seeds have luck of their own: nothing is true beyond."""
    models = _grid_template()
    frame = models.frame
    size, tokens = np.log(frame["parameters"].to_numpy(dtype=float)), np.log(frame["tokens"].to_numpy(dtype=float))
    codes = np.unique(frame["run"], return_inverse=True)[1]

    def luck(sd: float) -> Floats:
        drawn: Floats = sd * (rng.standard_normal(codes.max() + 1)[codes] + 0.3 * rng.standard_normal(len(codes)))
        return drawn

    columns: dict[str, Floats] = {}
    for metric in models.metrics:
        slopes = rng.uniform(0.05, 0.2, 2) * (1 if METRICS[metric].direction == "rises" else -1)
        value = slopes[0] * (size - size.mean()) + slopes[1] * (tokens - tokens.mean()) + luck(0.02)
        columns[metric] = np.exp(value) if METRICS[metric].transform == "log" else 0.5 + 0.1 * value
    loss = 1.5 + 20 * np.exp(-0.25 * size) + 30 * np.exp(-0.28 * tokens) + luck(0.01)
    return _is_false(_page(replace(models, frame=frame.assign(**columns, val_loss=loss)), rng))


ANY = answers("page", "false claim")
VERDICTS = {
    "page of arms": Claim(
        "a page makes a false claim about the outcome",
        "the suite `cause`; arms move metrics but not the loss", "", _cause, ANY, tables=100,
    ),
    "page of a grid": Claim(
        "…", "120 runs; metrics and loss are smooth in size and tokens", "", _grid,
        ANY, tables=50,
    ),
}  # fmt: skip
