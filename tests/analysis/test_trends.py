import numpy as np
import pytest

from analysis.planted import run_of, table
from collapselab.analysis.models import Models
from collapselab.analysis.trends import Trend, trends
from collapselab.analysis.verdict import Verdict


def row_of(rows: list[Trend], axis: str, metric: str, where: str = "") -> Trend:
    return next(row for row in rows if (row.axis, row.metric, str(row.where or "")) == (axis, metric, where))


def grid(metric: str = "cdnv") -> Models:
    """The metric falls with width in 7 of 8 groups, rises with depth in all, and strong decay lowers it in 9 of 12."""
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


def test_the_way_along_each_axis_is_counted() -> None:
    rows = trends(grid())
    width, depth = row_of(rows, "width", "cdnv"), row_of(rows, "depth", "cdnv")
    assert (width.groups, width.falls, width.rises, width.share_toward) == (8, 7, 1, 7 / 8)
    assert (depth.groups, depth.rises, depth.falls, depth.share_toward) == (6, 6, 0, 0.0)
    assert width.median_rho == -1
    assert depth.median_rho == 1
    assert (width.levels, depth.levels) == ("64 128 192", "1 2 3 4")


def test_the_sign_test_is_the_binomial_one() -> None:
    width = row_of(trends(grid()), "width", "cdnv")
    assert width.p_sign == pytest.approx(2 * (1 + 8) / 2**8)  # 0 or 1 of 8 the other way, both tails
    assert width.verdict_code is Verdict.NOT_SHOWN
    depth = row_of(trends(grid()), "depth", "cdnv")
    assert depth.p_sign == pytest.approx(2 / 2**6)


def test_the_paper_s_metrics_and_the_outcome_are_corrected_apart_from_what_explores() -> None:
    runs = [run_of(f"{d}{w}", depth=d, width=w, val_loss=1 / w) for d in range(8) for w in (1, 2)]
    values = [-run["width"] for run in runs]
    rows = trends(table(runs, dict.fromkeys(("cdnv_k2", "agreement", "cdnv", "norm_cv", "etf_error"), values)))
    families = {row.metric: (row.family, row.p_holm) for row in rows if row.axis == "width"}
    p = 2 / 2**8
    assert families == {
        "cdnv_k2": ("paper", 3 * p), "agreement": ("paper", 3 * p), "val_loss": ("paper", 3 * p),
        "cdnv": ("exploration", 3 * p), "norm_cv": ("exploration", 3 * p), "etf_error": ("exploration", 3 * p),
    }  # fmt: skip


def test_regularisation_is_compared_in_pairs() -> None:
    row = row_of(trends(grid()), "weight_decay", "cdnv")
    assert (row.groups, row.falls, row.rises) == (12, 9, 3)
    assert row.median_effect == pytest.approx(-0.1)
    assert row.levels == "0 0.1"
    same = row_of(trends(grid()), "weight_decay", "val_loss")
    assert (same.unchanged, same.p_sign, same.verdict_code) == (12, 1.0, Verdict.NOT_SHOWN)


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
    assert (row.groups, row.rises, row.p_sign, row.verdict) == (1, 1, None, None)
    assert row.why == "1 group, even if all go one way, cannot be below 5 % after the correction over 1 test."


def test_length_of_training_and_checkpoints_of_a_run_are_two_axes() -> None:
    runs = [
        run_of(f"e{epochs}", checkpoint=str(e), epochs=float(epochs), epoch=float(e), val_loss=5.0 - e)
        for epochs, e in [(1, 0), (1, 1), (4, 0), (4, 2), (4, 4)]
    ]  # fmt: skip
    rows = trends(table(runs, {"cdnv": [9, 5, 9, 6, 2]}))
    longer, checkpoints = row_of(rows, "epochs", "cdnv"), row_of(rows, "epoch", "cdnv")
    assert (longer.groups, longer.falls, longer.levels) == (1, 1, "1 4")
    assert (checkpoints.groups, checkpoints.falls, checkpoints.levels) == (2, 2, "0 1 2 4")


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
    assert (row.why, row.p_sign, row.verdict) == ("no two models differ in this alone.", None, None)


def test_ranks_do_not_care_for_the_scale_of_a_metric() -> None:
    rng = np.random.default_rng(0)
    runs = [run_of(f"{d}{w}", depth=d, width=w, val_loss=1.0) for d in (1, 2, 3) for w in range(1, 5)]
    values = rng.random(12) + 0.1
    raw, log = (row_of(trends(table(runs, {"cdnv": list(v)})), "width", "cdnv") for v in (values, np.log(values)))
    assert raw == log


def test_a_run_that_stopped_early_is_no_run_of_its_length() -> None:
    runs = [
        run_of(f"{e}", checkpoint=str(at), epochs=float(e), epoch=float(at), val_loss=1.0)
        for e, at in [(1, 1), (3, 3), (10, 2)]
    ]
    row = row_of(trends(table(runs, {"cdnv": [3, 2, 9]})), "epochs", "cdnv")
    assert (row.levels, row.falls) == ("1 3", 1)
