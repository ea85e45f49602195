import numpy as np
import pytest
import statsmodels.api as sm  # type: ignore[import-untyped]
from scipy import stats
from scipy.linalg import orth
from scipy.stats import t as student

from collapselab.analysis.resampling import (
    clustered_interval,
    clustered_slope_interval,
    fisher_interval,
    left_out,
    slope_interval,
)

RNG = np.random.default_rng(11)


def test_fishers_interval_and_that_of_the_slope_are_those_of_scipy() -> None:
    x = RNG.standard_normal(21)
    y = x + RNG.standard_normal(21)
    found, theirs = stats.pearsonr(x, y), stats.linregress(x, y)
    low, high = found.confidence_interval(0.95)
    assert fisher_interval(found.statistic, 18) == pytest.approx((low, high), rel=1e-12)
    half = stats.t.isf(0.025, 19) * theirs.stderr
    ends = (theirs.slope - half, theirs.slope + half)
    assert slope_interval(theirs.slope, found.statistic, 19) == pytest.approx(ends, rel=1e-9)


@pytest.mark.parametrize("dummies", [False, True], ids=["a line", "a level for each cluster"])
def test_what_is_left_without_a_cluster_is_that_of_a_new_regression(dummies: bool) -> None:
    clusters = np.repeat(np.arange(8), 4)
    controls = np.column_stack([np.ones(32), RNG.standard_normal(32)])
    if dummies:
        controls = np.column_stack([controls[:, 1], np.eye(8)[clusters]])
    x, y = RNG.standard_normal(32), RNG.standard_normal(32)
    basis = orth(controls)
    found = left_out(x - basis @ (basis.T @ x), y - basis @ (basis.T @ y), basis, clusters)
    assert len(found.slopes) == 8
    for cluster in range(8):
        kept = clusters != cluster
        own = controls[kept][:, np.abs(controls[kept]).sum(0) > 0]
        fit = sm.OLS(y[kept], np.column_stack([x[kept], own])).fit()
        assert found.slopes[cluster] == pytest.approx(fit.params[0], rel=1e-8)
        left_x, left_y = (values[kept] - own @ np.linalg.lstsq(own, values[kept], rcond=None)[0] for values in (x, y))
        r = left_x @ left_y / np.sqrt((left_x @ left_x) * (left_y @ left_y))
        assert found.correlations[cluster] == pytest.approx(r, rel=1e-8)


def test_the_error_of_clusters_of_one_is_the_jackknife_of_statsmodels() -> None:
    x = RNG.standard_normal(15)
    y = 0.5 * x + RNG.standard_normal(15) * (1 + np.abs(x))
    ones = np.full((15, 1), 1 / np.sqrt(15))
    slopes = left_out(x - x.mean(), y - y.mean(), ones, np.arange(15)).slopes
    fit = sm.OLS(y, sm.add_constant(x)).fit()
    theirs = fit.get_robustcov_results("HC3").bse[1]
    low, high = clustered_slope_interval(fit.params[1], slopes)
    error = (high - low) / 2 / student.isf(0.025, 14)
    assert error == pytest.approx(theirs * np.sqrt(14 / 15), rel=1e-9)


def test_too_few_have_no_interval() -> None:
    assert np.isnan(fisher_interval(0.5, 1)).all()
    assert np.isfinite(fisher_interval(0.5, 2)).all()
    assert np.isnan(clustered_interval(0.5, np.full(4, 0.5))).all()
    assert np.isnan(clustered_slope_interval(0.5, np.full(4, 0.5))).all()


def test_a_perfect_correlation_has_an_interval_without_a_warning() -> None:
    low, high = fisher_interval(1.0, 5)
    assert 0.99 < low <= high <= 1
