"""Suites as strangers bring them: diverged runs, seeds that do not match, repeated runs, cells that disagree."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from analysis.planted import drawn, row_of, run_of, seeds_study, table
from analysis.planted_arms import Planted, arms_table
from collapselab.analysis.arms import Registered
from collapselab.analysis.controls import controls
from collapselab.analysis.curves import diagnose
from collapselab.analysis.effects import Effect, effects
from collapselab.analysis.models import Models, combine
from collapselab.analysis.relate import relate, relate_subset, says_nothing
from collapselab.analysis.subsets import WITHIN as WITHIN_CELLS
from collapselab.analysis.subsets import within_cells
from collapselab.analysis.verdict import Cause, Role, Verdict
from collapselab.analysis.words import LONGEST, of_effects
from collapselab.records.suite import Primary

WITHIN = "within:+0.1"
REGISTERED = Registered(Primary(metrics=("cdnv_log", "logdist_std"), smallest_effect=0.05), beforehand=True)


def suite(adds: float, *, seeds: int = 8, arms: tuple[Planted, ...] = (), seed: int = 0) -> Models:
    arm = Planted(WITHIN, {"cdnv_log": -0.3, "val_loss": adds})
    return arms_table([arm, *arms], seeds=seeds, rng=np.random.default_rng(seed))


def judged(models: Models) -> dict[str, Effect]:
    rows = effects(models, REGISTERED, permutations=99, seed=0)
    return {row.label: row for row in rows if row.role is Role.OUTCOME}


def said(models: Models) -> list[str]:
    rows = effects(models, REGISTERED, permutations=99, seed=0)
    texts = [sentence.text for sentence in of_effects(models, rows)]
    assert all(len(text) <= LONGEST for text in texts), texts
    return texts


def without_loss(models: Models, *runs: str) -> Models:
    """These runs diverged: no loss at their last checkpoint."""
    lost = models.frame["run"].isin(runs) & models.frame["last"]
    assert lost.sum() == len(runs)
    return replace(models, frame=models.frame.assign(val_loss=models.frame["val_loss"].mask(lost)))


def failed(models: Models, *runs: str) -> Models:
    """These runs failed in training: a row with the reason, as `suite run` leaves one, and no checkpoint."""
    frame = models.frame
    kept = frame[~frame["run"].isin(runs) | frame["last"]].reset_index(drop=True)
    lost = kept["run"].isin(runs)
    empty = {name: kept[name].mask(lost) for name in ("epoch", "tokens", "val_loss", "train_loss", *models.metrics)}
    return replace(models, frame=kept.assign(why=np.where(lost, "training failed: loss is nan", None), **empty))


@pytest.mark.parametrize("lose", [without_loss, failed])
@pytest.mark.parametrize(("adds", "with_all"), [(-0.1, Verdict.HELPS), (0.0, Verdict.EQUIVALENT)])
def test_what_the_runs_that_did_not_diverge_show_is_not_called_shown(
    lose: Callable[..., Models], adds: float, with_all: Verdict
) -> None:
    models = suite(adds)
    assert judged(models)[WITHIN].verdict is with_all
    row = judged(lose(models, f"64-3-{WITHIN}"))[WITHIN]
    assert (row.n, row.lost, row.lost_controls, row.verdict) == (7, 1, 0, Verdict.UNDECIDED)
    assert row.why_code is Cause.MISSING


def test_an_arm_that_harms_and_diverges_harms() -> None:
    row = judged(without_loss(suite(0.1), f"64-3-{WITHIN}"))[WITHIN]
    assert (row.lost, row.verdict) == (1, Verdict.HARMS)


def test_a_control_that_diverged_leaves_no_harm_to_be_shown() -> None:
    harmed, helped = (judged(failed(suite(adds), "64-3-"))[WITHIN] for adds in (0.1, -0.1))
    assert (harmed.n, harmed.lost_controls, harmed.verdict) == (7, 1, Verdict.UNDECIDED)
    assert (helped.lost_controls, helped.verdict) == (1, Verdict.HELPS)


def test_an_arm_of_which_every_run_failed_is_named() -> None:
    models = failed(
        suite(0.1, arms=(Planted("cdnv:+0.3", {"cdnv_log": -0.3}),)), *(f"64-{s}-{WITHIN}" for s in range(8))
    )
    assert WITHIN not in judged(models)
    assert WITHIN in said(models)[-1], "what is not judged is named"


def test_arms_whose_seeds_are_not_those_of_the_controls_are_named_and_not_judged() -> None:
    models = suite(0.1)
    treated = models.frame["intervene"].notna()
    moved = replace(models, frame=models.frame.assign(seed=models.frame["seed"] + 100 * treated))
    assert judged(moved) == {}
    (text,) = said(moved)
    assert f"{WITHIN} (8 runs)" in text


def test_models_without_an_arm_have_no_sentence_about_controls() -> None:
    models = seeds_study(cells=2, seeds=3)
    untied = replace(models, frame=models.frame.assign(tied=[False, True] * 3, optimizer="adam"))
    assert said(untied) == []


def two_rates(first: float, second: float) -> Models:
    """The same arm under two learning rates, each with its own effect."""
    frames = [
        suite(adds, seed=seed).frame.assign(lr=lr) for seed, (adds, lr) in enumerate([(first, 1e-3), (second, 2e-3)])
    ]
    runs = [
        run_of(f"{row['run']} {row['lr']}", **{name: row[name] for name in (
            "checkpoint", "width", "seed", "epoch", "tokens", "val_loss", "train_loss", "intervene", "lr")})
        for frame in frames for row in frame.to_dict("records")
    ]  # fmt: skip
    return table(runs, {"cdnv_log": [value for frame in frames for value in frame["cdnv_log"]]})


def test_effects_of_two_cells_that_cancel_are_not_equivalent() -> None:
    row = judged(two_rates(0.1, -0.1))[WITHIN]
    assert row.verdict is Verdict.UNDECIDED
    assert judged(two_rates(0.0, 0.0))[WITHIN].verdict is Verdict.EQUIVALENT


def test_each_reason_is_said_of_those_that_it_is_true_of() -> None:
    models = suite(0.1, arms=(Planted("cdnv:+0.3", {"cdnv_log": -0.3}), Planted("simreg:0.1", {"cdnv_log": -0.2})))
    few = models.frame["intervene"].eq("cdnv:+0.3") & (models.frame["seed"] > 0)
    some = models.frame["intervene"].eq("simreg:0.1") & (models.frame["seed"] > 3)
    fewer = replace(models, frame=models.frame[~(few | some)].reset_index(drop=True))
    texts = said(fewer)
    assert "No verdict on cdnv:+0.3; too few pairs: 6 needed, 1 found." in texts
    assert "No verdict on simreg:0.1; too few pairs: 6 needed, 4 found." in texts


def test_one_pair_is_not_called_pairs_and_one_arm_helps() -> None:
    assert "1 pair each" in said(suite(0.1, seeds=1))[0]
    assert "1 helps" in said(suite(-0.1))[0]


def test_an_outcome_that_never_changes_has_no_smallest_effect_of_interest() -> None:
    models = suite(0.0)
    constant = replace(models, frame=models.frame.assign(val_loss=2.0))
    rows = effects(constant, Registered(), permutations=99, seed=0)
    assert (rows[0].margin, rows[0].verdict) == (None, Verdict.UNDECIDED)


def repeated(models: Models) -> Models:
    """Every run once more, under another name."""
    again = models.frame.assign(run=models.frame["run"] + " again")
    return replace(models, frame=pd.concat([models.frame, again], ignore_index=True))


def test_a_run_that_is_there_twice_is_no_further_evidence() -> None:
    models = drawn(seeds_study(cells=1, seeds=5), np.random.default_rng(3), slope=0.95)
    (once,), (twice,) = (
        relate_subset(study, within_cells(study.trained), permutations=999, seed=0)
        for study in (models, repeated(models))
    )
    assert (twice.n, twice.r, twice.verdict) == (once.n, once.r, Verdict.TOO_FEW)
    assert int(repeated(models).repeats.sum()) == 5
    assert not models.repeats.any()


def test_seeds_that_are_shared_stay_shared_where_runs_are_there_twice() -> None:
    models = drawn(seeds_study(cells=3, seeds=4, shared=True), np.random.default_rng(1), slope=0.9)
    once, twice = (within_cells(study.trained) for study in (models, repeated(models)))
    assert twice.units_per_cell == once.units_per_cell == [4]


def test_five_copies_of_a_run_are_not_five_seeds_that_overfit() -> None:
    losses = [2.0, 1.9, 2.3]
    runs = [
        run_of(f"copy {copy}", seed=0, epoch=float(e + 1), epochs=3.0, checkpoint=f"{e}", val_loss=loss)
        for copy in range(5) for e, loss in enumerate(losses)
    ]  # fmt: skip
    models = combine(runs, [row_of(run, "cdnv_log", 0.3, null=1.0) for run in runs])
    found = {finding.run: finding for finding in diagnose(models)}
    assert found["copy 0"].found is None


def test_more_seeds_are_asked_for_where_models_are_missing_and_not_where_they_are_all_alike() -> None:
    models = drawn(seeds_study(cells=2, seeds=7), np.random.default_rng(0), slope=0.5)
    constant = replace(models, frame=models.frame.assign(val_loss=2.0))
    rows = [row for row in relate(constant, permutations=99) if row.subset == WITHIN_CELLS]
    assert {row.why_code for row in rows} == {Cause.NO_VARIATION}
    assert "several seeds" not in says_nothing(rows)
    single = seeds_study(cells=2, seeds=1)
    rows = [row for row in relate(single, permutations=99) if row.subset == WITHIN_CELLS]
    assert {row.why_code for row in rows} == {Cause.TOO_FEW}
    assert "several seeds" in says_nothing(rows)


def test_a_single_model_is_not_called_models() -> None:
    models = seeds_study(cells=1, seeds=1)
    rows = controls(models, permutations=99, seed=0)
    assert {(row.verdict, row.why_code, row.n) for row in rows} == {(Verdict.TOO_FEW, Cause.TOO_FEW, 1)}
