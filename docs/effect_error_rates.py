"""Suites of arms without an effect, and with one: how often `effects.csv`, `doses.csv` and `instruments.csv` claim one.

Each entry of `VERDICTS` draws one suite and says whether the verdict was given; the flag says if it is true of it.
Eight seeds; the luck of a run is 0.01 nats and 0.02 of `cdnv_log`, and as much again is shared by the runs of a seed.
`python docs/effect_error_rates.py [NAME…] [--tables N]` prints the shares.
"""

import argparse
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, cast, final

import numpy as np

from collapselab.analysis.doses import doses
from collapselab.analysis.effects import Judgement, Role, effects
from collapselab.analysis.instruments import Carried, Instrument, instruments
from collapselab.analysis.models import Models, combine
from collapselab.analysis.registered import Registered
from collapselab.records.suite import Primary
from collapselab.records.tables import RUNS, Row, Run

SEEDS = 8
LUCK = {"val_loss": 0.01, "cdnv_log": 0.02}
MARGIN = 0.02
REGISTERED = Registered(Primary(metrics=("cdnv_log",), smallest_effect=MARGIN), beforehand=True)
ARMS = ("within:+0.1", "within:-0.1", "cdnv:+0.3", "cdnv:-0.3", "simreg:0.1")
MOVES = np.array([-0.3, 0.3, -0.4, 0.25, -0.15])
"""What each of them does to `cdnv_log`: that for which it is made."""
DOSES = ("within:-0.3", "within:-0.1", "within:+0.1", "within:+0.3")
SHAM = ("within:+0.1", "within:+0.1:sham")


@final
@dataclass(frozen=True)
class Simulated:
    """One verdict: what it says, the suites of which it is false, those of which it is true, and one draw."""

    says: str
    null: str
    planted: str
    claims: Callable[[np.random.Generator, bool], bool]


def _judged(models: Models) -> list[Judgement | None]:
    rows = effects(models, REGISTERED, permutations=99, seed=0)
    return [row.verdict for row in rows if row.role is Role.OUTCOME and not row.sham]


def _carried(models: Models) -> Instrument:
    return instruments(models, REGISTERED, permutations=99, seed=0)[0]


def helps_or_harms(rng: np.random.Generator, planted: bool) -> bool:
    """Of any of five arms that all reach their property; planted in one."""
    losses = np.array([0.03 if planted else 0.0, 0, 0, 0, 0])
    verdicts = _judged(_drawn(rng, ARMS, MOVES, losses))
    said = [verdict in (Judgement.HELPS, Judgement.HARMS) for verdict in verdicts]
    return any(said)


def equivalent(rng: np.random.Generator, planted: bool) -> bool:
    """Of one arm whose effect is the smallest of interest, or none."""
    (verdict,) = _judged(_drawn(rng, ARMS[:1], MOVES[:1], np.array([0.0 if planted else MARGIN])))
    return verdict is Judgement.EQUIVALENT


def reached(rng: np.random.Generator, planted: bool) -> bool:
    """That the arm moved its property, where its sham moves it as much, or not at all."""
    verdicts = _judged(_drawn(rng, SHAM, np.array([-0.1, 0.0 if planted else -0.1]), np.zeros(2)))
    return verdicts[0] is not Judgement.DID_NOT_REACH


def moved(rng: np.random.Generator, planted: bool) -> bool:
    """That the arm moved its property, where it does nothing to it."""
    verdicts = _judged(_drawn(rng, ARMS[:1], np.array([-0.1 if planted else 0.0]), np.zeros(1)))
    return verdicts[0] is not Judgement.DID_NOT_REACH


def follows_dose(rng: np.random.Generator, planted: bool) -> bool:
    """Four doses and the control."""
    losses = np.array([-0.03, -0.01, 0.01, 0.03]) if planted else np.zeros(4)
    rows = doses(_drawn(rng, DOSES, np.array([0.6, 0.2, -0.2, -0.6]), losses))
    return any(row.trend is not None for row in rows if row.metric == "val_loss")


def carried_around(rng: np.random.Generator, planted: bool) -> bool:
    """Every arm has an effect of its own, of the same size as if the property carried it."""
    losses = 0.5 * MOVES if planted else rng.permutation(0.5 * MOVES) * rng.choice([-1, 1], len(MOVES))
    return _carried(_drawn(rng, ARMS, MOVES, losses)).verdict is Carried.CARRIED


def carried_but_one(rng: np.random.Generator, planted: bool) -> bool:
    """All are on the line but one, which is off by a quarter of the largest effect."""
    losses = 0.5 * MOVES
    if not planted:
        losses[rng.integers(len(losses))] += 0.25 * np.abs(losses).max() * rng.choice([-1, 1])
    return _carried(_drawn(rng, ARMS, MOVES, losses)).verdict is Carried.CARRIED


def carried_nothing(rng: np.random.Generator, planted: bool) -> bool:
    """No arm has an effect."""
    return _carried(_drawn(rng, ARMS, MOVES, 0.5 * MOVES * planted)).verdict is Carried.CARRIED


def off_the_line(rng: np.random.Generator, planted: bool) -> bool:
    """The property carries all of the effect; planted, every arm has an effect of its own beside it."""
    own = rng.normal(0, 0.05, len(MOVES)) if planted else np.zeros(len(MOVES))
    return _carried(_drawn(rng, ARMS, MOVES, 0.3 * MOVES + own)).verdict is Carried.INTERVENTIONS


def not_needed(rng: np.random.Generator, planted: bool) -> bool:
    """One of the arms has the smallest effect of interest; planted, none has any."""
    losses = np.zeros(len(MOVES))
    losses[0] = 0.0 if planted else MARGIN
    return _carried(_drawn(rng, ARMS, MOVES, losses)).verdict is Carried.NOT_NEEDED


def slope_covers(rng: np.random.Generator, planted: bool) -> bool:
    """That the interval of the slope misses the truth; planted, that it misses 0."""
    row = _carried(_drawn(rng, ARMS, MOVES, 0.3 * MOVES))
    assert row.low is not None
    assert row.high is not None
    truth = 0.0 if planted else 0.3
    return not row.low <= truth <= row.high


def egger(rng: np.random.Generator, planted: bool) -> bool:
    """That the intercept is not 0: the line passes through 0; planted, every arm does the same harm beside it."""
    losses = 0.3 * MOVES + (0.05 * np.sign(MOVES) if planted else 0.0)
    p = _carried(_drawn(rng, ARMS, MOVES, losses)).egger_p
    return p is not None and p < 0.05


VERDICTS = {
    "helps": Simulated("helps or harms, any of five arms", "no arm does anything", "one arm adds 0.03 nats",
                       helps_or_harms),
    "equivalent": Simulated("equivalent", f"the effect is the smallest of interest ({MARGIN} nats)", "no effect",
                            equivalent),
    "moved": Simulated("reached its property", "the metric does not move", "it moves by 0.1", moved),
    "reached": Simulated("reached its property", "the sham moves it as much", "the sham does not", reached),
    "dose": Simulated("follows the dose", "no effect", "0.1 nats a unit of dose", follows_dose),
    "around": Simulated("carried by the property", "every arm has an effect of its own", "one line through 0",
                        carried_around),
    "but one": Simulated("carried by the property", "one of five arms is off the line, by what is no longer near",
                         "one line through 0", carried_but_one),
    "nothing": Simulated("carried by the property", "no arm has an effect", "one line through 0", carried_nothing),
    "off": Simulated("the interventions, not the property", "one line through 0",
                     "each arm has an effect of its own beside it", off_the_line),
    "not needed": Simulated("not needed", "one arm has the smallest effect of interest", "no arm has an effect",
                            not_needed),
    "slope": Simulated("the 95 % interval of the slope misses", "the truth", "0", slope_covers),
    "egger": Simulated("the intercept is not 0 (p < 5 %)", "one line through 0", "each arm harms by 0.05 beside it",
                       egger),
}  # fmt: skip


@cache
def _template(arms: tuple[str, ...]) -> Models:
    """A control and these arms in every seed, with nothing in them yet."""
    usual = {
        "checkpoint": "1", "family": "gpt-neo", "width": 64, "depth": 2, "epochs": 1.0, "epoch": 1.0,
        "weight_decay": 0.0, "lr": 1e-3, "parameters": 1000, "tokens": 10_000, "val_loss": 3.0,
    }  # fmt: skip
    runs = []
    for seed in range(SEEDS):
        for arm in ("", *arms):
            given: dict[str, Any] = {**usual, "run": f"{seed}-{arm}", "seed": seed}
            runs.append(cast(Run, {name: given.get(name) for name in RUNS.columns} | {"intervene": arm or None}))
    rows = [
        Row(
            run=run["run"],
            checkpoint="1",
            metric="cdnv_log",
            value=0.0,
            classes=100,
            tokens=1000,
            min_count=1,
            left_out=0,
        )
        for run in runs
    ]
    return combine(runs, rows)


def _drawn(rng: np.random.Generator, arms: Sequence[str], moves: Any, losses: Any) -> Models:
    """One suite: what each arm adds to metric and loss, on what the runs of a seed share and each run's own luck."""
    models = _template(tuple(arms))
    adds = {"cdnv_log": np.array([0.0, *moves]), "val_loss": np.array([0.0, *losses])}
    values = {
        name: (
            adds[name] + luck * rng.standard_normal((SEEDS, 1)) + luck * rng.standard_normal((SEEDS, 1 + len(arms)))
        ).ravel()
        for name, luck in LUCK.items()
    }  # fmt: skip
    return replace(models, frame=models.frame.assign(**values))


def main() -> None:
    """Print the share of claims of every entry, or of those that are named."""
    parser = argparse.ArgumentParser(description="How often verdicts on arms are given, where false and where true.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"any of {', '.join(VERDICTS)}")
    parser.add_argument(
        "--tables", type=int, default=400, help="suites of which it is false; of those of which it is true a quarter"
    )
    given = parser.parse_args()
    for name in given.names or VERDICTS:
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        entry = VERDICTS[name]
        few = max(1, given.tables // 4)
        wrong = sum(entry.claims(rng, False) for _ in range(given.tables))
        right = sum(entry.claims(rng, True) for _ in range(few))
        print(f"{name}: {entry.says}: {wrong} of {given.tables} false, {right} of {few} true", flush=True)


if __name__ == "__main__":
    main()
