"""Planted suites of arms: what is said of each is what was planted."""

from pathlib import Path

import numpy as np
import pytest

from analysis.planted import row_of, run_of, table
from analysis.planted_arms import Planted, arms_table
from collapselab.analysis.analyze import analyze, read_analysis
from collapselab.analysis.arms import Registered
from collapselab.analysis.effects import Effect, doses, effects
from collapselab.analysis.models import Models
from collapselab.analysis.properties import properties
from collapselab.analysis.verdict import Cause, Role, Verdict
from collapselab.analysis.words import COUNTED, LONGEST, of_doses, of_effects
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arm", "verdict"),
    [
        (reaching(0.1), Verdict.HARMS),
        (reaching(-0.1), Verdict.HELPS),
        (Planted(WITHIN, {"val_loss": 0.1}), Verdict.DID_NOT_REACH),
        (Planted(WITHIN, {"cdnv_log": 0.3, "val_loss": 0.1}), Verdict.DID_NOT_REACH),
    ],
    ids=["harms", "helps", "not reached", "moved the wrong way"],
)
def test_the_verdict_is_what_was_planted(arm: Planted, verdict: Verdict) -> None:
    models = arms_table([arm, Planted(SHAM)], seeds=8, rng=rng())
    assert judged(models)[WITHIN].verdict is verdict
    assert any(text.startswith(WITHIN) for text in said(models)) is (verdict in COUNTED)


def test_a_sham_that_moves_as_much_is_the_reason_that_the_arm_did_not_reach() -> None:
    sham = Planted(SHAM, {"cdnv_log": -0.3})
    assert judged(arms_table([reaching(0.1), sham], seeds=8, rng=rng()))[WITHIN].verdict is Verdict.DID_NOT_REACH
    assert judged(arms_table([reaching(0.1)], seeds=8, rng=rng()))[WITHIN].verdict is Verdict.HARMS


def test_a_sham_with_an_effect_of_its_own_is_named() -> None:
    models = arms_table([reaching(0.1), Planted(SHAM, {"val_loss": 0.1})], seeds=8, rng=rng())
    assert any(text.startswith("Shams that change val_loss by themselves: within:+0.1:sham") for text in said(models))


def test_equivalent_needs_its_own_test_and_is_never_what_is_left() -> None:
    models = arms_table([reaching(0.0)], seeds=8, rng=rng())
    wide, narrow = (Registered(Primary(smallest_effect=size), beforehand=True) for size in (0.05, 0.001))
    assert judged(models, wide)[WITHIN].verdict is Verdict.EQUIVALENT
    assert judged(models, narrow)[WITHIN].verdict is Verdict.UNDECIDED
    assert any("within ±0.05" in text and text.count("equivalent") for text in said(models, wide))
    assert not any("equivalent" in text for text in said(models, narrow))


def test_without_checkpoints_or_a_margin_nothing_is_equivalent() -> None:
    row = judged(arms_table([reaching(0.0)], seeds=8, rng=rng(), checkpoints=(1.0,)))[WITHIN]
    assert (row.margin, row.p_equivalence, row.verdict) == (None, None, Verdict.UNDECIDED)


def test_three_seeds_cannot_tell_and_eight_can_over_five_arms() -> None:
    arms = [Planted(f"within:+{dose}", {"cdnv_log": -0.3, "val_loss": 0.1}) for dose in (0.1, 0.2, 0.3, 0.4, 0.5)]
    few, enough = (judged(arms_table(arms, seeds=seeds, rng=rng())) for seeds in (3, 8))
    assert [row.verdict for row in few.values()] == [Verdict.TOO_FEW] * 5
    assert {row.why_code for row in few.values()} == {Cause.TOO_FEW}
    assert [row.verdict for row in enough.values()] == [Verdict.HARMS] * 5


def test_two_pairs_do_not_say_whether_a_property_was_reached() -> None:
    few, three = (judged(arms_table([reaching(0.1)], seeds=seeds, rng=rng()))[WITHIN] for seeds in (2, 3))
    assert (few.reached, few.verdict) == (None, Verdict.TOO_FEW)
    assert (three.reached, three.verdict) == (True, Verdict.TOO_FEW)


def test_one_unstable_run_is_noted_and_makes_no_verdict() -> None:
    models = arms_table([reaching(0.0, unstable={2: 0.5})], seeds=8, rng=rng())
    row = judged(models)[WITHIN]
    assert row.skewed
    assert row.verdict is Verdict.UNDECIDED
    assert row.median is not None
    assert abs(row.median) < 0.02 < abs(row.effect or 0)


def test_an_arm_whose_property_was_not_measured_has_no_verdict() -> None:
    row = judged(arms_table([Planted("dual:+0.3", {"val_loss": 0.1})], seeds=8, rng=rng()))["dual:+0.3"]
    assert (row.verdict, row.why_code) == (Verdict.TOO_FEW, Cause.MISSING)


def test_an_arm_without_a_property_is_judged_by_its_outcome_alone() -> None:
    row = judged(arms_table([Planted("noise:0.3", {"val_loss": 0.1})], seeds=8, rng=rng()))["noise:0.3"]
    assert (row.verdict, row.reached) == (Verdict.HARMS, None)


def test_only_what_was_registered_is_not_called_exploratory() -> None:
    models = arms_table([reaching(0.1)], seeds=8, rng=rng())
    assert "exploratory: not registered beforehand" in said(models)[0]
    assert "registered before the first run" in said(models, Registered(Primary(), beforehand=True))[0]
    other = Registered(Primary(outcome="val_accuracy"), beforehand=True)
    assert "exploratory" in said(models, other)[0]


def test_tables_without_arms_say_nothing() -> None:
    models = table([run_of(f"{s}", seed=s, val_loss=1.0 + s) for s in range(9)], {"cdnv_log": list(range(9))})
    rows = effects(models, Registered(), permutations=99, seed=0)
    assert (rows, doses(models)) == ([], [])
    assert [*of_effects(models, []), *of_doses(models, [])] == []


def test_the_outcome_follows_the_dose() -> None:
    arms = [Planted(f"within:{d:+g}", {"cdnv_log": -3 * d, "val_loss": 0.5 * d}) for d in (-0.3, -0.1, 0.1, 0.3)]
    models = arms_table(arms, seeds=8, rng=rng())
    rows = doses(models)
    outcome = [row for row in rows if row.metric == "val_loss"]
    assert [row.dose for row in outcome] == [-0.3, -0.1, 0.0, 0.1, 0.3]
    assert {row.trend for row in outcome} == {"rises"}
    assert {row.trend for row in rows if row.metric == "cdnv_log"} == {"falls"}
    effects_by_dose = [row.effect for row in outcome]
    assert effects_by_dose == sorted(effects_by_dose)
    assert {(row.n, (row.p_holm or 1) < 0.05) for row in outcome} == {(8, True)}
    assert len(list(of_doses(models, rows))) == 1


def test_harm_on_both_sides_is_no_trend() -> None:
    arms = [Planted(f"within:{d:+g}", {"cdnv_log": -3 * d, "val_loss": 3 * d**2}) for d in (-0.3, -0.1, 0.1, 0.3)]
    models = arms_table(arms, seeds=8, rng=rng())
    assert {row.trend for row in doses(models) if row.metric == "val_loss"} == {None}


def test_both_sides_that_harm_unequally_are_no_trend() -> None:
    losses = {-0.3: 0.02, -0.1: 0.01, 0.1: 0.03, 0.3: 0.09}
    arms = [Planted(f"within:{d:+g}", {"cdnv_log": -3 * d, "val_loss": loss}) for d, loss in losses.items()]
    outcome = [row for row in doses(arms_table(arms, seeds=8, rng=rng())) if row.metric == "val_loss"]
    assert (outcome[0].p_holm or 1) < 0.05, "Page's test alone calls it a trend"
    assert {row.trend for row in outcome} == {None}


def test_the_movement_of_an_arm_is_what_the_metrics_of_its_property_say() -> None:
    def movement(*arms: Planted) -> Verdict | None:
        models = arms_table(arms, seeds=8, rng=rng())
        moved = properties(models, [], [], permutations=999, seed=0)
        row = effects(models, Registered(), moved, permutations=99, seed=0)[0]
        assert (row.label, row.role) == (WITHIN, Role.OUTCOME)
        return row.movement

    assert movement(reaching(0.1)) is Verdict.TOWARD
    assert movement(Planted(WITHIN, {"cdnv_log": 0.3})) is Verdict.AWAY
    assert movement(Planted(WITHIN)) is Verdict.NOT_SHOWN


def test_skewed_arms_are_judged_by_their_median_and_never_equivalent() -> None:
    registered = Registered(Primary(smallest_effect=0.3), beforehand=True)
    plain, spiky = (
        judged(arms_table([reaching(0.0, unstable=unstable)], seeds=8, rng=rng()), registered)[WITHIN]
        for unstable in ({}, {2: 0.5})
    )
    assert (plain.skewed, plain.verdict) == (False, Verdict.EQUIVALENT)
    assert (spiky.skewed, spiky.verdict) == (True, Verdict.UNDECIDED)


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
    assert analysis.tables["effects"][0].verdict is Verdict.HARMS
    assert any(sentence.topic == "as a cause" for sentence in analysis.sentences)
    again = read_analysis(tmp_path, read_tables(tmp_path))
    assert again == analysis
    assert again.tables["effects"][0].sham is False
