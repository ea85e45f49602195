from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from scipy import stats

from analysis.planted import drawn, run_of, seeds_study, table
from collapselab.analysis.models import Floats, Models
from collapselab.analysis.relate import Relation, relate, relate_subset, reversals
from collapselab.analysis.resampling import clustered_interval, fisher_interval, left_out
from collapselab.analysis.subsets import ALL, WITHIN, within_cells
from collapselab.analysis.verdict import Cause, Verdict


def row_of(relations: list[Relation], metric: str, subset: str = ALL, transform: str = "raw") -> Relation:
    return next(row for row in relations if (row.metric, row.subset, row.transform) == (metric, subset, transform))


def alone(models: Models) -> list[Relation]:
    return relate_subset(models, within_cells(models.trained), permutations=199, seed=0)


METRICS = ("agreement", "cdnv_k2", "lognorm_cv", "duality_cos_mean")


@pytest.mark.slow
def test_scale_that_drives_both_is_not_taken_for_an_effect_at_fixed_scale() -> None:
    """500 tables where nothing acts at fixed scale. Holm keeps the chance of any claim at 5 %; 8 % would be three
    standard errors above. Across models every correlation is there, so the control has something to fail on."""
    rng = np.random.default_rng(1)
    claims, single = 0, 0
    study = seeds_study(cells=4, seeds=5, metrics=METRICS)
    for number in range(500):
        models = drawn(study, rng, slope=0)
        rows = alone(models)
        claims += any(row.verdict not in (Verdict.NOT_SHOWN, Verdict.DESCRIPTION) for row in rows)
        single += sum(
            row.p_permutation < 0.05 for row in rows if row.transform == "raw" and row.p_permutation is not None
        )
        if number == 0:
            across = relate(models, permutations=99, seed=0)
            assert abs(row_of(across, "agreement").r or 0) > 0.98
    assert claims / 500 < 0.08
    assert 0.035 < single / 2000 < 0.065  # not too rare either: the test uses its level


@pytest.mark.slow
def test_an_effect_at_fixed_scale_is_found_with_the_power_that_is_claimed() -> None:
    rng = np.random.default_rng(2)
    study = seeds_study(cells=4, seeds=6)
    claimed = alone(drawn(study, rng, slope=0.5))[0].detectable_r
    assert claimed is not None
    rows = [alone(drawn(study, rng, slope=claimed))[0] for _ in range(500)]
    found = np.mean([(row.p_permutation or 1) <= 0.05 for row in rows])
    assert 0.74 < found < 0.86  # 80 %; the error of 500 tables is 1.8 %, and Fisher's z is good to a few
    # Standard deviations of six seeds are uncertain, which brings r nearer to 0 by about (1 - r²) / 2(n - 1) of itself.
    expected = claimed * (1 - (1 - claimed**2) / 10)
    assert np.mean([row.r or 0 for row in rows]) == pytest.approx(expected, abs=0.02)
    assert {row.goes for row in rows if (row.p_permutation or 1) <= 0.05} == {
        "against"
    }  # agreement rises with the loss


def test_all_models_and_cells_are_related() -> None:
    rng = np.random.default_rng(0)
    runs = [
        run_of(f"{w}-{d}-{s}", width=w, weight_decay=d, seed=s, val_loss=float(rng.random()))
        for w in (64, 128, 256) for d in (0.0, 0.1) for s in range(5)
    ]  # fmt: skip
    relations = relate(table(runs, {"agreement": 1 + rng.random(30)}), permutations=99)
    assert [(row.subset, row.n, row.cells) for row in relations][:2] == [(ALL, 30, 1), (WITHIN, 30, 6)]
    assert {row.subset for row in relations} == {ALL, WITHIN}


def test_numbers_of_one_subset_are_those_of_scipy() -> None:
    rng = np.random.default_rng(5)
    x, y = rng.random(9) + 1, rng.random(9)
    runs = [run_of(f"{i}", seed=i, val_loss=float(y[i])) for i in range(9)]
    row = row_of(relate(table(runs, {"agreement": x}), permutations=99), "agreement")
    assert row.r == pytest.approx(stats.pearsonr(x, y).statistic, rel=1e-12)
    assert row.r2 == pytest.approx(stats.pearsonr(x, y).statistic ** 2, rel=1e-12)


def test_a_metric_that_spans_decades_is_judged_on_its_logarithm_and_described_as_it_is() -> None:
    runs = [run_of(f"{i}", seed=i, val_loss=2.0 + i) for i in range(8)]
    relations = relate(table(runs, {"cdnv_k2": [10.0**i for i in range(8)]}), permutations=99)
    log, raw = (row_of(relations, "cdnv_k2", WITHIN, transform=transform) for transform in ("log", "raw"))
    assert log.r == pytest.approx(1, abs=1e-12)
    assert (raw.r or 1) < 0.7
    assert (log.verdict, log.family) == (Verdict.AS_PREDICTED, "paper")
    assert (raw.verdict, raw.p_holm) == (Verdict.DESCRIPTION, None)
    assert raw.p_permutation is not None, "as the paper has it"


def test_a_missing_value_leaves_out_its_model_for_its_metric_alone() -> None:
    rng = np.random.default_rng(3)
    x, y = rng.random(8) + 1, rng.random(8)
    runs = [run_of(f"{i}", seed=i, val_loss=float(y[i])) for i in range(8)]
    holed = [None if i == 2 else x[i] for i in range(8)]
    relations = relate(table(runs, {"agreement": holed, "cdnv": x}), permutations=99)
    with_hole, whole = row_of(relations, "agreement"), row_of(relations, "cdnv")
    kept = [i for i in range(8) if i != 2]
    assert (with_hole.n, with_hole.missing, whole.n, whole.missing) == (7, 1, 8, 0)
    assert with_hole.r == pytest.approx(stats.pearsonr(x[kept], y[kept]).statistic, rel=1e-12)
    assert whole.r == pytest.approx(stats.pearsonr(x, y).statistic, rel=1e-12)


def test_a_missing_outcome_is_left_out_and_counted() -> None:
    runs = [run_of(f"{i}", seed=i, val_loss=None if i == 0 else 1.0 + i) for i in range(6)]
    row = row_of(relate(table(runs, {"agreement": range(1, 7)}), permutations=99), "agreement")
    assert (row.n, row.missing) == (5, 1)
    assert row.r == pytest.approx(1)


def test_a_model_left_alone_in_its_cell_by_a_missing_value_says_nothing() -> None:
    runs = [run_of(f"{w}{s}", width=w, seed=s, val_loss=1.0 + s + w) for w in (64, 128) for s in range(4)]
    values: list[float | None] = [1, 2, 3, 4, 5, None, None, None]
    row = row_of(relate(table(runs, {"agreement": values}), permutations=99), "agreement", WITHIN)
    assert (row.n, row.cells, row.missing) == (4, 1, 4)


@pytest.mark.parametrize(
    ("values", "losses", "why"),
    [
        ([2.0, 2.0, 2.0, 2.0], [1.0, 2.0, 3.0, 4.0], "agreement is the same in all 4 models."),
        ([1.0, 2.0, 3.0, 4.0], [2.0, 2.0, 2.0, 2.0], "val_loss is the same in all 4 models."),
        ([1.0, 2.0], [1.0, 2.0], "too few models: 3 needed, 2 found."),
        ([None, None, None], [1.0, 2.0, 3.0], "too few models: 3 needed, 0 found."),
    ],
)
def test_what_cannot_be_related_has_a_reason_and_no_number(
    values: list[float | None], losses: list[float], why: str
) -> None:
    runs = [run_of(f"{i}", seed=i, val_loss=loss) for i, loss in enumerate(losses)]
    for row in relate(table(runs, {"agreement": values}), permutations=99):
        assert row.why == why
        assert (row.r, row.low, row.p_permutation, row.p_holm, row.verdict) == (None,) * 4 + (Verdict.TOO_FEW,)


def test_a_metric_that_is_the_outcome_by_another_name_is_not_tested() -> None:
    runs = [run_of(f"{i}", seed=i, val_loss=1.0 + i) for i in range(5)]
    row = relate(table(runs, {"model_accuracy": [0.5, 0.4, 0.3, 0.2, 0.1]}), permutations=99)[0]
    assert row.r is None
    assert "the outcome by another name" in (row.why or "")


def test_of_a_runs_checkpoints_only_the_last_is_compared_with_other_seeds() -> None:
    runs = [
        run_of(f"{s}", checkpoint=str(e), epoch=float(e), epochs=2.0, seed=s, val_loss=1.0 + s / e)
        for s in range(4) for e in (1, 2)
    ]  # fmt: skip
    row = row_of(relate(table(runs, {"agreement": range(8)}), permutations=99), "agreement", WITHIN)
    assert (row.n, row.cells) == (4, 1)


def test_the_wrong_way_is_said_to_be_wrong() -> None:
    runs = [run_of(f"{i}", seed=i, val_loss=1.0 + i) for i in range(10)]
    relations = relate(table(runs, {"agreement": range(1, 11), "cdnv": range(1, 11)}), permutations=999)
    assert row_of(relations, "agreement", WITHIN).verdict is Verdict.OPPOSITE
    assert row_of(relations, "agreement", WITHIN).goes == "against"
    assert row_of(relations, "cdnv", WITHIN, "log").verdict is Verdict.AS_PREDICTED


def test_the_corrections_are_within_a_family() -> None:
    rng = np.random.default_rng(8)
    runs = [run_of(f"{i}", seed=i, val_loss=float(rng.random())) for i in range(12)]
    metrics = {name: rng.random(12) + 1 for name in ("agreement", "lognorm_cv", "cdnv_k2", "norm_cv", "cdnv")}
    relations = relate(table(runs, metrics), permutations=999)
    for family, size in (("paper", 3), ("exploration", 2)):
        rows = sorted(
            (row for row in relations if row.subset == WITHIN and row.family == family and row.p_holm is not None),
            key=lambda row: row.p_permutation or 0,
        )
        assert len(rows) == size
        by_hand = np.maximum.accumulate([min(1, (row.p_permutation or 0) * (size - i)) for i, row in enumerate(rows)])
        assert [row.p_holm for row in rows] == pytest.approx(list(by_hand))


def test_the_interval_follows_what_is_independent() -> None:
    """Across models architectures are left out in turn; within cells of their own seeds it is Fisher's z."""
    rng = np.random.default_rng(6)
    runs = [
        run_of(f"{w}-{s}", width=w, seed=10 * w + s, val_loss=4 - w / 9 + 0.1 * float(rng.random()))
        for w in range(1, 11) for s in (0, 1)
    ]  # fmt: skip
    values = np.array([run["width"] + 0.5 * rng.standard_normal() for run in runs]) + 5
    models = table(runs, {"agreement": values})
    across, within = (row_of(relate(models, permutations=99), "agreement", name) for name in (ALL, WITHIN))
    loss = models.trained["val_loss"].to_numpy()
    without = left_out(
        values - values.mean(), loss - loss.mean(), np.full((20, 1), 20**-0.5), np.repeat(np.arange(10), 2)
    )
    assert across.r is not None
    assert within.r is not None
    assert (across.low, across.high) == pytest.approx(clustered_interval(across.r, without.correlations))
    assert within.low is None, "cells of two leave only signs"
    assert within.shared_seeds is None


def test_the_interval_within_cells_pays_for_means_and_standard_deviations() -> None:
    rng = np.random.default_rng(4)
    runs = [
        run_of(f"{w}-{s}", width=w, seed=10 * w + s, val_loss=float(rng.random())) for w in range(4) for s in range(5)
    ]
    within = row_of(relate(table(runs, {"agreement": rng.random(20)}), permutations=99), "agreement", WITHIN)
    assert within.r is not None
    low, high = fisher_interval(within.r, 20 - 2 * 4 - 1)
    assert (within.low, within.high) == (pytest.approx(low), pytest.approx(high))


def test_the_slope_is_the_outcome_of_one_standard_deviation() -> None:
    rng = np.random.default_rng(2)
    x = rng.random(12)
    runs = [run_of(f"{i}", seed=i, val_loss=float(3 - 0.7 * x[i] + 0.1 * rng.random())) for i in range(12)]
    row = row_of(relate(table(runs, {"agreement": x}), permutations=99), "agreement", WITHIN)
    theirs = stats.linregress(x, [run["val_loss"] for run in runs])
    spread, half = np.std(x, ddof=1), stats.t.isf(0.025, 10) * theirs.stderr
    ends = [(theirs.slope + sign * half) * spread for sign in (-1, 1)]
    assert row.slope == pytest.approx(theirs.slope * spread, rel=1e-9)
    assert [row.slope_low, row.slope_high] == pytest.approx(ends, rel=1e-9)


def lucky(rng: np.random.Generator, *, shared: bool) -> Models:
    """Four cells of the same nine seeds; half of the variance of metric and loss is a seed's in all cells, and the two
    have nothing to do with each other. `shared` False: the same numbers, and nobody knows that the seeds are the same."""
    models = seeds_study(cells=4, seeds=9, shared=shared)
    seed = np.tile(np.arange(9), 4)
    x, y = (rng.standard_normal(9)[seed] + rng.standard_normal(36) for _ in range(2))
    return replace(models, frame=models.frame.assign(agreement=5 + x, val_loss=4 + 0.1 * y))


@pytest.mark.slow
def test_seeds_that_cells_share_are_permuted_in_all_of_them_at_once() -> None:
    """Taken for independent they are found too often; permuted jointly as often as the level says."""
    rng = np.random.default_rng(4)
    found = {True: 0, False: 0}
    for _ in range(200):
        seed = int(rng.integers(2**31))
        for shared in found:
            row = alone(lucky(np.random.default_rng(seed), shared=shared))[0]
            assert row.shared_seeds == (9 if shared else None)
            found[shared] += (row.p_permutation or 1) <= 0.05
    assert found[True] <= 19, found  # 5 % of 200; three standard errors above
    assert found[False] >= 20, found


def test_few_shared_seeds_cannot_tell_however_many_cells_there_are() -> None:
    models = drawn(seeds_study(cells=6, seeds=5, shared=True), np.random.default_rng(0), slope=0.9)
    row = alone(models)[0]
    assert (row.verdict, row.p_permutation) == (Verdict.TOO_FEW, None)
    assert row.why == "too few seeds that runs share: 6 in one cell needed to test 7 metrics, 5 found."


def test_across_models_there_is_no_p_and_no_verdict() -> None:
    relations = relate(drawn(seeds_study(cells=8, seeds=4), np.random.default_rng(0), slope=0.5), permutations=99)
    row = row_of(relations, "agreement")
    assert (row.p_permutation, row.p_holm, row.verdict) == (None, None, Verdict.DESCRIPTION)
    assert row.goes is not None
    assert row.low is not None


def test_a_ratio_has_its_numbers_and_no_verdict() -> None:
    runs = [run_of(f"{i}", seed=i, val_loss=1.0 + i) for i in range(10)]
    row = row_of(relate(table(runs, {"cosine_cv": range(1, 11)}), permutations=999), "cosine_cv", WITHIN)
    assert (row.verdict, row.goes) == (Verdict.DESCRIPTION, None)
    assert (row.p_holm or 1) < 0.05
    assert "cosine_std and cosine_mean" in (row.why or "")


def test_a_reversal_is_found_where_both_signs_are_beyond_doubt() -> None:
    """`drawn` has agreement rise with scale, and the loss fall; at fixed scale the loss rises or falls with it."""
    for slope, found in ((0.9, True), (-0.9, False), (0.0, False)):
        models = drawn(seeds_study(cells=6, seeds=7), np.random.default_rng(1), slope=slope)
        pairs = reversals(relate(models, permutations=999))
        assert [(across.metric, within.metric) for across, within in pairs] == [("agreement", "agreement")] * found


def test_relations_across_models_leave_out_earlier_checkpoints_and_arms() -> None:
    rng = np.random.default_rng(0)
    arms = ("", "within:+0.1", "within:+0.1:sham")
    runs = [
        run_of(f"{seed}-{arm}", checkpoint=f"{epoch:g}", epoch=epoch, seed=seed, intervene=arm or None,
               val_loss=float(rng.random()))
        for seed in range(4) for arm in arms for epoch in (0.0, 0.5, 1.0)
    ]  # fmt: skip
    (across, *_) = relate(table(runs, {"agreement": 1 + rng.random(len(runs))}), permutations=99)
    assert (across.subset, across.n) == (ALL, 4)


def arms_of(rng: np.random.Generator) -> Models:
    """Eight seeds of a control, a sham, an arm and another head; metric and loss go together in the arm and head alone."""
    arms = [("", None), ("within:+0.1:sham uniform_means:+0.1:sham", None), ("within:+0.1", None), ("", "sphere")]
    runs = [
        run_of(f"{arm}{head}{seed}", seed=seed, intervene=arm or None, head=head, val_loss=4 + 0.1 * float(rng.random()))
        for arm, head in arms for seed in range(8)
    ]  # fmt: skip
    treated = [run["intervene"] == "within:+0.1" or run["head"] is not None for run in runs]
    values = np.where(treated, 10 * np.array([run["val_loss"] for run in runs]), rng.random(len(runs)))
    return table(runs, {"agreement": values})


def test_with_arms_only_controls_and_shams_are_compared_at_fixed_scale() -> None:
    models = arms_of(np.random.default_rng(0))
    subset = within_cells(models.trained)
    assert {str(arm) for arm in models.trained["intervene"].iloc[subset.members]} == {
        "nan", "within:+0.1:sham uniform_means:+0.1:sham"
    }  # fmt: skip
    row = alone(models)[0]
    assert (row.n, row.cells, row.shared_seeds) == (16, 2, 8)
    assert abs(row.r or 1) < 0.6


def seeds_by_data(pairs: list[tuple[int, int]], x: Floats, y: Floats) -> Models:
    runs = [
        run_of(f"{i}", seed=seed, data_seed=data, val_loss=float(y[i])) for i, (seed, data) in enumerate(pairs)
    ]  # fmt: skip
    return table(runs, {"agreement": x})


CROSSED = [(seed, data) for seed in range(4) for data in range(5)]


def test_crossed_seeds_and_data_seeds_are_permuted_as_two_factors() -> None:
    """By hand: all 4! × 5! orders of rows and columns, the same for every run."""
    rng = np.random.default_rng(3)
    x, y = (rng.standard_normal(4)[:, None] + rng.standard_normal((4, 5)) for _ in range(2))
    every = [
        abs(np.corrcoef(x.ravel(), y[np.ix_(rows, columns)].ravel())[0, 1])
        for rows in permutations(range(4)) for columns in permutations(range(5))
    ]  # fmt: skip
    exact = np.mean(np.array(every) >= every[0] * (1 - 1e-9))
    models = seeds_by_data(CROSSED, x.ravel(), y.ravel())
    subset = within_cells(models.trained)
    assert subset.units_per_cell == [4, 5]
    p = relate_subset(models, subset, permutations=20_000, seed=0)[0].p_permutation
    assert p == pytest.approx(exact, abs=4 * np.sqrt(exact * (1 - exact) / 20_000) + 1e-4)


def test_crossed_seeds_that_are_not_all_there_are_refused() -> None:
    rng = np.random.default_rng(0)
    row = alone(seeds_by_data(CROSSED[:-1], rng.random(19), rng.random(19)))[0]
    assert (row.verdict, row.why_code, row.p_permutation) == (Verdict.TOO_FEW, Cause.TOO_FEW, None)
    assert "crossed" in (row.why or "")


@pytest.mark.parametrize("shared", ["seed", "data"])
def test_runs_that_share_an_initialisation_or_a_data_order_are_one_unit(shared: str) -> None:
    """21 runs of seven: the seven change places, each with its three runs."""
    pairs = [(i // 3, i) if shared == "seed" else (i, i // 3) for i in range(21)]
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(7)[np.arange(21) // 3] + 0.01 * rng.standard_normal(21) for _ in range(2))
    models = seeds_by_data(pairs, x, y)
    assert within_cells(models.trained).units_per_cell == [7]
    row = relate_subset(models, within_cells(models.trained), permutations=9999, seed=0)[0]
    orders = [np.ravel([[3 * unit + run for run in range(3)] for unit in order]) for order in permutations(range(7))]
    every = np.abs((y - y.mean())[np.array(orders)] @ (x - x.mean()))
    exact = np.mean(every >= every[0] * (1 - 1e-9))
    assert row.p_permutation == pytest.approx(exact, abs=4 * np.sqrt(exact * (1 - exact) / 9999) + 1e-4)
    assert row.shared_seeds == 7


@pytest.mark.slow
def test_crossed_seeds_hold_their_level() -> None:
    """Most of a run is its seed's and its data seed's. Runs taken for independent are wrong in about half of tables."""
    rng, found = np.random.default_rng(1), {"crossed": 0, "independent": 0}
    for _ in range(100):
        x, y = (
            3 * rng.standard_normal((4, 1)) + rng.standard_normal((1, 5)) + rng.standard_normal((4, 5))
            for _ in range(2)
        )
        numbers = {"crossed": CROSSED, "independent": [(i, i) for i in range(20)]}
        for name, pairs in numbers.items():
            found[name] += (alone(seeds_by_data(pairs, x.ravel(), y.ravel()))[0].p_permutation or 1) <= 0.05
    assert found["crossed"] <= 12, found  # 5 % of 100; three standard errors above
    assert found["independent"] >= 25, found


def test_a_result_that_rests_on_one_run_is_not_shown_and_names_it() -> None:
    """Twenty seeds without a relation, and one that is broken in metric and loss alike."""
    rng = np.random.default_rng(2)
    x, y = np.append(rng.random(20), 9.0), np.append(rng.random(20), 9.0)
    runs = [run_of(f"run-{i}", seed=i, val_loss=float(y[i])) for i in range(21)]
    row = row_of(relate(table(runs, {"agreement": x}), permutations=999), "agreement", WITHIN)
    assert (row.r or 0) > 0.9
    assert (row.verdict, row.why_code, row.influential) == (Verdict.NOT_SHOWN, Cause.TOO_FEW, "run-20")
    assert row.r_without == pytest.approx(np.corrcoef(x[:-1], y[:-1])[0, 1])


def residual(values: Floats, x: Floats) -> Floats:
    """What x leaves of the values, in standard deviations."""
    return np.asarray(stats.zscore(values - x * (x @ values) / (x @ x)))


@pytest.mark.parametrize(("outlier", "named"), [(30.0, True), (1.0, False)])
def test_a_run_without_which_r_is_less_than_half_is_named_beside_what_is_shown(outlier: float, named: bool) -> None:
    """Sixty seeds with r 0.4, and one that may be far away."""
    rng = np.random.default_rng(5)
    x = stats.zscore(rng.standard_normal(60))
    y = 0.4 * x + np.sqrt(1 - 0.4**2) * residual(rng.standard_normal(60), x)
    x, y = np.append(x, outlier), np.append(y, outlier)
    runs = [run_of(f"run-{i}", seed=i, val_loss=float(y[i])) for i in range(61)]
    row = row_of(relate(table(runs, {"agreement": x}), permutations=999), "agreement", WITHIN)
    assert (row.verdict, row.influential) == (Verdict.OPPOSITE, "run-60" if named else None)
