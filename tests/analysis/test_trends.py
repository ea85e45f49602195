from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pytest
from scipy.stats import spearmanr

from analysis.planted import run_of, table
from collapselab.analysis.models import Models
from collapselab.analysis.trends import Trend, trends
from collapselab.analysis.verdict import Verdict


def row_of(rows: list[Trend], axis: str, metric: str, where: str = "") -> Trend:
    return next(row for row in rows if (row.axis, row.metric, str(row.where or "")) == (axis, metric, where))


def grid(metric: str = "cdnv") -> Models:
    """The metric falls with width in 7 of 8 groups, rises with depth in all, and strong decay lowers it in 9 of 12
    pairs; the others are of depth 4."""
    runs, values = [], []
    for depth in (1, 2, 3, 4):
        for decay in (0.0, 0.1):
            for w in (1, 2, 3):
                runs.append(
                    run_of(
                        f"{w}-{depth}-{decay}",
                        width=64 * w,
                        depth=depth,
                        weight_decay=decay,
                        val_loss=9 - depth - w / 10,
                    )
                )
                falls = -1 if (depth, decay) != (4, 0.1) else 1
                values.append(20 + 5 * depth + falls * w - decay)
    return table(runs, {metric: values})


def test_the_way_along_each_axis_is_counted_in_units() -> None:
    """Under two decays a depth has the same architectures: one unit, with the mean of its two correlations."""
    rows = trends(grid())
    width, depth = row_of(rows, "width", "cdnv"), row_of(rows, "depth", "cdnv")
    assert (width.groups, width.falls, width.unchanged, width.share_toward) == (4, 3, 1, 3 / 4)
    assert (depth.groups, depth.rises, depth.falls, depth.share_toward) == (3, 3, 0, 0.0)
    assert width.median_rho == -1
    assert depth.median_rho == 1
    assert width.median_effect == -2
    assert depth.median_effect == pytest.approx(15 + (0 + 2 + 4 + 6) / 6 - 1, abs=2)
    assert (width.levels, depth.levels) == ("64 128 192", "1 2 3 4")


def orders_of(models: Models, axis: str, unit: str) -> list[float]:
    """|Σ over units of the mean rho| for every way to reorder the levels within units, the found one first."""
    units = []
    for _, of_unit in models.frame.groupby(unit):
        levels = sorted(of_unit[axis].unique())
        sums = []
        for order in permutations(levels):
            renamed = of_unit.assign(**{axis: of_unit[axis].map(dict(zip(levels, order, strict=True)))})
            groups = [group for _, group in renamed.groupby("weight_decay")]
            sums.append(np.mean([spearmanr(group[axis], group["cdnv"]).statistic for group in groups]))
        units.append(sums)
    return [abs(sum(chosen)) for chosen in product(*units)]


def test_p_is_the_share_of_all_orders_of_the_levels_within_units() -> None:
    models = grid()
    row = row_of(trends(models), "width", "cdnv")
    sums = orders_of(models, "width", "depth")
    assert len(sums) == 6**4
    assert row.p == pytest.approx(np.mean([value >= sums[0] * (1 - 1e-9) for value in sums]))
    assert row.verdict_code is Verdict.AS_PREDICTED


def test_drawn_orders_give_the_p_of_all() -> None:
    complete, drawn = (row_of(trends(grid(), permutations=n), "width", "cdnv").p for n in (9999, 1200))
    assert complete is not None
    assert drawn == pytest.approx(complete, abs=4 * (complete / 1200) ** 0.5)


def test_the_corrected_p_is_that_of_the_largest_of_the_family() -> None:
    """Seven widths, each with its sign: a metric that agrees in all, one that does in six of seven, one in four."""
    signs = {"cdnv_k2": [1] * 7, "agreement": [1] * 6 + [-1], "lognorm_cv": [1, -1, 1, -1, 1, -1, 1]}
    runs = [run_of(f"{w}-{d}", width=w, weight_decay=d, val_loss=1.0) for w in range(1, 8) for d in (0.0, 0.1)]
    values = {name: [sign * of_run["weight_decay"] for of_run, sign in zip(runs, np.repeat(s, 2), strict=True)]
              for name, s in signs.items()}  # fmt: skip
    rows = {row.metric: row for row in trends(table(runs, values)) if row.axis == "weight_decay"}
    flips = np.array(list(product((1, -1), repeat=7)))
    sizes = {name: np.abs(flips @ np.array(s)) for name, s in signs.items()}
    assert rows["cdnv_k2"].p == (sizes["cdnv_k2"] >= 7).mean() == 2 / 128
    largest = np.max(list(sizes.values()), axis=0)
    assert rows["cdnv_k2"].p_corrected == (largest >= 7).mean() == 6 / 128
    rest = np.maximum(sizes["agreement"], sizes["lognorm_cv"])
    assert rows["agreement"].p_corrected == (rest >= 5).mean()
    assert rows["cdnv_k2"].verdict_code is Verdict.OPPOSITE
    assert rows["agreement"].verdict_code is Verdict.NOT_SHOWN


def test_units_that_disagree_show_nothing_however_small_p_is() -> None:
    """Along many levels one depth of five goes the other way: the sum is far from chance, and no direction is shown."""
    runs = [run_of(f"{d}{w}", depth=d, width=w, val_loss=1.0) for d in range(1, 6) for w in range(1, 13)]
    values = [run["width"] * (-1 if run["depth"] == 3 else 1) for run in runs]
    row = row_of(trends(table(runs, {"cdnv": values})), "width", "cdnv")
    assert (row.rises, row.falls) == (4, 1)
    assert row.p is not None
    assert row.p < 0.05
    assert row.verdict_code is Verdict.NOT_SHOWN


def test_the_paper_s_metrics_and_the_outcome_are_corrected_apart_from_what_explores() -> None:
    runs = [run_of(f"{d}{w}", depth=d, width=w, val_loss=1 / w) for d in range(8) for w in (1, 2)]
    rng = np.random.default_rng(1)
    falling = [-run["width"] for run in runs]
    noise = {metric: rng.random(16).tolist() for metric in ("norm_cv", "etf_error", "head_sum")}
    rows = trends(table(runs, {"cdnv_k2": falling, "agreement": falling, "cdnv": falling, **noise}))
    along = {row.metric: row for row in rows if row.axis == "width"}
    assert {name: row.family for name, row in along.items()} == {
        "cdnv_k2": "paper", "agreement": "paper", "val_loss": "paper",
        "cdnv": "exploration", "norm_cv": "exploration", "etf_error": "exploration", "head_sum": "exploration",
    }  # fmt: skip
    assert along["cdnv_k2"].p_corrected == along["cdnv_k2"].p == 2 / 2**8, "the three of its family move as one"
    assert (along["cdnv"].p_corrected or 0) > 2 / 2**8


def test_regularisation_is_compared_in_pairs_that_count_once_for_each_width() -> None:
    row = row_of(trends(grid()), "weight_decay", "cdnv")
    assert (row.groups, row.falls, row.rises) == (3, 3, 0)
    assert row.median_effect == pytest.approx(-0.1)
    assert row.levels == "0 0.1"
    assert (row.p, row.why) == (None, "3 widths are too few: no p could be below 0.25.")


def test_of_a_run_s_checkpoints_the_last_alone_is_in_a_pair() -> None:
    runs = [
        run_of(f"{w}-{d}", width=w, weight_decay=d, checkpoint=str(e), epoch=float(e), epochs=2.0, val_loss=1.0)
        for w in range(1, 9) for d in (0.0, 0.1) for e in (1, 2)
    ]  # fmt: skip
    rows = trends(table(runs, {"cdnv": [run["weight_decay"] * (3 - 2 * run["epoch"]) for run in runs]}))
    pairs = [row for row in rows if (row.axis, row.metric) == ("weight_decay", "cdnv")]
    assert [(str(row.where), row.groups, row.falls) for row in pairs] == [("epoch=2", 8, 8)]


def test_the_outcome_is_better_or_worse_and_never_collapsed() -> None:
    runs = [run_of(f"{d}{w}", depth=d, width=w, val_loss=9.0 - d) for d in (1, 2) for w in range(1, 9)]
    rows = trends(table(runs, {"agreement": [run["depth"] / 10 for run in runs]}))
    assert row_of(rows, "depth", "val_loss").verdict_code is Verdict.AS_PREDICTED
    assert row_of(rows, "depth", "agreement").verdict_code is Verdict.AS_PREDICTED


def test_a_metric_without_a_direction_only_rises_or_falls() -> None:
    runs = [run_of(f"{d}{w}", depth=d, width=w, val_loss=9.0) for d in (1, 2) for w in range(1, 9)]
    row = row_of(trends(table(runs, {"effective_rank": [run["depth"] for run in runs]})), "depth", "effective_rank")
    assert (row.toward, row.share_toward) == (None, None)
    assert row.verdict_code is Verdict.NO_DIRECTION


def test_seeds_are_averaged_and_not_counted_as_evidence() -> None:
    runs = [run_of(f"{w}{s}", width=w, seed=s, val_loss=1.0) for w in (64, 128) for s in range(9)]
    row = row_of(trends(table(runs, {"cdnv": [run["width"] + run["seed"] for run in runs]})), "width", "cdnv")
    assert (row.groups, row.rises, row.p, row.verdict) == (1, 1, None, None)
    assert row.why == "1 depth is too few: no p could be below 1."


def test_length_of_training_and_checkpoints_of_a_run_are_two_axes() -> None:
    runs = [
        run_of(f"e{epochs}", checkpoint=str(e), epochs=float(epochs), epoch=float(e), val_loss=5.0 - e)
        for epochs, e in [(1, 0), (1, 1), (4, 0), (4, 2), (4, 4)]
    ]  # fmt: skip
    rows = trends(table(runs, {"cdnv": [9, 5, 9, 6, 2]}))
    longer, checkpoints = row_of(rows, "epochs", "cdnv"), row_of(rows, "epoch", "cdnv")
    assert (longer.groups, longer.falls, longer.levels) == (1, 1, "1 4")
    assert (checkpoints.groups, checkpoints.falls, checkpoints.levels) == (1, 1, "0 1 2 4")


def test_a_run_that_ends_with_a_whole_step_has_its_length() -> None:
    runs = [
        run_of(f"e{epochs}", checkpoint=str(epochs), epochs=float(epochs), epoch=epochs * 0.999969, val_loss=5.0)
        for epochs in (1, 3, 10)
    ]
    assert row_of(trends(table(runs, {"cdnv": [9, 5, 2]})), "epochs", "cdnv").levels == "1 3 10"


def test_an_axis_that_does_not_vary_is_not_there() -> None:
    runs = [run_of(f"{w}", width=w, val_loss=1.0 + w) for w in (1, 2, 3)]
    assert {row.axis for row in trends(table(runs, {"cdnv": [1, 2, 3]}))} == {"width"}


def test_missing_values_shorten_their_group_alone() -> None:
    runs = [run_of(f"{d}{w}", depth=d, width=w, val_loss=1.0 + w) for d in (1, 2) for w in (1, 2, 3)]
    rows = trends(table(runs, {"cdnv": [3, None, 1, 3, None, None]}))
    assert (row_of(rows, "width", "cdnv").groups, row_of(rows, "width", "cdnv").falls) == (1, 1)
    assert row_of(rows, "width", "val_loss").groups == 2


def test_a_metric_that_is_nowhere_known_along_an_axis_has_a_reason() -> None:
    runs = [run_of(f"{w}", width=w, val_loss=1.0 + w) for w in (1, 2)]
    row = row_of(trends(table(runs, {"cdnv": [3, None]})), "width", "cdnv")
    assert (row.why, row.p, row.verdict) == ("no two models differ in this alone.", None, None)


def test_ranks_do_not_care_for_the_scale_of_a_metric() -> None:
    rng = np.random.default_rng(0)
    runs = [run_of(f"{d}{w}", depth=d, width=w, val_loss=1.0) for d in (1, 2, 3) for w in range(1, 5)]
    values = rng.random(12) + 0.1
    raw, cubed = (row_of(trends(table(runs, {"cdnv": list(v)})), "width", "cdnv") for v in (values, values**3))
    assert replace(raw, median_effect=None) == replace(cubed, median_effect=None)


def test_a_run_that_stopped_early_is_no_run_of_its_length() -> None:
    runs = [
        run_of(f"{e}", checkpoint=str(at), epochs=float(e), epoch=float(at), val_loss=1.0)
        for e, at in [(1, 1), (3, 3), (10, 2)]
    ]
    row = row_of(trends(table(runs, {"cdnv": [3, 2, 9]})), "epochs", "cdnv")
    assert (row.levels, row.falls) == ("1 3", 1)
