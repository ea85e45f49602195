from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import pearsonr

from analysis.planted import run_of, table
from collapselab.analysis.controls import ROUGH, Control, controls
from collapselab.analysis.models import Models
from collapselab.analysis.verdict import Verdict


@pytest.mark.parametrize(
    ("values", "why"),
    [([1.0, 2.0], "too few models: 4 needed, 2 found."), ([3.0] * 6, "agreement is the same in all 6 models.")],
)
def test_bad_tables_end_in_reasons(values: list[float], why: str) -> None:
    runs = [run_of(f"{i}", seed=i, width=64 * (i + 1), val_loss=1.0 + i) for i in range(len(values))]
    (row,) = controls(table(runs, {"agreement": values}))
    assert (row.why, row.partial_r, row.verdict) == (why, None, Verdict.TOO_FEW)


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


@pytest.mark.slow
def test_a_smooth_function_of_scale_is_not_taken_for_more_and_what_is_more_is_found() -> None:
    """60 tables without an effect: a plain correlation calls most of them significant, the joint test hardly any."""
    rng, models = np.random.default_rng(0), scales()
    joint = dict.fromkeys((0.0, 0.8), 0)
    naive = 0
    for number in range(60):
        for effect in joint:
            drawn_models = bent(rng, models, effect=effect)
            (row,) = controls(drawn_models, permutations=199, seed=number)
            joint[effect] += row.verdict is Verdict.AS_PREDICTED or row.verdict is Verdict.OPPOSITE
            if not effect:
                naive += pearsonr(drawn_models.frame["agreement"], drawn_models.frame["val_loss"]).pvalue < 0.05
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
        (row,) = controls(
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
    (row,) = controls(replace(models, frame=frame), permutations=199, seed=0)
    assert row.verdict is Verdict.NOT_SHOWN
    assert abs(row.partial_r or 0) < 0.5


def test_the_joint_test_needs_architectures_beyond_the_smooth_function() -> None:
    (row,) = controls(bent(np.random.default_rng(0), scales(widths=6, depths=2), effect=0.9), permutations=99, seed=0)
    assert (row.verdict, row.p) == (Verdict.TOO_FEW, None)
    assert row.why == "too few architectures in one regime: 15 needed, 12 found."


def test_a_metric_that_scale_determines_has_a_reason() -> None:
    models = scales()
    frame = models.frame.assign(val_loss=np.random.default_rng(0).random(90), agreement=np.log(models.frame["width"]))
    (row,) = controls(replace(models, frame=frame), permutations=99, seed=0)
    assert row.why == "a smooth function of scale and regime determines the metric entirely."
