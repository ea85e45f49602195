"""How much of the geometry is frequency: the count n_c of a class beside its mean and its row of the output layer."""

import math

import torch
from torch import Tensor

from collapselab.core.geometry import Geometry, ratio
from collapselab.core.needs import Missing, ReasonCode

RIDGE = 0.01
"""Penalty of the regression, as a share of the mean eigenvalue: it exists with fewer classes than dimensions too."""


def norm_frequency_r(geometry: Geometry) -> float:
    """Correlation over classes of ‖m_c‖ with log n_c."""
    return _correlation(geometry.norms, _log_counts(geometry), "the norms")


def head_norm_frequency_r(geometry: Geometry) -> float:
    """Correlation over classes of ‖w_c‖ with log n_c."""
    norms = geometry.head.lengths()
    geometry.at_least(3)
    return _correlation(norms, _log_counts(geometry), "the output rows' norms")


def frequency_r2(geometry: Geometry) -> float:
    """1 − Σ(y − ŷ)²/Σ(y − ȳ)² for y = log n_c, where ŷ is predicted from μ_c by a regression on all other classes.

    A ridge regression with a free intercept. Leaving one class out has a closed form: with the leverage h_c = 1/K +
    m_cᵀ(MᵀM + λI)⁻¹m_c, the residual of the class is that of the whole fit over 1 − h_c, and that of ȳ over 1 − 1/K.
    """
    target = _log_counts(geometry)
    target = target - target.mean()
    penalty = RIDGE * float(geometry.gram.trace()) / geometry.dim
    if penalty == 0:
        raise Missing(ReasonCode.COINCIDENT, "all class means coincide.")
    factor, failed = torch.linalg.cholesky_ex(geometry.gram + penalty * torch.eye(geometry.dim).to(geometry.gram))
    if failed:
        raise Missing(ReasonCode.OUT_OF_RANGE, "the Gram matrix of the class means is not a matrix of numbers.")
    product = torch.stack([target[now] @ block for now, block in geometry.centred_blocks()]).sum(0)
    slopes = torch.cholesky_solve(product[:, None], factor).squeeze(1)
    errors = 0.0
    for now, block in geometry.centred_blocks():
        half = torch.linalg.solve_triangular(factor, block.T, upper=False)
        leverage = half.square().sum(0) + 1 / geometry.classes
        errors += float(((target[now] - block @ slopes) / (1 - leverage)).square().sum())
    spread = float(target.square().sum()) / (1 - 1 / geometry.classes) ** 2
    return 1 - ratio(errors, spread, "the variance of log counts")


def _log_counts(geometry: Geometry) -> Tensor:
    geometry.at_least(3)
    if bool((geometry.counts == geometry.counts[0]).all()):
        raise Missing(ReasonCode.ZERO, f"all classes have {int(geometry.counts[0]):,} samples; counts must differ.")
    return geometry.counts.double().log()


def _correlation(left: Tensor, right: Tensor, name: str) -> float:
    left, right = left - left.mean(), right - right.mean()
    spread = math.sqrt(float(left.square().sum()) * float(right.square().sum()))
    return max(-1.0, min(1.0, ratio(float(left @ right), spread, f"the spread of {name}")))
