from collections.abc import Callable
from dataclasses import replace
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest
from scipy.stats import rankdata, spearmanr

from analysis.planted import run_of, table
from collapselab.analysis import trends as trends_module
from collapselab.analysis.models import Models
from collapselab.analysis.trends import Group, Trend, permute_levels, trends
from collapselab.analysis.verdict import Cause, Verdict


def row_of(rows: list[Trend], axis: str, metric: str, where: str = "") -> Trend:
    return next(row for row in rows if (row.axis, row.metric, str(row.where or "")) == (axis, metric, where))


def grid(metric: str = "cdnv", widths: int = 3) -> Models:
    """The metric falls with width in 7 of 8 groups, rises with depth in all, and strong decay lowers it in 9 of 12
    pairs; the others are of depth 4."""
    runs, values = [], []
    for depth in (1, 2, 3, 4):
        for decay in (0.0, 0.1):
            for w in range(1, widths + 1):
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
    assert (width.groups, width.rises, width.falls, width.groups_toward) == (4, 0, 3, 3)
    assert (depth.groups, depth.rises, depth.falls, depth.groups_toward) == (3, 3, 0, 0)
    assert width.median_rho == -1
    assert depth.median_rho == 1
    assert width.median_effect == -2
    assert depth.median_effect == pytest.approx(15 + (0 + 2 + 4 + 6) / 6 - 1, abs=2)
    assert (width.levels, depth.levels) == ("64 128 192", "1 2 3 4")


def orders_of(models: Models, axis: str, unit: str) -> list[float]:
    """|Σ over units of the mean rho| for every order of the levels, the same in all units; the found one first."""
    levels = sorted(models.frame[axis].unique())
    sums = []
    for order in permutations(levels):
        renamed = models.frame.assign(**{axis: models.frame[axis].map(dict(zip(levels, order, strict=True)))})
        rhos = [
            np.mean([spearmanr(group[axis], group["cdnv"]).statistic for _, group in of_unit.groupby("weight_decay")])
            for _, of_unit in renamed.groupby(unit)
        ]
        sums.append(abs(sum(rhos)))
    return sums


def holed() -> Models:
    """Five widths, of which one depth lacks the second and another the last two."""
    models = grid(widths=5)
    lost = [(2, 128), (3, 256), (3, 320)]
    pairs = zip(models.frame["depth"], models.frame["width"], strict=True)
    return replace(models, frame=models.frame[[pair not in lost for pair in pairs]].reset_index(drop=True))


@pytest.mark.slow
@pytest.mark.parametrize("models", [grid(widths=5), holed()])
def test_p_is_the_share_of_the_orders_of_the_levels_one_for_all_units(models: Models) -> None:
    row = row_of(trends(models, permutations=99), "width", "cdnv")  # few orders are enumerated, never drawn
    sums = orders_of(models, "width", "depth")
    assert len(sums) == 120
    assert row.p == pytest.approx(np.mean([value >= sums[0] * (1 - 1e-9) for value in sums]))
    assert row.p < 0.05


def test_drawn_orders_give_the_p_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    complete = row_of(trends(grid(widths=5)), "width", "cdnv").p
    monkeypatch.setattr(trends_module, "MAX_ORDERS", 1)
    drawn = row_of(trends(grid(widths=5), permutations=4_999), "width", "cdnv").p
    assert complete is not None
    assert drawn == pytest.approx(complete, abs=4 * (complete / 4_999) ** 0.5)


@pytest.mark.parametrize(("levels", "told"), [(4, False), (5, True)])
def test_the_number_of_levels_decides_whether_anything_can_be_shown(levels: int, told: bool) -> None:
    """Thirty units in perfect agreement are no help: 4 levels have 24 orders, and two of them fit."""
    runs = [run_of(f"{d}{w}", depth=d, width=w, val_loss=1 / w) for d in range(30) for w in range(1, levels + 1)]
    row = row_of(trends(table(runs, {"cdnv": [run["val_loss"] for run in runs]})), "width", "val_loss")
    assert (row.groups, row.falls) == (30, 30)
    assert row.p == (2 / 120 if told else None)
    assert row.verdict is (Verdict.AS_PREDICTED if told else Verdict.TOO_FEW)
    assert told or (row.why_code is Cause.TOO_FEW and "5 " in (row.why or ""))


def test_levels_that_no_two_units_share_have_the_orders_of_each_unit_alone() -> None:
    """Two depths of three widths each, none in common: 6 × 6 orders of the 720 differ, and 2 × 20 are the best."""
    runs = [run_of(f"{w}", depth=1 + w // 3, width=w, val_loss=1.0 + w) for w in range(6)]
    row = row_of(trends(table(runs, {"cdnv": [1.0 + w for w in range(6)]})), "width", "cdnv")
    assert (row.groups, row.p) == (2, None)
    assert "5 that units share" in (row.why or "")


def odd_levels(rng: np.random.Generator) -> list[Group]:
    """Eight metrics of six widths in five depths; half of their variance is a width's, alike in all depths."""
    values = np.sqrt(0.5) * rng.standard_normal((6, 8)) + np.sqrt(0.5) * rng.standard_normal((5, 6, 8))
    return [Group(np.arange(6), of_depth) for of_depth in values]


def apart(units: list[Group], rng: np.random.Generator) -> bool:
    """Whether any of eight is significant where every unit has an order of its own, corrected by the largest."""
    ranks = np.array([rankdata(unit.values, axis=0) - 3.5 for unit in units])
    observed = np.abs(np.einsum("l,ulm->m", np.arange(6) - 2.5, ranks)).max()
    orders = np.argsort(rng.random((199, 5, 6)), axis=2) - 2.5
    null = np.abs(np.einsum("oul,ulm->om", orders, ranks)).max(axis=1)
    return bool((1 + (null >= observed).sum()) / 200 < 0.05)


@pytest.mark.slow
def test_a_level_that_is_odd_in_all_units_is_one_piece_of_evidence() -> None:
    """Where nothing follows the axis, one order for all units is wrong in 5 % of tables, an order for each in half."""
    tables, families = 200, np.zeros(8, dtype=np.intp)
    wrong = {"jointly": 0, "apart": 0}
    for number in range(tables):
        rng = np.random.default_rng([3, number])
        units = odd_levels(rng)
        test = permute_levels([[unit] for unit in units], families=families, permutations=99, seed=number)
        wrong["jointly"] += bool((test.corrected < 0.05).any())
        wrong["apart"] += apart(units, rng)
    assert 2 <= wrong["jointly"] <= 20, wrong  # 10 expected; binomial probability outside 0.1 %
    assert wrong["apart"] > 80, wrong


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
    assert rows["cdnv_k2"].verdict is Verdict.OPPOSITE
    assert rows["agreement"].verdict is Verdict.NOT_SHOWN


def test_units_that_disagree_show_nothing_however_small_p_is() -> None:
    """Along many levels one depth of five goes the other way: the sum is far from chance, and no direction is shown."""
    runs = [run_of(f"{d}{w}", depth=d, width=w, val_loss=1.0) for d in range(1, 6) for w in range(1, 13)]
    values = [run["width"] * (-1 if run["depth"] == 3 else 1) for run in runs]
    row = row_of(trends(table(runs, {"cdnv": values})), "width", "cdnv")
    assert (row.rises, row.falls) == (4, 1)
    assert row.p is not None
    assert row.p < 0.05
    assert row.verdict is Verdict.NOT_SHOWN


def test_the_paper_s_metrics_and_the_outcome_are_corrected_apart_from_what_explores() -> None:
    runs = [run_of(f"{d}{w}", depth=d, width=w, val_loss=1 / w) for d in range(2) for w in range(1, 6)]
    rng = np.random.default_rng(1)
    falling = [-run["width"] for run in runs]
    noise = {metric: (rng.permutation(5) % 4).tolist() * 2 for metric in ("norm_cv", "etf_error", "head_sum")}
    rows = trends(table(runs, {"cdnv_k2": falling, "agreement": falling, "cdnv": falling, **noise}))
    along = {row.metric: row for row in rows if row.axis == "width"}
    assert {name: row.family for name, row in along.items()} == {
        "cdnv_k2": "paper", "agreement": "paper", "val_loss": "paper",
        "cdnv": "exploration", "norm_cv": "exploration", "etf_error": "exploration", "head_sum": "exploration",
    }  # fmt: skip
    assert along["cdnv_k2"].p_corrected == along["cdnv_k2"].p == 2 / 120, "the three of its family move as one"
    assert along["cdnv"].p == 2 / 120
    assert any((along[name].p_corrected or 0) > (along[name].p or 0) for name in noise)


def test_regularisation_is_compared_in_pairs_that_count_once_for_each_width() -> None:
    row = row_of(trends(grid()), "weight_decay", "cdnv")
    assert (row.groups, row.falls, row.rises) == (3, 3, 0)
    assert row.median_effect == pytest.approx(-0.1)
    assert row.levels == "0 0.1"
    assert (row.p, row.why_code) == (None, Cause.TOO_FEW)
    assert "6 needed, 3 found" in (row.why or "")


def test_of_a_run_s_checkpoints_the_last_alone_is_in_a_pair() -> None:
    runs = [
        run_of(f"{w}-{d}", width=w, weight_decay=d, checkpoint=str(e), epoch=float(e), epochs=2.0, val_loss=1.0)
        for w in range(1, 9) for d in (0.0, 0.1) for e in (1, 2)
    ]  # fmt: skip
    rows = trends(table(runs, {"cdnv": [run["weight_decay"] * (3 - 2 * run["epoch"]) for run in runs]}))
    pairs = [row for row in rows if (row.axis, row.metric) == ("weight_decay", "cdnv")]
    assert [(str(row.where), row.groups, row.falls) for row in pairs] == [("epoch=2", 8, 8)]


def test_the_outcome_is_better_or_worse_and_never_collapsed() -> None:
    runs = [run_of(f"{d}{w}", depth=d, width=w, val_loss=9.0 - d) for d in range(1, 6) for w in (1, 2)]
    rows = trends(table(runs, {"agreement": [run["depth"] / 10 for run in runs]}))
    assert row_of(rows, "depth", "val_loss").verdict is Verdict.AS_PREDICTED
    assert row_of(rows, "depth", "agreement").verdict is Verdict.AS_PREDICTED


def test_a_metric_without_a_direction_only_rises_or_falls() -> None:
    runs = [run_of(f"{d}{w}", depth=d, width=w, val_loss=9.0) for d in range(1, 6) for w in (1, 2)]
    row = row_of(trends(table(runs, {"effective_rank": [run["depth"] for run in runs]})), "depth", "effective_rank")
    assert row.toward is None
    assert row.verdict is Verdict.NO_DIRECTION


def test_seeds_are_averaged_and_not_counted_as_evidence() -> None:
    runs = [run_of(f"{w}{s}", width=w, seed=s, val_loss=1.0) for w in (64, 128) for s in range(9)]
    row = row_of(trends(table(runs, {"cdnv": [run["width"] + run["seed"] for run in runs]})), "width", "cdnv")
    assert (row.groups, row.rises, row.p, row.verdict) == (1, 1, None, Verdict.TOO_FEW)
    assert row.why_code is Cause.TOO_FEW


def test_length_of_training_and_checkpoints_of_a_run_are_two_axes() -> None:
    runs = [
        run_of(f"e{epochs}", checkpoint=str(e), epochs=float(epochs), epoch=float(e), val_loss=5.0 - e)
        for epochs, e in [(1, 0), (1, 1), (4, 0), (4, 2), (4, 4)]
    ]  # fmt: skip
    rows = trends(table(runs, {"cdnv": [9, 5, 9, 6, 2]}))
    assert row_of(rows, "epoch", "cdnv").verdict is Verdict.DESCRIPTION, "one data order"
    longer, checkpoints = row_of(rows, "epochs", "cdnv"), row_of(rows, "epoch", "cdnv")
    assert (longer.groups, longer.falls, longer.levels) == (1, 1, "1 4")
    assert (checkpoints.groups, checkpoints.falls, checkpoints.levels) == (1, 1, "0 1 2 4")


@pytest.mark.parametrize(
    ("settings", "orders"),
    [
        (lambda i: {"seed": i}, 8),  # the data order follows from the seed
        (lambda i: {"seed": i, "data_seed": None}, 8),
        (lambda i: {"seed": i, "data_seed": 5}, 1),
        (lambda i: {"seed": 0, "data_seed": i}, 8),
        (lambda i: {"seed": 0, "data_seed": i % 2, "corpus": f"text {i // 4}"}, 4),
        (lambda i: {"seed": None}, 1),
    ],
)
def test_checkpoints_of_runs_that_share_a_data_order_are_one_unit(
    settings: Callable[[int], dict[str, Any]], orders: int
) -> None:
    runs = [
        run_of(f"{w}", width=w, checkpoint=str(e), epoch=float(e), epochs=2.0, val_loss=3.0 - e, **settings(i))
        for i, w in enumerate(range(8, 16)) for e in (0, 1, 2)
    ]  # fmt: skip
    row = row_of(trends(table(runs, {"cdnv": [3 - run["epoch"] for run in runs]})), "epoch", "cdnv")
    assert (row.groups, row.falls) == (orders, orders)
    verdicts = {1: Verdict.DESCRIPTION, 4: Verdict.TOO_FEW, 8: Verdict.AS_PREDICTED}
    assert (row.verdict, row.p) == (verdicts[orders], 2 / 2**8 if orders == 8 else None)


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
    assert (row.why, row.p, row.verdict) == ("no two models differ in this alone.", None, Verdict.TOO_FEW)


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
