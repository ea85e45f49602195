from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf

from analysis.planted import drawn, run_of, seeds_study, table
from collapselab.analysis.controls import (
    JOINT,
    SEEDS,
    SPECIFICATIONS,
    Control,
    controls,
    joint_tests,
    least_squares,
    sentences,
)
from collapselab.analysis.models import Models
from collapselab.analysis.multiverse import ROUGH
from collapselab.analysis.relate import relate
from collapselab.analysis.subsets import WITHIN
from collapselab.analysis.verdict import Verdict

CELLS = "architecture and regime"


def all_of(models: Models) -> list[Control]:
    return controls(models, relate(models, permutations=199))


def row_of(rows: list[Control], name: str, metric: str = "agreement") -> Control:
    return next(row for row in rows if (row.controls, row.metric, row.transform) == (name, metric, "raw"))


def grid(rng: np.random.Generator, *, effect: float = 0.0, noise: float = 0.05) -> Models:
    """12 architectures × 2 decays × 2 seeds. Scale drives metric and loss; the metric acts on the loss by `effect`."""
    runs, values = [], []
    for w in range(6):
        for depth in (1, 2):
            for decay in (0.0, 0.1):
                for seed in (0, 1):
                    own = rng.standard_normal()
                    metric = 2 + 0.3 * w + 0.2 * depth + 0.1 * own
                    loss = 4 - 0.3 * w - 0.1 * depth + decay - effect * own + noise * rng.standard_normal()
                    values.append(metric)
                    runs.append(run_of(
                        f"{w}-{depth}-{decay}-{seed}", width=64 * 2**w, depth=depth, weight_decay=decay, seed=len(runs),
                        parameters=int(1000 * 4**w * depth), train_loss=loss - 0.1 * rng.random(), val_loss=loss,
                    ))  # fmt: skip
    return table(runs, {"agreement": values})


MODELS = grid(np.random.default_rng(0), effect=0.1)
FORMULAS = {
    "nothing": "val_loss ~ agreement",
    "log parameters": "val_loss ~ agreement + np.log(parameters)",
    "width, depth and regime as factors": "val_loss ~ agreement + C(width) + C(depth) + C(weight_decay)",
    CELLS: "val_loss ~ agreement + C(width) * C(depth) + C(weight_decay)",
    "architecture, regime and their interactions": "val_loss ~ agreement + C(width) * C(depth) + C(weight_decay) * (C(width) + C(depth))",
    "training loss": "val_loss ~ agreement + train_loss",
}


@pytest.fixture(scope="module")
def rows() -> list[Control]:
    return all_of(MODELS)


def test_every_specification_has_a_formula_here() -> None:
    assert list(FORMULAS) == list(SPECIFICATIONS)


@pytest.mark.parametrize("name", FORMULAS)
def test_partial_correlations_are_those_of_the_whole_regression(rows: list[Control], name: str) -> None:
    row = row_of(rows, name)
    frame = MODELS.trained
    fit = smf.ols(FORMULAS[name], frame).fit()
    t = fit.tvalues["agreement"]
    assert row.partial_r == pytest.approx(t / np.sqrt(t**2 + fit.df_resid), rel=1e-8)
    assert row.p == pytest.approx(fit.pvalues["agreement"], rel=1e-6)
    assert row.freedom == fit.df_resid
    without = smf.ols(FORMULAS[name].replace("agreement + ", "").replace("~ agreement", "~ 1"), frame).fit()
    assert row.r2_controls == pytest.approx(without.rsquared, abs=1e-10)
    assert row.r2_added == pytest.approx(fit.rsquared - without.rsquared, rel=1e-6)
    groups = pd.factorize(frame["architecture"])[0]
    robust = smf.ols(FORMULAS[name], frame).fit(cov_type="cluster", cov_kwds={"groups": groups}, use_t=True)
    # of the size of the usual one (CR1), which counts controls and clusters otherwise; test_intervals.py has it exactly
    assert abs(np.log10(robust.pvalues["agreement"] / (row.p_clustered or 1))) < 1.5
    assert row.verdict is Verdict.DESCRIPTION


def test_between_models_and_among_seeds_stand_side_by_side() -> None:
    relations = relate(MODELS, permutations=199)
    rows = controls(MODELS, relations)
    seeds = row_of(rows, SEEDS)
    within = next(row for row in relations if row.subset == WITHIN)
    assert (seeds.comparison, seeds.partial_r, seeds.p, seeds.n) == (WITHIN, within.r, within.p_permutation, within.n)
    assert {row.comparison for row in rows} == {WITHIN, "between models"}


def test_an_effect_at_fixed_scale_is_seen_beyond_every_control(rows: list[Control]) -> None:
    for name in [CELLS, "architecture, regime and their interactions"]:
        assert (row_of(rows, name).partial_r or 0) < -0.7, name
        assert (row_of(rows, name).verdict, row_of(rows, name).goes) == (Verdict.DESCRIPTION, "with")
    assert (row_of(rows, SEEDS).partial_r or 0) < -0.7
    assert row_of(rows, SEEDS).verdict is Verdict.AS_PREDICTED


def test_what_scale_alone_makes_vanishes_beyond_architecture_and_regime() -> None:
    rng = np.random.default_rng(3)
    found = []
    for _ in range(40):
        models = grid(rng)
        rows = least_squares(models)
        assert abs(row_of(rows, "nothing").partial_r or 0) > 0.8
        found.append((row_of(rows, CELLS).p or 1) < 0.05)
    assert np.mean(found) <= 0.15  # 5 %; six of 40 are three standard errors above


def test_what_the_controls_determine_has_a_reason() -> None:
    runs = [run_of(f"{w}{s}", width=w, seed=s, val_loss=1 + s / w) for w in (1, 2, 3) for s in range(3)]
    rows = all_of(table(runs, {"agreement": [run["width"] / 10 for run in runs]}))
    assert row_of(rows, CELLS).why == "the controls determine the metric entirely."
    assert row_of(rows, SEEDS).why == "agreement is the same in all 9 models within every cell."
    assert row_of(rows, CELLS).p is None


def test_a_training_loss_that_is_missing_is_a_reason() -> None:
    rows = all_of(drawn(seeds_study(cells=3, seeds=4), np.random.default_rng(0), slope=0))
    assert row_of(rows, "training loss").why == "train_loss is missing for 12 of 12 models."


@pytest.mark.parametrize(
    ("values", "why"),
    [([1.0, 2.0], "too few models: 4 needed, 2 found."), ([3.0] * 6, "agreement is the same in all 6 models.")],
)
def test_bad_tables_end_in_reasons(values: list[float], why: str) -> None:
    runs = [run_of(f"{i}", seed=i, width=64 * (i + 1), val_loss=1.0 + i) for i in range(len(values))]
    rows = all_of(table(runs, {"agreement": values}))
    assert {row.why for row in rows if row.controls != SEEDS} == {why}
    assert all(row.partial_r is None and row.verdict is Verdict.TOO_FEW for row in rows)


def test_one_specification_is_no_range() -> None:
    runs = [run_of(f"{i}", seed=i, width=64 * (i + 1), val_loss=1.0 + i) for i in range(4)]
    models = table(runs, {"agreement": [1.0, 2.0, 3.5, 4.0]})
    only = [row for row in all_of(models) if row.controls == "nothing"]
    texts = [sentence.text for sentence in sentences(models, only)]
    assert "agreement: partial r +0.98 (beyond nothing) in the only specification, which describes." in texts


def test_models_of_few_architectures_have_no_p_between_models() -> None:
    rows = all_of(drawn(seeds_study(cells=4, seeds=5), np.random.default_rng(0), slope=0.3))
    row = row_of(rows, "nothing")
    assert (row.p, row.p_clustered, row.low, row.high, row.verdict) == (None,) * 4 + (Verdict.DESCRIPTION,)
    assert row_of(rows, JOINT).verdict is Verdict.TOO_FEW
    assert row.why == "too few architectures: 10 needed, 4 found."
    assert row.partial_r is not None
    assert row_of(rows, SEEDS).verdict is not Verdict.TOO_FEW, "among seeds there are enough"


def test_few_models_of_as_many_architectures_have_a_p_from_seven_on() -> None:
    for count in (7, 8):
        runs = [run_of(f"{w}", width=8 * w, val_loss=5 - w / 9 + 0.01 * (w % 3)) for w in range(1, count + 1)]
        row = row_of(all_of(table(runs, {"agreement": [run["width"] for run in runs]})), "nothing")
        assert (row.p is None) == (count == 7)
        if count == 7:
            assert row.why == "too few degrees of freedom: 6 needed, 5 found."


def scales(widths: int = 6, depths: int = 5, regimes: int = 3) -> Models:
    """Architectures by regimes, with nothing in them yet."""
    runs = [
        run_of(f"{w}-{d}-{r}", width=64 * 2**w, depth=2**d, weight_decay=float(r), parameters=4**w * 2**d, val_loss=1.0)
        for w in range(widths) for d in range(depths) for r in range(regimes)
    ]  # fmt: skip
    return table(runs, {"agreement": [1.0] * len(runs)})


def bent(rng: np.random.Generator, models: Models, *, effect: float) -> Models:
    """Metric and loss are two smooth functions of scale, each with chance of architecture and model; `effect` is what of
    the loss' chance the metric carries."""
    frame = models.frame
    w, d = (np.log(frame[name]) / np.log(frame[name].max()) for name in ("width", "depth"))
    codes = pd.factorize(frame["architecture"])[0]
    luck, own = (rng.standard_normal(codes.max() + 1)[codes] + rng.standard_normal(len(codes)) for _ in range(2))
    loss = 2 + np.exp(-3 * w - d + w * d) + 0.02 * luck
    metric = 3 + (w + d) ** 3 + frame["weight_decay"] * w**2 + 0.2 * (np.sqrt(1 - effect**2) * own - effect * luck)
    return replace(models, frame=frame.assign(val_loss=loss, agreement=metric))


def test_a_smooth_function_of_scale_is_not_taken_for_more_and_what_is_more_is_found() -> None:
    """60 tables without an effect: single specifications call most of them significant, the joint test hardly any."""
    rng, models = np.random.default_rng(0), scales()
    joint = dict.fromkeys((0.0, 0.8), 0)
    naive = 0
    for number in range(60):
        for effect in joint:
            drawn_models = bent(rng, models, effect=effect)
            (row,) = joint_tests(drawn_models, permutations=199, seed=number)
            joint[effect] += row.verdict is Verdict.AS_PREDICTED or row.verdict is Verdict.OPPOSITE
            if not effect:
                rows = least_squares(drawn_models)
                naive += max(row_of(rows, "nothing").p or 0, row_of(rows, "nothing").p_clustered or 0) < 0.05
    assert naive > 50
    assert joint[0.0] <= 9  # 5 % of 60 is 3; nine are more than three standard errors above
    assert joint[0.8] >= 50


def test_where_scale_is_rough_in_metric_and_loss_no_test_is_made_and_where_in_one_alone_it_is() -> None:
    """Two rough functions of scale, another in every regime, would be found too often; against noise they are not."""
    rng, models = np.random.default_rng(1), scales()
    w, d, r = (np.unique(models.frame[name], return_inverse=True)[1] for name in ("width", "depth", "weight_decay"))
    kernel = np.exp(-((w[:, None] - w) ** 2 + (d[:, None] - d) ** 2) / 4) * (r[:, None] == r)
    values, vectors = np.linalg.eigh(kernel)
    rough = vectors @ (np.sqrt(np.maximum(values, 0))[:, None] * rng.standard_normal((90, 2)))
    noise = 0.01 * rng.standard_normal((90, 2))

    def joint(metric: np.ndarray, loss: np.ndarray) -> Control:
        (row,) = joint_tests(
            replace(models, frame=models.frame.assign(agreement=5 + metric, val_loss=5 + loss)),
            permutations=199,
            seed=0,
        )
        return row

    both = joint(rough[:, 0] + noise[:, 0], rough[:, 1] + noise[:, 1])
    assert (both.verdict, both.p) == (Verdict.TOO_FEW, None)
    assert both.why == ROUGH
    assert joint(rough[:, 0] + noise[:, 0], 100 * noise[:, 1]).verdict is Verdict.NOT_SHOWN


def test_what_one_specification_lacks_is_not_shown() -> None:
    """Metric and loss share the luck of architectures alone: beyond a level for each of them nothing is left."""
    rng, models = np.random.default_rng(2), scales()
    codes = pd.factorize(models.frame["architecture"])[0]
    luck = rng.standard_normal(30)[codes]
    own = 0.1 * rng.standard_normal((90, 2))
    frame = models.frame.assign(agreement=5 + luck + own[:, 0], val_loss=5 - luck + own[:, 1])
    (row,) = joint_tests(replace(models, frame=frame), permutations=199, seed=0)
    assert row.verdict is Verdict.NOT_SHOWN
    assert abs(row.partial_r or 0) < 0.5


def test_the_joint_test_needs_architectures_beyond_the_smooth_function() -> None:
    (row,) = joint_tests(
        bent(np.random.default_rng(0), scales(widths=6, depths=2), effect=0.9), permutations=99, seed=0
    )
    assert (row.verdict, row.p) == (Verdict.TOO_FEW, None)
    assert row.why == "too few architectures in one regime: 15 needed, 12 found."


def test_a_metric_that_scale_determines_has_a_reason() -> None:
    models = scales()
    frame = models.frame.assign(val_loss=np.random.default_rng(0).random(90), agreement=np.log(models.frame["width"]))
    (row,) = joint_tests(replace(models, frame=frame), permutations=99, seed=0)
    assert row.why == "a smooth function of scale and regime determines the metric entirely."
