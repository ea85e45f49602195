"""The values of each kept class: the terms whose means over classes or pairs are the metrics.

A column that does not exist (a class mean at the centre has no direction) is None, for the reasons that the metrics
made from it give. Lengths are in the unit of the features.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar, final

from torch import Tensor

from collapselab.core.geometry import Geometry
from collapselab.core.needs import Missing
from collapselab.core.pair_sums import PairRows

T = TypeVar("T")


@final
@dataclass(frozen=True)
class ClassRows:
    """One entry for each kept class, in the order of `classes`."""

    classes: Tensor
    """Numbers of the kept classes."""
    counts: Tensor
    norm: Tensor | None
    """‖m_c‖, about the mean of class means."""
    variance: Tensor | None
    """σ_c², the mean squared distance from the class mean."""
    cdnv: Tensor | None
    """Mean of the `cdnv` terms of the pairs with all other classes; nan where no pair has one."""
    cosine: Tensor | None
    """Mean of ⟨û_c, û_j⟩ over all other classes j."""
    nearest: Tensor | None
    """Number of the class with the nearest mean."""
    distance: Tensor | None
    """To that mean."""
    duality_cos: Tensor | None
    """cos(w_c, m_c)."""
    head_norm: Tensor | None
    """‖w_c‖."""


def class_rows(geometry: Geometry) -> ClassRows:
    """The rows of a geometry that was made with `rows=True`.

    The mean of `cdnv` over classes is the metric `cdnv` where no two class means coincide, that of `cosine` is
    `cosine_mean`, and that of `duality_cos` is `duality_cos_mean`.
    """
    pairs = _or_none(lambda: _pair_rows(geometry))
    return ClassRows(
        classes=geometry.kept,
        counts=geometry.counts,
        norm=_or_none(lambda: geometry.norms),
        variance=_or_none(lambda: geometry.variances),
        cdnv=None if pairs is None else pairs.cdnv,
        cosine=None if pairs is None else pairs.cosine,
        nearest=None if pairs is None else geometry.kept[pairs.nearest],
        distance=None if pairs is None else pairs.distance,
        duality_cos=_or_none(lambda: geometry.duality_cosines),
        head_norm=_or_none(lambda: geometry.head.lengths()),
    )


def _pair_rows(geometry: Geometry) -> PairRows:
    rows = geometry.pairs.rows
    assert rows is not None, "the geometry was made without rows=True"
    return rows


def _or_none(quantity: Callable[[], T]) -> T | None:
    try:
        return quantity()
    except Missing:
        return None
