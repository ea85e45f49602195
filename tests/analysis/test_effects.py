"""Planted suites of arms: what is said of each is what was planted."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from analysis.planted import row_of, run_of, table
from analysis.planted_arms import Planted, arms_table
from collapselab.analysis.analyze import analyze
from collapselab.analysis.doses import doses
from collapselab.analysis.effect_words import of_doses, of_effects, of_instruments
from collapselab.analysis.effects import Effect, Judgement, Role, effects
from collapselab.analysis.instruments import NEAR, Carried, Instrument, instruments, weighted_slope
from collapselab.analysis.models import Models
from collapselab.analysis.registered import Registered
from collapselab.analysis.stored import read_analysis
from collapselab.analysis.trends import Trending
from collapselab.analysis.verdict import Cause
from collapselab.analysis.words import LONGEST
from collapselab.records.suite import Primary
from collapselab.records.tables import read_tables, write_tables

WITHIN, SHAM = "within:+0.1", "within:+0.1:sham"
TWO_LINES = LONGEST


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def judged(models: Models, registered: Registered | None = None) -> dict[str, Effect]:
    rows = effects(models, registered or Registered(), permutations=999, seed=0)
    return {row.label: row for row in rows if row.role is Role.OUTCOME}


def said(models: Models, registered: Registered | None = None) -> list[str]:
    rows = effects(models, registered or Registered(), permutations=999, seed=0)
    texts = [sentence.text for sentence in of_effects(models, rows)]
    assert all(len(text) <= TWO_LINES for text in texts), texts
    return texts


def reaching(adds: float, **more: object) -> Planted:
    return Planted(WITHIN, {"cdnv_log": -0.3, "val_loss": adds}, **more)


@pytest.mark.parametrize(
    ("arm", "verdict", "words"),
    [
        (reaching(0.1), Judgement.HARMS, "within:+0.1 raises val_loss by 0.0"),
        (reaching(-0.1), Judgement.HELPS, "within:+0.1 lowers val_loss by 0.1"),
        (Planted(WITHIN, {"val_loss": 0.1}), Judgement.DID_NOT_REACH, "Did not reach the property"),
        (Planted(WITHIN, {"cdnv_log": 0.3, "val_loss": 0.1}), Judgement.DID_NOT_REACH, "Did not reach the property"),
    ],
    ids=["harms", "helps", "not reached", "moved the wrong way"],
)
def test_the_verdict_is_what_was_planted(arm: Planted, verdict: Judgement, words: str) -> None:
    models = arms_table([arm, Planted(SHAM)], seeds=8, rng=rng())
    assert judged(models)[WITHIN].verdict is verdict
    assert any(text.startswith(words) for text in said(models)), said(models)


def test_a_sham_that_moves_as_much_is_the_reason_that_the_arm_did_not_reach() -> None:
    sham = Planted(SHAM, {"cdnv_log": -0.3})
    assert judged(arms_table([reaching(0.1), sham], seeds=8, rng=rng()))[WITHIN].verdict is Judgement.DID_NOT_REACH
    assert judged(arms_table([reaching(0.1)], seeds=8, rng=rng()))[WITHIN].verdict is Judgement.HARMS


def test_a_sham_with_an_effect_of_its_own_is_named() -> None:
    models = arms_table([reaching(0.1), Planted(SHAM, {"val_loss": 0.1})], seeds=8, rng=rng())
    assert any(text.startswith("Shams that change val_loss by themselves: within:+0.1:sham") for text in said(models))


def test_equivalent_needs_its_own_test_and_is_never_what_is_left() -> None:
    models = arms_table([reaching(0.0)], seeds=8, rng=rng())
    wide, narrow = (Registered(Primary(smallest_effect=size), beforehand=True) for size in (0.05, 0.001))
    assert judged(models, wide)[WITHIN].verdict is Judgement.EQUIVALENT
    assert judged(models, narrow)[WITHIN].verdict is Judgement.UNDECIDED
    assert any("within ±0.05" in text and text.count("equivalent") for text in said(models, wide))
    assert not any("equivalent" in text for text in said(models, narrow))


def test_without_checkpoints_or_a_margin_nothing_is_equivalent() -> None:
    row = judged(arms_table([reaching(0.0)], seeds=8, rng=rng(), checkpoints=(1.0,)))[WITHIN]
    assert (row.margin, row.p_equivalence, row.verdict) == (None, None, Judgement.UNDECIDED)
    assert row.equal_loss_why is not None


def test_three_seeds_cannot_tell_and_eight_can_over_five_arms() -> None:
    arms = [Planted(f"within:+{dose}", {"cdnv_log": -0.3, "val_loss": 0.1}) for dose in (0.1, 0.2, 0.3, 0.4, 0.5)]
    few, enough = (judged(arms_table(arms, seeds=seeds, rng=rng())) for seeds in (3, 8))
    assert [row.verdict for row in few.values()] == [Judgement.CANNOT_TELL] * 5
    assert {row.why_code for row in few.values()} == {Cause.TOO_FEW}
    assert [row.verdict for row in enough.values()] == [Judgement.HARMS] * 5


def test_two_pairs_do_not_say_whether_a_property_was_reached() -> None:
    few, three = (judged(arms_table([reaching(0.1)], seeds=seeds, rng=rng()))[WITHIN] for seeds in (2, 3))
    assert (few.reached, few.verdict) == (None, Judgement.CANNOT_TELL)
    assert (three.reached, three.verdict) == (True, Judgement.CANNOT_TELL)


def test_one_unstable_run_is_noted_and_makes_no_verdict() -> None:
    models = arms_table([reaching(0.0, unstable={2: 0.5})], seeds=8, rng=rng())
    row = judged(models)[WITHIN]
    assert row.far is not None
    assert row.far.startswith("seed 2 (+")
    assert row.verdict is Judgement.UNDECIDED
    assert row.median is not None
    assert abs(row.median) < 0.02 < abs(row.effect or 0)
    assert any("Outlying (robust deviations): seed 2" in text for text in said(models))


def test_a_quarter_of_the_range_over_widths_must_be_reached() -> None:
    small = Planted(WITHIN, {"cdnv_log": -0.1, "val_loss": 0.1})
    assert judged(arms_table([small], seeds=8, rng=rng()))[WITHIN].reached is True
    wide = judged(arms_table([small], seeds=8, rng=rng(), widths=(64, 256)))[WITHIN]
    assert (wide.reached, wide.cells, wide.n) == (False, 2, 8)


def test_an_arm_whose_property_was_not_measured_has_no_verdict() -> None:
    row = judged(arms_table([Planted("dual:+0.3", {"val_loss": 0.1})], seeds=8, rng=rng()))["dual:+0.3"]
    assert (row.verdict, row.why_code) == (Judgement.CANNOT_TELL, Cause.MISSING)


def test_an_arm_without_a_property_is_judged_by_its_outcome_alone() -> None:
    row = judged(arms_table([Planted("noise:0.3", {"val_loss": 0.1})], seeds=8, rng=rng()))["noise:0.3"]
    assert (row.verdict, row.reached) == (Judgement.HARMS, None)


def test_only_what_was_registered_is_not_called_exploratory() -> None:
    models = arms_table([reaching(0.1)], seeds=8, rng=rng())
    assert "exploratory: nothing was registered beforehand" in said(models)[0]
    assert "registered before the first run" in said(models, Registered(Primary(), beforehand=True))[0]
    other = Registered(Primary(outcome="val_accuracy"), beforehand=True)
    assert "exploratory" in said(models, other)[0]


def test_tables_without_arms_say_nothing() -> None:
    models = table([run_of(f"{s}", seed=s, val_loss=1.0 + s) for s in range(9)], {"cdnv_log": list(range(9))})
    rows = effects(models, Registered(), permutations=99, seed=0)
    assert (rows, doses(models)) == ([], [])
    assert instruments(models, Registered(), permutations=99, seed=0) == []
    assert [*of_effects(models, []), *of_doses(models, []), *of_instruments(models, [])] == []


def test_the_outcome_follows_the_dose() -> None:
    arms = [Planted(f"within:{d:+g}", {"cdnv_log": -3 * d, "val_loss": 0.5 * d}) for d in (-0.3, -0.1, 0.1, 0.3)]
    models = arms_table(arms, seeds=8, rng=rng())
    rows = doses(models)
    outcome = [row for row in rows if row.metric == "val_loss"]
    assert [row.dose for row in outcome] == [-0.3, -0.1, 0.0, 0.1, 0.3]
    assert {row.trend for row in outcome} == {Trending.RISES}
    assert {row.trend for row in rows if row.metric == "cdnv_log"} == {Trending.FALLS}
    fitted = [row.fitted for row in outcome]
    assert fitted == sorted(fitted)
    assert fitted[2] == 0
    (sentence,) = of_doses(models, rows)
    assert "rises with the dose (Page's test in 8 seeds" in sentence.text


def test_harm_on_both_sides_is_no_trend() -> None:
    arms = [Planted(f"within:{d:+g}", {"cdnv_log": -3 * d, "val_loss": 3 * d**2}) for d in (-0.3, -0.1, 0.1, 0.3)]
    models = arms_table(arms, seeds=8, rng=rng())
    assert {row.trend for row in doses(models) if row.metric == "val_loss"} == {None}


MOVES = {"within:+0.1": -0.3, "within:-0.1": 0.25, "uniform_means:+0.3": 0.4, "dual:+0.3": -0.2, "simreg:0.1": -0.15}


def carried(losses: dict[str, float], *, seeds: int = 8, arms: Sequence[str] = tuple(MOVES)) -> tuple[Instrument, str]:
    planted = [Planted(arm, {"cdnv_log": MOVES[arm], "val_loss": losses[arm]}) for arm in arms]
    models = arms_table(planted, seeds=seeds, rng=rng(3))
    rows = instruments(models, Registered(), permutations=999, seed=0)
    texts = [sentence.text for sentence in of_instruments(models, rows)]
    assert texts
    return next(row for row in rows if row.metric == "cdnv_log"), texts[0]


def test_an_effect_through_the_metric_alone_is_carried_by_it() -> None:
    row, text = carried({arm: 0.6 * x for arm, x in MOVES.items()})
    assert row.verdict is Carried.CARRIED
    assert row.low is not None
    assert row.high is not None
    assert row.low - 0.03 < 0.6 < row.high + 0.03
    assert (row.weakest_f or 0) > 10
    assert row.weighted_median == pytest.approx(0.6, abs=0.05)
    assert text.endswith("on one line through 0: the property carries the effect.")


def test_the_largest_arm_does_not_widen_what_it_is_judged_by() -> None:
    """It is off by less than a quarter of its own effect, and by more than a quarter of the largest of the others."""
    losses = {arm: 0.6 * x for arm, x in MOVES.items()}
    assert carried(losses)[0].verdict is Carried.CARRIED
    losses["uniform_means:+0.3"] += 0.05
    assert NEAR * losses["uniform_means:+0.3"] > 0.05
    row, _ = carried(losses)
    assert row.off_line_p is not None
    assert row.off_line_p > 0.5
    assert row.verdict is not Carried.CARRIED


def test_effects_around_the_metric_are_those_of_the_interventions() -> None:
    losses = {"within:+0.1": 0.1, "within:-0.1": 0.1, "uniform_means:+0.3": 0.0, "dual:+0.3": -0.05, "simreg:0.1": 0.02}
    row, text = carried(losses)
    assert row.verdict is Carried.INTERVENTIONS
    assert "off one line (Q" in text
    assert "the interventions, not the property" in text


def test_a_metric_that_moves_without_the_outcome_is_not_needed() -> None:
    planted = [Planted(arm, {"cdnv_log": x}) for arm, x in MOVES.items()]
    models = arms_table(planted, seeds=8, rng=rng(3))
    registered = Registered(Primary(smallest_effect=0.05), beforehand=True)
    rows = instruments(models, registered, permutations=999, seed=0)
    assert rows[0].verdict is Carried.NOT_NEEDED
    assert "this much collapse is not needed" in next(iter(of_instruments(models, rows))).text


def test_doses_of_one_intervention_cannot_tell_what_carries_them() -> None:
    arms = [Planted(f"within:{d:+g}", {"cdnv_log": -3 * d, "val_loss": 0.5 * d}) for d in (-0.3, -0.1, 0.1, 0.3)]
    row, *_ = instruments(arms_table(arms, seeds=8, rng=rng()), Registered(), permutations=999, seed=0)
    assert row.verdict is Carried.CANNOT_TELL
    assert "doses of one intervention" in (row.why or "")


def test_three_seeds_cannot_tell_what_carries_an_effect() -> None:
    row, text = carried({arm: 0.3 * x for arm, x in MOVES.items()}, seeds=3)
    assert (row.verdict, row.slope) == (Carried.CANNOT_TELL, None)
    assert "cannot tell" in text


def test_the_slope_is_that_of_its_arms_weighted_by_hand() -> None:
    x = np.array([[1.0, 1.1, 0.9], [-2.0, -2.2, -1.9]])
    y = np.array([[0.5, 0.6, 0.3], [-1.1, -0.9, -1.2]])
    slope = 0.0
    for _ in range(2):
        weights = [3 / np.var(y[i] - slope * x[i], ddof=1) for i in range(2)]
        above = sum(w * x[i].mean() * y[i].mean() for i, w in enumerate(weights))
        slope = above / sum(w * x[i].mean() ** 2 for i, w in enumerate(weights))
    assert weighted_slope(x, y) == pytest.approx(slope)


def test_tables_sentences_and_frames_are_those_of_every_statement(tmp_path: Path) -> None:
    runs = [
        run_of(f"{seed}-{arm}", seed=seed, val_loss=3 + seed / 10 + (0.5 + seed / 50 if arm else 0), intervene=arm)
        for seed in range(8) for arm in (None, WITHIN)
    ]  # fmt: skip
    rows = [
        row_of(run, "cdnv_log", -1.0 - run["seed"] / 40 if run["intervene"] else 0.01 * run["seed"]) for run in runs
    ]
    write_tables(tmp_path, {"runs": runs, "results": rows}, made_from=[])
    analysis = analyze(tmp_path, permutations=99)
    frame = analysis.frames["effects"]
    assert list(frame)[:13] == [
        "arm", "dose", "sham", "metric", "n", "effect", "low", "high", "effect_in_sd", "p", "p_holm", "reached",
        "verdict",
    ]  # fmt: skip
    assert list(analysis.frames["instruments"])[:11] == [
        "metric", "arms", "slope", "low", "high", "q", "q_p", "egger", "egger_p", "weighted_median", "weakest_f",
    ]  # fmt: skip
    assert analysis.effects[0].verdict is Judgement.HARMS
    assert any(sentence.topic == "as a cause" for sentence in analysis.sentences)
    again = read_analysis(tmp_path, read_tables(tmp_path))
    assert again == analysis
    assert again.effects[0].sham is False
