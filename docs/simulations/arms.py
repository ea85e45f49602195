"""Simulations of effects.csv and doses.csv: suites of arms without an effect, and with one.

Eight seeds; the luck of a run is 0.01 nats and 0.02 of `cdnv_log`, and as much again is shared by the runs of a seed.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial

import numpy as np

from collapselab.analysis.arms import Registered
from collapselab.analysis.effects import doses, effects
from collapselab.analysis.models import Models
from collapselab.analysis.verdict import Role, Verdict
from collapselab.analysis.words import about_speed
from collapselab.records.suite import Primary
from simulations.entry import Claim, Interval, answers
from simulations.tables import Floats, run_of, table_of

SEEDS = 8
LUCK = {"val_loss": 0.01, "cdnv_log": 0.02}
MARGIN = 0.02
REGISTERED = Registered(Primary(metrics=("cdnv_log",), smallest_effect=MARGIN), beforehand=True)
ARMS = ("within:+0.1", "within:-0.1", "cdnv:+0.3", "cdnv:-0.3", "simreg:0.1")
MOVES: Floats = np.array([-0.3, 0.3, -0.4, 0.25, -0.15])
"""What each of them does to `cdnv_log`: that for which it is made."""
DOSES = ("within:-0.3", "within:-0.1", "within:+0.1", "within:+0.3")
SHAM = ("within:+0.1", "within:+0.1:sham")
CURVE = 20
"""Checkpoints of a run with evaluated training losses."""


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


def _judged(models: Models) -> list[Verdict | None]:
    rows = effects(models, REGISTERED, permutations=99, seed=0)
    return [row.verdict for row in rows if row.role is Role.OUTCOME and not row.sham]


def _helps_or_harms(rng: np.random.Generator, planted: bool, *, effect: float = 0.03) -> bool:
    """Of any of five arms that all reach their property; planted in one."""
    verdicts = _judged(suite(rng, ARMS, MOVES, np.array([effect * planted, 0, 0, 0, 0])))
    return any(verdict in (Verdict.HELPS, Verdict.HARMS) for verdict in verdicts)


def _equivalent(rng: np.random.Generator, planted: bool) -> bool:
    (verdict,) = _judged(suite(rng, ARMS[:1], MOVES[:1], np.array([0.0 if planted else MARGIN])))
    return verdict is Verdict.EQUIVALENT


def _reached(rng: np.random.Generator, planted: bool) -> bool:
    """The sham moves the metric as much as the arm, or not at all."""
    verdicts = _judged(suite(rng, SHAM, np.array([-0.1, 0.0 if planted else -0.1]), np.zeros(2)))
    return verdicts[0] is not Verdict.DID_NOT_REACH


def _moved(rng: np.random.Generator, planted: bool) -> bool:
    verdicts = _judged(suite(rng, ARMS[:1], np.array([-0.1 * planted]), np.zeros(1)))
    return verdicts[0] is not Verdict.DID_NOT_REACH


def _follows_dose(rng: np.random.Generator, planted: bool) -> bool:
    losses = planted * np.array([-0.03, -0.01, 0.01, 0.03])
    rows = doses(suite(rng, DOSES, np.array([0.6, 0.2, -0.2, -0.6]), losses))
    return any(row.trend is not None for row in rows if row.metric == "val_loss")


def _with_luck(rng: np.random.Generator, arms: Sequence[str], moves: Floats, losses: Floats, luck: Floats) -> Models:
    """Suites whose arms have luck of another shape: `luck` is (seeds, arms), added to the loss of the arms alone."""
    models = suite(rng, arms, moves, losses)
    added = np.concatenate([np.zeros((SEEDS, 1)), luck], axis=1).ravel()
    return replace(models, frame=models.frame.assign(val_loss=models.frame["val_loss"] + added))


def _exponential(rng: np.random.Generator, arms: int) -> Floats:
    return 0.03 * (rng.exponential(1, (SEEDS, arms)) - 1)


def _spikes(rng: np.random.Generator, arms: int) -> Floats:
    return np.asarray(0.1 * ((rng.random((SEEDS, arms)) < 1 / 8) - 1 / 8), dtype=np.float64)


def _claims_of_mean(models: Models) -> bool:
    rows = effects(models, REGISTERED, permutations=99, seed=0)
    shown = (Verdict.HELPS, Verdict.HARMS)
    return any(row.verdict in shown and not row.skewed for row in rows if row.role is Role.OUTCOME)


def _helps_skewed(rng: np.random.Generator, planted: bool) -> bool:
    losses = np.array([0.08 * planted, 0, 0, 0, 0])
    models = _with_luck(rng, ARMS, MOVES, losses, _exponential(rng, len(ARMS)))
    if planted:
        return any(verdict in (Verdict.HELPS, Verdict.HARMS) for verdict in _judged(models))
    return _claims_of_mean(models)


def _helps_spikes(rng: np.random.Generator, planted: bool) -> bool:
    losses = np.array([0.08 * planted, 0, 0, 0, 0])
    models = _with_luck(rng, ARMS, MOVES, losses, _spikes(rng, len(ARMS)))
    if planted:
        return any(verdict in (Verdict.HELPS, Verdict.HARMS) for verdict in _judged(models))
    return _claims_of_mean(models)


def _equivalent_skewed(rng: np.random.Generator, planted: bool) -> bool:
    """Five arms whose mean effect is the margin (or 0, with symmetric luck)."""
    luck = 0 * _exponential(rng, 5) if planted else _exponential(rng, 5)
    models = _with_luck(rng, ARMS, MOVES, np.full(5, 0.0 if planted else MARGIN), luck)
    return Verdict.EQUIVALENT in _judged(models)


def _dose_both_sides(rng: np.random.Generator, planted: bool) -> bool:
    """Both sides harm, one more than the other."""
    losses = np.array([-0.03, -0.01, 0.01, 0.03]) if planted else np.array([0.02, 0.01, 0.01, 0.04])
    rows = doses(suite(rng, DOSES, np.array([0.6, 0.2, -0.2, -0.6]), losses))
    return any(row.trend is not None for row in rows if row.metric == "val_loss")


def _dose_spread(rng: np.random.Generator, planted: bool) -> bool:
    """The luck of an arm grows with its dose, to five times that of the control."""
    losses = planted * np.array([-0.06, -0.02, 0.02, 0.06])
    luck = 0.04 * np.abs([0.3, 0.1, 0.1, 0.3]) / 0.3 * rng.standard_normal((SEEDS, len(DOSES)))
    rows = doses(_with_luck(rng, DOSES, np.array([0.6, 0.2, -0.2, -0.6]), losses, luck))
    return any(row.trend is not None for row in rows if row.metric == "val_loss")


def _gap_equal(rng: np.random.Generator, planted: bool) -> bool:
    """Two epochs; the first arm changes the gap by the margin, or no arm does."""
    models = suite(rng, ARMS, MOVES, np.zeros(5))
    gap = LUCK["val_loss"] * rng.standard_normal((SEEDS, 1 + len(ARMS)))
    gap[:, 1] += 0.0 if planted else MARGIN
    frame = models.frame.assign(gap=gap.ravel(), epoch=2.0, epochs=2.0)
    return about_speed(replace(models, frame=frame), MARGIN) is not None


def _effect_covers(rng: np.random.Generator) -> bool:
    rows = effects(suite(rng, ARMS[:1], MOVES[:1], np.array([0.03])), REGISTERED, permutations=99, seed=0)
    low, high = rows[0].low, rows[0].high
    assert low is not None
    assert high is not None
    return low <= 0.03 <= high


def _equal_loss_covers(rng: np.random.Generator, *, slower: float) -> bool:
    """An arm that needs more steps to the same losses and changes nothing else; losses are evaluated at checkpoints."""
    models = _template(ARMS[:1], CURVE)
    steps = np.arange(1, CURVE + 1) * np.array([1.0, 1 - slower])[:, None]
    luck = LUCK["val_loss"] * (rng.standard_normal((SEEDS, 1, 1)) + rng.standard_normal((SEEDS, 2, 1)))
    train = 2 + 3 * steps**-0.4 + luck + 0.002 * rng.standard_normal((SEEDS, 2, CURVE))
    val = train + 0.05 + 0.004 * rng.standard_normal((SEEDS, 2, 1))
    frame = models.frame.assign(train_loss=train.ravel(), val_loss=val.ravel())
    row = effects(replace(models, frame=frame), REGISTERED, permutations=99, seed=0)[0]
    assert row.equal_loss_low is not None
    assert row.equal_loss_high is not None
    return row.equal_loss_low <= 0 <= row.equal_loss_high


VERDICTS = {
    "helps": Claim(
        "an arm helps or harms, any of five", "no arm does anything", "one arm adds 0.03 nats", _helps_or_harms,
        answers("effects", Verdict.HELPS, Verdict.HARMS), tables=300,
    ),
    "helps, 0.02 nats": Claim(
        "…", "the same", "one arm adds 0.02 nats", partial(_helps_or_harms, effect=0.02),
        answers("effects", Verdict.HELPS, Verdict.HARMS), tables=300,
    ),
    "equivalent": Claim(
        "an arm is equivalent", f"its effect is the smallest of interest ({MARGIN} nats)", "no effect", _equivalent,
        answers("effects", Verdict.EQUIVALENT), tables=400,
    ),
    "moved": Claim(
        "an arm reached its property", "the metric does not move", "it moves by 0.1", _moved,
        answers("effects", "reached"), tables=300,
    ),
    "reached": Claim(
        "…", "the sham moves it as much", "the sham does not move it", _reached, answers("effects", "reached"),
        tables=300,
    ),
    "helps, skewed": Claim(
        "the mean effect of an arm is not 0, any of five", "exponential luck with mean 0", "one arm adds 0.08 nats",
        _helps_skewed, answers("effects", Verdict.HELPS, Verdict.HARMS), tables=400,
    ),
    "helps, spikes": Claim(
        "…", "one run in eight 0.1 nats worse, mean 0", "one adds 0.08 nats", _helps_spikes,
        answers("effects", Verdict.HELPS, Verdict.HARMS), tables=400,
    ),
    "equivalent, skewed": Claim(
        "an arm is equivalent, any of five", "mean effects at the margin, exponential luck", "no effect, normal luck",
        _equivalent_skewed, answers("effects", Verdict.EQUIVALENT), tables=400,
    ),
    "learning speed": Claim(
        "a suite of two epochs is about learning speed", "one arm changes the gap by the margin", "no arm changes it",
        _gap_equal, answers("effects", "learning speed"), tables=400,
    ),
    "dose, both sides": Claim(
        "the outcome follows the dose", "both sides harm, one more", "0.1 nats a unit of dose", _dose_both_sides,
        answers("doses", "rises", "falls"), tables=300,
    ),
    "dose, growing spread": Claim(
        "…", "no effect; the spread grows with the dose", "0.2 nats a unit of dose", _dose_spread,
        answers("doses", "rises", "falls"), tables=400,
    ),
    "dose": Claim(
        "the outcome follows the dose", "no effect", "0.1 nats a unit of dose", _follows_dose,
        answers("doses", "rises", "falls"), tables=300,
    ),
}  # fmt: skip

INTERVALS = {
    "effect": Interval("effect of an arm", "8 pairs, an effect of 0.03 nats", _effect_covers, tables=400),
    **{
        f"equal loss, {100 * slower:g} % slower": Interval(
            "effect at equal training loss", f"8 pairs, no effect, an arm that is {100 * slower:g} % slower",
            partial(_equal_loss_covers, slower=slower), tables=400,
        )
        for slower in (0.05, 0.15)
    },
}  # fmt: skip
