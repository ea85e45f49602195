"""Simulations of effects.csv, clipping.csv and doses.csv: suites of arms without an effect, and with one.

Eight seeds; the luck of a run is 0.01 nats and 0.02 of `cdnv_log`, and as much again is shared by the runs of a seed.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from collapselab.analysis.clipping import NOTABLE, Clipped, clipping
from collapselab.analysis.doses import doses
from collapselab.analysis.effects import Judgement, Role, effects
from collapselab.analysis.models import Models
from collapselab.analysis.registered import Registered
from collapselab.records.suite import Primary
from simulations.entry import Interval, Verdict, answers
from simulations.tables import Floats, run_of, table_of

SEEDS = 8
LUCK = {"val_loss": 0.01, "cdnv_log": 0.02}
MARGIN = 0.02
REGISTERED = Registered(Primary(metrics=("cdnv_log",), smallest_effect=MARGIN), beforehand=True)
ARMS = ("within:+0.1", "within:-0.1", "cdnv:+0.3", "cdnv:-0.3", "simreg:0.1")
MOVES: Floats = np.array([-0.3, 0.3, -0.4, 0.25, -0.15])
"""What each of them does to `cdnv_log`: that for which it is made."""
CLIPPED_LUCK = 0.1
"""Of the share of clipped steps: so much that differences are often notable by chance."""
DOSES = ("within:-0.3", "within:-0.1", "within:+0.1", "within:+0.3")
SHAM = ("within:+0.1", "within:+0.1:sham")


@cache
def _template(arms: tuple[str, ...], checkpoints: int) -> Models:
    """A control and these arms in every seed, with nothing in them yet."""
    return table_of(
        [
            run_of(f"{seed}-{arm}", seed=seed, intervene=arm or None, epoch=float(e), epochs=float(checkpoints),
                   tokens=10_000 * e)
            for seed in range(SEEDS) for arm in ("", *arms) for e in range(1, checkpoints + 1)
        ],
        ("cdnv_log",),
    )  # fmt: skip


def suite(rng: np.random.Generator, arms: Sequence[str], moves: Floats, losses: Floats) -> Models:
    """What each arm adds to metric and loss, on what the runs of a seed share and each run's own luck."""
    models = _template(tuple(arms), 1)
    adds = {"cdnv_log": np.array([0.0, *moves]), "val_loss": np.array([0.0, *losses])}
    values = {
        name: (
            adds[name] + luck * rng.standard_normal((SEEDS, 1)) + luck * rng.standard_normal((SEEDS, 1 + len(arms)))
        ).ravel()
        for name, luck in LUCK.items()
    }  # fmt: skip
    return replace(models, frame=models.frame.assign(**values))


def _judged(models: Models) -> list[Judgement | None]:
    rows = effects(models, REGISTERED, permutations=99, seed=0)
    return [row.verdict for row in rows if row.role is Role.OUTCOME and not row.sham]


def _helps_or_harms(rng: np.random.Generator, planted: bool) -> bool:
    """Of any of five arms that all reach their property; planted in one."""
    verdicts = _judged(suite(rng, ARMS, MOVES, np.array([0.03 * planted, 0, 0, 0, 0])))
    return any(verdict in (Judgement.HELPS, Judgement.HARMS) for verdict in verdicts)


def _equivalent(rng: np.random.Generator, planted: bool) -> bool:
    (verdict,) = _judged(suite(rng, ARMS[:1], MOVES[:1], np.array([0.0 if planted else MARGIN])))
    return verdict is Judgement.EQUIVALENT


def _reached(rng: np.random.Generator, planted: bool) -> bool:
    """The sham moves the metric as much as the arm, or not at all."""
    verdicts = _judged(suite(rng, SHAM, np.array([-0.1, 0.0 if planted else -0.1]), np.zeros(2)))
    return verdicts[0] is not Judgement.DID_NOT_REACH


def _moved(rng: np.random.Generator, planted: bool) -> bool:
    verdicts = _judged(suite(rng, ARMS[:1], np.array([-0.1 * planted]), np.zeros(1)))
    return verdicts[0] is not Judgement.DID_NOT_REACH


def _follows_dose(rng: np.random.Generator, planted: bool) -> bool:
    losses = planted * np.array([-0.03, -0.01, 0.01, 0.03])
    rows = doses(suite(rng, DOSES, np.array([0.6, 0.2, -0.2, -0.6]), losses))
    return any(row.trend is not None for row in rows if row.metric == "val_loss")


def _clipped(rng: np.random.Generator, planted: bool) -> bool:
    """A fifth of all steps is clipped, give or take; planted: in one arm more, by twice what is notable."""
    models = suite(rng, ARMS, MOVES, np.zeros(len(ARMS)))
    luck = CLIPPED_LUCK * (rng.standard_normal((SEEDS, 1)) + rng.standard_normal((SEEDS, 1 + len(ARMS))))
    luck[:, 1] += 2 * NOTABLE * planted
    drawn = replace(models, frame=models.frame.assign(clipped=np.clip(0.2 + luck, 0, 1).ravel()))
    rows = clipping(drawn, permutations=99, seed=0)
    assert len(rows) == len(ARMS)
    return any(row.verdict in (Clipped.MORE, Clipped.LESS) for row in rows)


def _effect_covers(rng: np.random.Generator) -> bool:
    rows = effects(suite(rng, ARMS[:1], MOVES[:1], np.array([0.03])), REGISTERED, permutations=99, seed=0)
    low, high = rows[0].low, rows[0].high
    assert low is not None
    assert high is not None
    return low <= 0.03 <= high


def _equal_loss_covers(rng: np.random.Generator) -> bool:
    """Validation is 0.05 above training, 0.08 under the arm, which is a fifth slower too."""
    models = _template(ARMS[:1], 4)
    treated = models.frame["intervene"].notna().to_numpy()
    pace = np.where(treated, 0.8, 1.0) * np.log2(1 + models.frame["epoch"].to_numpy(dtype=float))
    of_run = np.repeat(rng.standard_normal(len(pace) // 4), 4)
    train = 4 - pace + LUCK["val_loss"] * of_run
    above = np.where(treated, 0.08, 0.05) + LUCK["val_loss"] * np.repeat(rng.standard_normal(len(pace) // 4), 4)
    drawn = replace(models, frame=models.frame.assign(train_loss=train, val_loss=train + above, cdnv_log=0.0))
    row = effects(drawn, REGISTERED, permutations=99, seed=0)[0]
    assert row.equal_loss_low is not None
    assert row.equal_loss_high is not None
    return row.equal_loss_low <= 0.03 <= row.equal_loss_high


VERDICTS = {
    "helps": Verdict(
        "an arm helps or harms, any of five", "no arm does anything", "one arm adds 0.03 nats", _helps_or_harms,
        answers("effects", Judgement.HELPS, Judgement.HARMS), tables=300,
    ),
    "equivalent": Verdict(
        "an arm is equivalent", f"its effect is the smallest of interest ({MARGIN} nats)", "no effect", _equivalent,
        answers("effects", Judgement.EQUIVALENT), tables=400,
    ),
    "moved": Verdict(
        "an arm reached its property", "the metric does not move", "it moves by 0.1", _moved,
        answers("effects", "reached"), tables=300,
    ),
    "reached": Verdict(
        "…", "the sham moves it as much", "the sham does not move it", _reached, answers("effects", "reached"),
        tables=300,
    ),
    "clipped": Verdict(
        "an arm is clipped more or less, any of five", "a fifth of all steps, give or take a tenth, is clipped in all",
        "a fifth more in one arm", _clipped, answers("clipping", Clipped.MORE, Clipped.LESS), tables=600,
    ),
    "dose": Verdict(
        "the outcome follows the dose", "no effect", "0.1 nats a unit of dose", _follows_dose,
        answers("doses", "rises", "falls"), tables=300,
    ),
}  # fmt: skip

INTERVALS = {
    "effect": Interval("effect of an arm", "8 pairs, an effect of 0.03 nats", _effect_covers, tables=400),
    "effect at equal loss": Interval(
        "effect at equal training loss", "8 pairs, 4 checkpoints, an arm that is slower and 0.03 nats worse",
        _equal_loss_covers, tables=300,
    ),
}  # fmt: skip
